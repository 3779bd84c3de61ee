// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// partialCells is a host whose cell 1 has no memory, and whose cell 2 has no CPUs.
func partialCells() testhost.Host {
	h := withMemoryCell(testhost.Sample(), 0)
	h.Cells[1].MemoryKiB, h.Cells[1].HugePages = 0, nil
	return h
}

// withMemoryCell is a host with one more cell, which has 64 GiB of memory only, in a tier (0: the
// kernel shows none; the others are in tier 4).
func withMemoryCell(h testhost.Host, tier int) testhost.Host {
	h.Cells = slices.Clone(h.Cells)
	last := testhost.Cell{ID: len(h.Cells), MemoryKiB: 64 << 20, Tier: tier}
	for i := range h.Cells {
		h.Cells[i].Distances = append(slices.Clone(h.Cells[i].Distances), 17)
		last.Distances = append(last.Distances, 17)
		if tier > 0 {
			h.Cells[i].Tier = 4
		}
	}
	last.Distances = append(last.Distances, 10)
	h.Cells = append(h.Cells, last)
	return h
}

// TestMemoryTiers: memory of another tier than the processors' has a trait on its cell, and is part
// of a flat tree's memory only if that is configured. Which memory that is the kernel says, or else
// a cell without CPUs is taken for it.
func TestMemoryTiers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	offline := testhost.Sample()
	for i := range offline.CPUs {
		offline.CPUs[i].Offline = offline.CPUs[i].Cell == 1
	}
	fast := withMemoryCell(testhost.Sample(), 2)
	fast.Cells[1].Tier = 5
	untold := withMemoryCell(testhost.Sample(), 0)
	noNear := withMemoryCell(testhost.Sample(), 0)
	for i := range 2 {
		noNear.Cells[i].MemoryKiB, noNear.Cells[i].HugePages = 0, nil
	}
	for name, tc := range map[string]struct {
		host  testhost.Host
		trait string
		mb    int64 // in a flat tree
	}{
		"another tier":                     {withMemoryCell(testhost.Sample(), 5), "CUSTOM_MEMORY_TIER_5", 32 << 10},
		"a faster tier, two of processors": {fast, "CUSTOM_MEMORY_TIER_2", 32 << 10},
		"the same tier":                    {withMemoryCell(testhost.Sample(), 4), "CUSTOM_MEMORY_TIER_4", 32 << 10},
		"a kernel without tiers":           {untold, "CUSTOM_MEMORY_TIER_UNKNOWN", 32 << 10},
		"no cell without CPUs":             {testhost.Sample(), "", 32 << 10},
		"a cell whose CPUs are offline":    {offline, "", 32 << 10},
		"no memory in cells with CPUs":     {noNear, "", 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tc.host, newDaemon(t, tc.host).open, nil)
			tree := newTree(t)
			all := int64(tc.host.MemoryKiB() >> 10)
			for _, inRoot := range []bool{false, true, false} {
				want := tc.mb
				if inRoot {
					want = all
				}
				testproc.Check(t, r.configure(map[string]any{"memory_tiers_in_root": inRoot}))
				if got := r.mustPass(tree).Inventories["MEMORY_MB"]; got.Total != want || got.MaxUnit != want {
					t.Errorf("in the root %v: %+v, want %d", inRoot, got, want)
				}
				warned := slices.ContainsFunc(r.Warnings(),
					func(w plugins.Warning) bool { return w.Name == "memory-tiers" })
				if warned != (want < all) {
					t.Errorf("in the root %v: %+v", inRoot, r.Warnings())
				}
			}

			testproc.Check(t, r.configure(map[string]any{"numa": "nested"}))
			nested := newTree(t)
			r.mustPass(nested)
			var mb int64
			for p := range nested.All() {
				mb += p.Inventories["MEMORY_MB"].Total
				for _, trait := range p.Traits {
					if strings.HasPrefix(trait, "CUSTOM_MEMORY_TIER_") &&
						(p.Name != nodeName+"_numa_2" || trait != tc.trait) {
						t.Errorf("%s has %s, want %s of the last cell", p.Name, trait, tc.trait)
					}
				}
			}
			last, _ := nested.ProviderByName(nodeName + "_numa_2")
			if mb != all || tc.trait != "" && !nested.HasTraits(last.UUID, tc.trait) {
				t.Errorf("%d MEMORY_MB, %+v, want %d and %s", mb, last, all, tc.trait)
			}

			if tc.trait != "" { // it is of the same tier now, and the trait goes
				testproc.Try(nested.AddTraits(last.UUID, "CUSTOM_MEMORY_TIER_9", "CUSTOM_MEMORY")).Or(t)
				r.mustPass(nested)
				last, _ = nested.ProviderByName(nodeName + "_numa_2")
				if !slices.Equal(last.Traits, []string{"CUSTOM_MEMORY", tc.trait, "HW_NUMA_ROOT"}) {
					t.Errorf("%v", last.Traits)
				}
			}
		})
	}
}

// TestBrokenMemoryTiers: the kernel's list of a tier is read as strictly as what else it says of
// memory.
func TestBrokenMemoryTiers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := withMemoryCell(testhost.Sample(), 5)
	r := newRig(t, h, newDaemon(t, h).open, nil)
	const file = "sys/devices/virtual/memory_tiering/memory_tier5/nodelist"
	testproc.Check(t, testhost.Text("", file, "two\n").Apply(testhost.Tree(r.chroot)))
	if err := r.refused(newTree(t)); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v, want one that names %s", err, file)
	}
}

// TestIgnoredCells: cells that have only CPUs or only memory are a warning that says which they
// are, and those that are ignored are not in the tree, with what they have. What is reserved for
// the host is in cells with CPUs.
func TestIgnoredCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const both, memory, cpus = "1 has CPUs only (4-7,12-15), 2 has memory only (65536 MiB)",
		"2 has memory only (65536 MiB)", "1 has CPUs only (4-7,12-15)"
	for _, tc := range []struct {
		ignore []int
		warns  string
		vcpus  int64
		mb     int64
		cells  []int
	}{
		{nil, both, 16, 80 << 10, []int{0, 1, 2}},
		{[]int{2}, cpus, 16, 16 << 10, []int{0, 1}},
		{[]int{1}, memory, 8, 80 << 10, []int{0, 2}},
		{[]int{1, 2}, "", 8, 16 << 10, []int{0}},
	} {
		for _, layout := range []string{"flat", "nested"} {
			t.Run(fmt.Sprint(tc.ignore, " ", layout), func(t *testing.T) {
				h := partialCells()
				r := newRig(t, h, newDaemon(t, h).open, map[string]any{"numa": layout, "numa_ignore_cells": tc.ignore,
					"reserved_host_memory_mb": 1000, "memory_tiers_in_root": true})
				tree := newTree(t)
				r.mustPass(tree)
				var vcpus, mb, reserved int64
				var cells []int
				for p := range tree.All() {
					vcpus += p.Inventories["VCPU"].Total
					mb += p.Inventories["MEMORY_MB"].Total
					reserved += p.Inventories["MEMORY_MB"].Reserved
					for id := range 3 {
						if p.Name == fmt.Sprintf("%s_numa_%d", nodeName, id) {
							cells = append(cells, id)
						}
					}
					if p.Name == nodeName+"_numa_0" && p.Inventories["MEMORY_MB"].Reserved != 1000 {
						t.Errorf("%+v: the memory of the host is where its CPUs are", p.Inventories["MEMORY_MB"])
					}
				}
				slices.Sort(cells)
				want := tc.cells
				if layout == "flat" {
					want = nil
				}
				if vcpus != tc.vcpus || mb != tc.mb || reserved != 1000 || !slices.Equal(cells, want) {
					t.Errorf("%d VCPU, %d MEMORY_MB, %d reserved, cells %v", vcpus, mb, reserved, cells)
				}
				text := ""
				for _, w := range r.Warnings() {
					if w.Name == "numa-partial" {
						text = w.Text
					} else {
						t.Errorf("%+v", w)
					}
				}
				if !strings.Contains(text, tc.warns) || (text == "") != (tc.warns == "") {
					t.Errorf("%q, want %q", text, tc.warns)
				}
			})
		}
	}
}

// TestIgnoredCellsThatDoNotFit: a cell that the host does not have is a warning; CPUs of an ignored
// cell in a set, and no cell that is left, are errors of the key.
func TestIgnoredCellsThatDoNotFit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := testhost.Sample()
	r := newRig(t, h, newDaemon(t, h).open, map[string]any{"numa_ignore_cells": []int{7}})
	r.mustPass(newTree(t))
	if w := r.Warnings(); len(w) != 1 || w[0].Name != "numa-ignore" || !strings.Contains(w[0].Text, "7") {
		t.Errorf("%+v", w)
	}
	for key, config := range map[string]map[string]any{
		"cpu_shared_set":    {"numa_ignore_cells": []int{1}, "cpu_shared_set": "0-4"},
		"cpu_dedicated_set": {"numa_ignore_cells": []int{1}, "cpu_dedicated_set": "0-3,12"},
		"numa_ignore_cells": {"numa_ignore_cells": []int{0, 1}},
	} {
		testproc.Check(t, r.configure(config))
		var wrong *plugins.ConfigError
		if err := r.refused(newTree(t)); !errors.As(err, &wrong) || wrong.Key != key {
			t.Errorf("%v, want an error of %s", err, key)
		}
	}
}
