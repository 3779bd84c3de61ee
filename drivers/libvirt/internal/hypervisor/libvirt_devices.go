// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"
)

// kinds are libvirt's names of the kinds.
var kinds = map[DeviceKind]libvirt.ConnectListAllNodeDeviceFlags{
	PCIDevices:  libvirt.CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV,
	MdevParents: libvirt.CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES,
	Mdevs:       libvirt.CONNECT_LIST_NODE_DEVICES_CAP_MDEV,
	NetDevices:  libvirt.CONNECT_LIST_NODE_DEVICES_CAP_NET,
}

// NodeDevices makes a list of those that are there and one of the others, which spares a question
// for each. libvirt before 7.3, and its test driver, have the first only.
func (c *libvirtConn) NodeDevices(want func(NodeDevice) bool, which ...DeviceKind) ([]NodeDevice, error) {
	var flags libvirt.ConnectListAllNodeDeviceFlags
	for _, k := range which {
		flags |= kinds[k]
	}
	active, err := c.c.ListAllNodeDevices(flags | libvirt.CONNECT_LIST_NODE_DEVICES_ACTIVE)
	both := !unknownFlag(err)
	if !both {
		active, err = c.c.ListAllNodeDevices(flags)
	}
	defer freeDevices(active)
	if err != nil {
		return nil, fmt.Errorf("listing the node devices: %w", translate(err))
	}
	var inactive []libvirt.NodeDevice
	if both {
		inactive, err = c.c.ListAllNodeDevices(flags | libvirt.CONNECT_LIST_NODE_DEVICES_INACTIVE)
		defer freeDevices(inactive)
		if err != nil {
			return nil, fmt.Errorf("listing the node devices that are only defined: %w", translate(err))
		}
	}
	devices := make([]NodeDevice, 0, len(active)+len(inactive))
	seen := make(map[string]bool, len(active))
	for i := range len(active) + len(inactive) {
		d, l := NodeDevice{Active: i < len(active)}, (*libvirt.NodeDevice)(nil)
		if d.Active {
			l = &active[i]
		} else {
			l = &inactive[i-len(active)]
		}
		if d.Name, err = l.GetName(); err != nil {
			return nil, fmt.Errorf("reading a listed node device: %w", err)
		}
		if seen[d.Name] {
			continue // it was stopped between the two lists
		}
		seen[d.Name] = true
		if want != nil && want(d) {
			d.XML, err = l.GetXMLDesc(0)
			if isCode(err, libvirt.ERR_NO_NODE_DEVICE) {
				continue // it went meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("describing node device %q: %w", d.Name, translate(err))
			}
		}
		devices = append(devices, d)
	}
	slices.SortFunc(devices, func(a, b NodeDevice) int { return strings.Compare(a.Name, b.Name) })
	return devices, nil
}

func freeDevices(list []libvirt.NodeDevice) {
	for i := range list {
		_ = list[i].Free()
	}
}

func (c *libvirtConn) NodeDeviceXML(name string) (text string, err error) {
	err = c.device("describing", name,
		func(d *libvirt.NodeDevice) (err error) { text, err = d.GetXMLDesc(0); return err })
	return text, err
}

// device does something with one node device.
func (c *libvirtConn) device(what, name string, f func(*libvirt.NodeDevice) error) error {
	d, err := c.c.LookupDeviceByName(name)
	if err != nil {
		return fmt.Errorf("%s node device %s: %w", what, name, translate(err))
	}
	defer func() { _ = d.Free() }()
	if err := f(d); err != nil {
		return fmt.Errorf("%s node device %s: %w", what, name, translate(err))
	}
	return nil
}

func (c *libvirtConn) CreateDevice(xml string) (string, error) {
	d, err := c.c.DeviceCreateXML(xml, 0)
	return deviceName("creating", d, err)
}

func (c *libvirtConn) DefineDevice(xml string) (string, error) {
	d, err := c.c.DeviceDefineXML(xml, 0)
	return deviceName("defining", d, err)
}

func deviceName(what string, d *libvirt.NodeDevice, err error) (string, error) {
	if err != nil {
		return "", fmt.Errorf("%s a node device: %w", what, describeRefusal(err))
	}
	defer func() { _ = d.Free() }()
	return d.GetName()
}

func (c *libvirtConn) StartDevice(name string) error {
	return c.device("starting", name, func(d *libvirt.NodeDevice) error { return d.Create(0) })
}

func (c *libvirtConn) DestroyDevice(name string) error {
	return c.device("ending", name, func(d *libvirt.NodeDevice) error { return d.Destroy() })
}

func (c *libvirtConn) UndefineDevice(name string) error {
	return c.device("undefining", name, func(d *libvirt.NodeDevice) error { return d.Undefine(0) })
}

func (c *libvirtConn) SetDeviceAutostart(name string, on bool) error {
	return c.device("setting autostart of", name, func(d *libvirt.NodeDevice) error { return d.SetAutostart(on) })
}
