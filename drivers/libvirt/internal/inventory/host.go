// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/encryption"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hugepages"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/mdevs"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/pcispec"
)

// Host is what was decided about a host.
type Host struct {
	// Node is the name of the root.
	Node string
	// Cells are the NUMA cells. All CPUs of Shared and Dedicated are in one.
	Cells []machine.Cell
	// Shared and Dedicated are the CPUs of which VCPU and PCPU are made, one of each.
	Shared, Dedicated []int
	// MemoryKiB is the whole host's memory, for the flat tree. Nested, each cell's own figure counts.
	MemoryKiB uint64
	// Memory has the huge pages of the cells.
	Memory []hugepages.Cell
	Mdevs  []mdevs.Provider
	// MdevTraits are all traits that the driver may ever have given to parents of mediated devices; where they are not wanted, they are removed.
	MdevTraits []string
	PCI        []pcispec.Provider
	// Taken are the PCI devices that some domain has. A provider for one use of which one is taken is used up.
	Taken      map[machine.Address]bool
	Encryption []encryption.Provider
	// PMEM is the number of namespaces by resource class.
	PMEM map[string]int64
	// DiskGB is the size of the instances' file system. SharedDisk says that a sharing provider reports it, so that the root does not.
	DiskGB     int64
	SharedDisk bool
	// Traits are those of the root, of OwnedTraits: those that the driver may give it, which are removed where they are not wanted.
	Traits, OwnedTraits []string
}

// Settings are what the configuration says about the tree.
type Settings struct {
	// Nested gives each NUMA cell a provider.
	Nested bool
	// TypeTraits gives the providers of mediated devices the trait of their type (CUSTOM_NVIDIA_222). Nova does not. What else follows from
	// the type is among the traits of [mdevs.Provider].
	TypeTraits bool

	// What is not for guests, by resource class. Nested, the cells share it out in proportion to what they have.
	ReservedCPUs, ReservedMemoryMB, ReservedDiskMB int64

	// Ratios that are 0 are not for the configuration to say: the one that Placement has stays. The initial ones are for a class that is new.
	CPURatio, RAMRatio, DiskRatio                      float64
	InitialCPURatio, InitialRAMRatio, InitialDiskRatio float64
}
