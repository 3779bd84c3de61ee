// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAuditWithoutACell: what only a cell knows that does not answer, or has another database, is
// not said, and the report names the cell.
func TestAuditWithoutACell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 2, 1)
	server, on := w.placedAt()
	w.give("99999999-0000-4000-8000-000000000009", on)
	w.must(w.client.Release(ctx, server))
	far := w.sites[2]
	expect := func(why string, cells ...string) {
		t.Helper()
		got := w.audit(true)
		var unchecked []string
		for _, c := range got.Unchecked {
			unchecked = append(unchecked, c.Cell)
			testproc.Contains(t, c.Why, why, "why: %s")
			testproc.Contains(t, c.Leaves, "allocations-without-consumer", "what it leaves: %s")
		}
		testproc.EqualList(t, unchecked, cells, "unchecked: %q")
		diff(t, map[cloudaudit.FindingKind]string{cloudaudit.FindingNoAllocations: server}, kinds(got))
		if got.Complete() || got.Cells != len(w.sites)-len(cells) {
			t.Errorf("complete: %t, with %d cells", got.Complete(), got.Cells)
		}
	}
	far.link.set(refused)
	expect("connection refused", "cell2")
	far.link.set(up)
	testproc.Try(w.store.RecordMark(ctx, apidb.CellDatabase{CellUUID: far.cell.UUID},
		apidb.CellMark{Epoch: "another", Revision: 1})).Or(t)
	expect("another database", "cell2")
}

// TestAuditWithoutPlacement: what the cells and the API database say is compared all the same.
func TestAuditWithoutPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 2)
	server, on := w.placedAt()
	reports := []cellwire.Report{{UUID: server, Kind: cellwire.ReportPower, PowerState: plugins.PowerNoState}}
	testproc.Try(on.cell.Reports(ctx, on.host, reports)).Or(t)
	expect := func(when string) {
		t.Helper()
		got := w.audit(true)
		if got.Complete() || len(got.Unchecked) != 1 ||
			got.Unchecked[0].String() != "Placement" || got.Unchecked[0].Why == "" || got.Providers != 0 ||
			!strings.Contains(got.Unchecked[0].Leaves, "provider-without-host") || got.Cells != len(w.sites) {
			t.Errorf("%s: %+v", when, got)
		}
		diff(t, map[cloudaudit.FindingKind]string{cloudaudit.FindingGuestMissing: server}, kinds(got))
	}
	w.plink.set(refused)
	expect("without Placement")
	w.plink.when(func(r *http.Request) fault {
		if strings.HasSuffix(r.URL.Path, "/allocations") { // after the providers
			return refused
		}
		return up
	})
	expect("with a Placement that stops meanwhile")
}

// TestAuditLosesACell: a cell that stops answering meanwhile is named, and the rest is compared.
func TestAuditLosesACell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 2, 1)
	server, on := w.placedAt()
	migration := w.migrated(server)
	w.must(w.client.Release(ctx, server))
	w.give(migration, on)
	w.give("99999999-0000-4000-8000-000000000009", on)
	for step, want := range map[string]map[cloudaudit.FindingKind]string{
		"the servers": {}, "the consumers": {cloudaudit.FindingNoAllocations: server},
	} {
		got := w.auditAt(false, step, func() { w.sites[1].link.set(refused) })
		diff(t, want, kinds(got))
		if len(got.Unchecked) != 1 || got.Unchecked[0].Cell != "cell1" || !got.Unchecked[0].Partly || got.Complete() {
			t.Errorf("%s: %+v", step, got)
		}
		w.sites[1].link.set(up)
	}
}

// auditAt is an audit during which something happens when a step begins.
func (w *world) auditAt(repair bool, step string, do func()) cloudaudit.Report {
	w.t.Helper()
	return testproc.Try(cloudaudit.Run(ctx, cloudaudit.Config{
		Store: w.store, Gatherer: w.gatherer, Placement: w.client, Repair: repair,
		Progress: func(what string) {
			if what == step {
				do()
			}
		},
	})).Or(w.t)
}

// refuse has an end refuse the requests that match.
func (l *link) refuse(matches func(*http.Request) bool) {
	l.when(func(r *http.Request) fault {
		if matches(r) {
			return refused
		}
		return up
	})
}

// TestAuditLosesPlacement: what was found before stays, and can be repaired; nothing is
// found in what was not compared.
func TestAuditLosesPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const unknown = "ffffffff-0000-4000-8000-000000000009" // it sorts after the migration
	w := audited(t, 2)
	server, on := w.placedAt()
	migration := w.migrated(server)
	w.give(migration, on)
	w.give(unknown, on)
	w.provider(unknown, map[string]int{"VCPU": 4})
	at := func(path string) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path == path }
	}
	expect := func(when string, got cloudaudit.Report, want map[cloudaudit.FindingKind]string) {
		t.Helper()
		diff(t, want, kinds(got))
		if len(got.Unchecked) != 1 || got.Unchecked[0].String() != "Placement" ||
			!got.Unchecked[0].Partly || got.Complete() {
			t.Errorf("%s: %+v", when, got)
		}
	}
	w.plink.refuse(at("/allocations/" + server))
	expect("at the server of a migration", w.audit(true), map[cloudaudit.FindingKind]string{})
	w.plink.set(up)
	// The repair of what is found asks for the server's allocations once more.
	got := w.auditAt(true, "the providers without a host", func() { w.plink.refuse(at("/allocations/" + server)) })
	diff(t, map[cloudaudit.FindingKind]string{
		cloudaudit.FindingEndedHolds: migration, cloudaudit.FindingNoConsumer: unknown,
		cloudaudit.FindingNoHost: unknown,
	}, kinds(got))
	if f := got.Findings[0]; f.Repaired != "" || !strings.Contains(f.Problem, "connection refused") || !got.Complete() {
		t.Errorf("during a repair: %+v, unchecked: %+v", f, got.Unchecked)
	}
	w.plink.refuse(at("/resource_providers/" + unknown + "/inventories"))
	got = w.audit(true)
	expect("at the providers", got, map[cloudaudit.FindingKind]string{cloudaudit.FindingEndedHolds: migration,
		cloudaudit.FindingNoConsumer: unknown})
	if f := got.Findings[0]; f.Repaired == "" || f.Problem != "" {
		t.Errorf("found before: %+v", f)
	}
}

// TestAuditOfAServerOnNoKnownNode: what the migration of a server holds stays, if its cell does not
// say on which node the server is, though the server holds something of a new resource provider.
func TestAuditOfAServerOnNoKnownNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const fresh = "ffffffff-0000-4000-8000-000000000009"
	w := audited(t, 2)
	server, on := w.placedAt()
	migration := w.migrated(server)
	w.give(migration, on)
	dbservers.Execute(t, w.sites[1].database, "UPDATE instances SET node_uuid = '' WHERE uuid = '"+server+"'")
	got := w.auditAt(true, "the servers", func() {
		w.provider(fresh, map[string]int{"VCPU": 4})
		w.give(server, &agent{node: fresh})
	})
	diff(t, map[cloudaudit.FindingKind]string{cloudaudit.FindingEndedHolds: migration}, kinds(got))
	if f := got.Findings[0]; f.Repaired != "" ||
		f.Problem != "" || !strings.Contains(f.Manual, "does not say on which node") {
		t.Errorf("found is %+v", f)
	}
}

// TestAuditOfANodeThatShares: a server on a compute node that shares what it has is on that node.
func TestAuditOfANodeThatShares(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 2)
	server, on := w.placedAt()
	var p struct {
		Generation int64 `json:"generation"`
	}
	w.ask("GET", "/resource_providers/"+on.node, nil, &p)
	w.ask("PUT", "/resource_providers/"+on.node+"/traits", map[string]any{
		"resource_provider_generation": p.Generation, "traits": []string{"COMPUTE_NODE", "MISC_SHARES_VIA_AGGREGATE"},
	}, nil)
	w.sound("on a node that shares")
	w.ask("PUT", "/allocations/"+server, map[string]any{
		"allocations": map[string]any{
			on.node:                   map[string]any{"resources": map[string]int{"VCPU": 1}},
			w.sites[1].agents[1].node: map[string]any{"resources": map[string]int{"VCPU": 1}},
		},
		"consumer_generation": testproc.Try(w.client.Allocations(ctx, server)).Or(t).ConsumerGeneration,
		"project_id":          "p", "user_id": "u", "consumer_type": "INSTANCE",
	}, nil)
	got := w.audit(false)
	diff(t, map[cloudaudit.FindingKind]string{cloudaudit.FindingElsewhere: server}, kinds(got))
	if text := got.Findings[0].Text; strings.Contains(text, "alone") {
		t.Errorf("it holds something where it is as well: %s", text)
	}
}

// TestAuditLooksForNodesOnceMore: a node that is mapped or gets its resource provider meanwhile,
// and one that a host reports since, are no findings.
func TestAuditLooksForNodesOnceMore(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const external = "99999999-0000-4000-8000-000000000009"
	w := audited(t, 2)
	first, second := w.sites[1].agents[0], w.sites[1].agents[1]
	w.must(w.store.DeleteHost(ctx, first.host))
	w.ask("DELETE", "/resource_providers/"+second.node, nil, nil)
	w.provider(external, map[string]int{"VCPU": 4}, "COMPUTE_NODE")
	w.beat()
	got := w.auditAt(false, "the servers", func() {
		w.ask("POST", "/resource_providers", map[string]any{"uuid": second.node, "name": second.host}, nil)
		nodes := []cellwire.ReportedNode{{UUID: first.node, Name: first.host}, {UUID: external, Name: "external"}}
		testproc.Try(first.cell.Report(ctx, first.host, cellwire.HostReport{Version: "1", Nodes: nodes})).Or(t)
		cells := testproc.Try(w.store.Cells(ctx)).Or(t)
		testproc.Try(cellmappings.Discover(ctx, w.store, w.gatherer, cells, cellmappings.DiscoverOptions{})).Or(t)
	})
	if len(got.Findings)+len(got.Unchecked) > 0 {
		t.Errorf("found: %+v, unchecked: %+v", got.Findings, got.Unchecked)
	}
}

// TestAuditMapsNodes: the nodes of a cell are mapped at once; each finding says what became of
// its node.
func TestAuditMapsNodes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const last = "the providers without a host"
	isNodes := func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Path == "/v1/compute-nodes" }
	for name, c := range map[string]struct {
		before, meanwhile func(w *world, s *site)
		done, problem     string
	}{
		"all at once": {done: "mapped it to its host"},
		"from another host": {
			before: func(w *world, s *site) {
				for i, a := range s.agents {
					other := "other" + strconv.Itoa(i)
					w.enrolled(1, a.host, apidb.Enrolled, a.node)
					w.must(w.store.MapNodes(ctx,
						[]apidb.Node{{UUID: a.node, Name: other, Host: other, CellUUID: s.cell.UUID}}))
				}
			},
			done: "it was mapped to host other",
		},
		"with a cell that does not take what became of it": {
			meanwhile: func(_ *world, s *site) {
				to := s.link.to
				s.link.to = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						to.ServeHTTP(w, r)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusConflict)
					_, _ = w.Write([]byte(`{"code": "conflict", "message": "The cell does not take it."}`))
				})
			},
			done: "mapped it to its host",
		},
		"with a cell that stops": {
			meanwhile: func(_ *world, s *site) { s.link.refuse(isNodes) },
			problem:   "cell cell1 does not answer",
		},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			w := audited(t, 2)
			s := w.sites[1]
			for _, a := range s.agents {
				w.must(w.store.DeleteHost(ctx, a.host))
			}
			if c.before != nil {
				c.before(w, s)
			}
			w.beat()
			got := w.auditAt(true, last, func() {
				if c.meanwhile != nil {
					c.meanwhile(w, s)
				}
				s.link.counted()
			})
			if len(got.Findings) != 2 {
				t.Fatalf("found: %+v", got.Findings)
			}
			for i := range got.Findings {
				f := &got.Findings[i]
				if f.Kind != cloudaudit.FindingNodeUnmapped || (f.Repaired == "") != (c.done == "") ||
					(f.Problem == "") != (c.problem == "") {
					t.Errorf("found is %+v", f)
				}
				testproc.Contains(t, f.Repaired, c.done, "what was done: %s")
				testproc.Contains(t, f.Problem, c.problem, "why it failed: %s")
			}
			if n := s.link.counted()["GET /v1/compute-nodes"]; n != 1 {
				t.Errorf("the nodes were read %d times", n)
			}
		})
	}
}

// TestAuditOfHostsThatAreDown: they are named, and the audit is not complete.
func TestAuditOfHostsThatAreDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 2)
	w.dies(w.sites[1].agents[1])
	got := w.audit(false)
	testproc.EqualList(t, got.HostsDown, []string{w.sites[1].agents[1].host}, "down: %q")
	if got.Complete() || len(got.Findings)+len(got.Unchecked) > 0 {
		t.Errorf("with a host that is down: %+v", got)
	}
}

// TestAuditOfASharedProvider: one in an aggregate with a node has hosts, though none has its uuid.
// So has a provider of another service that is in an aggregate with a node.
func TestAuditOfASharedProvider(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const aggregate = "99999999-0000-4000-8000-00000000000a"
	w := audited(t, 2)
	server, on := w.placedAt()
	for uuid, traits := range map[string][]string{
		"99999999-0000-4000-8000-000000000009": {"MISC_SHARES_VIA_AGGREGATE"},
		"99999999-0000-4000-8000-000000000008": nil,
	} {
		w.ask("POST", "/resource_providers", map[string]any{"uuid": uuid, "name": "shared " + uuid}, nil)
		w.ask("PUT", "/resource_providers/"+uuid+"/inventories",
			map[string]any{"resource_provider_generation": 0,
				"inventories": map[string]any{"DISK_GB": map[string]any{"total": 100}}}, nil)
		w.ask("PUT", "/resource_providers/"+uuid+"/traits",
			map[string]any{"resource_provider_generation": 1, "traits": append([]string{}, traits...)}, nil)
		w.aggregated(uuid, aggregate)
	}
	w.ask("POST", "/resource_providers", map[string]any{"uuid": "99999999-0000-4000-8000-000000000007",
		"name": "empty"}, nil)
	w.aggregated(on.node, aggregate)
	w.ask("PUT", "/allocations/"+server, map[string]any{
		"allocations": map[string]any{
			on.node:                                map[string]any{"resources": map[string]int{"VCPU": 1}},
			"99999999-0000-4000-8000-000000000009": map[string]any{"resources": map[string]int{"DISK_GB": 1}},
		},
		"consumer_generation": testproc.Try(w.client.Allocations(ctx, server)).Or(t).ConsumerGeneration,
		"project_id":          "p", "user_id": "u", "consumer_type": "INSTANCE",
	}, nil)
	w.sound("with shared resource providers")
}

// TestAuditKeepsWhatAServerMayNeed: a migration that is over, and holds all that there is of its
// server, is found and left alone.
func TestAuditKeepsWhatAServerMayNeed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 2)
	server, on := w.placedAt()
	migration := w.migrated(server)
	w.must(w.client.Release(ctx, server))
	w.give(migration, on)
	got := w.audit(true)
	diff(t, map[cloudaudit.FindingKind]string{cloudaudit.FindingEndedHolds: migration,
		cloudaudit.FindingNoAllocations: server}, kinds(got))
	for i := range got.Findings {
		if f := &got.Findings[i]; f.Repaired != "" || f.Problem != "" || f.Manual == "" {
			t.Errorf("found is %+v", f)
		}
	}
}
