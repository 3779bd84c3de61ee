// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"fmt"
	"strings"
)

// Device is a PCI function.
type Device struct {
	// Address is domain:bus:slot.function in hexadecimal: 0000:82:00.0.
	Address string
	// Parent is the address of the bridge above it, "" right below a root bus.
	Parent          string
	Vendor, Product uint16
	// Class is class, subclass and programming interface: 0x030200.
	Class  uint32
	Driver string
	// Cell is the NUMA cell, IOMMUGroup the isolation group; None if the kernel knows none.
	Cell, IOMMUGroup int
	// TotalVFs above 0 makes it a physical function with SR-IOV, VFs are those enabled at present.
	// PF is set on VFs.
	TotalVFs int
	VFs      []string
	PF       string
	// Interfaces are the network interfaces that its driver made; Virtio puts them one level
	// deeper, as virtio does.
	Interfaces []Interface
	Virtio     bool
	// Cards are the numbers of its DRM nodes.
	Cards []int
	// VFIO is the entry of a driver that hands the device to guests (vfio3), or "".
	VFIO string
	// NoModalias leaves that file out, as some emulated devices do.
	NoModalias bool
	MdevParent
	// VGPU makes a physical function a GPU with vGPUs on its virtual functions.
	VGPU *VGPUCard
}

// Interface is a network interface.
type Interface struct{ Name, MAC string }

// MdevParent is what makes a device a parent of mediated devices.
type MdevParent struct {
	Types []MdevType
	Mdevs []Mdev
}

// MdevType is a kind of mediated device that a parent can make.
type MdevType struct {
	// ID is the vendor's (nvidia-222), Name the readable one, "" if there is none.
	ID, Name string
	// API is the class of the device: vfio-pci, vfio-ccw, vfio-ap.
	API string
	// Available is how many more can be made, beside those that exist.
	Available   int
	Description string
}

// Mdev is a mediated device.
type Mdev struct {
	UUID, Type string
	// IOMMUGroup is that of an active device.
	IOMMUGroup int
	// Inactive devices are only defined: mdevctl and libvirt know them, the kernel does not.
	Inactive bool
}

// VirtualParent is a parent of mediated devices without a PCI address, such as the kernel's sample
// driver mtty.
type VirtualParent struct {
	// Name is that of the device and of its class.
	Name string
	MdevParent
}

// Active are the mediated devices that the kernel shows.
func (p MdevParent) Active() (active []Mdev) {
	for _, m := range p.Mdevs {
		if !m.Inactive {
			active = append(active, m)
		}
	}
	return active
}

// Address makes a PCI address of its numbers.
func Address(domain uint32, bus, slot, function uint8) string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, slot, function)
}

func numbers(address string) (domain uint32, bus, slot, function uint8) {
	if _, err := fmt.Sscanf(address, "%x:%x:%x.%x", &domain, &bus, &slot, &function); err != nil {
		panic("testhost: " + address + " is no PCI address")
	}
	return domain, bus, slot, function
}

// NodeDeviceName is what libvirt calls the device: pci_0000_82_00_0.
func NodeDeviceName(address string) string {
	return "pci_" + strings.NewReplacer(":", "_", ".", "_").Replace(address)
}

// MdevName is what libvirt calls a mediated device, with the parent's name (a PCI address or a
// virtual parent's).
func MdevName(uuid, parent string) string {
	return "mdev_" + strings.NewReplacer("-", "_", ":", "_", ".", "_").Replace(uuid+"_"+parent)
}

// path is where the kernel shows the device, from the tree's root.
func (h Host) path(d *Device) string {
	if parent := h.Device(d.Parent); parent != nil {
		return h.path(parent) + "/" + d.Address
	}
	domain, bus, _, _ := numbers(d.Address)
	return fmt.Sprintf("sys/devices/pci%04x:%02x/%s", domain, bus, d.Address)
}

func (p VirtualParent) path() string { return "sys/devices/virtual/" + p.Name + "/" + p.Name }
