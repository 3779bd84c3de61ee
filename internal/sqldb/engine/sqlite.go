// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"time"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// SQLite is the dialect of SQLite.
var SQLite = &Dialect{
	Name:           "sqlite",
	Upsert:         onConflict,
	Texts:          "SELECT value FROM json_each(?)",
	Numbers:        "SELECT value FROM json_each(?)",
	returning:      " RETURNING id",
	TimeColumn:     func(column string) string { return "CAST(" + column + " AS TEXT)" },
	TimeArg:        func(t time.Time) any { return t.UTC().Format(TimeText) },
	TimeResolution: time.Microsecond,
	MaxParams:      900,
	Tables:         `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`,
	ReadOnly:       "0",
	Kind:           sqliteKind,
	class:          sqliteClass,
}

func sqliteClass(err error) Class {
	switch code := sqliteCode(err); code & 0xff {
	case codes.SQLITE_CONSTRAINT:
		if code == codes.SQLITE_CONSTRAINT_UNIQUE || code == codes.SQLITE_CONSTRAINT_PRIMARYKEY {
			return Conflict | Duplicate | Mismatch
		}
		return Conflict | Mismatch
	case codes.SQLITE_ERROR, codes.SQLITE_SCHEMA:
		return Mismatch
	case codes.SQLITE_INTERRUPT:
		return Interrupted
	case codes.SQLITE_IOERR:
		// When the log could not be synced, its frames may be on the disk all the same, and count
		// after a crash.
		return CommitUnknown
	}
	return 0
}

// sqliteCode is SQLite's extended result code, 0 when err is not the driver's.
func sqliteCode(err error) int {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

//nolint:revive,staticcheck // the kind is a result, not a failure
func sqliteKind(err error) (kind error, hint string) {
	code := sqliteCode(err)
	switch code & 0xff {
	case codes.SQLITE_FULL:
		return ErrFull, "nothing was written"
	case codes.SQLITE_READONLY, codes.SQLITE_PERM:
		return ErrReadOnly, "check the owner and mode of the file and of its directory, which SQLite writes to as well"
	case codes.SQLITE_CORRUPT:
		return ErrCorrupt, "stop all that use it, keep a copy, and try `sqlite3 FILE .recover`, or restore a backup"
	case codes.SQLITE_NOTADB:
		return ErrNotDatabase, "choose another path"
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return ErrLocked, "another program has the file open; stop it first"
	case codes.SQLITE_CANTOPEN:
		return ErrUnreachable, "check that it is a file, and the owner and mode of it and of its directory"
	case codes.SQLITE_IOERR:
		if code == codes.SQLITE_IOERR_SHMSIZE {
			return ErrFull, "nothing was written"
		}
		return ErrIO, "look for errors of the disk in the kernel's log, and for limits on the size of files"
	}
	return nil, ""
}
