// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMoving: which places must be emptied before inventory can go.
func TestMoving(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	set := func(uuid, class string, inv providertree.Inventory) func(*testing.T, *providertree.Tree) {
		return func(t *testing.T, tree *providertree.Tree) {
			testproc.Try(tree.SetInventory(uuid, class, inv)).Or(t)
		}
	}
	nest := func(t *testing.T, tree *providertree.Tree) {
		must(t, want(t, twoSockets(t), nestedSettings()).Put(tree, root))
	}
	without := func(classes ...string) func(*testing.T, *providertree.Tree) {
		return func(t *testing.T, tree *providertree.Tree) {
			for _, class := range classes {
				testproc.Try(tree.RemoveInventory(root, class)).Or(t)
			}
		}
	}
	for name, c := range map[string]struct {
		nested bool
		host   func(h *inventory.Host)
		tree   []func(t *testing.T, tree *providertree.Tree)
		want   []string // "provider class"
	}{
		"nothing, of Nova's tree": {},
		"the root's, to the cells": {
			nested: true, want: []string{"cn1 MEMORY_MB", "cn1 PCPU", "cn1 VCPU"},
		},
		"the cells', to the root": {
			tree: []func(*testing.T, *providertree.Tree){nest},
			want: []string{
				"cn1_numa_0 CUSTOM_HUGEPAGES_2M", "cn1_numa_0 MEMORY_MB", "cn1_numa_0 PCPU", "cn1_numa_0 VCPU",
				"cn1_numa_1 CUSTOM_HUGEPAGES_1G", "cn1_numa_1 MEMORY_MB", "cn1_numa_1 PCPU", "cn1_numa_1 VCPU",
			},
		},
		"huge pages of the root, to the cells": {
			nested: true,
			tree: []func(*testing.T, *providertree.Tree){set(root,
				"CUSTOM_HUGEPAGES_2M", providertree.Inventory{Total: 9}),
				set(root, "CUSTOM_HUGEPAGES_64K", providertree.Inventory{Total: 9})},
			want: []string{"cn1 CUSTOM_HUGEPAGES_2M", "cn1 MEMORY_MB", "cn1 PCPU", "cn1 VCPU"},
		},
		"VGPU of the root, to GPUs of whatever class": {
			host: func(h *inventory.Host) { h.Mdevs = h.Mdevs[1:] },
			tree: []func(*testing.T, *providertree.Tree){set(root, "VGPU", providertree.Inventory{Total: 5})},
			want: []string{"cn1 VGPU"},
		},
		"VGPU of the root, when there are none any more: not moving": {
			host: func(h *inventory.Host) { h.Mdevs = nil },
			tree: []func(*testing.T, *providertree.Tree){set(root, "VGPU", providertree.Inventory{Total: 5})},
		},
		"contexts of the root, to their kinds": {
			tree: []func(*testing.T, *providertree.Tree){set(root,
				"MEM_ENCRYPTION_CONTEXT", providertree.Inventory{Total: 15})},
			want: []string{"cn1 MEM_ENCRYPTION_CONTEXT"},
		},
		"contexts of the root, when there are none any more: not moving": {
			host: func(h *inventory.Host) { h.Encryption = nil },
			tree: []func(*testing.T, *providertree.Tree){set(root,
				"MEM_ENCRYPTION_CONTEXT", providertree.Inventory{Total: 15})},
		},
		"a GPU of another class": {
			host: func(h *inventory.Host) { h.Mdevs[0].Class = "CUSTOM_SMALL" },
			want: []string{"cn1_pci_0000_3b_00_0 VGPU"},
		},
		"a GPU whose custom class is no longer configured": {
			host: func(h *inventory.Host) { h.Mdevs[1].Class = "VGPU" },
			want: []string{"cn1_pci_0000_82_00_0 CUSTOM_BIG"},
		},
		"a PCI device of another class": {
			host: func(h *inventory.Host) { h.PCI[0].Class = "CUSTOM_NIC" },
			want: []string{"cn1_0000:86:00.0 CUSTOM_PCI_15B3_1016"},
		},
		"another class, of which an administrator has one on the device too": {
			host: func(h *inventory.Host) { h.PCI[0].Class = "CUSTOM_NIC" },
			tree: []func(*testing.T, *providertree.Tree){set(novaNIC,
				"CUSTOM_PORTS", providertree.Inventory{Total: 2})},
			want: []string{"cn1_0000:86:00.0 CUSTOM_PCI_15B3_1016"},
		},
		"VCPU, when PCPU comes": {
			tree: []func(*testing.T, *providertree.Tree){without("PCPU")},
			want: []string{"cn1 VCPU"},
		},
		"VCPU, when PCPU comes to cells": {
			nested: true, tree: []func(*testing.T, *providertree.Tree){nest,
				func(t *testing.T, tree *providertree.Tree) {
					for _, cell := range []string{"cn1_numa_0", "cn1_numa_1"} {
						testproc.Try(tree.RemoveInventory(uuidOf(t, tree, cell), "PCPU")).Or(t)
					}
				}},
			want: []string{"cn1_numa_0 VCPU", "cn1_numa_1 VCPU"},
		},
		"VCPU, when there is only PCPU from now on": {
			nested: true, host: func(h *inventory.Host) { h.Shared = nil },
			tree: []func(*testing.T, *providertree.Tree){without("PCPU")},
			want: []string{"cn1 MEMORY_MB", "cn1 VCPU"},
		},
		"PCPU, when there is none any more: not moving": {
			host: func(h *inventory.Host) { h.Dedicated = nil },
		},
		"a GPU that is gone, while another came: not moving": {
			host: func(h *inventory.Host) { h.Mdevs[0].Device = "pci_0000_3c_00_0" },
		},
		"a cell that is gone: not moving": {
			nested: true, tree: []func(*testing.T, *providertree.Tree){nest},
			host: func(h *inventory.Host) {
				h.Cells, h.Shared, h.Dedicated =
					append(h.Cells[:1:1], machine.Cell{ID: 2, CPUs: []int{8}, MemoryKiB: 1 << 20}), []int{1, 2, 8},
					[]int{3}
			},
		},
		"the disk, when a sharing provider has it: not moving": {
			host: func(h *inventory.Host) { h.SharedDisk = true },
			tree: []func(*testing.T, *providertree.Tree){func(t *testing.T, tree *providertree.Tree) {
				*tree =
					*withOthers(t, tree)
			}},
		},
		"the disk, when it is not shared any more: not moving": {
			tree: []func(*testing.T, *providertree.Tree){func(t *testing.T, tree *providertree.Tree) {
				*tree =
					*withOthers(t, tree)
			}, without("DISK_GB")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, s, tree := twoSockets(t), settings(), novas(t)
			for _, edit := range c.tree {
				edit(t, tree)
			}
			if c.host != nil {
				c.host(&h)
			}
			s.Nested = c.nested
			w := want(t, h, s)
			moving := testproc.Try(w.Moving(tree, root)).Or(t)
			var got []string
			for _, place := range moving {
				p, _ := tree.Provider(place.Provider)
				got = append(got, p.Name+" "+place.Class)
			}
			slices.Sort(got)
			testproc.Same(t, cmp.Diff(c.want, got))
			put(t, w, tree)
		})
	}
}

func TestANewNodeHasNothingToLose(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, s := range []inventory.Settings{settings(), nestedSettings()} {
		for _, tree := range []*providertree.Tree{fresh(t), withOthers(t, fresh(t))} {
			moving := testproc.Try(want(t, twoSockets(t), s).Moving(tree, root)).Or(t)
			if len(moving) > 0 {
				t.Error(moving)
			}
		}
	}
}

// TestSites: which provider stands for what, as much before Put as after.
func TestSites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, tree := twoSockets(t), withOthers(t, novas(t))
	nested, flat := want(t, h, nestedSettings()), want(t, h, settings())
	var virtual []machine.PassedDevice
	for _, d := range h.PCI[0].Devices {
		virtual = append(virtual, machine.PassedDevice{Address: d.Address, Managed: d.Managed})
	}
	expected := map[string]assignment.Provider{
		root:     {Kind: assignment.Root},
		novaGPU0: {Kind: assignment.MdevParent, Parent: "pci_0000_3b_00_0", Type: "nvidia-222", Class: "VGPU"},
		novaGPU1: {Kind: assignment.MdevParent, Parent: "pci_0000_82_00_0", Type: "nvidia-231", Class: "CUSTOM_BIG"},
		novaNIC:  {Kind: assignment.PCI, Devices: virtual, Class: "CUSTOM_PCI_15B3_1016"},
		novaSEV:  {Kind: assignment.Encryption, Security: domain.SEV, Class: "MEM_ENCRYPTION_CONTEXT"},
		neutron:  {Kind: assignment.Elsewhere}, port: {Kind: assignment.Elsewhere},
		cyborg: {Kind: assignment.Elsewhere}, share: {Kind: assignment.Elsewhere},
	}
	same := func(when string, w inventory.Wanted, tree *providertree.Tree) {
		t.Helper()
		sites := testproc.Try(w.Sites(tree, root)).Or(t)
		testproc.Samef(t, cmp.Diff(expected, sites), "%s", when)
	}
	same("flat", flat, tree)
	after := put(t, nested, tree)
	expected[uuidOf(t, after, "cn1_numa_0")] = assignment.Provider{Kind: assignment.Cell, Cell: 0}
	expected[uuidOf(t, after, "cn1_numa_1")] = assignment.Provider{Kind: assignment.Cell, Cell: 1}
	same("before nesting", nested, tree)
	same("nested", nested, after)
	same("before it is flat again", flat, after)

	h.Mdevs = h.Mdevs[1:]
	expected[novaGPU0] = assignment.Provider{Kind: assignment.Elsewhere} // it only goes
	same("without a GPU", want(t, h, nestedSettings()), after)
}

func TestHeld(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tree := withOthers(t, novas(t))
	got := slices.Sorted(maps.Keys(inventory.Held(tree, root)))
	testproc.Same(t, cmp.Diff([]string{"0000:86:00.0",
		"0000:af:00.0", "amd_sev", "pci_0000_3b_00_0", "pci_0000_82_00_0"}, got))
	if len(inventory.Held(tree, novaGPU0[:35]+"0")) > 0 {
		t.Error("no such root")
	}
}

func TestDrainingInventoryHasNoFreeCapacity(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const consumer = "00000000-0000-4000-8000-00000000000a"
	of := func(total, reserved int64, ratio float64) providertree.Inventory {
		return providertree.Inventory{Total: total, Reserved: reserved, MaxUnit: 16, AllocationRatio: ratio}.Normalize()
	}
	for name, c := range map[string]struct {
		was   providertree.Inventory
		is    *providertree.Inventory // nil: gone
		used  int64
		stays *providertree.Inventory
	}{
		"free":                             {was: of(16, 0, 1)},
		"gone while held":                  {was: of(16, 0, 1), used: 3, stays: new(of(3, 0, 1))},
		"gone while held, part reserved":   {was: of(16, 10, 1), used: 3, stays: new(of(3, 0, 1))},
		"gone while held, overcommitted":   {was: of(16, 0, 4), used: 7, stays: new(of(2, 0, 4))},
		"more held than there ever was":    {was: of(2, 0, 1), used: 3, stays: new(of(2, 0, 1))},
		"smaller, and large enough":        {was: of(16, 0, 1), is: new(of(8, 0, 1)), used: 8},
		"smaller than what is held":        {was: of(16, 0, 1), is: new(of(8, 0, 1)), used: 9, stays: new(of(9, 0, 1))},
		"smaller, and more of it reserved": {was: of(16, 0, 1), is: new(of(8, 2, 1)), used: 7, stays: new(of(7, 0, 1))},
		"as large, and held":               {was: of(16, 0, 1), is: new(of(16, 0, 1)), used: 16},
	} {
		t.Run(name, func(t *testing.T) {
			before := novas(t)
			_, err := before.SetInventory(novaGPU0, "VGPU", c.was)
			must(t, err)
			after := before.Clone()
			if c.is == nil {
				_, err = after.Remove(novaGPU0)
			} else {
				_, err = after.SetInventory(novaGPU0, "VGPU", *c.is)
			}
			must(t, err)
			allocations := providertree.Allocations{}
			if c.used > 0 {
				allocations[consumer] = providertree.ConsumerAllocations{
					Resources: providertree.ProviderResources{novaGPU0: {"VGPU": c.used}},
				}
			}
			want := map[plugins.Place]providertree.Inventory{}
			if c.stays != nil {
				want[plugins.Place{Provider: novaGPU0, Class: "VGPU"}] = *c.stays
			}
			testproc.Same(t, cmp.Diff(want, inventory.Draining(before, after, root, allocations)))
		})
	}
}
