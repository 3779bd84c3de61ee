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
	h := testhost.Sample()
	h.Cells[1].MemoryKiB, h.Cells[1].HugePages = 0, nil
	h.Cells[0].Distances, h.Cells[1].Distances = []int{10, 21, 17}, []int{21, 10, 28}
	h.Cells = append(h.Cells, testhost.Cell{ID: 2, MemoryKiB: 64 << 20, Distances: []int{17, 28, 10}})
	return h
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
					"reserved_host_memory_mb": 1000})
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
