// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// What is tested, and with what outcome.
type (
	// Check is one requirement that a driver must meet.
	Check = trial.Check
	// Outcome of a check.
	Outcome = trial.Outcome
	// Result is the outcome of a check.
	Result = trial.Result
	// Report is the outcome of all checks of a plugin.
	Report = trial.Report
)

// The outcomes.
const (
	Passed = trial.Passed
	Failed = trial.Failed
	// NotRun: nothing is known of the driver, for the reason that Result.Why gives.
	NotRun = trial.NotRun
)

// check is a Check and what it does.
type check struct {
	ID, Title, Protects, Needs, Rule, See string

	run func(context.Context, *bench) error
}

func (c check) described() Check {
	return Check{ID: c.ID, Title: c.Title, Protects: c.Protects, Needs: c.Needs, Rule: c.Rule, See: c.See}
}

// violation is a failed check: what was sent, and what the plugin answered or did.
type violation struct{ sent, came string }

func (v *violation) Error() string { return v.sent + ": " + v.came }

// failf returns a violation.
func failf(sent, format string, args ...any) error {
	return &violation{sent: sent, came: fmt.Sprintf(format, args...)}
}

// failLines returns a violation with a line for each problem, of which it keeps the first few; nil
// for none.
func failLines(sent string, lines []string) error {
	const most = 8
	if len(lines) == 0 {
		return nil
	}
	if len(lines) > most {
		lines = append(lines[:most:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return &violation{sent: sent, came: strings.Join(lines, "\n")}
}

// untried is the error of a check that was not run.
type untried struct{ why string }

func (u *untried) Error() string { return u.why }

func notRun(format string, args ...any) error {
	return &untried{fmt.Sprintf(format, args...)}
}

// result converts the error of a check to its result.
func (c check) result(err error) Result {
	r := Result{Check: c.described(), Outcome: Passed}
	var v *violation
	var not *untried
	switch {
	case err == nil:
	case errors.As(err, &not):
		r.Outcome, r.Why = NotRun, not.why
	case errors.As(err, &v):
		r.Outcome, r.Sent, r.Came = Failed, v.sent, v.came
	default:
		r.Outcome, r.Came = Failed, err.Error()
	}
	return r
}
