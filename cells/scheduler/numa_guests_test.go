// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// modelled gives a host NUMA cells, or capacity on its root, in Placement and in a model.
func (w *world) modelled(a *agent, cells int) *numaHost {
	w.t.Helper()
	h := &numaHost{root: &numaProvider{uuid: a.node, free: map[string]int64{"DISK_GB": 100}},
		providers: map[string]*numaProvider{}}
	h.providers[a.node] = h.root
	if cells == 0 {
		maps.Copy(h.root.free, map[string]int64{"VCPU": 24, "MEMORY_MB": 12288})
		w.addInventory(a.node, h.root.free)
		return h
	}
	ofCell, ofGPU := map[string]int64{"VCPU": 14, "MEMORY_MB": 7168}, map[string]int64{gpuClass: 6}
	for i, uuid := range w.nestOf(a, cells, ofCell, ofGPU) {
		cell := &numaProvider{uuid: uuid, parent: a.node, free: maps.Clone(ofCell), cell: true}
		gpu := &numaProvider{uuid: childUUID(a.node, 2*i+2), parent: uuid, free: maps.Clone(ofGPU)}
		h.providers[cell.uuid], h.providers[gpu.uuid] = cell, gpu
		h.cells, h.devices = append(h.cells, cell), append(h.devices, gpu)
	}
	return h
}

// sizes are flavors of all kinds. The last fits nowhere.
func sizes() []wish {
	of := func(w wish, vcpus, memory int64, specs ...string) wish {
		var r scheduler.CreateRequest
		r.Flavor = small
		sized(vcpus, memory, specs...)(&r)
		w.class, w.flavor = "VCPU", r.Flavor
		return w
	}
	const nodes, policy, gpu = "hw:numa_nodes", "hw:pci_numa_affinity_policy", "resources:" + gpuClass
	return []wish{
		of(wish{policy: extraspecs.AffinityLegacy}, 1, 512),
		of(wish{policy: extraspecs.AffinityLegacy}, 2, 1024),
		of(wish{policy: extraspecs.AffinityLegacy}, 6, 2048),
		of(wish{policy: extraspecs.AffinityLegacy, nodes: 1}, 3, 1536, nodes, "1"),
		of(wish{policy: extraspecs.AffinityLegacy, nodes: 2}, 4, 2048, nodes, "2"),
		of(wish{policy: extraspecs.AffinityLegacy, nodes: 2, assigned: []guestPart{{1, 512}, {3, 1024}}}, 4, 1536,
			nodes, "2", "hw:numa_cpus.0", "0", "hw:numa_cpus.1", "1-3", "hw:numa_mem.0",
			"512", "hw:numa_mem.1", "1024"),
		of(wish{policy: extraspecs.AffinityRequired, devices: 1}, 2, 1024, gpu, "1", policy, "required"),
		of(wish{policy: extraspecs.AffinityRequired, devices: 2, nodes: 2}, 2, 1024, gpu,
			"2", policy, "required", nodes, "2"),
		of(wish{policy: extraspecs.AffinityLegacy, devices: 1}, 1, 512, gpu, "1"),
		of(wish{policy: extraspecs.AffinityPreferred, devices: 1}, 2, 512, gpu, "1", policy, "preferred"),
		of(wish{policy: extraspecs.AffinityLegacy, nodes: 1}, 25, 512, nodes, "1"),
	}
}

// modelledGuests are the servers of a world, with a model of its hosts.
type modelledGuests struct {
	t       *testing.T
	w       *world
	hosts   map[string]*numaHost // by root
	names   map[string]string    // of hosts, by root
	held    map[string]wire.ProviderResources
	outcome map[string]int
}

// boot makes a server, and compares what it gets with what the model has.
func (g *modelledGuests) boot(want wish) {
	g.t.Helper()
	var possible []guestPart // the first division that fits anywhere
	for _, d := range want.divisions() {
		for _, h := range g.hosts {
			if possible == nil && want.fits(h, d) {
				possible = d
			}
		}
	}
	uuid := g.w.created(func(r *scheduler.CreateRequest) { r.Flavor = want.flavor })
	g.w.schedule()
	row := g.w.row(uuid)
	held := testproc.Try(g.w.client.Allocations(ctx, uuid)).Or(g.w.t)
	if refused := row.VMState == cellwire.VMError; refused || possible == nil {
		if !refused || possible != nil || len(held.Allocations) > 0 {
			g.t.Fatalf("%+v is %s and holds %v; what fits is %v; its fault: %+v",
				want.flavor, row.VMState, held.Allocations, possible, row.Fault)
		}
		g.outcome["refused"]++
		return
	}
	var on *numaHost
	for root, h := range g.hosts {
		if len(held.Allocations[root]) > 0 {
			on = h
		}
	}
	if on == nil || g.names[on.root.uuid] != row.Host {
		g.t.Fatalf("%s is on %s, and holds %v", uuid, row.Host, held.Allocations)
	}
	for provider := range held.Allocations {
		if on.providers[provider] == nil {
			g.t.Fatalf("%s holds something of two hosts: %v", uuid, held.Allocations)
		}
	}
	switch cells := want.take(g.t, on, held.Allocations); {
	case cells == 0:
		g.outcome["flat"]++
	case cells != len(possible):
		g.t.Fatalf("%+v is in %d cells, and could be in %d", want.flavor, cells, len(possible))
	default:
		g.outcome[strings.Repeat("cell ", cells)]++
	}
	g.held[uuid] = held.Allocations
}

// end deletes a server, whose host removes it.
func (g *modelledGuests) end(uuid string) {
	g.t.Helper()
	g.w.must(g.w.delete(uuid, false))
	for provider, classes := range g.held[uuid] {
		for class, amount := range classes {
			for _, h := range g.hosts {
				if p := h.providers[provider]; p != nil {
					p.free[class] += amount
				}
			}
		}
	}
	delete(g.held, uuid)
}

// agrees checks that hosts have each guest once, and Placement what the model has in use.
func (g *modelledGuests) agrees() {
	g.t.Helper()
	g.w.work()
	guests := g.w.guests()
	for uuid := range g.held {
		testproc.Equal(g.t, guests[uuid], 1, "%s is on %d hosts", uuid)
	}
	if len(guests) != len(g.held) {
		g.t.Errorf("there are %d guests of %d servers", len(guests), len(g.held))
	}
	used := map[string]map[string]int64{}
	for _, h := range g.hosts {
		for uuid := range h.providers {
			used[uuid] = map[string]int64{}
		}
	}
	for _, held := range g.held {
		for provider, classes := range held {
			for class, amount := range classes {
				used[provider][class] += amount
			}
		}
	}
	for uuid, want := range used {
		var got struct{ Usages map[string]int64 }
		g.w.ask(http.MethodGet, "/resource_providers/"+uuid+"/usages", nil, &got)
		maps.DeleteFunc(got.Usages, func(_ string, n int64) bool { return n == 0 })
		if !maps.Equal(got.Usages, want) {
			g.t.Errorf("of %s there is in use: %v, and guests hold %v", uuid, got.Usages, want)
		}
	}
}

// TestGuestsOfAllSizes: 200 servers of all sizes on 20 hosts, 12 of two cells and 8 without: each
// that fits somewhere gets what it asks for, in as few cells as it can, on one host; the others are
// refused and hold nothing. Servers that are deleted make place for others, and in the end all is
// free.
func TestGuestsOfAllSizes(t *testing.T) {
	dbservers.AboutNoDatabase(t)
	testproc.Parallel(t, testproc.Light)
	w := newWorld(t, files(t, dbservers.Memory(t)), []int{10, 10}, nil)
	t.Cleanup(w.close)
	g := &modelledGuests{t: t, w: w, hosts: map[string]*numaHost{}, names: map[string]string{},
		held: map[string]wire.ProviderResources{}, outcome: map[string]int{}}
	for i, a := range w.all() {
		cells := 2
		if i%5 >= 3 {
			cells = 0
		}
		g.hosts[a.node], g.names[a.node] = w.modelled(a, cells), a.host
	}
	r := rand.New(rand.NewPCG(17, 200))
	all := sizes()
	for range 200 {
		g.boot(all[r.IntN(len(all))])
	}
	g.agrees()
	for _, uuid := range slices.Sorted(maps.Keys(g.held)) {
		if r.IntN(3) == 0 {
			g.end(uuid)
		}
	}
	g.agrees()
	for range 70 {
		g.boot(all[r.IntN(len(all))])
	}
	g.agrees()
	t.Logf("%d servers at the end; %v", len(g.held), g.outcome)
	for _, what := range []string{"refused", "flat", "cell ", "cell cell "} {
		if g.outcome[what] < 10 {
			t.Errorf("%d were %s", g.outcome[what], what)
		}
	}
	for _, uuid := range slices.Sorted(maps.Keys(g.held)) {
		g.end(uuid)
	}
	g.agrees()
}
