// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
)

// classify makes a *store.Error of an error of the driver.
func classify(path string) func(op string, err error) (error, bool) {
	return func(op string, err error) (error, bool) {
		e := &store.Error{Op: op, Where: path, Err: err}
		// The ledger's own errors pass through as what they are.
		if errors.Is(err, ledger.ErrVersionConflict) || errors.Is(err, ledger.ErrReload) {
			return err, false
		}
		if errors.Is(err, store.ErrReplaced) {
			e.Kind = store.ErrReplaced
			return e, false
		}
		switch primary(err) {
		case codes.SQLITE_FULL:
			e.Kind, e.Hint = store.ErrFull, "nothing was written; make space in "+filepath.Dir(path)
		case codes.SQLITE_READONLY, codes.SQLITE_PERM:
			e.Kind, e.Hint = store.ErrReadOnly, "check the owner and mode of the file and of its directory, which SQLite writes to as well"
		case codes.SQLITE_CORRUPT:
			e.Kind, e.Hint = store.ErrCorrupt, "stop all that use it, keep a copy, and try `sqlite3 FILE .recover`, or restore a backup"
		case codes.SQLITE_NOTADB:
			e.Kind, e.Hint = store.ErrNotDatabase, "choose another path"
		case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
			e.Kind, e.Hint = store.ErrLocked, "a transaction of another process does not end"
		case codes.SQLITE_CANTOPEN:
			e.Kind, e.Hint = store.ErrUnreachable, "check that it is a file, and the owner and mode of it and of its directory"
		case codes.SQLITE_IOERR:
			if code(err) == codes.SQLITE_IOERR_SHMSIZE { // the file beside the log could not grow
				e.Kind, e.Hint = store.ErrFull, "make space in "+filepath.Dir(path)
				break
			}
			e.Kind, e.Hint = store.ErrIO, "look for errors of the disk in the kernel's log, and for limits on the size of files"
		case codes.SQLITE_CONSTRAINT:
			return e, true
		}
		return e, false
	}
}

// code is SQLite's extended result code, 0 when err is not the driver's.
func code(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// primary is the primary one of a result code.
func primary(err error) int { return code(err) & 0xff }

// commitUnknown: when the log could not be synced, its frames may be on the
// disk all the same, and count after a crash.
func commitUnknown(err error) bool { return primary(err) == codes.SQLITE_IOERR }

// fileError makes a *store.Error of an error of the file system.
func fileError(op, path string, err error) error {
	e := &store.Error{Op: op, Where: path, Kind: store.ErrUnreachable, Err: err}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind, e.Hint = store.ErrReadOnly, "check the owner and mode of the file and of its directory"
	case errors.Is(err, syscall.EISDIR):
		e.Hint = "a directory is in its place; move it away, or choose another path"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Kind, e.Hint = store.ErrFull, "make space in "+filepath.Dir(path)
	}
	return e
}
