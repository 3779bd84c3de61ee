// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/dbfile"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// What can be wrong with the storage. Match them with errors.Is.
var (
	// ErrFull: no space is left. Nothing was written; writing works again as
	// soon as there is space.
	ErrFull = ledger.ErrFull
	// ErrReadOnly: the file, its directory or its file system cannot be written.
	ErrReadOnly = errors.New("it cannot be written")
	// ErrCorrupt: the database's own structure is damaged.
	ErrCorrupt = errors.New("the database is damaged")
	// ErrNotDatabase: the file is something else.
	ErrNotDatabase = errors.New("it is not a database")
	// ErrLocked: another process holds it.
	ErrLocked = errors.New("it is locked by another process")
	// ErrUnreachable: it cannot be opened or does not answer.
	ErrUnreachable = errors.New("it cannot be opened")
	// ErrIO: reading or writing failed although there is space and the right
	// to.
	ErrIO = errors.New("reading or writing it failed")
	// ErrLost: the database is older than what was acknowledged from it.
	ErrLost = errors.New("acknowledged changes are missing")
	// ErrReplaced: its file was deleted, renamed or replaced while it is in use.
	ErrReplaced = dbfile.ErrReplaced
	// ErrSchema: the tables are not those that this program knows.
	ErrSchema = errors.New("its schema is not known")
)

// Error is a failure of the storage.
type Error struct {
	// Op is what was being done, Where the database (a path or an address,
	// never with a password).
	Op, Where string
	// Kind is one of the errors above, or nil.
	Kind error
	// Hint says what to do about it.
	Hint string
	Err  error
}

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s", e.Op, e.Where)
	if e.Kind != nil {
		s += ": " + e.Kind.Error()
	}
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
	var out []error
	for _, err := range []error{e.Kind, e.Err} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// Is makes what may pass by itself, or with an operator's help, match
// ledger.ErrUnavailable.
func (e *Error) Is(target error) bool {
	if target != ledger.ErrUnavailable { //nolint:errorlint // Is is asked about this very value
		return false
	}
	switch e.Kind { //nolint:errorlint // Kind is one of the values above, never wrapped
	case ErrFull, ErrReadOnly, ErrLocked, ErrUnreachable, ErrIO, ErrReplaced:
		return true
	}
	return false
}
