// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"fmt"

	"libvirt.org/go/libvirt"
)

// watchEvents registers for what happens to domains and node devices. Each is one call; hypervisor
// drivers without events have none.
//
// libvirt's event of changed pins (DomainEventTunable) is not among them: the library's Go binding
// panics in its handler.
func (c *libvirtConn) watchEvents(event func(Event)) error {
	if event == nil {
		return nil
	}
	domain := func(d *libvirt.Domain) {
		if uuid, err := d.GetUUIDString(); err == nil {
			event(Event{Domain: uuid})
		}
	}
	device := func(d *libvirt.NodeDevice) {
		if name, err := d.GetName(); err == nil {
			event(Event{Device: name})
		}
	}
	for what, r := range map[string]struct {
		register   func() (int, error)
		deregister func(int) error
	}{
		"the lifecycle of domains": {func() (int, error) {
			return c.c.DomainEventLifecycleRegister(nil,
				func(_ *libvirt.Connect, d *libvirt.Domain, _ *libvirt.DomainEventLifecycle) { domain(d) })
		}, c.c.DomainEventDeregister},
		"devices that domains get": {func() (int, error) {
			return c.c.DomainEventDeviceAddedRegister(nil,
				func(_ *libvirt.Connect, d *libvirt.Domain, _ *libvirt.DomainEventDeviceAdded) { domain(d) })
		}, c.c.DomainEventDeregister},
		"devices that domains lose": {func() (int, error) {
			return c.c.DomainEventDeviceRemovedRegister(nil,
				func(_ *libvirt.Connect, d *libvirt.Domain, _ *libvirt.DomainEventDeviceRemoved) { domain(d) })
		}, c.c.DomainEventDeregister},
		"metadata of domains": {func() (int, error) {
			return c.c.DomainEventMetadataChangeRegister(nil,
				func(_ *libvirt.Connect, d *libvirt.Domain, _ *libvirt.DomainEventMetadataChange) { domain(d) })
		}, c.c.DomainEventDeregister},
		"the lifecycle of node devices": {func() (int, error) {
			return c.c.NodeDeviceEventLifecycleRegister(nil,
				func(_ *libvirt.Connect, d *libvirt.NodeDevice, _ *libvirt.NodeDeviceEventLifecycle) { device(d) })
		}, c.c.NodeDeviceEventDeregister},
		"changes of node devices": {func() (int, error) {
			return c.c.NodeDeviceEventUpdateRegister(nil, func(_ *libvirt.Connect, d *libvirt.NodeDevice) { device(d) })
		}, c.c.NodeDeviceEventDeregister},
	} {
		id, err := r.register()
		switch {
		case unsupported(err):
		case err != nil:
			return fmt.Errorf("asking for events about %s: %w", what, err)
		default:
			c.events = append(c.events, func() error { return r.deregister(id) })
		}
	}
	return nil
}
