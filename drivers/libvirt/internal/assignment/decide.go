// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
)

// Kind is what a resource provider stands for.
type Kind int

// The kinds of providers.
const (
	// Root is the compute node: processors and memory of no particular cell.
	Root Kind = iota
	// Cell is a NUMA cell.
	Cell
	// MdevParent is a device that can create mediated devices.
	MdevParent
	// PCI is a PCI device, or a physical function that stands for its virtual functions.
	PCI
	// Encryption is a kind of memory encryption, of which each guest takes a context.
	Encryption
	// Elsewhere is a provider without hardware of this driver: shared storage, an unmanaged child
	// of the tree.
	Elsewhere
)

// Provider is what a resource provider stands for on the host.
type Provider struct {
	Kind Kind
	// Cell is the number of a Cell.
	Cell int
	// Parent is libvirt's name of an MdevParent, and Type what it is to make: nvidia-222.
	Parent, Type string
	// Devices are the devices of a PCI provider that an instance may get.
	Devices []machine.PassedDevice
	// Security is the kind of an Encryption provider.
	Security domain.Security
	// Class is the one resource class that a MdevParent, PCI or Encryption provider has, for
	// [Reshape].
	Class string
}

// hasDevice reports whether an instance may get a device from the provider.
func (p Provider) hasDevice(address machine.Address) bool {
	return slices.ContainsFunc(p.Devices, func(d machine.PassedDevice) bool { return d.Address == address })
}

// Request is an instance for which hardware is to be chosen, and what there is.
type Request struct {
	// Instance is what was asked for; its allocations are what Placement granted.
	Instance plugins.InstanceSpec
	// Providers are the providers of the tree, by uuid.
	Providers map[string]Provider
	Machine   machine.Machine
	// Shared are the processors that VCPUs run on, Dedicated those that PCPUs are made of. Nil
	// Shared are all that are online and not dedicated.
	Shared, Dedicated []int
	// Domains are all domains of the host, running or not, whatever created them. Their hardware is
	// in use, except that of the instance's own domain.
	Domains []domain.Domain
}

// Decide chooses the hardware of an instance. It follows Placement's grant: processors and memory
// of a cell come from that cell, devices from their provider. What was granted from the root comes
// from anywhere; but an instance with dedicated processors or huge pages goes to one NUMA cell, or
// as many as hw:numa_nodes says, as with Nova.
//
// What is granted of several cells is as many NUMA cells of the guest. Which of its processors are
// in which follows from the amounts.
//
// Of the flavor's extra specs it heeds hw:cpu_thread_policy (prefer, isolate, require),
// hw:cpu_dedicated_mask, hw:emulator_threads_policy (share, isolate), hw:mem_page_size,
// hw:numa_nodes, hw:numa_cpus.N, hw:numa_mem.N and hw:pci_numa_affinity_policy.
//
// Free existing mediated devices are used before new ones are created; the uuids of new ones derive
// from the instance's, so that a repeated call decides the same. The caller must hold one lock from
// the decision to the definition of the domain.
//
// Errors: a [*plugins.InstanceFault] if it cannot be done, in words for the instance's owner.
//
// Cost: O(processors + devices + domains), and once sorting each.
func Decide(r Request) (domain.Decision, error) {
	c := &chooser{Request: r, host: NewHost(r.Machine), cells: map[int]*grant{}, devices: map[int]bool{}}
	var d domain.Decision
	for _, step := range []func(*domain.Decision) error{c.readSpecs, c.grants, c.totals, c.chooseCells,
		c.checkAffinity, c.memory, c.processors} {
		if err := step(&d); err != nil {
			return domain.Decision{}, err
		}
	}
	return d, nil
}

// chooser is a decision in the making.
type chooser struct {
	Request
	host *Host
	// cells are what is granted of each; root is what is granted of no particular one.
	cells map[int]*grant
	root  grant
	// parts are the parts of the guest that come from one cell each.
	parts []part
	// devices are the cells in which granted devices are.
	devices   map[int]bool
	specs     specs
	processor processorIndex
}

// grant is the amounts of processors and memory that are granted.
type grant struct {
	vcpu, pcpu int64
	memoryMB   int64
	pages      map[uint64]int64 // by size in KiB
}

func (c *chooser) fault(format string, args ...any) error {
	return &plugins.InstanceFault{UUID: c.Instance.UUID, Reason: fmt.Sprintf(format, args...)}
}

// grants sorts out what is granted, and chooses the devices.
func (c *chooser) grants(d *domain.Decision) error {
	c.index()
	devices := c.usedDevices()
	for _, uuid := range slices.Sorted(maps.Keys(c.Instance.Allocations)) {
		provider, known := c.Providers[uuid]
		if !known {
			return c.fault("it was granted resources from resource provider %s, which this host does not have", uuid)
		}
		for _, class := range slices.Sorted(maps.Keys(c.Instance.Allocations[uuid])) {
			amount := c.Instance.Allocations[uuid][class]
			if amount < 1 || amount > math.MaxInt32 { // Placement's own bounds
				return c.fault("it was granted %d of %s", amount, class)
			}
			var err error
			switch provider.Kind {
			case Root:
				err = c.grant(&c.root, class, amount)
			case Cell:
				if c.cells[provider.Cell] == nil {
					c.cells[provider.Cell] = &grant{}
				}
				err = c.grant(c.cells[provider.Cell], class, amount)
			case MdevParent:
				err = c.mdevs(d, devices, provider, class, amount)
			case PCI:
				err = c.pci(d, devices, provider, class, amount)
			case Encryption:
				err = c.encryption(d, provider, class, amount)
			}
			if err != nil {
				return err
			}
		}
	}
	slices.SortFunc(d.PCI, machine.PassedDevice.Compare)
	return nil
}

func (c *chooser) grant(g *grant, class string, amount int64) error {
	known := grantedClassOf(class)
	switch {
	case known == nil:
		return c.fault("it was granted %s, which this driver cannot give to instances", class)
	case known.give == nil:
		return c.fault("it was granted %s, but %s", class, known.withheld)
	}
	known.give(g, class, amount)
	return nil
}

// totals compares what is granted with the flavor: an instance has no more than what it is
// accounted for.
func (c *chooser) totals(*domain.Decision) error {
	flavor, all := c.Instance.Flavor, c.root
	for _, g := range c.cells {
		all.vcpu += g.vcpu
		all.pcpu += g.pcpu
		all.memoryMB += g.memoryMB
	}
	threads := flavor.VCPUs
	if c.specs.emulator == isolate {
		threads++
	}
	switch {
	case flavor.VCPUs < 1 || flavor.VCPUs > domain.MaxVCPUs || flavor.MemoryMB < 1 || flavor.MemoryMB > math.MaxInt32:
		return c.fault("its flavor has the invalid size of %d VCPUs and %d MB of memory", flavor.VCPUs, flavor.MemoryMB)
	case all.vcpu > threads || all.pcpu > threads || all.vcpu+all.pcpu != threads:
		return c.fault("it was granted %d VCPU and %d PCPU, and needs %d together", all.vcpu, all.pcpu, threads)
	case c.specs.emulator == isolate && all.pcpu == 0:
		return c.fault("hw:emulator_threads_policy is isolate, and it was granted no PCPU")
	case c.specs.dedicated != nil && c.specs.emulator != isolate && int64(len(c.specs.dedicated)) != all.pcpu,
		c.specs.dedicated != nil && c.specs.emulator == isolate && int64(len(c.specs.dedicated)) != all.pcpu-1:
		return c.fault("hw:cpu_dedicated_mask names %d processors, but it was granted %d PCPU",
			len(c.specs.dedicated), all.pcpu)
	}
	return c.memoryTotals(all.memoryMB)
}

// The values of policies.
const (
	prefer  = "prefer"
	isolate = "isolate"
	require = "require"
	share   = "share"
)

// specs are the extra specs that matter.
type specs struct {
	threads  string // prefer, isolate, require
	emulator string // "", share, isolate
	// dedicated are the virtual processors that are; nil: it does not say.
	dedicated []int
	// cells are the NUMA cells that an instance is to have; nil: it does not say. assigned says
	// that it tells them one by one.
	cells    []extraspecs.GuestCell
	assigned bool
	affinity extraspecs.Affinity
	// pageKiB is the size of the pages; 0 is for common ones. large says any huge ones.
	pageKiB uint64
	large   bool
}

func (c *chooser) readSpecs(*domain.Decision) error {
	from := c.Instance.Flavor.ExtraSpecs
	s := specs{threads: prefer, emulator: from["hw:emulator_threads_policy"]}
	if policy, given := from["hw:cpu_thread_policy"]; given {
		s.threads = policy
	}
	if s.threads != prefer && s.threads != isolate && s.threads != require {
		return c.fault("hw:cpu_thread_policy is %.40q; it must be prefer, isolate or require", s.threads)
	}
	if s.emulator != "" && s.emulator != share && s.emulator != isolate {
		return c.fault("hw:emulator_threads_policy is %.40q; it must be share or isolate", s.emulator)
	}
	if vcpus := c.Instance.Flavor.VCPUs; vcpus >= 1 && vcpus <= domain.MaxVCPUs { // others are refused below
		var err error
		if s.cells, err = extraspecs.GuestCells(from, vcpus, c.Instance.Flavor.MemoryMB); err != nil {
			return c.fault("%s", err)
		}
	}
	_, s.assigned = from["hw:numa_cpus.0"]
	s.affinity = extraspecs.DeviceAffinity(from)
	if text, given := from["hw:cpu_dedicated_mask"]; given {
		set, err := extraspecs.VCPUs(text, c.Instance.Flavor.VCPUs)
		if err != nil || len(set) == 0 {
			return c.fault("hw:cpu_dedicated_mask is %.40q, which names none of its processors, or processors that it "+
				"does not have", text)
		}
		s.dedicated = set
	}
	text, ok := from["hw:mem_page_size"], false
	if s.pageKiB, s.large, ok = extraspecs.PageSize(text); !ok {
		return c.fault("hw:mem_page_size is %.40q; it must be small, large, any or a size such as 2MB", text)
	}
	c.specs = s
	return nil
}
