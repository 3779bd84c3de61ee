// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// nest gives the host of an agent NUMA cells of 4 VCPU and 1 GiB, each with a GPU of 2 VGPU, in
// place of what its root had of processors and memory. The cells are returned.
func (w *world) nest(a *agent, cells int) []string {
	w.t.Helper()
	return w.nestOf(a, cells, map[string]int64{"VCPU": 4, "MEMORY_MB": 1024}, map[string]int64{"VGPU": 2})
}

// nestOf is nest with other cells and GPUs.
func (w *world) nestOf(a *agent, cells int, ofCell, ofGPU map[string]int64) []string {
	w.t.Helper()
	w.addInventory(a.node, map[string]int64{"DISK_GB": 100})
	var out []string
	for i := range cells {
		cell, gpu := childUUID(a.node, 2*i+1), childUUID(a.node, 2*i+2)
		w.ask(http.MethodPost, "/resource_providers", map[string]string{"uuid": cell,
			"name": fmt.Sprintf("%s_numa_%d", a.host, i), "parent_provider_uuid": a.node}, nil)
		w.ask(http.MethodPost, "/resource_providers", map[string]string{"uuid": gpu,
			"name": fmt.Sprintf("%s_gpu_%d", a.host, i), "parent_provider_uuid": cell}, nil)
		w.addInventory(cell, ofCell, resourcerequest.TraitNUMARoot)
		w.addInventory(gpu, ofGPU)
		out = append(out, cell)
	}
	return out
}

// addInventory gives a provider an inventory and traits.
func (w *world) addInventory(uuid string, inventory map[string]int64, traits ...string) {
	w.t.Helper()
	generation := func() int {
		var p struct {
			Generation int `json:"generation"`
		}
		w.ask(http.MethodGet, "/resource_providers/"+uuid, nil, &p)
		return p.Generation
	}
	inventories := map[string]any{}
	for class, total := range inventory {
		inventories[class] = map[string]int64{"total": total, "max_unit": total}
	}
	w.ask(http.MethodPut, "/resource_providers/"+uuid+"/inventories",
		map[string]any{"resource_provider_generation": generation(), "inventories": inventories}, nil)
	if len(traits) > 0 {
		w.ask(http.MethodPut, "/resource_providers/"+
			uuid+"/traits", map[string]any{"resource_provider_generation": generation(), "traits": traits}, nil)
	}
}

// childUUID is that of a child of a provider.
func childUUID(parent string, n int) string { return parent[:24] + fmt.Sprintf("%012d", n) }

// sized is a flavor.
func sized(vcpus, memory int64, specs ...string) func(*scheduler.CreateRequest) {
	return func(r *scheduler.CreateRequest) {
		r.Flavor.VCPUs, r.Flavor.MemoryMB, r.Flavor.ExtraSpecs = vcpus, memory, map[string]string{}
		for i := 0; i < len(specs); i += 2 {
			r.Flavor.ExtraSpecs[specs[i]] = specs[i+1]
		}
	}
}

// held is what a server holds of the cells, in words.
func (w *world) held(uuid string, cells []string) string {
	w.t.Helper()
	held := testproc.Try(w.client.Allocations(ctx, uuid)).Or(w.t)
	var out []string
	for i, cell := range cells {
		for _, provider := range []string{cell, childUUID(cell, 2*i+2)} {
			for _, class := range slices.Sorted(maps.Keys(held.Allocations[provider])) {
				out = append(out, fmt.Sprintf("%d:%s:%d", i, class, held.Allocations[provider][class]))
			}
		}
	}
	return strings.Join(out, " ")
}

// TestOneCell: what a flavor without a word about NUMA gets on a host of two cells: processors and
// memory of one, as long as one has the capacity;
// and of two when none has.
func TestOneCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	cells := w.nest(w.sites[1].agents[0], 2)
	w.plink.counted()
	in := map[string]bool{}
	for i := range 2 {
		uuid := w.created(sized(1, 700))
		w.schedule()
		got := w.held(uuid, cells)
		if cell, is := strings.CutSuffix(got, ":VCPU:1"); !is ||
			!strings.HasPrefix(got, got[:1]+":MEMORY_MB:700 "+got[:1]+":") {
			t.Errorf("guest %d holds %s (%s)", i, got, cell)
		}
		in[got[:1]] = true
	}
	if len(in) != 2 {
		t.Errorf("both are in %v", in)
	}
	// 324 MB are left in each: neither has 600, and both have 300.
	uuid := w.created(sized(2, 600))
	w.schedule()
	testproc.Equal(t, w.held(uuid, cells), "0:MEMORY_MB:300 0:VCPU:1 1:MEMORY_MB:300 1:VCPU:1", "it holds %s")
	// One that may not be divided is refused, and the fault says what was asked for.
	uuid = w.created(sized(2, 600, "hw:numa_nodes", "1"))
	w.schedule()
	row := w.row(uuid)
	if row.VMState != cellwire.VMError || row.Fault == nil || !strings.Contains(row.Fault.Details,
		"On hosts with NUMA cells all processors and memory were asked for in 1 cell, and the guest cannot be "+
			"divided further.") {
		t.Fatalf("a server that fits no cell: got %+v, %+v, want the fault to say so", row, row.Fault)
	}
	// The queries in it can be pasted.
	queries := regexp.MustCompile(
		`What (hosts [^,]*) lack, the bundled Placement says: compute-agent placement explain '([^']*)'\.`).
		FindAllStringSubmatch(row.Fault.Details, -1)
	var kinds []string
	for _, q := range queries {
		var answer struct{ Verdict string }
		w.ask(http.MethodGet, "/allocation_candidates/explain?"+q[2], nil, &answer)
		if kinds = append(kinds, q[1]); !strings.HasPrefix(answer.Verdict, "No candidates.") {
			t.Errorf("%s: %s", q[0], answer.Verdict)
		}
	}
	if want := []string{"hosts with NUMA cells", "hosts without NUMA cells"}; !slices.Equal(kinds, want) {
		t.Errorf("the fault is about %q, not %q: %s", kinds, want, row.Fault.Details)
	}
}

// TestRequestsForCells: how many requests a boot costs, with and without hosts with cells.
func TestRequestsForCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	const candidates, traits = "GET /allocation_candidates", "GET /traits"
	boot := func(change func(*scheduler.CreateRequest), wantCandidates, wantTraits int) string {
		t.Helper()
		uuid := w.created(change)
		w.plink.counted()
		w.schedule()
		if n := w.plink.counted(); n[candidates] != wantCandidates || n[traits] != wantTraits {
			t.Errorf("it cost %v", n)
		}
		return uuid
	}
	flat := []string{boot(sized(1, 512), 1, 1), boot(sized(1, 512), 1, 0)} // a moment ago there was none
	w.pass(time.Minute)
	w.beat()
	flat = append(flat, boot(sized(1, 512), 1, 1))
	if row := w.row(boot(sized(1, 128, "resources:VGPU", "1", "hw:pci_numa_affinity_policy", "required"), 0,
		0)); row.Fault == nil ||
		!strings.Contains(row.Fault.Details, "no resource provider has the trait HW_NUMA_ROOT") {
		t.Errorf("a server with required affinity: got the fault %+v, want that no provider is a NUMA cell", row.Fault)
	}
	for _, uuid := range flat {
		w.must(w.delete(uuid, false))
	}
	w.work()
	cells := w.nest(w.sites[1].agents[0], 2)
	w.pass(time.Minute)
	w.beat()
	boot(sized(1, 128), 2, 1)
	boot(sized(1, 128, "resources:MEMORY_MB", "0", "resources:VCPU", "0"), 1, 0) // it asks for nothing that cells have
	// in one cell, two, and four; and without cells
	boot(sized(4, 5000), 4, 0)
	uuid := boot(sized(1, 128, "resources:VGPU", "1"), 2, 0)
	if got := w.held(uuid, cells); !slices.Contains(
		[]string{"0:MEMORY_MB:128 0:VCPU:1 0:VGPU:1", "1:MEMORY_MB:128 1:VCPU:1 1:VGPU:1"}, got) {
		t.Errorf("it holds %s", got)
	}
	forced := w.sites[1].agents[1]
	if row := w.row(boot(func(r *scheduler.CreateRequest) { sized(1, 128)(r); r.ForcedHost = forced.host }, 2,
		0)); row.Host != forced.host {
		t.Errorf("the server with a forced host: got %+v", row)
	}
}

// TestHostsOfBothKinds: hosts with cells and without are chosen by the memory that they have, and
// found host by host where Placement has too many of others.
func TestHostsOfBothKinds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := newCrowdedWorld(t, nil, []int{2})
	nested, flat := w.sites[1].agents[0], w.sites[1].agents[1]
	w.nest(nested, 2)
	w.plink.when(nil)
	hide := func(r *http.Request) fault {
		if q := r.URL.Query(); r.URL.Path == "/allocation_candidates" && q.Get("in_tree")+q.Get("in_tree_NUMA0") == "" {
			q.Set("required", "!CUSTOM_OURS")
			r.URL.RawQuery = q.Encode()
		}
		return up
	}
	w.plink.when(hide)
	on := map[string]int{}
	for range 8 {
		uuid := w.created(sized(1, 512))
		w.schedule()
		on[w.row(uuid).Host]++
	}
	if on[nested.host] != 4 || on[flat.host] != 4 {
		t.Errorf("the servers are on %v", on)
	}
}

// TestRealPlacementTakesCells: OpenStack's Placement takes every request to hosts with cells,
// and candidates are the same.
func TestRealPlacementTakesCells(t *testing.T) {
	real := testproc.StartPlacement(t)
	at := testproc.Try(url.Parse(real.URL)).Or(t)
	w := newWorldOn(t, databases(t), httputil.NewSingleHostReverseProxy(at), []int{1}, nil)
	t.Cleanup(w.close)
	cells := w.nest(w.sites[1].agents[0], 2)
	w.ask(http.MethodPut, "/traits/CUSTOM_GPU", nil, nil)
	var generation struct {
		Generation int `json:"resource_provider_generation"`
	}
	gpu := childUUID(cells[0], 4) // of cell 1
	w.ask(http.MethodGet, "/resource_providers/"+gpu+"/traits", nil, &generation)
	w.ask(http.MethodPut, "/resource_providers/"+
		gpu+"/traits", map[string]any{"resource_provider_generation": generation.Generation,
		"traits": []string{"CUSTOM_GPU"}}, nil)
	for _, c := range []struct {
		change func(*scheduler.CreateRequest)
		want   string // "": refused
	}{
		{sized(1, 100, "resources:VGPU", "1", "trait:CUSTOM_GPU", "required"), "1:MEMORY_MB:100 1:VCPU:1 1:VGPU:1"},
		{sized(1, 100, "resources_G:VGPU", "1", "trait_G:CUSTOM_GPU", "required"), "1:MEMORY_MB:100 1:VCPU:1 1:VGPU:1"},
		{sized(1, 100, "resources_G:VGPU", "1", "trait_G:CUSTOM_GPU", "forbidden", "hw:pci_numa_affinity_policy",
			"required"), "0:MEMORY_MB:100 0:VCPU:1 0:VGPU:1"},
		{sized(4, 200, "resources_G:VGPU", "1", "resources_H:VGPU", "1", "group_policy", "isolate", "hw:numa_nodes",
			"2"), "0:MEMORY_MB:100 0:VCPU:2 0:VGPU:1 1:MEMORY_MB:100 1:VCPU:2 1:VGPU:1"},
		{sized(4, 200, "resources_G:VGPU", "1", "same_subtree:a", "_G,_NUMA1", "trait_G:CUSTOM_GPU", "required",
			"hw:numa_nodes", "2", "hw:numa_cpus.0", "0-2", "hw:numa_cpus.1", "3",
			"hw:numa_mem.0", "50", "hw:numa_mem.1", "150"),
			"0:MEMORY_MB:50 0:VCPU:3 1:MEMORY_MB:150 1:VCPU:1 1:VGPU:1"},
		{sized(6, 1200), "0:MEMORY_MB:600 0:VCPU:3 1:MEMORY_MB:600 1:VCPU:3"},
		{sized(1, 100, "resources:VGPU", "2", "trait:CUSTOM_GPU", "required", "hw:pci_numa_affinity_policy",
			"preferred", "hw:mem_page_size", "large"), ""},
		{sized(1, 1100, "hw:numa_nodes", "1"), ""},
		{sized(1, 100, "trait:CUSTOM_GPU", "required", "trait:HW_CPU_X86_AVX", "forbidden"), ""},
	} {
		uuid := w.created(c.change)
		w.schedule()
		row := w.row(uuid)
		if got := w.held(uuid, cells); got != c.want || (c.want == "") != (row.VMState == cellwire.VMError) {
			t.Errorf("%v: it is %s and holds %s; fault %+v", row.Flavor.ExtraSpecs, row.VMState, got, row.Fault)
		}
		w.must(w.delete(uuid, false))
		w.work()
	}
}

// numaUUID is that of the provider of a number.
func numaUUID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// placementOnly is a world that has nothing but a Placement, and a client of that.
func placementOnly(t tester, handler http.Handler) (*world, *placementcalls.Client) {
	t.Helper()
	w := &world{t: t, asked: handler}
	return w, testproc.Try(placementcalls.New(placementclient.Config{Endpoint: w.endpoint, Authorize: asAdmin,
		Transport: &link{to: handler, counts: map[string]int{}}})).Or(t)
}

// cellHosts makes hosts of two cells of 12 VCPU and 16 GiB, each with two GPUs of 4 VGPU. Cells and
// their GPUs have the same number but for the last digit.
func (w *world) cellHosts(n int) {
	w.t.Helper()
	add := func(n, parent int, inventory map[string]int64, traits ...string) {
		body := map[string]any{"uuid": numaUUID(n), "name": fmt.Sprint("node", n)}
		if parent > 0 {
			body["parent_provider_uuid"] = numaUUID(parent)
		}
		w.ask(http.MethodPost, "/resource_providers", body, nil)
		w.addInventory(numaUUID(n), inventory, traits...)
	}
	for host := range n {
		root := (host + 1) * 100
		add(root, 0, map[string]int64{"DISK_GB": 1000})
		for _, cell := range []int{root + 10, root + 20} {
			add(cell, root, map[string]int64{"VCPU": 12, "MEMORY_MB": 16384}, resourcerequest.TraitNUMARoot)
			add(cell+1, cell, map[string]int64{"VGPU": 4})
			add(cell+2, cell, map[string]int64{"VGPU": 4})
		}
	}
}

// TestEveryGuestInOneCell: of guests with a GPU on 20 hosts, each has all of one cell. As many of
// them fit as with the one group that Nova asks for, where some have not.
func TestEveryGuestInOneCell(t *testing.T) {
	dbservers.AboutNoDatabase(t)
	testproc.Parallel(t, testproc.Light)
	f := cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 2, MemoryMB: 2048, RootGB: 1,
		ExtraSpecs: map[string]string{"resources:VGPU": "1"}}}
	fill := func(find func(*placementcalls.Client) ([]resourcerequest.Candidate, error)) (guests, whole int) {
		server := testproc.Try(newPlacement(placementTemplate.Fresh(t))).Or(t)
		t.Cleanup(func() { check(t, server.Close()) })
		w, c := placementOnly(t, server.Handler())
		w.cellHosts(20)
		for {
			found := testproc.Try(find(c)).Or(t)
			if len(found) == 0 {
				return guests, whole
			}
			guests++
			check(t, c.Claim(t.Context(),
				cellwire.Server{UUID: numaUUID(50_000 + guests), ProjectID: "p", UserID: "u"}, nil, found[0]))
			in := map[string]bool{}
			for provider, classes := range found[0].Allocations {
				if classes["DISK_GB"] == 0 {
					in[provider[:35]] = true
				}
			}
			if len(in) == 1 {
				whole++
			}
		}
	}
	guests, whole := fill(func(c *placementcalls.Client) ([]resourcerequest.Candidate, error) {
		found, _, err := scheduler.Ask(t.Context(), c, f)
		return found, err
	})
	asNova, wholeAsNova := fill(func(c *placementcalls.Client) ([]resourcerequest.Candidate, error) {
		r := testproc.Try(resourcerequest.New(f, nil)).Or(t)
		r.Limit = 1
		return c.Candidates(t.Context(), r)
	})
	t.Logf("%d guests fit, %d in one cell each; with one group %d, and %d", guests, whole, asNova, wholeAsNova)
	if guests < 200 || whole != guests || guests != asNova || wholeAsNova == asNova {
		t.Error("some guest is not in one cell, or fewer fit than in parts of two")
	}
}
