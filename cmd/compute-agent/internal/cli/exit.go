// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// Exit codes of all commands. 2 is not used: a Go program that crashes exits with it, and systemd
// must restart it. The units list the codes after which a restart cannot help, so a failure that
// may be temporary, such as a disk that is not mounted yet, is 1.
const (
	ExitDone    = 0
	ExitFailed  = 1
	ExitProtect = 3  // refused, to protect data
	ExitUsage   = 64 // wrong usage: EX_USAGE of sysexits.h
	ExitConfig  = 78 // invalid configuration: EX_CONFIG
)

// ExitError is an error with an exit code. A nil Err means that it has been printed already.
type ExitError struct {
	Code int
	Err  error
}

// Exit is the error with which a command ends with an exit code; see [ExitError].
func Exit(code int, err error) error { return &ExitError{code, err} }

// Error is the text of the error, "" if it has been printed already.
func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the error itself.
func (e *ExitError) Unwrap() error { return e.Err }

// ExitCode is the exit code of a command that ends with an error.
func ExitCode(err error) int {
	var code *ExitError
	var fatal *resourcetracker.FatalError
	var undo *reshape.UndoError
	var refused *operator.RefusedError
	switch {
	case errors.As(err, &code):
		return code.Code
	case errors.As(err, new(*controlplane.AddressError)):
		return ExitUsage
	case errors.As(err, &fatal) && fatal.Protects:
		return ExitProtect
	case errors.Is(err, engine.ErrLost), errors.Is(err, control.ErrRefused),
		errors.Is(err, enrolment.ErrJoined), errors.As(err, &undo),
		errors.As(err, &refused):
		return ExitProtect
	case errors.Is(err, celldb.ErrName), errors.Is(err, celldb.ErrSchema), errors.Is(err, apidb.ErrSchema),
		errors.Is(err, engine.ErrSchema), errors.Is(err, engine.ErrNotDatabase), errors.Is(err, engine.ErrNotEmpty),
		errors.Is(err, store.ErrRefused): // another program's database, or one to adopt or upgrade
		return ExitProtect
	case config.Unreadable(err): // its disk may appear later
		return ExitFailed
	case config.OnlyFlags(err):
		return ExitUsage
	case invalid(err):
		return ExitConfig
	}
	return ExitFailed
}

// invalid reports whether an error is caused by the configuration.
func invalid(err error) bool {
	return errors.Is(err, config.ErrInvalid) || errors.Is(err, providerconfig.ErrInvalid) ||
		errors.Is(err, placement.ErrConfig) || errors.Is(err, cells.ErrConfig)
}
