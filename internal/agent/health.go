// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// watch remembers since when conditions are there. Whoever looks at the agent holds mu meanwhile, so that looks do not overtake
// each other.
type watch struct {
	mu      sync.Mutex
	tracker health.Tracker
}

// judge puts the conditions into a status, and what they make of its state and summary. What is new about them is logged, once.
func (a *Agent) judge(s *control.Status) {
	now := time.Now()
	f := facts{now: now, status: *s, providers: words(a.providers.Err())}
	a.mu.Lock()
	f.old = max(oldPasses*a.cfg.Tracker.UpdateResourcesInterval, oldLeast)
	f.state = writable(a.cfg.Agent.StateDir)
	for name, d := range a.drivers {
		if d.tracker == nil {
			f.disabled = append(f.disabled, name)
		}
	}
	a.mu.Unlock()
	a.troubles.copyTo(&f)
	report := a.watch.tracker.Observe(now, findings(f))
	s.Conditions = report.Conditions
	if s.Conditions == nil {
		s.Conditions = []health.Condition{}
	}
	s.State, s.Summary = conclude(s.State, s.Summary, s.Conditions)
	for _, c := range report.Appeared {
		if toldByTracker(c) {
			c.Remedy = "the node's own line of this log, and `compute-agent plan --reshape`, have all that stands against it and what can be done"
		}
		logCondition(a.log.WithLevel(level(c.Severity)), c).Str("remedy", c.Remedy).Msg("Health: " + c.String() + ". " + c.Meaning)
	}
	for _, c := range report.Gone {
		logCondition(a.log.Info(), c).Stringer("lasted", now.Sub(c.Since).Round(time.Second)).Msg("Health: no longer so: " + strings.TrimSuffix(c.String(), ": "+c.Text) + ".")
	}
}

// toldByTracker tells whether the node's tracker logs the details of a condition, and what to do, itself.
func toldByTracker(c health.Condition) bool {
	return c.Code == health.ReshapeRefused || c.Code == health.ReshapeHeld
}

// logCondition puts a condition's fields into a line of log.
func logCondition(e *zerolog.Event, c health.Condition) *zerolog.Event {
	e = e.Str("condition", string(c.Code)).Str("severity", string(c.Severity)).Str("subject", string(c.Subject))
	kind, name, named := strings.Cut(string(c.Subject), " ")
	switch {
	case named && kind == "node":
		e = e.Str("node", name)
	case named:
		e = e.Str("driver", name)
	}
	if len(c.Details) > 0 && !toldByTracker(c) {
		e = e.Strs("details", c.Details)
	}
	return e
}

func level(s health.Severity) zerolog.Level {
	switch s {
	case health.Critical:
		return zerolog.ErrorLevel
	case health.Warning:
		return zerolog.WarnLevel
	case health.Info:
	}
	return zerolog.InfoLevel
}

// conclude says in one line how the agent is: what its trackers say, or the worst of the conditions that somebody should look
// at. A critical one makes the agent degraded.
func conclude(state resourcetracker.State, summary string, conditions []health.Condition) (resourcetracker.State, string) {
	worst := health.Worst(conditions)
	if !worst.Worse(health.Info) {
		return state, summary
	}
	n := 0
	for _, c := range conditions {
		if c.Severity.Worse(health.Info) {
			n++
		}
	}
	if worst == health.Critical {
		state = resourcetracker.Degraded
	}
	text := conditions[0].String()
	if n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	if state == resourcetracker.Degraded {
		return state, "degraded: " + text
	}
	return state, summary + "; but " + text
}
