// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"os"
	"syscall"
)

// Lock locks or unlocks an open file, as flock(2) does with the same words: syscall.LOCK_EX,
// syscall.LOCK_EX|syscall.LOCK_NB and so on. A signal does not end the wait. The error is the
// kernel's, such as EWOULDBLOCK.
func Lock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
