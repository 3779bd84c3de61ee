// SPDX-License-Identifier: Apache-2.0

package testhost

import "slices"

// Grid is a regular machine: how many of each there are in one of the next.
type Grid struct {
	// Packages are sockets; each has CellsPerPackage cells or, if that is 0, shares its only cell
	// with PackagesPerCell-1 others.
	Packages, CellsPerPackage, PackagesPerCell int
	DiesPerCell, CoresPerDie, ThreadsPerCore   int
	// Interleaved numbers as most firmware does: first one thread of each core, then the others.
	// Otherwise the threads of a core are neighbours.
	Interleaved bool
	MemoryKiB   uint64 // of each cell
	HugePages   []HugePages
}

// Build makes CPUs and cells, with cells numbered from 0, at distance 10 of themselves, 12 within a
// package and 21 of others.
func (g Grid) Build() ([]CPU, []Cell) {
	perPackage := max(g.CellsPerPackage, 1)
	share := max(g.PackagesPerCell, 1)
	dies, threads := max(g.DiesPerCell, 1), max(g.ThreadsPerCore, 1)
	cores := g.Packages * perPackage * dies * g.CoresPerDie
	var cpus []CPU
	for core := range cores {
		die := core / g.CoresPerDie
		part := die / dies
		pkg := part / perPackage
		for thread := range threads {
			c := CPU{ID: core*threads + thread, Cell: part / share, Package: pkg, Die: die % (dies * perPackage),
				Core: core % (g.CoresPerDie * dies * perPackage)}
			if g.Interleaved {
				c.ID = thread*cores + core
			}
			cpus = append(cpus, c)
		}
	}
	slices.SortFunc(cpus, func(a, b CPU) int { return a.ID - b.ID })
	n := g.Packages * perPackage / share
	var cells []Cell
	for i := range n {
		c := Cell{ID: i, MemoryKiB: g.MemoryKiB, HugePages: append([]HugePages(nil), g.HugePages...)}
		for j := range n {
			switch {
			case i == j:
				c.Distances = append(c.Distances, 10)
			case i/perPackage == j/perPackage:
				c.Distances = append(c.Distances, 12)
			default:
				c.Distances = append(c.Distances, 21)
			}
		}
		cells = append(cells, c)
	}
	return cpus, cells
}
