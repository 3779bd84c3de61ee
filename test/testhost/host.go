// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// None stands for no NUMA cell, no IOMMU group.
const None = -1

// Host is a machine. Slices are in ascending order of their numbers or addresses.
type Host struct {
	Processor Processor
	CPUs      []CPU
	Cells     []Cell
	// NoNUMA is a kernel built without NUMA: it shows no cells (the model has one, for the memory).
	NoNUMA  bool
	Devices []Device
	// Virtual are parents of mediated devices that are no PCI devices.
	Virtual []VirtualParent
	// Module is "kvm_intel", "kvm_amd", or "" on a host without KVM.
	Module string
	// Nested says whether guests may be hypervisors; it means nothing without Module.
	Nested bool
	// SEV is nil where the kernel lacks it. It belongs to kvm_amd.
	SEV        *SEV
	Namespaces []Namespace
	// DAXClass is a kernel whose character devices of persistent memory are a class, as in those
	// before 5.1. It shows no driver of them.
	DAXClass bool
}

// Processor is what all CPUs of the host have in common.
type Processor struct {
	// Arch is libvirt's and the kernel's word: x86_64, aarch64.
	Arch string
	// Vendor is the kernel's (GenuineIntel), Name the marketing one; Model is libvirt's name for
	// what comes closest.
	Vendor, Name, Model      string
	Family, Number, Stepping int
	MHz                      int
	// Microcode is the revision, 0 where the kernel shows none.
	Microcode uint32
	// Flags are the kernel's words for its features, Features libvirt's for those beyond the model.
	Flags, Features []string
}

// CPU is a logical CPU.
type CPU struct {
	ID, Cell, Package, Die, Core int
	// Offline CPUs keep their place but lose their topology, as in the kernel.
	Offline bool
	// Isolated and NoHzFull are isolcpus= and nohz_full= of the kernel's command line.
	Isolated, NoHzFull bool
}

// Cell is a NUMA cell. One without CPUs is memory-only, one without memory has no huge pages
// either.
type Cell struct {
	ID        int
	MemoryKiB uint64
	HugePages []HugePages
	// Distances are to all cells of the host, in their order.
	Distances []int
	// Tier is the memory tier, 0 where the kernel shows none.
	Tier int
}

// HugePages is a pool of one page size. Its pages are part of the cell's memory.
type HugePages struct {
	SizeKiB     uint64
	Total, Free uint64
}

// SEV is AMD's encrypted virtualization as kvm_amd and the misc cgroup controller show it.
type SEV struct {
	SEV, ES, SNP bool
	// Guests and ESGuests are how many guests of each kind can run at once: numbers of ASIDs.
	Guests, ESGuests int
}

// Namespace is a piece of persistent memory.
type Namespace struct {
	// Name is the kernel's: namespace0.1 is the second of the first region. Label is the
	// operator's.
	Name, Label, UUID string
	// Mode is the kernel's word: raw, safe (ndctl says sector), memory (fsdax), dax (devdax).
	Mode  string
	Bytes uint64
	Cell  int
	// Driver has the character device of a namespace in mode dax: device_dax, which serves it to
	// programs, kmem, which makes common memory of it, or "" for no driver. Where NoDevice is true
	// there is no device: its region was disabled.
	Driver   string
	NoDevice bool
}

// numbers are those of the region and of the namespace in it.
func (n Namespace) numbers() (region, id int) {
	if _, err := fmt.Sscanf(n.Name, "namespace%d.%d", &region, &id); err != nil {
		panic("testhost: " + n.Name + " is no namespace")
	}
	return region, id
}

// DAX is the name of the character device, "" if there is none.
func (n Namespace) DAX() string {
	if n.Mode != "dax" || n.NoDevice {
		return ""
	}
	region, id := n.numbers()
	return fmt.Sprintf("dax%d.%d", region, id)
}

// OnlineCPUs are the numbers of the CPUs that work.
func (h Host) OnlineCPUs() []int {
	return h.cpus(func(c CPU) bool { return !c.Offline })
}

// PresentCPUs are the numbers of all CPUs.
func (h Host) PresentCPUs() []int { return h.cpus(func(CPU) bool { return true }) }

// IsolatedCPUs are the CPUs that the scheduler leaves alone.
func (h Host) IsolatedCPUs() []int { return h.cpus(func(c CPU) bool { return c.Isolated }) }

// NoHzFullCPUs are the CPUs without a tick.
func (h Host) NoHzFullCPUs() []int { return h.cpus(func(c CPU) bool { return c.NoHzFull }) }

// CellCPUs are the online CPUs of a cell.
func (h Host) CellCPUs(cell int) []int {
	return h.cpus(func(c CPU) bool { return !c.Offline && c.Cell == cell })
}

// Siblings are the online CPUs of a CPU's core, with itself.
func (h Host) Siblings(of CPU) []int {
	return h.cpus(func(c CPU) bool {
		return !c.Offline && c.Package == of.Package && c.Die == of.Die && c.Core == of.Core
	})
}

func (h Host) cpus(keep func(CPU) bool) []int {
	var ids []int
	for _, c := range h.CPUs {
		if keep(c) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// MemoryKiB is the memory of all cells.
func (h Host) MemoryKiB() (sum uint64) {
	for _, c := range h.Cells {
		sum += c.MemoryKiB
	}
	return sum
}

// CellIDs are the numbers of the cells.
func (h Host) CellIDs() []int {
	var ids []int
	for _, c := range h.Cells {
		ids = append(ids, c.ID)
	}
	return ids
}

// Device finds a PCI device by its address; the pointer is into Devices, nil if there is no such
// device.
func (h Host) Device(address string) *Device {
	i := slices.IndexFunc(h.Devices, func(d Device) bool { return d.Address == address })
	if i < 0 {
		return nil
	}
	return &h.Devices[i]
}

// Clone is a copy that shares nothing that its owner would change: CPUs, cells and devices.
func (h Host) Clone() Host {
	h.CPUs, h.Cells, h.Devices = slices.Clone(h.CPUs), slices.Clone(h.Cells), slices.Clone(h.Devices)
	h.Virtual, h.Namespaces = slices.Clone(h.Virtual), slices.Clone(h.Namespaces)
	for i := range h.Cells {
		h.Cells[i].HugePages = slices.Clone(h.Cells[i].HugePages)
	}
	for i := range h.Devices {
		d := &h.Devices[i]
		d.VFs, d.Types, d.Mdevs = slices.Clone(d.VFs), slices.Clone(d.Types), slices.Clone(d.Mdevs)
		if d.VGPU != nil {
			card := *d.VGPU
			card.Current, d.VGPU = maps.Clone(card.Current), &card
		}
	}
	return h
}

func (h Host) sort() Host {
	slices.SortFunc(h.CPUs, func(a, b CPU) int { return a.ID - b.ID })
	slices.SortFunc(h.Cells, func(a, b Cell) int { return a.ID - b.ID })
	slices.SortFunc(h.Devices, func(a, b Device) int { return compareAddresses(a.Address, b.Address) })
	return h
}

// compareAddresses orders as the numbers do: domains may have more than four digits.
func compareAddresses(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
