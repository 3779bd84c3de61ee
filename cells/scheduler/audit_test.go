// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/cloudaudit"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// audited begins a world whose nodes are compute nodes of Placement.
func audited(t *testing.T, hosts ...int) *world {
	t.Helper()
	w := begin(t, hosts)
	for _, a := range w.all() {
		w.ask("PUT", "/resource_providers/"+a.node+"/traits",
			map[string]any{"resource_provider_generation": 1, "traits": []string{"COMPUTE_NODE"}}, nil)
	}
	return w
}

func (w *world) audit(repair bool) cloudaudit.Report {
	w.t.Helper()
	w.beat()
	return testproc.Try(cloudaudit.Run(ctx,
		cloudaudit.Config{Store: w.store, Gatherer: w.gatherer, Placement: w.client, Repair: repair})).Or(w.t)
}

// placedAt is a server that is active on the first host of cell1, and that host.
func (w *world) placedAt() (server string, on *agent) {
	w.t.Helper()
	on = w.sites[1].agents[0]
	server = w.created(func(r *scheduler.CreateRequest) { r.ForcedHost = on.host })
	w.schedule()
	w.work()
	w.is(server, cellwire.VMActive, "", on)
	return server, on
}

// kinds are the findings of a report by kind, with what they are about.
func kinds(r cloudaudit.Report) map[cloudaudit.FindingKind]string {
	out := map[cloudaudit.FindingKind]string{}
	for i := range r.Findings {
		f := &r.Findings[i]
		about := f.Server
		switch {
		case f.Consumer != "":
			about = f.Consumer
		case about == "":
			about = f.Provider
		}
		out[f.Kind] = strings.TrimSpace(out[f.Kind] + " " + about)
	}
	return out
}

// sound fails if an audit finds something.
func (w *world) sound(when string) {
	w.t.Helper()
	if found := w.audit(false); len(found.Findings) > 0 || len(found.Unchecked) > 0 {
		w.t.Errorf("%s: %+v, unchecked: %+v", when, found.Findings, found.Unchecked)
	}
}

// give has a consumer hold a VCPU of a node, and nothing else.
func (w *world) give(consumer string, on *agent) {
	w.t.Helper()
	var held struct {
		Generation *int64 `json:"consumer_generation"`
	}
	w.ask("GET", "/allocations/"+consumer, nil, &held)
	w.ask("PUT", "/allocations/"+consumer, map[string]any{
		"allocations":         map[string]any{on.node: map[string]any{"resources": map[string]int{"VCPU": 1}}},
		"consumer_generation": held.Generation,
		"project_id":          "p", "user_id": "u", "consumer_type": "INSTANCE",
	}, nil)
}

// provider makes a resource provider with inventory and traits.
func (w *world) provider(uuid string, has map[string]int, traits ...string) {
	w.t.Helper()
	inventories := map[string]any{}
	for class, total := range has {
		inventories[class] = map[string]any{"total": total, "max_unit": total}
	}
	w.ask("POST", "/resource_providers", map[string]any{"uuid": uuid, "name": "external"}, nil)
	w.ask("PUT", "/resource_providers/"+uuid+"/inventories",
		map[string]any{"resource_provider_generation": 0, "inventories": inventories}, nil)
	w.ask("PUT", "/resource_providers/"+uuid+"/traits",
		map[string]any{"resource_provider_generation": 1, "traits": append([]string{}, traits...)}, nil)
}

// aggregated puts a resource provider into an aggregate.
func (w *world) aggregated(provider, aggregate string) {
	w.t.Helper()
	var p struct {
		Generation int64 `json:"generation"`
	}
	w.ask("GET", "/resource_providers/"+provider, nil, &p)
	w.ask("PUT", "/resource_providers/"+provider+"/aggregates",
		map[string]any{"aggregates": []string{aggregate}, "resource_provider_generation": p.Generation}, nil)
}

// migrated migrates a server to the end, and returns the uuid of the migration.
func (w *world) migrated(server string) string {
	w.t.Helper()
	w.must(w.migrate(server, cellwire.MigrationCold, ""))
	migration := w.open(server)[0].UUID
	steps := func() {
		for range 6 {
			w.moves()
			w.work()
		}
	}
	steps()
	w.must(w.scheduler.Decide(ctx, testproc.Try(w.store.Mapping(ctx, server)).Or(w.t), true))
	steps()
	w.sound("it has migrated")
	return migration
}

// inCell asks the cell of an agent.
func (w *world) inCell(s *site, do func(context.Context, *cellclient.Client) error) {
	w.t.Helper()
	_, err := gather.One(ctx, w.gatherer, s.cell,
		func(ctx context.Context, c *cellclient.Client) (struct{}, error) { return struct{}{}, do(ctx, c) })
	w.must(err)
}

// TestAuditFindsWhatDiffers: each thing that does not fit together, found alone; and what becomes
// of it with repair.
func TestAuditFindsWhatDiffers(t *testing.T) {
	t.Parallel()
	const external, aggregate = "99999999-0000-4000-8000-000000000009", "99999999-0000-4000-8000-00000000000a"
	for name, c := range map[string]struct {
		// spoil returns what the finding is about.
		spoil    func(w *world, server string, on *agent) string
		kind     cloudaudit.FindingKind
		repaired bool
	}{
		"a server that holds nothing": {func(w *world, server string, _ *agent) string {
			w.must(w.client.Release(ctx, server))
			return server
		}, cloudaudit.FindingNoAllocations, false},
		"a server that holds something elsewhere": {func(w *world, server string, _ *agent) string {
			w.give(server, w.sites[1].agents[1])
			return server
		}, cloudaudit.FindingElsewhere, false},
		"a consumer that is no server": {func(w *world, _ string, on *agent) string {
			w.give(external, on)
			return external
		}, cloudaudit.FindingNoConsumer, false},
		"a deleted server that holds something": {func(w *world, server string, on *agent) string {
			w.must(w.delete(server, false))
			w.work()
			w.give(server, on)
			return server
		}, cloudaudit.FindingDeletedHolds, true},
		"a server on no host that holds something": {func(w *world, _ string, on *agent) string {
			failed := w.created(func(r *scheduler.CreateRequest) { r.Zone = "nowhere" })
			w.schedule()
			w.pass(2 * scheduler.DefaultGrace)
			for range 3 { // its claim goes
				w.must(w.scheduler.Reconcile(ctx))
				w.pass(scheduler.DefaultGrace)
			}
			w.give(failed, on)
			return failed
		}, cloudaudit.FindingDeletedHolds, true},
		"a deletion that the cell does not know": {func(w *world, server string, _ *agent) string {
			w.must(w.store.SetQueued(ctx, map[string]bool{server: true}))
			return server
		}, cloudaudit.FindingDeletionDiffers, true},
		"a deletion that the API database does not know": {func(w *world, server string, _ *agent) string {
			w.must(w.delete(server, false))
			w.work()
			w.must(w.store.SetQueued(ctx, map[string]bool{server: false}))
			return server
		}, cloudaudit.FindingDeletionDiffers, true},
		"a server that its cell does not know": {func(w *world, _ string, _ *agent) string {
			spec := apidb.RequestSpec{Server: cellwire.Server{UUID: uuid.NewString(), ProjectID: "p", UserID: "u",
				Flavor: small, CreatedAt: w.clock()}}
			w.must(w.store.CreateServers(ctx, []apidb.RequestSpec{spec}, nil))
			w.must(w.store.Place(ctx, spec.UUID, w.sites[1].cell.UUID))
			w.must(w.store.FinishBuild(ctx, spec.UUID))
			return spec.UUID
		}, cloudaudit.FindingServerLost, false},
		"a server that the API database does not know": {func(w *world, _ string, on *agent) string {
			row := cellwire.Server{
				UUID: uuid.NewString(), ProjectID: "p", UserID: "u", Flavor: small, CreatedAt: w.clock(),
				VMState: cellwire.VMBuilding,
				Host:    on.host, Node: on.host, NodeUUID: on.node,
			}
			w.inCell(w.sites[1], func(ctx context.Context, c *cellclient.Client) error {
				if _, err := c.Insert(ctx, row); err != nil {
					return err
				}
				_, err := c.Release(ctx, row.UUID)
				return err
			})
			return row.UUID
		}, cloudaudit.FindingServerUnmapped, false},
		"a guest that is missing": {func(w *world, server string, on *agent) string {
			reports := []cellwire.Report{{UUID: server, Kind: cellwire.ReportPower, PowerState: plugins.PowerNoState}}
			testproc.Try(on.cell.Reports(ctx, on.host, reports)).Or(w.t)
			return server
		}, cloudaudit.FindingGuestMissing, false},
		"guests of no server": {func(w *world, _ string, on *agent) string {
			node := cellwire.ReportedNode{UUID: on.node, Name: on.host, Abilities: []string{plugins.AbilityMigrate},
				Details: &cellwire.NodeDetails{UnknownGuests: 2}}
			testproc.Try(on.cell.Report(ctx, on.host,
				cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{node}})).Or(w.t)
			return on.node
		}, cloudaudit.FindingUnknownGuests, false},
		"a node that is not mapped": {func(w *world, _ string, _ *agent) string {
			far := w.sites[2].agents[0]
			w.must(w.store.DeleteHost(ctx, far.host))
			return far.node
		}, cloudaudit.FindingNodeUnmapped, true},
		"a node that may not be mapped": {func(w *world, _ string, _ *agent) string {
			far := w.sites[2].agents[0]
			w.must(w.store.DeleteHost(ctx, far.host))
			w.inCell(w.sites[2], func(ctx context.Context, c *cellclient.Client) error {
				return c.NodesState(ctx,
					cellwire.NodesRequest{Problems: map[string]string{far.node: "it is another host's"}})
			})
			return far.node
		}, cloudaudit.FindingNodeUnmapped, false},
		"a migration that is over": {func(w *world, server string, on *agent) string {
			migration := w.migrated(server)
			w.give(migration, on)
			return migration
		}, cloudaudit.FindingEndedHolds, true},
		"a migration that is over, of a deleted server": {func(w *world, server string, on *agent) string {
			migration := w.migrated(server)
			w.must(w.delete(server, false))
			w.work()
			w.give(migration, on)
			return migration
		}, cloudaudit.FindingEndedHolds, true},
		"a node that no host reports": {func(w *world, _ string, _ *agent) string {
			w.must(w.store.MapNodes(ctx,
				[]apidb.Node{{UUID: external, Name: "gone", Host: "gone", CellUUID: w.sites[1].cell.UUID}}))
			return external
		}, cloudaudit.FindingNodeMissing, false},
		"a node without a resource provider": {func(w *world, _ string, _ *agent) string {
			far := w.sites[2].agents[0]
			w.ask("DELETE", "/resource_providers/"+far.node, nil, nil)
			return far.node
		}, cloudaudit.FindingNoProvider, false},
		"a resource provider without a host": {func(w *world, _ string, _ *agent) string {
			w.ask("POST", "/resource_providers", map[string]any{"uuid": external, "name": "external"}, nil)
			w.ask("PUT", "/resource_providers/"+external+"/traits",
				map[string]any{"resource_provider_generation": 0, "traits": []string{"COMPUTE_NODE"}}, nil)
			return external
		}, cloudaudit.FindingNoHost, false},
		"a resource provider without a host and a trait": {func(w *world, _ string, _ *agent) string {
			w.provider(external, map[string]int{"VCPU": 4})
			return external
		}, cloudaudit.FindingNoHost, false},
		"a shared resource provider for no host": {func(w *world, _ string, _ *agent) string {
			w.provider(external, map[string]int{"DISK_GB": 100}, "MISC_SHARES_VIA_AGGREGATE")
			w.aggregated(external, aggregate)
			return external
		}, cloudaudit.FindingNoHost, false},
		"a compute node without a host that shares what it has": {func(w *world, _ string, on *agent) string {
			w.provider(external, map[string]int{"DISK_GB": 100}, "COMPUTE_NODE", "MISC_SHARES_VIA_AGGREGATE")
			w.aggregated(external, aggregate)
			w.aggregated(on.node, aggregate)
			return external
		}, cloudaudit.FindingNoHost, false},
		"a deleted server that holds something that is shared": {func(w *world, server string, on *agent) string {
			w.provider(external, map[string]int{"VCPU": 4}, "MISC_SHARES_VIA_AGGREGATE")
			w.aggregated(external, aggregate)
			w.aggregated(on.node, aggregate)
			w.must(w.delete(server, false))
			w.work()
			w.give(server, &agent{node: external})
			return server
		}, cloudaudit.FindingDeletedHolds, true},
		"a server that holds only what is shared": {func(w *world, server string, on *agent) string {
			w.provider(external, map[string]int{"VCPU": 4}, "MISC_SHARES_VIA_AGGREGATE")
			w.aggregated(external, aggregate)
			w.aggregated(on.node, aggregate)
			w.give(server, &agent{node: external})
			return server
		}, cloudaudit.FindingNoAllocations, false},
	} {
		dbservers.Case(t, name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			w := audited(t, 2, 1)
			server, on := w.placedAt()
			w.sound("before")
			want := map[cloudaudit.FindingKind]string{c.kind: c.spoil(w, server, on)}
			for _, repair := range []bool{false, true} {
				got := w.audit(repair)
				diff(t, want, kinds(got))
				for i := range got.Findings {
					if f := &got.Findings[i]; (f.Repaired != "") != (repair && c.repaired) ||
						f.Repairable() != c.repaired || (f.Manual == "") != c.repaired ||
						f.Problem != "" || f.Text == "" || f.Hint == "" ||
						strings.Contains(f.Hint, "`openstack server rebuild") { // which loses what is on the disks
						t.Errorf("with repair %t: %+v", repair, f)
					}
				}
				if got.Clean() != (repair && c.repaired) {
					t.Errorf("with repair %t it is clean: %t", repair, got.Clean())
				}
			}
			if after := w.audit(false); c.repaired != (len(after.Findings) == 0) {
				t.Errorf("after the repair: %+v", after.Findings)
			}
		})
	}
}

// TestAuditWhileServersComeAndGo: nothing is found while servers are built, move, are deleted and
// wait for a host, at any step.
func TestAuditWhileServersComeAndGo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 3)
	uuid, _ := w.placed()
	w.created()
	w.sound("a server is asked for")
	w.schedule()
	w.sound("it is built")
	w.work()
	w.sound("it is active")
	steps := func(what string) {
		t.Helper()
		for i := range 6 {
			w.moves()
			w.sound(what)
			w.work()
			w.sound(what)
			if i == 5 {
				w.pass(scheduler.DefaultGrace)
			}
		}
	}
	for _, confirm := range []bool{false, true} {
		w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
		w.sound("it is to migrate")
		steps("it migrates")
		m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t)
		w.must(w.scheduler.Decide(ctx, m, confirm))
		steps("it is confirmed or reverted")
	}
	from := w.host(uuid)
	w.dies(from)
	w.must(w.migrate(uuid, cellwire.MigrationEvacuation, ""))
	steps("it is evacuated")
	from.off = false
	steps("its host is back")
	w.must(w.delete(uuid, false))
	w.sound("it is deleted")
	w.work()
	w.sound("it is gone")
}

// TestRepairLooksOnceMore: what is not as it was found is not written.
func TestRepairLooksOnceMore(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 1)
	server, on := w.placed()
	w.must(w.delete(server, false))
	w.work()
	w.give(server, on)
	site := w.sites[1]
	audit := func() cloudaudit.Report {
		return testproc.Try(cloudaudit.Run(ctx, cloudaudit.Config{
			Store: w.store, Gatherer: w.gatherer, Placement: w.client, Repair: true,
			Progress: func(what string) {
				if what == "the nodes" { // the last step before the repair
					site.link.set(refused)
				}
			},
		})).Or(t)
	}
	got := audit()
	if len(got.Findings) != 1 || got.Findings[0].Problem == "" || got.Findings[0].Repaired != "" || got.Clean() {
		t.Errorf("with a cell that is down meanwhile: %+v", got.Findings)
	}
	if held := w.holders(); !slices.Contains(slices.Collect(maps.Keys(held)), server) {
		t.Errorf("it was removed all the same: %v", held)
	}
	site.link.set(up)
	if got := w.audit(true); !got.Clean() || len(got.Findings) != 1 {
		t.Errorf("when the cell is back: %+v", got.Findings)
	}
}

// TestAuditOfAMigratedServer: of one that is not confirmed yet, the guest is missed on either host,
// with what helps there.
func TestAuditOfAMigratedServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 2)
	server, from := w.placed()
	w.must(w.migrate(server, cellwire.MigrationCold, ""))
	w.moves()
	from.work()
	to := w.host(server)
	to.work()
	w.is(server, cellwire.VMResized, "", to)
	w.sound("it is resized")
	missing := func(on *agent, kind cellwire.ReportKind) {
		t.Helper()
		report := cellwire.Report{UUID: server, Kind: kind, PowerState: plugins.PowerNoState}
		if kind == cellwire.ReportDeparted {
			report.Migration = w.open(server)[0].UUID
		}
		answer := testproc.Try(on.cell.Reports(ctx, on.host, []cellwire.Report{report})).Or(t)
		testproc.Same(t, gocmp.Diff([]string{""}, answer.Refused))
	}
	hints := func() map[string]string {
		out := map[string]string{}
		for _, f := range w.audit(false).Findings {
			if f.Kind != cloudaudit.FindingGuestMissing {
				t.Errorf("found is %+v", f)
			}
			out[f.Host] = f.Hint
		}
		return out
	}
	missing(from, cellwire.ReportDeparted)
	if got := hints(); len(got) != 1 || !strings.Contains(got[from.host], "migrate confirm") {
		t.Errorf("without a guest on the source: %v", got)
	}
	m := testproc.Try(w.store.Mapping(ctx, server)).Or(t)
	if err := w.scheduler.Decide(ctx, m, false); !cellclient.IsConflict(err) {
		t.Errorf("a revert that leaves no guest: %v", err)
	}
	missing(to, cellwire.ReportPower)
	if got := hints(); len(got) != 2 || !strings.Contains(got[to.host], "migrate revert") {
		t.Errorf("without a guest on either: %v", got)
	}
	if err := w.scheduler.Decide(ctx, m, true); !cellclient.IsConflict(err) {
		t.Errorf("a confirmation that leaves no guest: %v", err)
	}
}

// TestAuditOfANodeThatIsNotReported: a host is not to be deleted if its agent reports to the cell.
func TestAuditOfANodeThatIsNotReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := audited(t, 1)
	on := w.sites[1].agents[0]
	testproc.Try(on.cell.Report(ctx, on.host, cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{}})).
		Or(t)
	report := testproc.Try(cloudaudit.Run(ctx,
		cloudaudit.Config{Store: w.store, Gatherer: w.gatherer, Placement: w.client})).Or(t)
	if len(report.Findings) != 1 || report.Findings[0].Kind != cloudaudit.FindingNodeMissing ||
		strings.Contains(report.Findings[0].Hint, "delete-host") ||
		!strings.Contains(report.Findings[0].Hint, "`compute-agent status`") {
		t.Errorf("found are %+v", report.Findings)
	}
}
