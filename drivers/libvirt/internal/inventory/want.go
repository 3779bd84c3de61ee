// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const (
	kibPerMiB = 1024
	mibPerGiB = 1024
)

// Keys of the configuration that can ask for more than there is.
const (
	reservedCPUsKey   = "reserved_host_cpus"
	reservedMemoryKey = "reserved_host_memory_mb"
	reservedDiskKey   = "reserved_host_disk_mb"
	nodeKey           = "host"
)

// Want computes the desired tree of a host. Oddities that do not prevent it are returned as
// discrepancies. Errors are joined; those that the operator can fix are [*plugins.ConfigError], the
// others are inconsistencies of the host.
//
// Totals are cut to whole units and to what Placement can store. Memory in huge pages is MEMORY_MB
// too: a guest with huge pages holds both.
//
// Cost: O(CPUs + cells + devices); see BenchmarkWant.
func Want(h Host, s Settings) (Wanted, []machine.Discrepancy, error) {
	b := builder{Host: h, Settings: s, cells: map[int]string{}}
	b.w = Wanted{
		ownedTraits: slices.Clone(h.OwnedTraits), mdevTraits: slices.Clone(h.MdevTraits),
		mdevClasses: map[string]bool{classVGPU: true}, pciClasses: map[string]bool{},
		uncertain: maps.Clone(h.Uncertain),
	}
	b.root()
	if s.Nested {
		b.numa()
	}
	b.mdevs()
	b.pci()
	b.encryption()
	b.noteUnlocated("inventory-no-cell", "devices that report no NUMA cell", b.withoutCell)
	b.noteUnlocated("inventory-cells",
		"devices that report a NUMA cell that the host does not have, or that numa_ignore_cells leaves out",
		b.inUnknownCell)
	b.check()
	if len(b.problems) > 0 {
		return Wanted{}, nil, errors.Join(b.problems...)
	}
	return b.w, b.discrepancies, nil
}

type builder struct {
	Host
	Settings
	w Wanted
	// cells are the names of the cells' providers, by number.
	cells map[int]string
	// withoutCell are the devices that are in no cell, inUnknownCell those in one that the host
	// does not have.
	withoutCell, inUnknownCell []string

	discrepancies []machine.Discrepancy
	problems      []error
}

func (b *builder) addProblem(key, format string, args ...any) {
	b.problems = append(b.problems, &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)})
}

// add takes an inventory in, if there is any of it. key is what asked for what is reserved.
func (b *builder) add(p *Provider, s DesiredInventory, key string) {
	switch {
	case s.Total <= 0:
	case s.Reserved > s.Total || s.Reserved < 0:
		b.addProblem(key, "reserves %d of %s, but %s has only %d", s.Reserved, s.Class, p.Name, s.Total)
	default:
		p.Inventories = append(p.Inventories, s)
	}
}

func (b *builder) vcpu(n int, reserved int64) DesiredInventory {
	return DesiredInventory{Class: classVCPU, Total: int64(n), Reserved: reserved, MaxUnit: int64(n),
		Ratio: b.CPURatio, Initial: b.InitialCPURatio}
}

func (b *builder) memory(kib uint64, reserved int64) DesiredInventory {
	mb := int64(min(kib/kibPerMiB, providertree.MaxUnit))
	return DesiredInventory{Class: classMemory, Total: mb, Reserved: reserved, MaxUnit: mb,
		Ratio: b.RAMRatio, Initial: b.InitialRAMRatio}
}

// rootClass is a resource class, or a family of them, that the driver reports on the root.
type rootClass struct {
	// owned reports whether it is the class. What is owned and not reported is removed: this is how
	// disabling an option works.
	owned func(w *Wanted, class string) bool
	// report adds the inventories; nil for what only earlier versions, or Nova's, had on the root.
	report func(b *builder, root *Provider)
}

// The standard resource classes that the driver reports, but for memory encryption (selection).
const (
	classVCPU   = "VCPU"
	classPCPU   = "PCPU"
	classMemory = "MEMORY_MB"
	classDisk   = "DISK_GB"
	classVGPU   = "VGPU"
)

// rootClasses lists everything that the driver reports on the root. A class that is not in it can
// be neither reported nor removed.
//
// A new class needs, from the configuration and the host to the tree:
//
//   - a key, off by default if Nova's driver does not report the class: config.go and schema.json
//     of the driver (package libvirt), a row of switches in config_effects_test.go, and the class
//     in want of inTheDocumentation there;
//   - the fact: from libvirt, or read below /sys or /proc by package discovery (a method of its
//     Root beside those of proc.go, or a function as ReadPMEM; with a test of files that are
//     missing or make no sense; hosts of tests have no /dev), a field of facts, and where
//     discoverMachine of the driver's discover.go sets it, only if the key asks for it, as PMEM.
//     The host of config_effects_test.go needs the file, too;
//   - a field of Host (wanted.go), set in the driver's own inventory.go, with a value in everything
//     and switchOff (switchedoff_test.go) and in anyHost of property_test.go;
//   - a constant and a row here, in flat if it is of processors or memory: a nested tree has it on
//     its cells then, and numa reports it;
//   - what guests get for it, or why they get nothing (withheld in granted_test.go): a row of
//     grantedClasses in package assignment, without which the tree is refused;
//   - docs/libvirt.md (what is reported, the key beside Nova's option, warnings) and CHANGELOG.md;
//     go test ./internal/config -run '^TestReference$' -update for docs/configuration.md.
//
// Whatever is owned is removed while its key is off, also an inventory of that class that an
// operator made: a custom class needs a name that says what this driver counts, as
// CUSTOM_HUGEPAGES_2M.
var rootClasses = []rootClass{
	{named(classVCPU), flat(
		func(b *builder, root *Provider) { b.add(root, b.vcpu(len(b.Shared), b.ReservedCPUs), reservedCPUsKey) })},
	{named(classPCPU), flat(
		func(b *builder, root *Provider) {
			b.add(root, fixedInventory(classPCPU, int64(len(b.Dedicated)), 0), "")
		})},
	{named(classMemory), flat(func(b *builder, root *Provider) {
		b.add(root, b.memory(b.rootMemory(), b.ReservedMemoryMB), reservedMemoryKey)
	})},
	{hugePages, flat((*builder).rootPages)},
	{named(classDisk), (*builder).disk},
	{func(_ *Wanted, class string) bool { return strings.HasPrefix(class, selection.PMEMPrefix) }, (*builder).pmem},
	{func(w *Wanted, class string) bool { return w.mdevClasses[class] }, nil}, // by Nova before Rocky
	{named(selection.EncryptionClass), nil},                                   // by Nova before 2025.2
}

// rootMemory is the memory of a flat tree, in KiB.
func (b *builder) rootMemory() uint64 {
	kib := b.MemoryKiB
	var out []string
	for _, c := range b.Cells {
		if c.Tier != "" && !b.TiersInRoot {
			kib -= min(kib, c.MemoryKiB)
			out = append(out, fmt.Sprintf("%d (%d MiB, tier %s)", c.ID, c.MemoryKiB/kibPerMiB, strings.ToLower(c.Tier)))
		}
	}
	if len(out) > 0 {
		b.discrepancies = append(b.discrepancies, machine.Discrepancyf("memory-tiers",
			"NUMA cells whose memory is of another tier than that of the processors' cells are not part of MEMORY_MB: "+
				"%s. With memory_tiers_in_root they are, and guests can have that memory; with numa_ignore_cells "+
				"this warning ends", machine.JoinSome(out)))
	}
	return kib
}

func named(name string) func(*Wanted, string) bool {
	return func(_ *Wanted, class string) bool { return class == name }
}

func hugePages(_ *Wanted, class string) bool {
	_, pages := selection.PagesSize(class)
	return pages
}

// flat reports on the root what is the cells' in a nested tree.
func flat(report func(*builder, *Provider)) func(*builder, *Provider) {
	return func(b *builder, root *Provider) {
		if !b.Nested {
			report(b, root)
		}
	}
}

func (b *builder) root() {
	root := Provider{Name: b.Node, Traits: slices.Clone(b.Traits), Site: assignment.Provider{Kind: assignment.Root}}
	for _, c := range rootClasses {
		if c.report != nil {
			c.report(b, &root)
		}
	}
	b.w.Providers = append(b.w.Providers, root)
}

func (b *builder) disk(root *Provider) {
	if b.SharedDisk {
		return
	}
	gb, reserved := min(b.DiskGB, providertree.MaxUnit), b.ReservedDiskMB/mibPerGiB
	if b.ReservedDiskMB%mibPerGiB > 0 {
		reserved++ // as in Nova
	}
	b.add(root, DesiredInventory{Class: classDisk, Total: gb, Reserved: reserved, MaxUnit: gb, Ratio: b.DiskRatio,
		Initial: b.InitialDiskRatio}, reservedDiskKey)
}

func (b *builder) pmem(root *Provider) {
	for _, class := range slices.Sorted(maps.Keys(b.PMEM)) {
		b.add(root, fixedInventory(class, min(b.PMEM[class], providertree.MaxUnit), 0), "")
	}
}

// rootPages are the huge pages of all cells. They are not in Nova's tree: the root has them only
// for guests that hold some since the tree was nested.
func (b *builder) rootPages(root *Provider) {
	total, reserved := map[string]int64{}, map[string]int64{}
	for _, cell := range b.Memory {
		for _, p := range cell.Pages {
			total[p.Class] = min(total[p.Class]+p.Total, providertree.MaxUnit)
			reserved[p.Class] = min(reserved[p.Class]+p.Reserved, providertree.MaxUnit)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(total)) {
		inv := fixedInventory(class, total[class], reserved[class])
		inv.Carried = true
		b.add(root, inv, selection.ReservedPagesKey)
	}
}

// numa gives each cell that has CPUs or memory a provider. The traits of CPUs follow VCPU and PCPU
// to the cells; the root keeps them for root_required.
func (b *builder) numa() {
	cells := slices.Clone(b.Cells)
	slices.SortFunc(cells, func(a, b machine.Cell) int { return cmp.Compare(a.ID, b.ID) })
	cells = slices.DeleteFunc(cells, func(c machine.Cell) bool { return len(c.CPUs) == 0 && c.MemoryKiB == 0 })
	of := b.cellOf(cells)
	shared, dedicated := b.count(b.Shared, of), b.count(b.Dedicated, of)
	var vcpus, memory []int64
	var withCPUs []bool
	var kib uint64
	for _, c := range cells {
		vcpus = append(vcpus, int64(shared[c.ID]))
		memory = append(memory, b.memory(c.MemoryKiB, 0).Total)
		withCPUs = append(withCPUs, len(c.CPUs) > 0)
		kib += c.MemoryKiB
	}
	if b.MemoryKiB > 0 && (kib > b.MemoryKiB+b.MemoryKiB/100 || b.MemoryKiB > kib+kib/100) {
		b.discrepancies = append(
			b.discrepancies,
			machine.Discrepancyf("inventory-memory",
				"the NUMA cells have %d MiB of memory together, the host reports %d; the driver uses the cells' sum",
				kib/kibPerMiB, b.MemoryKiB/kibPerMiB),
		)
	}
	reservedCPUs := b.share(reservedCPUsKey, classVCPU, b.ReservedCPUs, vcpus, selection.SplitReserved)
	reservedMemory := b.share(reservedMemoryKey, classMemory, b.ReservedMemoryMB, memory,
		func(reserved int64, totals []int64) ([]int64, error) {
			return selection.SplitReservedMemory(reserved, totals, withCPUs)
		})
	for i, c := range cells {
		key := fmt.Sprintf("numa_%d", c.ID)
		p := Provider{Name: b.Node + "_" + key, Parent: b.Node, Key: key, Traits: []string{traitNUMA},
			Site: assignment.Provider{Kind: assignment.Cell, Cell: c.ID}}
		b.add(&p, b.vcpu(shared[c.ID], reservedCPUs[i]), reservedCPUsKey)
		b.add(&p, fixedInventory(classPCPU, int64(dedicated[c.ID]), 0), "")
		b.add(&p, b.memory(c.MemoryKiB, reservedMemory[i]), reservedMemoryKey)
		if at := slices.IndexFunc(b.Memory, func(m selection.PagesCell) bool { return m.ID == c.ID }); at >= 0 {
			for _, pages := range b.Memory[at].Pages {
				b.add(&p, fixedInventory(pages.Class, min(pages.Total, providertree.MaxUnit), pages.Reserved),
					selection.ReservedPagesKey)
			}
		}
		if p.inventory(classVCPU) != nil || p.inventory(classPCPU) != nil {
			p.Traits = append(p.Traits, ofCPUs(b.Traits)...)
		}
		if c.Tier != "" {
			p.Traits = append(p.Traits, traitTier+c.Tier)
		}
		b.cells[c.ID] = p.Name
		b.w.Providers = append(b.w.Providers, p)
	}
}

// cellOf is the cell of each CPU.
func (b *builder) cellOf(cells []machine.Cell) map[int]int {
	of := map[int]int{}
	for _, c := range cells {
		for _, cpu := range c.CPUs {
			if other, twice := of[cpu]; twice {
				b.problems = append(b.problems, fmt.Errorf("CPU %d is in NUMA cells %d and %d", cpu, other, c.ID))
			}
			of[cpu] = c.ID
		}
	}
	return of
}

// count is how many of the CPUs are in each cell.
func (b *builder) count(cpus []int, of map[int]int) map[int]int {
	n := map[int]int{}
	for _, cpu := range cpus {
		cell, found := of[cpu]
		if !found {
			b.problems = append(b.problems, fmt.Errorf("CPU %d is for guests, but in no NUMA cell", cpu))
		}
		n[cell]++
	}
	return n
}

// share divides what is reserved of a class among the cells. Of what no cell has, nothing is
// reserved.
func (b *builder) share(
	key, class string, reserved int64, totals []int64, split func(reserved int64, totals []int64) ([]int64, error),
) []int64 {
	var sum int64
	for _, t := range totals {
		sum += t
	}
	none := make([]int64, len(totals))
	if sum == 0 {
		return none
	}
	if reserved > sum || reserved < 0 {
		b.addProblem(key, "reserves %d of %s, but the NUMA cells have only %d", reserved, class, sum)
		return none
	}
	shares, err := split(reserved, totals)
	if err != nil {
		b.problems = append(b.problems, err)
		return none
	}
	return shares
}

// below is the parent of the provider of a device.
func (b *builder) below(device string, cell int) string {
	if !b.Nested {
		return b.Node
	}
	if name, found := b.cells[cell]; found {
		return name
	}
	if cell != machine.NoCell {
		b.inUnknownCell = append(b.inUnknownCell, fmt.Sprintf("%s (%d)", device, cell))
	} else if len(b.cells) > 1 && !b.Uncertain[device] {
		b.withoutCell = append(b.withoutCell, device)
	}
	return b.Node
}

// noteUnlocated adds one about devices without a cell.
func (b *builder) noteUnlocated(key, what string, devices []string) {
	const shown = 8
	if n := len(devices); n > shown {
		devices = append(slices.Clone(devices[:shown]), fmt.Sprintf("and %d more", n-shown))
	}
	if len(devices) > 0 {
		b.discrepancies = append(
			b.discrepancies,
			machine.Discrepancyf(key,
				"%s: %s. Their providers are children of the root, so requests for devices near processors "+
					"(same_subtree) never find them", what, strings.Join(devices, ", ")),
		)
	}
}

func (b *builder) mdevs() {
	for _, m := range b.Mdevs {
		b.w.mdevClasses[m.Class] = true
		b.w.mdevTraits = append(b.w.mdevTraits, m.TypeTrait)
		b.w.mdevTraits = append(b.w.mdevTraits, m.Traits...)
		if m.Total <= 0 {
			continue // the provider goes, as in Nova
		}
		p := Provider{
			Name: m.Name(b.Node), Parent: b.below(m.Device, m.Cell), Key: m.Device,
			Traits:    append([]string{traitNova}, m.Traits...),
			Site:      assignment.Provider{Kind: assignment.MdevParent, Parent: m.Device, Type: m.Type, Class: m.Class},
			typeTrait: m.TypeTrait,
		}
		if b.TypeTraits && m.TypeTrait != "" {
			p.Traits = append(p.Traits, m.TypeTrait)
		}
		b.add(&p, fixedInventory(m.Class, min(int64(m.Total), providertree.MaxUnit), 0), "")
		b.w.Providers = append(b.w.Providers, p)
	}
	b.w.mdevTraits = slices.DeleteFunc(b.w.mdevTraits, func(t string) bool { return t == "" || t == traitNova })
}

func (b *builder) pci() {
	for _, d := range b.PCI {
		b.w.pciClasses[d.Class] = true
		p := Provider{
			Name: d.Name(b.Node), Parent: b.below(d.Address.String(), d.Cell), Key: d.Suffix,
			Traits: append([]string{traitNova}, d.Traits...),
			Site:   assignment.Provider{Kind: assignment.PCI, Class: d.Class},
		}
		inv := fixedInventory(d.Class, int64(d.Total()), 0)
		inv.Ratio, inv.Initial, inv.Lenient = 0, 1, true
		for _, passed := range d.Devices {
			p.Site.Devices = append(p.Site.Devices,
				machine.PassedDevice{Address: passed.Address, Managed: passed.Managed})
			if d.OneTimeUse && b.Taken[passed.Address] {
				inv.Reserved = inv.Total
			}
		}
		if inv.Total == 0 {
			continue
		}
		b.add(&p, inv, "")
		b.w.Providers = append(b.w.Providers, p)
	}
}

func (b *builder) encryption() {
	for _, e := range b.Encryption {
		if e.Total <= 0 {
			continue
		}
		p := Provider{
			Name: e.Name(b.Node), Parent: b.Node, Key: e.Suffix, Traits: []string{traitNova, e.Trait},
			Site: assignment.Provider{Kind: assignment.Encryption, Security: e.Security,
				Class: selection.EncryptionClass},
		}
		inv := fixedInventory(selection.EncryptionClass, min(e.Total, providertree.MaxUnit), e.Reserved)
		inv.MaxUnit = e.MaxUnit
		b.add(&p, inv, selection.EncryptedGuestsKey)
		b.w.Providers = append(b.w.Providers, p)
	}
}

// check finds names that are invalid, classes that could not be removed again, and classes that
// could be granted to guests without that it is decided what they get.
func (b *builder) check() {
	seen := map[string]bool{}
	for _, p := range b.w.Providers {
		for _, s := range p.Inventories {
			if !b.w.owns(p.Site.Kind, s.Class) {
				b.problems = append(b.problems,
					fmt.Errorf("resource provider %q: %s is not among the classes that the driver can remove there",
						p.Name, s.Class))
			}
			if kind := p.Site.Kind; (kind == assignment.Root || kind == assignment.Cell) &&
				!assignment.Understands(s.Class) {
				b.problems = append(b.problems,
					fmt.Errorf("resource provider %q: it is not decided what guests get for %s", p.Name, s.Class))
			}
		}
		if seen[p.Name] {
			b.problems = append(b.problems, fmt.Errorf("two resource providers would have the name %q", p.Name))
		}
		seen[p.Name] = true
		if err := providertree.ValidateProviderName(p.Name); err != nil {
			b.addProblem(nodeKey, "%s: the name of the node is too long for those of its devices (%v)",
				strings.TrimSuffix(p.Name, p.Key), err)
			return
		}
	}
}
