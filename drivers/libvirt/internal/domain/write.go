// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Spec is a domain to be written.
type Spec struct {
	// Node is the name of the compute node.
	Node string
	// Instance is what was asked for. Its sizes are those of the flavor. Hardware is what its extra
	// specs and the properties of its image ask for.
	Instance plugins.InstanceSpec
	Hardware extraspecs.Hardware
	// Traits are the host's traits about what guests can have: false for what they cannot, none
	// where it is not known.
	Traits map[string]bool
	// Decision is which hardware it gets.
	Decision Decision
	// Type is kvm or qemu, Arch the kernel's word for the architecture.
	Type, Arch string
	// Disks are the guest's, the one that it boots from first.
	Disks []Disk
	// ConsoleLog is the path of the file that the serial console is written to, or "".
	ConsoleLog string
}

// Disk is a disk of a guest, a file of the host.
type Disk struct {
	Path string
	// Format is raw or qcow2.
	Format string
	// Backing is the image that the disk is a layer over. It stands alone.
	Backing Backing
	// ReadOnly is for the disk with user data.
	ReadOnly bool
}

// Backing is an image below a disk; without a path there is none.
type Backing struct{ Path, Format string }

// Name is what the domain of an instance is called. It holds the whole uuid, so that no other can
// have the same, and none of Nova's (instance-0000002a) either.
func Name(uuid string) string { return "instance-" + uuid }

const (
	maxDisks   = 26 // vda to vdz
	maxDevices = 4096
	maxText    = 4 << 20 // libvirt's limit of a string in one message
)

var (
	word     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)
	machines = map[string]string{x86: "q35", arm: "virt",
		"riscv64": "virt", "ppc64le": "pseries", s390: "s390-ccw-virtio"}
	targets = map[string]string{virtio: "vd", scsi: "sd", "sata": "sd", usb: "sd"}
)

// Write makes the XML of a domain. It takes what the owner says (names, metadata, image properties)
// for hostile.
//
// Errors: an [*plugins.InstanceFault] for what the owner could change; others are the caller's.
//
// Cost: O(processors + devices), some hundred allocations; see BenchmarkWrite.
func Write(s Spec) ([]byte, error) {
	uuid := s.Instance.UUID
	if !providertree.IsCanonicalUUID(uuid) {
		return nil, fmt.Errorf("write a domain: %.60q is not a uuid in lower case with hyphens", uuid)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("write the domain of instance %s: %w", uuid, err)
	}
	h, err := s.choose()
	if err != nil {
		return nil, err
	}
	x, err := s.domain(h)
	if err != nil {
		return nil, fmt.Errorf("write the domain of instance %s: %w", uuid, err)
	}
	text, err := x.Marshal()
	switch {
	case err != nil:
		return nil, fmt.Errorf("write the domain of instance %s: %w", uuid, err)
	case len(text) > maxText:
		return nil, fmt.Errorf("write the domain of instance %s: it has %d bytes, more than libvirt accepts",
			uuid, len(text))
	}
	return []byte(text), nil
}

const maxMemoryMB = 1 << 30

// check finds what the caller did wrong.
func (s Spec) check() error {
	d := s.Decision
	switch {
	case s.Type != kvmType && s.Type != qemuType:
		return fmt.Errorf("%.30q is not a domain type; it must be kvm or qemu", s.Type)
	case !word.MatchString(s.Arch):
		return fmt.Errorf("%.30q is not an architecture", s.Arch)
	case len(s.Disks) > maxDisks:
		return fmt.Errorf("%d disks are more than %d", len(s.Disks), maxDisks)
	case len(d.PCI)+len(d.Mdevs)+len(d.VGPUs) > maxDevices:
		return fmt.Errorf("%d devices are more than %d", len(d.PCI)+len(d.Mdevs)+len(d.VGPUs), maxDevices)
	case d.VCPUs != nil && int64(len(d.VCPUs)) != s.Instance.Flavor.VCPUs:
		return fmt.Errorf("%d virtual processors are placed, the flavor has %d", len(d.VCPUs), s.Instance.Flavor.VCPUs)
	case d.Emulator != nil && len(d.Emulator) == 0,
		slices.ContainsFunc(d.VCPUs, func(set []int) bool { return len(set) == 0 }):
		return errors.New("a virtual processor or the emulator has no CPUs")
	case d.PageKiB > 0 && len(d.Cells) == 0:
		return errors.New("huge pages need a NUMA cell, but none is chosen")
	}
	paths := []string{s.ConsoleLog}
	for _, disk := range s.Disks {
		for _, format := range []string{disk.Format, cmp.Or(disk.Backing.Format, "raw")} {
			if format != "raw" && format != "qcow2" {
				return fmt.Errorf("%.30q is not a disk format; it must be raw or qcow2", format)
			}
		}
		if disk.Path == "" {
			return errors.New("a disk has no path")
		}
		paths = append(paths, disk.Path, disk.Backing.Path)
	}
	for _, path := range paths {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path || !isPlain(path)) {
			return fmt.Errorf("%.60q is not a clean absolute path", path)
		}
	}
	for _, m := range d.Mdevs {
		if !providertree.IsCanonicalUUID(m.UUID) || !word.MatchString(m.API) || !isPlain(m.Parent+m.Type) {
			return fmt.Errorf("%.60q, by %.30q, is not a mediated device", m.UUID, m.API)
		}
	}
	for _, v := range d.VGPUs {
		if !isPlain(v.Parent + v.Type) {
			return fmt.Errorf("%.60q of %.60q is not a type of vGPUs", v.Type, v.Parent)
		}
	}
	return s.checkCells()
}

// checkCells makes sure that the parts are the whole.
func (s Spec) checkCells() error {
	if len(s.Decision.Cells) > maxCells {
		return fmt.Errorf("%d NUMA cells are more than %d", len(s.Decision.Cells), maxCells)
	}
	if len(s.Decision.Cells) == 0 {
		return nil
	}
	var memory uint64
	seen := map[int]bool{}
	for _, cell := range s.Decision.Cells {
		if cell.Host < 0 || cell.MemoryKiB == 0 || len(cell.VCPUs) == 0 || !slices.IsSorted(cell.VCPUs) {
			return fmt.Errorf("the share of cell %d is invalid: %d KiB, virtual processors %v",
				cell.Host, cell.MemoryKiB, cell.VCPUs)
		}
		memory += cell.MemoryKiB
		for _, vcpu := range cell.VCPUs {
			if seen[vcpu] || vcpu < 0 || int64(vcpu) >= s.Instance.Flavor.VCPUs {
				return fmt.Errorf("virtual processor %d is in two NUMA cells, or does not exist", vcpu)
			}
			seen[vcpu] = true
		}
	}
	if want := s.memoryKiB(); memory != want {
		return fmt.Errorf("its NUMA cells have %d KiB together, the flavor %d", memory, want)
	}
	if int64(len(seen)) != s.Instance.Flavor.VCPUs {
		return fmt.Errorf("its NUMA cells have %d virtual processors, the flavor %d",
			len(seen), s.Instance.Flavor.VCPUs)
	}
	return nil
}

func (s Spec) memoryKiB() uint64 { return uint64(max(s.Instance.Flavor.MemoryMB, 0)) * 1024 }

// Mark is what the domain says of its instance.
func (s Spec) Mark() Mark {
	return Mark{
		Node: s.Node, Name: s.Instance.Name, ProjectID: s.Instance.ProjectID, UserID: s.Instance.UserID,
		Flavor:   s.Instance.Flavor.Name,
		Isolated: s.Decision.Isolated, Mdevs: s.Decision.Mdevs, VGPUs: s.Decision.VGPUs,
	}
}

func (s Spec) domain(h hardware) (*libvirtxml.Domain, error) {
	instance, d := s.Instance, s.Decision
	mark, err := s.Mark().xml()
	if err != nil {
		return nil, err
	}
	x := &libvirtxml.Domain{
		Type: s.Type, Name: Name(instance.UUID), UUID: instance.UUID,
		Metadata: &libvirtxml.DomainMetadata{XML: "\n" + mark + "\n  "},
		Memory:   &libvirtxml.DomainMemory{Value: uint(s.memoryKiB()), Unit: "KiB"},
		VCPU:     &libvirtxml.DomainVCPU{Placement: "static", Value: uint(instance.Flavor.VCPUs)},
		OS:       &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: s.Arch, Machine: h.Machine, Type: "hvm"}},
		CPU:      &libvirtxml.DomainCPU{Mode: "host-model"},
		Clock:    &libvirtxml.DomainClock{Offset: "utc"},
		CPUTune:  d.tune(), OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		Devices: s.devices(h),
	}
	if isPlain(instance.Name) && len(instance.Name) <= 255 {
		x.Title = instance.Name
	}
	if s.Type == qemuType { // emulated: what the emulator can do, not what the host is
		x.CPU.Mode = "maximum"
	}
	switch s.Arch {
	case x86:
		x.Features = &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{},
			APIC: &libvirtxml.DomainFeatureAPIC{}}
		x.Clock.Timer = []libvirtxml.DomainTimer{
			{Name: "pit", TickPolicy: "delay"}, {Name: "rtc", TickPolicy: "catchup"},
			{Name: "hpet", Present: yesNo(h.HPET)},
		}
	case arm:
		x.Features = &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}}
	}
	d.bind(x)
	h.board(x)
	return x, nil
}

// tune pins the virtual processors and the emulator.
func (d Decision) tune() *libvirtxml.DomainCPUTune {
	if d.VCPUs == nil && d.Emulator == nil {
		return nil
	}
	tune := &libvirtxml.DomainCPUTune{}
	for vcpu, set := range d.VCPUs {
		tune.VCPUPin = append(tune.VCPUPin,
			libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(vcpu), CPUSet: machine.FormatCPUs(set)})
	}
	if d.Emulator != nil {
		tune.EmulatorPin = &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: machine.FormatCPUs(d.Emulator)}
	}
	return tune
}

// bind says where the memory comes from.
func (d Decision) bind(x *libvirtxml.Domain) {
	if d.PageKiB > 0 {
		x.MemoryBacking = &libvirtxml.DomainMemoryBacking{MemoryHugePages: &libvirtxml.DomainMemoryHugepages{
			Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: uint(d.PageKiB), Unit: "KiB"}},
		}}
	}
	if len(d.Cells) == 0 {
		return
	}
	var nodes []int
	for _, cell := range d.Cells {
		nodes = append(nodes, cell.Host)
	}
	x.NUMATune = &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: "strict",
		Nodeset: machine.FormatCPUs(nodes)}}
	if len(d.Cells) == 1 {
		return
	}
	x.CPU.Numa = &libvirtxml.DomainNuma{}
	for i, cell := range d.Cells {
		id := uint(i)
		x.CPU.Numa.Cell = append(x.CPU.Numa.Cell, libvirtxml.DomainCell{
			ID: &id, CPUs: machine.FormatCPUs(cell.VCPUs), Memory: uint(cell.MemoryKiB), Unit: "KiB",
		})
		x.NUMATune.MemNodes = append(x.NUMATune.MemNodes, libvirtxml.DomainNUMATuneMemNode{
			CellID: id, Mode: "strict", Nodeset: machine.FormatCPUs([]int{cell.Host}),
		})
	}
}

func (s Spec) devices(h hardware) *libvirtxml.DomainDeviceList {
	out := &libvirtxml.DomainDeviceList{
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: virtio, Stats: &libvirtxml.DomainMemBalloonStats{Period: 10}},
	}
	if !strings.HasPrefix(s.Arch, "s390") && h.DiskBus != usb {
		out.Controllers = append(out.Controllers, libvirtxml.DomainController{Type: usb, Model: "none"})
	}
	if h.DiskBus == scsi {
		out.Controllers = append(out.Controllers, libvirtxml.DomainController{Type: scsi, Model: "virtio-scsi"})
	}
	for i, disk := range s.Disks {
		x := libvirtxml.DomainDisk{
			Device: "disk",
			Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: disk.Format},
			Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: disk.Path}},
			Target: &libvirtxml.DomainDiskTarget{Dev: targets[h.DiskBus] + string(rune('a'+i)), Bus: h.DiskBus},
		}
		if i == 0 {
			x.Boot = &libvirtxml.DomainDeviceBoot{Order: 1}
		}
		if disk.Backing.Path != "" {
			// Without it libvirt has virt-aa-helper look for it in the disk and the image, and
			// AppArmor does not let it read all directories of images.
			x.BackingStore = &libvirtxml.DomainDiskBackingStore{
				Format: &libvirtxml.DomainDiskFormat{Type: disk.Backing.Format},
				Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: disk.Backing.Path}},
				// The end of the chain.
				BackingStore: &libvirtxml.DomainDiskBackingStore{},
			}
		}
		if disk.ReadOnly {
			x.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
		} else {
			x.Driver.Discard = "unmap"
		}
		out.Disks = append(out.Disks, x)
	}
	serial := libvirtxml.DomainSerial{
		Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
	}
	if s.ConsoleLog != "" {
		serial.Log = &libvirtxml.DomainChardevLog{File: s.ConsoleLog, Append: "on"}
	}
	out.Serials = []libvirtxml.DomainSerial{serial}
	h.devices(out)
	for _, device := range s.Decision.PCI {
		out.Hostdevs = append(out.Hostdevs, passed(device))
	}
	for _, v := range s.Decision.VGPUs {
		// Its function must keep the vendor's driver: libvirt would bind it to vfio-pci.
		out.Hostdevs = append(out.Hostdevs, passed(machine.PassedDevice{Address: v.Function}))
	}
	for _, m := range s.Decision.Mdevs {
		out.Hostdevs = append(out.Hostdevs, libvirtxml.DomainHostdev{SubsysMDev: &libvirtxml.DomainHostdevSubsysMDev{
			Model:  m.API,
			Source: &libvirtxml.DomainHostdevSubsysMDevSource{Address: &libvirtxml.DomainAddressMDev{UUID: m.UUID}},
		}})
	}
	return out
}

// passed gives a PCI device to a guest.
func passed(device machine.PassedDevice) libvirtxml.DomainHostdev {
	a := device.Address
	domain, bus, slot, function := uint(a.Domain), uint(a.Bus), uint(a.Slot), uint(a.Function)
	return libvirtxml.DomainHostdev{
		Managed: yesNo(device.Managed),
		SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{Source: &libvirtxml.DomainHostdevSubsysPCISource{
			Address: &libvirtxml.DomainAddressPCI{Domain: &domain, Bus: &bus, Slot: &slot, Function: &function},
		}},
	}
}
