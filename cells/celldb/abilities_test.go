// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAbilities: a host can do what it last reported of the node of a server, and nothing of
// another host's node counts.
func TestAbilities(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		report := func(host, node string, n int, abilities ...string) int64 {
			t.Helper()
			_, _, err := s.Report(ctx, serverstate.Reporter{Host: host},
				cellwire.HostReport{Version: "1",
					Nodes: []cellwire.ReportedNode{{UUID: sid(n), Name: node, Abilities: abilities}}}, moment)
			testproc.Check(t, err)
			info := testproc.Try(s.Info(ctx)).Or(t)
			return info.Revision
		}
		check := func(what string, server cellwire.Server, ability string, code cellwire.Code) {
			t.Helper()
			var refused *cellwire.Error
			switch err := s.CheckAbility(ctx, server, ability); {
			case code == "" && err != nil, code != "" && !errors.As(err, &refused):
				t.Errorf("%s: %v", what, err)
			case code != "" && (refused.Code != code || refused.Status != 409):
				t.Errorf("%s: %+v", what, refused)
			}
		}
		server := building(1)
		check("nothing is known of the host", server, plugins.AbilityConsole, cellwire.CodeUnable)
		report("h1", "n1", 91)
		check("an agent of before abilities", server, plugins.AbilityConsole, cellwire.CodeUnable)
		first := report("h1", "n1", 91, plugins.AbilityRebuild, plugins.AbilityConsole,
			"of-a-later-version", plugins.AbilityConsole)
		check("by the node's name", server, plugins.AbilityConsole, "")
		check("another ability", server, plugins.AbilityMigrate, cellwire.CodeUnable)
		check("no part of a name", server, "con", cellwire.CodeUnable)
		check("no ability", server, "", cellwire.CodeUnable)
		if again := report("h1", "n1", 91, "of-a-later-version", plugins.AbilityConsole,
			plugins.AbilityRebuild); again != first {
			t.Errorf("a report of the same abilities is a change: %d, %d", again, first)
		}
		renamed := server
		renamed.Node, renamed.NodeUUID = "renamed", sid(91)
		check("by the node's uuid", renamed, plugins.AbilityConsole, "")
		homeless := server
		homeless.Host, homeless.Node = "", ""
		check("no host", homeless, plugins.AbilityConsole, cellwire.CodeConflict)
		report("h2", "n1", 92, plugins.AbilityMigrate)
		check("only another host can", server, plugins.AbilityMigrate, cellwire.CodeUnable)
		report("h1", "n1", 91)
		check("an older agent again", server, plugins.AbilityConsole, cellwire.CodeUnable)
	})
}

// TestNodesOfAStartingAgent: nodes that an agent does not know yet after its start stay as they
// were reported; one that knows all of its nodes has no others.
func TestNodesOfAStartingAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		reported := func(who serverstate.Reporter, starting bool, nodes ...cellwire.ReportedNode) {
			t.Helper()
			_, _, err := s.Report(ctx, who,
				cellwire.HostReport{Version: "1",
					Nodes: append([]cellwire.ReportedNode{}, nodes...), Starting: starting}, moment)
			testproc.Check(t, err)
		}
		report := func(starting bool, nodes ...cellwire.ReportedNode) {
			t.Helper()
			reported(serverstate.Reporter{Host: "h1"}, starting, nodes...)
		}
		present := func(when string, want ...string) {
			t.Helper()
			var got []string
			for _, n := range testproc.Try(s.ComputeNodes(ctx, false, moment)).Or(t) {
				got = append(got, n.Name+" "+strings.Join(n.Abilities, ","))
			}
			testproc.EqualList(t, got, want, when+": %q")
		}
		n1 := cellwire.ReportedNode{UUID: sid(91), Name: "n1", Abilities: []string{plugins.AbilityMigrate}}
		n2 := cellwire.ReportedNode{UUID: sid(92), Name: "n2"}
		report(false, n1, n2)
		report(true)
		present("after a restart", "n1 migrate", "n2 ")
		report(true, n2)
		present("with one that is known", "n1 migrate", "n2 ")
		report(false, n2)
		present("with all", "n2 ")

		claims := func(when string, want int) {
			t.Helper()
			nodes := testproc.Try(s.ComputeNodes(ctx, false, moment)).Or(t)
			if len(nodes) != 1 || len(nodes[0].Claims) != want {
				t.Errorf("%s: %+v", when, nodes)
			}
		}
		other := serverstate.Reporter{Host: "h2"}
		reported(other, false, n2)
		claims("another host reports it", 1)
		reported(other, true)
		claims("that is starting", 1)
		reported(other, false)
		claims("and does not report it", 0)
		reported(other, false, n2)
		reported(serverstate.Reporter{Host: "h2", Nodes: []string{sid(93)}}, true)
		claims("whose certificate is for another node", 0)

		report(false, n1, n2)
		reported(serverstate.Reporter{Host: "h1", Nodes: []string{n2.UUID}}, true)
		present("with a certificate that is not for a node", "n2 ")
	})
}
