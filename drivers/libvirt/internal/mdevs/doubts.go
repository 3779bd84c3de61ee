// SPDX-License-Identifier: Apache-2.0

package mdevs

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// doubts tells what of the types is legal but hardly meant.
func (t Types) doubts(m machine.Machine, providers []Provider) []machine.Doubt {
	var doubts []machine.Doubt
	for _, name := range t.dropped {
		doubts = append(doubts, machine.Doubtf("mdev-dropped-"+name,
			"mediated device type %s is enabled but not used: it names no device_addresses, and %s comes before it for the devices that none names", name, t.fallback.name))
	}
	parents := make(map[string]machine.MdevParent, len(m.Parents))
	for _, p := range m.Parents {
		parents[p.Name] = p
		if d, ok := t.others(p); ok {
			doubts = append(doubts, d)
		}
	}
	for _, mt := range t.enabled {
		for _, device := range mt.devices {
			if d, ok := mt.misplaced(device, parents); ok {
				doubts = append(doubts, d)
			}
		}
		doubts = append(doubts, mt.amounts(providers)...)
	}
	return doubts
}

// others tells of devices of another type than the parent's.
func (t Types) others(p machine.MdevParent) (machine.Doubt, bool) {
	mt := t.typeOf(p.Name)
	if mt == nil {
		return machine.Doubt{}, false
	}
	var types []string
	for _, mdev := range p.Mdevs {
		if mdev.Active && mdev.Type != mt.name {
			types = append(types, mdev.Type)
		}
	}
	n := len(types)
	if n == 0 {
		return machine.Doubt{}, false
	}
	slices.Sort(types)
	return machine.Doubtf("mdev-other-"+p.Name,
		"%s is configured for mediated devices of type %s, but has %d of another (%s): those are not reported, and what can be made of %s may be less for them",
		p.Name, mt.name, n, strings.Join(slices.Compact(types), ", "), mt.name), true
}

// misplaced tells that a configured address leads to nothing.
func (mt *mdevType) misplaced(device string, parents map[string]machine.MdevParent) (machine.Doubt, bool) {
	key := "mdev-address-" + device
	p, there := parents[device]
	if !there {
		return machine.Doubtf(key, "%s.device_addresses has %s, which the host does not have, or which makes no mediated devices", keyOf(mt.name), device), true
	}
	offered := slices.Clone(p.Others)
	for _, offer := range p.Types {
		if offer.ID == mt.name {
			return machine.Doubt{}, false
		}
		offered = append(offered, offer.ID)
	}
	slices.Sort(offered)
	what := "none"
	if len(offered) > 0 {
		what = strings.Join(offered, ", ")
	}
	return machine.Doubtf(key, "%s.device_addresses has %s, which does not make this type (it makes: %s)", keyOf(mt.name), device, what), true
}

// amounts tells that a type has no devices anywhere, or more than it may have.
func (mt *mdevType) amounts(providers []Provider) []machine.Doubt {
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
		return []machine.Doubt{machine.Doubtf("mdev-unused-"+mt.name, "mediated device type %s is enabled, but no device that is configured for it makes it", mt.name)}
	case mt.max > 0 && active > mt.max:
		return []machine.Doubt{machine.Doubtf("mdev-max-"+mt.name, "%s.max_instances is %d, but %d exist: what exists is reported, and no more", keyOf(mt.name), mt.max, active)}
	case mt.max > 0 && total == 0:
		return []machine.Doubt{machine.Doubtf("mdev-max-"+mt.name,
			"nothing of %s is reported: each device offers more than max_instances (%d), or nothing at all (%s is the first); a device counts as a whole or not at all", mt.name, mt.max, bounded)}
	}
	return nil
}
