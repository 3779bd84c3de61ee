// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/dbfile"
)

// Error is a failure of the database itself.
type Error struct {
	// Op is what was being done, Path the database.
	Op, Path string
	// Kind is apidb.ErrUnavailable or apidb.ErrSchema.
	Kind error
	// What is wrong, and what to do about it.
	What, Hint string
	Err        error // the cause, if there is one
}

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s: %s: %s", e.Op, e.Path, e.Kind, e.What)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives errors.Is and errors.As the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// failed is classify for what ends with a context: then that is the error.
func failed(ctx context.Context, op, path string, err error) error {
	var driverError *driver.Error
	if err != nil && ctx.Err() != nil && (errors.As(err, &driverError) || errors.Is(err, sql.ErrTxDone) || errors.Is(err, ctx.Err())) {
		return fmt.Errorf("%s: %w", op, ctx.Err())
	}
	return classify(op, path, err)
}

// classify makes an *Error of an error of the driver. What a caller decides on passes through as it is.
func classify(op, path string, err error) error {
	var driverError *driver.Error
	if !errors.As(err, &driverError) {
		if errors.Is(err, dbfile.ErrReplaced) {
			return &Error{Op: op, Path: path, Kind: apidb.ErrUnavailable, What: "what is written now would be lost", Err: err}
		}
		if errors.Is(err, sql.ErrConnDone) || errors.Is(err, sql.ErrTxDone) {
			return &Error{Op: op, Path: path, Kind: apidb.ErrUnavailable, What: "the connection to it is closed", Err: err}
		}
		return err
	}
	e := &Error{Op: op, Path: path, Kind: apidb.ErrUnavailable, Err: err}
	switch driverError.Code() & 0xff {
	case codes.SQLITE_FULL:
		e.What, e.Hint = "no space is left", "nothing was written; make space in "+filepath.Dir(path)
	case codes.SQLITE_READONLY, codes.SQLITE_PERM:
		e.What, e.Hint = "it cannot be written", "check the owner and mode of the file and of its directory, which SQLite writes to as well"
	case codes.SQLITE_CORRUPT:
		e.What, e.Hint = "it is damaged", "stop all that use it, keep a copy, and try `sqlite3 FILE .recover`, or restore a backup"
	case codes.SQLITE_NOTADB:
		e.Kind, e.What, e.Hint = apidb.ErrSchema, "it is not a database", "choose another path"
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		e.What, e.Hint = "it is locked", "a transaction of another process does not end"
	case codes.SQLITE_CANTOPEN:
		e.What, e.Hint = "it cannot be opened", "check that it is a file, and the owner and mode of it and of its directory"
	case codes.SQLITE_IOERR:
		e.What, e.Hint = "reading or writing it failed", "look for errors of the disk in the kernel's log, and for limits on the size of files"
		if driverError.Code() == codes.SQLITE_IOERR_SHMSIZE { // the file beside the log could not grow
			e.What, e.Hint = "no space is left", "nothing was written; make space in "+filepath.Dir(path)
		}
	case codes.SQLITE_ERROR, codes.SQLITE_SCHEMA, codes.SQLITE_CONSTRAINT:
		// A statement does not fit the tables: somebody changed them.
		e.Kind, e.What, e.Hint = apidb.ErrSchema, "its tables are not those of this program's schema", "restore a backup, or report this"
	default:
		e.What = "SQLite failed"
	}
	return e
}

// busy says whether another connection's lock is in the way.
func busy(err error) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code()&0xff == codes.SQLITE_BUSY
}

// fileError makes an *Error of an error of the file system.
func fileError(op, path string, err error) error {
	e := &Error{Op: op, Path: path, Kind: apidb.ErrUnavailable, What: "it cannot be opened", Err: err}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.What, e.Hint = "it cannot be written", "check the owner and mode of the file and of its directory"
	case errors.Is(err, syscall.EISDIR):
		e.Hint = "a directory is in its place; move it away, or choose another path"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.What, e.Hint = "no space is left", "make space in "+filepath.Dir(path)
	}
	return e
}
