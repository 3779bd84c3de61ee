// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package launch

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// auditArch is the architecture that the filter of system calls is for, 0 if this is not supported:
// it is for those that have the kernel's generic table of system calls and no other.
func auditArch() uint32 {
	return map[string]uint32{"arm64": unix.AUDIT_ARCH_AARCH64, "riscv64": unix.AUDIT_ARCH_RISCV64,
		"loong64": unix.AUDIT_ARCH_LOONGARCH64}[runtime.GOARCH]
}

// archCalls are system calls that the generic table does not have.
var archCalls, archModeCalls, archTruncatingCalls []callRule
