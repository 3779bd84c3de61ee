// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"encoding/binary"
	"fmt"
	"strings"
)

const bridgeClass = 0x0604

func (w *writer) device(h Host, d *Device) {
	at := h.path(d)
	w.link("sys/bus/pci/devices/"+d.Address, at)
	w.link(at+"/subsystem", "sys/bus/pci")
	w.file(at+"/vendor", "0x%04x\n", d.Vendor)
	w.file(at+"/device", "0x%04x\n", d.Product)
	w.file(at+"/subsystem_vendor", "0x%04x\n", d.Vendor)
	w.file(at+"/subsystem_device", "0x%04x\n", d.Product)
	w.file(at+"/class", "0x%06x\n", d.Class)
	w.file(at+"/revision", "0xa1\n")
	if !h.NoNUMA {
		w.file(at+"/numa_node", "%d\n", d.Cell)
	}
	w.file(at+"/config", "%s", d.config())
	w.file(at+"/uevent", "%s", d.uevent())
	if !d.NoModalias {
		w.file(at+"/modalias", "%s\n", d.modalias())
	}
	w.file(at+"/driver_override", "(null)\n")
	if d.Driver != "" {
		w.driver(at, d.Driver)
	}
	if d.VFIO != "" {
		w.file(at+"/vfio-dev/"+d.VFIO+"/uevent", "")
	}
	if d.IOMMUGroup != None {
		group := fmt.Sprintf("sys/kernel/iommu_groups/%d", d.IOMMUGroup)
		w.link(group+"/devices/"+d.Address, at)
		w.link(at+"/iommu_group", group)
	}
	if d.TotalVFs > 0 {
		w.file(at+"/sriov_totalvfs", "%d\n", d.TotalVFs)
		w.file(at+"/sriov_numvfs", "%d\n", len(d.VFs))
		w.file(at+"/sriov_drivers_autoprobe", "1\n")
		for i, vf := range d.VFs {
			w.link(fmt.Sprintf("%s/virtfn%d", at, i), h.path(h.Device(vf)))
		}
	}
	if d.PF != "" {
		w.link(at+"/physfn", h.path(h.Device(d.PF)))
	}
	for i, n := range d.Interfaces {
		w.netif(at, d, i, n)
	}
	for _, card := range d.Cards {
		w.card(at, fmt.Sprintf("card%d", card), card)
		w.card(at, fmt.Sprintf("renderD%d", 128+card), 128+card)
	}
	w.mdevs(at, d.MdevParent)
}

// driver binds a device. What is written to the files of a driver has no effect: there is no kernel
// behind them.
func (w *writer) driver(at, name string) {
	w.driverFiles(name)
	w.link(at+"/driver", "sys/bus/pci/drivers/"+name)
}

func (w *writer) driverFiles(name string) {
	dir := "sys/bus/pci/drivers/" + name
	for _, file := range []string{"bind", "unbind", "new_id", "remove_id"} {
		w.file(dir+"/"+file, "")
	}
}

func (d *Device) modalias() string {
	return fmt.Sprintf("pci:v%08Xd%08Xsv%08Xsd%08Xbc%02Xsc%02Xi%02X",
		d.Vendor, d.Product, d.Vendor, d.Product, d.Class>>16, d.Class>>8&0xff, d.Class&0xff)
}

// uevent is what the kernel tells udev of the device.
func (d *Device) uevent() string {
	var b strings.Builder
	if d.Driver != "" {
		fmt.Fprintf(&b, "DRIVER=%s\n", d.Driver)
	}
	fmt.Fprintf(&b, "PCI_CLASS=%X\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:%04X\nPCI_SLOT_NAME=%s\n", d.Class, d.Vendor,
		d.Product, d.Vendor, d.Product, d.Address)
	if !d.NoModalias {
		fmt.Fprintf(&b, "MODALIAS=%s\n", d.modalias())
	}
	return b.String()
}

// config is the head of the configuration space: identity, class and the kind of header.
func (d *Device) config() string {
	c := make([]byte, 256)
	binary.LittleEndian.PutUint16(c[0:], d.Vendor)
	binary.LittleEndian.PutUint16(c[2:], d.Product)
	binary.LittleEndian.PutUint32(c[8:], d.Class<<8)
	if d.Class>>8 == bridgeClass {
		c[14] = 1
	}
	return string(c)
}

func (w *writer) netif(device string, d *Device, i int, n Interface) {
	at := device
	if d.Virtio {
		at = fmt.Sprintf("%s/virtio%d", device, i)
		w.file(at+"/uevent", "DRIVER=virtio_net\n")
	}
	parent := at
	at += "/net/" + n.Name
	w.file(at+"/address", "%s\n", n.MAC)
	w.file(at+"/addr_assign_type", "0\n")
	w.file(at+"/operstate", "up\n")
	w.file(at+"/speed", "25000\n")
	w.file(at+"/duplex", "full\n")
	w.file(at+"/type", "1\n")
	w.file(at+"/uevent", "INTERFACE=%s\nIFINDEX=100\n", n.Name)
	w.link(at+"/device", parent)
	w.link(at+"/subsystem", "sys/class/net")
	w.link("sys/class/net/"+n.Name, at)
}

func (w *writer) card(device, name string, minor int) {
	at := device + "/drm/" + name
	w.file(at+"/uevent", "MAJOR=226\nMINOR=%d\nDEVNAME=dri/%s\nDEVTYPE=drm_minor\n", minor, name)
	w.file(at+"/dev", "226:%d\n", minor)
	w.link(at+"/device", device)
	w.link(at+"/subsystem", "sys/class/drm")
	w.link("sys/class/drm/"+name, at)
}

const mdevDriver = "vfio_mdev"

func (w *writer) mdevs(parent string, p MdevParent) {
	if len(p.Types) == 0 {
		return
	}
	w.link("sys/class/mdev_bus/"+parent[strings.LastIndexByte(parent, '/')+1:], parent)
	for _, t := range p.Types {
		at := parent + "/mdev_supported_types/" + t.ID
		if t.Name != "" {
			w.file(at+"/name", "%s\n", t.Name)
		}
		w.file(at+"/device_api", "%s\n", t.API)
		w.file(at+"/available_instances", "%d\n", t.Available)
		if t.Description != "" {
			w.file(at+"/description", "%s\n", t.Description)
		}
		w.file(at+"/create", "")
		w.mkdir(at + "/devices")
	}
	for _, m := range p.Active() {
		w.mdev(parent, m)
	}
}

func (w *writer) mdev(parent string, m Mdev) {
	at, kind := parent+"/"+m.UUID, parent+"/mdev_supported_types/"+m.Type
	w.link(at+"/mdev_type", kind)
	w.link(at+"/subsystem", "sys/bus/mdev")
	w.file(at+"/uevent", "DRIVER=%s\n", mdevDriver)
	w.mkdir("sys/bus/mdev/drivers/" + mdevDriver)
	w.link(at+"/driver", "sys/bus/mdev/drivers/"+mdevDriver)
	if m.IOMMUGroup != None {
		group := fmt.Sprintf("sys/kernel/iommu_groups/%d", m.IOMMUGroup)
		w.link(group+"/devices/"+m.UUID, at)
		w.link(at+"/iommu_group", group)
	}
	w.link(kind+"/devices/"+m.UUID, at)
	// The last link makes it known: a reader that finds the device finds it whole.
	w.link("sys/bus/mdev/devices/"+m.UUID, at)
}

func (w *writer) virtual(p VirtualParent) {
	w.link("sys/class/"+p.Name+"/"+p.Name, p.path())
	w.link(p.path()+"/subsystem", "sys/class/"+p.Name)
	w.file(p.path()+"/uevent", "")
	w.mdevs(p.path(), p.MdevParent)
}
