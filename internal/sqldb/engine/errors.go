// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/files"
)

// What can be wrong with a database. Match them with errors.Is.
var (
	// ErrFull: no space is left. Nothing was written; writing works again as soon as there is
	// space.
	ErrFull = errors.New("the disk is full")
	// ErrReadOnly: the file, its directory or its file system cannot be written.
	ErrReadOnly = errors.New("it cannot be written")
	// ErrCorrupt: the database's own structure is damaged.
	ErrCorrupt = errors.New("the database is damaged")
	// ErrNotDatabase: the file is something else.
	ErrNotDatabase = errors.New("it is not a database")
	// ErrLocked: another process has it.
	ErrLocked = errors.New("it is locked by another process")
	// ErrInUse: services use it that have to be stopped first.
	ErrInUse = errors.New("services use it")
	// ErrUnreachable: it cannot be opened or does not answer.
	ErrUnreachable = errors.New("it cannot be opened")
	// ErrDenied: the server does not let the user do it.
	ErrDenied = errors.New("access was denied")
	// ErrUnsuitable: what its server is or how it is set up keeps this program from using it.
	ErrUnsuitable = errors.New("its server cannot be used as it is")
	// ErrIO: reading or writing failed although there is space and permission.
	ErrIO = errors.New("reading or writing it failed")
	// ErrLost: the database is missing, or older than what was acknowledged from it.
	ErrLost = errors.New("acknowledged changes are missing")
	// ErrReplaced: its file was deleted, renamed or replaced while it is in use.
	ErrReplaced = errors.New("the database file was deleted, renamed or replaced while it is in use")
	// ErrNotEmpty: the database has rows, and only an empty one can be restored to.
	ErrNotEmpty = errors.New("it is not empty")
	// ErrOutcomeUnknown: COMMIT was sent and had no answer, and what the database has does not say
	// whether it happened.
	ErrOutcomeUnknown = errors.New("it is not known whether the last change was made")
	// ErrSchema: the tables are not those that this program knows.
	ErrSchema = errors.New("its schema cannot be used")
)

// Error is a failure of a database.
type Error struct {
	// Op is what was being done, Database the file or the address, never with a password.
	Op, Database string
	// Kind is one of the errors above, or nil.
	Kind error
	// Hint says what to do about it.
	Hint string
	Err  error
	// Means is what the failure is to the callers of the package whose database it is; nil is
	// nothing more.
	Means error
}

// Error implements error.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s %s", e.Op, e.Database)
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

// Unwrap gives errors.Is and errors.As the kind, what it means, and the cause.
func (e *Error) Unwrap() []error {
	var out []error
	for _, err := range []error{e.Kind, e.Means, e.Err} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// FileError is the error of an operation of the file system.
func FileError(op, path string, err error) *Error {
	e := &Error{Op: op, Database: path, Kind: ErrUnreachable, Err: err}
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind, e.Hint = ErrReadOnly, "check the owner and mode of the file and of its directory"
		if why, _ := files.WhyDenied(err); why != "" {
			e.Hint = why + "; " + e.Hint
		}
	case errors.Is(err, syscall.EISDIR):
		e.Hint = "a directory is in its place; move it away, or choose another path"
	case errors.Is(err, syscall.ELOOP):
		e.Hint = "a symbolic link is in the place of " + path + "-lock, or links lead in a circle; remove the link"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Kind, e.Hint = ErrFull, "make space in "+filepath.Dir(path)
	}
	return e
}

// Reason is what keeps writes from succeeding in a few words, without paths: for answers to
// clients.
func Reason(err error) string {
	if err == nil {
		return ""
	}
	kind := kindOf(err)
	switch {
	case errors.Is(kind, ErrReplaced):
		return "its file was deleted, renamed or replaced"
	case errors.Is(kind, ErrFull):
		return "no space is left on its disk"
	case errors.Is(kind, ErrUnreachable) && shared(err):
		return "its server does not answer"
	case errors.Is(kind, ErrReadOnly) && shared(err):
		return "its server is read-only"
	case errors.Is(kind, ErrDenied):
		return "its server denies access"
	case errors.Is(kind, ErrUnsuitable):
		return "its server cannot be used as it is"
	case errors.Is(kind, ErrReadOnly), errors.Is(kind, ErrUnreachable):
		return "its files are read-only"
	case errors.Is(kind, ErrCorrupt), errors.Is(kind, ErrNotDatabase):
		return "it is damaged"
	case errors.Is(kind, ErrLocked):
		return "another process has it locked"
	}
	return "its disk fails"
}

// shared says that an error is of a database of servers.
func shared(err error) bool {
	e := new(Error)
	return errors.As(err, &e) && strings.Contains(e.Database, "://")
}

// StorageFailed reports whether the database, or the file system below it, could not do what it was
// asked to.
func StorageFailed(err error) bool {
	kind := kindOf(err)
	return kind != nil && !errors.Is(kind, ErrReplaced)
}

// kindOf is the kind of an error of this package or of the driver, nil for other errors.
func kindOf(err error) error {
	if e := new(Error); errors.As(err, &e) {
		return e.Kind
	}
	if errors.Is(err, ErrReplaced) {
		return ErrReplaced
	}
	for _, d := range Dialects {
		if kind, _ := d.Kind(err); kind != nil {
			return kind
		}
	}
	return nil
}
