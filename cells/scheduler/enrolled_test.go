// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// anyToken takes each client for the compute API and the agent of the host in its request.
type anyToken struct{}

func (anyToken) Authenticate(r *http.Request) (osapi.Principal, error) {
	return osapi.Principal{User: r.PathValue("host"), Roles: []string{cell.RoleAPI, cell.RoleAgent}}, nil
}

// withTokens is a world of cells without hosts that ask for tokens.
func withTokens(t *testing.T, cells int, options ...func(*scheduler.Options, *quota.Options)) *world {
	t.Helper()
	w := begin(t, make([]int, cells), options...)
	for _, s := range w.sites[1:] {
		var err error
		s.server, err = cell.New(cell.Config{Store: s.store, Auth: cell.Tokens(anyToken{}),
			Now: w.clock, Logger: zerolog.Nop()})
		w.must(err)
		s.link.to = s.server
	}
	return w
}

// add adds a host to a cell.
func (w *world) add(site int, host string) *agent {
	w.t.Helper()
	a := newAgent(w, w.sites[site], host)
	w.sites[site].agents = append(w.sites[site].agents, a)
	return a
}

// discoverWith has all hosts show life, and discovers them.
func (w *world) discoverWith(o cellmappings.DiscoverOptions) cellmappings.DiscoverReport {
	w.t.Helper()
	w.beat()
	cells := testproc.Try(w.store.Cells(ctx)).Or(w.t)
	return testproc.Try(cellmappings.Discover(ctx, w.store, w.gatherer, cells, o)).Or(w.t)
}

// problems are what a host is answered about its nodes.
func (a *agent) problems() []cellwire.NodeProblem {
	a.w.t.Helper()
	state, err := a.cell.Report(ctx, a.host,
		cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: a.node, Name: a.host}}})
	a.w.must(err)
	return state.Problems
}

func (w *world) enrolled(site int, host string, state apidb.EnrolmentState, nodes ...string) {
	w.t.Helper()
	testproc.Try(w.store.ChangeEnrolment(ctx, host, func(e *apidb.Enrolment) error {
		e.State, e.CellUUID, e.Nodes = state, w.sites[site].cell.UUID, nil
		for _, n := range nodes {
			e.Nodes = append(e.Nodes, apidb.EnrolledNode{UUID: n})
		}
		return nil
	})).Or(w.t)
}

// TestWhichHostsAreMapped: in cells that ask who a host is, those that are enrolled, or match a
// pattern, or are named by a person; its agent learns why one is not.
func TestWhichHostsAreMapped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		prepare func(w *world, a *agent)
		o       cellmappings.DiscoverOptions
		mapped  bool
		says    string
	}{
		"nothing speaks for it": {says: "not enrolled"},
		"its name matches":      {o: cellmappings.DiscoverOptions{Patterns: []string{"x*", "h?"}}, mapped: true},
		"its name does not match": {o: cellmappings.DiscoverOptions{Patterns: []string{"x*", "h"}},
			says: "discover_hosts_pattern"},
		"a person names it": {o: cellmappings.DiscoverOptions{Hosts: []string{"h1"}}, mapped: true},
		"a person names it, and its name overlaps with that of another host": {
			prepare: func(w *world, _ *agent) { w.enrolled(1, "h1_b", apidb.Enrolled) },
			o:       cellmappings.DiscoverOptions{Hosts: []string{"h1"}},
			says:    "the name h1 overlaps with those of host h1_b",
		},
		"a person names another one": {o: cellmappings.DiscoverOptions{Hosts: []string{"h2"}}, says: "not enrolled"},
		"enrolled": {prepare: func(w *world, _ *agent) { w.enrolled(1, "h1", apidb.Enrolled) },
			mapped: true},
		"enrolled with its node": {prepare: func(w *world, a *agent) { w.enrolled(1, "h1", apidb.Enrolled, a.node) },
			mapped: true},
		"enrolled for another node": {prepare: func(w *world, _ *agent) {
			w.enrolled(1, "h1", apidb.Enrolled,
				"5e000000-0000-4000-8000-000000000001")
		},
			o: cellmappings.DiscoverOptions{Patterns: []string{"*"}}, says: "other nodes"},
		"enrolled in another cell": {prepare: func(w *world, _ *agent) { w.enrolled(2, "h1", apidb.Enrolled) },
			says: "cell2"},
		"invited": {prepare: func(w *world, _ *agent) { w.enrolled(1, "h1", apidb.Invited) }, says: "not enrolled"},
		"evicted": {prepare: func(w *world, a *agent) { w.enrolled(1, "h1", apidb.Evicted, a.node) },
			o: cellmappings.DiscoverOptions{Patterns: []string{"*"}, Hosts: []string{"h1"}}, says: "evicted"},
		"the node is enrolled for another host": {prepare: func(w *world, a *agent) {
			w.enrolled(1,
				"h2", apidb.Enrolled, a.node)
		},
			o:    cellmappings.DiscoverOptions{Patterns: []string{"*"}, Hosts: []string{"h1"}},
			says: "enrolled for host h2"},
		"the host is mapped": {prepare: func(w *world, a *agent) {
			w.must(w.store.MapNodes(ctx,
				[]apidb.Node{{UUID: "5e000000-0000-4000-8000-000000000001", Name: "n", Host: "h1",
					CellUUID: w.sites[1].cell.UUID}}))
		}, mapped: true},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			w := withTokens(t, 2)
			a := w.add(1, "h1")
			if c.prepare != nil {
				c.prepare(w, a)
			}
			report := w.discoverWith(c.o)
			if mapped := len(report.Mapped) == 1; mapped != c.mapped || len(report.Conflicts)+
				len(report.NotEnrolled) == 0 != c.mapped {
				t.Errorf("discovery: got %+v, want the host mapped: %v", report, c.mapped)
			}
			got := a.problems()
			if c.mapped != (len(got) == 0) || !c.mapped &&
				(got[0].Code != cellwire.NodeNotMapped || !strings.Contains(got[0].Message, c.says)) {
				t.Errorf("its agent is answered %+v", got)
			}
			if missing := len(c.o.Hosts) > 0 && !c.mapped; missing != (len(report.Missing) == 1) {
				t.Errorf("missing: %v", report.Missing)
			}
		})
	}
}

// TestANodeOfTwoCells: a node that hosts of two cells report gets no new servers, until one stops,
// or it is enrolled for one of them.
func TestANodeOfTwoCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withTokens(t, 2)
	all := cellmappings.DiscoverOptions{Patterns: []string{"*"}}
	owner, thief := w.add(1, "h1"), w.add(2, "h2")
	own := thief.node
	w.discoverWith(all)
	thief.node = owner.node
	boot := func() cellwire.Server {
		w.pass(time.Minute)
		w.beat()
		uuid := w.created(func(r *scheduler.CreateRequest) { r.ForcedHost = "h1" })
		w.schedule()
		return w.row(uuid)
	}
	if report := w.discoverWith(all); len(report.Conflicts) != 2 ||
		!errors.Is(report.Conflicts[0].Err, apidb.ErrExists) {
		t.Errorf("discovery of a node of two cells: got %+v, want two conflicts", report)
	}
	for _, a := range []*agent{owner, thief} {
		if got := a.problems(); len(got) != 1 || !strings.Contains(got[0].Message, "reports node") {
			t.Errorf("host %s is answered %+v", a.host, got)
		}
	}
	if row := boot(); row.Host != "" || row.Fault == nil ||
		!strings.Contains(row.Fault.Details, "1 reported by several hosts") {
		t.Errorf("contested: %+v", row)
	}
	w.enrolled(1, "h1", apidb.Enrolled, owner.node)
	if report := w.discoverWith(all); len(report.Conflicts) != 1 || report.Conflicts[0].Node.Host != "h2" {
		t.Errorf("enrolled: %+v", report)
	}
	if row := boot(); row.Host != "h1" {
		t.Errorf("enrolled for its host: %+v", row)
	}
	w.enrolled(1, "h1", apidb.Enrolled)
	w.discoverWith(all)
	if row := boot(); row.Host != "" {
		t.Errorf("contested again: %+v", row)
	}
	thief.node = own
	if report := w.discoverWith(all); len(report.Conflicts) != 0 || len(owner.problems())+len(thief.problems()) != 0 {
		t.Errorf("one has stopped: %+v", report)
	}
	if row := boot(); row.Host != "h1" {
		t.Errorf("one has stopped: %+v", row)
	}
}

// TestAMappedNodeGoesToItsHost: a host that reports the node of another one first, and has it
// mapped, does not keep it. Where the mapped host's certificate names the node too, or its cell is
// down, the mapping stays.
func TestAMappedNodeGoesToItsHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const own = "5e000000-0000-4000-8000-000000000001"
	for name, c := range map[string]struct {
		site               int // of the host that reports the node first
		named, firstNamed  bool
		enrolled, cellDown bool
		goes               bool
	}{
		"the certificate names it":              {site: 1, named: true, goes: true},
		"in another cell":                       {site: 2, named: true, goes: true},
		"it is enrolled":                        {site: 2, enrolled: true, goes: true},
		"nothing names it":                      {site: 2},
		"both certificates name it":             {site: 2, named: true, firstNamed: true},
		"both do, and one is enrolled":          {site: 2, enrolled: true, firstNamed: true},
		"the cell of the mapped host is down":   {site: 2, named: true, cellDown: true},
		"one cell, and both certificates do so": {site: 1, named: true, firstNamed: true},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			w := withTokens(t, 2)
			all := cellmappings.DiscoverOptions{Patterns: []string{"*"}}
			node := w.add(c.site, "first").node
			report := func(site int, host, reported string, named bool) {
				t.Helper()
				s, who := w.sites[site], serverstate.Reporter{Host: host, Auth: cellwire.HostAuthCertificate}
				if named {
					who.Nodes = []string{node, own}
				}
				_, _, err := s.store.Report(ctx, who,
					cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: reported, Name: host}}},
					s.server.Moment())
				w.must(err)
			}
			discover := func() cellmappings.DiscoverReport {
				t.Helper()
				cells := testproc.Try(w.store.Cells(ctx)).Or(w.t)
				return testproc.Try(cellmappings.Discover(ctx, w.store, w.gatherer, cells, all)).Or(w.t)
			}
			report(c.site, "first", node, c.firstNamed)
			if c.enrolled { // while a discovery was under way
				w.enrolled(1, "own", apidb.Enrolled, node)
				w.must(w.store.MapNodes(ctx,
					[]apidb.Node{{UUID: node, Name: "first", Host: "first", CellUUID: w.sites[c.site].cell.UUID}}))
			}
			discover()
			if !c.firstNamed {
				report(c.site, "first", own, false)
			}
			report(1, "own", node, c.named)
			if c.cellDown {
				w.sites[c.site].link.set(refused)
			}
			found := discover()
			owner := ""
			nodes := testproc.Try(w.store.Nodes(ctx)).Or(w.t)
			for _, n := range nodes {
				if n.UUID == node {
					owner = n.Host
				}
			}
			if !c.goes {
				if owner != "first" || len(found.Remapped) != 0 {
					t.Errorf("the node is mapped to %q: %+v", owner, found)
				}
				return
			}
			want := cellmappings.RemappedNode{Node: apidb.Node{UUID: node, Name: "own", Host: "own",
				CellUUID: w.sites[1].cell.UUID}, From: "first"}
			if owner != "own" || len(found.Remapped) != 1 || found.Remapped[0] != want || len(found.Conflicts) != 0 ||
				!slices.Contains(found.Mapped, want.Node) {
				t.Errorf("the node is mapped to %q: %+v", owner, found)
			}
			if found := discover(); len(found.Mapped)+len(found.Remapped)+len(found.Conflicts) != 0 {
				t.Errorf("again: %+v", found)
			}
		})
	}
}

// TestUserDataNeedsAPerson: a server with user data is not put on a host that a pattern found, and
// its fault says so; one without is.
func TestUserDataNeedsAPerson(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withTokens(t, 1, func(o *scheduler.Options, _ *quota.Options) { o.DiscoverPatterns = []string{"h*"} })
	w.add(1, "h1")
	w.discoverWith(cellmappings.DiscoverOptions{Patterns: []string{"h*"}})
	boot := func(userData string) cellwire.Server {
		w.pass(time.Minute)
		w.beat()
		uuid := w.created(func(r *scheduler.CreateRequest) { r.UserData = userData })
		w.schedule()
		return w.row(uuid)
	}
	if row := boot(""); row.Host != "h1" {
		t.Errorf("without user data: %+v", row)
	}
	const why = "1 on hosts that are not enrolled by a person, and the server has user data"
	if row := boot("c2VjcmV0"); row.Host != "" || row.Fault == nil || !strings.Contains(row.Fault.Details, why) {
		t.Errorf("with user data: %+v", row)
	}
	w.discoverWith(cellmappings.DiscoverOptions{Patterns: []string{"h*"}, Hosts: []string{"h1"}, By: "operator"})
	if row := boot("c2VjcmV0"); row.Host != "h1" {
		t.Errorf("a person has named the host: %+v", row)
	}
	all := testproc.Try(w.store.Enrolments(ctx)).Or(w.t)
	if len(all) != 1 || all[0].State != apidb.Enrolled || all[0].CreatedBy != "operator" || len(all[0].Nodes) != 1 {
		t.Errorf("the enrolments: got %+v, want one, of an operator, with one node", all)
	}
}

// TestForgottenNodesAreUnmapped: a node that its host does not report for a day is unmapped, and
// the cell forgets it then; its host stays mapped.
func TestForgottenNodesAreUnmapped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withTokens(t, 1)
	a := w.add(1, "h1")
	all := cellmappings.DiscoverOptions{Patterns: []string{"*"}}
	w.discoverWith(all)
	former := a.node
	a.node = "5e000000-0000-4000-8000-000000000001"
	w.beat()
	w.pass(25 * time.Hour)
	s := w.sites[1]
	testproc.Try(s.store.ForgetNodes(ctx, s.server.Moment())).Or(w.t)
	if report := w.discoverWith(all); len(report.Forgotten) != 1 ||
		report.Forgotten[0] != former || len(report.Mapped) != 1 {
		t.Errorf("discovery: got %+v, want the former node forgotten and one host mapped", report)
	}
	nodes := testproc.Try(w.store.Nodes(ctx)).Or(w.t)
	if len(nodes) != 1 || nodes[0].UUID != a.node {
		t.Errorf("the mapped nodes: got %+v, want the new one", nodes)
	}
	if report := w.discoverWith(all); len(report.Forgotten)+len(report.Mapped) != 0 {
		t.Errorf("again: %+v", report)
	}
}
