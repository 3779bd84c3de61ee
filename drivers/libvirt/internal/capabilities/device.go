// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// Node devices are libvirt's XML about the devices of a host (https://libvirt.org/formatnode.html): PCI devices, parents of mediated
// devices, and mediated devices. Other devices have a name and nothing else.

const (
	// maxXML is more than a device has: a physical function with 256 virtual ones has some 20 KB.
	maxDeviceXML = 1 << 20
	// maxInstances is more than any device can be divided into.
	maxInstances = 1 << 20
)

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

type addressXML struct {
	Domain   string `xml:"domain,attr"`
	Bus      string `xml:"bus,attr"`
	Slot     string `xml:"slot,attr"`
	Function string `xml:"function,attr"`
}

type idXML struct {
	ID string `xml:"id,attr"`
}

type capabilityXML struct {
	Type     string `xml:"type,attr"`
	MaxCount *int   `xml:"maxCount,attr"`

	Class    string `xml:"class"`
	Domain   string `xml:"domain"`
	Bus      string `xml:"bus"`
	Slot     string `xml:"slot"`
	Function string `xml:"function"`
	Product  idXML  `xml:"product"`
	Vendor   idXML  `xml:"vendor"`
	NUMA     *struct {
		Node int `xml:"node,attr"`
	} `xml:"numa"`
	Addresses []addressXML `xml:"address"`

	Types []struct {
		ID        string `xml:"id,attr"`
		Name      string `xml:"name"`
		API       string `xml:"deviceAPI"`
		Available string `xml:"availableInstances"`
	} `xml:"type"`
	UUID string `xml:"uuid"`

	Inner []capabilityXML `xml:"capability"`
}

type deviceXML struct {
	XMLName    xml.Name       `xml:"device"`
	Name       string         `xml:"name"`
	Parent     string         `xml:"parent"`
	Driver     string         `xml:"driver>name"`
	Capability *capabilityXML `xml:"capability"`
}

// Parse reads the XML of one device. What it cannot make sense of in a part that counts (an address, a number of instances) is an error.
//
// Cost: O(len(text)).
func ParseDevice(text string) (Device, error) {
	if len(text) > maxDeviceXML {
		return Device{}, fmt.Errorf("the XML of a node device has %d bytes, more than %d", len(text), maxDeviceXML)
	}
	var x deviceXML
	if err := xml.NewDecoder(strings.NewReader(text)).Decode(&x); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty")
		}
		return Device{}, fmt.Errorf("the XML of a node device cannot be read: %w", err)
	}
	d := Device{Name: strings.TrimSpace(x.Name), Parent: strings.TrimSpace(x.Parent)}
	if d.Name == "" {
		return Device{}, errors.New("the XML of a node device has no name")
	}
	if err := d.read(x); err != nil {
		return Device{}, fmt.Errorf("libvirt's node device %.200q: %w", d.Name, err)
	}
	return d, nil
}

func (d *Device) read(x deviceXML) error {
	c := x.Capability
	if c == nil {
		return nil
	}
	var err error
	switch c.Type {
	case "pci":
		d.PCI, err = c.pci(strings.TrimSpace(x.Driver))
	case "mdev":
		d.Mdev, err = c.mdev()
	}
	if err != nil {
		return err
	}
	for _, inner := range append([]capabilityXML{*c}, c.Inner...) {
		if inner.Type != "mdev_types" {
			continue
		}
		types, err := inner.mdevTypes()
		if err != nil {
			return err
		}
		d.Types = append(d.Types, types...)
	}
	return nil
}

func (c *capabilityXML) pci(driver string) (*machine.Device, error) {
	out := machine.Device{Driver: driver, Cell: machine.NoCell}
	var err error
	if out.Address, err = (addressXML{c.Domain, c.Bus, c.Slot, c.Function}).parse(); err != nil {
		return nil, err
	}
	class, err := number("class", c.Class, 24)
	if err != nil {
		return nil, err
	}
	vendor, err := number("vendor", c.Vendor.ID, 16)
	if err != nil {
		return nil, err
	}
	product, err := number("product", c.Product.ID, 16)
	if err != nil {
		return nil, err
	}
	out.Class, out.Vendor, out.Product = uint32(class), uint16(vendor), uint16(product)
	if c.NUMA != nil && c.NUMA.Node >= 0 {
		out.Cell = c.NUMA.Node
	}
	for _, inner := range c.Inner {
		switch inner.Type {
		case "virt_functions":
			if out.Virtual, err = inner.addresses(); err != nil {
				return nil, err
			}
			out.MaxVirtual = len(out.Virtual)
			if inner.MaxCount != nil {
				out.MaxVirtual = *inner.MaxCount
			}
		case "phys_function":
			list, err := inner.addresses()
			if err != nil {
				return nil, err
			}
			if len(list) != 1 {
				return nil, fmt.Errorf("it is a virtual function of %d physical ones", len(list))
			}
			out.Physical = &list[0]
		}
	}
	return &out, nil
}

func (c *capabilityXML) mdev() (*machine.Mdev, error) {
	m := machine.Mdev{UUID: strings.ToLower(strings.TrimSpace(c.UUID)), Active: true}
	if len(c.Types) != 1 || c.Types[0].ID == "" {
		return nil, errors.New("a mediated device without a type")
	}
	m.Type = c.Types[0].ID
	return &m, nil
}

func (c *capabilityXML) mdevTypes() ([]machine.MdevType, error) {
	var out []machine.MdevType
	for _, t := range c.Types {
		available, err := strconv.Atoi(strings.TrimSpace(t.Available))
		if err != nil || available < 0 || available > maxInstances {
			return nil, fmt.Errorf("%.40q instances of type %.100q are available", t.Available, t.ID)
		}
		out = append(out, machine.MdevType{ID: t.ID, Name: strings.TrimSpace(t.Name), API: strings.TrimSpace(t.API), Available: available})
	}
	slices.SortFunc(out, func(a, b machine.MdevType) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (c *capabilityXML) addresses() ([]machine.Address, error) {
	var out []machine.Address
	for _, a := range c.Addresses {
		address, err := a.parse()
		if err != nil {
			return nil, err
		}
		out = append(out, address)
	}
	slices.SortFunc(out, machine.Address.Compare)
	return out, nil
}

func (a addressXML) parse() (machine.Address, error) {
	var numbers [4]uint64
	for i, part := range []struct {
		name, text string
		bits       int
	}{{"domain", a.Domain, 32}, {"bus", a.Bus, 8}, {"slot", a.Slot, 5}, {"function", a.Function, 3}} {
		n, err := number("PCI "+part.name, part.text, part.bits)
		if err != nil {
			return machine.Address{}, err
		}
		numbers[i] = n
	}
	return machine.Address{Domain: uint32(numbers[0]), Bus: uint8(numbers[1]), Slot: uint8(numbers[2]), Function: uint8(numbers[3])}, nil
}

// number reads decimal and, with 0x, hexadecimal numbers.
func number(what, text string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%s is %.40q", what, text)
	}
	return n, nil
}
