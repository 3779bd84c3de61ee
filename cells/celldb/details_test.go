// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"math"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDetails: a node is as its host described it last, also when an agent that restarts, or one of
// an older version, says nothing of it. One that another host seized has no description until that
// host gives one.
func TestDetails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		report := func(who serverstate.Reporter, details *cellwire.NodeDetails) int64 {
			t.Helper()
			node := cellwire.ReportedNode{UUID: sid(91), Name: "n1", Details: details}
			_, _, err := s.Report(ctx, who, cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{node}},
				moment)
			testproc.Check(t, err)
			return testproc.Try(s.Info(ctx)).Or(t).Revision
		}
		is := func(when string, want cellwire.NodeDetails) {
			t.Helper()
			nodes := testproc.Try(s.ComputeNodes(ctx, false, moment)).Or(t)
			if len(nodes) != 1 || nodes[0].Details != want {
				t.Errorf("%s: %+v, want %+v", when, nodes, want)
			}
		}
		h1 := serverstate.Reporter{Host: "h1"}
		report(h1, nil)
		is("an agent that says nothing", cellwire.NodeDetails{})
		qemu := cellwire.NodeDetails{HypervisorType: "QEMU", HypervisorVersion: math.MaxInt32,
			HostIP: "2001:db8::7", UnknownGuests: 3}
		first := report(h1, &qemu)
		is("a description", qemu)
		if again := report(h1, &qemu); again != first {
			t.Errorf("the same description is a change: %d, %d", again, first)
		}
		if silent := report(h1, nil); silent != first {
			t.Errorf("no description is a change: %d, %d", silent, first)
		}
		is("none any more", qemu)
		counted := testproc.Try(s.CountedNodes(ctx, moment)).Or(t)
		testproc.Equal(t, counted[0].Details, qemu, "with servers: %+v")
		report(h1, &cellwire.NodeDetails{})
		is("an empty description", cellwire.NodeDetails{})
		report(h1, &qemu)
		report(serverstate.Reporter{Host: "h2", Auth: cellwire.HostAuthCertificate, Nodes: []string{sid(91)}}, nil)
		is("of another host, which seized it", cellwire.NodeDetails{})
		other := cellwire.NodeDetails{HypervisorType: "fake", HypervisorVersion: 1000, HostIP: "192.0.2.8"}
		report(serverstate.Reporter{Host: "h2", Auth: cellwire.HostAuthCertificate, Nodes: []string{sid(91)}}, &other)
		is("as the other host describes it", other)
	})
}
