// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/plugins/host"
)

// Check is one thing that a driver must do.
type Check struct {
	// ID is GROUP/NAME, and stays what it is from release to release.
	ID string `json:"id"`
	// Title says what a driver that passes does.
	Title string `json:"title"`
	// Protects says what goes wrong in a cloud without it.
	Protects string `json:"protects"`
	// Needs is what the check needs in order to say anything: a capability that the plugin must announce, or "".
	Needs string `json:"needs,omitempty"`
	// Rule is the sentence of the contract.
	Rule string `json:"rule"`
	// See is where the contract and a worked example are.
	See string `json:"see"`

	run func(context.Context, *bench) error
}

// Outcome of a check.
type Outcome string

// The outcomes.
const (
	Passed       Outcome = "passed"
	Failed       Outcome = "failed"
	DoesNotApply Outcome = "does not apply"
)

// Result is what became of a check.
type Result struct {
	Check
	Outcome Outcome `json:"outcome"`
	// Sent and Came are what the suite did and what came of it. Of a check that failed.
	Sent string `json:"sent,omitempty"`
	Came string `json:"came,omitempty"`
	// Output is the end of what the process wrote to its standard error during the check. Of one that failed.
	Output []string `json:"output,omitempty"`
	// Why says why the check does not apply.
	Why string `json:"why,omitempty"`
	// Took is how long it took.
	Took time.Duration `json:"took_ns"`
}

// Report is what became of all checks of a plugin.
type Report struct {
	host.Description
	Results []Result `json:"results"`
	// Ended says why the suite ended before its end, "" if it did not, and NotRun which checks did
	// not run for that reason.
	Ended  string   `json:"ended,omitempty"`
	NotRun []string `json:"not_run,omitempty"`
	// Classes and Traits are the names of resource classes and traits that the driver gives its
	// first node, in order. Whether Placement knows them is for the caller to find out.
	Classes []string `json:"classes,omitempty"`
	Traits  []string `json:"traits,omitempty"`
}

// Count returns how many checks had an outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, res := range r.Results {
		if res.Outcome == o {
			n++
		}
	}
	return n
}

// finding is a failed check: what was sent, and what came that should not have.
type finding struct{ sent, came string }

func (f *finding) Error() string { return f.sent + ": " + f.came }

// found is a finding in words.
func found(sent, format string, args ...any) error {
	return &finding{sent: sent, came: fmt.Sprintf(format, args...)}
}

// several is one finding of many lines, nil for none. Of very many only the first are told.
func several(sent string, lines []string) error {
	const most = 8
	if len(lines) == 0 {
		return nil
	}
	if len(lines) > most {
		lines = append(lines[:most:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	return &finding{sent: sent, came: strings.Join(lines, "\n")}
}

// inapplicable is a check that cannot say anything.
type inapplicable struct{ why string }

func (e *inapplicable) Error() string { return e.why }

func notApplicable(format string, args ...any) error {
	return &inapplicable{fmt.Sprintf(format, args...)}
}

// result turns what a check returned into what is told.
func (c Check) result(err error) Result {
	r := Result{Check: c, Outcome: Passed}
	var f *finding
	var na *inapplicable
	switch {
	case err == nil:
	case errors.As(err, &na):
		r.Outcome, r.Why = DoesNotApply, na.why
	case errors.As(err, &f):
		r.Outcome, r.Sent, r.Came = Failed, f.sent, f.came
	default:
		r.Outcome, r.Came = Failed, err.Error()
	}
	return r
}

// Explain is a failed check in words that an author can act on.
func (r Result) Explain() string {
	var b strings.Builder
	for _, part := range []struct{ label, text string }{
		{"sent:    ", r.Sent}, {"came:    ", r.Came}, {"rule:    ", r.Rule}, {"protects:", r.Protects}, {"see:     ", r.See}, {"its log: ", strings.Join(r.Output, "\n")},
	} {
		if part.text != "" {
			b.WriteString(part.label + " " + strings.ReplaceAll(part.text, "\n", "\n          ") + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
