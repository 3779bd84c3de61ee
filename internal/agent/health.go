// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/health"
)

// watch remembers since when conditions are there. Whoever looks at the agent holds mu meanwhile, so that looks do not overtake
// each other.
type watch struct {
	mu      sync.Mutex
	tracker health.Tracker
}

// now is the status of the agent at this moment. No other process is asked for it. What is new about the conditions is
// logged, once.
func (a *Agent) now() health.Status {
	a.watch.mu.Lock()
	defer a.watch.mu.Unlock()
	facts := a.facts()
	s, report := a.watch.tracker.Judge(facts)
	for _, c := range report.Appeared {
		if loggedByTracker(c) {
			c.Remedy = "the log line of the node, and `compute-agent plan --reshape`, list the violations and what to do"
		}
		logCondition(a.log.WithLevel(level(c.Severity)), c).Str("remedy", c.Remedy).Msg("Health: " + c.String() + ". " + c.Meaning)
	}
	for _, c := range report.Gone {
		logCondition(a.log.Info(), c).Stringer("lasted", facts.Now.Sub(c.Since).Round(time.Second)).Msg("Health: no longer so: " + strings.TrimSuffix(c.String(), ": "+c.Text) + ".")
	}
	return s
}

// facts collects all that the health of the agent follows from.
func (a *Agent) facts() health.Facts {
	f := health.Facts{Now: time.Now(), Status: a.look(), ProviderConfig: words(a.providers.Err()), Problems: a.troubles.copy()}
	a.mu.Lock()
	defer a.mu.Unlock()
	f.Interval, f.StateDir = a.cfg.Tracker.UpdateResourcesInterval, writable(a.cfg.Agent.StateDir)
	for name, d := range a.drivers {
		if d.tracker == nil {
			f.DisabledDrivers = append(f.DisabledDrivers, name)
		}
	}
	return f
}

// loggedByTracker reports whether the node's tracker logs the details of a condition, and what to do, itself.
func loggedByTracker(c health.Condition) bool {
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
	if len(c.Details) > 0 && !loggedByTracker(c) {
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
