// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"errors"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// ReshapeError says that a reshape is needed and must not, or cannot, take place as it is. Nothing
// has moved (when Placement itself refused, new providers may have been made, which are empty).
// Waiting does not help; an operator has to look.
type ReshapeError struct {
	// Problem is what is wrong, in one line.
	Problem string
	// Violations are all that stand against it.
	Violations []plugins.Violation
	// Hint is the way out, beside those of the violations.
	Hint string
	// Err is the cause, or nil.
	Err error

	// quiet is a cause that the problem says already.
	quiet error
	// held is what the violations hold, trees have the providers they hold it of, or would.
	held  providertree.Allocations
	trees []*providertree.Tree
}

// Error is all of it in one line: the problem, every violation, the ways out, nothing twice.
func (e *ReshapeError) Error() string {
	parts := []string{e.Summary()}
	for _, o := range e.ViolationGroups() {
		parts = append(parts, o.String())
	}
	if ways := e.Hints(); ways != "" {
		parts = append(parts, "what to do: "+ways)
	}
	return strings.Join(parts, "; ")
}

// Summary is the problem without violations and hint.
func (e *ReshapeError) Summary() string {
	if e.Err != nil {
		return e.Problem + ": " + e.Err.Error()
	}
	return e.Problem
}

func (e *ReshapeError) Unwrap() []error {
	var out []error
	for _, err := range []error{e.Err, e.quiet} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// cannotMove is a driver's own refusal. What it lists goes to the violations, of which the error's
// text names only some.
func cannotMove(failed *plugins.ReshapeFailed, err error) *ReshapeError {
	problem := "the driver cannot move the allocations"
	if failed.Reason != "" {
		problem += ": " + failed.Reason
	}
	hint := failed.Hint
	if hint == "" {
		hint = "check for each consumer whether its guest still exists (`openstack resource provider allocation " +
			"show CONSUMER`); allocations of removed guests can be " +
			"deleted (`openstack resource provider allocation delete CONSUMER`)"
	}
	return &ReshapeError{Problem: problem, Violations: failed.Violations, quiet: err, Hint: hint +
		". Or go back to the driver's former configuration or version"}
}

// refusedBy tells what a failed Apply means: a reshape that Placement refuses for good is no
// ordinary failure. A token that it does not take (401) is one: the next may be good.
func refusedBy(err error) error {
	var answer *reportclient.RequestError
	unknown := errors.As(err, &answer) && answer.Status == http.StatusUnauthorized
	if errors.Is(err, reportclient.ErrReshapeRefused) && !unknown {
		hint := "Placement's message says why. If it is about the role (403): the agent needs the role service for " +
			"POST /reshaper, or a host's certificate; if it is about inventory or " +
			"capacity: `compute-agent plan --reshape` shows the request"
		if errors.Is(err, reportclient.ErrNotAdmitted) {
			hint = "if this machine has what the driver reports, run the `compute-agent cells manage admit-host` " +
				"that Placement's message names, on the machine of the " +
				"compute API, and then `compute-agent refresh` on this one, or restart the agent"
		}
		return &ReshapeError{Problem: "Placement did not carry out the reshape", Err: err, Hint: hint}
	}
	return &passError{step: "writing to Placement", err: err}
}

// summary is an error in words, without what the status shows beside it.
func summary(err error) string {
	var refused *ReshapeError
	if errors.As(err, &refused) {
		return refused.Summary()
	}
	var identityErr *identity.Error
	if errors.As(err, &identityErr) {
		return identityErr.Problem
	}
	return err.Error()
}

// violations are those of a refused reshape, as text.
func violations(err error) []string {
	var refused *ReshapeError
	if !errors.As(err, &refused) {
		return nil
	}
	return refused.List()
}

// lateReshape is a driver's wish for a reshape when none may take place.
type lateReshape struct {
	needed error
}

func (e *lateReshape) Error() string {
	return "reshapes happen only when the agent starts, so restart the agent; nothing was written: " + e.needed.Error()
}

func (e *lateReshape) Unwrap() error { return e.needed }

// repeatedReshape is a driver's wish for a reshape right after it was made.
type repeatedReshape struct {
	needed error
}

func (e *repeatedReshape) Error() string {
	return "the driver asks for another reshape right after its reshape; this is a defect of the driver, and " +
		"restarting the agent does not help; " +
		"nothing was written: " + e.needed.Error()
}

func (e *repeatedReshape) Unwrap() error { return e.needed }
