// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
)

// conditions are the agent's health conditions and the problems that only the agent knows of. What
// makes the agent degraded is decided in internal/health.
type conditions struct {
	mu      sync.Mutex // serialises evaluations
	tracker health.Tracker

	problems problems
}

// currentStatus returns the agent's status and logs changes of its conditions. It makes no
// requests.
func (a *Agent) currentStatus() health.Status {
	a.conditions.mu.Lock()
	defer a.conditions.mu.Unlock()
	facts := a.facts()
	s, report := a.conditions.tracker.Evaluate(facts)
	for _, c := range report.Appeared {
		if loggedByTracker(c) {
			c.Hint = "the log line of the node, and `compute-agent plan --reshape`, list the violations and what to do"
		}
		logCondition(a.log.WithLevel(level(c.Severity)), c).Str("hint", c.Hint).
			Msg("Health: " + c.String() + ". " + c.Meaning)
	}
	for _, c := range report.Gone {
		logCondition(a.log.Info(), c).Stringer("lasted", facts.Now.Sub(c.Since).Round(time.Second)).
			Msg("Health: resolved: " + strings.TrimSuffix(c.String(), ": "+c.Text) + ".")
	}
	return s
}

// facts collects the input of the health evaluation.
func (a *Agent) facts() health.Facts {
	f := health.Facts{Now: time.Now(), Status: a.collectStatus(), ProviderConfig: errorText(a.providers.Err()),
		Problems: a.conditions.problems.copy()}
	cfg := a.settings.current()
	f.Interval, f.StateDir = cfg.Tracker.UpdateResourcesInterval, writable(cfg.Agent.StateDir)
	f.DisabledDrivers = a.drivers.disabled()
	return f
}

// loggedByTracker reports whether the node's tracker logs the details and the fix of a condition.
func loggedByTracker(c health.Condition) bool {
	return c.Code == health.ReshapeRefused || c.Code == health.ReshapeHeld
}

// logCondition adds a condition's fields to a log event.
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

// problems are the current problems that the agent itself detects.
type problems struct {
	mu  sync.Mutex
	now health.Problems
}

// set changes the problems.
func (p *problems) set(change func(*health.Problems)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
}

// copy returns a copy of the problems.
func (p *problems) copy() health.Problems {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.now
	out.RestartKeys, out.DamagedEntries, out.Drivers =
		slices.Clone(out.RestartKeys), slices.Clone(out.DamagedEntries), maps.Clone(out.Drivers)
	return out
}

// reloaded records the result of a reload.
func (p *problems) reloaded(changes []config.Change, err error) {
	p.set(func(p *health.Problems) {
		p.Reload = errorText(err)
		if err != nil {
			return
		}
		p.RestartKeys, p.Drivers = nil, nil // each driver is configured again
		for _, c := range changes {
			if c.Restart {
				p.RestartKeys = append(p.RestartKeys, c.Key)
			}
		}
	})
}

// configured records the result of configuring a driver.
func (p *problems) configured(driver string, err error) {
	p.set(func(p *health.Problems) {
		if err == nil {
			delete(p.Drivers, driver)
			return
		}
		if p.Drivers == nil {
			p.Drivers = map[string]health.Finding{}
		}
		p.Drivers[driver] = configurationFinding(driver, err)
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// writable returns why a directory is not writable, or "", without writing to it.
func writable(dir string) string {
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return dir + ": " + err.Error()
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && fs.Blocks > 0 && fs.Bavail == 0 {
		return dir + ": " + unix.ENOSPC.Error()
	}
	return ""
}

// configurationFinding converts the error of a driver's new configuration: the driver rejects it or
// does not answer, or its new process failed to take over.
func configurationFinding(driver string, err error) health.Finding {
	const reload = ", then systemctl reload compute-agent"
	found := health.Finding{Code: health.DriverRefused, Subject: health.OfDriver(driver), Text: err.Error()}
	var refused *plugins.ConfigError
	var takeover *pluginhost.TakeoverError
	var untrusted *launch.UntrustedError
	switch {
	case errors.As(err, &refused): // also by a process that takes over
		return found
	case errors.Is(err, statedir.ErrDriverDir):
		found.Code, found.Subject = health.StateNotWritable, health.Agent
		return found
	case !errors.As(err, &takeover):
		if errors.Is(err, driverclient.ErrNoAnswer) {
			found.Hint = "the agent's log has the driver's output; fix what keeps the driver from answering" + reload
		}
		return found
	}
	found.Code, found.Text = health.DriverTakeover, takeover.Err.Error()
	switch {
	case errors.As(err, &untrusted):
		found.Hint = untrusted.Hint + reload
	case errors.Is(err, launch.ErrNotInstalled):
		found.Hint = "install the executable as the text says" + reload
	case errors.Is(err, pluginhost.ErrIncompatible):
		found.Hint = fmt.Sprintf("install a driver for this version of the agent at %s", takeover.Path) + reload
	default:
		found.Hint = fmt.Sprintf("the text and the log say how the new process failed, "+
			"and `compute-agent plugin info %s` starts one by itself; "+
			"fix that, or restore the previous executable", takeover.Path) + reload
	}
	return found
}
