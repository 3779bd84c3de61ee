// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
	"maps"
	"slices"
)

// Places remembers where processors are, as seen while they were online: the kernel tells the cell
// of an offline processor, but not its core. The zero value has seen nothing.
type Places struct{ seen map[int]place }

type place struct {
	cell, pkg int
	// siblings are the processors of its core that were online together with it, with itself.
	siblings map[int]bool
}

// Observe records the processors that are online.
//
// Cost: O(CPUs).
func (p *Places) Observe(m Machine) {
	type core struct{ pkg, number int }
	cores := map[core][]int{}
	for _, c := range m.CPUs {
		if c.Online {
			at := core{c.Package, c.Core}
			cores[at] = append(cores[at], c.ID)
		}
	}
	if p.seen == nil {
		p.seen = map[int]place{}
	}
	for _, c := range m.CPUs {
		if !c.Online {
			continue
		}
		now := place{cell: c.Cell, pkg: c.Package, siblings: maps.Clone(p.seen[c.ID].siblings)}
		if now.siblings == nil {
			now.siblings = map[int]bool{}
		}
		for _, sibling := range cores[core{c.Package, c.Core}] {
			now.siblings[sibling] = true
		}
		p.seen[c.ID] = now
	}
}

// Unseen are the processors of a set that are offline and were never seen online.
func (p *Places) Unseen(m Machine, set []int) (out []int) {
	in := SetOf(set)
	for _, c := range m.CPUs {
		if _, seen := p.seen[c.ID]; !seen && !c.Online && in[c.ID] {
			out = append(out, c.ID)
		}
	}
	return out
}

// Count returns the machine with the processors of a set as if they were online: those that can be
// switched on. One whose cell is unknown stays offline; one whose core is unknown has a core of its
// own. Cores have the number of their first processor, which does not change when others go off.
//
// Cost: O(CPUs log CPUs).
func (p *Places) Count(m Machine, set []int) Machine {
	in, at := SetOf(set), map[int]int{}
	m.CPUs, m.Cells = slices.Clone(m.CPUs), slices.Clone(m.Cells)
	for i := range m.Cells {
		at[m.Cells[i].ID] = i
		m.Cells[i].CPUs = slices.Clone(m.Cells[i].CPUs)
	}
	for i := range m.CPUs {
		c := &m.CPUs[i]
		was, seen := p.seen[c.ID]
		if seen {
			c.Core = p.core(c.ID)
		}
		if c.Online || !in[c.ID] {
			continue
		}
		switch {
		case seen:
			c.Cell, c.Package = was.cell, was.pkg
		case c.Cell == NoCell && len(m.Cells) == 1:
			c.Cell, c.Core = m.Cells[0].ID, c.ID
		default:
			c.Core = c.ID
		}
		cell, there := at[c.Cell]
		if !there {
			c.Cell, c.Package, c.Core = NoCell, NoCell, NoCell
			continue
		}
		c.Online = true
		m.Cells[cell].CPUs = append(m.Cells[cell].CPUs, c.ID)
	}
	for i := range m.Cells {
		slices.Sort(m.Cells[i].CPUs)
	}
	return m
}

// Without returns the machine with cells that do not have the processors of a set.
func (m Machine) Without(set []int) Machine {
	in := SetOf(set)
	m.Cells = slices.Clone(m.Cells)
	for i := range m.Cells {
		m.Cells[i].CPUs = slices.DeleteFunc(slices.Clone(m.Cells[i].CPUs), func(cpu int) bool { return in[cpu] })
	}
	return m
}

// WithoutCells returns the machine without some of its NUMA cells: without their processors too.
// Devices keep the number of their cell.
func (m Machine) WithoutCells(ids []int) Machine {
	in := SetOf(ids)
	m.Cells = slices.DeleteFunc(slices.Clone(m.Cells), func(c Cell) bool { return in[c.ID] })
	m.CPUs = slices.DeleteFunc(slices.Clone(m.CPUs), func(c CPU) bool { return in[c.Cell] })
	return m
}

// MemoryOnly reports whether a cell has memory and no processors, not even offline ones.
func (m Machine) MemoryOnly(c Cell) bool {
	return c.MemoryKiB > 0 && m.Odd == nil && len(c.CPUs) == 0 &&
		!slices.ContainsFunc(m.CPUs, func(cpu CPU) bool { return cpu.Cell == c.ID })
}

// PartialCells describes the NUMA cells that have only processors, or only memory.
func (m Machine) PartialCells() []Discrepancy {
	var cells []string
	for _, c := range m.Cells {
		switch {
		case m.MemoryOnly(c):
			cells = append(cells, fmt.Sprintf("%d has memory only (%d MiB)", c.ID, c.MemoryKiB>>10))
		case len(c.CPUs) > 0 && c.MemoryKiB == 0:
			cells = append(cells, fmt.Sprintf("%d has CPUs only (%s)", c.ID, FormatCPUs(c.CPUs)))
		}
	}
	if len(cells) == 0 {
		return nil
	}
	return []Discrepancy{Discrepancyf("numa-partial",
		"NUMA cells that are not whole: %s. numa_ignore_cells leaves out those that guests should not use",
		JoinSome(cells))}
}

// SetOf returns the members of a list as a set.
func SetOf[T comparable](list []T) map[T]bool {
	set := make(map[T]bool, len(list))
	for _, one := range list {
		set[one] = true
	}
	return set
}

// core is the first processor of a core.
func (p *Places) core(id int) int {
	for {
		first := slices.Min(slices.Collect(maps.Keys(p.seen[id].siblings)))
		if first == id {
			return id
		}
		id = first
	}
}
