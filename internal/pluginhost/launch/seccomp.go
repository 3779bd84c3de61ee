// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"slices"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// A driver's process has a filter of system calls beside Landlock. It allows what it does not name:
// drivers are written in any language, and what a runtime calls changes. It refuses what crosses
// the boundary between two processes of one user, what is administration of the machine, what
// would evade the filter, and what Landlock does not cover. A refused call fails with EPERM.
//
// Numbers of processes are no protection: a driver has to start and end its own children, so
// kill(2) is left to Landlock, which has a scope for signals since version 6.

// callRule is a system call that is refused: always, or if one of these arguments matches.
type callRule struct {
	number int
	args   []argument
	errno  unix.Errno // EPERM if it is 0
}

// argument matches if the lower 32 bits of an argument, of which mask says which count, meet a
// condition. The kernel ignores the upper ones of all that are named here.
type argument struct {
	index int
	mask  uint32
	test  bpf.JumpTest
	value uint32
}

// whole is the mask of all bits.
const whole = 0xffffffff

// newNamespaces are the flags of clone(2) that make namespaces.
const newNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// others matches what is not 0: a process other than the one that calls.
var others = argument{0, whole, bpf.JumpNotEqual, 0}

// refusedCalls are refused on all machines. Those of one architecture are in archCalls.
var refusedCalls = slices.Concat(
	// Memory, descriptors and resources of other processes.
	always(unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE,
		unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
		unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
		unix.SYS_BPF, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY),
	given([]argument{others}, unix.SYS_PRLIMIT64, unix.SYS_SCHED_SETAFFINITY, unix.SYS_SCHED_SETATTR,
		unix.SYS_SCHED_SETPARAM, unix.SYS_SCHED_SETSCHEDULER,
		unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES),
	given([]argument{{0, whole, bpf.JumpNotEqual, unix.PRIO_PROCESS}, {1, whole, bpf.JumpNotEqual, 0}},
		unix.SYS_SETPRIORITY),
	// IOPRIO_WHO_PROCESS
	given([]argument{{0, whole, bpf.JumpNotEqual, 1}, {1, whole, bpf.JumpNotEqual, 0}}, unix.SYS_IOPRIO_SET),
	// What another process typed, as seen by a terminal that both have.
	given([]argument{{1, whole, bpf.JumpEqual, unix.TIOCSTI}, {1, whole, bpf.JumpEqual, unix.TIOCLINUX}},
		unix.SYS_IOCTL),
	// Another view of the files.
	always(unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT,
		unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR,
		unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT),
	given([]argument{{0, newNamespaces | unix.CLONE_NEWTIME, bpf.JumpNotEqual, 0}}, unix.SYS_UNSHARE),
	given([]argument{{0, newNamespaces, bpf.JumpNotEqual, 0}}, unix.SYS_CLONE),
	// Its flags are in memory, where a filter does not see them. C libraries then use clone.
	[]callRule{{number: unix.SYS_CLONE3, errno: unix.ENOSYS}},
	// System calls in memory that is shared with the kernel, which no filter sees.
	always(unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER),
	// Administration of the machine.
	always(unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD,
		unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
		unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
		unix.SYS_SYSLOG, unix.SYS_VHANGUP,
		unix.SYS_LOOKUP_DCOOKIE, unix.SYS_NFSSERVCTL),
)

// modeCalls change who may do what with a file of the same user. Landlock does not cover them.
// fchmod is one: a directory that may only be listed can be opened. So are the requests of ioctl
// that set flags and attributes: an immutable file cannot be changed by the agent either.
var modeCalls = slices.Concat(always(unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHMODAT2,
	unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_SETXATTR, unix.SYS_LSETXATTR, unix.SYS_FSETXATTR, unix.SYS_SETXATTRAT,
	unix.SYS_REMOVEXATTR, unix.SYS_LREMOVEXATTR, unix.SYS_FREMOVEXATTR, unix.SYS_REMOVEXATTRAT, unix.SYS_FILE_SETATTR),
	given([]argument{
		{1, whole, bpf.JumpEqual, unix.FS_IOC_SETFLAGS},
		{1, whole, bpf.JumpEqual, fsIocSetflags32},
		{1, whole, bpf.JumpEqual, fsIocFssetxattr},
		{1, whole, bpf.JumpEqual, unix.FS_IOC_ENABLE_VERITY},
	}, unix.SYS_IOCTL),
	archModeCalls)

// Requests of ioctl(2) from linux/fs.h that x/sys does not have.
const (
	fsIocSetflags32 = 0x40046602 // FS_IOC32_SETFLAGS
	fsIocFssetxattr = 0x401c5820 // FS_IOC_FSSETXATTR
)

// truncatingCalls truncate a file without a right of Landlock before version 3: by its path, or
// with the access mode 3, which neither reads nor writes. Runtimes use openat where there is no
// openat2.
var truncatingCalls = slices.Concat(
	always(unix.SYS_TRUNCATE),
	given([]argument{{2, unix.O_ACCMODE, bpf.JumpEqual, 3}}, unix.SYS_OPENAT),
	[]callRule{{number: unix.SYS_OPENAT2, errno: unix.ENOSYS}},
	archTruncatingCalls,
)

func always(numbers ...int) []callRule { return given(nil, numbers...) }

func given(args []argument, numbers ...int) (out []callRule) {
	for _, number := range numbers {
		out = append(out, callRule{number: number, args: args})
	}
	return out
}

// Offsets in seccomp_data: the arguments are 64 bits each, here in the order of little endian.
const (
	offNumber, offArch, offArgs = 0, 4, 16
	x32Bit                      = 0x40000000 // a number of this ABI of amd64 has it
)

// callFilter is the filter of a process whose sandbox has this version of Landlock. modes allows
// modeCalls. System calls of another architecture are refused: their numbers mean others.
func callFilter(landlock int, modes bool) ([]bpf.RawInstruction, error) {
	rules := slices.Concat(refusedCalls, archCalls)
	if !modes {
		rules = append(rules, modeCalls...)
	}
	if landlock < 3 {
		rules = append(rules, truncatingCalls...)
	}
	refuse := func(errno unix.Errno) bpf.RetConstant {
		return bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(errno)}
	}
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: auditArch(), SkipTrue: 1}, refuse(unix.EPERM),
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32Bit, SkipTrue: 1}, refuse(unix.EPERM),
	}
	for _, rule := range rules {
		errno := rule.errno
		if errno == 0 {
			errno = unix.EPERM
		}
		var then []bpf.Instruction
		for _, arg := range rule.args {
			then = append(then, bpf.LoadAbsolute{Off: uint32(offArgs + 8*arg.index), Size: 4},
				bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: arg.mask},
				bpf.JumpIf{Cond: arg.test, Val: arg.value, SkipFalse: 1}, refuse(errno))
		}
		if rule.args == nil {
			then = append(then, refuse(errno))
		} else {
			then = append(then, bpf.LoadAbsolute{Off: offNumber, Size: 4}) // for the rules that follow
		}
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(rule.number), SkipFalse: uint8(len(then))})
		program = append(program, then...)
	}
	return bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
}

// hasSeccomp reports whether the kernel has filters of system calls, and the agent one for this
// architecture.
func hasSeccomp() bool {
	_, _, failed := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, 0)
	return failed == unix.EFAULT && auditArch() != 0 // EFAULT: it would read the filter
}

// enterFilter applies a filter to this thread. It needs no_new_privs.
func enterFilter(filter []bpf.RawInstruction) unix.Errno {
	// both are struct sock_filter
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: (*unix.SockFilter)(unsafe.Pointer(&filter[0]))}
	_, _, failed := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER,
		uintptr(unsafe.Pointer(&program)))
	return failed
}
