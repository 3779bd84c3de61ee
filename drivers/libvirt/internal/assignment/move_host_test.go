// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// moveID is a uuid by number.
func moveID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

const threads = 4 // processors of a cell

// Providers: the root, a cell and a GPU of each number, and others. Guests have numbers of their
// own.
var (
	moveRoot                   = moveID(0xf00)
	nicProvider                = moveID(0xf01)
	sevProvider, sevESProvider = moveID(0xf02), moveID(0xf03)
	otherHost                  = moveID(0xf04) // another host's
	unmanaged                  = moveID(0xf05) // an unmanaged child of the root
	shared                     = moveID(0xf06) // a sharing provider
	aggregate                  = moveID(0xf07)
)

func cell(n int) string        { return moveID(0xc00 + n) }
func gpuProvider(n int) string { return moveID(0xa00 + n) }
func vm(n int) string          { return moveID(n) }

// mdev is a mediated device of the GPU in a cell.
func mdev(cell, n int) string { return moveID(0x10000 + 0x100*cell + n) }

func parent(cell int) machine.Address { return machine.Address{Bus: uint8(0x80 + cell)} }

// moveHost has processors 4n to 4n+3, 16 GiB and a GPU in each cell n.
func moveHost(cells int) machine.Machine {
	m := machine.Machine{Arch: "x86_64"}
	for n := range cells {
		c := machine.Cell{ID: n, MemoryKiB: 16 << 20}
		for cpu := n * threads; cpu < (n+1)*threads; cpu++ {
			m.CPUs = append(m.CPUs, machine.CPU{ID: cpu, Online: true, Cell: n, Package: n, Core: cpu % threads})
			c.CPUs = append(c.CPUs, cpu)
		}
		m.Cells = append(m.Cells, c)
		at := parent(n)
		p := machine.MdevParent{Name: at.DeviceName(),
			Address: &at, Cell: n, Types: []machine.MdevType{{ID: "nvidia-222", API: "vfio-pci"}}}
		for i := range 4 {
			p.Mdevs = append(p.Mdevs, machine.Mdev{UUID: mdev(n, i), Type: "nvidia-222", Active: true})
		}
		m.Parents = append(m.Parents, p)
	}
	return m
}

// sites are what all providers of the tests stand for that are the driver's.
func sites(cells int) map[string]assignment.Provider {
	out := map[string]assignment.Provider{
		moveRoot:      {Kind: assignment.Root},
		nicProvider:   {Kind: assignment.PCI, Devices: managed(machine.Address{Bus: 6})},
		sevProvider:   {Kind: assignment.Encryption},
		sevESProvider: {Kind: assignment.Encryption, Security: domain.SEVES}, unmanaged: {Kind: assignment.Elsewhere},
	}
	for n := range cells {
		out[cell(n)] = assignment.Provider{Kind: assignment.Cell, Cell: n}
		out[gpuProvider(n)] = assignment.Provider{Kind: assignment.MdevParent,
			Parent: parent(n).DeviceName(), Type: "nvidia-222"}
	}
	return out
}

// totals are those by provider and class.
type totals providertree.ProviderResources

var names = map[string]string{sevProvider: "cn1_amd_sev",
	sevESProvider: "cn1_amd_sev_es", nicProvider: "cn1_0000:06:00.0", unmanaged: "theirs"}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// tree makes providers and their inventory.
func (t totals) tree() *providertree.Tree {
	tree := &providertree.Tree{}
	must(0, tree.AddRoot(moveRoot, "cn1"))
	must(tree.AddAggregates(moveRoot, aggregate))
	for _, uuid := range slices.Sorted(maps.Keys(t)) {
		switch name := names[uuid]; {
		case uuid == moveRoot:
		case uuid == shared:
			must(0, tree.AddRoot(shared, "nfs"))
			must(tree.AddAggregates(shared, aggregate))
			must(tree.AddTraits(shared, providertree.TraitSharesViaAggregate))
		case name != "":
			must(0, tree.AddChild(moveRoot, uuid, name))
		default:
			must(0, tree.AddChild(moveRoot, uuid, "cn1_"+uuid[33:]))
		}
		for class, total := range t[uuid] {
			must(tree.SetInventory(uuid, class, providertree.Inventory{Total: total, MaxUnit: total}))
		}
	}
	return tree
}

func at(provider, class string) plugins.Place { return plugins.Place{Provider: provider, Class: class} }

// held is what consumers hold.
type held map[string]providertree.ProviderResources

func (h held) allocations() providertree.Allocations {
	out := providertree.Allocations{}
	for consumer, resources := range h {
		out[consumer] = providertree.ConsumerAllocations{Resources: resources, ProjectID: "p", UserID: "u"}
	}
	return out.Clone()
}

// guest is a domain that is bound to nothing.
func guest(n, vcpus int) domain.Domain {
	return domain.Domain{UUID: vm(n), VCPUs: vcpus, CurrentVCPUs: vcpus, MemoryKiB: 1 << 20}
}

// on pins a guest to processors, each virtual one to one, and its memory to cells.
func on(d domain.Domain, cells []int, cpus ...int) domain.Domain {
	for _, cpu := range cpus {
		d.Pins = append(d.Pins, []int{cpu})
	}
	d.Memory = domain.NUMATune{Mode: "strict", Nodes: cells}
	return d
}

// emulated gives the emulator a processor of its own.
func emulated(d domain.Domain, cpu int) domain.Domain {
	d.EmulatorPin = []int{cpu}
	return d
}

// in lets a guest float in one cell, and binds its memory to it.
func in(d domain.Domain, cell int) domain.Domain {
	for cpu := cell * threads; cpu < (cell+1)*threads; cpu++ {
		d.CPUSet = append(d.CPUSet, cpu)
	}
	d.Memory = domain.NUMATune{Mode: "strict", Nodes: []int{cell}}
	return d
}

func with(d domain.Domain, mdevs ...string) domain.Domain {
	d.Mdevs = mdevs
	return d
}

func sealed(d domain.Domain, kind domain.Security) domain.Domain {
	d.Security = kind
	return d
}

// flatToNested is a request in which all computing leaves the root for the cells of a host.
func flatToNested(cells int, vcpu, memory int64) assignment.MoveRequest {
	s := totals{moveRoot: {"DISK_GB": 1000}}
	for n := range cells {
		s[cell(n)] = map[string]int64{"VCPU": vcpu, "PCPU": vcpu, "MEMORY_MB": memory, "CUSTOM_HUGEPAGES_2M": 512}
	}
	r := assignment.MoveRequest{Tree: s.tree(), Root: moveRoot, Sites: sites(cells), Machine: moveHost(cells)}
	for _, class := range computing {
		r.Moving = append(r.Moving, at(moveRoot, class))
	}
	return r
}

// back is the request for the way back.
func back(r assignment.MoveRequest, after assignment.MoveResult, vcpu, memory int64) assignment.MoveRequest {
	cells := int64(len(r.Machine.Cells))
	s := totals{moveRoot: {"DISK_GB": 1000, "VCPU": vcpu * cells, "PCPU": vcpu * cells, "MEMORY_MB": memory * cells,
		"CUSTOM_HUGEPAGES_2M": 512 * cells}}
	out := r
	out.Moving = nil
	for n := range r.Machine.Cells {
		s[cell(n)] = nil
		for _, class := range computing {
			out.Moving = append(out.Moving, at(cell(n), class))
		}
	}
	out.Tree, out.Allocations = s.tree(), after.Allocations
	return out
}

var computing = []string{"VCPU", "PCPU", "MEMORY_MB", "CUSTOM_HUGEPAGES_2M"}
