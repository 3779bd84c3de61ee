// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"cmp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/providertree"
)

// MdevProvider is what a parent of mediated devices can give.
type MdevProvider struct {
	// Device is libvirt's name of the parent, Address its PCI address or nil.
	Device  string
	Address *machine.Address
	// Cell is where it is plugged in, or [machine.NoCell].
	Cell int
	// Type is the one type of which it makes devices; Class their resource class.
	Type, Class string
	// Active devices of the type are there; they may be allocated. Inactive ones take nothing.
	Active int
	// Total is Active and what can still be made. With 0 there is nothing to report: the provider
	// goes, or stays with all of it reserved for as long as something is allocated from it.
	Total int
	// Traits are the traits that the operator configured for the type, sorted. TypeTrait names the
	// type: CUSTOM_NVIDIA_222.
	Traits    []string
	TypeTrait string
	// Description is what the vendor's driver says of the type, or "".
	Description string
}

// Name is the provider's name, which is Nova's.
func (p MdevProvider) Name(node string) string { return node + "_" + p.Device }

// Choose applies the types to a host. The result is in the order of the devices, PCI devices first,
// and has all parents that make, or hold, devices of their type. held says which parents have a
// provider in the tree already, by libvirt's name: under max_instances they come before new ones,
// so that nothing moves that need not. What is valid but probably not intended is returned as
// discrepancies.
//
// Under max_instances existing devices come first; then each parent adds all that it can still
// create, or nothing if that is too much. (Nova goes by libvirt's order, and removes even what
// exists.)
//
// Cost: O(parents log parents + types + devices).
func (t MdevTypes) Choose(m machine.Machine, held map[string]bool) ([]MdevProvider, []machine.Discrepancy) {
	var out []MdevProvider
	for _, parent := range m.Parents {
		if p, ok := t.provider(parent); ok {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out,
		func(a, b MdevProvider) int { return machine.CompareDevices(a.Address, b.Address, a.Device, b.Device) })
	for _, mt := range t.enabled {
		mt.bound(out, held)
	}
	return out, t.discrepancies(m, out)
}

// typeOf is the type that a parent makes, or nil.
func (t MdevTypes) typeOf(device string) *mdevType {
	if mt := t.named[device]; mt != nil {
		return mt
	}
	return t.fallback
}

// Makes reports whether a device, by libvirt's name, is to make devices of some type.
func (t MdevTypes) Makes(device string) bool { return t.typeOf(device) != nil }

// provider returns the provider that a parent makes if it is not considered together with others;
// false if no type is chosen for it.
func (t MdevTypes) provider(parent machine.MdevParent) (MdevProvider, bool) {
	mt := t.typeOf(parent.Name)
	if mt == nil {
		return MdevProvider{}, false
	}
	p := MdevProvider{
		Device: parent.Name, Address: parent.Address, Cell: parent.Cell, Type: mt.name, Class: mt.class,
		Traits: slices.Clone(mt.traits), TypeTrait: mt.typeTrait,
	}
	for _, mdev := range parent.Mdevs {
		if mdev.Active && mdev.Type == mt.name {
			p.Active++
		}
	}
	offered, available := false, 0
	for _, offer := range parent.Types {
		if offer.ID == mt.name {
			offered, available = true, min(max(offer.Available, 0), providertree.MaxUnit-p.Active)
			p.Description = offer.Description
		}
	}
	p.Total = p.Active + available
	return p, offered || p.Active > 0
}

// MdevTypeTraits are the traits of all types that a host's devices know, enabled or not, sorted.
func MdevTypeTraits(m machine.Machine) []string {
	var out []string
	for _, parent := range m.Parents {
		ids := slices.Clone(parent.Others)
		for _, offer := range parent.Types {
			ids = append(ids, offer.ID)
		}
		for _, id := range ids {
			// others cannot have been given to anything
			if trait := extraspecs.CustomName(id); providertree.ValidateTrait(trait) == nil {
				out = append(out, trait)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// bound keeps a type within its max_instances.
func (mt *mdevType) bound(providers []MdevProvider, held map[string]bool) {
	if mt.max == 0 {
		return
	}
	var mine []*MdevProvider
	sum := 0
	for i := range providers {
		if p := &providers[i]; p.Type == mt.name {
			mine = append(mine, p)
			sum += p.Active
		}
	}
	rank := func(p *MdevProvider) int {
		switch {
		case p.Active > 0:
			return 0
		case held[p.Device]:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(mine, func(a, b *MdevProvider) int { return cmp.Compare(rank(a), rank(b)) })
	for _, p := range mine {
		more := p.Total - p.Active
		if more > 0 && sum+more > mt.max {
			p.Total = p.Active
			continue
		}
		sum += more
	}
}

// discrepancies adds what is valid about the types but probably not intended.
func (t MdevTypes) discrepancies(m machine.Machine, providers []MdevProvider) []machine.Discrepancy {
	var discrepancies []machine.Discrepancy
	for _, name := range t.dropped {
		discrepancies = append(discrepancies, machine.Discrepancyf("mdev-dropped-"+name,
			"mediated device type %s is enabled but not used: it names no device_addresses, and %s takes precedence "+
				"for devices that no type names", name, t.fallback.name))
	}
	parents := make(map[string]machine.MdevParent, len(m.Parents))
	for _, p := range m.Parents {
		parents[p.Name] = p
		if d, ok := t.checkOthers(p); ok {
			discrepancies = append(discrepancies, d)
		}
		if mt := t.typeOf(p.Name); mt != nil && p.Problem != "" {
			discrepancies = append(discrepancies, machine.Discrepancyf("vgpu-unread-"+p.Name,
				"%s is configured for type %s, but makes no vGPUs, because a file of its driver cannot be read: %s",
				p.Name, mt.name, p.Problem))
		}
	}
	for i := range m.Devices {
		if d, ok := t.checkFunctions(&m.Devices[i], m, parents); ok {
			discrepancies = append(discrepancies, d)
		}
	}
	for _, mt := range t.enabled {
		for _, device := range mt.devices {
			if d, ok := mt.misplaced(device, parents); ok {
				discrepancies = append(discrepancies, d)
			}
		}
		discrepancies = append(discrepancies, mt.amounts(providers)...)
	}
	return discrepancies
}

// checkOthers adds a discrepancy about devices of another type than the parent's.
func (t MdevTypes) checkOthers(p machine.MdevParent) (machine.Discrepancy, bool) {
	mt := t.typeOf(p.Name)
	if mt == nil {
		return machine.Discrepancy{}, false
	}
	var types []string
	for _, mdev := range p.Mdevs {
		if mdev.Active && mdev.Type != mt.name {
			types = append(types, mdev.Type)
		}
	}
	n := len(types)
	if n == 0 {
		return machine.Discrepancy{}, false
	}
	slices.Sort(types)
	return machine.Discrepancyf("mdev-other-"+p.Name,
		"%s is configured for mediated devices of type %s, but has %d of another (%s): those are not reported, and "+
			"they may reduce how many %s can be created",
		p.Name, mt.name, n, strings.Join(slices.Compact(types), ", "), mt.name), true
}

// classDisplay is the base class of GPUs.
const classDisplay = 0x03

// checkFunctions adds a discrepancy about a GPU whose virtual functions cannot have vGPUs: there
// are none, or another driver has them.
func (t MdevTypes) checkFunctions(
	d *machine.Device, m machine.Machine, parents map[string]machine.MdevParent,
) (machine.Discrepancy, bool) {
	name := d.Address.DeviceName()
	mt := t.typeOf(name)
	if mt == nil || !d.HasNVIDIADriver() || d.Class>>16 != classDisplay || d.MaxVirtual == 0 {
		return machine.Discrepancy{}, false
	}
	if _, makes := parents[name]; makes {
		return machine.Discrepancy{}, false
	}
	if len(d.Virtual) == 0 {
		return machine.Discrepancyf("vgpu-functions-"+name,
			"%s is configured for type %s, but has no virtual functions, so it makes no vGPUs: "+
				"run /usr/lib/nvidia/sriov-manage -e %s, and at each boot before the guests start",
			name, mt.name, d.Address), true
	}
	for i := range m.Devices {
		vf := &m.Devices[i]
		_, makes := parents[vf.Address.DeviceName()]
		if vf.Physical == nil || *vf.Physical != d.Address || makes || vf.HasNVIDIADriver() {
			continue
		}
		return machine.Discrepancyf("vgpu-driver-"+name,
			"%s is configured for type %s, but its virtual function %s has %s: it makes no vGPUs until its functions "+
				"have the driver nvidia", name, mt.name, vf.Address, driverText(vf)), true
	}
	return machine.Discrepancy{}, false
}

// misplaced adds a discrepancy about a configured address without a usable device.
func (mt *mdevType) misplaced(device string, parents map[string]machine.MdevParent) (machine.Discrepancy, bool) {
	key := "mdev-address-" + device
	p, there := parents[device]
	if !there {
		return machine.Discrepancyf(key,
			"%s.device_addresses has %s, which the host does not have, or which cannot create mediated devices",
			keyOf(mt.name), device), true
	}
	offered := slices.Clone(p.Others)
	for _, offer := range p.Types {
		if offer.ID == mt.name {
			return machine.Discrepancy{}, false
		}
		offered = append(offered, offer.ID)
	}
	slices.Sort(offered)
	what := "none"
	if len(offered) > 0 {
		what = strings.Join(offered, ", ")
	}
	return machine.Discrepancyf(key, "%s.device_addresses has %s, which does not support this type (it supports: %s)",
		keyOf(mt.name), device, what), true
}

// amounts adds a discrepancy about a type without devices, or with more than its limit.
func (mt *mdevType) amounts(providers []MdevProvider) []machine.Discrepancy {
	parents, total, active := 0, 0, 0
	bounded := ""
	for _, p := range providers {
		if p.Type != mt.name {
			continue
		}
		parents++
		total += p.Total
		active += p.Active
		if p.Total == 0 && bounded == "" {
			bounded = p.Device
		}
	}
	switch {
	case parents == 0:
		return []machine.Discrepancy{
			machine.Discrepancyf("mdev-unused-"+mt.name,
				"mediated device type %s is enabled, but no device that is configured for it supports it", mt.name),
		}
	case mt.max > 0 && active > mt.max:
		return []machine.Discrepancy{
			machine.Discrepancyf("mdev-max-"+mt.name,
				"%s.max_instances is %d, but %d exist: only the existing ones are reported",
				keyOf(mt.name), mt.max, active),
		}
	case mt.max > 0 && total == 0:
		return []machine.Discrepancy{
			machine.Discrepancyf("mdev-max-"+mt.name,
				"nothing of %s is reported: each device offers more than max_instances (%d), or nothing at all (%s "+
					"is the first); a device is reported as a whole or not at all", mt.name, mt.max, bounded),
		}
	}
	return nil
}
