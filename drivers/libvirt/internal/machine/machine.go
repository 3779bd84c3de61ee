// SPDX-License-Identifier: Apache-2.0

// Package machine is a hypervisor's host as a value: processors, NUMA cells, devices, persistent
// memory, CPU sets ("0-3,8"). [Compare] names what two descriptions of one host disagree about;
// each disagreement is a [Discrepancy].
//
//	discovery (/sys) ───────────▶ Machine ─┐
//	capabilities (libvirt) ─────▶ Machine ─┴▶ Compare ─▶ discrepancies
//
// It does no I/O and knows nothing of provider trees.
package machine

import (
	"fmt"
	"slices"
)

// Machine is one host. Lists are in the order of their numbers or addresses, so that equal hosts
// are equal values.
type Machine struct {
	// Arch is the kernel's word for it: x86_64, aarch64.
	Arch string
	CPUs []CPU
	// Cells are the NUMA cells; a host without NUMA has one, number 0.
	Cells []Cell
	// Odd is why the cells of the CPUs cannot be relied on (numa=fake, a container), nil if they
	// can.
	Odd     error
	Devices []Device
	// Unread are PCI devices about which not enough is known to be among Devices. One that makes
	// mediated devices is among Parents all the same.
	Unread []UnreadDevice
	// Parents are the devices that mediated devices are made of, by name.
	Parents []MdevParent
}

// InOnlyCell returns the machine with the devices that belong to no NUMA cell in the one that it
// has: the firmware of such a machine need not say where they are. With several cells it is
// returned as it is.
func (m Machine) InOnlyCell() Machine {
	if len(m.Cells) != 1 {
		return m
	}
	m.Devices, m.Parents = slices.Clone(m.Devices), slices.Clone(m.Parents)
	for i := range m.Devices {
		if m.Devices[i].Cell == NoCell {
			m.Devices[i].Cell = m.Cells[0].ID
		}
	}
	for i := range m.Parents {
		if m.Parents[i].Cell == NoCell {
			m.Parents[i].Cell = m.Cells[0].ID
		}
	}
	return m
}

// CPU is one logical processor, a hardware thread.
type CPU struct {
	ID     int
	Online bool
	// Isolated processors are kept from the kernel's scheduler (isolcpus).
	Isolated bool
	// Cell, Package and Core say where it is. Those of an offline processor are -1, but for the
	// cell where the kernel knows it. A core's number is unique within its package.
	Cell, Package, Core int
}

// Cell is a NUMA cell.
type Cell struct {
	ID int
	// CPUs are the online ones; none in a cell that has only memory.
	CPUs      []int
	MemoryKiB uint64
	// Pages are the kinds of huge pages that the cell may have, the smallest first. The common size
	// is not among them.
	Pages []Pages
	// Distances to all cells, by number of the cell; 10 to itself.
	Distances map[int]int
	// Tier is the kernel's number of the memory's tier, or UnknownTier, in a cell whose memory is
	// of another tier than that of the cells with processors: CXL, a GPU's. "" in others.
	Tier string
}

// UnknownTier is the tier of memory of another kind that the kernel has in no tier.
const UnknownTier = "UNKNOWN"

// Pages are the huge pages of a size in a cell.
type Pages struct {
	SizeKiB     uint64
	Total, Free uint64
}

// NoCell says that a device belongs to no NUMA cell, or to an unknown one.
const NoCell = -1

// Device is a PCI device.
type Device struct {
	Address Address
	// Class has 24 bits: base class, subclass, programming interface.
	Class           uint32
	Vendor, Product uint16
	// Driver is the kernel module that has the device, or "". GivesToGuests says that it is one
	// that hands the device to guests: vfio-pci, or a variant of it for the device (mlx5_vfio_pci,
	// NVIDIA's). Such a driver has an entry in vfio-dev, since Linux 6.1; before, it goes by its
	// name.
	Driver        string
	GivesToGuests bool
	// Cell is where it is plugged in, or NoCell.
	Cell int
	// Physical is the address of the physical function that this virtual function is one of; nil
	// for others.
	Physical *Address
	// Virtual are the virtual functions that are switched on; MaxVirtual is how many there could
	// be, 0 for a device without SR-IOV.
	Virtual    []Address
	MaxVirtual int
}

// UnreadDevice is a PCI device whose files cannot be read, or contradict those of others.
type UnreadDevice struct {
	// Name is the kernel's; Address is nil where it is not an address.
	Name    string
	Address *Address
	// Physical is its physical function, nil if it has none or that is not known.
	Physical *Address
	// Problem names the file and says what is wrong with it and what to do, without a full stop.
	Problem string
}

// UnreadAddresses are the addresses of unread devices, as far as they have some.
func UnreadAddresses(unread []UnreadDevice) map[Address]bool {
	out := map[Address]bool{}
	for _, u := range unread {
		if u.Address != nil {
			out[*u.Address] = true
		}
	}
	return out
}

// MdevParent is a device that can create mediated devices: a PCI device (a virtual function too),
// or a virtual one such as mtty. A GPU that makes vGPUs on its virtual functions is one, too.
type MdevParent struct {
	// Name is libvirt's name of the device: pci_0000_82_00_0, mtty_mtty.
	Name string
	// Address is the address of a PCI device, nil for others.
	Address *Address
	Cell    int
	Types   []MdevType
	// Others are the IDs of the types that were not requested.
	Others []string
	Mdevs  []Mdev
	// Functions are the virtual functions of a GPU that makes vGPUs without mediated devices
	// (NVIDIA's vendor-specific VFIO), at most one on each; nil for other parents. Mdevs are its
	// vGPUs then, each with the address of its function as UUID.
	Functions []VGPUFunction
	// Problem is why it can make nothing, though it is there, or "".
	Problem string
}

// MakesVGPUs reports whether the parent makes vGPUs on virtual functions, and no mediated devices.
func (p MdevParent) MakesVGPUs() bool { return len(p.Functions) > 0 }

// VGPUFunction is a virtual function that can have a vGPU.
type VGPUFunction struct {
	Address Address
	// Type is the type of its vGPU, or "".
	Type string
	// Creatable are the IDs of the types of which it can get a vGPU now; nil while it has one.
	Creatable []string
}

// MdevType is a kind of mediated device that a parent can make.
type MdevType struct {
	// ID is nvidia-222 and the like, Name what the vendor calls it, or "".
	ID, Name string
	// API is vfio-pci and the like.
	API string
	// Description is what else the vendor's driver says of it, in words of its own, or "".
	Description string
	// Available is how many more can be made now.
	Available int
}

// Mdev is a mediated device that exists.
type Mdev struct {
	UUID string
	Type string
	// Active ones are there; others are only defined, and take nothing.
	Active bool
}

// Discrepancy is something about the host, or about how the configuration fits it, that does not
// stop the driver but that the operator should know: a fact and its consequence.
type Discrepancy struct {
	// Key names the discrepancy and stays the same while it holds: cpu-isolated, pci-unused-2.
	Key  string
	Text string
}

// Discrepancyf makes a discrepancy.
func Discrepancyf(key, format string, args ...any) Discrepancy {
	return Discrepancy{Key: key, Text: fmt.Sprintf(format, args...)}
}

// Namespace is a part of the persistent memory.
type Namespace struct {
	// Name is the kernel's (namespace0.0), Label the operator's, which ndctl calls the name, "" if
	// it has none.
	Name, Label string
	Mode        Mode
	// Bytes is its size, with what the kernel keeps for itself.
	Bytes uint64
	// Cell is the NUMA cell of its region, or [machine.NoCell].
	Cell int
	// Device is its character device (/dev/dax0.0), "" in other modes and while it is disabled.
	Device string
	// Driver is the driver of that device: device_dax serves it to programs, kmem makes normal
	// memory of it; "" if it has no driver.
	Driver string
}

// Mode is the kernel's word for how a namespace is used.
type Mode string

// The modes.
const (
	ModeRaw    Mode = "raw"
	ModeSafe   Mode = "safe"   // ndctl calls it sector
	ModeMemory Mode = "memory" // ndctl calls it fsdax
	ModeDAX    Mode = "dax"    // ndctl calls it devdax
)

// MaxPMEMLabel is the longest label of a namespace, in bytes.
const MaxPMEMLabel = 63
