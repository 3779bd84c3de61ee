// SPDX-License-Identifier: Apache-2.0

package hugepages

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Cell is how the memory of a NUMA cell is split.
type Cell struct {
	ID int
	// CommonKiB is the memory that is in no huge pages. MEMORY_MB of the cell is all of its memory, not this.
	CommonKiB uint64
	// Pages are the huge pages that there are, the smallest size first.
	Pages []Pages
}

// Pages are an inventory of huge pages.
type Pages struct {
	SizeKiB uint64
	// Class is [Class] of the size. Total and Reserved are in pages, and Reserved is never above Total.
	Class           string
	Total, Reserved int64
}

// Choose splits the memory of a host's cells, in the order of their numbers. Reservations that do not fit to the host come as doubts, because the
// kernel can make and give up huge pages at any time.
//
// Cost: O(cells × sizes + reservations).
func (r Reserved) Choose(m machine.Machine) ([]Cell, []machine.Doubt) {
	var cells []Cell
	var doubts []machine.Doubt
	for _, cell := range m.Cells {
		c, ok := split(cell)
		if !ok {
			doubts = append(doubts, machine.Doubtf(fmt.Sprintf("hugepages-memory-%d", cell.ID),
				"NUMA cell %d is said to have more memory in huge pages than memory (%d KiB); one of the two figures is wrong, so its MEMORY_MB or its inventory of huge pages is too large or too small", cell.ID, cell.MemoryKiB))
		}
		cells = append(cells, c)
	}
	slices.SortFunc(cells, func(a, b Cell) int { return cmp.Compare(a.ID, b.ID) })
	for _, one := range r.list {
		if d, ok := one.apply(m, cells); !ok {
			doubts = append(doubts, d)
		}
	}
	return cells, doubts
}

// split is false if the huge pages do not fit into the cell's memory.
func split(cell machine.Cell) (Cell, bool) {
	c := Cell{ID: cell.ID, CommonKiB: cell.MemoryKiB}
	fits := true
	for _, p := range cell.Pages {
		if p.Total == 0 {
			continue
		}
		c.Pages = append(c.Pages, Pages{SizeKiB: p.SizeKiB, Class: Class(p.SizeKiB), Total: int64(min(p.Total, providertree.MaxUnit))})
		high, kib := bits.Mul64(p.Total, p.SizeKiB)
		if high != 0 || kib > c.CommonKiB {
			fits, kib = false, c.CommonKiB
		}
		c.CommonKiB -= kib
	}
	slices.SortFunc(c.Pages, func(a, b Pages) int { return cmp.Compare(a.SizeKiB, b.SizeKiB) })
	return c, fits
}

// apply reserves pages of a cell; if it cannot reserve them all, ok is false.
func (r reservation) apply(m machine.Machine, cells []Cell) (d machine.Doubt, ok bool) {
	doubt := func(format string, args ...any) (machine.Doubt, bool) {
		return machine.Doubtf("hugepages-"+r.key, "%s: "+format, append([]any{r.key}, args...)...), false
	}
	i := slices.IndexFunc(cells, func(c Cell) bool { return c.ID == r.cell })
	if i < 0 {
		return doubt("the host has no NUMA cell %d", r.cell)
	}
	size := FormatSize(r.sizeKiB)
	j := slices.IndexFunc(cells[i].Pages, func(p Pages) bool { return p.SizeKiB == r.sizeKiB })
	if j < 0 {
		for _, cell := range m.Cells {
			if cell.ID == r.cell && !slices.ContainsFunc(cell.Pages, func(p machine.Pages) bool { return p.SizeKiB == r.sizeKiB }) {
				return doubt("NUMA cell %d has no huge pages of %s; for memory in common pages there is reserved_host_memory_mb", r.cell, size)
			}
		}
		if r.count == 0 {
			return machine.Doubt{}, true
		}
		return doubt("NUMA cell %d has none of the %d pages of %s", r.cell, r.count, size)
	}
	p := &cells[i].Pages[j]
	p.Reserved = min(r.count, p.Total)
	if r.count > p.Total {
		return doubt("NUMA cell %d has only %d of the %d pages of %s; all are reserved", r.cell, p.Total, r.count, size)
	}
	return machine.Doubt{}, true
}

// SplitReserved shares out reserved_host_memory_mb among cells whose MEMORY_MB totals are given, in proportion to them. The shares add up to
// it exactly, and none is above its total; more than there is in all is a [*plugins.ConfigError].
//
// Cost: O(cells log cells).
func SplitReserved(reservedMB int64, totals []int64) ([]int64, error) {
	var sum uint64
	for _, t := range totals {
		sum += uint64(max(t, 0))
	}
	if reservedMB < 0 || uint64(reservedMB) > sum {
		return nil, &plugins.ConfigError{Key: "reserved_host_memory_mb", Problem: fmt.Sprintf("reserves %d MiB, but the NUMA cells have only %d MiB", reservedMB, sum)}
	}
	shares := make([]int64, len(totals))
	if sum == 0 {
		return shares, nil
	}
	type rest struct {
		cell  int
		parts uint64 // of sum
	}
	var rests []rest
	left := reservedMB
	for i, t := range totals {
		high, low := bits.Mul64(uint64(reservedMB), uint64(max(t, 0)))
		share, parts := bits.Div64(high, low, sum) // high < sum, because reservedMB <= sum and t <= sum < 2^63
		shares[i] = int64(share)
		left -= shares[i]
		rests = append(rests, rest{i, parts})
	}
	// What is lost by cutting goes to those that lost most by it.
	slices.SortStableFunc(rests, func(a, b rest) int { return cmp.Compare(b.parts, a.parts) })
	for i := range left {
		shares[rests[i].cell]++
	}
	return shares, nil
}
