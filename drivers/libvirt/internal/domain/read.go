// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/providertree"
)

// reader remembers the first thing that was wrong, and the sets that were read: guests that float have the same for each processor.
type reader struct {
	err     error
	sets    map[string][]int
	numbers int
}

func (x domainXML) read() (Domain, error) {
	r := &reader{sets: map[string][]int{}}
	d := Domain{Type: x.Type, Title: strings.TrimSpace(x.Title)}
	uuid, err := providertree.CanonicalUUID(strings.TrimSpace(one(r, "uuid", x.UUID)))
	r.fail(err)
	if r.err != nil {
		return d, r.err
	}
	d.UUID = uuid
	if d.Name = strings.TrimSpace(one(r, "name", x.Name)); d.Name == "" {
		r.failf("its name is empty")
	}
	d.Nova = x.Metadata.nova()
	if d.Mark, err = x.Metadata.mark(); err != nil {
		r.fail(err)
	}
	r.processors(&d, one(r, "vcpu", x.VCPU), x.CPUTune)
	r.memory(&d, x)
	r.devices(&d, x.Devices)
	d.Security = r.security(x.Security)
	return d, r.err
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) failf(format string, args ...any) { r.fail(fmt.Errorf(format, args...)) }

// one is what there must be exactly once.
func one[T any](r *reader, what string, all []T) T {
	if len(all) == 1 {
		return all[0]
	}
	r.failf("there are %d elements <%s>, not one", len(all), what)
	var none T
	return none
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
	if r.numbers += len(numbers); r.numbers > maxNumbers {
		r.failf("%s: its sets of processors have more than %d numbers together", what, maxNumbers)
	}
	r.sets[text] = numbers
	return numbers
}

func (r *reader) number(what, text string, limit int) int {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 31)
	if err != nil || n > uint64(limit) {
		r.failf("%s: %.30q is no number up to %d", what, text, limit)
		return 0
	}
	return int(n)
}

func (r *reader) size(what, value, unit string) uint64 {
	kib, err := sizeKiB(value, unit)
	if err != nil {
		r.failf("%s: %w", what, err)
	}
	return kib
}

func (r *reader) processors(d *Domain, x vcpuXML, tune cputuneXML) {
	d.VCPUs = r.number("vcpu", x.Count, MaxVCPUs)
	d.CurrentVCPUs = d.VCPUs
	if x.Current != "" {
		d.CurrentVCPUs = r.number("vcpu current", x.Current, d.VCPUs)
	}
	d.CPUSet = r.set("vcpu cpuset", x.CPUSet)
	if len(tune.VCPU) > 0 {
		d.Pins = make([][]int, d.VCPUs)
	}
	for _, pin := range tune.VCPU {
		vcpu, set := r.number("vcpupin", pin.VCPU, MaxVCPUs), r.set("vcpupin", pin.CPUSet)
		switch {
		case set == nil:
			r.failf("vcpupin: virtual processor %d is pinned to nothing", vcpu)
		case vcpu >= d.VCPUs: // libvirt takes no notice of it either
		case d.Pins[vcpu] != nil:
			r.failf("vcpupin: virtual processor %d is pinned twice", vcpu)
		default:
			d.Pins[vcpu] = set
		}
	}
	if len(tune.Emulator) > 0 {
		d.EmulatorPin = r.set("emulatorpin", one(r, "emulatorpin", tune.Emulator).CPUSet)
	}
}

func (r *reader) memory(d *Domain, x domainXML) {
	memory := one(r, "memory", x.Memory)
	d.MemoryKiB = r.size("memory", memory.Value, memory.Unit)
	d.CurrentKiB = d.MemoryKiB
	if len(x.CurrentMemory) > 0 {
		current := one(r, "currentMemory", x.CurrentMemory)
		d.CurrentKiB = r.size("currentMemory", current.Value, current.Unit)
	}
	if len(x.NUMATune.Memory) > 0 {
		tune := one(r, "numatune memory", x.NUMATune.Memory)
		d.Memory.Mode, d.Memory.Nodes = modeOr(tune.Mode), r.set("numatune memory", tune.NodeSet)
	}
	if len(x.Cells) > maxCells || len(x.NUMATune.Cells) > maxCells {
		r.failf("it has more than %d NUMA cells", maxCells)
		return
	}
	for i, cell := range x.Cells {
		c := GuestCell{ID: i, VCPUs: r.set("cell cpus", cell.CPUs), MemoryKiB: r.size("cell memory", cell.Memory, cell.Unit)}
		if cell.ID != "" {
			c.ID = r.number("cell id", cell.ID, maxCells)
		}
		d.Cells = append(d.Cells, c)
	}
	for _, node := range x.NUMATune.Cells {
		d.Memory.Cells = append(d.Memory.Cells, MemNode{
			Cell: r.number("memnode cellid", node.Cell, maxCells), Mode: modeOr(node.Mode), Nodes: r.set("memnode", node.NodeSet),
		})
	}
	if x.HugePages == nil {
		return
	}
	if len(x.HugePages.Pages) == 0 {
		d.Pages = []Pages{{}}
	}
	for _, page := range x.HugePages.Pages {
		d.Pages = append(d.Pages, Pages{SizeKiB: r.size("hugepages page", page.Size, page.Unit), Cells: r.set("hugepages page", page.NodeSet)})
	}
}

// modeOr is the mode of a rule, which is strict if it does not say.
func modeOr(mode string) string {
	if mode == "" {
		return "strict"
	}
	return mode
}

func (r *reader) devices(d *Domain, x devicesXML) {
	if len(x.Hostdevs)+len(x.Interfaces)+len(x.Disks) > maxDevices {
		r.failf("it has more than %d devices", maxDevices)
		return
	}
	for _, dev := range x.Hostdevs {
		switch dev.Type {
		case "pci":
			d.PCI = append(d.PCI, r.pci("hostdev", dev))
		case "mdev":
			uuid, err := providertree.CanonicalUUID(one(r, "hostdev source address", dev.Source.Address).UUID)
			if err != nil {
				r.failf("hostdev mdev: %w", err)
			}
			d.Mdevs = append(d.Mdevs, uuid)
		}
	}
	for _, dev := range x.Interfaces {
		// The address is left out of a definition whose device comes from a network's pool.
		if dev.Type == "hostdev" && len(dev.Source.Address) > 0 {
			d.PCI = append(d.PCI, r.pci("interface", dev))
		}
	}
	for _, dev := range x.Disks {
		if dev.Type == "nvme" {
			d.PCI = append(d.PCI, r.pci("disk", dev))
		}
		if dev.Device == "" || dev.Device == "disk" || dev.Device == "lun" {
			d.Disks = append(d.Disks, AttachedDisk{
				Type: dev.Type, Source: cmp.Or(dev.Source.File, dev.Source.Dev, dev.Source.Name), Target: dev.Target.Dev, Serial: strings.TrimSpace(dev.Serial),
			})
		}
	}
	for _, module := range x.Memory {
		if module.Model == "nvdimm" || module.Model == "virtio-pmem" {
			d.PersistentMemory++
		}
	}
}

// pci reads an address. libvirt writes hexadecimal numbers and takes decimal ones too; the domain and the function may be left out.
func (r *reader) pci(what string, dev deviceXML) machine.Address {
	x := one(r, what+" source address", dev.Source.Address)
	number := func(name, text string, bits int, limit uint64, must bool) uint64 {
		if text == "" && !must {
			return 0
		}
		n, err := strconv.ParseUint(text, 0, bits)
		if err != nil || n > limit {
			r.failf("%s: %.30q is no %s of a PCI address", what, text, name)
		}
		return n
	}
	return machine.Address{
		Domain: uint32(number("domain", x.Domain, 32, 1<<32-1, false)), Bus: uint8(number("bus", x.Bus, 8, 255, true)),
		Slot: uint8(number("slot", x.Slot, 8, 31, true)), Function: uint8(number("function", x.Function, 8, 7, false)),
	}
}

// security tells SEV-ES from SEV by the policy that the guest's owner demands, as AMD's firmware does.
func (r *reader) security(x *securityXML) Security {
	const encryptedState = 0x4
	if x == nil {
		return ""
	}
	if x.Type != string(SEV) {
		return Security(x.Type)
	}
	policy, err := strconv.ParseUint(strings.TrimSpace(x.Policy), 0, 32)
	if err != nil {
		r.failf("launchSecurity: %.30q is no policy", x.Policy)
	}
	if policy&encryptedState != 0 {
		return SEVES
	}
	return SEV
}
