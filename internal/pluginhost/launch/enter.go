// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Kernel is what a sandbox can be made of on this machine, for this process.
type Kernel struct {
	// Landlock is its version, 0 if the kernel has none or if it was not switched on.
	Landlock int
	// Seccomp reports whether system calls can be filtered.
	Seccomp bool
}

// OwnKernel returns the features of this machine's kernel.
func OwnKernel() Kernel { return Kernel{Landlock: landlockABI(), Seccomp: hasSeccomp()} }

// String is what a sandbox here is made of, such as "landlock 6, seccomp".
func (k Kernel) String() string {
	var parts []string
	if k.Landlock > 0 {
		parts = append(parts, fmt.Sprintf("landlock %d", k.Landlock))
	}
	if k.Seccomp {
		parts = append(parts, "seccomp")
	}
	if parts == nil {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// Lacks says what a process in a sandbox can do here that it cannot with all parts of it, and what
// that part is. It is empty if nothing is missing.
func (k Kernel) Lacks() (lacks []string) {
	switch {
	case k.Landlock == 0:
		lacks = append(
			lacks,
			"it can read and change the agent's secrets and files, and send signals to the agent (no Landlock: "+
				"Linux has it since 5.13, with landlock in the boot parameter lsm=)",
		)
	case k.Landlock < scopeABI:
		lacks = append(lacks,
			fmt.Sprintf(
				"it can send signals to the agent and connect to abstract sockets (Landlock %d: Linux has version "+
					"%d since 6.12)", k.Landlock, scopeABI))
	}
	if !k.Seccomp {
		lacks = append(lacks, "it can change the modes of the agent's files and make all system calls (no seccomp)")
		if k.Landlock == 1 || k.Landlock == 2 {
			lacks = append(lacks, "it can truncate the agent's files (no seccomp, and Landlock before version 3)")
		}
	}
	return lacks
}

// Describe is the sandbox of a process for people, such as "landlock 6, seccomp". Without one, for
// nil, it is "none" and why.
func (k Kernel) Describe(s *Sandbox) string {
	if s == nil {
		return "none: the configuration says so"
	}
	if s.Modes && k.Seccomp {
		return k.String() + " (allow_chmod)"
	}
	return k.String()
}

// Confinement is the sandbox of one process, which enters it before it executes a plugin.
type Confinement struct {
	rules *ruleset // nil without Landlock
	parts []string // of the words below
}

// Argument 1 of the process that enters a sandbox: these words, separated by commas.
const (
	withLandlock = "landlock" // descriptor 5 is the ruleset
	withSeccomp  = "seccomp"
	withModes    = "modes" // Sandbox.Modes
)

// Confine makes the sandbox for one process: exe is its executable, and own what it may write to in
// addition. Start ends it.
//
// Errors: the kernel refuses a rule, or a path cannot be checked.
func (s *Sandbox) Confine(k Kernel, exe *os.File, own ...string) (*Confinement, error) {
	c := &Confinement{}
	if k.Landlock > 0 {
		rules, err := s.build(k.Landlock, exe, own...)
		if err != nil {
			return nil, err
		}
		c.rules, c.parts = rules, append(c.parts, withLandlock+strconv.Itoa(k.Landlock))
	}
	if k.Seccomp {
		c.parts = append(c.parts, withSeccomp)
	}
	if s.Modes {
		c.parts = append(c.parts, withModes)
	}
	return c, nil
}

// init enters a sandbox: a process whose argument 0 is protocol.SandboxArg is this program again,
// which enters a sandbox and then executes a plugin. It has the descriptors
//
//	3  the plugin's executable, which was checked
//	4  a pipe, which closes when the plugin is executed, or else gets the number of the error
//	5  the ruleset, if there is one
//
// Argument 1 has the parts of the sandbox, and the others are those of the plugin, from argument 0
// on. A thread of the agent cannot
// enter the sandbox and start the plugin instead: the plugin could then trace that thread, which
// has all memory of the agent.
//
// It is done before the program's own code runs, on the initial thread, which has the signal of the
// agent's death.
func init() {
	if len(os.Args) > 1 && os.Args[0] == protocol.SandboxArg {
		runtime.LockOSThread()
		failed := enterSandbox(os.Args[1:])
		_, _ = unix.Write(4, []byte(strconv.Itoa(int(failed))))
		os.Exit(1)
	}
}

// enterSandbox enters the sandbox and executes the plugin. It returns only if that fails.
func enterSandbox(args []string) unix.Errno {
	unix.CloseOnExec(4)
	if _, _, failed := unix.Syscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); failed != 0 {
		return failed
	}
	parts, landlock := strings.Split(args[0], ","), 0
	if version, has := strings.CutPrefix(parts[0], withLandlock); has {
		landlock, _ = strconv.Atoi(version)
		unix.CloseOnExec(5)
		if failed := enterLandlock(landlock); failed != 0 {
			return failed
		}
	}
	if slices.Contains(parts, withSeccomp) {
		filter, err := callFilter(landlock, slices.Contains(parts, withModes))
		if err != nil {
			return unix.EINVAL
		}
		if failed := enterFilter(filter); failed != 0 {
			return failed
		}
	}
	failed := unix.EINVAL
	_ = errors.As(unix.Exec("/proc/self/fd/3", args[1:], os.Environ()), &failed)
	return failed
}

// enterLandlock completes the ruleset with the files of this process, whose number is that of the
// plugin, and enters it.
func enterLandlock(version int) unix.Errno {
	if fd, err := unix.Open("/proc/self/", unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
		rule := unix.LandlockPathBeneathAttr{Allowed_access: ownRights & allRights(version), Parent_fd: int32(fd)}
		if _, _, failed := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, 5, unix.LANDLOCK_RULE_PATH_BENEATH,
			uintptr(unsafe.Pointer(&rule)), 0, 0, 0); failed != 0 {
			return failed
		}
	}
	_, _, failed := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, 5, 0, 0)
	return failed
}

// Skipped returns the paths that are not open to the process because of where they lead: through a
// symbolic link that others than root can make, or to a secret.
func (c *Confinement) Skipped() []string {
	if c.rules == nil {
		return nil
	}
	return c.rules.skipped
}

// Start starts a command in the sandbox, once. The first extra file of the command is the plugin's
// executable. As that of [exec.Cmd], its error says why the plugin could not be executed.
func (c *Confinement) Start(cmd *exec.Cmd) error {
	if c.rules != nil {
		defer c.rules.close()
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = read.Close() }()
	cmd.Path, cmd.Args = "/proc/self/exe",
		append([]string{protocol.SandboxArg, strings.Join(c.parts, ",")}, cmd.Args...)
	cmd.ExtraFiles = append(cmd.ExtraFiles, write)
	if c.rules != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, c.rules.file)
	}
	err = cmd.Start()
	_ = write.Close()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(read, 16)) // until the plugin is executed, or the process has ended
	if len(text) == 0 && err == nil {
		return nil
	}
	number, _ := strconv.Atoi(string(text))
	return errors.Join(fmt.Errorf("entering the sandbox: %w", unix.Errno(number)), err, abandon(cmd))
}

// abandon ends a command that did not become a plugin.
func abandon(cmd *exec.Cmd) error {
	_ = cmd.Process.Kill()
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	return nil
}
