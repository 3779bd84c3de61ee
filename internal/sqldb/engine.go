// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// What the packages of databases need of package engine, under the name of the kit.
type (
	// Dialect is what differs from one database engine to the other.
	Dialect = engine.Dialect
	// Class is what a driver's error says of a statement, beside its kind.
	Class = engine.Class
	// Address is where a database is: a file, or servers that several processes share.
	Address = engine.Address
	// Error is a failure of a database.
	Error = engine.Error
	// TimeScan reads a time column; NULL is the zero time.
	TimeScan = engine.TimeScan
)

// The dialects.
var (
	SQLite     = engine.SQLite
	MySQL      = engine.MySQL
	PostgreSQL = engine.PostgreSQL
)

// The classes of errors.
const (
	Conflict      = engine.Conflict
	Duplicate     = engine.Duplicate
	Mismatch      = engine.Mismatch
	Unfit         = engine.Unfit
	Interrupted   = engine.Interrupted
	Retry         = engine.Retry
	Exists        = engine.Exists
	CommitUnknown = engine.CommitUnknown
)

// What can be wrong with a database; package engine says what each is. Match them with errors.Is.
var (
	ErrFull           = engine.ErrFull
	ErrReadOnly       = engine.ErrReadOnly
	ErrCorrupt        = engine.ErrCorrupt
	ErrNotDatabase    = engine.ErrNotDatabase
	ErrLocked         = engine.ErrLocked
	ErrInUse          = engine.ErrInUse
	ErrUnreachable    = engine.ErrUnreachable
	ErrDenied         = engine.ErrDenied
	ErrUnsuitable     = engine.ErrUnsuitable
	ErrIO             = engine.ErrIO
	ErrLost           = engine.ErrLost
	ErrReplaced       = engine.ErrReplaced
	ErrNotEmpty       = engine.ErrNotEmpty
	ErrOutcomeUnknown = engine.ErrOutcomeUnknown
	ErrSchema         = engine.ErrSchema
)

// ParseAddress reads the name of a database: the path of a file, sqlite:///PATH, or the DSN of
// servers. No error shows a password.
func ParseAddress(name string) (Address, error) { return engine.ParseAddress(name) }

// ParseAddressOf is [ParseAddress] for a process whose credentials of systemd are in a directory.
func ParseAddressOf(name, credentials string) (Address, error) {
	return engine.ParseAddressOf(name, credentials)
}

// Shown is the name of a database for people, without a password.
func Shown(name string) string { return engine.Shown(name) }

// SetPasswordFile is the address with another password_file, if it has one.
func SetPasswordFile(name, path string) string { return engine.SetPasswordFile(name, path) }

// FileError is the error of an operation of the file system.
func FileError(op, path string, err error) *Error { return engine.FileError(op, path, err) }

// PathOf returns the path in a URL of the form sqlite:///PATH, from / on.
func PathOf(dsn string) (string, error) { return engine.PathOf(dsn) }

// Reason is what keeps writes from succeeding in a few words, without paths: for answers to
// clients.
func Reason(err error) string { return engine.Reason(err) }

// TriggersRefused says that err is the refusal of a MariaDB or MySQL server with a binary log, or
// in a Galera cluster, to let a user without the privilege SUPER make or remove a trigger.
func TriggersRefused(err error) bool { return engine.TriggersRefused(err) }

// Bounded is a context for one statement, and as long as its answer may take.
func Bounded(ctx context.Context) (context.Context, context.CancelFunc) { return engine.Bounded(ctx) }
