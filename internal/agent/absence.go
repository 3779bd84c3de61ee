// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// absenceInterval is the maximum time between checks of drivers, which make no requests.
const absenceInterval = time.Second

// presence is the state of a driver for one of its nodes.
type presence struct {
	driver, node string
	// failing: the process serves no calls, or the last call failed.
	failing bool
	// answered is the time of the last answer about the node; zero: none since the agent started.
	answered time.Time
	// grace is how long the driver may be unavailable; zero: forever.
	grace time.Duration
	// disabled: the node is disabled because the driver is unavailable.
	disabled bool
}

// absence records since when drivers are unavailable. Only an answer ends it, not a new process, so
// that a driver that keeps crashing stays unavailable.
type absence struct {
	mu    sync.Mutex
	since map[[2]string]time.Time // by driver and node

	changed chan struct{} // holds a value if drivers need a check
	problem string        // why the last check could not be recorded; used only by checkDrivers
}

// decide returns the nodes to disable and to enable, and the time of the next deadline; zero: none.
func (a *absence) decide(now time.Time, all []presence) (disable, enable []presence, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	still := make(map[[2]string]time.Time, len(a.since))
	for _, p := range all {
		key := [2]string{p.driver, p.node}
		since, missing := a.since[key]
		if missing && p.answered.After(since) {
			missing = false
		}
		if p.failing && !missing {
			since, missing = now, true
		}
		if missing {
			still[key] = since
		}
		due := since.Add(p.grace)
		switch {
		case p.disabled && (p.grace == 0 || !missing && !p.answered.IsZero()):
			enable = append(enable, p)
		case p.disabled, !p.failing, p.grace == 0:
		case !due.After(now):
			disable = append(disable, p)
		case next.IsZero() || due.Before(next):
			next = due
		}
	}
	a.since = still
	return disable, enable, next
}

// missing returns since when a driver is unavailable for any of its nodes; zero: it is available.
func (a *absence) missing(driver string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first time.Time
	for key, since := range a.since {
		if key[0] == driver && (first.IsZero() || since.Before(first)) {
			first = since
		}
	}
	return first
}

// unavailableSince returns since when a driver is unavailable for a node.
func (a *absence) unavailableSince(p presence) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since[[2]string{p.driver, p.node}]
}

// watchDrivers disables the nodes of drivers that are unavailable for longer than their grace, and
// enables them when the drivers answer again. It starts after all drivers were added, because
// reasons of unknown drivers are removed.
func (a *Agent) watchDrivers(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.absence.changed:
		}
		now := time.Now()
		wait := absenceInterval
		if next := a.checkDrivers(now); !next.IsZero() {
			wait = min(wait, next.Sub(now))
		}
		timer.Reset(wait)
	}
}

// check requests a check of all drivers.
func (a *absence) check() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// checkDrivers checks all drivers once, and returns the time of the next deadline.
func (a *Agent) checkDrivers(now time.Time) time.Time {
	drivers := a.drivers.active()
	disable, enable, next := a.absence.decide(now, a.presences(drivers))
	changed := map[string]bool{}
	var failed error
	for _, p := range disable {
		err := a.state.Disabled.Disable(statedir.Reason{
			Source: statedir.DriverSource(p.driver), Node: p.node,
			Reason: fmt.Sprintf("unavailable since %s, which is longer than its unavailable_grace of %v",
				a.absence.unavailableSince(p).UTC().Format(time.RFC3339), p.grace),
		})
		if err != nil {
			failed = err
			continue
		}
		changed[p.driver] = true
	}
	for _, p := range enable {
		if err := a.state.Disabled.Withdraw(statedir.DriverSource(p.driver), p.node); err != nil {
			failed = err
			continue
		}
		changed[p.driver] = true
	}
	if err := a.removeStaleReasons(drivers); err != nil {
		failed = err
	}
	if text := errorText(failed); text != a.absence.problem {
		a.absence.problem = text
		if failed != nil {
			a.log.Error().
				Err(failed).
				Msg("The state directory is not writable, so nodes are not disabled or enabled when a driver " +
					"becomes unavailable or available. The agent retries.")
		}
	}
	for _, d := range drivers {
		if changed[d.name] {
			d.tracker.Refresh("a driver became unavailable or available")
		}
	}
	if len(changed) > 0 {
		a.publishStatus()
	}
	return next
}

// presences returns the state of all drivers for all of their nodes.
func (a *Agent) presences(drivers []active) []presence {
	cfg := a.settings.current()
	isDisabled := map[[2]string]bool{}
	for _, r := range a.state.Disabled.Reasons("") {
		if name, ours := statedir.DriverOf(r.Source); ours {
			isDisabled[[2]string{name, r.Node}] = true
		}
	}
	var out []presence
	for _, d := range drivers {
		if cfg.Drivers[d.name] == nil {
			continue // a reload is about to stop it: its nodes must not be enabled first
		}
		state := d.plugin.Status().State
		serving := state == pluginhost.Healthy || state == pluginhost.Degraded
		for _, n := range d.tracker.Status().Nodes {
			if n.State != resourcetracker.Orphaned {
				out = append(out, presence{
					driver: d.name, node: n.Name, failing: !serving || n.Unanswered, answered: n.LastAnswer,
					grace: unavailableGrace(cfg, d.name), disabled: isDisabled[[2]string{d.name, n.Name}],
				})
			}
		}
	}
	return out
}

// removeStaleReasons removes reasons of drivers that are no longer configured, and of nodes that a
// driver no longer reports. The trait stays in Placement until a driver reports the node again, or
// the node is removed.
func (a *Agent) removeStaleReasons(drivers []active) error {
	for _, r := range a.state.Disabled.Reasons("") {
		name, ours := statedir.DriverOf(r.Source)
		if !ours {
			continue
		}
		i := slices.IndexFunc(drivers, func(d active) bool { return d.name == name })
		if i >= 0 {
			nodes := drivers[i].tracker.Status().Nodes
			names := func(n resourcetracker.NodeStatus) bool {
				return n.Name == r.Node && n.State != resourcetracker.Orphaned
			}
			if slices.ContainsFunc(nodes, names) ||
				!slices.ContainsFunc(nodes, func(n resourcetracker.NodeStatus) bool { return !n.LastAnswer.IsZero() }) {
				continue
			}
		}
		if err := a.state.Disabled.Withdraw(r.Source, r.Node); err != nil {
			return err
		}
		a.log.Info().Str("driver", name).Str("node", r.Node).
			Msg("Removed the reason that disabled the node because its driver was unavailable: the driver is no " +
				"longer configured, or does not report the node.")
	}
	return nil
}

// unavailableGrace is how long a driver may be unavailable, zero for a removed driver.
func unavailableGrace(cfg *config.Config, driver string) time.Duration {
	if d := cfg.Drivers[driver]; d != nil {
		return d.UnavailableGrace
	}
	return 0
}
