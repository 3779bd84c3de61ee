// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDetails: a node is as its host described it last, also when an agent that restarts, or one of
// an older version, says nothing of it. One that another host seized has no description until that
// host gives one.
func TestDetails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		report := func(who celldb.Reporter, details *cellwire.NodeDetails) int64 {
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
		h1 := celldb.Reporter{Host: "h1"}
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
		report(celldb.Reporter{Host: "h2", Auth: cellwire.HostAuthCertificate, Nodes: []string{sid(91)}}, nil)
		is("of another host, which seized it", cellwire.NodeDetails{})
		other := cellwire.NodeDetails{HypervisorType: "fake", HypervisorVersion: 1000, HostIP: "192.0.2.8"}
		report(celldb.Reporter{Host: "h2", Auth: cellwire.HostAuthCertificate, Nodes: []string{sid(91)}}, &other)
		is("as the other host describes it", other)
	})
}

// TestDetailsAreBounded: what no node is like is refused.
func TestDetailsAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	check := func(d cellwire.NodeDetails) error {
		return celldb.CheckReport(
			cellwire.HostReport{Nodes: []cellwire.ReportedNode{{UUID: sid(1), Name: "n", Details: &d}}})
	}
	for what, d := range map[string]cellwire.NodeDetails{
		"too long":            {HypervisorType: strings.Repeat("x", cellwire.MaxHypervisorType+1)},
		"a null":              {HypervisorType: "a\x00"},
		"no UTF-8":            {HypervisorType: "a\xff"},
		"a negative version":  {HypervisorVersion: -1},
		"more than 31 bits":   {HypervisorVersion: math.MaxInt32 + 1},
		"less than no guest":  {UnknownGuests: -1},
		"no address":          {HostIP: "cn1"},
		"an address and port": {HostIP: "192.0.2.7:80"},
		"a zone":              {HostIP: "fe80::7%eth0"},
		"another form":        {HostIP: "2001:DB8::7"},
	} {
		var refused *cellwire.Error
		if err := check(d); !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("%s: %v", what, err)
		}
	}
	testproc.NoError(t, check(cellwire.NodeDetails{HypervisorType: strings.Repeat("x", cellwire.MaxHypervisorType),
		HypervisorVersion: math.MaxInt32, HostIP: "192.0.2.7"}))
}
