// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// deviceLabels remembers what the PCI devices are called, which takes a look at each of them and at
// the database of names.
type deviceLabels struct {
	config  int // the number of the configuration
	devices []deviceIdentity
	labels  map[machine.Address]discovery.Label
}

// deviceIdentity is what a device's label depends on.
type deviceIdentity struct {
	address         machine.Address
	vendor, product uint16
}

// labelsOf returns the labels of a host's devices. They are read again if the configuration or the
// devices have changed. Devices without a label are among ghw's discrepancies, see compareDevices.
func (l *deviceLabels) labelsOf(cfg config, m machine.Machine) map[machine.Address]discovery.Label {
	var devices []deviceIdentity
	for _, d := range m.Devices {
		devices = append(devices, deviceIdentity{d.Address, d.Vendor, d.Product})
	}
	if l.config != cfg.number || !slices.Equal(l.devices, devices) {
		labels, _ := discovery.Labels(cfg.Chroot, m)
		*l = deviceLabels{config: cfg.number, devices: devices, labels: labels}
	}
	return l.labels
}

// nameProducts stores the result of ProductNames. The devices of an invented host have no names.
func (d *Driver) nameProducts(cfg config, c choice) {
	addresses := map[string]machine.Address{} // by the provider's name
	for _, p := range c.host.Mdevs {
		if p.Address != nil {
			addresses[p.Name(c.host.Node)] = *p.Address
		}
	}
	for _, p := range c.host.PCI {
		addresses[p.Name(c.host.Node)] = p.Address
	}
	names := make(map[string]string, len(addresses))
	if len(addresses) > 0 && !c.invented(cfg) {
		labels := d.labels.labelsOf(cfg, c.machine)
		for provider, address := range addresses {
			if name := labels[address].ProductName(); name != "" {
				names[provider] = name
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.productNames = names
}

// ProductNames are vendor and product of the devices behind the node's providers.
func (d *Driver) ProductNames(string) map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.productNames
}
