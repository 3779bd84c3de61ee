// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"libvirt.org/go/libvirtxml"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
)

// devices lists the host's mediated devices.
func (j *job) devices(ctx context.Context) ([]hypervisor.NodeDevice, error) {
	list, err := hypervisor.Call(ctx, j.setup.Write[0],
		"the mediated devices", func(c hypervisor.Conn) ([]hypervisor.NodeDevice, error) {
			return c.NodeDevices(nil, hypervisor.Mdevs)
		})
	if err != nil {
		return nil, fmt.Errorf("instance %s: listing the mediated devices: %w", j.uuid, err)
	}
	return list, nil
}

// deviceOf is the device of a uuid. libvirt calls it mdev_<uuid>, since 7.8 with the address of its
// parent behind.
func deviceOf(list []hypervisor.NodeDevice, uuid string) (hypervisor.NodeDevice, bool) {
	name := "mdev_" + strings.ReplaceAll(uuid, "-", "_")
	for _, d := range list {
		if d.Name == name || strings.HasPrefix(d.Name, name+"_") {
			return d, true
		}
	}
	return hypervisor.NodeDevice{}, false
}

// makeMdevs creates the missing ones: new ones, and after a restart of the host all.
func (j *job) makeMdevs(ctx context.Context, mdevs []domain.Mdev) error {
	if len(mdevs) == 0 {
		return nil
	}
	list, err := j.devices(ctx)
	if err != nil {
		return err
	}
	for _, m := range mdevs {
		device, there := deviceOf(list, m.UUID)
		switch {
		case there && device.Active:
			continue
		case there:
			err = j.callSlow(ctx, "starting its mediated device "+m.UUID, deviceLimit,
				func(c hypervisor.Conn) error { return c.StartDevice(device.Name) })
		default:
			var text string
			if text, err = mdevXML(m); err == nil {
				err = j.callSlow(ctx, "making its mediated device "+m.UUID, deviceLimit,
					func(c hypervisor.Conn) error { _, err := c.CreateDevice(text); return err })
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mdevXML is the XML of a device to be made.
func mdevXML(m domain.Mdev) (string, error) {
	x := libvirtxml.NodeDevice{Parent: m.Parent, Capability: libvirtxml.NodeDeviceCapability{
		MDev: &libvirtxml.NodeDeviceMDevCapability{UUID: m.UUID,
			Type: &libvirtxml.NodeDeviceMDevCapabilityType{ID: m.Type}},
	}}
	return x.Marshal()
}

// removeMdevs removes those that were made for the instance. Others were there before and stay.
func (j *job) removeMdevs(ctx context.Context, mdevs []domain.Mdev) error {
	var list []hypervisor.NodeDevice
	for _, m := range mdevs {
		if !m.Made {
			continue
		}
		if list == nil {
			var err error
			if list, err = j.devices(ctx); err != nil {
				return err
			}
		}
		device, there := deviceOf(list, m.UUID)
		if !there || !device.Active {
			continue
		}
		err := j.callSlow(ctx, "removing its mediated device "+m.UUID, deviceLimit,
			func(c hypervisor.Conn) error { return c.DestroyDevice(device.Name) })
		if err != nil && !errors.Is(err, hypervisor.ErrNotFound) {
			return err
		}
	}
	return nil
}
