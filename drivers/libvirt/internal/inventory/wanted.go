// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hugepages"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/placing"
)

// Resource classes and traits with a meaning here.
const (
	classVCPU   = "VCPU"
	classPCPU   = "PCPU"
	classMemory = "MEMORY_MB"
	classDisk   = "DISK_GB"
	classVGPU   = "VGPU"

	traitNUMA = "HW_NUMA_ROOT"
	traitNova = "OWNER_NOVA"
)

// Wanted is what the tree of a node is to say. It is a value: use it as often as needed.
type Wanted struct {
	// Providers are the root and what is below it, every parent before its children.
	Providers []Provider

	ownedTraits, mdevTraits []string
	mdevClasses, pciClasses map[string]bool
}

// Provider is a resource provider as it is to be.
type Provider struct {
	// Name is its name, Parent that of its parent; the root has none.
	Name, Parent string
	// Key stays with the device or cell. With the root's uuid it makes the provider's own, if it is new.
	Key string
	// Stock are the inventories, in no particular order, each class once.
	Stock  []Stock
	Traits []string
	// Site is what the provider stands for on the host.
	Site placing.Provider

	// typeTrait is true of the provider, whether it is wanted or not: an administrator may have said it.
	typeTrait string
}

// Stock is an inventory as it is to be. min_unit and step_size are 1.
type Stock struct {
	Class           string
	Total, Reserved int64
	MaxUnit         int64
	// Ratio is what the configuration or the kind of thing says. Where it is 0, the ratio that Placement has stays; a class that was elsewhere
	// in the tree brings its own along; a new one gets Initial.
	Ratio, Initial float64
	// Lenient leaves all but the total and max_unit as Placement has it, though more may be reserved: operators reserve PCI devices there. What the
	// agent reserves of a device that went while it was allocated is not seen here.
	Lenient bool
	// Carried is told only where the tree has the class already, on the root or on a cell.
	Carried bool
}

func (p *Provider) stock(class string) *Stock {
	if i := slices.IndexFunc(p.Stock, func(s Stock) bool { return s.Class == class }); i >= 0 {
		return &p.Stock[i]
	}
	return nil
}

// exact is an inventory of things that are there or not: nothing is overcommitted.
func exact(class string, total, reserved int64) Stock {
	return Stock{Class: class, Total: total, Reserved: reserved, MaxUnit: total, Ratio: 1}
}

// computing says whether a class is one that moves between the root and the cells.
func computing(class string) bool {
	_, pages := hugepages.SizeOf(class)
	return pages || class == classVCPU || class == classPCPU || class == classMemory
}

// anywhere says whether some wanted provider of a kind has inventory of a class.
func (w *Wanted) anywhere(kind placing.Kind, class string) bool {
	return slices.ContainsFunc(w.Providers, func(p Provider) bool { return p.Site.Kind == kind && p.stock(class) != nil })
}

// any says whether a provider of a kind is wanted.
func (w *Wanted) any(kind placing.Kind) bool {
	return slices.ContainsFunc(w.Providers, func(p Provider) bool { return p.Site.Kind == kind })
}
