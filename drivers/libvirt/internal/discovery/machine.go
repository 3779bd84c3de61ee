// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Machine is the host in the words that the other packages have for it. The architecture is not in
// /sys: the caller knows it, by libvirt or by uname.
//
// It leaves out threads and KVM. A core's number is the kernel's, unless the kernel uses it twice
// in a package; then all cores of that package have the number of their first CPU. Parents of
// mediated devices are named as libvirt names them.
func (h Host) Machine(arch string) machine.Machine {
	m := machine.Machine{Arch: arch, Odd: h.Odd}
	ambiguous := h.ambiguousPackages()
	for _, c := range h.CPUs {
		cpu := machine.CPU{ID: c.ID, Online: c.Online,
			Isolated: c.Isolated, Cell: c.Cell, Package: c.Package, Core: c.Core}
		if c.Online && ambiguous[c.Package] {
			cpu.Core = c.Siblings[0]
		}
		m.CPUs = append(m.CPUs, cpu)
	}
	for _, c := range h.Cells {
		m.Cells = append(m.Cells, h.machineCell(c))
	}
	h.markTiers(m)
	cellOf := make(map[machine.Address]int, len(h.Devices))
	for _, d := range h.Devices {
		cellOf[d.Address] = d.Cell
	}
	m.Devices, m.Unread = h.Devices, h.Unread
	for _, p := range h.Parents {
		m.Parents = append(m.Parents, p.machine(cellOf))
	}
	return m
}

// markTiers sets the tier of the cells whose memory is not what the processors have beside them: in
// another tier than that of each cell with processors, or, where the kernel shows one tier or none,
// in a cell that has no processors. If no processors have memory, all memory is alike.
func (t Topology) markTiers(m machine.Machine) {
	tiers, near := map[int]bool{}, map[int]bool{}
	for i, c := range t.Cells {
		if m.Cells[i].MemoryKiB == 0 {
			continue
		}
		tiers[c.Tier] = true
		if !m.MemoryOnly(m.Cells[i]) {
			near[c.Tier] = true
		}
	}
	if len(near) == 0 || m.Odd != nil {
		return
	}
	delete(tiers, None)
	for i, c := range t.Cells {
		cell := &m.Cells[i]
		other := m.MemoryOnly(*cell)
		if len(tiers) > 1 && c.Tier != None {
			other = cell.MemoryKiB > 0 && !near[c.Tier]
		}
		switch {
		case !other:
		case c.Tier == None:
			cell.Tier = machine.UnknownTier
		default:
			cell.Tier = strconv.Itoa(c.Tier)
		}
	}
}

// ambiguousPackages returns the processor packages in which two cores have the same number, because
// the kernel numbers cores within dies or not at all.
func (t Topology) ambiguousPackages() map[int]bool {
	type core struct{ pkg, number int }
	first := map[core]int{}
	ambiguous := map[int]bool{}
	for _, c := range t.CPUs {
		if !c.Online {
			continue
		}
		at := core{c.Package, c.Core}
		other, known := first[at]
		if !known {
			first[at] = c.Siblings[0]
		} else if other != c.Siblings[0] {
			ambiguous[c.Package] = true
		}
	}
	return ambiguous
}

func (t Topology) machineCell(c Cell) machine.Cell {
	cell := machine.Cell{ID: c.ID, CPUs: c.CPUs, MemoryKiB: c.MemoryKiB, Pages: c.HugePages,
		Distances: make(map[int]int, len(c.Distances))}
	for i, distance := range c.Distances {
		cell.Distances[t.Cells[i].ID] = distance
	}
	return cell
}

func (p MdevParent) machine(cellOf map[machine.Address]int) machine.MdevParent {
	parent := machine.MdevParent{Name: p.nodeDevice(), Address: p.Address, Cell: machine.NoCell, Types: p.Types,
		Others: p.Others, Mdevs: p.Mdevs, Functions: p.Functions, Problem: p.Problem}
	if p.Address != nil {
		if cell, known := cellOf[*p.Address]; known {
			parent.Cell = cell
		}
	}
	return parent
}

// nodeDevice is libvirt's name: the subsystem and the kernel's name, with _ for what is neither
// letter nor digit.
func (p MdevParent) nodeDevice() string {
	if p.Address != nil {
		return p.Address.DeviceName()
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			return r
		}
		return '_'
	}, p.Subsystem+"_"+p.Name)
}
