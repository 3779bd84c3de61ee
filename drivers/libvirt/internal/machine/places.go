// SPDX-License-Identifier: Apache-2.0

package machine

import (
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
