// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/control"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// facts are all that conditions follow from.
type facts struct {
	now    time.Time
	status control.Status
	// old is the age from which on a last good sync is told.
	old time.Duration
	// disabled are the drivers that were taken out of the configuration.
	disabled []string
	// state is what keeps the state directory from being written to.
	state string
	// providers is why the provider.yaml files on disk are not in force.
	providers string

	// See [troubles].
	reload, journal  string
	restart, damaged []string
	refused          map[string]health.Finding
}

// oldPasses and oldLeast say when a last good sync is old: after so many intervals, and not before.
const (
	oldPasses = 10
	oldLeast  = 10 * time.Minute
)

// maxDetails bounds the list that a condition carries.
const maxDetails = 50

// findings are the conditions that follow from facts. It is pure.
func findings(f facts) []health.Finding {
	b := &findingList{}
	b.agent(f)
	for _, d := range f.status.Drivers {
		b.driver(f, d)
	}
	return b.all
}

type findingList struct{ all []health.Finding }

func (b *findingList) add(code health.Code, subject health.Subject, text string, details ...string) *health.Finding {
	if more := len(details) - maxDetails; more > 0 {
		details = append(slices.Clone(details[:maxDetails]), fmt.Sprintf("and %d more", more))
	}
	b.all = append(b.all, health.Finding{Code: code, Subject: subject, Text: text, Details: details})
	return &b.all[len(b.all)-1]
}

// firstLine is what fits into a sentence of what is wrong with a file: where and what. `config check` shows the line, and all else.
func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// agent finds what is so of the agent as a whole.
func (b *findingList) agent(f facts) {
	for _, c := range []struct {
		code health.Code
		text string
	}{
		{health.StateNotWritable, f.state}, {health.ReloadRefused, f.reload}, {health.ProviderConfigFile, f.providers}, {health.JournalUnreadable, f.journal},
	} {
		if c.text != "" {
			b.add(c.code, health.Agent, firstLine(c.text))
		}
	}
	if len(f.status.Drivers) == 0 {
		b.add(health.NoDriver, health.Agent, "")
	}
	if len(f.restart) > 0 {
		b.add(health.RestartNeeded, health.Agent, strings.Join(f.restart, ", "))
	}
	if len(f.damaged) > 0 {
		b.add(health.JournalDamaged, health.Agent, "", f.damaged...)
	}
	for _, name := range slices.Sorted(maps.Keys(f.refused)) {
		b.all = append(b.all, f.refused[name])
	}
	for _, name := range f.disabled {
		b.add(health.DriverDisabled, health.Driver(name), "")
	}
	if f.status.Cell != nil {
		b.cell(f.now, *f.status.Cell)
	}
}

// stuckAfter is how long a server may be tried in vain before somebody is told.
const stuckAfter = time.Minute

// cell finds how the agent stands to its cell.
func (b *findingList) cell(now time.Time, c control.Cell) {
	switch {
	case c.Up || c.Since.IsZero():
	case c.Denied:
		b.add(health.CellRefusesAgent, health.Agent, c.Error)
	default:
		b.add(health.CellUnreachable, health.Agent, c.Error)
	}
	if len(c.Refused) > 0 {
		b.add(health.CellRefusesNode, health.Agent, "", c.Refused...)
	}
	var stuck, unknown []string
	for _, s := range c.Stuck {
		if now.Sub(s.Since) >= stuckAfter {
			stuck = append(stuck, fmt.Sprintf("%s shall be %s: %s", s.UUID, s.Want, s.Problem))
		}
	}
	for _, g := range c.Unknown {
		unknown = append(unknown, fmt.Sprintf("%s (%s) on %s", g.UUID, g.Name, g.Node))
	}
	if len(stuck) > 0 {
		b.add(health.ServerStuck, health.Agent, "", stuck...)
	}
	if len(unknown) > 0 {
		b.add(health.GuestUnknown, health.Agent, "", unknown...)
	}
}

// driver finds what is so of one driver, its process and its nodes.
func (b *findingList) driver(f facts, d control.Driver) {
	subject := health.Driver(d.Name)
	down := b.plugin(d)
	b.gone(f, d)
	b.warned(d)
	r := d.Report
	switch {
	case r.State == resourcetracker.Starting:
		b.add(health.Starting, subject, "")
	case r.Error == "":
	case down && ofDriver(r.Cause): // the plugin's condition says why
	default:
		b.failure(subject, r.Cause, health.DriverFails, r.Error, r.Remedy)
	}
	for _, c := range r.Contested {
		b.claimed(c)
	}
	if len(r.Nodes)+len(r.Contested) == 0 && f.now.Sub(f.status.Started) >= f.old {
		b.add(health.SyncOld, subject, "the driver has named no node since the agent was started")
	}
	for _, n := range r.Nodes {
		b.node(f, n, down)
	}
}

// claimed finds that the driver names a node that is not its own. If two are held, both say the same.
func (b *findingList) claimed(c resourcetracker.Contested) {
	subject := health.Node(c.Name)
	if !slices.ContainsFunc(b.all, func(f health.Finding) bool {
		return f.Code == health.NodeClaimedTwice && f.Subject == subject && f.Text == c.Error
	}) {
		b.add(health.NodeClaimedTwice, subject, c.Error).Remedy = c.Remedy
	}
}

// plugin finds how a driver's process is, and tells whether it answers no calls.
func (b *findingList) plugin(d control.Driver) (down bool) {
	p, subject := d.Plugin, health.Plugin(d.Name)
	switch host.State(p.State) {
	case host.Healthy, host.Disabled:
	case host.Degraded:
		b.add(health.PluginDegraded, subject, p.Error)
	case host.Quarantined:
		b.add(health.PluginQuarantined, subject, p.Error)
		return true
	case host.NotInstalled:
		b.add(health.PluginNotInstalled, subject, p.Error)
		return true
	case host.Incompatible:
		b.add(health.PluginIncompatible, subject, p.Error)
		return true
	case host.Refused:
		b.add(health.PluginRefused, subject, p.Error)
		return true
	default:
		b.add(health.PluginDown, subject, p.Error)
		return true
	}
	return false
}

// gone finds that a driver has been gone for so long that its nodes are disabled.
func (b *findingList) gone(f facts, d control.Driver) {
	var nodes []string
	text := ""
	for _, r := range f.status.Disabled {
		if r.Source == driverSource+d.Name {
			nodes, text = append(nodes, r.Node), r.Reason
		}
	}
	if len(nodes) > 0 {
		b.add(health.DriverGone, health.Driver(d.Name), text, nodes...)
	}
}

// maxNamed bounds the names of warnings in one sentence.
const maxNamed = 5

// warned finds that a driver warns: how many times, and of what first. The texts are shown with the driver.
func (b *findingList) warned(d control.Driver) {
	n := len(d.Warnings)
	if n == 0 {
		return
	}
	var names []string
	for _, w := range d.Warnings[:min(n, maxNamed)] {
		names = append(names, w.Name)
	}
	text := strings.Join(names, ", ")
	if n > maxNamed {
		text += fmt.Sprintf(" and %d more", n-maxNamed)
	}
	b.add(health.DriverWarnings, health.Driver(d.Name), fmt.Sprintf("%d: %s", n, text))
}

// onlyGone tells that a node is disabled for no other reason than that its driver is gone, which is told of the driver.
func onlyGone(all []control.DisabledReason, node string) bool {
	gone, other := false, false
	for _, r := range all {
		if r.Node == "" || r.Node == node {
			ours := strings.HasPrefix(r.Source, driverSource)
			gone, other = gone || ours, other || !ours
		}
	}
	return gone && !other
}

// ofDriver tells causes that are the driver's, or may be.
func ofDriver(c resourcetracker.Cause) bool {
	return c == resourcetracker.CauseNotReady || c == resourcetracker.CauseOther
}

// node finds what is so of one node.
func (b *findingList) node(f facts, n resourcetracker.NodeStatus, down bool) {
	subject := health.Node(n.Name)
	switch {
	case n.Error == "", down && ofDriver(n.Cause):
	case n.Held:
		b.add(health.ReshapeHeld, subject, n.Error, n.Offenders...).Remedy = n.Remedy
	default:
		b.failure(subject, n.Cause, health.PassFails, n.Error, n.Remedy, n.Offenders...)
	}
	last := n.LastSuccess
	if last.IsZero() {
		last = f.status.Started
	}
	if n.State != resourcetracker.Orphaned && f.now.Sub(last) >= f.old {
		b.add(health.SyncOld, subject, "last at "+last.UTC().Format(time.RFC3339))
	}
	if n.DisabledReason != "" && !onlyGone(f.status.Disabled, n.Name) {
		b.add(health.NodeDisabled, subject, n.DisabledReason)
	}
	if n.Orphaned != "" {
		b.add(health.NodeOrphaned, subject, n.Orphaned)
	}
	for _, c := range []struct {
		code health.Code
		list []string
	}{
		{health.ProviderConfigIdle, n.Conflicts}, {health.InventoryRetiring, n.Retiring}, {health.DriftFound, n.Drift}, {health.ForeignKept, n.Kept}, {health.DriverFlaps, n.Flapping},
	} {
		if len(c.list) > 0 {
			b.add(c.code, subject, "", c.list...)
		}
	}
}

// codes are the conditions of failures by their cause.
var codes = map[resourcetracker.Cause]health.Code{
	resourcetracker.CauseUnavailable: health.PlacementUnreachable, resourcetracker.CauseCredentials: health.CredentialsRefused,
	resourcetracker.CauseTooOld: health.PlacementTooOld, resourcetracker.CauseUnexpected: health.PlacementUnexpected,
	resourcetracker.CauseIdentity: health.IdentityRefused, resourcetracker.CauseConflict: health.WriteConflict,
	resourcetracker.CauseInUse: health.InventoryInUse, resourcetracker.CauseNotReady: health.DriverNotReady,
	resourcetracker.CauseReshapeLate: health.ReshapeLate, resourcetracker.CauseReshapeRefused: health.ReshapeRefused,
	resourcetracker.CauseState: health.StateNotWritable, resourcetracker.CauseReshapeAgain: health.ReshapeAgain, resourcetracker.CauseDriverOlder: health.DriverOlder,
}

// ofAgent are those that are of all nodes alike: Placement's, and this host's.
var ofAgent = []health.Code{
	health.PlacementUnreachable, health.CredentialsRefused, health.PlacementTooOld, health.PlacementUnexpected, health.StateNotWritable,
}

// failure finds the condition of a failed pass; unknown is the one for causes that have none. The tracker's remedy, if it has
// one, fits the cause best.
func (b *findingList) failure(subject health.Subject, cause resourcetracker.Cause, unknown health.Code, text, remedy string, details ...string) {
	code, known := codes[cause]
	if !known {
		code = unknown
	}
	if !slices.Contains(ofAgent, code) {
		b.add(code, subject, text, details...).Remedy = remedy
		return
	}
	if slices.ContainsFunc(b.all, func(f health.Finding) bool { return f.Code == code && f.Subject == health.Agent }) {
		return // another node has said so
	}
	b.add(code, health.Agent, text, details...).Remedy = remedy
}
