// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/selection"
)

// Traits with a meaning here.
const (
	traitNUMA = "HW_NUMA_ROOT"
	traitNova = "OWNER_NOVA"
	traitTier = "CUSTOM_MEMORY_TIER_" // and the tier
)

// Wanted is the desired tree of a node. It is a value and can be used repeatedly.
type Wanted struct {
	// Providers are the root and what is below it, every parent before its children.
	Providers []Provider

	ownedTraits, mdevTraits []string
	uncertain               map[string]bool
	mdevClasses, pciClasses map[string]bool
}

// Provider is a desired resource provider.
type Provider struct {
	// Name is its name, Parent that of its parent; the root has none.
	Name, Parent string
	// Key stays with the device or cell. With the root's uuid it makes the provider's own, if it is
	// new.
	Key string
	// Inventories are in no particular order, each class once.
	Inventories []DesiredInventory
	Traits      []string
	// Site is what the provider stands for on the host.
	Site assignment.Provider

	// typeTrait describes the provider whether it is desired or not: an administrator may have set
	// it.
	typeTrait string
}

// DesiredInventory is an inventory that a provider is to have. min_unit and step_size are 1.
type DesiredInventory struct {
	Class           string
	Total, Reserved int64
	MaxUnit         int64
	// Ratio is configured or given by the kind of inventory. If it is 0, Placement's ratio stays; a
	// class that was elsewhere in the tree brings its own along; a new one gets Initial.
	Ratio, Initial float64
	// Lenient leaves all but the total and max_unit as Placement has it, though more may be
	// reserved: operators reserve PCI devices there. What the agent reserves of a device that went
	// while it was allocated is not seen here.
	Lenient bool
	// Carried is reported only where the tree has the class already, on the root or on a cell.
	Carried bool
}

func (p *Provider) inventory(class string) *DesiredInventory {
	if i := slices.IndexFunc(p.Inventories, func(s DesiredInventory) bool { return s.Class == class }); i >= 0 {
		return &p.Inventories[i]
	}
	return nil
}

// fixedInventory is an inventory of things that are there or not: nothing is overcommitted.
func fixedInventory(class string, total, reserved int64) DesiredInventory {
	return DesiredInventory{Class: class, Total: total, Reserved: reserved, MaxUnit: total, Ratio: 1}
}

// computing reports whether a class is one that moves between the root and the cells.
func computing(class string) bool {
	_, pages := selection.PagesSize(class)
	return pages || class == classVCPU || class == classPCPU || class == classMemory
}

// hasInventory reports whether some desired provider of a kind has inventory of a class.
func (w *Wanted) hasInventory(kind assignment.Kind, class string) bool {
	return slices.ContainsFunc(w.Providers,
		func(p Provider) bool { return p.Site.Kind == kind && p.inventory(class) != nil })
}

// hasKind reports whether a provider of a kind is desired.
func (w *Wanted) hasKind(kind assignment.Kind) bool {
	return slices.ContainsFunc(w.Providers, func(p Provider) bool { return p.Site.Kind == kind })
}

// Host is what was decided about a host: how much there is of everything, also where that is only
// configured. How it is reported is in Settings.
type Host struct {
	// Node is the name of the root.
	Node string
	// Cells are the NUMA cells. All CPUs of Shared and Dedicated are in one.
	Cells []machine.Cell
	// Shared and Dedicated are the CPUs of which VCPU and PCPU are made, one of each.
	Shared, Dedicated []int
	// MemoryKiB is the whole host's memory, for the flat tree. A nested tree uses each cell's own.
	MemoryKiB uint64
	// Memory has the huge pages of the cells.
	Memory []selection.PagesCell
	Mdevs  []selection.MdevProvider
	// MdevTraits are all traits that the driver may ever have given to parents of mediated devices;
	// where they are not wanted, they are removed.
	MdevTraits []string
	PCI        []selection.PCIProvider
	// Uncertain are the keys of the providers of devices about which not all is known: a provider
	// that exists stays as it is. It does so even if it is neither in PCI nor in Mdevs, because
	// what would be there is not known.
	Uncertain map[string]bool
	// Taken are the PCI devices that some domain has. A provider for one use of which one is taken
	// is used up.
	Taken      map[machine.Address]bool
	Encryption []selection.EncryptionProvider
	// PMEM is the number of namespaces by resource class.
	PMEM map[string]int64
	// DiskGB is the size of the instances' file system. With SharedDisk, a sharing provider reports
	// it instead of the root.
	DiskGB     int64
	SharedDisk bool
	// Traits are the traits of the root. They are among OwnedTraits, those that the driver may set:
	// the others of these are removed.
	Traits, OwnedTraits []string
}

// Settings say how a Host is reported.
type Settings struct {
	// Nested gives each NUMA cell a provider.
	Nested bool
	// TiersInRoot has memory of other tiers be part of a flat tree's memory.
	TiersInRoot bool
	// TypeTraits gives the providers of mediated devices the trait of their type
	// (CUSTOM_NVIDIA_222). Nova does not. What else follows from the type is among the traits of
	// [selection.MdevProvider].
	TypeTraits bool

	// What is not for guests, by resource class. Nested, the cells share it out in proportion to
	// what they have.
	ReservedCPUs, ReservedMemoryMB, ReservedDiskMB int64

	// Ratios that are 0 are not configured: Placement's stay. The initial ones are for a class that
	// is new.
	CPURatio, RAMRatio, DiskRatio                      float64
	InitialCPURatio, InitialRAMRatio, InitialDiskRatio float64
}
