// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
)

// NodeDevice is a device as libvirt lists it.
type NodeDevice struct {
	Name, XML string
	// Inactive devices are defined but do not exist now.
	Inactive bool
}

// NodeXML is the file behind test:///FILE. Libvirt's test driver takes figures, devices and domains
// from it, but neither NUMA cells nor inactive devices, and it shows neither drivers nor CPU
// features.
func (h Host) NodeXML(domains ...Domain) string {
	var b strings.Builder
	cores, packages := map[[3]int]bool{}, map[int]bool{}
	for _, c := range h.CPUs {
		cores[[3]int{c.Package, c.Die, c.Core}], packages[c.Package] = true, true
	}
	threads := max(1, len(h.CPUs)/len(cores))
	fmt.Fprintf(
		&b,
		"<node>\n<cpu><mhz>%d</mhz><model>%s</model><active>%d</active><nodes>1</nodes><sockets>%d</"+
			"sockets><cores>%d</cores><threads>%d</threads></cpu>\n<memory>%d</memory>\n",
		h.Processor.MHz,
		h.Processor.Arch,
		len(h.OnlineCPUs()),
		len(packages),
		len(cores)/len(packages),
		threads,
		h.MemoryKiB(),
	)
	for _, d := range domains {
		b.WriteString(d.XML("test"))
	}
	for _, d := range h.NodeDevices() {
		if !d.Inactive {
			b.WriteString(d.XML)
		}
	}
	b.WriteString("</node>\n")
	return b.String()
}

// NodeDevices are the host's devices as libvirt describes them, the one that stands for the machine
// first.
func (h Host) NodeDevices() []NodeDevice {
	devices := []NodeDevice{{Name: "computer",
		XML: "<device><name>computer</name><capability type='system'><hardware><vendor>Made Up</vendor>" +
			"<uuid>11111111-2222-4333-8444-555555555555</uuid></hardware><firmware/></capability></device>\n"}}
	for i := range h.Devices {
		d := &h.Devices[i]
		devices = append(devices, NodeDevice{Name: NodeDeviceName(d.Address), XML: h.deviceXML(d)})
		for _, n := range d.Interfaces {
			name := "net_" + n.Name + "_" + strings.ReplaceAll(n.MAC, ":", "_")
			devices = append(
				devices,
				NodeDevice{
					Name: name,
					XML: fmt.Sprintf("<device><name>%s</name><path>/%s/net/%s</path><parent>%s</parent><capability "+
						"type='net'><interface>%s</interface><address>%s</address><link speed='25000' "+
						"state='up'/><capability type='80203'/></capability></device>\n",
						name, h.path(d), n.Name, NodeDeviceName(d.Address), n.Name, n.MAC),
				},
			)
		}
		for _, m := range d.Mdevs {
			devices = append(devices, mdevXML(m, d.Address, NodeDeviceName(d.Address)))
		}
	}
	for _, p := range h.Virtual {
		name := p.Name + "_" + p.Name
		devices = append(
			devices,
			NodeDevice{Name: name,
				XML: fmt.Sprintf("<device><name>%s</name><path>/%s</path><parent>computer</parent>%s</device>\n",
					name, p.path(), p.typesXML())},
		)
		for _, m := range p.Mdevs {
			devices = append(devices, mdevXML(m, p.Name, name))
		}
	}
	return devices
}

func (h Host) deviceXML(d *Device) string {
	var b strings.Builder
	parent := "computer"
	if d.Parent != "" {
		parent = NodeDeviceName(d.Parent)
	}
	domain, bus, slot, function := numbers(d.Address)
	fmt.Fprintf(&b, "<device><name>%s</name><path>/%s</path><parent>%s</parent>",
		NodeDeviceName(d.Address), h.path(d), parent)
	if d.Driver != "" {
		fmt.Fprintf(&b, "<driver><name>%s</name></driver>", d.Driver)
	}
	fmt.Fprintf(&b, "<capability type='pci'><class>0x%06x</class><domain>%d</domain><bus>%d</bus><slot>%d</"+
		"slot><function>%d</function><product id='0x%04x'/><vendor id='0x%04x'/>",
		d.Class, domain, bus, slot, function, d.Product, d.Vendor)
	if d.TotalVFs > 0 {
		fmt.Fprintf(&b, "<capability type='virt_functions' maxCount='%d'>", d.TotalVFs)
		for _, vf := range d.VFs {
			b.WriteString(addressXML(vf))
		}
		b.WriteString("</capability>")
	}
	if d.PF != "" {
		b.WriteString("<capability type='phys_function'>" + addressXML(d.PF) + "</capability>")
	}
	b.WriteString(d.typesXML())
	if d.IOMMUGroup != None {
		fmt.Fprintf(&b, "<iommuGroup number='%d'>%s</iommuGroup>", d.IOMMUGroup, addressXML(d.Address))
	}
	if d.Cell != None && !h.NoNUMA {
		fmt.Fprintf(&b, "<numa node='%d'/>", d.Cell)
	}
	b.WriteString("</capability></device>\n")
	return b.String()
}

func (p MdevParent) typesXML() string {
	if len(p.Types) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<capability type='mdev_types'>")
	for _, t := range p.Types {
		fmt.Fprintf(&b, "<type id='%s'>", escape(t.ID))
		if t.Name != "" {
			fmt.Fprintf(&b, "<name>%s</name>", escape(t.Name))
		}
		fmt.Fprintf(&b, "<deviceAPI>%s</deviceAPI><availableInstances>%d</availableInstances></type>", t.API,
			t.Available)
	}
	b.WriteString("</capability>")
	return b.String()
}

func mdevXML(m Mdev, address, parent string) NodeDevice {
	group := max(0, m.IOMMUGroup) // libvirt says 0 where there is none
	if m.Inactive {
		group = 0
	}
	name := MdevName(m.UUID, address)
	return NodeDevice{
		Name:     name,
		Inactive: m.Inactive,
		XML: fmt.Sprintf("<device><name>%s</name><parent>%s</parent><capability type='mdev'><type "+
			"id='%s'/><uuid>%s</uuid><parent_addr>%s</parent_addr><iommuGroup "+
			"number='%d'/></capability></device>\n", name, parent, escape(m.Type), m.UUID, address, group),
	}
}

func addressXML(address string) string {
	domain, bus, slot, function := numbers(address)
	return fmt.Sprintf("<address domain='0x%04x' bus='0x%02x' slot='0x%02x' function='0x%x'/>",
		domain, bus, slot, function)
}

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return b.String()
}

// Capabilities is the XML of virConnectGetCapabilities, with guests of some architectures.
func (h Host) Capabilities(guests ...string) string {
	var b strings.Builder
	p := h.Processor
	fmt.Fprintf(&b,
		"<capabilities>\n<host><uuid>11111111-2222-4333-8444-555555555555</uuid><cpu><arch>%s</arch><model>%s</"+
			"model><vendor>%s</vendor>", p.Arch, p.Model, libvirtVendor(p.Vendor))
	if p.Microcode != 0 {
		fmt.Fprintf(&b, "<microcode version='%d'/>", p.Microcode)
	}
	for _, f := range p.Features {
		fmt.Fprintf(&b, "<feature name='%s'/>", f)
	}
	for _, size := range h.pageSizes() {
		fmt.Fprintf(&b, "<pages unit='KiB' size='%d'/>", size)
	}
	b.WriteString("</cpu><topology>")
	fmt.Fprintf(&b, "<cells num='%d'>\n", len(h.Cells))
	for _, c := range h.Cells {
		h.cellXML(&b, c)
	}
	b.WriteString("</cells></topology></host>\n")
	for _, arch := range guests {
		fmt.Fprintf(&b, "<guest><os_type>hvm</os_type><arch name='%s'><wordsize>64</wordsize><domain "+
			"type='qemu'/></arch></guest>\n", arch)
	}
	b.WriteString("</capabilities>\n")
	return b.String()
}

// pageSizes are those that some cell knows, in KiB, small pages first.
func (h Host) pageSizes() []uint64 {
	sizes := []uint64{4}
	for _, c := range h.Cells {
		for _, p := range c.HugePages {
			sizes = append(sizes, p.SizeKiB)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

func (h Host) cellXML(b *strings.Builder, c Cell) {
	id := c.ID
	if h.NoNUMA {
		id = 0
	}
	fmt.Fprintf(b, "<cell id='%d'><memory unit='KiB'>%d</memory>", id, c.MemoryKiB)
	small := c.MemoryKiB
	for _, p := range c.HugePages {
		small -= min(small, p.Total*p.SizeKiB)
	}
	fmt.Fprintf(b, "<pages unit='KiB' size='4'>%d</pages>", small/4)
	for _, p := range c.HugePages {
		fmt.Fprintf(b, "<pages unit='KiB' size='%d'>%d</pages>", p.SizeKiB, p.Total)
	}
	if !h.NoNUMA {
		b.WriteString("<distances>")
		for i, d := range c.Distances {
			fmt.Fprintf(b, "<sibling id='%d' value='%d'/>", h.Cells[i].ID, d)
		}
		b.WriteString("</distances>")
	}
	fmt.Fprintf(b, "<cpus num='%d'>", len(h.CellCPUs(c.ID)))
	for _, cpu := range h.CPUs {
		if cpu.Cell == c.ID && !cpu.Offline {
			fmt.Fprintf(b, "<cpu id='%d' socket_id='%d' die_id='%d' core_id='%d' siblings='%s'/>", cpu.ID, cpu.Package,
				cpu.Die, cpu.Core, list(h.Siblings(cpu)))
		}
	}
	b.WriteString("</cpus></cell>\n")
}

// libvirtVendor is libvirt's word for the kernel's.
func libvirtVendor(vendor string) string {
	switch vendor {
	case "GenuineIntel":
		return "Intel"
	case "AuthenticAMD":
		return "AMD"
	}
	return vendor
}
