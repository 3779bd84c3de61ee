// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"cmp"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
)

// memoryTotals compares the memory that is granted with the flavor. Where huge pages are a class of
// their own, the memory is theirs: MEMORY_MB is then granted for it too, or not at all.
func (c *chooser) memoryTotals(grantedMB int64) error {
	pages := map[uint64]int64{}
	for _, g := range append(slices.Collect(maps.Values(c.cells)), &c.root) {
		for size, n := range g.pages {
			pages[size] += n
		}
	}
	want := c.Instance.Flavor.MemoryMB
	if len(pages) == 0 {
		if grantedMB != want {
			return c.fault("it was granted %d MB of memory, and its flavor has %d", grantedMB, want)
		}
		return nil
	}
	if len(pages) > 1 {
		return c.fault("it was granted huge pages of %d sizes", len(pages))
	}
	for size, n := range pages {
		if c.specs.pageKiB != 0 && c.specs.pageKiB != size {
			return c.fault("it was granted huge pages of another size than hw:mem_page_size")
		}
		c.specs.pageKiB, c.specs.large = size, false
		if n > maxMemoryKiB/int64(size) || n*int64(size) != want*1024 || grantedMB != 0 && grantedMB != want {
			return c.fault("it was granted %d huge pages of %d KiB and %d MB of memory, and its flavor has %d MB",
				n, size, grantedMB, want)
		}
	}
	// From here on memory is what the pages are.
	for _, g := range append(slices.Collect(maps.Values(c.cells)), &c.root) {
		kib := g.pages[c.specs.pageKiB] * int64(c.specs.pageKiB)
		if g.memoryMB != 0 && g.memoryMB*1024 != kib || kib%1024 != 0 {
			return c.fault("it was granted memory and huge pages from different NUMA cells")
		}
		g.memoryMB = kib / 1024
	}
	return nil
}

const maxMemoryKiB = 1 << 40

// chooseCells finds the parts of the guest, and chooses NUMA cells for them if what is granted is
// of the root and the instance needs any.
func (c *chooser) chooseCells(*domain.Decision) error {
	huge := c.specs.pageKiB > 0 || c.specs.large
	if len(c.cells) > 0 {
		if n, wanted := len(c.cells), len(c.specs.cells); wanted > 0 && wanted != n {
			return c.fault("hw:numa_nodes is %d, and it was granted resources of %d NUMA cell(s)", wanted, n)
		}
		if huge && c.root.memoryMB > 0 {
			return c.fault("it asks for huge pages, but its memory was not granted from a NUMA cell")
		}
		if c.root.pcpu > 0 {
			return c.fault("its PCPU was not granted from a NUMA cell, but other resources were")
		}
		return c.granted(slices.Sorted(maps.Keys(c.cells)))
	}
	near := c.specs.affinity == extraspecs.AffinityRequired && len(c.devices) > 0
	if c.root.pcpu == 0 && !huge && !near && c.specs.cells == nil {
		return nil
	}
	parts := c.divide(1)
	if !c.choose(parts) {
		first := parts[0].needs()
		return c.fault("it needs %d NUMA cell(s) with %d VCPU, %d PCPU and %d MB free each, but the host has fewer",
			len(parts), first.vcpu, first.pcpu, first.memoryMB)
	}
	for _, p := range parts {
		g := p.needs()
		c.cells[p.host] = &g
	}
	c.parts, c.root = parts, grant{}
	return nil
}

// suitable are the cells that fit a part, the best first: where the devices are, then where most
// processors are free, then by number.
func (c *chooser) suitable(part grant) []int {
	held := map[int]uint64{}
	for _, d := range c.others() {
		for cell, kib := range c.host.Facts(d).MemoryKiB {
			held[cell] += kib
		}
	}
	free := map[int]int{}
	var out []int
	for _, cell := range c.Machine.Cells {
		picked, ok := c.pick(cell.ID, part.pcpu)
		switch {
		case !ok || int64(len(picked)) < part.pcpu:
		case part.vcpu > 0 && len(c.sharedIn(cell.ID)) == 0:
		case held[cell.ID]+uint64(part.memoryMB)*1024 > cell.MemoryKiB:
		case !c.hasPages(cell, uint64(part.memoryMB)*1024):
		default:
			free[cell.ID] = len(c.freeIn(cell.ID))
			out = append(out, cell.ID)
		}
	}
	slices.SortFunc(out, func(a, b int) int {
		return cmp.Or(rank(c.devices[a])-rank(c.devices[b]), cmp.Compare(free[b], free[a]), cmp.Compare(a, b))
	})
	return out
}

// hasPages reports whether a cell has free huge pages for that much memory, if they are asked for.
func (c *chooser) hasPages(cell machine.Cell, kib uint64) bool {
	if c.specs.large {
		return slices.ContainsFunc(cell.Pages, func(p machine.Pages) bool { return holds(p, kib) })
	}
	return c.specs.pageKiB == 0 || slices.ContainsFunc(cell.Pages,
		func(p machine.Pages) bool { return p.SizeKiB == c.specs.pageKiB && holds(p, kib) })
}

func holds(p machine.Pages, kib uint64) bool {
	return p.SizeKiB > 0 && kib%p.SizeKiB == 0 && p.Free >= kib/p.SizeKiB
}

// memory binds the memory to the cells that it is granted of, and chooses the size of pages.
func (c *chooser) memory(d *domain.Decision) error {
	for _, p := range c.parts {
		if !slices.ContainsFunc(c.Machine.Cells, func(m machine.Cell) bool { return m.ID == p.host }) {
			return c.fault("it was granted resources from a NUMA cell that no longer exists")
		}
		if p.memoryMB > 0 {
			d.Cells = append(d.Cells, domain.Share{Host: p.host, MemoryKiB: uint64(p.memoryMB) * 1024})
		}
	}
	if len(d.Cells) > 0 && c.root.memoryMB > 0 {
		return c.fault("part of its memory was granted from a NUMA cell, and part was not")
	}
	if c.specs.large {
		c.specs.pageKiB = c.largest(d.Cells)
	}
	if !c.specs.large && c.specs.pageKiB == 0 {
		return nil
	}
	for _, share := range d.Cells {
		if c.specs.pageKiB == 0 || !c.hasPages(c.cell(share.Host), share.MemoryKiB) {
			return c.fault("there are not enough free huge pages of the size that it asks for")
		}
	}
	if len(d.Cells) == 0 {
		return c.fault("it asks for huge pages, but its memory was not granted from a NUMA cell")
	}
	d.PageKiB = c.specs.pageKiB
	return nil
}

func (c *chooser) cell(id int) machine.Cell {
	at := slices.IndexFunc(c.Machine.Cells, func(m machine.Cell) bool { return m.ID == id })
	return c.Machine.Cells[at]
}

// largest is the largest size of pages of which all cells have enough, or 0. The sizes of a host's
// cells are the same.
func (c *chooser) largest(shares []domain.Share) uint64 {
	var best uint64
	if len(shares) == 0 {
		return 0
	}
	for _, pages := range c.cell(shares[0].Host).Pages {
		all := !slices.ContainsFunc(shares, func(s domain.Share) bool {
			return !slices.ContainsFunc(c.cell(s.Host).Pages,
				func(p machine.Pages) bool { return p.SizeKiB == pages.SizeKiB && holds(p, s.MemoryKiB) })
		})
		if all {
			best = max(best, pages.SizeKiB)
		}
	}
	return best
}
