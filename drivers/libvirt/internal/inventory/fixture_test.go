// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const root = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"

// tester is a *testing.T, *testing.B or *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

var must = testproc.Check

func address(t tester, text string) machine.Address {
	t.Helper()
	return testproc.Try(machine.ParseAddress(text)).Or(t)
}

// twoSockets is a host of two NUMA cells with four CPUs each (one of them the host's own, one
// dedicated), a GPU in each cell, a network card with four virtual functions in the second, and
// SEV.
func twoSockets(t tester) inventory.Host {
	t.Helper()
	gpu0, gpu1, nic := address(t, "0000:3b:00.0"), address(t, "0000:82:00.0"), address(t, "0000:86:00.0")
	card := selection.PCIProvider{Suffix: "0000:86:00.0", Address: nic, Cell: 1, Class: "CUSTOM_PCI_15B3_1016",
		Traits: []string{selection.TraitManaged, "CUSTOM_FAST"}}
	for f := range uint8(4) {
		card.Devices = append(card.Devices,
			selection.PCIPassed{Address: machine.Address{Bus: 0x86, Function: f + 2},
				Kind: selection.PCIVirtual, Managed: true})
	}
	return inventory.Host{
		Node: "cn1",
		Cells: []machine.Cell{{ID: 0, CPUs: []int{0, 1, 2, 3}, MemoryKiB: 65 << 20},
			{ID: 1, CPUs: []int{4, 5, 6, 7}, MemoryKiB: 63 << 20}},
		Shared: []int{1, 2, 5, 6}, Dedicated: []int{3, 7}, MemoryKiB: 128 << 20,
		Memory: []selection.PagesCell{
			{ID: 0, CommonKiB: 61 << 20,
				Pages: []selection.Pages{{SizeKiB: 2048, Class: "CUSTOM_HUGEPAGES_2M", Total: 2048, Reserved: 64}}},
			{ID: 1, CommonKiB: 61 << 20,
				Pages: []selection.Pages{{SizeKiB: 1 << 20, Class: "CUSTOM_HUGEPAGES_1G", Total: 2}}},
		},
		Mdevs: []selection.MdevProvider{
			{Device: "pci_0000_3b_00_0", Address: &gpu0, Cell: 0, Type: "nvidia-222", Class: "VGPU", Active: 1,
				Total: 4, TypeTrait: "CUSTOM_NVIDIA_222"},
			{Device: "pci_0000_82_00_0", Address: &gpu1, Cell: 1, Type: "nvidia-231", Class: "CUSTOM_BIG", Total: 1,
				Traits: []string{"CUSTOM_GPU_BIG"}, TypeTrait: "CUSTOM_NVIDIA_231"},
		},
		PCI: []selection.PCIProvider{card},
		Encryption: []selection.EncryptionProvider{{Suffix: "amd_sev", Total: 15, MaxUnit: 1,
			Trait: "HW_CPU_X86_AMD_SEV", Security: domain.SEV}},
		PMEM:        map[string]int64{"CUSTOM_PMEM_NAMESPACE_SMALL": 2},
		DiskGB:      1000,
		Traits:      []string{"HW_ARCH_X86_64", "HW_CPU_X86_AVX2"},
		OwnedTraits: []string{"HW_ARCH_X86_64", "HW_CPU_X86_AVX2", "HW_CPU_X86_AVX512F", "HW_CPU_X86_AMD_SEV"},
	}
}

// settings are the driver's defaults.
func settings() inventory.Settings {
	return inventory.Settings{ReservedMemoryMB: 512, ReservedCPUs: 1, InitialCPURatio: 4,
		InitialRAMRatio: 1, InitialDiskRatio: 1}
}

func nestedSettings() inventory.Settings {
	s := settings()
	s.Nested = true
	return s
}

func want(t tester, h inventory.Host, s inventory.Settings) inventory.Wanted {
	t.Helper()
	w, _, err := inventory.Want(h, s)
	must(t, err)
	return w
}

// fresh is a node that is new.
func fresh(t tester) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	must(t, tree.AddRoot(root, "cn1"))
	return tree
}

// put puts what is wanted into a copy of a tree, twice, and sees that the second time changes
// nothing and that nothing is moving then.
func put(t tester, w inventory.Wanted, tree *providertree.Tree) *providertree.Tree {
	t.Helper()
	after := tree.Clone()
	must(t, w.Put(after, root))
	again := after.Clone()
	must(t, w.Put(again, root))
	if !providertree.Diff(after, again).Empty() {
		t.Fatalf("a second Put changes something (-once +twice):\n%s", cmp.Diff(dump(after), dump(again)))
	}
	moving := testproc.Try(w.Moving(after, root)).Or(t)
	if len(moving) > 0 {
		t.Fatalf("after Put there is still something moving: %v of\n%s", moving, dump(after))
	}
	return after
}

// dump is a tree as text: siblings by name, inventories by class, what is Placement's default left
// out.
func dump(tree *providertree.Tree) string {
	var b strings.Builder
	var roots []string
	for p := range tree.All() {
		if p.ParentUUID == "" {
			roots = append(roots, p.UUID)
		}
	}
	show(&b, tree, roots, "")
	return b.String()
}

func show(b *strings.Builder, tree *providertree.Tree, uuids []string, indent string) {
	var providers []providertree.Provider
	for _, uuid := range uuids {
		p, _ := tree.Provider(uuid)
		providers = append(providers, p)
	}
	slices.SortFunc(providers, func(a, b providertree.Provider) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range providers {
		fmt.Fprintf(b, "%s%s\n", indent, p.Name)
		v, _ := tree.Provider(p.UUID)
		for _, class := range v.Inventories.Classes() {
			inv := p.Inventories[class]
			fmt.Fprintf(b, "%s    %s %d", indent, class, inv.Total)
			for _, field := range []struct {
				name      string
				is, usual any
			}{
				{"reserved", inv.Reserved, int64(0)}, {"min_unit", inv.MinUnit, int64(1)},
				{"max_unit", inv.MaxUnit, inv.Total}, {"step_size", inv.StepSize, int64(1)},
				{"ratio", inv.AllocationRatio, 1.0},
			} {
				if field.is != field.usual {
					fmt.Fprintf(b, " %s=%v", field.name, field.is)
				}
			}
			b.WriteString("\n")
		}
		if len(p.Traits) > 0 {
			fmt.Fprintf(b, "%s    %s\n", indent, strings.Join(p.Traits, " "))
		}
		show(b, tree, tree.Children(p.UUID), indent+"  ")
	}
}

// uuidOf is that of the provider of a name.
func uuidOf(t tester, tree *providertree.Tree, name string) string {
	t.Helper()
	p, found := tree.ProviderByName(name)
	if !found {
		t.Fatalf("no %s in\n%s", name, dump(tree))
	}
	return p.UUID
}
