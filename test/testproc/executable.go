// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"os"
	"syscall"
)

// WriteExecutable writes a program that anyone may run. Meanwhile this process forks no other one:
// that would have the program open for writing until its exec, and it could not be run (ETXTBSY).
func WriteExecutable(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}
