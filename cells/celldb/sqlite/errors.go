// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/wire"
)

// explain makes an error of the driver one that says which file, what is wrong and what to do. Refusals and the errors of contexts pass.
func explain(path, op string, err error) error {
	var refusal *wire.Error
	if err == nil || errors.As(err, &refusal) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var hint string
	kind := celldb.ErrUnavailable
	switch primary(err) {
	case codes.SQLITE_FULL:
		hint = "nothing was written; make space in " + filepath.Dir(path)
	case codes.SQLITE_READONLY, codes.SQLITE_PERM:
		hint = "check the owner and mode of the file and of its directory, which SQLite writes to as well"
	case codes.SQLITE_CORRUPT:
		kind, hint = errDamaged, "it is damaged; stop the cell, keep a copy, and try `sqlite3 FILE .recover`, or restore a backup"
	case codes.SQLITE_NOTADB:
		kind, hint = errDamaged, "it is no database; choose another path"
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		hint = "a transaction of another process does not end"
	case codes.SQLITE_CANTOPEN:
		hint = "check that it is a file, and the owner and mode of it and of its directory"
	case codes.SQLITE_IOERR:
		hint = "look for errors of the disk in the kernel's log, for its free space, and for limits on the size of files"
	case codes.SQLITE_INTERRUPT:
		return fmt.Errorf("%s %s: %w", op, path, context.Canceled)
	default:
		return fmt.Errorf("%w: %s %s: %w", celldb.ErrUnavailable, op, path, err)
	}
	return fmt.Errorf("%w: %s %s: %w; %s", kind, op, path, err, hint)
}

// errDamaged is both errors of a database that cannot be read.
var errDamaged = fmt.Errorf("%w: %w", celldb.ErrUnavailable, celldb.ErrDamaged)

// primary is the primary one of SQLite's result codes, 0 when err is not the driver's.
func primary(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}
