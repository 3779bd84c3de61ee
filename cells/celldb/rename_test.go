// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// later is when agents that reported at the moment count as down.
var later = celldb.Moment{Now: start.Add(time.Hour), DownTime: time.Minute}

// settledOn makes a server that runs on node n of a host.
func settledOn(t *testing.T, s *celldb.DB, server, node int, host string) {
	t.Helper()
	made := building(server)
	made.Host, made.Node, made.NodeUUID = host, "h1", sid(node)
	release(t, s, made)
	refused := testproc.Try(
		s.Apply(ctx, host,
			[]cellwire.Report{{UUID: made.UUID, Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning}},
			moment)).Or(t).Refused
	testproc.Equal(t, refused[0], "", "the report of a server")
}

// TestRenamedHost: a host with servers gets another name. Service, servers and nodes are the same
// afterwards, its agent finds its work by the new name, and what is past follows.
func TestRenamedHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		report := func(host string, stopping bool) {
			t.Helper()
			r := cellwire.HostReport{Version: "1", Stopping: stopping,
				Nodes: []cellwire.ReportedNode{{UUID: sid(901), Name: host}, {UUID: sid(902), Name: "other"}}}
			_, problems, err := s.Report(ctx, serverstate.Reporter{Host: host}, r, moment)
			testproc.Check(t, err)
			testproc.Equal(t, len(problems), 0, "problems of the nodes of %s: %v", host, problems)
		}
		report("h1", false)
		settledOn(t, s, 1, 901, "h1")
		settledOn(t, s, 2, 902, "h1")
		settledOn(t, s, 3, 901, "h1")
		testproc.Try(s.Delete(ctx, sid(3), cellwire.DeleteNormal, moment)).Or(t)
		testproc.Try(s.Apply(ctx, "h1", []cellwire.Report{{UUID: sid(3), Kind: cellwire.ReportGone}}, moment)).Or(t)
		before := testproc.Try(s.Services(ctx, moment)).Or(t)[0]
		rename := cellwire.RenameRequest{From: "h1", To: "h9", Nodes: map[string]string{sid(901): "h9"}}

		_, err := s.RenameHost(ctx, before.UUID, rename, moment)
		if !cellclient.IsConflict(err) || !strings.Contains(err.Error(), "agent of host h1 reports") {
			t.Errorf("while the agent reports: %v", err)
		}
		report("h1", true)
		checked := rename
		checked.Check = true
		asked := testproc.Try(s.RenameHost(ctx, before.UUID, checked, moment)).Or(t)
		testproc.Equal(t, asked.Host, "h1", "after the question alone")
		after := testproc.Try(s.RenameHost(ctx, before.UUID, rename, moment)).Or(t)
		testproc.Equal(t, after.UUID+after.Host, before.UUID+"h9", "the service")
		again := testproc.Try(s.RenameHost(ctx, before.UUID, rename, moment)).Or(t)
		testproc.Equal(t, again.Host, "h9", "the second time")

		for i, node := range map[int]string{1: "h9", 2: "h1", 3: "h9"} {
			server := testproc.Try(s.Server(ctx, sid(i), moment)).Or(t)
			testproc.Equal(t, server.Host+" "+server.Node, "h9 "+node, "server %d", i)
		}
		testproc.Equal(t, owners(t, s, moment)[sid(901)], "h9", "the owner of the node")
		report("h9", false)
		work, _, err := s.Work(ctx, "h9", 0, "", moment)
		testproc.Check(t, err)
		testproc.Equal(t, len(work.Items), 2, "work of h9")
		if _, _, err := s.Work(ctx, "h1", 0, "", moment); !cellclient.IsNotFound(err) {
			t.Errorf("work of h1: %v", err)
		}
		actions := testproc.Try(s.Actions(ctx, sid(1))).Or(t)
		testproc.Equal(t, actions.Actions[0].Host, "h1", "where the server was made")
		refused := testproc.Try(
			s.Apply(ctx,
				"h9", []cellwire.Report{{UUID: sid(1), Kind: cellwire.ReportPower, PowerState: plugins.PowerShutdown}},
				moment)).Or(t).Refused
		testproc.Equal(t, refused[0], "", "a report of h9")
	})
}

// TestHostIsNotRenamed while something on it has begun, to a name that there is, or by another name
// than its own.
func TestHostIsNotRenamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		prepare func(*testing.T, *celldb.DB)
		rename  cellwire.RenameRequest
		why     string
	}{
		"a server is being placed": {func(t *testing.T, s *celldb.DB) { insert(t, s, building(2)) },
			cellwire.RenameRequest{From: "h1", To: "h9"},
			"(1): server " + sid(2) + " is being placed"},
		"a server has a task": {func(t *testing.T, s *celldb.DB) {
			testproc.Try(s.Power(ctx, sid(1), cellwire.PowerStop, moment)).Or(t)
			release(t, s, building(2))
		}, cellwire.RenameRequest{From: "h1", To: "h9"},
			"(2): server " + sid(1) + " is powering-off, server " + sid(2) + " is spawning"},
		"a server moves": {func(t *testing.T, s *celldb.DB) {
			testproc.Try(s.Migrate(ctx, sid(1),
				cellwire.MigrateRequest{UUID: sid(70), Type: cellwire.MigrationEvacuation}, later)).Or(t)
		}, cellwire.RenameRequest{From: "h1", To: "h9"}, "migration " + sid(70) + " of server " + sid(1)},
		"the name is another host's": {func(t *testing.T, s *celldb.DB) {
			reports(t, s, serverstate.Reporter{Host: "h9"}, moment, 909)
		}, cellwire.RenameRequest{From: "h1", To: "h9"}, "has a host h9 already"},
		"the name has servers": {func(t *testing.T, s *celldb.DB) {
			server := building(2)
			server.Host = "h9"
			release(t, s, server)
		}, cellwire.RenameRequest{From: "h1", To: "h9"}, "has a host h9 already"},
		"another host": {nil, cellwire.RenameRequest{From: "h2", To: "h9"}, "is that of host h1, not of h2"},
		"no name":      {nil, cellwire.RenameRequest{From: "h1", To: "h/9"}, "no name of a host"},
		"no node name": {nil, cellwire.RenameRequest{From: "h1", To: "h9", Nodes: map[string]string{sid(901): ""}},
			"no name of a node"},
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t)
			r := cellwire.HostReport{Version: "1",
				Nodes: []cellwire.ReportedNode{{UUID: sid(901), Name: "h1",
					Abilities: []string{plugins.AbilityMigrate}}}}
			service, _, err := s.Report(ctx, serverstate.Reporter{Host: "h1"}, r, moment)
			testproc.Check(t, err)
			settledOn(t, s, 1, 901, "h1")
			if c.prepare != nil {
				c.prepare(t, s)
			}
			_, err = s.RenameHost(ctx, service.UUID, c.rename, later)
			if err == nil {
				t.Fatal("it was renamed")
			}
			testproc.Contains(t, err.Error(), c.why, "%v", err)
			testproc.Equal(t, testproc.Try(s.Server(ctx, sid(1), moment)).Or(t).Host, "h1", "the host of the server")
		})
	}
}
