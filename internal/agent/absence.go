// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/disabled"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// absenceLook is how often it is looked whether drivers are there, at least; it costs no request.
const absenceLook = time.Second

// presence is how a driver stands to one of its nodes at a moment.
type presence struct {
	driver, node string
	// failing: its process serves no calls, or it did not tell when it was last asked.
	failing bool
	// answered is when it last told of the node; zero: never since the agent was started.
	answered time.Time
	// grace is how long it may be gone; zero: for ever.
	grace time.Duration
	// disabled: the node is disabled since the driver is gone.
	disabled bool
}

// absence remembers since when drivers are missed. That a process is back is no return: only an answer is, so that one that crashes
// again and again is missed from its last answer on. Time is given to it.
type absence struct {
	mu    sync.Mutex
	since map[[2]string]time.Time // by driver and node

	moved   chan struct{} // holds a value when drivers are to be looked at
	problem string        // why the outcome of the last look could not be kept; for lookAtDrivers alone
}

// judge returns the nodes to disable, those to enable, and when to look again at the latest; zero: any time.
func (a *absence) judge(now time.Time, all []presence) (disable, enable []presence, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	still := make(map[[2]string]time.Time, len(a.since))
	for _, p := range all {
		key := [2]string{p.driver, p.node}
		since, missed := a.since[key]
		if missed && p.answered.After(since) {
			missed = false
		}
		if p.failing && !missed {
			since, missed = now, true
		}
		if missed {
			still[key] = since
		}
		due := since.Add(p.grace)
		switch {
		case p.disabled && (p.grace == 0 || !missed && !p.answered.IsZero()):
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

// missing is since when a driver is missed at any of its nodes; zero: it is not.
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

// of is since when a driver is missed at a node.
func (a *absence) of(p presence) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since[[2]string{p.driver, p.node}]
}

// watchDrivers disables the nodes of drivers that are gone for longer than their grace, and enables them when the drivers are back. It begins
// when the configured drivers are known: until then, what is kept of one would seem to be of a driver that is none any more.
func (a *Agent) watchDrivers(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-a.absence.moved:
		}
		now := time.Now()
		wait := absenceLook
		if next := a.lookAtDrivers(now); !next.IsZero() {
			wait = min(wait, next.Sub(now))
		}
		timer.Reset(wait)
	}
}

// driverMoved has drivers looked at soon.
func (a *Agent) driverMoved() {
	select {
	case a.absence.moved <- struct{}{}:
	default:
	}
}

// lookAtDrivers looks once, and returns when to look again at the latest.
func (a *Agent) lookAtDrivers(now time.Time) time.Time {
	drivers := a.active()
	disable, enable, next := a.absence.judge(now, a.presences(drivers))
	changed := map[string]bool{}
	var failed error
	for _, p := range disable {
		err := a.state.Disabled.Disable(disabled.Reason{
			Source: disabled.DriverSource(p.driver), Node: p.node,
			Reason: fmt.Sprintf("gone since %s, which is longer than its unavailable_grace of %v", a.absence.of(p).UTC().Format(time.RFC3339), p.grace),
		})
		if err != nil {
			failed = err
			continue
		}
		changed[p.driver] = true
	}
	for _, p := range enable {
		if err := a.state.Disabled.Withdraw(disabled.DriverSource(p.driver), p.node); err != nil {
			failed = err
			continue
		}
		changed[p.driver] = true
	}
	if err := a.dropStrayReasons(drivers); err != nil {
		failed = err
	}
	if text := words(failed); text != a.absence.problem {
		a.absence.problem = text
		if failed != nil {
			a.log.Error().Err(failed).Msg("The state directory is not writable, so nodes are not disabled or enabled when a driver goes away or comes back. The agent retries.")
		}
	}
	for _, d := range drivers {
		if changed[d.name] {
			d.tracker.Refresh("a driver went away or came back")
		}
	}
	if len(changed) > 0 {
		a.tellStatus()
	}
	return next
}

// presences are those of all drivers at all nodes that they are known to have.
func (a *Agent) presences(drivers []active) []presence {
	a.mu.Lock()
	graces := map[string]time.Duration{}
	for name, d := range a.cfg.Drivers {
		graces[name] = d.UnavailableGrace
	}
	a.mu.Unlock()
	kept := map[[2]string]bool{}
	for _, r := range a.state.Disabled.Reasons("") {
		if name, ours := disabled.DriverOf(r.Source); ours {
			kept[[2]string{name, r.Node}] = true
		}
	}
	var out []presence
	for _, d := range drivers {
		state := d.plugin.Status().State
		serving := state == host.Healthy || state == host.Degraded
		for _, n := range d.tracker.Status().Nodes {
			if n.State != resourcetracker.Orphaned {
				out = append(out, presence{
					driver: d.name, node: n.Name, failing: !serving || n.Unanswered, answered: n.LastAnswer,
					grace: graces[d.name], disabled: kept[[2]string{d.name, n.Name}],
				})
			}
		}
	}
	return out
}

// dropStrayReasons takes back those of drivers that are not configured any more, and of nodes that a driver names no longer: nobody else
// would. The trait stays in Placement until a driver reports the node again, or the node is removed.
func (a *Agent) dropStrayReasons(drivers []active) error {
	for _, r := range a.state.Disabled.Reasons("") {
		name, ours := disabled.DriverOf(r.Source)
		if !ours {
			continue
		}
		i := slices.IndexFunc(drivers, func(d active) bool { return d.name == name })
		if i >= 0 {
			nodes := drivers[i].tracker.Status().Nodes
			names := func(n resourcetracker.NodeStatus) bool {
				return n.Name == r.Node && n.State != resourcetracker.Orphaned
			}
			if slices.ContainsFunc(nodes, names) || !slices.ContainsFunc(nodes, func(n resourcetracker.NodeStatus) bool { return !n.LastAnswer.IsZero() }) {
				continue
			}
		}
		if err := a.state.Disabled.Withdraw(r.Source, r.Node); err != nil {
			return err
		}
		a.log.Info().Str("driver", name).Str("node", r.Node).
			Msg("Removed the reason that disabled the node because its driver was unavailable: the driver is no longer configured, or does not report the node.")
	}
	return nil
}
