// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	hostileDir  = "SANDBOX_TEST_HOSTILE" // the directory of the hostile driver, which the test binary then is
	hostileMark = "hostile-begin"
)

// attempt is what a hostile driver tries. It succeeds unless the kernel refuses it: with EPERM or
// EACCES, or ENOSYS for what has a substitute.
type attempt struct {
	name string
	// refused reports whether it must be in a sandbox of these parts. Without one, all attempts
	// with always succeed: the test shows something.
	refused func(k Kernel) bool
	always  bool
	do      func(h *intruder) error
}

// intruder is a driver that tries what it must not do.
type intruder struct {
	dir   string // has state, the agent's, open, the driver's, and mixed, the driver's with a file of the agent
	agent int
}

func (i *intruder) state(name string) string { return filepath.Join(i.dir, "state", name) }
func (i *intruder) open(name string) string  { return filepath.Join(i.dir, "open", name) }
func (i *intruder) mixed(name string) string { return filepath.Join(i.dir, "mixed", name) }
func (i *intruder) proc(name string) string {
	return filepath.Join("/proc", strconv.Itoa(i.agent), name)
}

func byLandlock(k Kernel) bool { return k.Landlock > 0 }
func byScope(k Kernel) bool    { return k.Landlock >= scopeABI }
func bySeccomp(k Kernel) bool  { return k.Seccomp }
func byEither(k Kernel) bool   { return k.Landlock > 0 || k.Seccomp }
func byRight(k Kernel) bool    { return k.Landlock >= 3 || k.Seccomp }
func never(Kernel) bool        { return false }

// call makes a system call, with arguments that the kernel does not get to if it refuses the call.
func call(number int, args ...uintptr) func(*intruder) error {
	return func(*intruder) error {
		var a [6]uintptr
		copy(a[:], args)
		if _, _, failed := unix.RawSyscall6(uintptr(number), a[0], a[1], a[2], a[3], a[4], a[5]); failed != 0 {
			return failed
		}
		return nil
	}
}

const bad = ^uintptr(0) // a descriptor, or an address

var attempts = []attempt{
	{"read a secret", byLandlock, true,
		func(h *intruder) error { _, err := os.ReadFile(h.state("identity.pem")); return err }},
	{"write to a trusted file", byLandlock, true,
		func(h *intruder) error { return reopen(h.state("ca.pem"), os.O_WRONLY) }},
	{"write to a trusted file among its own", byLandlock, true,
		func(h *intruder) error { return reopen(h.mixed("ca.pem"), os.O_WRONLY) }},
	{"write to a configured file of the agent", byLandlock, true,
		func(h *intruder) error { return reopen(h.state("configured"), os.O_WRONLY) }},
	{"make a file", byLandlock, true, func(h *intruder) error { return os.WriteFile(h.state("made"), nil, 0o600) }},
	{"make a link to a secret", byLandlock, true,
		func(h *intruder) error { return os.Link(h.state("identity.pem"), h.open("linked")) }},
	{"link its own file", byLandlock, true,
		func(h *intruder) error { return os.Link(h.open("file"), h.state("linked")) }},
	{"make a symbolic link", byLandlock, true, func(h *intruder) error { return os.Symlink("/", h.state("symlink")) }},
	{"move a secret", byLandlock, true,
		func(h *intruder) error { return os.Rename(h.state("moved"), h.open("moved")) }},
	{"replace a file", byLandlock, true,
		func(h *intruder) error { return os.Rename(h.open("file2"), h.state("replaced")) }},
	{"move the state", byLandlock, true,
		func(h *intruder) error { return os.Rename(h.state("below"), h.open("below")) }},
	{"remove a file", byLandlock, true, func(h *intruder) error { return os.Remove(h.state("removed")) }},
	{"truncate a file", byRight, true, func(h *intruder) error { return unix.Truncate(h.state("ca.pem"), 1) }},
	{"truncate a file without access", byRight, true,
		func(h *intruder) error { return reopen(h.state("ca.pem"), 3|os.O_TRUNC) }},
	{"change the mode of a secret", bySeccomp, true,
		func(h *intruder) error { return unix.Chmod(h.state("identity.pem"), 0o600) }},
	{"change the mode of the state", bySeccomp, true,
		func(h *intruder) error { return unix.Chmod(h.state(""), 0o700) }},
	{"change the mode of the state by a descriptor", bySeccomp, true, func(h *intruder) error {
		fd, err := unix.Open(h.state(""), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		return unix.Fchmod(fd, 0o700)
	}},
	{"change the owner of a secret", bySeccomp, true,
		func(h *intruder) error { return unix.Lchown(h.state("identity.pem"), -1, -1) }},
	{"give a list of users access to a secret", bySeccomp, false, func(h *intruder) error {
		return unix.Setxattr(h.state("identity.pem"), "system.posix_acl_access", nil, 0)
	}},
	{"set flags of a file", bySeccomp, true, call(unix.SYS_IOCTL, bad, unix.FS_IOC_SETFLAGS, 0)},
	{"set flags of a file, by 32 bits", bySeccomp, true, call(unix.SYS_IOCTL, bad, 0x40046602, 0)},
	{"set attributes of a file by ioctl", bySeccomp, true, call(unix.SYS_IOCTL, bad, 0x401c5820, 0)},
	{"seal a file", bySeccomp, true, call(unix.SYS_IOCTL, bad, unix.FS_IOC_ENABLE_VERITY, 0)},
	{"signal the agent", byScope, true, func(h *intruder) error { return unix.Kill(h.agent, 0) }},
	{"signal a thread of the agent", byScope, true,
		func(h *intruder) error { return unix.Tgkill(h.agent, h.agent, 0) }},
	{"signal the agent by a descriptor", byScope, true, func(h *intruder) error {
		fd, err := unix.PidfdOpen(h.agent, 0)
		if err != nil {
			return err
		}
		return unix.PidfdSendSignal(fd, 0, nil, 0)
	}},
	{"connect to an abstract socket", byScope, true, func(h *intruder) error {
		name, err := os.ReadFile(h.open("abstract"))
		if err != nil {
			return err
		}
		c, err := net.Dial("unix", string(name))
		if err != nil {
			return err
		}
		return c.Close()
	}},
	{"trace the agent", byEither, false,
		func(h *intruder) error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(h.agent), 0, 0)(h) }},
	{"read memory of the agent", byEither, false, func(h *intruder) error {
		local, remote := make([]byte, 8), [1]unix.RemoteIovec{{Base: 8, Len: 8}}
		_, err := unix.ProcessVMReadv(h.agent, []unix.Iovec{{Base: &local[0], Len: 8}}, remote[:], 0)
		return err
	}},
	{"take a descriptor of the agent", byEither, false, func(h *intruder) error {
		fd, err := unix.PidfdOpen(h.agent, 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, 0, 0)
		return err
	}},
	{"compare itself with the agent", byEither, false,
		func(h *intruder) error { return call(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(h.agent), 1)(h) }},
	{"see the limits of the agent", bySeccomp, true, func(h *intruder) error {
		return unix.Prlimit(h.agent, unix.RLIMIT_NOFILE, nil, &unix.Rlimit{})
	}},
	{"change the priority of the agent", bySeccomp, true, func(h *intruder) error {
		const top = 20 // the kernel counts down from it, so that no priority is an error
		left, err := unix.Getpriority(unix.PRIO_PROCESS, h.agent)
		if err != nil {
			return err
		}
		return unix.Setpriority(unix.PRIO_PROCESS, h.agent, top-left) // as it was: the agent here is the test
	}},
	{"open the memory of the agent", byLandlock, false,
		func(h *intruder) error { return reopen(h.proc("mem"), os.O_RDONLY) }},
	{"have the kernel end the agent", byLandlock, true, func(h *intruder) error {
		score, err := os.ReadFile(h.proc("oom_score_adj"))
		if err != nil {
			return err
		}
		return os.WriteFile(h.proc("oom_score_adj"), score, 0)
	}},
	{"see a descriptor of the agent", byLandlock, false,
		func(h *intruder) error { _, err := os.Readlink(h.proc("fd/0")); return err }},
	{"see the root of the agent", byLandlock, false,
		func(h *intruder) error { _, err := os.Stat(h.proc("root/")); return err }},
	{"see the directory of the agent", byLandlock, false,
		func(h *intruder) error { _, err := os.Readlink(h.proc("cwd")); return err }},
	{"mount", bySeccomp, false, call(unix.SYS_MOUNT, bad, bad, bad, 0, bad)},
	{"open a tree", bySeccomp, false, call(unix.SYS_OPEN_TREE, bad, bad, 0)},
	{"move a mount", bySeccomp, false, call(unix.SYS_MOVE_MOUNT, bad, bad, bad, bad, 0)},
	{"change its root", bySeccomp, false, call(unix.SYS_CHROOT, bad)},
	{"enter a namespace", bySeccomp, false, call(unix.SYS_SETNS, bad, 0)},
	{"make a namespace", bySeccomp, false, call(unix.SYS_UNSHARE, unix.CLONE_NEWUTS)},
	{"start a process in a namespace", bySeccomp, false, func(*intruder) error {
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWUTS}
		return cmd.Run()
	}},
	{"clone with flags that no filter sees", bySeccomp, false, call(unix.SYS_CLONE3, bad, 88)},
	{"submit calls by a ring", bySeccomp, false, call(unix.SYS_IO_URING_SETUP, 1, bad)},
	{"load a program into the kernel", bySeccomp, false, call(unix.SYS_BPF, 0, bad, 0)},
	{"count events", bySeccomp, false, call(unix.SYS_PERF_EVENT_OPEN, bad, 0, bad, bad, 0)},
	{"handle page faults", bySeccomp, false, call(unix.SYS_USERFAULTFD, 1<<30)},
	{"use a keyring", bySeccomp, false, call(unix.SYS_KEYCTL, 9999)},
	{"add a key", bySeccomp, false, call(unix.SYS_ADD_KEY, bad, bad, 0, 0, 0)},
	{"open a file by its handle", bySeccomp, false, call(unix.SYS_OPEN_BY_HANDLE_AT, bad, bad, 0)},
	{"load a module", bySeccomp, false, call(unix.SYS_FINIT_MODULE, bad, bad, 0)},
	{"load a kernel", bySeccomp, false, call(unix.SYS_KEXEC_LOAD, 0, 99, bad, 0)},
	{"reboot", bySeccomp, false, call(unix.SYS_REBOOT, 0, 0, 0)}, // without the magic numbers
	{"swap", bySeccomp, false, call(unix.SYS_SWAPON, bad, 0)},
	{"set the clock", bySeccomp, false, call(unix.SYS_CLOCK_SETTIME, 99, bad)},
	{"type into a terminal", bySeccomp, true, func(h *intruder) error {
		return notRefused(call(unix.SYS_IOCTL, 0, 1<<32|unix.TIOCSTI, bad)(h))
	}},
	// What drivers need.
	{"read the system", never, true, func(*intruder) error { _, err := os.ReadFile("/etc/passwd"); return err }},
	{"read what was configured", never, true,
		func(h *intruder) error { _, err := os.ReadFile(h.state("configured")); return err }},
	{"read a trusted file", never, true,
		func(h *intruder) error { _, err := os.ReadFile(h.mixed("ca.pem")); return err }},
	{"write its own files", never, true,
		func(h *intruder) error { return os.WriteFile(h.open("new"), []byte("x"), 0o600) }},
	{"name itself", never, true,
		func(*intruder) error { return os.WriteFile("/proc/self/comm", []byte("hostile"), 0) }},
	{"start and end a child", never, true, func(*intruder) error {
		cmd := exec.Command("/bin/sleep", "1000")
		if err := cmd.Start(); err != nil {
			return err
		}
		if err := cmd.Process.Kill(); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			return err
		}
		return nil
	}},
	{"listen", never, true, func(h *intruder) error {
		for _, at := range [][2]string{{"unix", h.open("socket")},
			{"unix", "@" + h.open("own")}, {"tcp", "127.0.0.1:0"}} {
			l, err := net.Listen(at[0], at[1])
			if err != nil {
				return err
			}
			c, err := net.Dial(at[0], l.Addr().String())
			if err != nil {
				return err
			}
			_, _ = c.Close(), l.Close()
		}
		return nil
	}},
}

func reopen(path string, flags int) error {
	fd, err := unix.Open(path, flags, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// notRefused is nil unless a call was refused: it may have failed for another reason.
func notRefused(err error) error {
	// EXDEV: Landlock does not let it leave its directory
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EXDEV) {
		return err
	}
	return nil
}

// hostileMain is the process of the driver. It writes what succeeded.
func hostileMain() {
	runtime.LockOSThread() // one thread may get into a namespace
	h := &intruder{dir: os.Getenv(hostileDir)}
	pid, err := os.ReadFile(h.open("agent"))
	if err == nil {
		h.agent, err = strconv.Atoi(string(pid))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(hostileMark)
	for _, a := range attempts {
		if err := a.do(h); notRefused(err) == nil {
			if err != nil && a.always {
				fmt.Printf("%s: %v\n", a.name, err)
			}
			fmt.Println(a.name)
		}
	}
}

// TestHostileDriver: a driver tries to read and change the agent's files, to get at its process and
// to leave its sandbox. Each part of the sandbox refuses what it is for, with every version of
// Landlock up to that of the kernel, and together they refuse all of it.
func TestHostileDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	self := testproc.Try(os.Executable()).Or(t)
	own := OwnKernel()
	if own.Landlock < scopeABI || !own.Seccomp {
		t.Fatalf("the kernel of this machine has %s: the test needs landlock %d and seccomp", own, scopeABI)
	}
	kernels := []Kernel{{}, {Seccomp: true}, {Landlock: own.Landlock}}
	for abi := 1; abi <= own.Landlock; abi++ {
		kernels = append(kernels, Kernel{abi, true})
	}
	for _, k := range kernels {
		t.Run(k.String(), func(t *testing.T) { testHostile(t, self, k) })
	}
}

func testHostile(t *testing.T, self string, k Kernel) {
	dir := t.TempDir()
	h := &intruder{dir: dir}
	for _, path := range []string{h.state("below"), h.open(""), h.mixed("")} {
		testproc.Check(t, os.MkdirAll(path, 0o700))
	}
	l := testproc.Try(net.Listen("unix", "@"+h.open("of the agent"))).Or(t)
	defer func() { _ = l.Close() }()
	for path, content := range map[string]string{
		h.state("identity.pem"): "secret", h.state("ca.pem"): "trust", h.state("configured"): "x",
		h.state("moved"): "x", h.state("removed"): "x", h.state("replaced"): "x",
		h.open("file"): "x", h.open("file2"): "x", h.mixed("ca.pem"): "x", h.open("abstract"): l.Addr().String(),
		h.open("agent"): strconv.Itoa(os.Getpid()),
	} {
		testproc.Check(t, os.WriteFile(path, []byte(content), 0o600))
	}
	s := &Sandbox{
		Secrets: []string{h.state(""), h.state("identity.pem")}, Protected: []string{h.mixed("ca.pem")},
		Write: []string{h.open(""), h.mixed(""), h.mixed("ca.pem"), h.state(""),
			h.state("identity.pem"), h.state("configured")},
	}
	script := fmt.Sprintf("%s=%s exec %s\n", hostileDir, dir, self)
	written := runConfined(t, s, k, script)
	done := strings.Split(written, "\n")
	if done[0] != hostileMark {
		t.Fatalf("the driver wrote %q", written)
	}
	for _, a := range attempts {
		switch got := slices.Contains(done, a.name); {
		case got && a.refused(k):
			t.Errorf("a driver can %s", a.name)
		case !got && !a.refused(k) && a.always:
			t.Errorf("a driver cannot %s", a.name)
		}
	}
}

// TestDriverThatMayChangeModes: the key allow_chmod opens what it says, and no other call.
func TestDriverThatMayChangeModes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	script := "touch " + dir + "/f && chmod 640 " + dir +
		"/f && stat -c %a " + dir + "/f; unshare -u true && echo unshared"
	for modes, want := range map[bool]string{true: "640\n", false: ""} {
		if got := runConfined(t, &Sandbox{Write: []string{dir}, Modes: modes}, OwnKernel(), script); got != want {
			t.Errorf("Modes is %v: %q, want %q", modes, got, want)
		}
	}
}

// TestFilterRefusesForeignCalls: numbers of another architecture, or of the ABI x32, mean other
// calls, and are all refused.
func TestFilterRefusesForeignCalls(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	raw := testproc.Try(callFilter(scopeABI, true)).Or(t)
	filter, _ := bpf.Disassemble(raw)
	vm := testproc.Try(bpf.NewVM(filter)).Or(t)
	for _, c := range []struct {
		arch, number uint32
		args         [2]uint64
		want         uint32
	}{
		{auditArch(), unix.SYS_GETPID, [2]uint64{}, unix.SECCOMP_RET_ALLOW},
		{unix.AUDIT_ARCH_I386, unix.SYS_GETPID, [2]uint64{}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{unix.AUDIT_ARCH_ARM, 1, [2]uint64{}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{auditArch(), unix.SYS_GETPID | x32Bit, [2]uint64{}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{auditArch(), unix.SYS_PTRACE, [2]uint64{}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{auditArch(), unix.SYS_CLONE3, [2]uint64{}, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{auditArch(), unix.SYS_CLONE, [2]uint64{unix.CLONE_VM | unix.CLONE_VFORK}, unix.SECCOMP_RET_ALLOW},
		{auditArch(), unix.SYS_CLONE, [2]uint64{unix.CLONE_NEWUSER}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{auditArch(), unix.SYS_UNSHARE, [2]uint64{unix.CLONE_FS}, unix.SECCOMP_RET_ALLOW},
		{auditArch(), unix.SYS_PRLIMIT64, [2]uint64{0}, unix.SECCOMP_RET_ALLOW},
		{auditArch(), unix.SYS_PRLIMIT64, [2]uint64{1 << 32}, unix.SECCOMP_RET_ALLOW}, // the kernel sees 0
		{auditArch(), unix.SYS_PRLIMIT64, [2]uint64{1}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{auditArch(), unix.SYS_IOCTL, [2]uint64{0, unix.TIOCSTI}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{auditArch(), unix.SYS_IOCTL, [2]uint64{0, unix.TCGETS}, unix.SECCOMP_RET_ALLOW},
		{auditArch(), unix.SYS_FCHMODAT, [2]uint64{}, unix.SECCOMP_RET_ALLOW}, // allow_chmod
	} {
		var data []byte // in network order, as the interpreter reads it
		for _, word := range []uint32{c.number, c.arch, 0,
			0, uint32(c.args[0]), uint32(c.args[0] >> 32), uint32(c.args[1]), uint32(c.args[1] >> 32)} {
			data = binary.BigEndian.AppendUint32(data, word)
		}
		if got, err := vm.Run(data); uint32(got) != c.want || err != nil {
			t.Errorf("%#x of %#x with %#x: %#x, %v, want %#x", c.number, c.arch, c.args, got, err, c.want)
		}
	}
}

// TestKernelLacks: it names what is missing, and nothing of a complete sandbox.
func TestKernelLacks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if lacks := (Kernel{Landlock: scopeABI, Seccomp: true}).Lacks(); lacks != nil {
		t.Errorf("a complete sandbox lacks %q", lacks)
	}
	if lacks := (Kernel{Landlock: 4, Seccomp: true}).Lacks(); len(lacks) != 1 ||
		!strings.Contains(lacks[0], "signals") {
		t.Errorf("Landlock 4 lacks %q", lacks)
	}
}
