// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Facts are the input of the evaluation.
type Facts struct {
	Now time.Time
	// Status of the agent, its drivers and nodes. State, Summary and Conditions are results, not
	// input.
	Status Status
	// Interval is the time between two passes over a node.
	Interval time.Duration
	// DisabledDrivers were removed from the configuration.
	DisabledDrivers []string
	// StateDir is why the state directory is not writable, ProviderConfig why the provider.yaml
	// files on disk are not in effect, or "".
	StateDir, ProviderConfig string
	Problems
}

// Problems are the current problems that the agent itself detects.
type Problems struct {
	// Reload is why the configuration on disk is invalid, Journal why the journal of reshapes
	// cannot be read, or "".
	Reload, Journal string
	// RestartKeys are changed settings that need a restart, DamagedEntries those of the journal.
	RestartKeys, DamagedEntries []string
	// Drivers are problems with the configuration of drivers.
	Drivers map[string]Finding
}

// The last sync is old after oldPasses intervals, but not before oldLeast.
const (
	oldPasses = 10
	oldLeast  = 10 * time.Minute
)

func (f Facts) staleAfter() time.Duration { return max(oldPasses*f.Interval, oldLeast) }

// maxDetails limits the details of a condition.
const maxDetails = 50

// findings returns the conditions for facts, before [Definition.TimeToVisible].
func findings(f Facts) []Finding {
	b := &findingList{}
	b.agent(f)
	for _, d := range f.Status.Drivers {
		b.driver(f, d)
	}
	return b.all
}

type findingList struct{ all []Finding }

func (fl *findingList) add(code Code, subject Subject, text string, details ...string) *Finding {
	if more := len(details) - maxDetails; more > 0 {
		details = append(slices.Clone(details[:maxDetails]), fmt.Sprintf("and %d more", more))
	}
	fl.all = append(fl.all, Finding{Code: code, Subject: subject, Text: text, Details: details})
	return &fl.all[len(fl.all)-1]
}

// firstLine returns the first line of an error. `config check` shows the rest.
func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}

// agent adds conditions of the agent.
func (fl *findingList) agent(f Facts) {
	for _, c := range []struct {
		code Code
		text string
	}{
		{StateNotWritable, f.StateDir}, {ReloadRefused, f.Reload}, {ProviderConfigFile, f.ProviderConfig},
		{JournalUnreadable, f.Journal},
	} {
		if c.text != "" {
			fl.add(c.code, Agent, firstLine(c.text))
		}
	}
	if len(f.Status.Drivers) == 0 {
		fl.add(NoDriver, Agent, "")
	}
	if len(f.RestartKeys) > 0 {
		fl.add(RestartNeeded, Agent, strings.Join(f.RestartKeys, ", "))
	}
	if len(f.DamagedEntries) > 0 {
		fl.add(JournalDamaged, Agent, "", f.DamagedEntries...)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Drivers)) {
		fl.all = append(fl.all, f.Drivers[name])
	}
	for _, name := range f.DisabledDrivers {
		fl.add(DriverDisabled, OfDriver(name), "")
	}
	if text := severalAgents(f.Status); text != "" {
		fl.add(SeveralAgents, Agent, text)
	}
	if f.Status.Cell != nil {
		fl.cell(f.Now, *f.Status.Cell)
	}
	if f.Status.Identity != nil {
		fl.identity(f.Now, *f.Status.Identity)
	}
}

// severalAgents is what the cell, Placement or the enrolment service say of another agent that
// reports as this host: the first of them, in the order of how soon they know.
func severalAgents(s Status) (text string) {
	if s.Cell != nil {
		text = s.Cell.SeveralAgents()
	}
	text = cmp.Or(text, s.Placement.SeveralAgents)
	if s.Identity != nil {
		text = cmp.Or(text, s.Identity.SeveralAgents)
	}
	return text
}

// refusedNodes are the nodes that get no new servers, each with why, as far as the cell says.
func refusedNodes(c Cell) (nodes []string) {
	listed := map[string]bool{}
	for _, p := range c.ProblemsOfNodes() {
		nodes, listed[p.UUID] = append(nodes, p.UUID+": "+strings.TrimSuffix(p.Message, ".")), true
	}
	for _, uuid := range c.Refused {
		if !listed[uuid] {
			nodes = append(nodes, uuid)
		}
	}
	return nodes
}

// stuckAfter is how long a server's operation may fail before it is reported.
const stuckAfter = time.Minute

// cell adds conditions of the cell.
func (fl *findingList) cell(now time.Time, c Cell) {
	switch {
	case c.Up || c.Since.IsZero():
	case c.Denied:
		fl.add(CellRefusesAgent, Agent, c.Error)
	default:
		fl.add(CellUnreachable, Agent, c.Error)
	}
	if nodes := refusedNodes(c); len(nodes) > 0 {
		fl.add(CellRefusesNode, Agent, "", nodes...)
	}
	var stuck, unknown, idle, missing []string
	for _, s := range c.Stuck {
		if now.Sub(s.Since) >= stuckAfter {
			stuck = append(stuck, fmt.Sprintf("%s must be %s: %s", s.UUID, s.Want, s.Problem))
		}
	}
	for _, g := range c.Unknown {
		unknown = append(unknown, fmt.Sprintf("%s (%s) on %s", g.UUID, g.Name, g.Node))
	}
	for _, g := range c.Idle {
		state := g.VMState
		if g.TaskState != "" {
			state += ", " + g.TaskState
		}
		idle = append(idle, fmt.Sprintf("%s (%s) on %s: a server of project %s in state %s",
			g.UUID, g.Name, g.Node, g.ProjectID, state))
	}
	for _, s := range c.Missing {
		text := fmt.Sprintf("%s (%s) on %s", s.UUID, s.Name, s.Node)
		switch {
		case s.NowOn != "":
			text += fmt.Sprintf(
				": it was migrated to host %s and cannot go back; `openstack server migrate confirm` keeps it there",
				s.NowOn)
		case s.Resized:
			text += ": it was migrated here; `openstack server migrate revert` takes it back to the host that " +
				"keeps its guest"
		}
		missing = append(missing, text)
	}
	for _, found := range []struct {
		code    Code
		details []string
	}{{ServerStuck, stuck}, {GuestUnknown, unknown}, {GuestIdle, idle}, {GuestMissing, missing}} {
		if len(found.details) > 0 {
			fl.add(found.code, Agent, "", found.details...)
		}
	}
}

// driver adds conditions of a driver, its process and its nodes.
func (fl *findingList) driver(f Facts, d Driver) {
	subject := OfDriver(d.Name)
	down := fl.plugin(d)
	fl.gone(f, d)
	fl.warned(d)
	r := d.Report
	switch {
	case r.State == resourcetracker.Starting:
		fl.add(Starting, subject, "")
	case r.Error == "":
	case down && ofDriver(r.Cause): // the plugin's condition has the cause
	default:
		fl.failure(subject, r.Cause, DriverFails, r.Error, r.Hint)
	}
	for _, c := range r.Contested {
		fl.claimed(c)
	}
	if len(r.Nodes)+len(r.Contested) == 0 && f.Now.Sub(f.Status.Started) >= f.staleAfter() {
		fl.add(SyncOld, subject, "the driver has reported no node since the agent started")
	}
	for _, n := range r.Nodes {
		fl.node(f, n, down)
	}
}

// claimed adds a condition for a node that belongs to another driver, once if both drivers report
// it.
func (fl *findingList) claimed(c resourcetracker.Contested) {
	subject := OfNode(c.Name)
	if !slices.ContainsFunc(fl.all, func(f Finding) bool {
		return f.Code == NodeClaimedTwice && f.Subject == subject && f.Text == c.Error
	}) {
		fl.add(NodeClaimedTwice, subject, c.Error).Hint = c.Hint
	}
}

// plugin adds conditions of a driver's process, and reports whether it serves no calls.
func (fl *findingList) plugin(d Driver) (down bool) {
	p, subject := d.Plugin, OfPlugin(d.Name)
	switch p.State {
	case pluginhost.Healthy, pluginhost.Disabled:
	case pluginhost.Degraded:
		fl.add(PluginDegraded, subject, p.Error)
	case pluginhost.Quarantined:
		fl.add(PluginQuarantined, subject, p.Error)
		return true
	case pluginhost.NotInstalled:
		fl.add(PluginNotInstalled, subject, p.Error)
		return true
	case pluginhost.Incompatible:
		fl.add(PluginIncompatible, subject, p.Error)
		return true
	case pluginhost.Refused:
		fl.add(PluginRefused, subject, p.Error)
		return true
	default:
		fl.add(PluginDown, subject, p.Error).Fails = d.Report.State == resourcetracker.Degraded
		return true
	}
	return false
}

// gone adds a condition for a driver whose nodes are disabled because it is unavailable.
func (fl *findingList) gone(f Facts, d Driver) {
	var nodes []string
	text := ""
	for _, r := range f.Status.Disabled {
		if r.Source == statedir.DriverSource(d.Name) {
			nodes, text = append(nodes, r.Node), r.Reason
		}
	}
	if len(nodes) > 0 {
		fl.add(DriverGone, OfDriver(d.Name), text, nodes...)
	}
}

// maxNamed limits the names of warnings in a condition.
const maxNamed = 5

// warned adds a condition for a driver's warnings, whose texts the status has with the driver.
func (fl *findingList) warned(d Driver) {
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
	fl.add(DriverWarnings, OfDriver(d.Name), fmt.Sprintf("%d: %s", n, text))
}

// onlyGone reports whether a node is disabled only because its driver is unavailable, which is a
// condition of the driver.
func onlyGone(all []statedir.Reason, node string) bool {
	gone, other := false, false
	for _, r := range all {
		if r.Node == "" || r.Node == node {
			_, ours := statedir.DriverOf(r.Source)
			gone, other = gone || ours, other || !ours
		}
	}
	return gone && !other
}

// ofDriver reports whether a cause is, or may be, the driver.
func ofDriver(c resourcetracker.Cause) bool {
	return c == resourcetracker.CauseNotReady || c == resourcetracker.CauseOther
}

// node adds conditions of a node.
func (fl *findingList) node(f Facts, n resourcetracker.NodeStatus, down bool) {
	subject := OfNode(n.Name)
	switch {
	case n.Error == "", down && ofDriver(n.Cause):
	case n.Held && n.Cause != resourcetracker.CauseIdentity:
		fl.add(ReshapeHeld, subject, n.Error, n.Violations...).Hint = n.Hint
	default:
		fl.failure(subject, n.Cause, PassFails, n.Error, n.Hint, n.Violations...)
	}
	last, text := n.LastSuccess, "last at "
	if last.IsZero() {
		last, text = f.Status.Started, "none since the agent started, at "
	}
	if n.State != resourcetracker.Orphaned && f.Now.Sub(last) >= f.staleAfter() {
		fl.add(SyncOld, subject, text+last.UTC().Format(time.RFC3339))
	}
	if n.DisabledReason != "" && !onlyGone(f.Status.Disabled, n.Name) {
		fl.add(NodeDisabled, subject, n.DisabledReason)
	}
	switch {
	case n.ReportedBy != "", n.NotNamed:
		fl.add(NodeElsewhere, subject, n.Orphaned)
	case n.Orphaned != "":
		fl.add(NodeOrphaned, subject, n.Orphaned)
	}
	for _, c := range []struct {
		code Code
		list []string
	}{
		{ProviderConfigIdle, n.Conflicts}, {InventoryDraining, n.Draining}, {AllocationsDiffer, n.Differing},
		{DriftFound, n.Drift}, {ForeignKept, n.Kept},
		{DriverFlaps, n.Flapping}, {ItemsOverwritten, n.Overwritten},
	} {
		if len(c.list) > 0 {
			fl.add(c.code, subject, "", c.list...)
		}
	}
}

// codes maps causes of failures to conditions.
var codes = map[resourcetracker.Cause]Code{
	resourcetracker.CauseUnavailable: PlacementUnreachable, resourcetracker.CauseCredentials: CredentialsRefused,
	resourcetracker.CauseHost: HostRefused, resourcetracker.CauseNotAdmitted: CapacityNotAdmitted,
	resourcetracker.CauseTooOld: PlacementTooOld, resourcetracker.CauseUnexpected: PlacementUnexpected,
	resourcetracker.CauseIdentity: IdentityRefused, resourcetracker.CauseConflict: WriteConflict,
	resourcetracker.CauseInUse: InventoryInUse, resourcetracker.CauseNotReady: DriverNotReady,
	resourcetracker.CauseReshapeLate: ReshapeLate, resourcetracker.CauseReshapeRefused: ReshapeRefused,
	resourcetracker.CauseState: StateNotWritable, resourcetracker.CauseReshapeAgain: ReshapeAgain,
	resourcetracker.CauseDriverOlder: DriverOlder,
}

// ofAgent are conditions of Placement and the host, which affect all nodes.
var ofAgent = []Code{
	PlacementUnreachable, CredentialsRefused, PlacementTooOld, PlacementUnexpected, StateNotWritable,
}

// failure adds the condition of a failed pass; unknown is the code for other causes. The tracker's
// hint, if any, replaces that of the definition.
func (fl *findingList) failure(
	subject Subject, cause resourcetracker.Cause, unknown Code, text, hint string, details ...string,
) {
	code, known := codes[cause]
	if !known {
		code = unknown
	}
	if !slices.Contains(ofAgent, code) {
		f := fl.add(code, subject, text, details...)
		f.Hint, f.Fails = hint, true
		return
	}
	if slices.ContainsFunc(fl.all, func(f Finding) bool { return f.Code == code && f.Subject == Agent }) {
		return // already added for another node
	}
	f := fl.add(code, Agent, text, details...)
	f.Hint, f.Fails = hint, true
}
