// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Providers of the tests by number, and guests.
var (
	root                   = id(0xf0)
	cell0, cell1           = id(0xf1), id(0xf2)
	gpu0, gpu1             = id(0xf3), id(0xf4)
	nic0                   = id(0xf5)
	sev, snp               = id(0xf6), id(0xf7)
	abroad                 = id(0xff) // another owner's
	guestA, guestB, guestC = id(1), id(2), id(3)
)

// layout is inventories by provider and class.
type layout map[string]inventories

type inventories = map[string]providertree.Inventory

func (l layout) tree(t interface {
	Helper()
	Fatal(args ...any)
}) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	testproc.Check(t, tree.AddRoot(root, "cn1"))
	for uuid, inventories := range l {
		if uuid != root {
			testproc.Check(t, tree.AddChild(root, uuid, "cn1_"+uuid[34:]))
		}
		testproc.Try(tree.SetInventories(uuid, inventories)).Or(t)
	}
	return tree
}

func of(total int64) providertree.Inventory { return providertree.Inventory{Total: total} }

// providers are what those of the tests stand for, whichever of them the tree has.
func providers() map[string]assignment.Provider {
	return map[string]assignment.Provider{
		root: {}, cell0: {Kind: assignment.Cell, Cell: 0}, cell1: {Kind: assignment.Cell, Cell: 1},
		gpu0: {Kind: assignment.MdevParent, Parent: gpu(0).DeviceName(), Type: "nvidia-222", Class: "VGPU"},
		gpu1: {Kind: assignment.MdevParent, Parent: gpu(1).DeviceName(), Type: "nvidia-222", Class: "VGPU"},
		nic0: {Kind: assignment.PCI, Class: "CUSTOM_NIC",
			Devices: managed(machine.Address{Bus: nic(0).Bus, Function: 2})},
		sev:    {Kind: assignment.Encryption, Security: domain.SEV, Class: "MEM_ENCRYPTION_CONTEXT"},
		snp:    {Kind: assignment.Encryption, Security: domain.SEVSNP, Class: "MEM_ENCRYPTION_CONTEXT"},
		abroad: {Kind: assignment.Elsewhere},
	}
}

// holdings are what consumers hold, by provider and class.
type holdings map[string]allocations

func (h holdings) allocations() providertree.Allocations {
	out := providertree.Allocations{}
	for consumer, resources := range h {
		out[consumer] = providertree.ConsumerAllocations{Resources: resources}
	}
	return out
}

// pinned is a guest whose virtual processors are pinned to these, each to one, and whose memory is
// bound to these cells.
func pinned(uuid string, cells []int, cpus ...int) domain.Domain {
	d := domain.Domain{UUID: uuid, VCPUs: len(cpus), CurrentVCPUs: len(cpus), MemoryKiB: 4 << 20,
		Memory: domain.NUMATune{Mode: "strict", Nodes: cells}}
	for _, cpu := range cpus {
		d.Pins = append(d.Pins, []int{cpu})
	}
	return d
}

// floating is a guest that is bound to nothing.
func floating(uuid string, vcpus int) domain.Domain {
	return domain.Domain{UUID: uuid, VCPUs: vcpus, MemoryKiB: 4 << 20}
}

func gpus(d domain.Domain, mdevs ...string) domain.Domain {
	d.Mdevs = mdevs
	return d
}

func functions(d domain.Domain, devices ...machine.Address) domain.Domain {
	d.PCI = managed(devices...)
	return d
}

func TestReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	numa := layout{cell0: {"VCPU": of(8), "MEMORY_MB": of(16)}, cell1: {"VCPU": of(8), "MEMORY_MB": of(16)}}
	twoGPUs := layout{gpu0: {"VGPU": of(4)}, gpu1: {"VGPU": of(4)}}
	// The host has four cores in each of two cells: processors 0-3 and 8-11 are in cell 0.
	for name, c := range map[string]struct {
		to         layout
		change     func(*assignment.Reshape)
		domains    []domain.Domain
		before     holdings
		after      holdings
		renames    plugins.ClassRenames
		violations []string // consumer and class by their last digits, and words
	}{
		"a guest that is bound to nothing goes where its devices are": {
			to: numa, domains: []domain.Domain{
				gpus(floating(guestA, 2), id(0x201)),
				functions(floating(guestB, 2), machine.Address{Bus: nic(1).Bus, Function: 2}), floating(guestC, 3),
				gpus(floating(id(4), 2), id(0x101), id(0x201)), // of both: where capacity is free
			},
			before: holdings{guestA: {root: {"VCPU": 2, "MEMORY_MB": 1}}, guestB: {root: {"VCPU": 2, "MEMORY_MB": 1}},
				guestC: {root: {"VCPU": 3}}, id(4): {root: {"VCPU": 2}}},
			after: holdings{guestA: {cell1: {"VCPU": 2, "MEMORY_MB": 1}}, guestB: {cell1: {"VCPU": 2, "MEMORY_MB": 1}},
				guestC: {cell0: {"VCPU": 3}}, id(4): {cell0: {"VCPU": 2}}},
		},
		"if it fits there": {
			to: numa, domains: []domain.Domain{pinned(guestA, nil, 4, 5, 6, 7), gpus(floating(guestB, 5), id(0x201))},
			before: holdings{guestA: {root: {"VCPU": 4}}, guestB: {root: {"VCPU": 5}}},
			after:  holdings{guestA: {cell1: {"VCPU": 4}}, guestB: {cell0: {"VCPU": 5}}},
		},
		"and its memory is not bound elsewhere": {
			to: numa, domains: []domain.Domain{gpus(pinned(guestA, []int{0}), id(0x201))},
			before: holdings{guestA: {root: {"VCPU": 2, "MEMORY_MB": 4}}},
			after:  holdings{guestA: {cell0: {"VCPU": 2, "MEMORY_MB": 4}}},
		},
		"nothing moves": {
			to:     layout{root: {"VCPU": of(8), "DISK_GB": of(9)}},
			before: holdings{guestA: {root: {"VCPU": 2, "DISK_GB": 1}, abroad: {"VGPU": 1}}},
			after:  holdings{guestA: {root: {"VCPU": 2, "DISK_GB": 1}, abroad: {"VGPU": 1}}},
		},
		"VGPU of the root goes to the GPU of the domain's devices": {
			to: twoGPUs, domains: []domain.Domain{gpus(floating(guestA, 1), id(0x202)),
				gpus(floating(guestB, 1), id(0x101), id(0x201))},
			before: holdings{guestA: {root: {"VGPU": 1}}, guestB: {root: {"VGPU": 2}}},
			after:  holdings{guestA: {gpu1: {"VGPU": 1}}, guestB: {gpu0: {"VGPU": 1}, gpu1: {"VGPU": 1}}},
		},
		"the class is that of the GPU": {
			to:      layout{gpu0: {"VGPU": of(4)}, gpu1: {"CUSTOM_BIG": of(4)}},
			change:  func(r *assignment.Reshape) { r.Providers[gpu1] = withClass(r.Providers[gpu1], "CUSTOM_BIG") },
			domains: []domain.Domain{gpus(floating(guestA, 1), id(0x202), id(0x101))},
			before:  holdings{guestA: {root: {"VGPU": 2}}},
			after:   holdings{guestA: {gpu0: {"VGPU": 1}, gpu1: {"CUSTOM_BIG": 1}}},
			renames: plugins.ClassRenames{"VGPU": "CUSTOM_BIG"},
		},
		"a class can have one new name": {
			to: layout{gpu0: {"CUSTOM_SMALL": of(4)}, gpu1: {"CUSTOM_BIG": of(4)}},
			change: func(r *assignment.Reshape) {
				r.Providers[gpu0], r.Providers[gpu1] =
					withClass(r.Providers[gpu0], "CUSTOM_SMALL"), withClass(r.Providers[gpu1], "CUSTOM_BIG")
			},
			domains:    []domain.Domain{gpus(floating(guestA, 1), id(0x202)), gpus(floating(guestB, 1), id(0x101))},
			before:     holdings{guestA: {root: {"VGPU": 1}}, guestB: {root: {"VGPU": 1}}},
			after:      holdings{guestA: {gpu1: {"CUSTOM_BIG": 1}}, guestB: {root: {"VGPU": 1}}},
			renames:    plugins.ClassRenames{"VGPU": "CUSTOM_BIG"},
			violations: []string{"02 VGPU: it would hold CUSTOM_SMALL instead"},
		},
		"a GPU gets another class": {
			to:      layout{gpu0: {"CUSTOM_BIG": of(4)}, gpu1: {"VGPU": of(4)}},
			change:  func(r *assignment.Reshape) { r.Providers[gpu0] = withClass(r.Providers[gpu0], "CUSTOM_BIG") },
			before:  holdings{guestA: {gpu0: {"VGPU": 2}}, guestB: {gpu1: {"VGPU": 1}}},
			after:   holdings{guestA: {gpu0: {"CUSTOM_BIG": 2}}, guestB: {gpu1: {"VGPU": 1}}},
			renames: plugins.ClassRenames{"VGPU": "CUSTOM_BIG"},
		},
		"devices of unknown place": {
			to: twoGPUs, domains: []domain.Domain{
				gpus(floating(guestB, 1), id(0x777)), gpus(floating(guestC, 1), id(0x101), id(0x201)),
				gpus(floating(id(4), 1), id(0x101), id(0x102)), floating(id(5), 1),
			},
			before: holdings{guestA: {root: {"VGPU": 1}}, guestB: {root: {"VGPU": 1}}, guestC: {root: {"VGPU": 3}},
				id(4): {root: {"VGPU": 1}}, id(5): {root: {"VGPU": 1}}},
			after: holdings{guestA: {root: {"VGPU": 1}}, guestB: {root: {"VGPU": 1}}, guestC: {root: {"VGPU": 3}},
				id(4): {gpu0: {"VGPU": 1}}, id(5): {root: {"VGPU": 1}}},
			violations: []string{
				"01 VGPU: the host has no domain for it",
				"02 VGPU: its mediated device 00000000-0000-4000-8000-000000000777 does not exist",
				"03 VGPU: it holds 3 of VGPU, and its domain has 2 such devices, of several providers",
				"05 VGPU: it holds 1 of VGPU, but its domain has no further such device",
			},
		},
		"devices of unknown place, by guessing": {
			to:      layout{gpu0: {"VGPU": of(2)}, gpu1: {"VGPU": of(3)}},
			change:  func(r *assignment.Reshape) { r.Guess = true },
			domains: []domain.Domain{gpus(floating(guestB, 1), id(0x101))},
			before:  holdings{guestA: {root: {"VGPU": 2}}, guestB: {root: {"VGPU": 1}}, guestC: {root: {"VGPU": 3}}},
			after:   holdings{guestA: {root: {"VGPU": 2}}, guestB: {gpu0: {"VGPU": 1}}, guestC: {gpu1: {"VGPU": 3}}},
			violations: []string{
				"01 VGPU: all places together have less free than its 2 of VGPU",
			},
		},
		"the only GPU": {
			to: layout{gpu0: {"VGPU": of(4)}}, before: holdings{guestA: {root: {"VGPU": 1}}},
			after: holdings{guestA: {gpu0: {"VGPU": 1}}},
		},
		"a GPU that is not reported": {
			to: layout{gpu0: {"VGPU": of(4)}}, domains: []domain.Domain{gpus(floating(guestA, 1), id(0x201))},
			before: holdings{guestA: {root: {"VGPU": 1}}}, after: holdings{guestA: {root: {"VGPU": 1}}},
			violations: []string{"01 VGPU: its mediated device 00000000-0000-4000-8000-000000000201 is one of " +
				"pci_0000_81_00_0, which has no inventory"},
		},
		"no GPU any more": {
			to:     layout{root: {"VCPU": of(4)}},
			before: holdings{guestA: {root: {"VGPU": 1, "VCPU": 1}}, guestB: {gpu0: {"VGPU": 1}}},
			after:  holdings{guestA: {root: {"VGPU": 1, "VCPU": 1}}, guestB: {gpu0: {"VGPU": 1}}},
			violations: []string{"01 VGPU: it holds 1 of VGPU, but the new layout has no inventory",
				"02 VGPU: it holds 1 of VGPU, but the new layout has no inventory"},
		},
		"GPUs back to the root": {
			to: layout{root: {"VGPU": of(4)}}, before: holdings{guestA: {gpu0: {"VGPU": 1}, gpu1: {"VGPU": 1}}},
			after: holdings{guestA: {root: {"VGPU": 2}}},
		},
		"part of it moved before": {
			to: twoGPUs, domains: []domain.Domain{gpus(floating(guestA, 1), id(0x101), id(0x201))},
			before: holdings{guestA: {root: {"VGPU": 1}, gpu0: {"VGPU": 1}}},
			after:  holdings{guestA: {gpu0: {"VGPU": 1}, gpu1: {"VGPU": 1}}},
		},
		"more than the GPU can give": {
			to:      layout{gpu0: {"VGPU": of(1)}, gpu1: {"VGPU": of(4)}},
			domains: []domain.Domain{gpus(floating(guestA, 1), id(0x101), id(0x102))},
			before:  holdings{guestA: {root: {"VGPU": 2}}}, after: holdings{guestA: {root: {"VGPU": 2}}},
			violations: []string{"01 VGPU: 2 of VGPU are bound to resource provider cn1_f3, which has 1 free"},
		},
		"dedicated processors become PCPU, others do not": {
			to:     layout{root: {"VCPU": of(8), "PCPU": of(8)}},
			change: func(r *assignment.Reshape) { r.Dedicated = []int{4, 5, 6, 7} },
			domains: []domain.Domain{pinned(guestA, nil, 4, 5), floating(guestB, 2),
				pinned(guestC, nil, 0), pinned(id(4), nil, 6, 0)},
			before: holdings{guestA: {root: {"VCPU": 3}, abroad: {"VCPU": 2}}, guestB: {root: {"VCPU": 2}},
				guestC: {root: {"VCPU": 1}}, id(4): {root: {"VCPU": 2}}, id(5): {root: {"VCPU": 2}}},
			after: holdings{
				guestA: {root: {"PCPU": 3}, abroad: {"VCPU": 2}}, guestB: {root: {"VCPU": 2}},
				guestC: {root: {"VCPU": 1}}, id(4): {root: {"VCPU": 1, "PCPU": 1}}, id(5): {root: {"VCPU": 2}},
			},
			renames: plugins.ClassRenames{"VCPU": "PCPU"},
		},
		"PCPU without capacity, and an unexplained number": {
			to:      layout{root: {"VCPU": of(8), "PCPU": of(1)}},
			change:  func(r *assignment.Reshape) { r.Dedicated = []int{4, 5, 6, 7} },
			domains: []domain.Domain{pinned(guestA, nil, 4, 5), pinned(guestB, nil, 6, 0)},
			before: holdings{guestA: {root: {"VCPU": 2}}, guestB: {root: {"VCPU": 3}}, guestC: {cell0: {"VCPU": 3}},
				id(4): {cell0: {"VCPU": 1}}},
			after: holdings{guestA: {root: {"VCPU": 2}}, guestB: {root: {"VCPU": 3}}, guestC: {root: {"VCPU": 3}},
				id(4): {cell0: {"VCPU": 1}}},
			violations: []string{
				"01 VCPU: 2 of PCPU are bound to resource provider cn1, which has 1 free",
				"02 VCPU: 1 of its 2 virtual processors are dedicated, and it holds 3 of VCPU",
				"04 VCPU: 1 of VCPU are bound to resource provider cn1, which has 0 free",
			},
		},
		"to NUMA cells, by pins and memory, and the rest where capacity is free": {
			to: numa, domains: []domain.Domain{pinned(guestA, []int{1}, 4, 5),
				pinned(guestB, []int{0, 1}, 0, 1, 4, 5), floating(guestC, 4)},
			before: holdings{
				guestA: {root: {"VCPU": 2, "MEMORY_MB": 4}}, guestB: {root: {"VCPU": 4, "MEMORY_MB": 4}},
				guestC: {root: {"VCPU": 4, "MEMORY_MB": 4}}, id(4): {root: {"VCPU": 2, "MEMORY_MB": 8}},
			},
			after: holdings{
				guestA: {cell1: {"VCPU": 2, "MEMORY_MB": 4}},
				guestB: {cell0: {"VCPU": 2, "MEMORY_MB": 4}, cell1: {"VCPU": 2}},
				guestC: {cell0: {"VCPU": 4, "MEMORY_MB": 4}}, id(4): {cell1: {"VCPU": 2, "MEMORY_MB": 8}},
			},
		},
		"to NUMA cells and to PCPU at once": {
			to:      layout{cell0: {"VCPU": of(4), "PCPU": of(4)}, cell1: {"VCPU": of(4), "PCPU": of(4)}},
			change:  func(r *assignment.Reshape) { r.Dedicated = []int{2, 3, 6, 7} },
			domains: []domain.Domain{pinned(guestA, nil, 6, 7), pinned(guestB, nil, 2, 0)},
			before:  holdings{guestA: {root: {"VCPU": 2}}, guestB: {root: {"VCPU": 2}}},
			after:   holdings{guestA: {cell1: {"PCPU": 2}}, guestB: {cell0: {"VCPU": 1, "PCPU": 1}}},
			renames: plugins.ClassRenames{"VCPU": "PCPU"},
		},
		"more for one guest than a cell gives, and overcommitted": {
			to: layout{
				cell0: {"VCPU": {Total: 4, Reserved: 1, AllocationRatio: 4, MaxUnit: 4}},
				cell1: {"VCPU": {Total: 4, AllocationRatio: 4, MaxUnit: 4}},
			},
			before:     holdings{guestA: {root: {"VCPU": 6}}, guestB: {root: {"VCPU": 9}}},
			after:      holdings{guestA: {cell0: {"VCPU": 2}, cell1: {"VCPU": 4}}, guestB: {root: {"VCPU": 9}}},
			violations: []string{"02 VCPU: all places together have less free than its 9 of VCPU"},
		},
		"bound to a cell that has none": {
			to: layout{cell0: {"VCPU": of(8), "MEMORY_MB": of(16)},
				cell1: {"VCPU": of(8)}, root: {"MEMORY_MB": of(4)}},
			domains: []domain.Domain{pinned(guestA, []int{1}, 4)}, before: holdings{guestA: {cell1: {"MEMORY_MB": 2}}},
			after: holdings{guestA: {root: {"MEMORY_MB": 2}}},
		},
		"bound to a cell that has none, nor has the root": {
			to: layout{cell0: {"PCPU": of(8)}, cell1: {"MEMORY_MB": of(8)}, id(0xf8): {"PCPU": of(8)}},
			change: func(r *assignment.Reshape) {
				r.Providers[id(0xf8)] = assignment.Provider{Kind: assignment.Cell, Cell: 2}
			},
			domains: []domain.Domain{pinned(guestA, []int{1}, 4)},
			before:  holdings{guestA: {root: {"PCPU": 1, "MEMORY_MB": 2}}},
			after:   holdings{guestA: {root: {"PCPU": 1, "MEMORY_MB": 2}}},
			violations: []string{"01 MEMORY_MB: 1 of its PCPU are bound to NUMA cell 1, which has",
				"01 PCPU: 1 of its PCPU are bound to NUMA cell 1, which has"},
		},
		"huge pages follow the memory": {
			to:      layout{cell0: {"CUSTOM_PAGES_2M": of(8)}, cell1: {"CUSTOM_PAGES_2M": of(8)}},
			domains: []domain.Domain{pinned(guestA, []int{1}, 4)},
			before:  holdings{guestA: {root: {"CUSTOM_PAGES_2M": 2}}},
			after:   holdings{guestA: {cell1: {"CUSTOM_PAGES_2M": 2}}},
		},
		"from NUMA cells to the root": {
			to: layout{root: {"VCPU": of(8), "MEMORY_MB": of(32)}},
			before: holdings{guestA: {cell0: {"VCPU": 2, "MEMORY_MB": 4}, cell1: {"VCPU": 2, "MEMORY_MB": 4}},
				guestB: {root: {"VCPU": 1}, cell1: {"VCPU": 1}}},
			after: holdings{guestA: {root: {"VCPU": 4, "MEMORY_MB": 8}}, guestB: {root: {"VCPU": 2}}},
		},
		"a PCI device gets another class": {
			to: layout{nic0: {"CUSTOM_NIC": of(1)}}, before: holdings{guestA: {nic0: {"CUSTOM_PCI_15B3_1016": 1}}},
			after:   holdings{guestA: {nic0: {"CUSTOM_NIC": 1}}},
			renames: plugins.ClassRenames{"CUSTOM_PCI_15B3_1016": "CUSTOM_NIC"},
		},
		"a PCI device is of another provider": {
			to: layout{nic0: {"CUSTOM_NIC": of(1)}, id(0xf8): {"CUSTOM_NIC": of(1)}},
			change: func(r *assignment.Reshape) {
				r.Providers[id(0xf8)] = assignment.Provider{Kind: assignment.PCI, Class: "CUSTOM_NIC",
					Devices: managed(machine.Address{Bus: 9})}
				r.Providers[id(0xf9)] = assignment.Provider{Kind: assignment.PCI, Class: "CUSTOM_NIC"}
			},
			domains: []domain.Domain{{UUID: guestA,
				PCI: managed(machine.Address{Bus: 77}, machine.Address{Bus: nic(0).Bus, Function: 2})}},
			before: holdings{guestA: {id(0xf9): {"CUSTOM_NIC": 1}}},
			after:  holdings{guestA: {nic0: {"CUSTOM_NIC": 1}}},
		},
		"encryption contexts": {
			to: layout{sev: {"MEM_ENCRYPTION_CONTEXT": of(9)},
				snp: {"MEM_ENCRYPTION_CONTEXT": {Total: 9, MaxUnit: 1}}},
			domains: []domain.Domain{{UUID: guestA, Security: domain.SEV}, {UUID: guestB, Security: domain.SEVSNP},
				{UUID: guestC}, {UUID: id(5), Security: domain.SEVSNP}},
			before: holdings{
				guestA: {root: {"MEM_ENCRYPTION_CONTEXT": 1}}, guestB: {root: {"MEM_ENCRYPTION_CONTEXT": 1}},
				guestC: {root: {"MEM_ENCRYPTION_CONTEXT": 1}},
				id(4):  {root: {"MEM_ENCRYPTION_CONTEXT": 1}}, id(5): {root: {"MEM_ENCRYPTION_CONTEXT": 2}},
			},
			after: holdings{
				guestA: {sev: {"MEM_ENCRYPTION_CONTEXT": 1}}, guestB: {snp: {"MEM_ENCRYPTION_CONTEXT": 1}},
				guestC: {root: {"MEM_ENCRYPTION_CONTEXT": 1}},
				id(4):  {root: {"MEM_ENCRYPTION_CONTEXT": 1}}, id(5): {root: {"MEM_ENCRYPTION_CONTEXT": 2}},
			},
			violations: []string{
				"03 MEM_ENCRYPTION_CONTEXT: it holds 1 of MEM_ENCRYPTION_CONTEXT, but its domain has no further " +
					"such device",
				"04 MEM_ENCRYPTION_CONTEXT: the host has no domain for it",
				"05 MEM_ENCRYPTION_CONTEXT: 2 of MEM_ENCRYPTION_CONTEXT are bound to resource provider cn1_f7, " +
					"which gives one guest at most 1",
			},
		},
		"a guess never changes a class": {
			to:     layout{gpu0: {"CUSTOM_BIG": of(4)}, gpu1: {"VGPU": of(4)}},
			change: func(r *assignment.Reshape) { r.Providers[gpu0] = withClass(r.Providers[gpu0], "CUSTOM_BIG") },
			before: holdings{guestA: {root: {"VGPU": 1}}}, after: holdings{guestA: {gpu1: {"VGPU": 1}}},
		},
		"two classes at once": {
			to:      layout{gpu0: {"VGPU": of(4)}, gpu1: {"CUSTOM_BIG": of(4)}},
			change:  func(r *assignment.Reshape) { r.Providers[gpu1] = withClass(r.Providers[gpu1], "CUSTOM_BIG") },
			domains: []domain.Domain{gpus(floating(guestA, 1), id(0x202), id(0x101))},
			before:  holdings{guestA: {root: {"VGPU": 1, "CUSTOM_BIG": 1}}},
			after:   holdings{guestA: {gpu0: {"VGPU": 1}, gpu1: {"CUSTOM_BIG": 1}}},
		},
		"a class is renamed to one that is renamed": {
			to: layout{nic0: {"CUSTOM_NIC": of(1)}, id(0xf8): {"CUSTOM_C": of(1)}},
			change: func(r *assignment.Reshape) {
				r.Providers[id(0xf8)] = assignment.Provider{Kind: assignment.PCI, Class: "CUSTOM_C"}
			},
			before:     holdings{guestA: {nic0: {"CUSTOM_A": 1}}, guestB: {id(0xf8): {"CUSTOM_NIC": 1}}},
			after:      holdings{guestA: {nic0: {"CUSTOM_NIC": 1}}, guestB: {id(0xf8): {"CUSTOM_NIC": 1}}},
			renames:    plugins.ClassRenames{"CUSTOM_A": "CUSTOM_NIC"},
			violations: []string{"02 CUSTOM_NIC: it would hold CUSTOM_C instead"},
		},
		"a class that is renamed is the new name of another": {
			to: layout{nic0: {"CUSTOM_NIC": of(1)}, id(0xf8): {"CUSTOM_C": of(1)}},
			change: func(r *assignment.Reshape) {
				r.Providers[id(0xf8)] = assignment.Provider{Kind: assignment.PCI, Class: "CUSTOM_C"}
			},
			before:     holdings{guestA: {id(0xf8): {"CUSTOM_NIC": 1}}, guestB: {nic0: {"CUSTOM_A": 1}}},
			after:      holdings{guestA: {id(0xf8): {"CUSTOM_C": 1}}, guestB: {nic0: {"CUSTOM_A": 1}}},
			renames:    plugins.ClassRenames{"CUSTOM_NIC": "CUSTOM_C"},
			violations: []string{"02 CUSTOM_A: it would hold CUSTOM_NIC instead"},
		},
		"PCPU that is already separate": {
			to:      layout{root: {"VCPU": of(8), "PCPU": of(8)}},
			change:  func(r *assignment.Reshape) { r.Dedicated = []int{6} },
			domains: []domain.Domain{pinned(guestA, nil, 6, 0)},
			before:  holdings{guestA: {root: {"VCPU": 1, "PCPU": 1}}},
			after:   holdings{guestA: {root: {"VCPU": 1, "PCPU": 1}}},
		},
		"more than one consumer can have, with what it has": {
			to:         layout{root: {"VCPU": {Total: 9, MaxUnit: 4}}},
			before:     holdings{guestA: {root: {"VCPU": 3}, cell0: {"VCPU": 3}}},
			after:      holdings{guestA: {root: {"VCPU": 3}, cell0: {"VCPU": 3}}},
			violations: []string{"01 VCPU: it would hold 6 of VCPU of resource provider cn1"},
		},
		"part of it is in a NUMA cell already": {
			to: numa, domains: []domain.Domain{pinned(guestA, nil, 0, 1, 4, 5)},
			before: holdings{guestA: {root: {"VCPU": 1}, cell0: {"VCPU": 3}}},
			after:  holdings{guestA: {cell0: {"VCPU": 3}, cell1: {"VCPU": 1}}},
		},
		"a cell comes before the root": {
			to: layout{root: {"VCPU": of(8)}, cell0: {"VCPU": of(2)}}, domains: []domain.Domain{pinned(guestA, nil, 0)},
			before: holdings{guestA: {cell1: {"VCPU": 1}}}, after: holdings{guestA: {cell0: {"VCPU": 1}}},
		},
		"classes that the driver knows nothing about": {
			to: layout{cell0: {"CUSTOM_PMEM_A": of(2), "CUSTOM_PMEM_B": {Total: 4, MinUnit: 2}},
				cell1: {"CUSTOM_PMEM_C": of(1)}, gpu0: {"CUSTOM_PMEM_C": of(1)}},
			before: holdings{guestA: {root: {"CUSTOM_PMEM_A": 1}}, guestB: {root: {"CUSTOM_PMEM_B": 1}},
				guestC: {root: {"CUSTOM_PMEM_C": 1}}},
			after: holdings{guestA: {cell0: {"CUSTOM_PMEM_A": 1}}, guestB: {root: {"CUSTOM_PMEM_B": 1}},
				guestC: {root: {"CUSTOM_PMEM_C": 1}}},
			violations: []string{"02 CUSTOM_PMEM_B: it would hold 1 of CUSTOM_PMEM_B",
				"03 CUSTOM_PMEM_C: it holds 1 of CUSTOM_PMEM_C, but 2 resource providers have that class"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := assignment.Reshape{
				Machine: host(2, 4), Domains: c.domains,
				Allocations: c.before.allocations(), Tree: c.to.tree(t), Providers: providers(),
				Pages: map[string]uint64{"CUSTOM_PAGES_2M": 2048},
			}
			if c.change != nil {
				c.change(&r)
			}
			plan := r.Plan()
			after := testproc.Try(plan.Moves.Apply(r.Allocations)).Or(t)
			testproc.Same(t, cmp.Diff(c.after.allocations(), after))
			testproc.Same(t, cmp.Diff(c.renames, plan.Renames, cmpopts.EquateEmpty()))
			if len(plan.Violations) != len(c.violations) {
				t.Fatalf("%d violations: %q", len(plan.Violations), plan.Violations)
			}
			for i, o := range plan.Violations {
				if got := fmt.Sprintf("%s %s: %s", o.Consumer[34:], o.Class,
					o.Problem); !strings.HasPrefix(got, c.violations[i]) {
					t.Errorf("got  %s\nwant %s", got, c.violations[i])
				}
			}
		})
	}
}

func withClass(p assignment.Provider, class string) assignment.Provider {
	p.Class = class
	return p
}
