// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// anyHost draws a host: cells without CPUs, without memory and without either (but not with less
// than a MiB), devices in no cell and in cells that are not there.
func anyHost(t *rapid.T) inventory.Host {
	h := inventory.Host{
		Node: "cn1", PMEM: map[string]int64{}, Taken: map[machine.Address]bool{},
		DiskGB:      rapid.Int64Range(0, 1<<40).Draw(t, "disk"),
		OwnedTraits: []string{"HW_ARCH_X86_64", "HW_CPU_X86_AVX2"},
	}
	h.Traits = h.OwnedTraits[:rapid.IntRange(0, 2).Draw(t, "traits")]
	cpu := 0
	cells := rapid.IntRange(1, 4).Draw(t, "cells")
	for id := range cells {
		c := machine.Cell{ID: id, MemoryKiB: rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64Range(1<<10, 1<<24),
			rapid.Uint64Range(1<<10, 1<<42)).Draw(t, "memory")}
		for range rapid.IntRange(0, 6).Draw(t, "CPUs") {
			c.CPUs = append(c.CPUs, cpu)
			switch rapid.IntRange(0, 3).Draw(t, "use") {
			case 0, 1:
				h.Shared = append(h.Shared, cpu)
			case 2:
				h.Dedicated = append(h.Dedicated, cpu)
			}
			cpu++
		}
		h.Cells, h.MemoryKiB = append(h.Cells, c), h.MemoryKiB+c.MemoryKiB
		pages := selection.PagesCell{ID: id}
		for _, size := range rapid.SliceOfNDistinct(rapid.SampledFrom([]uint64{64, 2048, 1 << 20}), 0, 2, rapid.ID).
			Draw(t, "sizes") {
			total := rapid.Int64Range(1, providertree.MaxUnit).Draw(t, "pages")
			pages.Pages = append(pages.Pages,
				selection.Pages{SizeKiB: size, Class: selection.PagesClass(size), Total: total,
					Reserved: rapid.Int64Range(0, total).Draw(t, "reserved")})
		}
		h.Memory = append(h.Memory, pages)
	}
	cell := rapid.IntRange(-1, cells)
	for i := range rapid.IntRange(0, 4).Draw(t, "GPUs") {
		a := machine.Address{Bus: 0x80, Slot: uint8(i)}
		h.Mdevs = append(h.Mdevs, selection.MdevProvider{
			Device: a.DeviceName(), Address: &a, Cell: cell.Draw(t, "cell"), Type: "nvidia-222",
			Class:  rapid.SampledFrom([]string{"VGPU", "CUSTOM_BIG"}).Draw(t, "class"),
			Total:  rapid.IntRange(0, 32).Draw(t, "total"),
			Traits: rapid.SampledFrom([][]string{nil, {"CUSTOM_A"}}).Draw(t, "traits"), TypeTrait: "CUSTOM_NVIDIA_222",
		})
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "PCI") {
		a := machine.Address{Bus: 0x10, Slot: uint8(i)}
		p := selection.PCIProvider{
			Suffix: a.String(), Address: a, Cell: cell.Draw(t, "cell"),
			Class:  rapid.SampledFrom([]string{"CUSTOM_PCI_15B3_1016", "CUSTOM_NIC"}).Draw(t, "class"),
			Traits: []string{selection.TraitManaged}, OneTimeUse: rapid.Bool().Draw(t, "one-time"),
		}
		for f := range rapid.IntRange(1, 7).Draw(t, "functions") {
			p.Devices = append(p.Devices,
				selection.PCIPassed{Address: machine.Address{Bus: 0x10, Slot: uint8(i), Function: uint8(f)}})
			h.Taken[p.Devices[f].Address] = rapid.Bool().Draw(t, "taken")
		}
		h.PCI = append(h.PCI, p)
	}
	if rapid.Bool().Draw(t, "SEV") {
		total := rapid.Int64Range(1, 500).Draw(t, "contexts")
		h.Encryption = append(h.Encryption,
			selection.EncryptionProvider{Suffix: "amd_sev",
				Total: total, Reserved: rapid.Int64Range(0, total).Draw(t, "reserved"), MaxUnit: 1,
				Trait: "HW_CPU_X86_AMD_SEV", Security: domain.SEV})
	}
	for _, label := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"SMALL", "BIG"}), 0, 2,
		rapid.ID).Draw(t, "labels") {
		h.PMEM["CUSTOM_PMEM_NAMESPACE_"+label] = rapid.Int64Range(1, 16).Draw(t, "namespaces")
	}
	return h
}

// anySettings draws settings with which most hosts can be.
func anySettings(t *rapid.T) inventory.Settings {
	ratio := rapid.SampledFrom([]float64{0, 1, 1.5, 16})
	return inventory.Settings{
		TypeTraits: rapid.Bool().Draw(t, "type traits"), ReservedCPUs: rapid.Int64Range(0, 2).Draw(t, "reserved CPUs"),
		ReservedMemoryMB: rapid.Int64Range(0, 2048).Draw(t, "reserved memory"),
		ReservedDiskMB:   rapid.Int64Range(0, 4096).Draw(t, "reserved disk"),
		CPURatio:         ratio.Draw(t, "CPU ratio"),
		RAMRatio:         ratio.Draw(t, "RAM ratio"), DiskRatio: ratio.Draw(t, "disk ratio"),
		InitialCPURatio: 4, InitialRAMRatio: 1, InitialDiskRatio: 1,
	}
}

// anyWanted draws a host in both layouts, or says why it cannot be.
func anyWanted(t *rapid.T) (h inventory.Host, flat, nested inventory.Wanted) {
	h = anyHost(t)
	s := anySettings(t)
	flat, _, err := inventory.Want(h, s)
	s.Nested = true
	nested, _, nestedErr := inventory.Want(h, s)
	for _, err := range []error{err, nestedErr} {
		if err == nil {
			continue
		}
		var wrong *plugins.ConfigError
		if !errors.As(err, &wrong) || !strings.HasPrefix(wrong.Key, "reserved_host_") {
			t.Fatalf("%v of %+v", err, h)
		}
	}
	if err != nil || nestedErr != nil {
		t.Skip("more is reserved than there is") // rapid draws another
	}
	return h, flat, nested
}

// TestThereAndBack: whatever the host, a tree that was nested is flat again as if nothing had been,
// and the other way round.
func TestThereAndBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		_, flat, nested := anyWanted(t)
		first := put(t, flat, withOthers(t, fresh(t)))
		// an administrator's ratios; those of the configuration win
		for _, class := range []string{"VCPU", "MEMORY_MB", "DISK_GB"} {
			if inv, has := first.Inventory(root, class); has && rapid.Bool().Draw(t, "another ratio of "+class) {
				inv.AllocationRatio = 3
				testproc.Try(first.SetInventory(root, class, inv)).Or(t)
			}
		}
		first = put(t, flat, first)
		cells := put(t, nested, first)
		again := put(t, flat, cells)
		for _, tree := range []*providertree.Tree{first, cells, again} {
			sameOthers(t, first, tree)
			valid(t, tree)
		}
		// The root has huge pages afterwards, for those who hold some. They stay.
		after := again.Clone()
		for class := range must1(t, after, root).Inventories {
			if _, pages := selection.PagesSize(class); pages {
				testproc.Try(after.RemoveInventory(root, class)).Or(t)
			}
		}
		if !after.Equal(first) {
			t.Fatalf("flat, nested, flat (-first +last):\n%s", cmp.Diff(dump(first), dump(after)))
		}
		if twice := put(t, nested, again); !twice.Equal(cells) {
			t.Fatalf("nested, flat, nested (-first +last):\n%s", cmp.Diff(dump(cells), dump(twice)))
		}
		if third := put(t, flat, cells); !third.Equal(again) {
			t.Fatalf("flat for the second and the third time:\n%s", cmp.Diff(dump(again), dump(third)))
		}
	})
}

func must1(t tester, tree *providertree.Tree, uuid string) providertree.Provider {
	p, found := tree.Provider(uuid)
	if !found {
		t.Fatalf("no %s", uuid)
	}
	return p
}

// valid sees that Placement takes a tree: totals that it can store, no more reserved than there is.
func valid(t tester, tree *providertree.Tree) {
	t.Helper()
	for p := range tree.All() {
		must(t, p.Inventories.Validate())
		for class, inv := range p.Inventories {
			if inv.Total < 1 || inv.Total > providertree.MaxUnit || inv.Reserved < 0 ||
				inv.Reserved > inv.Total || inv.MaxUnit > inv.Total {
				t.Fatalf("%s of %s: %+v", class, p.Name, inv)
			}
		}
	}
}

// TestCellsAddUpToTheHost: the cells have together what the root has in the flat tree. VCPU, PCPU
// and what is reserved of them do so exactly, and so do huge pages; MEMORY_MB is cut to MiB in each
// cell, so it may be less than one MiB short for each, and is less in the flat tree only where that
// has more than Placement can store.
func TestCellsAddUpToTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		h, flat, nested := anyWanted(t)
		sum := map[string]providertree.Inventory{}
		cells := int64(0)
		for p := range put(t, nested, fresh(t)).All() {
			if !strings.HasPrefix(p.Name, "cn1_numa_") {
				continue
			}
			cells++
			for class, inv := range p.Inventories {
				sum[class] = providertree.Inventory{Total: sum[class].Total + inv.Total,
					Reserved: sum[class].Reserved + inv.Reserved}
			}
		}
		node := must1(t, put(t, flat, fresh(t)), root)
		for _, class := range []string{"VCPU", "PCPU", "MEMORY_MB"} {
			one, all := node.Inventories[class], sum[class]
			short := one.Total - all.Total
			if class != "MEMORY_MB" && short != 0 || short > max(cells-1, 0) || short < 0 &&
				one.Total != providertree.MaxUnit {
				t.Fatalf("%s: %d in all cells, %d of the host", class, all.Total, one.Total)
			}
			if one.Reserved != all.Reserved && all.Total > 0 {
				t.Fatalf("%s: %d reserved in all cells, %d of the host", class, all.Reserved, one.Reserved)
			}
		}
		pages := map[string]int64{}
		for i, c := range h.Memory {
			for _, p := range c.Pages {
				if len(h.Cells[i].CPUs) > 0 || h.Cells[i].MemoryKiB > 0 {
					pages[p.Class] += p.Total
				}
			}
		}
		for class, n := range pages {
			if sum[class].Total != n {
				t.Fatalf("%s: %d, want %d", class, sum[class].Total, n)
			}
		}
	})
}

// TestOnlyMovingPlacesLoseAllocatedInventory: between two hosts of any kind, whatever goes from
// one place of the driver's and comes at another of a kind to which allocations can follow, is
// Moving; and what is Moving was there.
func TestOnlyMovingPlacesLoseAllocatedInventory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		var layouts []inventory.Wanted
		for range 2 {
			_, flat, nested := anyWanted(t)
			layouts = append(layouts, rapid.SampledFrom([]inventory.Wanted{flat, nested}).Draw(t, "layout"))
		}
		before := put(t, layouts[0], withOthers(t, fresh(t)))
		moving := testproc.Try(layouts[1].Moving(before, root)).Or(t)
		after := put(t, layouts[1], before)
		sameOthers(t, before, after)
		said := map[plugins.Place]bool{}
		for _, place := range moving {
			if _, has := before.Inventory(place.Provider, place.Class); !has {
				t.Fatalf("%s is moving and was not there", place)
			}
			said[place] = true
		}
		has := func(tree *providertree.Tree, cell bool, class string) bool {
			return slices.ContainsFunc(slices.Collect(tree.All()), func(p providertree.Provider) bool {
				_, has := p.Inventories[class]
				return has && strings.HasPrefix(p.Name, "cn1_numa_") == cell &&
					(cell && p.ParentUUID == root || p.UUID == root)
			})
		}
		for p := range before.All() {
			cell := strings.HasPrefix(p.Name, "cn1_numa_") && p.ParentUUID == root
			for class := range p.Inventories {
				_, stays := after.Inventory(p.UUID, class)
				place := plugins.Place{Provider: p.UUID, Class: class}
				var moves bool
				switch {
				case stays:
					continue
				case cell || p.UUID == root:
					moves = has(after, !cell, class) && (cell && has(before, true, class) || !cell)
				default: // a device: what stays has another class then
					moves = after.Exists(p.UUID)
				}
				if moves && !said[place] {
					t.Fatalf("%s of %s moves and is not moving (%v):\n%s",
						class, p.Name, moving, cmp.Diff(dump(before), dump(after)))
				}
				if !moves && said[place] && class != "VCPU" {
					t.Fatalf("%s of %s is moving and has nowhere to go:\n%s",
						class, p.Name, cmp.Diff(dump(before), dump(after)))
				}
			}
		}
	})
}

// TestOrderDoesNotMatter: neither of cells nor of devices.
func TestOrderDoesNotMatter(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		h := anyHost(t)
		s := anySettings(t)
		s.Nested = rapid.Bool().Draw(t, "nested")
		one, _, err := inventory.Want(h, s)
		if err != nil {
			t.Skip("more is reserved than there is")
		}
		h.Cells, h.Memory, h.Mdevs = rapid.Permutation(h.Cells).Draw(t, "cells"),
			rapid.Permutation(h.Memory).Draw(t, "memory"), rapid.Permutation(h.Mdevs).Draw(t, "mdevs")
		h.PCI, h.Shared, h.PMEM = rapid.Permutation(h.PCI).Draw(t, "PCI"),
			rapid.Permutation(h.Shared).Draw(t, "shared"), maps.Clone(h.PMEM)
		two := want(t, h, s)
		if a, b := put(t, one, novas(t)), put(t, two, novas(t)); !a.Equal(b) {
			t.Fatalf("(-one +other):\n%s", cmp.Diff(dump(a), dump(b)))
		}
	})
}

// large is a host of 8 cells with 64 CPUs each, two GPUs in each cell and 200 PCI devices.
func large() inventory.Host {
	h := inventory.Host{Node: "cn1", DiskGB: 4000, OwnedTraits: make([]string, 0, 128)}
	for i := range 128 {
		h.OwnedTraits = append(h.OwnedTraits, fmt.Sprintf("HW_CPU_X86_%03d", i))
	}
	h.Traits = h.OwnedTraits[:40]
	for id := range 8 {
		c := machine.Cell{ID: id, MemoryKiB: 256 << 20}
		for cpu := range 64 {
			c.CPUs = append(c.CPUs, id*64+cpu)
		}
		h.Shared, h.Dedicated = append(h.Shared, c.CPUs[2:32]...), append(h.Dedicated, c.CPUs[32:]...)
		h.Cells, h.MemoryKiB = append(h.Cells, c), h.MemoryKiB+c.MemoryKiB
		h.Memory = append(h.Memory,
			selection.PagesCell{ID: id,
				Pages: []selection.Pages{{SizeKiB: 1 << 20, Class: selection.PagesClass(1 << 20), Total: 128}}})
		for i := range 2 {
			a := machine.Address{Bus: uint8(0x80 + id), Slot: uint8(i)}
			h.Mdevs = append(h.Mdevs, selection.MdevProvider{Device: a.DeviceName(), Address: &a, Cell: id,
				Type: "nvidia-222", Class: "VGPU", Total: 16, TypeTrait: "CUSTOM_NVIDIA_222"})
		}
	}
	for i := range 200 {
		a := machine.Address{Bus: uint8(i / 8), Slot: uint8(i % 8)}
		h.PCI = append(h.PCI, selection.PCIProvider{
			Suffix: a.String(), Address: a, Cell: i % 8, Class: "CUSTOM_PCI_144D_A824",
			Traits: []string{selection.TraitManaged}, Devices: []selection.PCIPassed{{Address: a}},
		})
	}
	return h
}

func BenchmarkWant(b *testing.B) {
	h, s := large(), nestedSettings()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := inventory.Want(h, s); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPut is a pass in which nothing changes, and one that nests a flat tree.
func BenchmarkPut(b *testing.B) {
	flat, nested := want(b, large(), settings()), want(b, large(), nestedSettings())
	tree := put(b, flat, fresh(b))
	cells := put(b, nested, tree)
	for _, c := range []struct {
		name string
		tree *providertree.Tree
	}{{"steady", cells}, {"nesting", tree}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				after := c.tree.Clone()
				testproc.Try(nested.Moving(after, root)).Or(b)
				testproc.Check(b, nested.Put(after, root))
			}
		})
	}
}
