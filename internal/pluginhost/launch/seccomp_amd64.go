// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// auditArch is the architecture that the filter of system calls is for.
func auditArch() uint32 { return unix.AUDIT_ARCH_X86_64 }

// System calls that other architectures do not have.
var (
	archCalls = always(unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB,
		unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE)
	archModeCalls       = always(unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN)
	archTruncatingCalls = given([]argument{{1, unix.O_ACCMODE, bpf.JumpEqual, 3}}, unix.SYS_OPEN)
)
