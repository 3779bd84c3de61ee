// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// Check is one requirement that a driver must meet.
type Check struct {
	// ID is GROUP/NAME. It does not change between releases, unless [Check.In] knows the former
	// one.
	ID string `json:"id"`
	// Title says what a driver that passes does.
	Title string `json:"title"`
	// Protects says what goes wrong in a cloud without it.
	Protects string `json:"protects"`
	// Needs is the capability that a plugin must announce for the check to run, or "".
	Needs string `json:"needs,omitempty"`
	// Rule is the sentence of the contract that the check verifies.
	Rule string `json:"rule"`
	// See is where the contract and a worked example are.
	See string `json:"see"`
}

// In reports whether an expression selects the check: by its ID, or by the one that it had up to
// release 0.2.0, when layouts/… were shapes/….
func (c Check) In(selected *regexp.Regexp) bool {
	name, renamed := strings.CutPrefix(c.ID, "layouts/")
	return selected.MatchString(c.ID) || renamed && selected.MatchString("shapes/"+name)
}

// Select returns the checks whose [Check.In] matches an expression, all for "". The error is the
// expression's.
func Select(checks []Check, expression string) ([]Check, error) {
	if expression == "" {
		return checks, nil
	}
	selected, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(checks), func(c Check) bool { return !c.In(selected) }), nil
}

// Outcome of a check.
type Outcome string

// The outcomes.
const (
	Passed Outcome = "passed"
	Failed Outcome = "failed"
	// NotRun: nothing is known of the driver, for the reason that Result.Why gives. It has not the
	// capability, there was nothing to try it with, or the suite ended before.
	NotRun Outcome = "not run"
)

// Result is the outcome of a check.
type Result struct {
	Check
	Outcome Outcome `json:"outcome"`
	// Sent is what the suite did, Came what the plugin answered or did. Set if the check failed.
	Sent string `json:"sent,omitempty"`
	Came string `json:"came,omitempty"`
	// Output is the end of what the process logged during the check. Set if the check failed.
	Output []string `json:"output,omitempty"`
	// Why says why the check was not run.
	Why string `json:"why,omitempty"`
	// Took is how long it took.
	Took time.Duration `json:"took_ns"`
}

// Report is the outcome of all checks of a plugin.
type Report struct {
	Description
	Results []Result `json:"results"`
	// Ended says why the suite ended early, or is "". The checks after that are not run.
	Ended string `json:"ended,omitempty"`
	// Classes and Traits are the sorted names of the resource classes and traits that the driver
	// reports for its first node. Whether Placement knows them is for the caller to check.
	Classes []string `json:"classes,omitempty"`
	Traits  []string `json:"traits,omitempty"`
}

// Count returns the number of checks with an outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, res := range r.Results {
		if res.Outcome == o {
			n++
		}
	}
	return n
}

// Explain describes a failed check for the driver's author.
func (r Result) Explain() string {
	var b strings.Builder
	for _, part := range []struct{ label, text string }{
		{"sent:    ", r.Sent}, {"came:    ", r.Came}, {"rule:    ", r.Rule}, {"protects:", r.Protects},
		{"see:     ", r.See}, {"its log: ", strings.Join(r.Output, "\n")},
	} {
		if part.text != "" {
			b.WriteString(part.label + " " + strings.ReplaceAll(part.text, "\n", "\n          ") + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}
