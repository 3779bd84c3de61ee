// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// ErrDown says that a cell is down: what it has is not known now.
var ErrDown = errors.New("the cell is down")

// State is how the asking of a cell ended.
type State int

// The states.
const (
	// OK: it answered. A refusal is an answer, with an error all the same.
	OK State = iota + 1
	// TimedOut: there was no answer in time.
	TimedOut
	// Failed: there was none, and it took no time to find out.
	Failed
)

func (s State) String() string {
	switch s {
	case OK:
		return "up"
	case TimedOut:
		return "timed out"
	case Failed:
		return "failed"
	default:
		return "unknown"
	}
}

// Answer is what came of asking a cell.
type Answer[T any] struct {
	Cell  apidb.Cell
	Value T // nothing, if Err is not nil
	Err   error
	State State
}

// Down reports whether the cell is down.
func (a Answer[T]) Down() bool { return errors.Is(a.Err, ErrDown) }

// DownError says which cell is down, and why. It is [ErrDown]; beneath is a *cellclient.Failure, so that a caller can see whether the cell may
// have got the request, and never a *cellwire.Error.
type DownError struct {
	Cell apidb.Cell
	Err  error
}

func (e *DownError) Error() string {
	return fmt.Sprintf("cell %s (%s) is down: %v", e.Cell.Name, e.Cell.UUID, e.Err)
}

// Is makes it [ErrDown].
func (e *DownError) Is(target error) bool { return target == ErrDown }

// Unwrap gives the failure.
func (e *DownError) Unwrap() error { return e.Err }

// verdict is what an error of asking says about the cell.
type verdict struct {
	state   State
	ignored bool // it says nothing about the cell: the caller's own error, or the caller went away
	down    error
	remedy  string
}

// judge decides about an error.
func judge(err error) verdict {
	var failure *cellclient.Failure
	var refusal *cellwire.Error
	switch {
	case err == nil:
		return verdict{state: OK}
	case errors.As(err, &failure):
		return judgeFailure(failure, err)
	case errors.As(err, &refusal):
		if refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden {
			return verdict{state: OK}
		}
		return verdict{
			state:  Failed,
			down:   &cellclient.Failure{Kind: cellclient.Broken, Sent: true, Err: errors.New("it does not let the compute API in: " + err.Error())},
			remedy: "compare the credentials of the compute API for cells (token or client certificate) with what the cell takes",
		}
	default:
		return verdict{state: Failed, ignored: true}
	}
}

func judgeFailure(failure *cellclient.Failure, err error) verdict {
	switch failure.Kind {
	case cellclient.Cancelled:
		return verdict{state: Failed, ignored: true}
	case cellclient.TimedOut:
		return verdict{state: TimedOut, down: err, remedy: "see whether the cell's process hangs or its machine is overloaded or unreachable; it is used again as soon as it answers"}
	case cellclient.Refused:
		return verdict{state: Failed, down: err, remedy: "see whether the cell's process runs and whether the URL of the cell is right; it is used again as soon as it answers"}
	default:
		return verdict{state: Failed, down: err, remedy: "see the log of the cell's process, and whether something else answers at its URL; it is used again as soon as it answers"}
	}
}
