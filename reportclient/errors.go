// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/placement/request"
)

// What went wrong with a request, in the terms in which a caller can act.
var (
	// ErrConflict: the provider's generation is not ours any more, or a concurrent write interfered (409
	// placement.concurrent_update and its undefined_code kin). Read again and recompute.
	ErrConflict = errors.New("placement says that somebody else changed it meanwhile")
	// ErrInventoryInUse: the write would take away inventory that is allocated (409 placement.inventory.inuse).
	ErrInventoryInUse = errors.New("the inventory is allocated")
	// ErrProviderInUse: a provider that has allocations or children cannot be deleted.
	ErrProviderInUse = errors.New("the resource provider is in use")
	// ErrDuplicate: another provider has this name, or this uuid (409 placement.duplicate_name).
	ErrDuplicate = errors.New("a resource provider of that name or uuid exists")
	// ErrNotFound: 404.
	ErrNotFound = errors.New("placement does not know it")
	// ErrRefused: 401 or 403. Nothing gets better by trying again.
	ErrRefused = errors.New("placement refuses our credentials")
	// ErrInvalid: 400. What we sent is wrong for this Placement.
	ErrInvalid = errors.New("placement calls the request invalid")
	// ErrUnavailable: Placement could not be reached, did not answer in time, or answered 5xx.
	ErrUnavailable = errors.New("placement is unavailable")
	// ErrUnexpected: an answer that a Placement does not give. Probably something else listens there.
	ErrUnexpected = errors.New("unexpected answer, is this a placement service?")
	// ErrTooOld: the server does not speak the microversion that the agent needs, as a rule because it is too old.
	ErrTooOld = errors.New("placement does not speak the agent's microversion")
	// ErrIdentity: the provider that Placement has under our name or uuid is not ours to write.
	ErrIdentity = errors.New("placement knows this compute node as another")
	// ErrReshapeRefused: Placement did not carry out a reshape, and computing it again gives the same answer. The text has
	// Placement's code and detail, and what to do.
	ErrReshapeRefused = errors.New("placement refused the reshape")
)

// RequestError is one request that failed. Its Path is with the query, its Kind one of the sentinels of this package.
type RequestError = request.Error

// unproven is the kind of a request that could not be sent, or be sent once more, because there was nothing to prove who we
// are, or no endpoint to send it to. It is [ErrUnavailable] if the cause says so or time ran out, and [ErrRefused] otherwise.
type unproven struct{ cause error }

func (*unproven) Error() string { return "no credentials that placement would take" }

func (u *unproven) Is(target error) bool {
	if errors.Is(u.cause, ErrUnavailable) || errors.Is(u.cause, context.Canceled) || errors.Is(u.cause, context.DeadlineExceeded) {
		return target == ErrUnavailable
	}
	return target == ErrRefused
}

// OperationError is one operation of a plan that did not happen.
type OperationError struct {
	Operation Operation
	// Provider is the name of the provider it was for.
	Provider string
	Err      error
	// Skipped: it was not even tried, because what it builds upon had failed. Err is that failure.
	Skipped bool
}

func (e *OperationError) Error() string {
	if e.Skipped {
		return fmt.Sprintf("%s: left out, since an earlier step failed", e.Operation)
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
		lines = append(lines, fmt.Sprintf("%d more left out because of that", skipped))
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
