// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"os"
	"syscall"

	"github.com/compute-agent/compute-agent/placement/store"
)

// lock takes the file PATH-lock, shared or exclusively, for as long as the
// store is open. SQLite's own locks last one transaction; this one says who
// may be there at all.
func lock(path string, exclusive bool) (unlock func() error, err error) {
	const op = "locking"
	f, err := os.OpenFile(path+"-lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fileError(op, path, err)
	}
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	for {
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close() // the error above is the one that matters
		if errors.Is(err, syscall.EWOULDBLOCK) {
			hint := "another process uses it exclusively; stop that one first"
			if exclusive {
				hint = "another process has it open; stop that one first, or do not ask for exclusive use"
			}
			return nil, &store.Error{Op: op, Where: path, Kind: store.ErrLocked, Hint: hint}
		}
		return nil, fileError(op, path, err)
	}
	return f.Close, nil
}
