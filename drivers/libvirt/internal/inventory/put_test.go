// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// Uuids that Nova rolled.
const (
	novaGPU0 = "b0b7f3a7-2f44-4a0f-9d0e-2c4b84f4e3a1"
	novaGPU1 = "6c1f2f9e-55a0-4a49-8b53-d0a0d9c7b1f2"
	novaNIC  = "0f6f5a0c-94b0-4f0b-a7a3-64b1c5d6ce03"
	novaSEV  = "d4f3c1de-0b92-49f7-93b5-53f0d5a3a604"
	neutron  = "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f505"
	port     = "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f506"
	cyborg   = "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f507"
	other    = "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f508"
	share    = "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f509"
	group    = "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f510"
)

// things are inventories of which nothing is reserved or overcommitted.
func things(class string, total, maxUnit int64) providertree.Inventories {
	return providertree.Inventories{class: {Total: total,
		MinUnit: 1, MaxUnit: maxUnit, StepSize: 1, AllocationRatio: 1}}
}

// novas is the tree of twoSockets as Nova writes it: children with uuids of its own, ratios that an
// administrator chose.
func novas(t tester) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	must(t, tree.Populate([]providertree.Provider{
		{UUID: root, Name: "cn1", Generation: 41, Inventories: providertree.Inventories{
			"VCPU": {Total: 4,
				Reserved: 1, MinUnit: 1, MaxUnit: 4, StepSize: 1, AllocationRatio: 8},
			"PCPU": {Total: 2, MinUnit: 1, MaxUnit: 2, StepSize: 1, AllocationRatio: 1},
			"MEMORY_MB": {Total: 131072,
				Reserved: 512, MinUnit: 1, MaxUnit: 131072, StepSize: 1, AllocationRatio: 1.5},
			"DISK_GB":                     {Total: 1000, MinUnit: 1, MaxUnit: 1000, StepSize: 1, AllocationRatio: 1},
			"CUSTOM_PMEM_NAMESPACE_SMALL": {Total: 2, MinUnit: 1, MaxUnit: 2, StepSize: 1, AllocationRatio: 1},
		}, Traits: []string{"COMPUTE_NODE", "HW_ARCH_X86_64", "HW_CPU_X86_AVX2", "OWNER_NOVA"}},
		{UUID: novaGPU0, Name: "cn1_pci_0000_3b_00_0", ParentUUID: root, Generation: 2,
			Inventories: things("VGPU", 4, 4), Traits: []string{"OWNER_NOVA", "CUSTOM_NVIDIA_T4"}},
		{UUID: novaGPU1, Name: "cn1_pci_0000_82_00_0", ParentUUID: root, Generation: 2,
			Inventories: things("CUSTOM_BIG", 1, 1), Traits: []string{"OWNER_NOVA", "CUSTOM_GPU_BIG"}},
		{UUID: novaNIC, Name: "cn1_0000:86:00.0", ParentUUID: root, Generation: 7,
			Inventories: providertree.Inventories{
				// an operator reserved one
				"CUSTOM_PCI_15B3_1016": {Total: 4, Reserved: 1, MinUnit: 1, MaxUnit: 4,
					StepSize: 1, AllocationRatio: 1},
			}, Traits: []string{"COMPUTE_MANAGED_PCI_DEVICE", "CUSTOM_FAST"}},
		{UUID: novaSEV, Name: "cn1_amd_sev", ParentUUID: root, Generation: 1,
			Inventories: things("MEM_ENCRYPTION_CONTEXT", 15, 1), Traits: []string{"HW_CPU_X86_AMD_SEV"}},
	}))
	return tree
}

// withOthers adds what others have in Placement around a node.
func withOthers(t tester, tree *providertree.Tree) *providertree.Tree {
	t.Helper()
	tree = tree.Clone()
	node, _ := tree.Provider(root)
	node.Inventories["CUSTOM_LICENCE"] = providertree.Inventory{Total: 3, MaxUnit: 3}
	testproc.Try(tree.SetInventories(root, node.Inventories)).Or(t)
	testproc.Try(tree.AddTraits(root, "CUSTOM_RACK_7", "HW_CPU_X86_SSE42")).Or(t)
	testproc.Try(tree.AddAggregates(root, group)).Or(t)
	for _, p := range []providertree.Provider{
		{UUID: neutron, Name: "cn1:Open vSwitch agent", ParentUUID: root, Traits: []string{"OWNER_NEUTRON"}},
		{UUID: port, Name: "cn1:Open vSwitch agent:br-ex", ParentUUID: neutron,
			Inventories: providertree.Inventories{"NET_BW_EGR_KILOBIT_PER_SEC": {Total: 1000000, MaxUnit: 1000000}}},
		{UUID: cyborg, Name: "cn1_0000:af:00.0", ParentUUID: root, Inventories: things("FPGA", 1, 1),
			Traits: []string{"OWNER_CYBORG"}},
		// a node of that name
		{UUID: other, Name: "cn1_numa_9", Inventories: things("VCPU", 8, 8),
			Traits: []string{"HW_NUMA_ROOT", "OWNER_NOVA"}},
		{UUID: share, Name: "nfs", Inventories: things("DISK_GB", 5000, 5000),
			Traits: []string{"MISC_SHARES_VIA_AGGREGATE"}, Aggregates: []string{group}},
	} {
		must(t, tree.Populate([]providertree.Provider{p}))
	}
	return tree
}

// sameOthers sees that all of withOthers is as it was.
func sameOthers(t tester, before, after *providertree.Tree) {
	t.Helper()
	for _, uuid := range []string{neutron, port, cyborg, other, share} {
		is, _ := after.Provider(uuid)
		was, _ := before.Provider(uuid)
		if diff := cmp.Diff(was, is); diff != "" {
			t.Fatalf("%s (-before +after):\n%s", was.Name, diff)
		}
	}
	if inv, has := after.Inventory(root, "CUSTOM_LICENCE"); !has || inv.Total != 3 ||
		!after.HasTraits(root, "CUSTOM_RACK_7", "HW_CPU_X86_SSE42") || !after.InAggregates(root, group) {
		t.Fatalf("the root lost what was not the driver's:\n%s", dump(after))
	}
}

func TestNovasTreeNeedsNoChange(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tree := range map[string]*providertree.Tree{"alone": novas(t),
		"with what others have": withOthers(t, novas(t))} {
		before := tree.Clone()
		moving := testproc.Try(want(t, twoSockets(t), settings()).Moving(tree, root)).Or(t)
		must(t, want(t, twoSockets(t), settings()).Put(tree, root))
		if changes := providertree.Diff(before, tree); !changes.Empty() || len(moving) > 0 {
			t.Errorf("%s: %v is moving; (-Nova +driver):\n%s", name, moving, cmp.Diff(dump(before), dump(tree)))
		}
	}
}

// TestProvidersOfUncertainDevicesStayAsTheyAre: whatever else becomes of the tree, what it has of a
// device that cannot be read is not touched. It moves only if the cell that it is below goes.
func TestProvidersOfUncertainDevicesStayAsTheyAre(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, change := range map[string]func(*inventory.Host){
		"gone":    func(h *inventory.Host) { h.PCI = nil },
		"smaller": func(h *inventory.Host) { h.PCI[0].Devices = h.PCI[0].Devices[:1] },
		"without a cell": func(h *inventory.Host) {
			h.PCI[0].Cell, h.Mdevs[0].Cell = machine.NoCell, machine.NoCell
		},
		"with other traits": func(h *inventory.Host) {
			h.PCI[0].Traits, h.MdevTraits = nil, []string{"CUSTOM_NVIDIA_T4"}
		},
		"of another class":       func(h *inventory.Host) { h.PCI[0].Class = "CUSTOM_OTHER" },
		"gone with other things": func(h *inventory.Host) { h.PCI, h.PMEM, h.Traits = nil, nil, nil },
	} {
		for _, s := range []inventory.Settings{settings(), nestedSettings()} {
			t.Run(fmt.Sprint(name, ", nested: ", s.Nested), func(t *testing.T) {
				before := novas(t)
				if s.Nested {
					before = put(t, want(t, twoSockets(t), s), before)
				}
				h := twoSockets(t)
				h.Uncertain = map[string]bool{"0000:86:00.0": true, "pci_0000_3b_00_0": true}
				change(&h)
				after := put(t, want(t, h, s), before)
				for _, uuid := range []string{novaNIC, novaGPU0} {
					was, _ := before.Provider(uuid)
					is, _ := after.Provider(uuid)
					testproc.Same(t, cmp.Diff(was, is))
				}
				back := put(t, want(t, twoSockets(t), s), after)
				if same := put(t, want(t, twoSockets(t), s), before); !back.Equal(same) {
					t.Errorf("when it can be read again (-want +got):\n%s", cmp.Diff(dump(same), dump(back)))
				}

				s.Nested = !s.Nested
				w := want(t, h, s)
				moved := before.Clone()
				must(t, w.Put(moved, root))
				for _, uuid := range []string{novaNIC, novaGPU0} {
					was, _ := before.Provider(uuid)
					is, found := moved.Provider(uuid)
					was.ParentUUID = root
					testproc.Same(t, cmp.Diff(was, is))
					if !found {
						t.Errorf("%s is gone:\n%s", was.Name, dump(moved))
					}
				}
			})
		}
	}
}

// TestUncertainDevicesThatAreNotOffered: the provider of a device that makes nothing now, because
// something of it cannot be read, stays as it is.
func TestUncertainDevicesThatAreNotOffered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := twoSockets(t)
	h.Uncertain = map[string]bool{"pci_0000_3b_00_0": true}
	h.Mdevs = h.Mdevs[1:]
	before := novas(t)
	after := put(t, want(t, h, settings()), before)
	was, _ := before.Provider(novaGPU0)
	is, _ := after.Provider(novaGPU0)
	testproc.Samef(t, cmp.Diff(was, is), "its provider")
}

func TestNestingKeepsTheProvidersOfDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	before := withOthers(t, novas(t))
	after := put(t, want(t, twoSockets(t), nestedSettings()), before)
	sameOthers(t, before, after)
	for uuid, parent := range map[string]string{novaGPU0: "cn1_numa_0", novaGPU1: "cn1_numa_1",
		novaNIC: "cn1_numa_1", novaSEV: "cn1"} {
		was, _ := before.Provider(uuid)
		is, found := after.Provider(uuid)
		if !found || is.ParentUUID != uuidOf(t, after, parent) {
			t.Fatalf("%s is not below %s:\n%s", was.Name, parent, dump(after))
		}
		was.ParentUUID = is.ParentUUID
		testproc.Samef(t, cmp.Diff(was, is), "%s (-flat +nested)", was.Name)
	}
	for _, cell := range []string{"cn1_numa_0", "cn1_numa_1"} {
		for class, ratio := range map[string]float64{"VCPU": 8, "MEMORY_MB": 1.5, "PCPU": 1} {
			if inv, _ := after.Inventory(uuidOf(t, after, cell), class); inv.AllocationRatio != ratio {
				t.Errorf("%s of %s has the ratio %v, the root had %v", class, cell, inv.AllocationRatio, ratio)
			}
		}
	}
	back := put(t, want(t, twoSockets(t), settings()), after)
	sameOthers(t, before, back)
	// for who holds pages, when the tree is flat again
	for _, class := range []string{"CUSTOM_HUGEPAGES_2M", "CUSTOM_HUGEPAGES_1G"} {
		if removed, err := back.RemoveInventory(root, class); err != nil || !removed {
			t.Errorf("%s is not on the root: %v", class, err)
		}
	}
	if !back.Equal(before) {
		t.Errorf("flat, nested, flat (-before +after):\n%s", cmp.Diff(dump(before), dump(back)))
	}
}

// traits are those of a provider, sorted.
func traits(tree *providertree.Tree, name string) string {
	p, _ := tree.ProviderByName(name)
	return strings.Join(p.Traits, " ")
}

// TestPut: one thing at a time that changes in a tree.
func TestPut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type check = func(t *testing.T, before, after *providertree.Tree)
	for name, c := range map[string]struct {
		nested bool
		host   func(h *inventory.Host, s *inventory.Settings)
		tree   func(t *testing.T, tree *providertree.Tree)
		check  check
	}{
		"traits of the host that are gone go, others stay": {
			host: func(h *inventory.Host, _ *inventory.Settings) {
				h.Traits = []string{"HW_ARCH_X86_64", "HW_CPU_X86_AVX512F"}
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				if got := traits(after, "cn1"); got != "COMPUTE_NODE HW_ARCH_X86_64 HW_CPU_X86_AVX512F OWNER_NOVA" {
					t.Error(got)
				}
			},
		},
		"traits of a type of mediated devices that a GPU no longer makes go, an administrator's stay": {
			host: func(h *inventory.Host, s *inventory.Settings) {
				s.TypeTraits, h.MdevTraits = true, []string{"CUSTOM_OLD_TYPE"}
				h.Mdevs[0], h.Mdevs[1] = h.Mdevs[1], h.Mdevs[0]
				h.Mdevs[0].Device, h.Mdevs[1].Device = h.Mdevs[1].Device, h.Mdevs[0].Device
			},
			tree: func(t *testing.T, tree *providertree.Tree) {
				testproc.Try(tree.AddTraits(novaGPU1, "CUSTOM_NVIDIA_231", "CUSTOM_OLD_TYPE")).Or(t)
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				testproc.Equal(t, traits(after, "cn1_pci_0000_82_00_0"), "CUSTOM_NVIDIA_222 OWNER_NOVA", "%v")
				if got := traits(after,
					"cn1_pci_0000_3b_00_0"); got != "CUSTOM_GPU_BIG CUSTOM_NVIDIA_231 CUSTOM_NVIDIA_T4 OWNER_NOVA" {
					t.Error(got)
				}
			},
		},
		"an administrator may have said of which type a GPU is": {
			host: func(h *inventory.Host, _ *inventory.Settings) {
				h.MdevTraits = []string{"CUSTOM_NVIDIA_222", "CUSTOM_NVIDIA_231"}
			},
			tree: func(t *testing.T, tree *providertree.Tree) {
				testproc.Try(tree.AddTraits(novaGPU0, "CUSTOM_NVIDIA_222")).Or(t)
			},
			check: func(t *testing.T, before, after *providertree.Tree) {
				if !before.Equal(after) {
					t.Error(cmp.Diff(dump(before), dump(after)))
				}
			},
		},
		"traits of a PCI device are those of its spec": {
			host: func(h *inventory.Host, _ *inventory.Settings) {
				h.PCI[0].Traits = []string{"COMPUTE_MANAGED_PCI_DEVICE"}
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				testproc.Equal(t, traits(after, "cn1_0000:86:00.0"), "COMPUTE_MANAGED_PCI_DEVICE", "%v")
			},
		},
		"what is switched off goes": {
			host: func(h *inventory.Host, _ *inventory.Settings) {
				h.Mdevs, h.PCI, h.Encryption, h.PMEM = nil, nil, nil, nil
			},
			tree: func(t *testing.T, tree *providertree.Tree) {
				must(t, tree.AddChild(root, cyborg, "cn1_mtty_mtty"))
				testproc.Try(tree.SetInventories(cyborg, things("VGPU", 24, 24))).Or(t)
				testproc.Try(tree.AddTraits(cyborg, "OWNER_NOVA")).Or(t)
				testproc.Try(tree.SetInventory(root, "VGPU", providertree.Inventory{Total: 1})).Or(t)
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				v, _ := after.Provider(root)
				if after.Len() != 1 || strings.Join(v.Inventories.Classes(), " ") != "DISK_GB MEMORY_MB PCPU VCPU" {
					t.Error(dump(after))
				}
			},
		},
		"a GPU that can make none goes": {
			host: func(h *inventory.Host, _ *inventory.Settings) { h.Mdevs[1].Total = 0 },
			check: func(t *testing.T, _, after *providertree.Tree) {
				if after.Exists(novaGPU1) || !after.Exists(novaGPU0) {
					t.Error(dump(after))
				}
			},
		},
		"providers with names like ours that nothing marks stay": {
			tree: func(t *testing.T, tree *providertree.Tree) {
				for i, name := range []string{"cn1_numa_5", "cn1_pci_0000_01_00_0", "cn1_0000:01:00.0",
					"cn1_amd_sev_es", "cn1_mtty_mtty", "cn1_", "cn1_numa_05", "cn10_numa_0"} {
					must(t, tree.AddChild(root, fmt.Sprintf("%s%d", neutron[:35], i), name))
				}
			},
			check: func(t *testing.T, before, after *providertree.Tree) {
				if !before.Equal(after) {
					t.Error(cmp.Diff(dump(before), dump(after)))
				}
			},
		},
		"a cell with a provider of another owner's below it stays, with nothing in it": {
			tree: func(t *testing.T, tree *providertree.Tree) {
				must(t, want(t, twoSockets(t), nestedSettings()).Put(tree, root))
				must(t, tree.AddChild(uuidOf(t, tree, "cn1_numa_0"), neutron, "cn1:agent"))
			},
			check: func(t *testing.T, before, after *providertree.Tree) {
				p, found := after.ProviderByName("cn1_numa_0")
				if _, other := after.ProviderByName("cn1_numa_1"); !found || other || len(p.Inventories) > 0 ||
					!slices.Equal(after.Children(p.UUID), []string{neutron}) {
					t.Error(dump(after))
				}
			},
		},
		"a provider of ours that lost its name gets it back": {
			nested: true,
			tree: func(t *testing.T, tree *providertree.Tree) {
				must(t, want(t, twoSockets(t), nestedSettings()).Put(tree, root))
				testproc.Try(tree.Rename(uuidOf(t, tree, "cn1_numa_0"), "former_numa_0")).Or(t)
			},
			check: func(t *testing.T, before, after *providertree.Tree) {
				if uuidOf(t, after, "cn1_numa_0") != uuidOf(t, before, "former_numa_0") {
					t.Error(dump(after))
				}
			},
		},
		"cells of different ratios leave the highest": {
			tree: func(t *testing.T, tree *providertree.Tree) {
				must(t, want(t, twoSockets(t), nestedSettings()).Put(tree, root))
				_, err := tree.SetInventory(uuidOf(t, tree, "cn1_numa_0"),
					"VCPU", providertree.Inventory{Total: 2, AllocationRatio: 12})
				must(t, err)
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				if inv, _ := after.Inventory(root, "VCPU"); inv.AllocationRatio != 12 {
					t.Error(inv)
				}
			},
		},
		"a new cell has the ratio of the others": {
			nested: true,
			tree: func(t *testing.T, tree *providertree.Tree) {
				h := twoSockets(t)
				h.Cells, h.Shared, h.Dedicated, h.MemoryKiB = h.Cells[:1], []int{1, 2}, []int{3}, 65<<20
				must(t, want(t, h, nestedSettings()).Put(tree, root))
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				if inv, _ := after.Inventory(uuidOf(t, after, "cn1_numa_1"), "VCPU"); inv.AllocationRatio != 8 {
					t.Error(inv)
				}
			},
		},
		"a PCI class of another name brings along what is reserved": {
			host: func(h *inventory.Host, _ *inventory.Settings) { h.PCI[0].Class = "CUSTOM_NIC" },
			check: func(t *testing.T, _, after *providertree.Tree) {
				p, _ := after.Provider(novaNIC)
				testproc.Same(t,
					cmp.Diff(
						providertree.Inventories{"CUSTOM_NIC": {Total: 4, Reserved: 1, MinUnit: 1, MaxUnit: 4,
							StepSize: 1, AllocationRatio: 1}}, p.Inventories))
			},
		},
		"no more is reserved than there is": {
			host: func(h *inventory.Host, _ *inventory.Settings) { h.PCI[0].Devices = h.PCI[0].Devices[:2] },
			tree: func(t *testing.T, tree *providertree.Tree) {
				_, err := tree.SetInventory(novaNIC,
					"CUSTOM_PCI_15B3_1016", providertree.Inventory{Total: 4, Reserved: 3, MinUnit: 3, MaxUnit: 4})
				must(t, err)
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				if inv, _ := after.Inventory(novaNIC,
					"CUSTOM_PCI_15B3_1016"); !inv.Equal(
					providertree.Inventory{Total: 2, Reserved: 2, MinUnit: 2, MaxUnit: 2}) {
					t.Error(inv)
				}
			},
		},
		"what is reserved of all there were is no more than that": {
			tree: func(t *testing.T, tree *providertree.Tree) {
				_, err := tree.SetInventory(novaNIC,
					"CUSTOM_PCI_15B3_1016", providertree.Inventory{Total: 3, Reserved: 3, MaxUnit: 4})
				must(t, err)
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				if inv, _ := after.Inventory(novaNIC,
					"CUSTOM_PCI_15B3_1016"); !inv.Equal(providertree.Inventory{Total: 4, Reserved: 3, MaxUnit: 4}) {
					t.Error(inv)
				}
			},
		},
		"an administrator's class on a GPU stays": {
			tree: func(t *testing.T, tree *providertree.Tree) {
				testproc.Try(tree.SetInventory(novaGPU0, "CUSTOM_HEADS", providertree.Inventory{Total: 4})).Or(t)
			},
			check: func(t *testing.T, before, after *providertree.Tree) {
				if !before.Equal(after) {
					t.Error(cmp.Diff(dump(before), dump(after)))
				}
			},
		},
		"two devices of one type, one new": {
			host: func(h *inventory.Host, _ *inventory.Settings) {
				h.Mdevs = append(h.Mdevs,
					selection.MdevProvider{Device: "mtty_mtty", Cell: -1, Type: "mtty-1", Class: "VGPU",
						Total: 24, TypeTrait: "CUSTOM_MTTY_1"})
			},
			check: func(t *testing.T, _, after *providertree.Tree) {
				p, _ := after.ProviderByName("cn1_mtty_mtty")
				if p.ParentUUID != root || p.Inventories["VGPU"].Total != 24 ||
					!slices.Equal(p.Traits, []string{"OWNER_NOVA"}) {
					t.Error(dump(after))
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, s, tree := twoSockets(t), settings(), novas(t)
			if c.host != nil {
				c.host(&h, &s)
			}
			if c.tree != nil {
				c.tree(t, tree)
			}
			s.Nested = c.nested
			w := want(t, h, s)
			before := tree.Clone()
			after := tree.Clone()
			must(t, w.Put(after, root))
			again := after.Clone()
			must(t, w.Put(again, root))
			if !again.Equal(after) {
				t.Errorf("a second Put changes something:\n%s", cmp.Diff(dump(after), dump(again)))
			}
			c.check(t, before, after)
		})
	}
}

func TestInvalidTreesAreErrors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := want(t, twoSockets(t), nestedSettings())
	for name, c := range map[string]struct {
		tree func(tree *providertree.Tree)
		root string
		want string
	}{
		"no root": {root: other, want: "the root " + other + " of node \"cn1\" is not in the tree"},
		"a child for the root": {root: novaSEV, want: `resource provider "cn1_amd_sev" (` + novaSEV +
			`) is not the root of node "cn1"`},
		"another node": {root: root, tree: func(tree *providertree.Tree) { _, _ = tree.Rename(root, "cn2") },
			want: `resource provider "cn2" (` + root + `) is not the root of node "cn1"`},
		"a name that another tree has": {root: root,
			tree: func(tree *providertree.Tree) { _ = tree.AddRoot(other, "cn1_numa_0") },
			want: `resource provider "cn1_numa_0" (` + other + `) is not below the root ` + root +
				`, and its name is needed for a device there`},
	} {
		tree := novas(t)
		if c.tree != nil {
			c.tree(tree)
		}
		if err := w.Put(tree, c.root); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want\n%s", name, err, c.want)
		}
		if _, err := w.Moving(tree, c.root); err == nil {
			t.Errorf("%s: Moving has no error", name)
		}
		if _, err := w.Sites(tree, c.root); err == nil {
			t.Errorf("%s: Sites has no error", name)
		}
	}
	if err := (inventory.Wanted{}).Put(novas(t), root); err == nil {
		t.Error("nothing can be put")
	}
}

// TestPutAdoptsNova26GPUs: Nova 26 does not mark its GPUs with OWNER_NOVA. They do not get it, and
// go when they are not wanted.
func TestPutAdoptsNova26GPUs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tree := novas(t)
	for _, uuid := range []string{root, novaGPU0, novaGPU1} {
		testproc.Try(tree.RemoveTraits(uuid, "OWNER_NOVA")).Or(t)
	}
	host := twoSockets(t)
	after := put(t, want(t, host, settings()), tree)
	if changes := providertree.Diff(tree, after); !changes.Empty() {
		t.Errorf("the adoption changes the tree (-Nova +driver):\n%s", cmp.Diff(dump(tree), dump(after)))
	}
	host.Mdevs = slices.DeleteFunc(host.Mdevs, func(m selection.MdevProvider) bool { return m.Class == "VGPU" })
	after = put(t, want(t, host, settings()), after)
	if after.Exists(novaGPU0) || !after.Exists(novaGPU1) {
		t.Errorf("not exactly the GPU that is not wanted went:\n%s", dump(after))
	}
}
