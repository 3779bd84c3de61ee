// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// fataler is what testing.TB and rapid.T have in common.
type fataler interface {
	Helper()
	Fatal(args ...any)
	Errorf(format string, args ...any)
}

// reports has hosts report, and returns the problems of the report by node.
func reports(
	t fataler, s *celldb.DB, who serverstate.Reporter, m celldb.Moment, nodes ...int,
) map[string]cellwire.NodeProblemCode {
	t.Helper()
	report := cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{}}
	for _, n := range nodes {
		report.Nodes = append(report.Nodes, cellwire.ReportedNode{UUID: sid(n), Name: fmt.Sprint("n", n)})
	}
	_, problems, err := s.Report(ctx, who, report, m)
	testproc.Check(t, err)
	codes := map[string]cellwire.NodeProblemCode{}
	for _, p := range problems {
		codes[p.UUID] = p.Code
		if p.Message == "" {
			t.Errorf("%+v says nothing", p)
		}
	}
	return codes
}

// owners are the hosts of nodes that are reported, and the claims on them.
func owners(t fataler, s *celldb.DB, m celldb.Moment) map[string]string {
	t.Helper()
	list := testproc.Try(s.ComputeNodes(ctx, false, m)).Or(t)
	out := map[string]string{}
	for _, n := range list {
		out[n.UUID] = n.Host
		for _, c := range n.Claims {
			out[n.UUID] += " not " + c.Host
		}
	}
	return out
}

// TestNodesOfSeveralHosts: whose a node is when two hosts report it, by what they have to show.
func TestNodesOfSeveralHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	certified := func(host string, nodes ...int) serverstate.Reporter {
		who := serverstate.Reporter{Host: host, Auth: cellwire.HostAuthCertificate}
		for _, n := range nodes {
			who.Nodes = append(who.Nodes, sid(n))
		}
		return who
	}
	plain := func(host string) serverstate.Reporter {
		return serverstate.Reporter{Host: host, Auth: cellwire.HostAuthToken}
	}
	for name, c := range map[string]struct {
		first, second serverstate.Reporter
		owner         string
		problems      [2]cellwire.NodeProblemCode // of their next reports
		refused       bool                        // servers on the node
	}{
		"neither has proof": {plain("h1"), plain("h2"),
			"h1 not h2", [2]cellwire.NodeProblemCode{cellwire.NodeContested, cellwire.NodeElsewhere}, true},
		"a certificate without nodes": {certified("h1"),
			certified("h2"), "h1 not h2", [2]cellwire.NodeProblemCode{cellwire.NodeContested, cellwire.NodeElsewhere},
			true},
		"the first has proof": {certified("h1", 1), plain("h2"),
			"h1 not h2", [2]cellwire.NodeProblemCode{"", cellwire.NodeElsewhere}, false},
		"the second has proof": {plain("h1"),
			certified("h2", 1), "h2 not h1", [2]cellwire.NodeProblemCode{cellwire.NodeElsewhere, ""}, false},
		"both have proof": {certified("h1", 1), certified("h2", 1),
			"h1 not h2", [2]cellwire.NodeProblemCode{cellwire.NodeContested, cellwire.NodeElsewhere}, true},
		"the second is for other nodes": {plain("h1"),
			certified("h2", 2), "h1", [2]cellwire.NodeProblemCode{"", cellwire.NodeNotInCertificate}, false},
		"the certificate is for no node": {certified("h1", 2), plain("h2"),
			"h2", [2]cellwire.NodeProblemCode{cellwire.NodeNotInCertificate, ""}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := fresh(t)
			reports(t, s, c.first, moment, 1)
			reports(t, s, c.second, moment, 1)
			got := [2]cellwire.NodeProblemCode{reports(t, s, c.first, moment, 1)[sid(1)],
				reports(t, s, c.second, moment, 1)[sid(1)]}
			testproc.Samef(t, gocmp.Diff(c.problems, got), "problems")
			testproc.Equal(t, owners(t, s, moment)[sid(1)], c.owner, "the node is that of %s")
			owner, _, _ := strings.Cut(c.owner, " ")
			for i, host := range []string{"h1", "h2"} {
				server := building(i + 1)
				server.Host, server.Node, server.NodeUUID = host, "n1", sid(1)
				var e *cellwire.Error
				_, err := s.Insert(ctx, server, moment)
				if refused := errors.As(err, &e) &&
					e.Code == cellwire.CodeContested; refused != (c.refused || host != owner) {
					t.Errorf("a server on the node of host %s: %v", host, err)
				}
			}
			services := testproc.Try(s.Services(ctx, moment)).Or(t)
			for _, one := range services {
				if is := len(one.Contested) > 0; is != (c.refused && one.Host == owner) {
					t.Errorf("service %s: %v", one.Host, one.Contested)
				}
			}
		})
	}
}

// TestWhoElseReportsANode: a host learns which other one reports a node that it reported before, be
// that one's agent up or down, and nothing of nodes that its certificate rules out.
func TestWhoElseReportsANode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		h1, h2, h3 := serverstate.Reporter{Host: "h1"},
			serverstate.Reporter{Host: "h2"}, serverstate.Reporter{Host: "h3", Nodes: []string{sid(1)}}
		expect := func(what string, who serverstate.Reporter, want string) {
			t.Helper()
			host := testproc.Try(s.NodeReporter(ctx, who, sid(1))).Or(t)
			testproc.Equal(t, host, want, "%s, for %s: %q", what, who.Host)
		}
		expect("no host", h1, "")
		reports(t, s, h1, moment, 1)
		expect("h1", h1, "")
		expect("h1", h2, "h1")
		reports(t, s, h2, moment, 1)
		expect("both", h1, "h2")
		expect("both", h2, "h1")
		reports(t, s, h1, moment)
		expect("h2 alone", h1, "h2")
		expect("h2 alone", h2, "")
		reports(t, s, h3, moment, 1)
		expect("h3 has taken it", h1, "h2") // and h3: one of them is enough
		reports(t, s, h2, moment)
		expect("h3 alone", h1, "h3")
		expect("h3 alone", h3, "")
		reports(t, s, h3, moment)
		expect("no host any more", h1, "")
		var e *cellwire.Error
		_, err := s.NodeReporter(ctx, serverstate.Reporter{Host: "h4", Nodes: []string{sid(2)}}, sid(1))
		if !errors.As(err, &e) || e.Code != cellwire.CodeNotFound {
			t.Errorf("a certificate for other nodes: %v", err)
		}
	})
}

// TestAConflictEnds: by a report without the node, when the agent of the other host is down, and by
// an operator; until then a node stays with a host that does not report it.
func TestAConflictEnds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		h1, h2 := serverstate.Reporter{Host: "h1"}, serverstate.Reporter{Host: "h2"}
		expect := func(what string, m celldb.Moment, want cellwire.NodeProblemCode) {
			t.Helper()
			testproc.Equal(t, reports(t, s, h1, m, 1)[sid(1)], want, "%s: %q", what)
		}
		reports(t, s, h1, moment, 1)
		reports(t, s, h2, moment, 1, 2)
		expect("two report it", moment, cellwire.NodeContested)
		reports(t, s, h2, moment, 2)
		expect("one stops", moment, "")
		reports(t, s, h2, moment, 1, 2)
		expect("again", moment, cellwire.NodeContested)
		later := celldb.Moment{Now: moment.Now.Add(time.Hour), DownTime: time.Minute}
		expect("the other one is down", later, "")
		reports(t, s, h1, later)
		if got := reports(t, s, h2, later, 1, 2)[sid(1)]; got != cellwire.NodeElsewhere {
			t.Errorf("its host does not report it: %q", got)
		}
		testproc.Check(t, s.NodesState(ctx, cellwire.NodesRequest{Host: "h1"}, later))
		if got := reports(t, s, h2, later, 1, 2); len(got) != 0 {
			t.Errorf("an operator freed it: %v", got)
		}
		testproc.Same(t, gocmp.Diff(map[string]string{sid(1): "h2", sid(2): "h2"}, owners(t, s, later)))
		testproc.Check(t, s.NodesState(ctx, cellwire.NodesRequest{Host: "h2"}, later))
		if got := owners(t, s, later); len(got) != 2 {
			t.Errorf("what a host reports is not freed: %v", got)
		}
	})
}

// TestProblemsOfTheComputeAPI: its host learns why a node is not used, until it is.
func TestProblemsOfTheComputeAPI(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		h1 := serverstate.Reporter{Host: "h1"}
		reports(t, s, h1, moment, 1, 2)
		say := func(problems map[string]string) {
			t.Helper()
			testproc.Check(t, s.NodesState(ctx, cellwire.NodesRequest{Problems: problems}, moment))
		}
		say(map[string]string{sid(1): "it is enrolled for h9", sid(7): "of no host here"})
		testproc.Same(t, gocmp.Diff(map[string]cellwire.NodeProblemCode{sid(1): cellwire.NodeNotMapped},
			reports(t, s, h1, moment, 1, 2)))
		say(map[string]string{sid(2): "another"})
		list, err := s.ComputeNodes(ctx, false, moment)
		if err != nil || list[0].Problem != "" || list[1].Problem != "another" {
			t.Errorf("the nodes: got %+v, %v, want a problem of the second one alone", list, err)
		}
		say(map[string]string{})
		if got := reports(t, s, h1, moment, 1, 2); len(got) != 0 {
			t.Errorf("the problems of the report: got %v, want no problem", got)
		}
		var refused *cellwire.Error
		for _, bad := range []map[string]string{{"x": "y"},
			{sid(1): ""}, {sid(1): strings.Repeat("x", cellwire.MaxProblem+1)}} {
			if err := s.NodesState(ctx, cellwire.NodesRequest{Problems: bad}, moment); !errors.As(err, &refused) ||
				refused.Status != 400 {
				t.Errorf("%.40v: %v", bad, err)
			}
		}
	})
}

// TestInventedNodes: a host that reports 12,000 nodes has as many as it may have, whatever it
// reports when; those that its certificate names do not count.
func TestInventedNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	who := serverstate.Reporter{Host: "h1", Auth: cellwire.HostAuthCertificate}
	reports(t, s, serverstate.Reporter{Host: "h2"}, moment, 1, 2, 3)
	before := testproc.Try(s.Info(ctx)).Or(t)
	for n := 0; n < 12_000; n += 1000 {
		var many []int
		for i := range 1000 {
			many = append(many, n+i+1)
		}
		if got := reports(t, s, who, moment, many...); len(got) < 1000-celldb.DefaultMaxNodes {
			t.Errorf("of 1000 nodes %d were refused", len(got))
		}
	}
	counts, err := s.CountNodes(ctx)
	if err != nil || counts.Present+counts.Absent+counts.Claimed > 3+celldb.DefaultMaxNodes+3 {
		t.Errorf("the nodes of a host that invents some: got %+v, %v, want a bounded number", counts, err)
	}
	after, err := s.Info(ctx)
	if err != nil || after.Revision-before.Revision > 24 {
		t.Errorf("12 reports made %d changes, %v", after.Revision-before.Revision, err)
	}
	for n := range 40 {
		who.Nodes = append(who.Nodes, sid(20_000+n))
	}
	named := []int{}
	for n := range 40 {
		named = append(named, 20_000+n)
	}
	if got := reports(t, s, who, moment, named...); len(got) != 0 {
		t.Errorf("nodes of the certificate were refused: %v", got)
	}
}

// TestForgottenNodes: a node that its host does not report for a day is forgotten, unless it has
// servers; one that is mapped, when the compute API has forgotten it.
func TestForgottenNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		h1 := serverstate.Reporter{Host: "h1"}
		reports(t, s, h1, moment, 1, 2, 3, 4)
		server := building(9)
		server.Node, server.NodeUUID = "n3", sid(3)
		release(t, s, server)
		testproc.Check(t, s.MarkMapped(ctx, []string{sid(2), sid(3)}))
		m := moment
		pass := func(d time.Duration) {
			t.Helper()
			m.Now = m.Now.Add(d)
			for range 2 {
				testproc.Try(s.ForgetNodes(ctx, m)).Or(t)
			}
		}
		expect := func(what string, present, absent int64, forgotten ...string) {
			t.Helper()
			counts, err := s.CountNodes(ctx)
			if err != nil || counts.Present != present || counts.Absent != absent {
				t.Errorf("%s: %+v, %v", what, counts, err)
			}
			list, err := s.ForgottenNodes(ctx)
			if diff := gocmp.Diff(forgotten, list); diff != "" || err != nil {
				t.Errorf("%s: forgotten %s, %v", what, diff, err)
			}
		}
		reports(t, s, h1, m, 4)
		pass(time.Hour)
		expect("an hour", 1, 3)
		pass(24 * time.Hour)
		expect("a day", 1, 2, sid(2))
		reports(t, s, h1, m, 2, 4)
		expect("back", 2, 1)
		reports(t, s, h1, m, 4)
		pass(25 * time.Hour)
		expect("again", 1, 2, sid(2))
		testproc.Check(t, s.NodesState(ctx, cellwire.NodesRequest{Forgotten: []string{sid(2), sid(3), sid(4)}}, m))
		expect("forgotten by the compute API", 1, 1)
		testproc.Try(s.Apply(ctx,
			"h1", []cellwire.Report{{UUID: sid(9), Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning}},
			m)).Or(t)
		if n, err := s.ForgetNodes(ctx, m); n != 0 || err != nil {
			t.Errorf("a pass with nothing to do changed %d rows, %v", n, err)
		}
	})
}

// TestNodesKeepTheirHosts: whatever several hosts report in whatever order, with pauses and
// restarts, a node is that of the first one that reported it, or of the first whose certificate
// names it, until an operator frees it.
func TestNodesKeepTheirHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	rapid.Check(t, func(rt *rapid.T) {
		empty(t, s)
		m := moment
		whose := map[int]string{}
		proven := map[int]bool{}
		certificates := map[string][]int{"h1": nil, "h2": nil, "h3": {1, 2}, "h4": {2, 3}}
		reported := map[string]map[int]bool{}
		lastSeen := map[string]time.Time{}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			host := rapid.SampledFrom([]string{"h1", "h2", "h3", "h4"}).Draw(rt, "host")
			switch rapid.SampledFrom([]string{"report", "report", "report", "pause", "stop", "free"}).Draw(rt, "op") {
			case "report":
				nodes := rapid.SliceOfDistinct(rapid.IntRange(1, 4), func(n int) int { return n }).Draw(rt, "nodes")
				who := serverstate.Reporter{Host: host, Auth: cellwire.HostAuthCertificate}
				named := map[int]bool{}
				for _, n := range certificates[host] {
					who.Nodes = append(who.Nodes, sid(n))
					named[n] = true
				}
				got := reports(rt, s, who, m, nodes...)
				reported[host], lastSeen[host] = map[int]bool{}, m.Now
				for _, n := range nodes {
					may := named[n] || len(named) == 0
					if may && (whose[n] == "" || named[n] && !proven[n]) {
						whose[n], proven[n] = host, named[n]
					}
					reported[host][n] = may && whose[n] == host
					if refused := got[sid(n)].Refuses(); refused == reported[host][n] {
						rt.Fatalf("node %d of %s, reported by %s: %v", n, whose[n], host, got[sid(n)])
					}
				}
			case "pause":
				m.Now = m.Now.Add(time.Duration(rapid.IntRange(1, 3600).Draw(rt, "seconds")) * time.Second)
			case "stop":
				if lastSeen[host].IsZero() {
					continue
				}
				if _, _, err := s.Report(ctx, serverstate.Reporter{Host: host},
					cellwire.HostReport{Version: "1", Stopping: true}, m); err != nil {
					rt.Fatal(err)
				}
				lastSeen[host] = time.Time{}.Add(1)
			case "free":
				up := m.Now.Sub(lastSeen[host]) <= m.DownTime
				testproc.Check(rt, s.NodesState(ctx, cellwire.NodesRequest{Host: host}, m))
				for n, owner := range whose {
					if owner == host && (!up || !reported[host][n]) {
						delete(whose, n)
						delete(proven, n)
					}
				}
			}
			for uuid, owner := range owners(rt, s, m) {
				owner, _, _ = strings.Cut(owner, " ")
				for n := range 5 {
					if uuid == sid(n) && owner != whose[n] {
						rt.Fatalf("node %d is that of %s, want %s", n, owner, whose[n])
					}
				}
			}
		}
	})
}
