// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Evaluate returns the status for facts, with conditions, state and summary. It is the only place
// that decides whether the agent is degraded:
//
//	a pass or a driver fails    resourcetracker.Status is Degraded (resourcetracker/status.go)
//	a condition is critical     findings, by their definitions     (evaluate.go, definitions.toml)
//	no driver is configured     nothing is reported
//
// A plugin that is degraded or down makes the agent degraded only through its condition or a failed
// pass. The report has the changes since the last call.
func (t *Tracker) Evaluate(f Facts) (Status, Report) {
	s := f.Status
	found := findings(f)
	report := t.Observe(f.Now, found)
	s.Conditions = report.Conditions
	if s.Conditions == nil {
		s.Conditions = []Condition{}
	}
	s.State, s.Summary = summarize(s.Drivers)
	s.State, s.Summary = appendCause(s.State, s.Summary, s.Conditions, func(c Condition) bool {
		return slices.ContainsFunc(found,
			func(f Finding) bool { return f.Fails && f.Code == c.Code && f.Subject == c.Subject })
	})
	return s, report
}

// allIsWell ends the summary of an agent without conditions whose nodes can get new guests.
const allIsWell = ", all is well"

// Unreachable returns the status of an agent whose last passes reached Placement, and which cannot
// connect to it now. The next pass finds out, and decides about the condition.
func (s Status) Unreachable(err error) Status {
	if s.State == resourcetracker.Reporting {
		s.Summary = strings.TrimSuffix(s.Summary, allIsWell)
		s.Summary += "; but Placement cannot be reached now: " + firstLine(err.Error())
	}
	return s
}

// summarize summarizes the trackers' reports in one line.
func summarize(drivers []Driver) (resourcetracker.State, string) {
	if len(drivers) == 0 {
		return resourcetracker.Degraded, "no driver is configured: nothing is reported"
	}
	state, nodes, disabled := resourcetracker.Reporting, 0, 0
	var problems, writing []string
	for _, d := range drivers {
		switch {
		case d.Report.State == resourcetracker.Starting && state == resourcetracker.Reporting:
			state = resourcetracker.Starting
		case d.Report.State == resourcetracker.Degraded:
			state = resourcetracker.Degraded
			if d.Report.Error != "" {
				problems = append(problems, "driver "+d.Name+": "+d.Report.Error)
			}
		}
		for _, n := range d.Report.Nodes {
			if n.State == resourcetracker.Reporting {
				nodes++
				if n.DisabledReason != "" {
					disabled++
				}
			}
			if n.Error != "" {
				problems = append(problems, "node "+n.Name+": "+n.Error)
			}
			if w := n.Writing; w != nil {
				writing = append(writing, fmt.Sprintf("writing node %s to Placement, %d of %d operations done",
					n.Name, w.Done, w.Operations))
			}
		}
	}
	switch {
	case len(problems) > 0:
		return state, "degraded: " + strings.Join(problems, "; ")
	case state == resourcetracker.Starting && len(writing) > 0:
		return state, "starting: " + strings.Join(writing, "; ")
	case state == resourcetracker.Starting:
		return state, "starting: waiting for the first pass"
	case len(writing) > 0:
		return state, strings.Join(writing, "; ")
	}
	return state, "reporting " + textutil.Count(nodes, "node") + disabledSuffix(disabled, nodes)
}

// disabledSuffix ends the summary of an agent that reports nodes, of which some are disabled.
func disabledSuffix(disabled, nodes int) string {
	switch {
	case disabled == 0:
		return allIsWell
	case nodes == 1:
		return ", which is disabled"
	case disabled == nodes:
		return ", which are disabled"
	case disabled == 1:
		return ", of which 1 is disabled"
	}
	return fmt.Sprintf(", of which %d are disabled", disabled)
}

// appendCause adds a condition to the summary, and the number of the others: the one that makes the
// agent degraded (critical, or else one for which a driver or a pass fails), or the worst. If the
// agent is degraded and no condition shows why yet, the summary keeps the failure.
func appendCause(
	state resourcetracker.State, summary string, conditions []Condition, fails func(Condition) bool,
) (resourcetracker.State, string) {
	conditions = slices.DeleteFunc(slices.Clone(conditions), func(c Condition) bool { return !c.Severity.Worse(Info) })
	if len(conditions) == 0 {
		return state, summary
	}
	shown := conditions[0]
	switch {
	case shown.Severity == Critical:
		state = resourcetracker.Degraded
	case state == resourcetracker.Degraded:
		at := slices.IndexFunc(conditions, fails)
		if at < 0 {
			return state, fmt.Sprintf("%s (and %d more)", summary, len(conditions))
		}
		shown = conditions[at]
	}
	text := shown.String()
	if n := len(conditions); n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	if state == resourcetracker.Degraded {
		return state, "degraded: " + text
	}
	return state, strings.TrimSuffix(summary, allIsWell) + "; but " + text
}
