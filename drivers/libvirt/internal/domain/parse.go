// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/providertree"
)

// MaxVCPUs is how many virtual processors a domain may have here.
const MaxVCPUs = 4096

// Parse reads the XML of a domain, as libvirt gives it out. Elements that it does not know are
// skipped; it errs where identity, placement or devices cannot be read, or where libvirtxml cannot
// read a number of any other element.
//
// Cost: O(len(text)), most of it in encoding/xml; see BenchmarkParse.
func Parse(text []byte) (Domain, error) {
	var x libvirtxml.Domain
	if err := capabilities.Decode(string(text), &x); err != nil {
		return Domain{}, fmt.Errorf("the XML of a domain: %w", err)
	}
	d, err := read(x)
	switch {
	case err != nil && d.UUID != "":
		return Domain{}, fmt.Errorf("domain %s: %w", d.UUID, err)
	case err != nil:
		return Domain{}, fmt.Errorf("the XML of a domain: %w", err)
	}
	return d, nil
}

// reader remembers the first thing that was wrong, and the sets that were read: guests that float
// have the same for each processor.
type reader struct {
	err  error
	sets map[string][]int
}

func read(x libvirtxml.Domain) (Domain, error) {
	r := &reader{sets: map[string][]int{}}
	d := Domain{Type: x.Type, Title: strings.TrimSpace(x.Title)}
	uuid, err := providertree.CanonicalUUID(strings.TrimSpace(x.UUID))
	if err != nil {
		return d, err
	}
	d.UUID = uuid
	if d.Name = strings.TrimSpace(x.Name); d.Name == "" {
		return d, errors.New("its name is empty")
	}
	if x.Metadata != nil {
		if d.Nova, d.Mark, err = readMetadata(x.Metadata.XML); err != nil {
			return d, err
		}
	}
	if x.VCPU == nil || x.Memory == nil {
		return d, errors.New("it has no <vcpu> or no <memory>")
	}
	r.processors(&d, x)
	r.memory(&d, x)
	if x.Devices != nil {
		r.devices(&d, *x.Devices)
	}
	d.takeVGPUs()
	d.Security = r.security(x.LaunchSecurity)
	return d, r.err
}

// takeVGPUs makes vGPUs of the PCI devices that the mark says are such.
func (d *Domain) takeVGPUs() {
	if d.Mark == nil {
		return
	}
	for _, v := range d.Mark.VGPUs {
		is := func(p machine.PassedDevice) bool { return p.Address == v.Function }
		if !slices.ContainsFunc(d.PCI, is) {
			continue // it was taken from the domain with another tool
		}
		d.VGPUs = append(d.VGPUs, v)
		if d.PCI = slices.DeleteFunc(d.PCI, is); len(d.PCI) == 0 {
			d.PCI = nil
		}
	}
}

func (r *reader) failf(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

// set reads a set of numbers; nil for none.
func (r *reader) set(what, text string) []int {
	if numbers, known := r.sets[text]; known || r.err != nil {
		return numbers
	}
	numbers, err := machine.ParseCPUs(text)
	if err != nil {
		r.failf("%s: %w", what, err)
	}
	r.sets[text] = numbers
	return numbers
}

func (r *reader) processors(d *Domain, x libvirtxml.Domain) {
	if x.VCPU.Value > MaxVCPUs || x.VCPU.Current > x.VCPU.Value {
		r.failf("vcpu: it has %d of %d virtual processors, can have %d", x.VCPU.Current, x.VCPU.Value, MaxVCPUs)
		return
	}
	d.VCPUs, d.CurrentVCPUs = int(x.VCPU.Value), int(x.VCPU.Value)
	if x.VCPU.Current > 0 {
		d.CurrentVCPUs = int(x.VCPU.Current)
	}
	d.CPUSet = r.set("vcpu cpuset", x.VCPU.CPUSet)
	if x.CPUTune == nil {
		return
	}
	if len(x.CPUTune.VCPUPin) > 0 {
		d.Pins = make([][]int, d.VCPUs)
	}
	for _, pin := range x.CPUTune.VCPUPin {
		set := r.set("vcpupin", pin.CPUSet)
		switch {
		case set == nil:
			r.failf("vcpupin: virtual processor %d is pinned to nothing", pin.VCPU)
		case pin.VCPU >= x.VCPU.Value: // libvirt takes no notice of it either
		default:
			d.Pins[pin.VCPU] = set
		}
	}
	if x.CPUTune.EmulatorPin != nil {
		d.EmulatorPin = r.set("emulatorpin", x.CPUTune.EmulatorPin.CPUSet)
	}
	for _, pin := range x.CPUTune.IOThreadPin {
		d.IOPins = append(d.IOPins, r.set("iothreadpin", pin.CPUSet))
	}
}

func (r *reader) memory(d *Domain, x libvirtxml.Domain) {
	d.MemoryKiB = r.size("memory", x.Memory.Value, x.Memory.Unit)
	d.CurrentKiB = d.MemoryKiB
	if x.CurrentMemory != nil {
		d.CurrentKiB = r.size("currentMemory", x.CurrentMemory.Value, x.CurrentMemory.Unit)
	}
	if tune := x.NUMATune; tune != nil {
		if tune.Memory != nil {
			d.Memory.Mode, d.Memory.Nodes = modeOr(tune.Memory.Mode), r.set("numatune memory", tune.Memory.Nodeset)
		}
		for _, node := range tune.MemNodes {
			d.Memory.Cells = append(d.Memory.Cells,
				MemNode{Cell: r.cell(node.CellID), Mode: modeOr(node.Mode), Nodes: r.set("memnode", node.Nodeset)})
		}
	}
	if x.CPU != nil && x.CPU.Numa != nil {
		for i, cell := range x.CPU.Numa.Cell {
			c := GuestCell{ID: i, VCPUs: r.set("cell cpus", cell.CPUs),
				MemoryKiB: r.size("cell memory", cell.Memory, cell.Unit)}
			if cell.ID != nil {
				c.ID = r.cell(*cell.ID)
			}
			d.Cells = append(d.Cells, c)
		}
	}
	if x.MemoryBacking == nil || x.MemoryBacking.MemoryHugePages == nil {
		return
	}
	pages := x.MemoryBacking.MemoryHugePages.Hugepages
	if len(pages) == 0 {
		d.Pages = []Pages{{}}
	}
	for _, page := range pages {
		d.Pages = append(d.Pages, Pages{SizeKiB: r.size("hugepages page", page.Size, page.Unit),
			Cells: r.set("hugepages page", page.Nodeset)})
	}
}

// maxCells is more than a guest can have.
const maxCells = 1024

func (r *reader) cell(id uint) int {
	if id >= maxCells {
		r.failf("%d is not a number of a guest's NUMA cell", id)
		return 0
	}
	return int(id)
}

// modeOr is the mode of a rule, which is strict if it does not say.
func modeOr(mode string) string {
	if mode == "" {
		return "strict"
	}
	return mode
}

func (r *reader) devices(d *Domain, x libvirtxml.DomainDeviceList) {
	for _, dev := range x.Hostdevs {
		switch {
		case dev.SubsysPCI != nil:
			d.PCI = append(d.PCI, r.pci("hostdev", dev.SubsysPCI.Source, dev.Managed))
		case dev.SubsysMDev != nil:
			text := ""
			if source := dev.SubsysMDev.Source; source != nil && source.Address != nil {
				text = source.Address.UUID
			}
			uuid, err := providertree.CanonicalUUID(text)
			if err != nil {
				r.failf("hostdev mdev: %w", err)
			}
			d.Mdevs = append(d.Mdevs, uuid)
		}
	}
	for _, dev := range x.Interfaces {
		// The address is left out of a definition whose device comes from a network's pool.
		if dev.Source != nil && dev.Source.Hostdev != nil && dev.Source.Hostdev.PCI != nil {
			d.PCI = append(d.PCI, r.pci("interface", dev.Source.Hostdev.PCI, dev.Managed))
		}
	}
	for _, dev := range x.Disks {
		kind, source := diskSource(dev.Source)
		if kind == "nvme" && dev.Source.NVME.PCI != nil {
			source := &libvirtxml.DomainHostdevSubsysPCISource{Address: dev.Source.NVME.PCI.Address}
			d.PCI = append(d.PCI, r.pci("disk", source, dev.Source.NVME.PCI.Managed))
		}
		if dev.Device == "" || dev.Device == "disk" || dev.Device == "lun" {
			disk := AttachedDisk{Type: kind, Source: source, Serial: strings.TrimSpace(dev.Serial)}
			if dev.Target != nil {
				disk.Target = dev.Target.Dev
			}
			if dev.Driver != nil {
				disk.Format = dev.Driver.Type
			}
			d.Disks = append(d.Disks, disk)
		}
	}
	for _, dev := range x.Consoles {
		if d.Console == "" {
			d.Console = chardev(dev.Source)
		}
	}
	for _, dev := range x.Serials {
		if d.Console == "" {
			d.Console = chardev(dev.Source)
		}
		if dev.Log != nil && d.ConsoleLog == "" {
			d.ConsoleLog = dev.Log.File
		}
	}
	for _, module := range x.Memorydevs {
		if module.Model == "nvdimm" || module.Model == "virtio-pmem" {
			d.PersistentMemory++
		}
	}
}

// chardev is libvirt's word for what is behind a serial port or console.
func chardev(x *libvirtxml.DomainChardevSource) string {
	switch {
	case x == nil:
		return "unknown"
	case x.Pty != nil:
		return "pty"
	case x.UNIX != nil:
		return "unix"
	case x.TCP != nil:
		return "tcp"
	case x.File != nil:
		return "file"
	}
	return "other"
}

// diskSource is libvirt's word for a disk's kind, and the path of the file or device, or the name
// in a network's storage.
func diskSource(x *libvirtxml.DomainDiskSource) (kind, source string) {
	switch {
	case x == nil:
	case x.File != nil:
		return "file", x.File.File
	case x.Block != nil:
		return "block", x.Block.Dev
	case x.Network != nil:
		return "network", x.Network.Name
	case x.NVME != nil:
		return "nvme", ""
	case x.Volume != nil:
		return "volume", ""
	case x.Dir != nil:
		return "dir", ""
	}
	return "other", ""
}

// pci reads an address, of which the domain and the function may be left out.
func (r *reader) pci(
	what string, source *libvirtxml.DomainHostdevSubsysPCISource, managed string,
) machine.PassedDevice {
	if source == nil || source.Address == nil || source.Address.Bus == nil || source.Address.Slot == nil {
		r.failf("%s: its source has no PCI address", what)
		return machine.PassedDevice{}
	}
	part := func(name string, value *uint, limit uint) uint {
		if value == nil {
			return 0
		}
		if *value > limit {
			r.failf("%s: %#x is not a %s of a PCI address", what, *value, name)
		}
		return *value
	}
	x := source.Address
	return machine.PassedDevice{Managed: managed == yes, Address: machine.Address{
		Domain: uint32(part("domain", x.Domain, 1<<32-1)), Bus: uint8(part("bus", x.Bus, 255)),
		Slot: uint8(part("slot", x.Slot, 31)), Function: uint8(part("function", x.Function, 7)),
	}}
}

// encryptedState is the bit of a policy that asks for encrypted registers.
const encryptedState = 0x4

// security distinguishes SEV-ES from SEV by the policy that the guest's owner demands, as AMD's
// firmware does.
func (r *reader) security(x *libvirtxml.DomainLaunchSecurity) Security {
	switch {
	case x == nil:
		return ""
	case x.SEVSNP != nil:
		return SEVSNP
	case x.S390PV != nil:
		return "s390-pv"
	case x.TDX != nil:
		return "tdx"
	case x.SEV == nil: // libvirtxml does not keep the name of a kind that it does not know
		return "unknown"
	case x.SEV.Policy == nil:
		r.failf("launchSecurity: it has no policy")
		return SEV
	case *x.SEV.Policy&encryptedState != 0:
		return SEVES
	}
	return SEV
}

// size is an amount of memory in libvirt's units, KiB if there is none, rounded up as libvirt does.
func (r *reader) size(what string, n uint, unit string) uint64 {
	factor, err := bytesIn(unit)
	switch {
	case err != nil:
		r.failf("%s: %w", what, err)
		return 0
	case uint64(n) > math.MaxInt64/factor:
		r.failf("%s: %d %s is too much memory", what, n, unit)
		return 0
	}
	return (uint64(n)*factor + 1023) / 1024
}

func bytesIn(unit string) (uint64, error) {
	u := strings.ToLower(unit)
	switch u {
	case "":
		return 1024, nil
	case "b", "byte", "bytes":
		return 1, nil
	}
	power := strings.IndexByte("kmgtpe", u[0]) + 1
	base := uint64(1024)
	switch u[1:] {
	case "", "ib":
	case "b":
		base = 1000
	default:
		power = 0
	}
	if power == 0 {
		return 0, fmt.Errorf("%.30q is not a unit of memory", unit)
	}
	out := uint64(1)
	for range power {
		out *= base
	}
	return out, nil
}

// Board is what a guest keeps that is in no disk of its own.
type Board struct {
	// Machine is the machine type with its version, as libvirt found it: pc-q35-9.2.
	Machine string
	// NVRAM is the path of the file with the variables of the guest's firmware, or "".
	NVRAM string
	// TPM says that it has a TPM whose state libvirt keeps.
	TPM bool
}

// ReadBoard reads it from the XML of a domain.
func ReadBoard(text []byte) (Board, error) {
	var x libvirtxml.Domain
	if err := capabilities.Decode(string(text), &x); err != nil {
		return Board{}, fmt.Errorf("the XML of a domain: %w", err)
	}
	var out Board
	if x.OS != nil && x.OS.Type != nil && word.MatchString(x.OS.Type.Machine) {
		out.Machine = x.OS.Type.Machine
	}
	if x.OS != nil && x.OS.NVRam != nil {
		out.NVRAM = x.OS.NVRam.NVRam
		if s := x.OS.NVRam.Source; out.NVRAM == "" && s != nil && s.File != nil {
			out.NVRAM = s.File.File
		}
	}
	if x.Devices != nil {
		for _, tpm := range x.Devices.TPMs {
			out.TPM = out.TPM || tpm.Backend != nil && tpm.Backend.Emulator != nil
		}
	}
	return out, nil
}

// IsMachine reports whether a word can be a machine type.
func IsMachine(text string) bool { return word.MatchString(text) }
