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

// DownError says which cell is down, and why. It is [ErrDown]; beneath is a *cellclient.Failure, so
// that a caller can see whether the cell may have got the request, and never a *cellwire.Error.
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
	hint    string
}

// classify decides about an error.
func classify(err error) verdict {
	var failure *cellclient.Failure
	var refusal *cellwire.Error
	switch {
	case err == nil:
		return verdict{state: OK}
	case errors.As(err, &failure):
		return classifyFailure(failure, err)
	case errors.As(err, &refusal):
		if refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden {
			return verdict{state: OK}
		}
		return verdict{
			state: Failed,
			down: &cellclient.Failure{Kind: cellclient.Broken, Sent: true,
				Err: errors.New("it rejects the compute API's credentials: " + err.Error())},
			hint: "compare the compute API's credentials for cells (token or client certificate) with what the " +
				"cell accepts",
		}
	default:
		return verdict{state: Failed, ignored: true}
	}
}

func classifyFailure(failure *cellclient.Failure, err error) verdict {
	switch failure.Kind {
	case cellclient.Cancelled:
		return verdict{state: Failed, ignored: true}
	case cellclient.TimedOut:
		return verdict{
			state: TimedOut,
			down:  err,
			hint: "check whether the cell's process hangs and whether its machine is overloaded or unreachable; " +
				"the cell is used again as soon as it answers",
		}
	case cellclient.Refused:
		return verdict{state: Failed, down: err,
			hint: "check that the cell's process runs and that the URL of the cell is right; the cell is used again " +
				"as soon as it answers"}
	default:
		return verdict{
			state: Failed,
			down:  err,
			hint: "check the log of the cell's process, and whether another server answers at its URL; the cell is " +
				"used again as soon as it answers",
		}
	}
}
