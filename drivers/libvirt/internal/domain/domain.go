// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Domain is what is read of a libvirt domain. Sets of numbers are in ascending order and may be
// shared between fields: do not modify them.
type Domain struct {
	// Type is kvm, qemu or another kind of hypervisor.
	Type string
	// UUID is in lower case with hyphens.
	UUID        string
	Name, Title string
	// Nova is what Nova says of the instance, nil for a domain that Nova did not make.
	Nova *Nova
	// Mark is what Write says of the instance, nil for a domain that Write did not make.
	Mark *Mark

	// MemoryKiB is what the guest can have, hot-plugged modules included; CurrentKiB what the
	// balloon leaves it.
	MemoryKiB, CurrentKiB uint64
	// VCPUs is how many virtual processors there can be, CurrentVCPUs how many are plugged in.
	VCPUs, CurrentVCPUs int
	// CPUSet is where the virtual processors run that have no pin of their own; nil: anywhere.
	CPUSet []int
	// Pins are, for each virtual processor, the host's processors that it is pinned to, or nil.
	// There may be fewer than VCPUs.
	Pins [][]int
	// EmulatorPin is where the emulator's own threads run; nil: as CPUSet.
	EmulatorPin []int
	// IOPins are where threads for disks run that are pinned.
	IOPins [][]int
	Memory NUMATune
	// Cells are the NUMA cells that the guest sees; none for a guest that sees no NUMA.
	Cells []GuestCell
	// Pages are the huge pages behind the guest's memory; none: common pages.
	Pages []Pages
	// PCI are the host's devices that the guest has: hostdev devices, interfaces of that type and
	// NVMe disks.
	PCI []machine.PassedDevice
	// Mdevs are the uuids of the mediated devices that the guest has.
	Mdevs []string
	// VGPUs are the vGPUs on virtual functions that the guest has. Their functions are not in PCI.
	VGPUs []VGPU
	// Security is the memory encryption.
	Security Security
	// Disks are the disks other than CD-ROMs and floppies, in the order of the XML.
	Disks []AttachedDisk
	// Console is the type of the first console or serial port ("pty", "unix", "tcp", "file" or
	// another one), or "".
	Console string
	// ConsoleLog is the file that a serial port is written to as well, or "".
	ConsoleLog string
	// PersistentMemory is how many modules of persistent memory the guest has.
	PersistentMemory int
}

// AttachedDisk is a disk of a guest as libvirt has it.
type AttachedDisk struct {
	// Type is file, block, network and the like. Source is the path of the file or device, or the
	// name in a network's storage.
	Type, Source string
	// Format is raw, qcow2 or another one, "" if it is not set.
	Format string
	// Target is the name of the device in the guest: vda.
	Target string
	// Serial is what the guest reads as the serial number: for a volume that Nova attached, the
	// volume's uuid.
	Serial string
}

// NUMATune is where the memory of a guest comes from.
type NUMATune struct {
	// Mode is strict, preferred, interleave or restrictive; "" if it is not set.
	Mode string
	// Nodes are the host's NUMA cells; nil: not set, or numad decides.
	Nodes []int
	// Cells are the rules for single cells of the guest, which stand above the others.
	Cells []MemNode
}

// MemNode is where the memory of one NUMA cell of the guest comes from.
type MemNode struct {
	Cell  int
	Mode  string
	Nodes []int
}

// GuestCell is a NUMA cell that the guest sees.
type GuestCell struct {
	ID        int
	VCPUs     []int
	MemoryKiB uint64
}

// Pages are huge pages behind a guest's memory.
type Pages struct {
	// SizeKiB is 0 for the host's default size.
	SizeKiB uint64
	// Cells are the guest's cells whose memory it is; nil: all.
	Cells []int
}

// Security is a kind of memory encryption.
type Security string

// The kinds of memory encryption. Others are given in libvirt's word for them.
const (
	SEV    Security = "sev"
	SEVES  Security = "sev-es" // libvirt says sev, with a policy that asks for encrypted state
	SEVSNP Security = "sev-snp"
)

// Nova is what Nova writes into the metadata of its domains.
type Nova struct {
	// Name is what the owner calls the instance.
	Name string
	// FlavorName and the sizes are those of the flavor.
	FlavorName                                   string
	VCPUs, MemoryMB, DiskGB, EphemeralGB, SwapMB int64
	ProjectID, ProjectName, UserID, UserName     string
	// ImageID is the image that the instance was created from; "" for one that was created from a
	// volume.
	ImageID string
	// ExtraSpecs are written by Nova 2025.1 and later.
	ExtraSpecs map[string]string
}

// Mark is what Write adds to a domain that libvirt has no word for.
type Mark struct {
	// Node is the name of the compute node that the instance was made on.
	Node string
	// Name is what the owner calls the instance.
	Name              string
	ProjectID, UserID string
	Flavor            string
	// Isolated says that no other guest may use the cores of this one's dedicated processors.
	Isolated bool
	// Mdevs are its mediated devices, VGPUs its vGPUs on virtual functions. They do not outlive a
	// restart of the host.
	Mdevs []Mdev
	VGPUs []VGPU
}

// Mdev is a mediated device of a guest.
type Mdev struct {
	UUID string
	// Parent is the device that it is made of, by libvirt's name; Type what is made of it:
	// nvidia-222; API is vfio-pci and the like.
	Parent, Type, API string
	// Made says that it is made for this guest, and removed with it. Others were there before and
	// stay.
	Made bool
}

// VGPU is a vGPU of a guest on a virtual function of a GPU.
type VGPU struct {
	Function machine.Address
	// Parent is the GPU, by libvirt's name; Type what is made on the function: nvidia-1519.
	Parent, Type string
	// Made says that it is made for this guest, and removed with it. Others were there before and
	// stay.
	Made bool
}

// CPUs are the host's processors that a virtual one may run on; nil: any.
func (d Domain) CPUs(vcpu int) []int {
	if vcpu < len(d.Pins) && d.Pins[vcpu] != nil {
		return d.Pins[vcpu]
	}
	return d.CPUSet
}

// Bound are the host's processors that some thread of the guest is bound to, in ascending order.
// Threads that may run anywhere are bound to none.
func (d Domain) Bound() []int {
	sets := append([][]int{d.EmulatorPin}, d.IOPins...)
	for vcpu := range d.VCPUs {
		sets = append(sets, d.CPUs(vcpu))
	}
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(sets...))))
}

// Isolated reports whether the guest was promised whole cores.
func (d Domain) Isolated() bool {
	return d.Mark != nil && d.Mark.Isolated || d.Nova != nil && d.Nova.ExtraSpecs[threadPolicy] == "isolate"
}

const threadPolicy = "hw:cpu_thread_policy"

// Owner are the ids of the project and the user, "" where the domain does not say.
func (d Domain) Owner() (project, user string) {
	switch {
	case d.Mark != nil:
		return d.Mark.ProjectID, d.Mark.UserID
	case d.Nova != nil:
		return d.Nova.ProjectID, d.Nova.UserID
	}
	return "", ""
}

// Decision is which hardware of the host a guest gets.
type Decision struct {
	// VCPUs are, for each virtual processor, the host's processors that it may run on, in ascending
	// order: one that is dedicated has one. Nil leaves all of them to run anywhere.
	VCPUs [][]int
	// Emulator is where the emulator's own threads run; nil: anywhere.
	Emulator []int
	// Isolated says that no other guest may use the cores of the processors that are dedicated.
	Isolated bool
	// Cells are the parts of the guest that come from one NUMA cell of the host each. With one, its
	// memory is bound to that cell; with more, the guest sees as many cells. None: its memory comes
	// from anywhere.
	Cells []Share
	// PageKiB is the size of the huge pages behind the memory; 0: common pages.
	PageKiB uint64
	Mdevs   []Mdev
	VGPUs   []VGPU
	PCI     []machine.PassedDevice
	// Encryption is the kind of memory encryption of which it has a context; "": none.
	Encryption Security
}

// Share is the part of a guest that comes from one NUMA cell of the host.
type Share struct {
	// Host is the number of the host's cell.
	Host int
	// VCPUs are the guest's processors in ascending order.
	VCPUs     []int
	MemoryKiB uint64
}

// Decision is what Write was given; nothing for domains that Write did not make.
func (d Domain) Decision() (Decision, bool) {
	if d.Mark == nil {
		return Decision{}, false
	}
	out := Decision{VCPUs: d.Pins, Emulator: d.EmulatorPin,
		Isolated: d.Mark.Isolated, Mdevs: d.Mark.Mdevs, VGPUs: d.Mark.VGPUs, PCI: d.PCI, Encryption: d.Security}
	if len(d.Pages) > 0 {
		out.PageKiB = d.Pages[0].SizeKiB
	}
	switch {
	case len(d.Cells) > 0:
		for _, cell := range d.Cells {
			at := slices.IndexFunc(d.Memory.Cells, func(m MemNode) bool { return m.Cell == cell.ID })
			if at < 0 || len(d.Memory.Cells[at].Nodes) != 1 {
				return Decision{}, false // it was changed from outside
			}
			out.Cells = append(out.Cells,
				Share{Host: d.Memory.Cells[at].Nodes[0], VCPUs: cell.VCPUs, MemoryKiB: cell.MemoryKiB})
		}
	case len(d.Memory.Nodes) == 1:
		all := make([]int, d.VCPUs)
		for i := range all {
			all[i] = i
		}
		out.Cells = []Share{{Host: d.Memory.Nodes[0], VCPUs: all, MemoryKiB: d.MemoryKiB}}
	}
	return out, true
}
