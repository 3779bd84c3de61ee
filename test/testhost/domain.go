// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"slices"
	"strings"
)

// Domain is a guest as libvirt defines it.
type Domain struct {
	Name, UUID string
	// Off domains are only defined.
	Off       bool
	VCPUs     int
	MemoryMiB int
	// Pins binds a virtual CPU to CPUs of the host, EmulatorPin the emulator's own threads.
	Pins        []Pin
	EmulatorPin []int
	// Memory places the guest's memory on cells of the host; nil leaves it to the kernel.
	Memory *MemoryPlacement
	// GuestCells are NUMA cells inside the guest.
	GuestCells []GuestCell
	// HugePagesKiB is the size of the pages that back the memory, 0 for common ones.
	HugePagesKiB uint64
	// PCI are addresses, Mdevs UUIDs of devices of the host that are passed through.
	PCI, Mdevs []string
	// Metadata are elements of other namespaces, such as Nova's.
	Metadata string
}

// Pin binds a virtual CPU.
type Pin struct {
	VCPU int
	CPUs []int
}

// MemoryPlacement is <numatune>: strict, preferred, interleave or restrictive.
type MemoryPlacement struct {
	Mode  string
	Cells []int
	// Nodes place single guest cells.
	Nodes []MemoryNode
}

// MemoryNode places the memory of one guest cell.
type MemoryNode struct {
	GuestCell int
	Mode      string
	Cells     []int
}

// GuestCell is a NUMA cell inside a guest.
type GuestCell struct {
	VCPUs     []int
	MemoryMiB int
}

// XML is the domain's definition for a hypervisor driver: "test" has its state in it, "qemu" can be
// defined by libvirtd and, if no device of the host is passed through, started with QEMU's own CPU
// emulation.
func (d Domain) XML(driver string) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("<domain type='%s'", driver)
	if driver == "test" {
		state := 1
		if d.Off {
			state = 5
		}
		p(" xmlns:test='http://libvirt.org/schemas/domain/test/1.0'><test:runstate>%d</test:runstate>", state)
	} else {
		p(">")
	}
	p("<name>%s</name><uuid>%s</uuid>", escape(d.Name), d.UUID)
	if d.Metadata != "" {
		p("<metadata>%s</metadata>", d.Metadata)
	}
	p("<memory unit='MiB'>%d</memory>", d.MemoryMiB)
	if d.HugePagesKiB > 0 {
		p("<memoryBacking><hugepages><page size='%d' unit='KiB'/></hugepages></memoryBacking>", d.HugePagesKiB)
	}
	p("<vcpu placement='static'>%d</vcpu>", d.VCPUs)
	d.tune(p)
	p("<os><type arch='x86_64'>hvm</type></os>")
	if len(d.GuestCells) > 0 {
		p("<cpu>")
		if driver == "qemu" {
			p("<model>qemu64</model>")
		}
		p("<numa>")
		for i, c := range d.GuestCells {
			p("<cell id='%d' cpus='%s' memory='%d' unit='MiB'/>", i, list(c.VCPUs), c.MemoryMiB)
		}
		p("</numa></cpu>")
	}
	p("<devices><controller type='usb' model='none'/>")
	for _, address := range d.PCI {
		p("<hostdev mode='subsystem' type='pci' managed='yes'><source>%s</source></hostdev>", addressXML(address))
	}
	for _, uuid := range d.Mdevs {
		p("<hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'><source><address "+
			"uuid='%s'/></source></hostdev>", uuid)
	}
	p("<memballoon model='virtio'/></devices></domain>\n")
	return b.String()
}

func (d Domain) tune(p func(string, ...any)) {
	if len(d.Pins)+len(d.EmulatorPin) > 0 {
		p("<cputune>")
		for _, pin := range slices.SortedFunc(slices.Values(d.Pins), func(a, b Pin) int { return a.VCPU - b.VCPU }) {
			p("<vcpupin vcpu='%d' cpuset='%s'/>", pin.VCPU, list(pin.CPUs))
		}
		if len(d.EmulatorPin) > 0 {
			p("<emulatorpin cpuset='%s'/>", list(d.EmulatorPin))
		}
		p("</cputune>")
	}
	if d.Memory == nil {
		return
	}
	p("<numatune>")
	if d.Memory.Mode != "" {
		p("<memory mode='%s' nodeset='%s'/>", d.Memory.Mode, list(d.Memory.Cells))
	}
	for _, n := range d.Memory.Nodes {
		p("<memnode cellid='%d' mode='%s' nodeset='%s'/>", n.GuestCell, n.Mode, list(n.Cells))
	}
	p("</numatune>")
}
