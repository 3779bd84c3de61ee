// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"errors"
	"strings"
	"time"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// Dialect is what differs from one database engine to the other. Statements are written once, with
// ? for parameters and in the SQL that all of them have; where they have none in common, a Dialect
// has the words. There is no "now": all times are parameters, by the clock of the process.
type Dialect struct {
	// Rebind turns ? into what the database wants; nil when that is ?.
	Rebind func(query string) string
	// Upsert is the end of an INSERT that, where there is a row of the key, sets its columns to the
	// new values instead; without columns the row stays as it is.
	Upsert func(key string, columns ...string) string
	// TimeColumn is the expression that reads a time column of Placement's schema as text in the
	// form 2006-01-02 15:04:05[.000000], TimeArg what is written to one.
	TimeColumn func(column string) string
	TimeArg    func(t time.Time) any
	// MaxParams is how many parameters a statement can have.
	MaxParams int
	// HasTable is a query for the number of tables with a name, AnyTable one for the name of some
	// table, '' when there is none.
	HasTable, AnyTable string
	// Kind is the kind of a driver's error, and what to do about it; nil for what is no failure of
	// the storage.
	Kind func(err error) (kind error, hint string)
	// Conflict says that rows were not as the writer knew them, Mismatch that a statement does not
	// fit the tables, Interrupted that a context ended.
	Conflict, Mismatch, Interrupted func(err error) bool
	// CommitUnknown says that after this error of COMMIT itself it is not known whether it
	// happened.
	CommitUnknown func(err error) bool
}

// Query is a statement as the database wants it.
func (d *Dialect) Query(query string) string {
	if d.Rebind == nil {
		return query
	}
	return d.Rebind(query)
}

// TimeText is the form in which SQLAlchemy keeps times in SQLite: UTC, with microseconds.
const TimeText = "2006-01-02 15:04:05.000000"

// SQLite is the dialect of SQLite.
var SQLite = &Dialect{
	Upsert: func(key string, columns ...string) string {
		if len(columns) == 0 {
			return " ON CONFLICT (" + key + ") DO NOTHING"
		}
		set := make([]string, len(columns))
		for i, c := range columns {
			set[i] = c + " = excluded." + c
		}
		return " ON CONFLICT (" + key + ") DO UPDATE SET " + strings.Join(set, ", ")
	},
	TimeColumn: func(column string) string { return "CAST(" + column + " AS TEXT)" },
	TimeArg:    func(t time.Time) any { return t.UTC().Format(TimeText) },
	MaxParams:  900,
	HasTable:   "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
	AnyTable:   `SELECT COALESCE(MIN(name), '') FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`,
	Kind:       sqliteKind,
	Conflict:   func(err error) bool { return sqliteCode(err)&0xff == codes.SQLITE_CONSTRAINT },
	Mismatch: func(err error) bool {
		switch sqliteCode(err) & 0xff {
		case codes.SQLITE_ERROR, codes.SQLITE_SCHEMA, codes.SQLITE_CONSTRAINT:
			return true
		}
		return false
	},
	Interrupted: func(err error) bool { return sqliteCode(err)&0xff == codes.SQLITE_INTERRUPT },
	// When the log could not be synced, its frames may be on the disk all the same, and count after
	// a crash.
	CommitUnknown: func(err error) bool { return sqliteCode(err)&0xff == codes.SQLITE_IOERR },
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
