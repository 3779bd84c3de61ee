// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestGoldenTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	flat := put(t, want(t, twoSockets(t), settings()), fresh(t))
	golden.Text(t, "testdata/flat.txt", dump(flat))
	s := nestedSettings()
	s.TypeTraits = true
	golden.Text(t, "testdata/nested.txt", dump(put(t, want(t, twoSockets(t), s), flat)))
}

func TestNewProvidersHaveUUIDsThatFollowFromTheDevice(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tree := put(t, want(t, twoSockets(t), nestedSettings()), fresh(t))
	for _, key := range []string{"numa_0", "numa_1",
		"pci_0000_3b_00_0", "pci_0000_82_00_0", "0000:86:00.0", "amd_sev"} {
		expected, err := providertree.ChildUUID(root, key)
		if got := uuidOf(t, tree, "cn1_"+key); err != nil || got != expected {
			t.Errorf("%s: %s, want %s, %v", key, got, expected, err)
		}
	}
}

// TestInventories: what becomes of the figures of a host. A case lists only what differs from the
// two golden trees.
func TestInventories(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		host     func(h *inventory.Host)
		settings func(s *inventory.Settings)
		provider string
		class    string
		flat     *providertree.Inventory // nil: none
		nested   *providertree.Inventory
	}{
		"memory is cut to MiB": {
			host: func(h *inventory.Host) {
				h.MemoryKiB = 3<<20 + 1023
				h.Cells[0].MemoryKiB = 1<<20 + 1023
				h.Cells[1].MemoryKiB = 2 << 20
			},
			settings: func(s *inventory.Settings) { s.ReservedMemoryMB = 3 },
			provider: "root", class: "MEMORY_MB",
			flat: &providertree.Inventory{Total: 3072, Reserved: 3, MaxUnit: 3072},
		},
		"what is reserved of memory is shared out": {
			host: func(h *inventory.Host) {
				h.MemoryKiB = 3<<20 + 1023
				h.Cells[0].MemoryKiB = 1<<20 + 1023
				h.Cells[1].MemoryKiB = 2 << 20
			},
			settings: func(s *inventory.Settings) { s.ReservedMemoryMB = 3 },
			provider: "numa_1", class: "MEMORY_MB",
			nested: &providertree.Inventory{Total: 2048, Reserved: 2, MaxUnit: 2048},
		},
		"no host has more than Placement can store": {
			host: func(h *inventory.Host) {
				h.MemoryKiB = 1 << 50
				h.Cells[0].MemoryKiB = 1 << 49
				h.Cells[1].MemoryKiB = 1 << 49
			},
			provider: "numa_0", class: "MEMORY_MB",
			nested: &providertree.Inventory{Total: providertree.MaxUnit, Reserved: 256, MaxUnit: providertree.MaxUnit},
		},
		"nor a disk": {
			host:     func(h *inventory.Host) { h.DiskGB = 1 << 40 },
			provider: "root", class: "DISK_GB",
			flat:   &providertree.Inventory{Total: providertree.MaxUnit},
			nested: &providertree.Inventory{Total: providertree.MaxUnit},
		},
		"what is reserved of the disk is rounded up": {
			settings: func(s *inventory.Settings) { s.ReservedDiskMB = 2049; s.DiskRatio = 1.5 },
			provider: "root", class: "DISK_GB",
			flat:   &providertree.Inventory{Total: 1000, Reserved: 3, MaxUnit: 1000, AllocationRatio: 1.5},
			nested: &providertree.Inventory{Total: 1000, Reserved: 3, MaxUnit: 1000, AllocationRatio: 1.5},
		},
		"a shared disk is the sharing provider's": {host: func(h *inventory.Host) { h.SharedDisk = true },
			provider: "root", class: "DISK_GB"},
		"no shared CPUs, no VCPU, whatever is reserved": {host: func(h *inventory.Host) { h.Shared = nil },
			provider: "root", class: "VCPU"},
		"and none in the cells": {host: func(h *inventory.Host) { h.Shared = nil },
			provider: "numa_0", class: "VCPU"},
		"PCPU are never overcommitted, nor reserved": {provider: "root", class: "PCPU",
			flat: &providertree.Inventory{Total: 2, MaxUnit: 2}},
		"a GPU that can make none has no provider": {host: func(h *inventory.Host) { h.Mdevs[0].Total = 0 },
			provider: "pci_0000_3b_00_0", class: "VGPU"},
		"a guest takes one context": {provider: "amd_sev", class: "MEM_ENCRYPTION_CONTEXT",
			flat:   &providertree.Inventory{Total: 15, MaxUnit: 1},
			nested: &providertree.Inventory{Total: 15, MaxUnit: 1}},
		"no memory in huge pages is taken off MEMORY_MB": {provider: "numa_0", class: "MEMORY_MB",
			nested: &providertree.Inventory{Total: 65 << 10, Reserved: 260, MaxUnit: 65 << 10}},
		"a configured ratio counts in every cell": {
			settings: func(s *inventory.Settings) { s.CPURatio = 2 },
			provider: "numa_1", class: "VCPU",
			nested: &providertree.Inventory{Total: 2, MaxUnit: 2, AllocationRatio: 2},
		},
		"a device for one use that is taken is used up": {
			host: func(h *inventory.Host) {
				h.PCI[0].OneTimeUse, h.Taken = true, map[machine.Address]bool{h.PCI[0].Devices[1].Address: true}
			},
			provider: "0000:86:00.0", class: "CUSTOM_PCI_15B3_1016",
			flat:   &providertree.Inventory{Total: 4, Reserved: 4, MaxUnit: 4},
			nested: &providertree.Inventory{Total: 4, Reserved: 4, MaxUnit: 4},
		},
		"another is not": {
			host:     func(h *inventory.Host) { h.Taken = map[machine.Address]bool{h.PCI[0].Devices[1].Address: true} },
			provider: "0000:86:00.0", class: "CUSTOM_PCI_15B3_1016",
			flat: &providertree.Inventory{Total: 4, MaxUnit: 4}, nested: &providertree.Inventory{Total: 4, MaxUnit: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h, s := twoSockets(t), settings()
			if c.host != nil {
				c.host(&h)
			}
			if c.settings != nil {
				c.settings(&s)
			}
			for nested, expected := range map[bool]*providertree.Inventory{false: c.flat, true: c.nested} {
				s.Nested = nested
				tree := put(t, want(t, h, s), fresh(t))
				full := strings.ReplaceAll("cn1_"+c.provider, "cn1_root", "cn1")
				p, _ := tree.ProviderByName(full)
				inv, has := p.Inventories[c.class]
				if has != (expected != nil) || has && !inv.Equal(*expected) {
					t.Errorf("nested=%v: %s of %s: %+v, want %+v", nested, c.class, full, inv, expected)
				}
			}
		})
	}
}

func TestInconsistentHostsAreErrors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		host     func(h *inventory.Host)
		settings func(s *inventory.Settings)
		key      string
		flat     string
		nested   string
	}{
		"CPUs": {
			settings: func(s *inventory.Settings) { s.ReservedCPUs = 5 }, key: "reserved_host_cpus",
			flat:   "configuration: reserved_host_cpus: reserves 5 of VCPU, but cn1 has only 4",
			nested: "configuration: reserved_host_cpus: reserves 5 of VCPU, but the NUMA cells have only 4",
		},
		"memory": {
			settings: func(s *inventory.Settings) { s.ReservedMemoryMB = 1 << 20 }, key: "reserved_host_memory_mb",
			flat: "configuration: reserved_host_memory_mb: reserves 1048576 of MEMORY_MB, but cn1 has only 131072",
			nested: "configuration: reserved_host_memory_mb: reserves 1048576 of MEMORY_MB, but the NUMA cells have " +
				"only 131072",
		},
		"disk": {
			settings: func(s *inventory.Settings) { s.ReservedDiskMB = 1001 << 10 }, key: "reserved_host_disk_mb",
			flat: "configuration: reserved_host_disk_mb: reserves 1001 of DISK_GB, but cn1 has only 1000",
		},
		"huge pages": {
			host: func(h *inventory.Host) { h.Memory[1].Pages[0].Reserved = 3 }, key: "reserved_huge_pages",
			flat:   "configuration: reserved_huge_pages: reserves 3 of CUSTOM_HUGEPAGES_1G, but cn1 has only 2",
			nested: "configuration: reserved_huge_pages: reserves 3 of CUSTOM_HUGEPAGES_1G, but cn1_numa_1 has only 2",
		},
		"contexts": {
			host: func(h *inventory.Host) { h.Encryption[0].Reserved = 16 }, key: "num_memory_encrypted_guests",
			flat: "configuration: num_memory_encrypted_guests: reserves 16 of MEM_ENCRYPTION_CONTEXT, but " +
				"cn1_amd_sev has only 15",
		},
		"a name without capacity for its devices": {
			host: func(h *inventory.Host) { h.Node = strings.Repeat("x", 195) }, key: "host",
		},
		"a CPU in two cells": {
			host:   func(h *inventory.Host) { h.Cells[1].CPUs = []int{3, 4, 5, 6, 7} },
			nested: "CPU 3 is in NUMA cells 0 and 1",
		},
		"a CPU in no cell": {
			host:   func(h *inventory.Host) { h.Dedicated = []int{3, 8} },
			nested: "CPU 8 is for guests, but in no NUMA cell",
		},
		"one device twice": {
			host: func(h *inventory.Host) { h.PCI = append(h.PCI, h.PCI[0]) },
			flat: `two resource providers would have the name "cn1_0000:86:00.0"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, nested := range []bool{false, true} {
				h, s := twoSockets(t), settings()
				if c.host != nil {
					c.host(&h)
				}
				if c.settings != nil {
					c.settings(&s)
				}
				s.Nested = nested
				expected := c.flat
				if nested && c.nested != "" {
					expected = c.nested
				}
				_, _, err := inventory.Want(h, s)
				if c.key == "" && !nested && expected == "" {
					must(t, err) // no setting asks for cells
					continue
				}
				if err == nil || expected != "" && err.Error() != expected {
					t.Errorf("nested=%v: %v, want\n%s", nested, err, expected)
				}
				var wrong *plugins.ConfigError
				if errors.As(err, &wrong) != (c.key != "") || wrong != nil && wrong.Key != c.key {
					t.Errorf("nested=%v: %v is not about %q", nested, err, c.key)
				}
			}
		})
	}
}

func TestAllProblemsAreReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := settings()
	s.ReservedCPUs, s.ReservedDiskMB = 9, 1<<40
	_, _, err := inventory.Want(twoSockets(t), s)
	if err == nil || !strings.Contains(err.Error(), "reserved_host_cpus") ||
		!strings.Contains(err.Error(), "reserved_host_disk_mb") {
		t.Error(err)
	}
}

func TestDiscrepancies(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := twoSockets(t)
	h.Mdevs[0].Cell, h.Mdevs[1].Cell, h.PCI[0].Cell, h.MemoryKiB = machine.NoCell, 7, machine.NoCell, 64<<20
	w, discrepancies, err := inventory.Want(h, nestedSettings())
	must(t, err)
	expected := []machine.Discrepancy{
		{Key: "inventory-memory",
			Text: "the NUMA cells have 131072 MiB of memory together, the host reports 65536; the driver uses " +
				"the cells' sum"},
		{Key: "inventory-no-cell",
			Text: "devices that report no NUMA cell: pci_0000_3b_00_0, 0000:86:00.0. Their providers are children " +
				"of the root, so requests for devices near processors (same_subtree) never find them"},
		{Key: "inventory-cells",
			Text: "devices that report a NUMA cell that the host does not have, or that numa_ignore_cells " +
				"leaves out: pci_0000_82_00_0 (7). " +
				"Their providers are children of the root, so requests for devices near processors (same_subtree) " +
				"never find them"},
	}
	testproc.Same(t, cmp.Diff(expected, discrepancies))
	tree := put(t, w, fresh(t))
	for _, key := range []string{"pci_0000_3b_00_0", "pci_0000_82_00_0", "0000:86:00.0"} {
		if p, _ := tree.ProviderByName("cn1_" + key); p.ParentUUID != root {
			t.Errorf("%s is below %s", key, p.ParentUUID)
		}
	}
	if _, discrepancies, err := inventory.Want(h, settings()); err != nil || len(discrepancies) > 0 {
		t.Errorf("a flat tree asks for no cells: %v, %v", discrepancies, err)
	}
	h.Cells, h.Shared, h.Dedicated = h.Cells[:1], []int{1}, nil
	h.Mdevs[1].Cell, h.MemoryKiB = 0, 0
	if _, discrepancies, err := inventory.Want(h, nestedSettings()); err != nil || len(discrepancies) > 0 {
		t.Errorf("on a host of one cell nothing is far: %v, %v", discrepancies, err)
	}
}

func TestCellsWithOnlyMemoryOrOnlyCPUs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := twoSockets(t)
	h.Cells = []machine.Cell{{ID: 4, MemoryKiB: 1 << 20},
		{ID: 2}, {ID: 1, CPUs: []int{4, 5, 6, 7}}, {ID: 0, CPUs: []int{0, 1, 2, 3}, MemoryKiB: 1 << 20}}
	tree := put(t, want(t, h, nestedSettings()), fresh(t))
	for key, classes := range map[string]string{"numa_0": "CUSTOM_HUGEPAGES_2M MEMORY_MB PCPU VCPU",
		"numa_1": "CUSTOM_HUGEPAGES_1G PCPU VCPU", "numa_4": "MEMORY_MB"} {
		v, _ := tree.Provider(uuidOf(t, tree, "cn1_"+key))
		testproc.Equal(t, strings.Join(v.Inventories.Classes(), " "), classes, "%s has %s", key)
	}
	if _, found := tree.ProviderByName("cn1_numa_2"); found {
		t.Error("a cell with nothing in it has a provider")
	}
}
