// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"fmt"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRoundTrips: how often a cell waits for its database servers. Over a network that is what
// calls cost; docs/scaling.md has what it means for a cell of 1,000 hosts.
func TestRoundTrips(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onServers(t, roundTrips)
}

func roundTrips(t *testing.T, address string) {
	t.Helper()
	proxy := dbservers.NewProxy(t, address)
	s := opened(t, proxy.DSN)
	report := cellwire.HostReport{Version: "1",
		Nodes: []cellwire.ReportedNode{{UUID: "90de0000-0000-4000-8000-000000000001", Name: "n1"}}}
	boots := cellwire.WithTerm(ctx, 7)
	n := 0
	spawned := func(servers int) error {
		var reports []cellwire.Report
		for i := range servers {
			reports = append(reports,
				cellwire.Report{UUID: sid(n - i), Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
		}
		applied, err := s.Apply(ctx, "h1", reports, moment)
		for _, why := range applied.Refused {
			if why != "" {
				err = fmt.Errorf("a report was refused: %s", why)
			}
		}
		return err
	}
	inserted := func() error {
		n++
		_, err := s.Insert(boots, building(n), moment)
		return err
	}
	released := func() error {
		_, err := s.Release(boots, sid(n), moment)
		return err
	}
	calls := []struct {
		name   string
		before func() // not counted
		do     func() error
	}{
		{"check", nil, func() error { return s.Check(ctx) }},
		{"heartbeat", nil,
			func() error { _, _, err := s.Report(ctx, serverstate.Reporter{Host: "h1"}, report, moment); return err }},
		{"first report", func() { n++ }, func() error {
			node := cellwire.ReportedNode{UUID: fmt.Sprintf("90de0000-0000-4000-8000-%012x", n), Name: "n"}
			_, _, err := s.Report(ctx, serverstate.Reporter{Host: fmt.Sprint("new", n)},
				cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{node}}, moment)
			return err
		}},
		{"work, nothing new", nil,
			func() error { _, _, err := s.Work(ctx, fmt.Sprint("new", n), 1<<40, "", moment); return err }},
		{"changes, none", nil, func() error {
			info := testproc.Try(s.Info(ctx)).Or(t)
			_, _, err := s.Changes(ctx, info.Revision)
			return err
		}},
		{"insert", nil, inserted},
		{"release", nil, released},
		{"report of one server", nil, func() error { return spawned(1) }},
		{"report of 20 servers", func() {
			for range 20 {
				testproc.Check(t, inserted())
				testproc.Check(t, released())
			}
		}, func() error { return spawned(20) }},
		{"report of 20 servers, again", nil, func() error { return spawned(20) }},
		{"delete", nil, func() error { _, err := s.Delete(ctx, sid(n), cellwire.DeleteNormal, moment); return err }},
	}
	// The first times connect, register the host, and prepare statements on each connection that a
	// call happens to get: the least counts.
	got := map[string]int64{}
	for range 5 {
		for _, c := range calls {
			if c.before != nil {
				c.before()
			}
			before := proxy.Asked()
			testproc.Check(t, c.do())
			n := proxy.Asked() - before
			if least, is := got[c.name]; !is || n < least {
				got[c.name] = n
			}
		}
	}
	want := map[string]int64{
		"check": 1, "first report": 12, "heartbeat": 3, "work, nothing new": 6, "changes, none": 2, "insert": 8,
		"release": 8, "delete": 10, "report of one server": 8,
		"report of 20 servers": 27, "report of 20 servers, again": 4,
	}
	if strings.HasPrefix(address, "mysql://") {
		want["work, nothing new"] += 2 // the kind of snapshot, and whether the server takes writes
	}
	testproc.Samef(t, gocmp.Diff(want, got), "round trips, wanted and counted")
}
