// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// What went wrong with a request, in the terms in which a caller can act: the errors of the
// Placement client that this package lets through. A write whose answer was lost is
// [ErrUnavailable] too.
var (
	ErrConflict             = placementclient.ErrConflict
	ErrInsufficientCapacity = placementclient.ErrInsufficientCapacity
	ErrInventoryInUse       = placementclient.ErrInventoryInUse
	ErrProviderInUse        = placementclient.ErrProviderInUse
	ErrDuplicate            = placementclient.ErrDuplicate
	ErrNotFound             = placementclient.ErrNotFound
	ErrRefused              = placementclient.ErrRefused
	ErrHostRefused          = placementclient.ErrHostRefused
	ErrNotAdmitted          = placementclient.ErrNotAdmitted
	ErrInvalid              = placementclient.ErrInvalid
	ErrUnavailable          = placementclient.ErrUnavailable
	ErrUnexpected           = placementclient.ErrUnexpected
	ErrTooOld               = placementclient.ErrTooOld
)

// Errors of this package's own.
var (
	// ErrIdentity: the provider that Placement has under our name or uuid is not ours to write.
	ErrIdentity = errors.New("placement has this compute node under another identity")
	// ErrReshapeRefused: Placement did not carry out a reshape, and computing it again gives the
	// same answer. The text has Placement's code and detail, and what to do.
	ErrReshapeRefused = errors.New("placement refused the reshape")
)

// RequestError is one request that failed.
type RequestError = placementclient.Error

// OperationError is one operation of a plan that did not happen.
type OperationError struct {
	Operation Operation
	// Provider is the name of the provider it was for.
	Provider string
	Err      error
	// Skipped: it was not tried, because an operation that it depends on failed. Err is the error
	// of that operation.
	Skipped bool
}

func (e *OperationError) Error() string {
	if e.Skipped {
		return fmt.Sprintf("%s: skipped, since an earlier step failed", e.Operation)
	}
	return fmt.Sprintf("%s: %v", e.Operation, e.Err)
}

func (e *OperationError) Unwrap() error { return e.Err }

// ApplyError is every operation of a plan that did not happen; the others did.
type ApplyError struct {
	Failed []*OperationError
	// Done counts the operations that did happen.
	Done int
}

func (e *ApplyError) Error() string {
	lines := make([]string, 0, len(e.Failed))
	for _, f := range e.Failed {
		if !f.Skipped {
			lines = append(lines, f.Error())
		}
	}
	if skipped := len(e.Failed) - len(lines); skipped > 0 {
		lines = append(lines, fmt.Sprintf("%d more were skipped because of that", skipped))
	}
	return strings.Join(lines, "; ")
}

// Unwrap gives errors.Is the causes of all failures.
func (e *ApplyError) Unwrap() []error {
	out := make([]error, 0, len(e.Failed))
	for _, f := range e.Failed {
		out = append(out, f)
	}
	return out
}
