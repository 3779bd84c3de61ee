// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// numaProvider is a resource provider of the model: what is free of it.
type numaProvider struct {
	uuid, parent string
	free         map[string]int64
	cell         bool
}

// numaHost is a host of the model. One without cells has all on its root.
type numaHost struct {
	root      *numaProvider
	cells     []*numaProvider
	devices   []*numaProvider
	providers map[string]*numaProvider
}

const gpuClass, pagesClass = "VGPU", "CUSTOM_HUGEPAGES_2M"

// drawHost makes a host in Placement and in the model.
func drawHost(t *rapid.T, at *world, n int) *numaHost {
	serial := n * 100
	h := &numaHost{providers: map[string]*numaProvider{}}
	add := func(parent *numaProvider, free map[string]int64, traits ...string) *numaProvider {
		p := &numaProvider{uuid: numaUUID(serial),
			free: free, cell: slices.Contains(traits, resourcerequest.TraitNUMARoot)}
		body := map[string]any{"uuid": p.uuid, "name": fmt.Sprint("p", serial)}
		if parent != nil {
			p.parent, body["parent_provider_uuid"] = parent.uuid, parent.uuid
		}
		serial++
		at.ask(http.MethodPost, "/resource_providers", body, nil)
		maps.DeleteFunc(free, func(_ string, n int64) bool { return n == 0 })
		at.addInventory(p.uuid, free, traits...)
		h.providers[p.uuid] = p
		return p
	}
	amount := func(what string, most int64) int64 { return rapid.Int64Range(most/4, most).Draw(t, what) }
	cells := rapid.IntRange(0, 3).Draw(t, "cells")
	if cells == 0 {
		h.root = add(nil, map[string]int64{"DISK_GB": 100, "VCPU": amount("VCPU", 8), "PCPU": amount("PCPU", 4),
			"MEMORY_MB": amount("MEMORY_MB", 8) * 512})
	} else {
		h.root = add(nil, map[string]int64{"DISK_GB": 100})
	}
	below := []*numaProvider{h.root}
	for range cells {
		memory := amount("MEMORY_MB", 8) * 512
		cell := add(h.root, map[string]int64{
			"VCPU": amount("VCPU", 8), "PCPU": amount("PCPU", 6), "MEMORY_MB": memory,
			pagesClass: amount("pages", memory/2),
		}, resourcerequest.TraitNUMARoot)
		h.cells, below = append(h.cells, cell), append(below, cell)
	}
	for range rapid.IntRange(0, 3).Draw(t, "devices") {
		h.devices = append(h.devices,
			add(rapid.SampledFrom(below).Draw(t, "at"), map[string]int64{gpuClass: 1 + amount("VGPU", 1)}))
	}
	return h
}

// wish is a flavor and what it means.
type wish struct {
	flavor   cellwire.Flavor
	nodes    int // 0: not said
	class    string
	pages    bool
	devices  int64
	policy   extraspecs.Affinity
	assigned []guestPart // nil: evenly
}

type guestPart struct{ cpus, memory int64 }

func drawWish(t *rapid.T) wish {
	specs := map[string]string{}
	w := wish{class: "VCPU", policy: extraspecs.AffinityLegacy}
	f := plugins.Flavor{VCPUs: rapid.Int64Range(1, 6).Draw(t, "vcpus"),
		MemoryMB: rapid.Int64Range(1, 6).Draw(t, "memory") * 512, RootGB: 1, ExtraSpecs: specs}
	if rapid.IntRange(0, 3).Draw(t, "dedicated") == 0 {
		w.class, specs["hw:cpu_policy"] = "PCPU", "dedicated"
	}
	if rapid.IntRange(0, 3).Draw(t, "pages") == 0 {
		w.pages, specs["hw:mem_page_size"] = true, "2MB"
	}
	switch rapid.IntRange(0, 4).Draw(t, "nodes") {
	case 0:
		w.nodes = 1
	case 1:
		w.nodes, f.VCPUs, f.MemoryMB = 2, 2*(1+f.VCPUs/3), 1024*(1+f.MemoryMB/2048)
	case 2:
		w.nodes = 2
		w.assigned = []guestPart{{1, 512}, {1 + f.VCPUs/3, f.MemoryMB}}
		f.VCPUs, f.MemoryMB = 2+f.VCPUs/3, 512+f.MemoryMB
		specs["hw:numa_cpus.0"], specs["hw:numa_cpus.1"] = strconv.Itoa(int(f.VCPUs-1)), fmt.Sprintf("0-%d", f.VCPUs-2)
		specs["hw:numa_mem.0"], specs["hw:numa_mem.1"] = "512", strconv.Itoa(int(f.MemoryMB-512))
	}
	if w.nodes > 0 {
		specs["hw:numa_nodes"] = strconv.Itoa(w.nodes)
	}
	if w.devices = rapid.Int64Range(0, 2).Draw(t, "devices"); w.devices > 0 {
		w.policy = rapid.SampledFrom([]extraspecs.Affinity{extraspecs.AffinityLegacy, extraspecs.AffinityPreferred,
			extraspecs.AffinityRequired}).Draw(t, "policy")
		specs["hw:pci_numa_affinity_policy"] = string(w.policy)
		specs[rapid.SampledFrom([]string{"resources:", "resources_GPU:"}).Draw(t, "group")+gpuClass] =
			strconv.Itoa(int(w.devices))
	}
	w.flavor = cellwire.Flavor{ID: "1", Flavor: f}
	return w
}

// divisions are the ways to divide the guest, the best first: the first must be taken that fits
// anywhere.
func (w wish) divisions() [][]guestPart {
	even := func(n int64) []guestPart {
		return slices.Repeat([]guestPart{{w.flavor.VCPUs / n, w.flavor.MemoryMB / n}}, int(n))
	}
	switch {
	case w.assigned != nil:
		return [][]guestPart{w.assigned}
	case w.nodes > 0:
		return [][]guestPart{even(int64(w.nodes))}
	}
	out := [][]guestPart{even(1)}
	if w.class == "VCPU" && !w.pages && (w.devices == 0 || w.policy != extraspecs.AffinityRequired) {
		for n := int64(2); n <= 3; n++ { // no host has more cells
			if w.flavor.VCPUs%n == 0 && w.flavor.MemoryMB%n == 0 {
				out = append(out, even(n))
			}
		}
	}
	return out
}

// fits reports whether a host has the capacity for a division: an exhaustive search.
func (w wish) fits(h *numaHost, parts []guestPart) bool {
	if h.root.free["DISK_GB"] < 1 {
		return false
	}
	if len(h.cells) == 0 {
		device := w.devices == 0 || slices.ContainsFunc(h.devices,
			func(d *numaProvider) bool { return d.free[gpuClass] >= w.devices })
		return device && (w.devices == 0 || w.policy != extraspecs.AffinityRequired) &&
			h.root.free[w.class] >= w.flavor.VCPUs && h.root.free["MEMORY_MB"] >= w.flavor.MemoryMB
	}
	var place func(used []*numaProvider) bool
	place = func(used []*numaProvider) bool {
		if len(used) == len(parts) {
			return w.devices == 0 || slices.ContainsFunc(h.devices,
				func(d *numaProvider) bool { return d.free[gpuClass] >= w.devices && w.near(h, d, used) })
		}
		part := parts[len(used)]
		return slices.ContainsFunc(h.cells, func(cell *numaProvider) bool {
			room := !slices.Contains(used, cell) && cell.free[w.class] >= part.cpus &&
				cell.free["MEMORY_MB"] >= part.memory && (!w.pages || cell.free[pagesClass] >= part.memory/2)
			return room && place(append(slices.Clone(used), cell))
		})
	}
	return place(nil)
}

// near reports whether a device may be given to a guest in these cells.
func (w wish) near(h *numaHost, device *numaProvider, cells []*numaProvider) bool {
	return w.policy == extraspecs.AffinityPreferred ||
		slices.ContainsFunc(cells, func(c *numaProvider) bool { return device.parent == c.uuid }) ||
		w.policy == extraspecs.AffinityLegacy && device.parent == h.root.uuid
}

// take checks what a guest holds of a host, and takes it from the model.
func (w wish) take(t tester, h *numaHost, held wire.ProviderResources) (cells int) {
	var used []*numaProvider
	var parts []guestPart
	for uuid, classes := range held {
		p := h.providers[uuid]
		for class, amount := range classes {
			if p.free[class] -= amount; p.free[class] < 0 {
				t.Fatalf("%s has %d of %s too little", uuid, -p.free[class], class)
			}
		}
		if classes[w.class]+classes["MEMORY_MB"] > 0 {
			used = append(used, p)
			parts = append(parts, guestPart{classes[w.class], classes["MEMORY_MB"]})
			if p.cell && w.pages != (classes[pagesClass] == classes["MEMORY_MB"]/2) {
				t.Fatalf("huge pages of %v", classes)
			}
		}
	}
	if len(h.cells) == 0 {
		return 0
	}
	order := func(a, b guestPart) int { return int((a.cpus-b.cpus)*1_000_000 + a.memory - b.memory) }
	slices.SortFunc(parts, order)
	if !slices.ContainsFunc(w.divisions(), func(d []guestPart) bool {
		d = slices.SortedFunc(slices.Values(d), order)
		return slices.Equal(d, parts)
	}) {
		t.Fatalf("%+v is divided into %v", w.flavor, parts)
	}
	for _, d := range h.devices {
		if held[d.uuid][gpuClass] > 0 && !w.near(h, d, used) {
			t.Fatalf("a device is far: %v", held)
		}
	}
	return len(used)
}

// TestNUMAProperties: on whatever hosts, with NUMA cells or without, a guest gets processors and
// memory of each of its cells from one cell, and devices as the policy says; it is divided only if
// it fits into no single cell; and what is refused does not fit anywhere.
func TestNUMAProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	inMemory := dbservers.Memory(t)
	outcome := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		dir := testproc.Try(os.MkdirTemp(inMemory, "")).Or(t)
		database := "sqlite://" + filepath.Join(dir, "p.db")
		check(t, placementTemplate.Copy(database))
		server := testproc.Try(newPlacement(database)).Or(t)
		defer func() { check(t, server.Close()) }()
		at, client := placementOnly(t, server.Handler())
		at.ask(http.MethodPut, "/resource_classes/"+pagesClass, nil, nil)
		byRoot := map[string]*numaHost{}
		for n := range rapid.IntRange(1, 3).Draw(rt, "hosts") {
			h := drawHost(rt, at, n)
			byRoot[h.root.uuid] = h
		}
		for n := range rapid.IntRange(1, 6).Draw(rt, "guests") {
			w := drawWish(rt)
			found, _, err := scheduler.Ask(t.Context(), client, w.flavor)
			testproc.Checkf(rt, err, "%+v", w.flavor)
			var possible []guestPart // the first division that fits anywhere
			for _, d := range w.divisions() {
				for _, h := range byRoot {
					if possible == nil && w.fits(h, d) {
						possible = d
					}
				}
			}
			if (len(found) > 0) != (possible != nil) {
				rt.Fatalf("%+v: %d candidates, and possible is %v", w.flavor, len(found), possible)
			}
			if len(found) == 0 {
				outcome["refused"]++
				continue
			}
			for _, c := range found {
				if h := byRoot[c.Root]; h == nil {
					rt.Fatalf("a candidate of no host: %+v", c)
				}
			}
			c := rapid.SampledFrom(found).Draw(rt, "candidate")
			check(t, client.Claim(t.Context(),
				cellwire.Server{UUID: numaUUID(90000 + n), ProjectID: "p", UserID: "u"}, nil, c))
			switch cells := w.take(rt, byRoot[c.Root], c.Allocations); {
			case cells == 0:
				outcome["flat"]++
			case cells != len(possible):
				rt.Fatalf("%+v is in %d cells, and could be in %d", w.flavor, cells, len(possible))
			default:
				outcome[strings.Repeat("cell ", cells)]++
			}
		}
	})
	t.Logf("%v", outcome)
	for _, what := range []string{"refused", "flat", "cell ", "cell cell "} {
		if outcome[what] == 0 {
			t.Errorf("none was %s", what)
		}
	}
}
