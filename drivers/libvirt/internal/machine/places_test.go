// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// grid is a machine of cells with cores of some threads; the threads of a core are far apart.
func grid(cells, cores, threads int) Machine {
	var m Machine
	for cell := range cells {
		m.Cells = append(m.Cells, Cell{ID: cell * 2})
	}
	for id := range cells * cores * threads {
		core := id % (cells * cores)
		m.CPUs = append(m.CPUs,
			CPU{ID: id, Online: true, Cell: core / cores * 2, Package: core / cores, Core: core % cores})
		m.Cells[core/cores].CPUs = append(m.Cells[core/cores].CPUs, id)
	}
	return m
}

// switched is a machine with some processors offline, as the kernel shows it: cores may be
// numbered by the first that is online.
func switched(m Machine, off map[int]bool, byFirst bool) Machine {
	out := Machine{Cells: slices.Clone(m.Cells)}
	first := map[[2]int]int{}
	for _, c := range m.CPUs {
		at := [2]int{c.Package, c.Core}
		if _, known := first[at]; !known && !off[c.ID] {
			first[at] = c.ID
		}
		switch {
		case off[c.ID]:
			c.Online, c.Package, c.Core = false, -1, -1
		case byFirst:
			c.Core = first[at]
		}
		out.CPUs = append(out.CPUs, c)
	}
	for i := range out.Cells {
		out.Cells[i].CPUs = slices.DeleteFunc(slices.Clone(out.Cells[i].CPUs), func(cpu int) bool { return off[cpu] })
	}
	return out
}

// TestPlacesAreRemembered: once all processors were seen, in whatever groups, it makes no
// difference which of a set are offline.
func TestPlacesAreRemembered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		whole := grid(rapid.IntRange(1, 3).Draw(t, "cells"), rapid.IntRange(1, 3).Draw(t, "cores"),
			rapid.IntRange(1, 3).Draw(t, "threads"))
		var set []int
		for _, c := range whole.CPUs[1:] {
			if rapid.Bool().Draw(t, "managed") {
				set = append(set, c.ID)
			}
		}
		state := func() Machine {
			off := map[int]bool{}
			for _, cpu := range set {
				off[cpu] = rapid.Bool().Draw(t, "off")
			}
			return switched(whole, off, rapid.Bool().Draw(t, "by first"))
		}
		var p Places
		if rapid.Bool().Draw(t, "some are seen before") {
			p.Observe(state())
		}
		if unseen := p.Unseen(whole, set); len(unseen) > 0 {
			t.Fatalf("%v are online", unseen)
		}
		p.Observe(whole)
		want := p.Count(whole, set)
		for range 3 {
			m := state()
			p.Observe(m)
			if unseen := p.Unseen(m, set); len(unseen) > 0 {
				t.Fatalf("%v were seen", unseen)
			}
			if diff := cmp.Diff(want, p.Count(m, set)); diff != "" {
				t.Fatal(diff)
			}
		}
		for _, c := range want.CPUs { // the cores are the same as the kernel's
			for _, other := range want.CPUs {
				a, b := whole.CPUs[c.ID], whole.CPUs[other.ID]
				if (c.Package == other.Package &&
					c.Core == other.Core) != (a.Package == b.Package && a.Core == b.Core) {
					t.Fatalf("CPUs %d and %d: %+v, %+v", c.ID, other.ID, c, other)
				}
			}
		}
	})
}

// TestUnseenPlaces: of processors that were never online only the cell is known, if the kernel
// tells it.
func TestUnseenPlaces(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	whole := grid(2, 2, 2)
	m := switched(whole, map[int]bool{4: true, 6: true, 7: true}, false)
	m.CPUs[7].Cell = NoCell
	var p Places
	p.Observe(m)
	set := []int{4, 5, 6, 7}
	testproc.Same(t, cmp.Diff([]int{4, 6, 7}, p.Unseen(m, set)))
	got := p.Count(m, set)
	want := slices.Clone(m.CPUs)
	want[0].Core, want[1].Core, want[2].Core, want[3].Core, want[5].Core = 0, 1, 2, 3, 1
	want[4] = CPU{ID: 4, Online: true, Cell: 0, Package: -1, Core: 4}
	want[6] = CPU{ID: 6, Online: true, Cell: 2, Package: -1, Core: 6}
	testproc.Same(t, cmp.Diff(want, got.CPUs))
	testproc.Same(t, cmp.Diff([]Cell{{ID: 0, CPUs: []int{0, 1, 4, 5}}, {ID: 2, CPUs: []int{2, 3, 6}}}, got.Cells))
	testproc.Same(t, cmp.Diff([]Cell{{ID: 0, CPUs: []int{0, 1}}, {ID: 2, CPUs: []int{2, 3}}}, got.Without(set).Cells))
	one := switched(grid(1, 2, 1), map[int]bool{1: true}, false)
	one.CPUs[1].Cell = NoCell
	var fresh Places
	if got := fresh.Count(one, []int{1}); !got.CPUs[1].Online || got.CPUs[1].Cell != 0 {
		t.Errorf("there is only one cell: %+v", got.CPUs[1])
	}
}
