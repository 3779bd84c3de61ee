// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// unavailable are devices that cannot be given.
type unavailable struct {
	mdevs map[string]bool
	pci   map[machine.Address]bool
}

// usedDevices returns the devices that other domains have.
func (c *chooser) usedDevices() unavailable {
	u := unavailable{mdevs: map[string]bool{}, pci: map[machine.Address]bool{}}
	for _, d := range c.others() {
		for _, id := range d.Mdevs {
			u.mdevs[id] = true
		}
		for _, device := range d.PCI {
			u.pci[device.Address] = true
		}
		for _, v := range d.VGPUs {
			u.pci[v.Function] = true
		}
	}
	return u
}

// others are the domains that are not the instance's own.
func (c *chooser) others() []domain.Domain {
	return slices.DeleteFunc(slices.Clone(c.Domains), func(d domain.Domain) bool { return d.UUID == c.Instance.UUID })
}

// mdevs chooses mediated devices: the instance's own of an earlier attempt, those that are free,
// new ones.
func (c *chooser) mdevs(d *domain.Decision, u unavailable, provider Provider, class string, amount int64) error {
	at := slices.IndexFunc(c.Machine.Parents, func(p machine.MdevParent) bool { return p.Name == provider.Parent })
	if at < 0 {
		return c.fault("it was granted %s, but the host no longer has that device", class)
	}
	parent := c.Machine.Parents[at]
	if parent.MakesVGPUs() {
		return c.vgpus(d, u, parent, provider.Type, class, amount)
	}
	kind := slices.IndexFunc(parent.Types, func(t machine.MdevType) bool { return t.ID == provider.Type })
	if kind < 0 {
		return c.fault("it was granted %s, but the device no longer offers that", class)
	}
	instance, err := uuid.Parse(c.Instance.UUID)
	if err != nil {
		return c.fault("its uuid is invalid")
	}
	var free []machine.Mdev
	there := map[string]bool{}
	for _, m := range parent.Mdevs {
		there[m.UUID] = true
		if m.Active && m.Type == provider.Type && !u.mdevs[m.UUID] {
			free = append(free, m)
		}
	}
	slices.SortFunc(free, func(a, b machine.Mdev) int { return cmp.Compare(a.UUID, b.UUID) })
	isOwn := map[string]bool{}
	var own []string // enough even if all before are taken
	for i := range len(parent.Mdevs) + len(u.mdevs) + int(min(amount, maxMdevs)) {
		id := uuid.NewSHA1(instance, fmt.Appendf(nil, "%s/%s/%d", parent.Name, provider.Type, i)).String()
		own, isOwn[id] = append(own, id), true
	}
	slices.SortStableFunc(free, func(a, b machine.Mdev) int { return rank(isOwn[a.UUID]) - rank(isOwn[b.UUID]) })
	assign := func(id string, made bool) {
		u.mdevs[id] = true
		d.Mdevs = append(d.Mdevs,
			domain.Mdev{UUID: id, Parent: parent.Name, Type: provider.Type, API: parent.Types[kind].API, Made: made})
		amount--
	}
	for _, m := range free {
		if amount > 0 {
			assign(m.UUID, isOwn[m.UUID])
		}
	}
	if amount > int64(parent.Types[kind].Available) {
		return c.fault("it was granted %s, which is %d more than are free",
			class, amount-int64(parent.Types[kind].Available))
	}
	for _, id := range own {
		if amount > 0 && !u.mdevs[id] && !there[id] {
			assign(id, true)
		}
	}
	if amount > 0 {
		return c.fault("it was granted more of %s than an instance can have", class)
	}
	c.devices[parent.Cell] = true
	return nil
}

// vgpus chooses virtual functions for vGPUs: those that have one of the type which no guest uses,
// then those on which one can be made, the lowest addresses first. So a repeated call chooses the
// same.
func (c *chooser) vgpus(
	d *domain.Decision, u unavailable, parent machine.MdevParent, kind, class string, amount int64,
) error {
	made := func(f machine.VGPUFunction) bool { return f.Type == kind }
	makes := func(f machine.VGPUFunction) bool { return f.Type == "" && slices.Contains(f.Creatable, kind) }
	for _, suits := range []func(machine.VGPUFunction) bool{made, makes} {
		for _, f := range parent.Functions {
			if amount > 0 && suits(f) && u.free(machine.Device{Address: f.Address, Physical: parent.Address}) {
				u.pci[f.Address] = true
				d.VGPUs = append(d.VGPUs,
					domain.VGPU{Function: f.Address, Parent: parent.Name, Type: kind, Made: f.Type == ""})
				amount--
			}
		}
	}
	if amount > 0 {
		return c.fault("it was granted %s, which is %d more than are free", class, amount)
	}
	c.devices[parent.Cell] = true
	return nil
}

// maxMdevs is how many mediated devices of one parent an instance may have.
const maxMdevs = 256

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}

// pci chooses PCI devices, the lowest addresses first.
func (c *chooser) pci(d *domain.Decision, u unavailable, provider Provider, class string, amount int64) error {
	for _, device := range slices.SortedFunc(slices.Values(provider.Devices), machine.PassedDevice.Compare) {
		if amount == 0 {
			break
		}
		at := slices.IndexFunc(c.Machine.Devices,
			func(dev machine.Device) bool { return dev.Address == device.Address })
		if at < 0 || !u.free(c.Machine.Devices[at]) {
			continue
		}
		u.pci[device.Address] = true
		d.PCI = append(d.PCI, device)
		c.devices[c.Machine.Devices[at].Cell] = true
		amount--
	}
	if amount > 0 {
		return c.fault("it was granted %s, which is %d more than are free", class, amount)
	}
	return nil
}

// encryption gives the one context that a guest can have.
func (c *chooser) encryption(d *domain.Decision, provider Provider, class string, amount int64) error {
	if amount > 1 || d.Encryption != "" {
		return c.fault("it was granted more than one %s, and can have one", class)
	}
	d.Encryption = provider.Security
	return nil
}

// free reports whether a device, its physical function and its virtual functions are unused.
func (u unavailable) free(dev machine.Device) bool {
	return !u.pci[dev.Address] && (dev.Physical == nil || !u.pci[*dev.Physical]) &&
		!slices.ContainsFunc(dev.Virtual, func(a machine.Address) bool { return u.pci[a] })
}
