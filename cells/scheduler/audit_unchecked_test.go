// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/plugins"
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
		diff(t, map[scheduler.FindingKind]string{scheduler.FindingNoAllocations: server}, kinds(got))
		if got.Complete() || got.Cells != len(w.sites)-len(cells) {
			t.Errorf("complete: %t, with %d cells", got.Complete(), got.Cells)
		}
	}
	far.link.set(refused)
	expect("connection refused", "cell2")
	far.link.set(up)
	testproc.Try(w.store.SawCell(ctx, apidb.CellDatabase{CellUUID: far.cell.UUID}, apidb.CellMark{Epoch: "another", Revision: 1})).Or(t)
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
		if got.Complete() || len(got.Unchecked) != 1 || got.Unchecked[0].String() != "Placement" || got.Unchecked[0].Why == "" || got.Providers != 0 ||
			!strings.Contains(got.Unchecked[0].Leaves, "provider-without-host") || got.Cells != len(w.sites) {
			t.Errorf("%s: %+v", when, got)
		}
		diff(t, map[scheduler.FindingKind]string{scheduler.FindingGuestMissing: server}, kinds(got))
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
	server, _ := w.placedAt()
	w.must(w.client.Release(ctx, server))
	for _, step := range []string{"the servers", "the consumers"} {
		got := testproc.Try(scheduler.Audit(ctx, scheduler.AuditConfig{
			Store: w.store, Gatherer: w.gatherer, Placement: w.client,
			Progress: func(what string) {
				if what == step {
					w.sites[1].link.set(refused)
				}
			},
		})).Or(t)
		if step == "the servers" && (len(got.Unchecked) != 1 || got.Unchecked[0].Cell != "cell1" || got.Complete() || len(got.Findings) > 0) {
			t.Errorf("%s: %+v", step, got)
		}
		if step == "the consumers" && len(got.Findings) != 1 {
			t.Errorf("%s: %+v", step, got)
		}
		w.sites[1].link.set(up)
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
		"99999999-0000-4000-8000-000000000009": {"MISC_SHARES_VIA_AGGREGATE"}, "99999999-0000-4000-8000-000000000008": nil,
	} {
		w.ask("POST", "/resource_providers", map[string]any{"uuid": uuid, "name": "shared " + uuid}, nil)
		w.ask("PUT", "/resource_providers/"+uuid+"/inventories", map[string]any{"resource_provider_generation": 0, "inventories": map[string]any{"DISK_GB": map[string]any{"total": 100}}}, nil)
		w.ask("PUT", "/resource_providers/"+uuid+"/traits", map[string]any{"resource_provider_generation": 1, "traits": append([]string{}, traits...)}, nil)
		w.aggregated(uuid, aggregate)
	}
	w.ask("POST", "/resource_providers", map[string]any{"uuid": "99999999-0000-4000-8000-000000000007", "name": "empty"}, nil)
	w.aggregated(on.node, aggregate)
	w.ask("PUT", "/allocations/"+server, map[string]any{
		"allocations": map[string]any{
			on.node:                                map[string]any{"resources": map[string]int{"VCPU": 1}},
			"99999999-0000-4000-8000-000000000009": map[string]any{"resources": map[string]int{"DISK_GB": 1}},
		},
		"consumer_generation": testproc.Try(w.client.Allocations(ctx, server)).Or(t).ConsumerGeneration, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE",
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
	diff(t, map[scheduler.FindingKind]string{scheduler.FindingEndedHolds: migration, scheduler.FindingNoAllocations: server}, kinds(got))
	for i := range got.Findings {
		if f := &got.Findings[i]; f.Repaired != "" || f.Problem != "" || f.Manual == "" {
			t.Errorf("found is %+v", f)
		}
	}
}

// TestAuditTable: the documentation says of each kind whether it is repaired.
func TestAuditTable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	text := string(testproc.Try(os.ReadFile("../../docs/cells.md")).Or(t))
	for kind, why := range scheduler.Manual {
		repaired := "no: "
		if why == "" {
			repaired = "yes: "
		}
		row := regexp.MustCompile("(?m)^\\| `" + string(kind) + "` \\| .* \\| " + repaired)
		if !row.MatchString(text) {
			t.Errorf("docs/cells.md has no row of %s that says %q", kind, repaired)
		}
	}
}
