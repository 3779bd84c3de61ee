// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// This file lets a test stand between a process and its disk. A seccomp filter of the process makes
// the kernel ask the test at each system call that creates, moves, removes or syncs a file, of any
// thread and in order; the test lets the call happen, lets it fail, or kills the process before or
// after it.

// diskOps are those system calls.
var diskOps = map[uint32]string{
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fsync",
	unix.SYS_RENAMEAT: "rename", unix.SYS_RENAMEAT2: "rename", unix.SYS_LINKAT: "link",
	unix.SYS_UNLINKAT: "remove", unix.SYS_MKDIRAT: "mkdir", unix.SYS_OPENAT: "create",
}

// diskEvent is one of them, on a path below the watched directory.
type diskEvent struct {
	op string
	// path is what it is about, and from, of a rename or link, what it had been.
	path, from string
	flags      int
	sync       string // of fsync: the path below /proc of the open file
}

func (e diskEvent) String() string { return e.op + " " + filepath.Base(e.path) }

// carryOut executes the call of the process.
func (e diskEvent) carryOut() error {
	switch e.op {
	case "fsync":
		f, err := os.Open(e.sync)
		if err != nil {
			return err
		}
		return errors.Join(f.Sync(), f.Close())
	case "rename":
		return os.Rename(e.from, e.path)
	case "link":
		return os.Link(e.from, e.path)
	case "mkdir":
		if err := os.Mkdir(e.path, 0o700); !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil // as the process would have found it
	case "remove":
		return os.Remove(e.path)
	}
	f, err := os.OpenFile(e.path, e.flags, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// diskVerdict is the decision about an event.
type diskVerdict struct {
	errno syscall.Errno // 0: it is carried out
	kill  bool          // the process does not live to see it
	first bool          // with kill: it is carried out before
}

// diskWatch asks judge about each event below dir of the processes that run under it.
type diskWatch struct {
	dir    string
	judge  func(n int, e diskEvent) diskVerdict // n counts from 1
	target *process

	mu      sync.Mutex
	events  []diskEvent
	platter *platter // what a power cut would leave
	err     error
}

func (w *diskWatch) seen() []diskEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

const (
	underWatch = "E2E_UNDER_WATCH" // tells this binary to become another, under a filter
	watchFD    = 3                 // where it sends the filter's descriptor
)

// watched starts a binary as spawn does, with a watch over its disk.
func watched(t *testing.T, w *diskWatch, name string, args ...string) *process {
	t.Helper()
	var err error
	w.platter, err = newPlatter(w.dir)
	check(t, err)
	ours, theirs := socketPair(t)
	cmd := binaries.Command(name, args...)
	cmd.Args = append([]string{name, cmd.Path}, args...)
	cmd.Path = "/proc/self/exe"
	cmd.Env = append(cmd.Env, underWatch+"=1")
	cmd.ExtraFiles = []*os.File{theirs}
	p := launch(t, name, cmd)
	check(t, theirs.Close())
	w.target = p
	listener, err := receiveDescriptor(ours)
	if err != nil {
		t.Fatalf("a filter over the system calls of %s cannot be set up (seccomp user notification, Linux 5.5): %v",
			name, err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); w.serve(listener) }()
	t.Cleanup(func() {
		p.Kill()
		<-ended
		w.mu.Lock()
		defer w.mu.Unlock()
		check(t, w.err)
	})
	return p
}

func socketPair(t *testing.T) (*net.UnixConn, *os.File) {
	t.Helper()
	pair := testproc.Try(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)).Or(t)
	ours := os.NewFile(uintptr(pair[0]), "ours")
	conn := testproc.Try(net.FileConn(ours)).Or(t)
	check(t, ours.Close())
	return conn.(*net.UnixConn), os.NewFile(uintptr(pair[1]), "theirs")
}

func receiveDescriptor(conn *net.UnixConn) (int, error) {
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	body, oob := make([]byte, 256), make([]byte, 64)
	n, oobn, _, _, err := conn.ReadMsgUnix(body, oob)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) == 0 {
		return 0, fmt.Errorf("%s", body[:n])
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return 0, err
	}
	unix.CloseOnExec(fds[0])
	return fds[0], nil
}

// becomeWatched is what a process does that watched starts: it puts itself under the filter and
// becomes the binary. It returns only an error.
func becomeWatched() error {
	runtime.LockOSThread() // the filter is the thread's, and the thread becomes the process
	listener, err := filterDiskOps()
	if err != nil {
		_ = unix.Sendmsg(watchFD, []byte(err.Error()), nil, nil, 0)
		return err
	}
	if err := unix.Sendmsg(watchFD, []byte{1}, unix.UnixRights(listener), nil, 0); err != nil {
		return err
	}
	unix.CloseOnExec(listener)
	unix.CloseOnExec(watchFD)
	env := slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, underWatch+"=") })
	return unix.Exec(os.Args[1], append([]string{os.Args[0]}, os.Args[2:]...), env)
}

// filterDiskOps has the kernel ask a listener about the calls of diskOps.
func filterDiskOps() (listener int, err error) {
	const (
		load, equal, anyBit, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
			unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		number, thirdArgument = 0, 32 // in struct seccomp_data; of the argument the lower half, little-endian
	)
	program := []unix.SockFilter{{Code: load, K: number}}
	for nr := range diskOps {
		if nr != unix.SYS_OPENAT {
			program = append(program, unix.SockFilter{Code: equal, K: nr, Jf: 1},
				unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF})
		}
	}
	program = append(program,
		unix.SockFilter{Code: equal, K: unix.SYS_OPENAT, Jf: 3},
		unix.SockFilter{Code: load, K: thirdArgument}, unix.SockFilter{Code: anyBit, K: unix.O_CREAT, Jf: 1},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_USER_NOTIF},
		unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// notification and response are the kernel's struct seccomp_notif and seccomp_notif_resp.
type notification struct {
	id         uint64
	pid, flags uint32
	nr, arch   uint32
	pointer    uint64
	args       [6]uint64
}

type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

// serve answers the kernel until no process is left under the filter.
func (w *diskWatch) serve(listener int) {
	defer func() { _ = unix.Close(listener) }()
	for {
		polled := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(polled, -1); errors.Is(err, unix.EINTR) {
			continue
		}
		if polled[0].Revents&unix.POLLIN == 0 {
			return
		}
		var n notification
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV,
			uintptr(unsafe.Pointer(&n))); errno != 0 {
			continue // the caller ended, or was interrupted and asks again
		}
		r := response{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if errno, kill := w.decide(n); kill {
			_ = w.target.Signal(syscall.SIGKILL) // and no answer
			continue
		} else if errno != 0 {
			r.errno, r.flags = -int32(errno), 0
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener),
			unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&r)))
	}
}

func (w *diskWatch) decide(n notification) (errno syscall.Errno, kill bool) {
	e, err := n.event()
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.err = errors.Join(w.err, err)
		return 0, false
	}
	if e.path != w.dir && !strings.HasPrefix(e.path, w.dir+"/") {
		return 0, false
	}
	w.events = append(w.events, e)
	v := w.judge(len(w.events), e)
	if e.op == "fsync" && v.errno == 0 && v.kill == v.first {
		w.err = errors.Join(w.err, w.platter.sync(e.path))
	}
	if v.kill && v.first {
		w.err = errors.Join(w.err, e.carryOut())
	}
	return v.errno, v.kill
}

// event reads what a notification is about.
func (n notification) event() (diskEvent, error) {
	e := diskEvent{op: diskOps[n.nr]}
	var err error
	switch n.nr {
	case unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		e.sync = fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[0]))
		e.path, err = os.Readlink(e.sync)
	case unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT:
		var err2 error
		e.from, err = n.path(n.args[0], n.args[1])
		e.path, err2 = n.path(n.args[2], n.args[3])
		err = errors.Join(err, err2)
	default:
		e.flags = int(int32(n.args[2]))
		e.path, err = n.path(n.args[0], n.args[1])
	}
	if err != nil {
		return e, fmt.Errorf("%s of process %d: %w", e.op, n.pid, err)
	}
	return e, nil
}

// path reads a path from the memory of the process, and makes it absolute.
func (n notification) path(dir, pointer uint64) (string, error) {
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", n.pid))
	if err != nil {
		return "", err
	}
	defer func() { _ = memory.Close() }()
	buf := make([]byte, unix.PathMax)
	// The path may end close before memory that cannot be read; what came before is enough then.
	got, err := io.ReadFull(io.NewSectionReader(memory, int64(pointer), int64(len(buf))), buf)
	end := bytes.IndexByte(buf[:got], 0)
	if end < 0 {
		return "", fmt.Errorf("reading a path: %w", err)
	}
	path := string(buf[:end])
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	base := fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(dir))
	if int32(dir) == unix.AT_FDCWD {
		base = fmt.Sprintf("/proc/%d/cwd", n.pid)
	}
	if base, err = os.Readlink(base); err != nil {
		return "", err
	}
	return filepath.Join(base, path), nil
}
