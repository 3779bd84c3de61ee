// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Host is an index of a machine, for questions about many domains.
type Host struct {
	machine machine.Machine
	cpus    map[int]machine.CPU
	mdevs   map[string]string // parent by uuid
	memory  []int             // the cells that have some
	parents map[string]int    // the cells of what makes mediated devices, by its name
	devices map[machine.Address]int
}

// NewHost returns an index of a machine.
//
// Cost: O(processors + devices + mediated devices).
func NewHost(m machine.Machine) *Host {
	h := &Host{machine: m, cpus: make(map[int]machine.CPU, len(m.CPUs)), mdevs: map[string]string{},
		parents: map[string]int{}, devices: map[machine.Address]int{}}
	for _, cpu := range m.CPUs {
		h.cpus[cpu.ID] = cpu
	}
	for _, device := range m.Devices {
		h.devices[device.Address] = device.Cell
	}
	for _, parent := range m.Parents {
		h.parents[parent.Name] = parent.Cell
		for _, mdev := range parent.Mdevs {
			h.mdevs[mdev.UUID] = parent.Name
		}
	}
	for _, cell := range m.Cells {
		if cell.MemoryKiB > 0 {
			h.memory = append(h.memory, cell.ID)
		}
	}
	return h
}

// Facts are where a domain is bound to be. What may be in several NUMA cells is bound to none.
type Facts struct {
	UUID string
	// Dedicated are the virtual processors that are pinned to a single one of the host, Floating
	// those that may run on several of one cell, by that cell. Unbound is how many may run in
	// several cells.
	Dedicated, Floating map[int]int
	Unbound             int
	// Emulator is where the emulator has a processor of the host that no virtual one has, by cell:
	// one, of a guest whose emulator's threads are isolated.
	Emulator map[int]int
	// MemoryKiB is what must come from a cell, UnboundKiB what may come from several.
	MemoryKiB  map[int]uint64
	UnboundKiB uint64
	// Mdevs are the uuids of its mediated devices, and the functions of its vGPUs, by the name of
	// their parent.
	Mdevs map[string][]string
	// Lost are the uuids of mediated devices that are not there: those of a guest that is off,
	// after the host was restarted.
	Lost []string
}

// Facts locates a domain on the host.
//
// A pin to processors that the machine does not have, or that are offline, binds to nothing. Memory
// is bound by the modes strict and restrictive; the others are wishes. Devices of which the mark
// says where they were made are where it says even if they are gone.
//
// Cost: O(length of its sets of processors).
func (h *Host) Facts(d domain.Domain) Facts {
	f := Facts{UUID: d.UUID, Dedicated: map[int]int{}, Floating: map[int]int{}, MemoryKiB: map[int]uint64{},
		Mdevs: map[string][]string{}}
	for vcpu := range d.VCPUs {
		cpus := d.CPUs(vcpu)
		switch cell := h.cellOf(cpus); {
		case cell == machine.NoCell:
			f.Unbound++
		case len(cpus) == 1:
			f.Dedicated[cell]++
		default:
			f.Floating[cell]++
		}
	}
	f.Emulator = h.emulatorOf(d)
	h.memoryOf(d, &f)
	for _, uuid := range d.Mdevs {
		if parent := h.mdevParent(d, uuid); parent != "" {
			f.Mdevs[parent] = append(f.Mdevs[parent], uuid)
		} else {
			f.Lost = append(f.Lost, uuid)
		}
	}
	for _, v := range d.VGPUs {
		f.Mdevs[v.Parent] = append(f.Mdevs[v.Parent], v.Function.String())
	}
	return f
}

// DeviceCell is the one NUMA cell that all mediated and PCI devices of a domain are in. It is
// NoCell for a domain without devices, with devices of several cells, or with a device of unknown
// cell.
func (h *Host) DeviceCell(d domain.Domain) int {
	cells := map[int]bool{}
	add := func(cell int, known bool) {
		if !known {
			cell = machine.NoCell
		}
		cells[cell] = true
	}
	addParent := func(name string) {
		cell, known := h.parents[name]
		add(cell, known)
	}
	for _, uuid := range d.Mdevs {
		addParent(h.mdevParent(d, uuid))
	}
	for _, v := range d.VGPUs {
		addParent(v.Parent)
	}
	for _, device := range d.PCI {
		cell, known := h.devices[device.Address]
		add(cell, known)
	}
	if len(cells) == 1 {
		for cell := range cells {
			return cell
		}
	}
	return machine.NoCell
}

// mdevParent is the parent of a domain's mediated device, "" if unknown.
func (h *Host) mdevParent(d domain.Domain, uuid string) string {
	if parent, there := h.mdevs[uuid]; there || d.Mark == nil {
		return parent
	}
	if at := slices.IndexFunc(d.Mark.Mdevs, func(m domain.Mdev) bool { return m.UUID == uuid }); at >= 0 {
		return d.Mark.Mdevs[at].Parent
	}
	return ""
}

// emulatorOf is the processor that the emulator has to itself, by cell.
func (h *Host) emulatorOf(d domain.Domain) map[int]int {
	if len(d.EmulatorPin) != 1 {
		return nil
	}
	for vcpu := range d.VCPUs {
		if slices.Contains(d.CPUs(vcpu), d.EmulatorPin[0]) {
			return nil
		}
	}
	if cell := h.cellOf(d.EmulatorPin); cell != machine.NoCell {
		return map[int]int{cell: 1}
	}
	return nil
}

// cellOf is the one cell that processors are in, or NoCell. Nil stands for all processors of the
// host.
func (h *Host) cellOf(cpus []int) int {
	if cpus == nil {
		if len(h.machine.Cells) == 1 {
			return h.machine.Cells[0].ID
		}
		return machine.NoCell
	}
	out := machine.NoCell
	for _, id := range cpus {
		cpu, known := h.cpus[id]
		switch {
		case !known || !cpu.Online || cpu.Cell == machine.NoCell:
		case out == machine.NoCell:
			out = cpu.Cell
		case out != cpu.Cell:
			return machine.NoCell
		}
	}
	return out
}

func (h *Host) memoryOf(d domain.Domain, f *Facts) {
	add := func(mode string, nodes []int, kib uint64) {
		if cell := h.bound(mode, nodes); cell != machine.NoCell {
			f.MemoryKiB[cell] += kib
		} else if kib > 0 {
			f.UnboundKiB += kib
		}
	}
	rest := d.MemoryKiB
	for _, cell := range d.Cells {
		mode, nodes := d.Memory.Mode, d.Memory.Nodes
		if at := slices.IndexFunc(d.Memory.Cells, func(m domain.MemNode) bool { return m.Cell == cell.ID }); at >= 0 {
			mode, nodes = d.Memory.Cells[at].Mode, d.Memory.Cells[at].Nodes
		}
		kib := min(cell.MemoryKiB, rest)
		add(mode, nodes, kib)
		rest -= kib
	}
	if rest > 0 { // all of a guest without NUMA; what was hot-plugged into one with
		add(d.Memory.Mode, d.Memory.Nodes, rest)
	}
}

// bound returns the cell that memory with a mode and a list of nodes must come from; machine.NoCell
// if it may come from several.
func (h *Host) bound(mode string, nodes []int) int {
	switch {
	case len(h.memory) == 1:
		return h.memory[0]
	case len(nodes) == 1 && (mode == "strict" || mode == "restrictive") && slices.ContainsFunc(h.machine.Cells,
		func(c machine.Cell) bool { return c.ID == nodes[0] }):
		return nodes[0]
	}
	return machine.NoCell
}

// Guest is what a domain is for [Place], given what its consumer holds of classes that go to the
// NUMA cells. Processors are where they are pinned and everything else where the memory is; a guest
// with both dedicated and floating processors holds PCPU for the first and VCPU for the others.
// What is held and what the domain has need not be the same amount: shares of the one are shares of
// the other.
func (f Facts) Guest(amounts map[string]int64) Guest {
	g := Guest{UUID: f.UUID, Amounts: amounts, Fixed: map[string]map[int]int64{}}
	for class, amount := range amounts {
		var weights map[int]uint64
		unbound := uint64(f.Unbound)
		switch class {
		case "PCPU":
			weights = f.processors(f.Dedicated, f.Floating)
			if amount == f.dedicated()+1 { // isolated emulator threads hold one more
				for cell := range f.Emulator {
					weights[cell]++
				}
			}
			if len(f.Dedicated) > 0 {
				unbound = 0
			}
		case "VCPU":
			weights = f.processors(f.Floating, f.Dedicated)
			if len(f.Floating) == 0 && unbound > 0 {
				weights = nil // the dedicated ones are held as PCPU
			}
		default:
			weights, unbound = f.MemoryKiB, f.UnboundKiB
		}
		if fixed := apportion(amount, weights, unbound); len(fixed) > 0 {
			g.Fixed[class] = fixed
		}
	}
	return g
}

// dedicated is how many virtual processors are.
func (f Facts) dedicated() (n int64) {
	for _, in := range f.Dedicated {
		n += int64(in)
	}
	return n
}

// processors converts the processors of one kind, by cell. An empty kind stands for the other one.
func (f Facts) processors(kind, other map[int]int) map[int]uint64 {
	if len(kind) == 0 {
		kind = other
	}
	out := make(map[int]uint64, len(kind))
	for cell, n := range kind {
		out[cell] = uint64(n)
	}
	return out
}
