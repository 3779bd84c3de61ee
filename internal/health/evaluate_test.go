// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// well are the facts of an agent that has nothing to tell.
func well() Facts {
	return Facts{Now: noon, Interval: time.Minute, Status: Status{
		Started: noon.Add(-24 * time.Hour), State: resourcetracker.Reporting,
		Drivers: []Driver{{
			Name: "libvirt", Plugin: Plugin{Status: pluginhost.Status{State: pluginhost.Healthy}},
			Report: resourcetracker.Status{State: resourcetracker.Reporting, Nodes: []resourcetracker.NodeStatus{
				{Name: "cn1", State: resourcetracker.Reporting, LastSuccess: noon.Add(-time.Minute)},
			}},
		}},
	}}
}

// brief is a finding in a line.
func brief(found []Finding) []string {
	out := []string{}
	for _, f := range found {
		out = append(out,
			strings.TrimRight(fmt.Sprintf("%s %s: %s %s", f.Subject, f.Code, f.Text, strings.Join(f.Details, ", ")),
				" :"))
	}
	return out
}

// failed makes the last pass over the node one that failed.
func failed(cause resourcetracker.Cause) func(*Facts, *Driver, *resourcetracker.NodeStatus) {
	return func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
		n.State, n.Error, n.Cause, n.Hint, n.Violations = resourcetracker.Degraded, "why", cause, "try", []string{"o1"}
	}
}

// TestFindings: which condition each fact becomes.
func TestFindings(t *testing.T) {
	type change = func(*Facts, *Driver, *resourcetracker.NodeStatus)
	cases := map[string]struct {
		change change
		want   []string
	}{
		"all is well": {func(*Facts, *Driver, *resourcetracker.NodeStatus) {}, []string{}},
		"no driver": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) { f.Status.Drivers = nil },
			[]string{"agent no-driver"}},
		"what the agent remembers": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.StateDir, f.Reload, f.ProviderConfig, f.Journal = "/s: read-only", "line 3\n  3| x",
				"line 4\n  4| y\n  hint: z", "no permission"
			f.RestartKeys, f.DamagedEntries, f.DisabledDrivers, f.Drivers = []string{"plugins.dir", "log.format"},
				[]string{"reshape 3"}, []string{"fake"}, map[string]Finding{
					"libvirt": {Code: DriverRefused, Subject: OfDriver("libvirt"), Text: "uri"},
					"second":  {Code: DriverTakeover, Subject: OfDriver("second"), Text: "exit status 1"},
				}
		}, []string{
			"agent state-directory-not-writable: /s: read-only", "agent reload-refused: line 3",
			"agent provider-config-invalid: line 4", "agent journal-unreadable: no permission",
			"agent restart-needed: plugins.dir, log.format", "agent journal-entry-damaged:  reshape 3",
			"driver libvirt driver-configuration-refused: uri",
			"driver second driver-takeover-failed: exit status 1", "driver fake driver-disabled",
		}},
		"its cell is unavailable, and much is wrong": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.Status.Cell = &Cell{Status: worker.Status{
				Since: noon.Add(-time.Hour), Error: "connection refused", Refused: []string{"u1", "u0"},
				Problems: []cellwire.NodeProblem{{UUID: "u0", Message: "Host h2 has it."}},
				Unknown:  []worker.Unknown{{UUID: "u2", Name: "web", Node: "cn1"}},
				Idle: []worker.Idle{
					{UUID: "u5", Name: "db", Node: "cn1", ProjectID: "p1", VMState: "error"},
					{UUID: "u6", Name: "app", Node: "cn1", ProjectID: "p2", VMState: "active", TaskState: "rebuilding"},
				},
				Missing: []worker.Missing{
					{UUID: "u7", Name: "mail", Node: "cn1"}, {UUID: "u8", Name: "in", Node: "cn1", Resized: true},
					{UUID: "u9", Name: "out", Node: "cn1", NowOn: "h2"},
				},
				Stuck: []worker.Stuck{{UUID: "u3", Want: "gone", Since: noon.Add(-time.Minute), Problem: "no driver"},
					{UUID: "u4", Want: "present", Since: noon, Problem: "not ready"}},
			}}
		}, []string{"agent cell-unreachable: connection refused", "agent cell-refuses-node:  u0: Host h2 has it, u1",
			"agent server-stuck:  u3 must be gone: no driver", "agent guest-unknown-to-cell:  u2 (web) on cn1",
			"agent guest-of-idle-server:  u5 (db) on cn1: a server of project p1 in state error, u6 (app) on cn1: a " +
				"server of project p2 in state active, rebuilding",
			"agent guest-missing:  u7 (mail) on cn1, u8 (in) on cn1: it was migrated here; `openstack server " +
				"migrate revert` takes it back to the host that keeps its guest, " +
				"u9 (out) on cn1: it was migrated to host h2 and cannot go back; `openstack server migrate confirm` " +
				"keeps it there",
		}},
		"its certificate is not renewed": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.Status.Identity = &Identity{Since: noon.Add(-13 * time.Hour), Expires: noon.Add(11 * time.Hour),
				Renews: true, RefusedNodes: []string{"u1"}}
		}, []string{"agent certificate-expires: valid until 2030-01-02T23:00:00Z", "agent node-not-enrolled:  u1"}},
		"it is evicted": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.Status.Identity = &Identity{Since: noon.Add(-24 * time.Hour), Expires: noon, Renews: true,
				Refused: true, Error: "evicted"}
		}, []string{"agent certificate-expired: valid until 2030-01-02T12:00:00Z: evicted",
			"agent renewal-refused: evicted"}},
		"its certificate was renewed elsewhere": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.Status.Identity = &Identity{Since: noon, Expires: noon.Add(24 * time.Hour), Renews: true, Refused: true,
				RenewedElsewhere: true, Error: "another holder"}
		}, []string{"agent certificate-renewed-elsewhere: another holder"}},
		"its cell refuses it": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.Status.Cell = &Cell{Status: worker.Status{Since: noon, Error: "403", Denied: true}}
		}, []string{"agent cell-refuses-agent: 403"}},
		"another agent reports as this host": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			p := cellwire.NodeProblem{UUID: "u0", Code: cellwire.NodeSeveralAgents,
				Message: "2 agents report as host h1: a; b."}
			f.Status.Cell = &Cell{Status: worker.Status{Up: true, Since: noon,
				Problems: []cellwire.NodeProblem{p, {UUID: "u1", Code: p.Code, Message: p.Message}}}}
		}, []string{"agent several-agents: 2 agents report as host h1: a; b"}},
		"Placement and the enrolment service know another agent": {func(f *Facts, _ *Driver,
			_ *resourcetracker.NodeStatus) {
			f.Status.Placement.SeveralAgents = "2 agents report as host h1: a; b"
			f.Status.Identity = &Identity{Since: noon,
				Expires: noon.Add(24 * time.Hour), SeveralAgents: "2 agents report as host h1: c; d"}
		}, []string{"agent several-agents: 2 agents report as host h1: a; b"}},
		"only the enrolment service does": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.Status.Identity = &Identity{Since: noon,
				Expires: noon.Add(24 * time.Hour), SeveralAgents: "2 agents report as host h1: c; d"}
		}, []string{"agent several-agents: 2 agents report as host h1: c; d"}},
		"its cell was not asked yet": {func(f *Facts, _ *Driver, _ *resourcetracker.NodeStatus) {
			f.Status.Cell =
				&Cell{}
		}, []string{}},
		"starting": {func(f *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Report.State, d.Report.Nodes, f.Status.Started = resourcetracker.Starting, nil, noon
		}, []string{"driver libvirt starting"}},
		"no node for long": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Report.State, d.Report.Error, d.Report.Cause,
				d.Report.Nodes = resourcetracker.Degraded, "no libvirtd", resourcetracker.CauseNotReady, nil
		}, []string{"driver libvirt driver-not-ready: no libvirtd",
			"driver libvirt sync-old: the driver has reported no node since the agent started"}},
		"the driver fails": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Report.State, d.Report.Error, d.Report.Cause = resourcetracker.Degraded,
				"garbage", resourcetracker.CauseOther
		}, []string{"driver libvirt driver-fails: garbage"}},
		"a process that is down explains the rest": {func(_ *Facts, d *Driver, n *resourcetracker.NodeStatus) {
			d.Plugin.State, d.Plugin.Error, d.Report.Error,
				d.Report.Cause = "backoff", "killed", "unavailable", resourcetracker.CauseOther
			n.Error, n.Cause = "unavailable", resourcetracker.CauseNotReady
		}, []string{"plugin libvirt plugin-down: killed"}},
		"but not Placement": {func(_ *Facts, d *Driver, n *resourcetracker.NodeStatus) {
			d.Plugin.State, n.Error, n.Cause = "quarantined", "refused", resourcetracker.CauseUnavailable
		}, []string{"plugin libvirt plugin-quarantined", "agent placement-unreachable: refused"}},
		"gone for longer than its grace": {func(f *Facts, d *Driver, n *resourcetracker.NodeStatus) {
			d.Plugin.State, d.Plugin.Error, n.DisabledReason = "quarantined", "crashed",
				"driver libvirt: gone since noon"
			f.Status.Disabled = []statedir.Reason{{Source: "driver libvirt", Node: "cn1", Reason: "gone since noon"},
				{Source: "driver other", Node: "cn2", Reason: "gone, too"}}
		}, []string{"plugin libvirt plugin-quarantined: crashed", "driver libvirt driver-gone: gone since noon cn1"}},
		"gone, and disabled by a person as well": {func(f *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.DisabledReason = "a fan; driver libvirt: gone since noon"
			f.Status.Disabled = []statedir.Reason{{Source: "operator", Reason: "a fan"},
				{Source: "driver libvirt", Node: "cn1", Reason: "gone since noon"}}
		}, []string{"driver libvirt driver-gone: gone since noon cn1",
			"node cn1 node-disabled: a fan; driver libvirt: gone since noon"}},
		"it warns": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Warnings = []pluginhost.Warning{{Name: "gpu-clock", Text: "it is slow"},
				{Name: "numa-memory", Text: "it differs"}}
		}, []string{"driver libvirt driver-warnings: 2: gpu-clock, numa-memory"}},
		"it warns of much": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			for i := range 7 {
				d.Warnings = append(d.Warnings, pluginhost.Warning{Name: fmt.Sprint("w-", i), Text: "x"})
			}
		}, []string{"driver libvirt driver-warnings: 7: w-0, w-1, w-2, w-3, w-4 and 2 more"}},
		"not well": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Plugin.State, d.Plugin.Error = "degraded", "slow"
		}, []string{"plugin libvirt plugin-degraded: slow"}},
		"an executable that is refused": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Plugin.State, d.Plugin.Error = "refused", "another sha256"
		}, []string{"plugin libvirt plugin-refused: another sha256"}},
		"no executable": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Plugin.State =
				"not-installed"
		}, []string{"plugin libvirt plugin-not-installed"}},
		"another protocol": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			d.Plugin.State =
				"incompatible"
		}, []string{"plugin libvirt plugin-incompatible"}},
		"held": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.Held, n.Error, n.Cause, n.Violations = true,
				"no capacity", resourcetracker.CauseReshapeRefused, []string{"o1", "o2"}
		}, []string{"node cn1 reshape-held: no capacity o1, o2"}},
		"held for its identity": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.Held, n.Error, n.Cause = true, "another uuid", resourcetracker.CauseIdentity
		}, []string{"node cn1 identity-refused: another uuid"}},
		"an old sync": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.LastSuccess = noon.Add(-10 * time.Minute)
		},
			[]string{"node cn1 sync-old: last at 2030-01-02T11:50:00Z"}},
		"a node of another driver": {func(_ *Facts, d *Driver, _ *resourcetracker.NodeStatus) {
			c := resourcetracker.Contested{Name: "cn2", Error: "two name it", Hint: "give it to one"}
			d.Report.Contested = []resourcetracker.Contested{c, c} // each of two drivers that are held says so
		}, []string{"node cn2 node-claimed-twice: two name it"}},
		"no pass is made over an orphan": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.State, n.LastSuccess, n.Orphaned = resourcetracker.Orphaned, time.Time{}, "not named"
		}, []string{"node cn1 node-orphaned: not named"}},
		"an orphan of another host": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.State, n.LastSuccess, n.Orphaned, n.ReportedBy = resourcetracker.Orphaned, time.Time{},
				"host h2 reports it now", "h2"
		}, []string{"node cn1 node-reported-elsewhere: host h2 reports it now"}},
		"a node that the certificate does not name": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.State, n.LastSuccess, n.Orphaned, n.NotNamed = resourcetracker.Orphaned, time.Time{}, "other nodes", true
		}, []string{"node cn1 node-reported-elsewhere: other nodes"}},
		"no sync since the start": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.LastSuccess =
				time.Time{}
		},
			[]string{"node cn1 sync-old: none since the agent started, at 2030-01-01T12:00:00Z"}},
		"what a pass finds beside": {func(_ *Facts, _ *Driver, n *resourcetracker.NodeStatus) {
			n.DisabledReason, n.Orphaned, n.Conflicts,
				n.Draining = "new memory", "not named", []string{"c"}, []string{"r"}
			n.Drift, n.Kept, n.Flapping, n.Differing, n.Overwritten = []string{"d"}, []string{"k"},
				[]string{"f"}, []string{"a"}, []string{"o"}
		}, []string{"node cn1 node-disabled: new memory",
			"node cn1 node-orphaned: not named", "node cn1 provider-config-ignored:  c",
			"node cn1 inventory-retiring:  r", "node cn1 allocations-differ:  a", "node cn1 drift-found:  d",
			"node cn1 foreign-items-kept:  k", "node cn1 driver-flaps:  f", "node cn1 items-overwritten:  o"}},
	}
	for cause, want := range map[resourcetracker.Cause]string{
		resourcetracker.CauseUnavailable:    "agent placement-unreachable",
		resourcetracker.CauseCredentials:    "agent credentials-refused",
		resourcetracker.CauseTooOld:         "agent placement-too-old",
		resourcetracker.CauseUnexpected:     "agent placement-unexpected",
		resourcetracker.CauseState:          "agent state-directory-not-writable",
		resourcetracker.CauseIdentity:       "node cn1 identity-refused",
		resourcetracker.CauseConflict:       "node cn1 write-conflict",
		resourcetracker.CauseInUse:          "node cn1 inventory-in-use",
		resourcetracker.CauseNotReady:       "node cn1 driver-not-ready",
		resourcetracker.CauseReshapeLate:    "node cn1 reshape-needs-restart",
		resourcetracker.CauseReshapeRefused: "node cn1 reshape-refused",
		resourcetracker.CauseOther:          "node cn1 pass-fails",
		resourcetracker.CauseReshapeAgain:   "node cn1 reshape-asked-again",
		resourcetracker.CauseDriverOlder:    "node cn1 driver-older-than-tree",
		resourcetracker.CauseHost:           "node cn1 placement-refuses-host",
		resourcetracker.CauseNotAdmitted:    "node cn1 capacity-not-admitted",
		"of a later version":                "node cn1 pass-fails",
	} {
		cases["a pass fails: "+string(cause)] = struct {
			change change
			want   []string
		}{failed(cause), []string{want + ": why o1"}}
	}
	told := map[Code]bool{}
	for name, c := range cases {
		f := well()
		c.change(&f, &f.Status.Drivers[0], &f.Status.Drivers[0].Report.Nodes[0])
		got := findings(f)
		testproc.Samef(t, cmp.Diff(c.want, brief(got)), "%s", name)
		for _, found := range got {
			told[found.Code] = true
			if found.Hint == "" && strings.HasPrefix(name, "a pass fails") {
				t.Errorf("%s: the hint is lost", name)
			}
		}
	}
	for _, d := range Definitions() {
		if !told[d.Code] {
			t.Errorf("no fact becomes %s", d.Code)
		}
	}
}

// TestManyNodes: a condition of the agent is listed once, and every list is bounded.
func TestManyNodes(t *testing.T) {
	f := well()
	nodes := &f.Status.Drivers[0].Report.Nodes
	(*nodes)[0].Kept = slices.Repeat([]string{"x"}, 60)
	for i := range 100 {
		*nodes = append(*nodes, resourcetracker.NodeStatus{Name: fmt.Sprint(i), LastSuccess: noon, Error: fmt.Sprint(i),
			Cause: resourcetracker.CauseUnavailable})
	}
	got := findings(f)
	if len(got) != 2 || got[1].Text != "0" || len(got[0].Details) != maxDetails+1 ||
		got[0].Details[maxDetails] != "and 10 more" {
		t.Errorf("the findings of many nodes: got %d: %q, want two, the first with bounded details",
			len(got), brief(got))
	}
}

func TestConclude(t *testing.T) {
	critical := Condition{Severity: Critical, Subject: "node cn1", Title: "it is held", Text: "no capacity"}
	warning := Condition{Severity: Warning, Subject: Agent, Title: "the configuration is invalid"}
	failing := Condition{Severity: Warning, Subject: "node cn1", Title: "a pass fails", Text: "why"}
	fails := func(c Condition) bool { return c.Title == failing.Title }
	info := Condition{Severity: Info}
	for _, c := range []struct {
		state      resourcetracker.State
		conditions []Condition
		wantState  resourcetracker.State
		want       string
	}{
		{resourcetracker.Reporting, nil, resourcetracker.Reporting, "as it was"},
		{resourcetracker.Degraded, []Condition{info}, resourcetracker.Degraded, "as it was"},
		{resourcetracker.Degraded, []Condition{failing},
			resourcetracker.Degraded, "degraded: node cn1: a pass fails: why"},
		{resourcetracker.Degraded, []Condition{warning, failing, info}, resourcetracker.Degraded,
			"degraded: node cn1: a pass fails: why (and 1 more)"},
		{resourcetracker.Degraded, []Condition{critical, warning, failing}, resourcetracker.Degraded,
			"degraded: node cn1: it is held: no capacity (and 2 more)"},
		{resourcetracker.Reporting, []Condition{warning, failing}, resourcetracker.Reporting,
			"as it was; but the configuration is invalid (and 1 more)"},
		{resourcetracker.Reporting, []Condition{warning, info}, resourcetracker.Reporting,
			"as it was; but the configuration is invalid"},
		// the failing one is not visible yet
		{resourcetracker.Degraded, []Condition{warning, info}, resourcetracker.Degraded, "as it was (and 1 more)"},
		{resourcetracker.Reporting, []Condition{critical, warning, info}, resourcetracker.Degraded,
			"degraded: node cn1: it is held: no capacity (and 1 more)"},
	} {
		if state, got := appendCause(c.state, "as it was", c.conditions, fails); state != c.wantState || got != c.want {
			t.Errorf("appendCause(%v): got %s, %q", c.conditions, state, got)
		}
	}
}

// TestSummaryOfWhatIsReported: an agent is well if it reports, no condition is worse than a note,
// and new guests can come to each of its nodes.
func TestSummaryOfWhatIsReported(t *testing.T) {
	for _, c := range []struct {
		nodes, disabled int
		reload          string
		want            string
	}{
		{1, 0, "", "reporting 1 node, all is well"},
		{1, 1, "", "reporting 1 node, which is disabled"},
		{3, 0, "", "reporting 3 nodes, all is well"},
		{3, 1, "", "reporting 3 nodes, of which 1 is disabled"},
		{3, 2, "", "reporting 3 nodes, of which 2 are disabled"},
		{3, 3, "", "reporting 3 nodes, which are disabled"},
		{3, 0, "line 3", "reporting 3 nodes; but the configuration on disk is invalid: line 3"},
		{3, 1, "line 3", "reporting 3 nodes, of which 1 is disabled; but the configuration on disk is invalid: line 3"},
	} {
		f := well()
		f.Reload = c.reload
		report := &f.Status.Drivers[0].Report
		node := report.Nodes[0]
		report.Nodes = nil
		for i := range c.nodes {
			node.DisabledReason = map[bool]string{true: "new memory"}[i < c.disabled]
			report.Nodes = append(report.Nodes, node)
		}
		var tracker Tracker
		if s, _ := tracker.Evaluate(f); s.State != resourcetracker.Reporting || s.Summary != c.want {
			t.Errorf("%s: %q, want %q", s.State, s.Summary, c.want)
		}
	}
}

// TestSummaryNamesWhatFails: what makes the agent degraded is in the summary, whatever warnings
// there are beside it, before and after its condition is visible.
func TestSummaryNamesWhatFails(t *testing.T) {
	for name, c := range map[string]struct {
		fail          func(*Driver)
		before, after string
	}{
		"a pass": {func(d *Driver) {
			n := &d.Report.Nodes[0]
			n.State, n.Error, n.Cause = resourcetracker.Degraded, "no answer", resourcetracker.CauseUnavailable
		}, "degraded: node cn1: no answer (and 1 more)",
			"degraded: Placement cannot be reached: no answer (and 1 more)"},
		"a driver": {func(d *Driver) {
			d.Report.Error, d.Report.Cause = "no libvirtd", resourcetracker.CauseNotReady
		}, "degraded: driver libvirt: no libvirtd (and 1 more)",
			"degraded: driver libvirt: the driver is not ready: no libvirtd (and 1 more)"},
		"a process": {func(d *Driver) {
			d.Plugin.State, d.Plugin.Error, d.Report.Error,
				d.Report.Cause = "backoff", "killed", "unavailable", resourcetracker.CauseNotReady
		}, "degraded: driver libvirt: unavailable (and 1 more)",
			"degraded: plugin libvirt: the driver's process is down and is being restarted: killed (and 1 more)"},
	} {
		f := well()
		f.Reload = "line 3"
		f.Status.Drivers[0].Report.State = resourcetracker.Degraded
		c.fail(&f.Status.Drivers[0])
		var tracker Tracker
		for _, want := range []string{c.before, c.after} {
			if s, _ := tracker.Evaluate(f); s.State != resourcetracker.Degraded || s.Summary != want {
				t.Errorf("%s: %s, %q, want %q", name, s.State, s.Summary, want)
			}
			f.Now = f.Now.Add(time.Minute)
		}
	}
}
