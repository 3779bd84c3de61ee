// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// Check is one requirement that a driver must meet, and what tests it.
type Check struct {
	ID, Title, Protects, Needs, Rule, See string

	run func(context.Context, *Bench) error
}

// Described returns the check as authors see it.
func (c Check) Described() trial.Check {
	return trial.Check{ID: c.ID, Title: c.Title, Protects: c.Protects, Needs: c.Needs, Rule: c.Rule, See: c.See}
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

// NotRun returns the result of a check that is not run, with the reason.
func (c Check) NotRun(why string) trial.Result {
	return trial.Result{Check: c.Described(), Outcome: trial.NotRun, Why: why}
}

// result converts the error of a check to its result.
func (c Check) result(err error) trial.Result {
	r := trial.Result{Check: c.Described(), Outcome: trial.Passed}
	var v *violation
	var not *untried
	switch {
	case err == nil:
	case errors.As(err, &not):
		r.Outcome, r.Why = trial.NotRun, not.why
	case errors.As(err, &v):
		r.Outcome, r.Sent, r.Came = trial.Failed, v.sent, v.came
	default:
		r.Outcome, r.Came = trial.Failed, err.Error()
	}
	return r
}
