// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

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
		return &reshape.Error{Problem: "Placement did not carry out the reshape", Err: err, Hint: hint}
	}
	return &passError{step: "writing to Placement", err: err}
}

// summary is an error in words, without what the status shows beside it.
func summary(err error) string {
	var refused *reshape.Error
	if errors.As(err, &refused) {
		return refused.Summary()
	}
	var identityErr *identity.Error
	if errors.As(err, &identityErr) {
		return identityErr.Problem
	}
	return err.Error()
}

// violations returns the violations of a refused reshape, as text.
func violations(err error) []string {
	var refused *reshape.Error
	if !errors.As(err, &refused) {
		return nil
	}
	return refused.List()
}

// lateReshape is a driver's wish for a reshape when none may take place.
type lateReshape struct {
	needed error
}

func (l *lateReshape) Error() string {
	return "reshapes happen only when the agent starts, so restart the agent; nothing was written: " + l.needed.Error()
}

func (l *lateReshape) Unwrap() error { return l.needed }

// repeatedReshape is a driver's wish for a reshape right after it was made.
type repeatedReshape struct {
	needed error
}

func (r *repeatedReshape) Error() string {
	return "the driver asks for another reshape right after its reshape; this is a defect of the driver, and " +
		"restarting the agent does not help; " +
		"nothing was written: " + r.needed.Error()
}

func (r *repeatedReshape) Unwrap() error { return r.needed }
