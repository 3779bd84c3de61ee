// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Node devices are libvirt's XML about the devices of a host (https://libvirt.org/formatnode.html):
// PCI devices, parents of mediated devices, and mediated devices. Other devices have a name and
// nothing else.

// maxInstances is more than any device can be divided into.
const maxInstances = 1 << 20

// Device is one of libvirt's node devices.
type Device struct {
	// Name is libvirt's: pci_0000_82_00_0.
	Name string
	// Parent is the name of the device that it is plugged into, or made of.
	Parent string
	// PCI is set for a PCI device.
	PCI *machine.Device
	// Types are the mediated devices that it can make.
	Types []machine.MdevType
	// Mdev is set for a mediated device. Whether it is active is not in the XML.
	Mdev *machine.Mdev
}

// ParseDevice reads the XML of one device. An invalid address or number of instances is an error.
//
// Cost: O(len(text)).
func ParseDevice(text string) (Device, error) {
	var x libvirtxml.NodeDevice
	if err := Decode(text, &x); err != nil {
		return Device{}, fmt.Errorf("libvirt's node device: %w", err)
	}
	d := Device{Name: strings.TrimSpace(x.Name), Parent: strings.TrimSpace(x.Parent)}
	if d.Name == "" {
		return Device{}, errors.New("libvirt's node device has no name")
	}
	if err := d.read(x, text); err != nil {
		return Device{}, fmt.Errorf("libvirt's node device %.200q: %w", d.Name, err)
	}
	return d, nil
}

func (d *Device) read(x libvirtxml.NodeDevice, text string) (err error) {
	switch c := x.Capability; {
	case c.PCI != nil:
		if d.PCI, err = parsePCI(*c.PCI); err != nil {
			return err
		}
		if x.Driver != nil {
			d.PCI.Driver = strings.TrimSpace(x.Driver.Name)
		}
		for _, sub := range c.PCI.Capabilities {
			if sub.MDevTypes != nil {
				if d.Types, err = mdevTypes(sub.MDevTypes.Types); err != nil {
					return err
				}
			}
		}
	case c.MDev != nil:
		if c.MDev.Type == nil || c.MDev.Type.ID == "" {
			return errors.New("a mediated device without a type")
		}
		d.Mdev = &machine.Mdev{UUID: strings.ToLower(strings.TrimSpace(c.MDev.UUID)),
			Type: c.MDev.Type.ID, Active: true}
	default:
		// libvirtxml has no types of mediated devices for parents that are no PCI devices (mtty).
		var other struct {
			Capability struct {
				Kind  string                          `xml:"type,attr"`
				Types []libvirtxml.NodeDeviceMDevType `xml:"type"`
			} `xml:"capability"`
		}
		if err = Decode(text, &other); err == nil && other.Capability.Kind == "mdev_types" {
			d.Types, err = mdevTypes(other.Capability.Types)
		}
		return err
	}
	return nil
}

func parsePCI(c libvirtxml.NodeDevicePCICapability) (*machine.Device, error) {
	out := machine.Device{Cell: machine.NoCell}
	var err error
	if out.Address, err = address(libvirtxml.NodeDevicePCIAddress{Domain: c.Domain, Bus: c.Bus, Slot: c.Slot,
		Function: c.Function}); err != nil {
		return nil, err
	}
	class, err1 := number("class", c.Class, 24)
	vendor, err2 := number("vendor", c.Vendor.ID, 16)
	product, err3 := number("product", c.Product.ID, 16)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	out.Class, out.Vendor, out.Product = uint32(class), uint16(vendor), uint16(product)
	if c.NUMA != nil && c.NUMA.Node >= 0 {
		out.Cell = c.NUMA.Node
	}
	for _, sub := range c.Capabilities {
		if v := sub.VirtFunctions; v != nil {
			for _, a := range v.Address {
				vf, err := address(a)
				if err != nil {
					return nil, err
				}
				out.Virtual = append(out.Virtual, vf)
			}
			slices.SortFunc(out.Virtual, machine.Address.Compare)
			out.MaxVirtual = cmp.Or(v.MaxCount, len(out.Virtual)) // libvirt before 1.3 has no maximum
		}
		if sub.PhysFunction != nil {
			pf, err := address(sub.PhysFunction.Address)
			if err != nil {
				return nil, err
			}
			out.Physical = &pf
		}
	}
	return &out, nil
}

func mdevTypes(list []libvirtxml.NodeDeviceMDevType) ([]machine.MdevType, error) {
	var out []machine.MdevType
	for _, t := range list {
		if t.AvailableInstances > maxInstances {
			return nil, fmt.Errorf("%d instances of type %.100q are available", t.AvailableInstances, t.ID)
		}
		out = append(out, machine.MdevType{
			ID: t.ID, Name: strings.TrimSpace(t.Name),
			API: strings.TrimSpace(t.DeviceAPI), Available: int(t.AvailableInstances),
		})
	}
	slices.SortFunc(out, func(a, b machine.MdevType) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func address(a libvirtxml.NodeDevicePCIAddress) (machine.Address, error) {
	for _, part := range []struct {
		name  string
		value *uint
		limit uint
	}{{"domain", a.Domain, 1<<32 - 1}, {"bus", a.Bus, 255}, {"slot", a.Slot, 31}, {"function", a.Function, 7}} {
		if part.value == nil {
			return machine.Address{}, fmt.Errorf("its PCI address has no %s", part.name)
		}
		if *part.value > part.limit {
			return machine.Address{}, fmt.Errorf("%d is not a %s of a PCI address", *part.value, part.name)
		}
	}
	return machine.Address{Domain: uint32(*a.Domain), Bus: uint8(*a.Bus), Slot: uint8(*a.Slot),
		Function: uint8(*a.Function)}, nil
}

// number reads decimal and, with 0x, hexadecimal numbers.
func number(what, text string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%s is %.40q", what, text)
	}
	return n, nil
}
