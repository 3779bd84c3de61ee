// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data.
const (
	callNumber  = 0
	callMachine = 4
	// firstArgument is where the lower half of the first argument is; each has 8 bytes.
	firstArgument = 16
)

// pretend makes four system calls, which need missing hardware or rights, succeed without effect
// for this process and all that it starts:
//
//	sched_setaffinity    to run on CPUs of the made-up host, of which this machine has fewer
//	mbind, set_mempolicy to have memory in its NUMA cells
//	prlimit64            to raise the limit of locked memory, as libvirt does for guests with
//	                     devices of the host; root in a container may lack CAP_SYS_RESOURCE,
//	                     and nothing here locks memory
//
// So pinned guests run on any CPU, and libvirt reports of them what it would on such a host.
func pretend() error {
	machine, ok := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("guests with made-up hardware: not on %s", runtime.GOARCH)
	}
	const (
		load, equal, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS,
			unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		worked = unix.SECCOMP_RET_ERRNO // with no error
	)
	program := []unix.SockFilter{
		{Code: load, K: callMachine},
		{Code: equal, Jf: 9, K: machine},
		{Code: load, K: callNumber},
		{Code: equal, Jt: 8, K: unix.SYS_SCHED_SETAFFINITY},
		{Code: equal, Jt: 7, K: unix.SYS_MBIND},
		{Code: equal, Jt: 6, K: unix.SYS_SET_MEMPOLICY},
		{Code: equal, Jf: 4, K: unix.SYS_PRLIMIT64},
		{Code: load, K: firstArgument + 8}, // which limit
		{Code: equal, Jf: 2, K: unix.RLIMIT_MEMLOCK},
		{Code: load, K: firstArgument + 16}, // where the new limit is; nowhere if the old one is asked for
		{Code: equal, Jf: 1, K: 0},
		{Code: end, K: unix.SECCOMP_RET_ALLOW},
		{Code: end, K: worked},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&filter)))
	if errno != 0 {
		return fmt.Errorf("guests with made-up hardware: seccomp: %w", errno)
	}
	return nil
}
