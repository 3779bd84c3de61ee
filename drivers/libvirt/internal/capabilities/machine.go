// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Libvirt is a host as libvirt reports it.
type Libvirt struct {
	Caps Host
	// Online are the CPUs that are online by libvirt's CPU map; nil where the hypervisor has none:
	// then those of which it knows the core.
	Online []int
	// Devices are the node devices that are active.
	Devices []Device
}

// FromLibvirt is the host as libvirt has it. What libvirt does not report is missing: which CPUs
// are isolated, and which huge pages are free.
//
// Cost: O(CPUs + devices).
func FromLibvirt(l Libvirt) machine.Machine {
	m := machine.Machine{Arch: l.Caps.Arch}
	for _, c := range l.Caps.Cells {
		cell := machine.Cell{ID: c.ID, MemoryKiB: c.MemoryKiB, Distances: c.Distances}
		for _, p := range c.CPUs {
			online := p.Socket != Unknown
			if l.Online != nil {
				_, online = slices.BinarySearch(l.Online, p.ID)
			}
			cpu := machine.CPU{ID: p.ID, Online: online, Cell: c.ID, Package: p.Socket, Core: p.Core}
			if online {
				cell.CPUs = append(cell.CPUs, p.ID)
			} else {
				cpu.Cell, cpu.Package, cpu.Core = machine.NoCell, Unknown, Unknown
			}
			m.CPUs = append(m.CPUs, cpu)
		}
		slices.Sort(cell.CPUs)
		for _, p := range c.Pages {
			if p.SizeKiB > common(c.Pages) {
				cell.Pages = append(cell.Pages, machine.Pages{SizeKiB: p.SizeKiB, Total: p.Count})
			}
		}
		slices.SortFunc(cell.Pages, func(a, b machine.Pages) int { return int(a.SizeKiB) - int(b.SizeKiB) })
		m.Cells = append(m.Cells, cell)
	}
	slices.SortFunc(m.CPUs, func(a, b machine.CPU) int { return a.ID - b.ID })
	slices.SortFunc(m.Cells, func(a, b machine.Cell) int { return a.ID - b.ID })
	m.Devices, m.Parents = devices(l.Devices)
	return m
}

// common is the size of the pages that are not huge: the smallest, which libvirt always lists.
func common(pages []Pages) uint64 {
	smallest := uint64(math.MaxUint64)
	for _, p := range pages {
		smallest = min(smallest, p.SizeKiB)
	}
	return smallest
}

func devices(list []Device) (out []machine.Device, parents []machine.MdevParent) {
	mdevs := map[string][]machine.Mdev{}
	for _, d := range list {
		if d.Mdev != nil {
			mdevs[d.Parent] = append(mdevs[d.Parent], *d.Mdev)
		}
	}
	for _, d := range list {
		if d.PCI != nil {
			out = append(out, *d.PCI)
		}
		if d.Types == nil {
			continue
		}
		parent := machine.MdevParent{Name: d.Name, Cell: machine.NoCell, Types: d.Types, Mdevs: mdevs[d.Name]}
		if d.PCI != nil {
			parent.Address, parent.Cell = &d.PCI.Address, d.PCI.Cell
		}
		slices.SortFunc(parent.Mdevs, func(a, b machine.Mdev) int { return strings.Compare(a.UUID, b.UUID) })
		parents = append(parents, parent)
	}
	slices.SortFunc(out, func(a, b machine.Device) int { return a.Address.Compare(b.Address) })
	slices.SortFunc(parents, func(a, b machine.MdevParent) int { return strings.Compare(a.Name, b.Name) })
	return out, parents
}

// Kind is a kind of guest to ask libvirt about.
type Kind struct {
	// Emulator is the program; Arch, Machine and Type as in [Domain]. Machine is an alias that
	// stands for the newest machine type of a family (pc, q35, virt).
	Emulator, Arch, Machine, Type string
}

// Kinds are the kinds of guests that decide about traits: of the architectures that are wanted,
// with each family of machine types, run by KVM where that is possible. These are the ones that
// Nova asks about (it asks about all architectures). The order is that of the capabilities.
func (h Host) Kinds(wanted func(arch string) bool) []Kind {
	var out []Kind
	for _, g := range h.guests {
		if strings.TrimSpace(g.OSType) != "hvm" || !wanted(g.Arch.Name) {
			continue
		}
		for _, k := range kindsOf(g.Arch) {
			if !slices.Contains(out, k) {
				out = append(out, k)
			}
		}
	}
	return out
}

// kindsOf takes KVM if it is there, or else the first way to run guests. A way may have an emulator
// and machine types of its own.
func kindsOf(arch libvirtxml.CapsGuestArch) []Kind {
	if len(arch.Domains) == 0 {
		return nil
	}
	way := arch.Domains[0]
	for _, d := range arch.Domains {
		if d.Type == "kvm" {
			way = d
		}
	}
	k := Kind{Emulator: strings.TrimSpace(cmp.Or(way.Emulator, arch.Emulator)), Arch: arch.Name, Type: way.Type}
	machines := arch.Machines
	if len(way.Machines) > 0 {
		machines = way.Machines
	}
	var out []Kind
	for _, m := range machines {
		if m.Canonical != "" {
			k.Machine = strings.TrimSpace(m.Name)
			out = append(out, k)
		}
	}
	if len(out) == 0 { // no aliases: whatever libvirt takes by default
		out = append(out, k)
	}
	return out
}
