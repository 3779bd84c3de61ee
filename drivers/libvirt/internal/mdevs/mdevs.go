// SPDX-License-Identifier: Apache-2.0

package mdevs

import (
	"cmp"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/symbols"
	"github.com/compute-agent/compute-agent/providertree"
)

// Provider is what a parent of mediated devices can give.
type Provider struct {
	// Device is libvirt's name of the parent, Address its PCI address or nil.
	Device  string
	Address *machine.Address
	// Cell is where it is plugged in, or [machine.NoCell].
	Cell int
	// Type is the one type of which it makes devices; Class their resource class.
	Type, Class string
	// Active devices of the type are there; they may be allocated. Inactive ones take nothing.
	Active int
	// Total is Active and what can still be made. With 0 there is nothing to report: the provider goes, or stays with all of it reserved for
	// as long as something is allocated from it.
	Total int
	// Traits are those that the operator gave the type, sorted; TypeTrait says which type it is: CUSTOM_NVIDIA_222.
	Traits    []string
	TypeTrait string
	// Description is what the vendor's driver says of the type, or "".
	Description string
}

// Name is the provider's name, which is Nova's.
func (p Provider) Name(node string) string { return node + "_" + p.Device }

// Choose applies the types to a host. The result is in the order of the devices, PCI devices first, and has all parents that make, or hold, devices
// of their type. held says which parents have a provider in the tree already, by libvirt's name: under max_instances they come before new
// ones, so that nothing moves that need not. What is legal but hardly meant comes as doubts.
//
// Under max_instances what exists counts first; then each parent in turn adds all that it can still make, or nothing if that is too much. (Nova
// counts in libvirt's order, and takes away even what exists.)
//
// Cost: O(parents log parents + types + devices).
func (t Types) Choose(m machine.Machine, held map[string]bool) ([]Provider, []machine.Doubt) {
	var out []Provider
	for _, parent := range m.Parents {
		if p, ok := t.provider(parent); ok {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, inOrder)
	for _, mt := range t.enabled {
		mt.bound(out, held)
	}
	return out, t.doubts(m, out)
}

func inOrder(a, b Provider) int {
	switch {
	case a.Address != nil && b.Address != nil:
		return a.Address.Compare(*b.Address)
	case a.Address != nil:
		return -1
	case b.Address != nil:
		return 1
	}
	return cmp.Compare(a.Device, b.Device)
}

// typeOf is the type that a parent makes, or nil.
func (t Types) typeOf(device string) *mdevType {
	if mt := t.named[device]; mt != nil {
		return mt
	}
	return t.fallback
}

// provider is what a parent can give by itself.
func (t Types) provider(parent machine.MdevParent) (Provider, bool) {
	mt := t.typeOf(parent.Name)
	if mt == nil {
		return Provider{}, false
	}
	p := Provider{
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

// TypeTraits are the traits of all types that a host's devices know, enabled or not, sorted.
func TypeTraits(m machine.Machine) []string {
	var out []string
	for _, parent := range m.Parents {
		ids := slices.Clone(parent.Others)
		for _, offer := range parent.Types {
			ids = append(ids, offer.ID)
		}
		for _, id := range ids {
			if trait := symbols.Custom(id); providertree.ValidateTrait(trait) == nil { // others cannot have been given to anything
				out = append(out, trait)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// bound keeps a type within its max_instances.
func (mt *mdevType) bound(providers []Provider, held map[string]bool) {
	if mt.max == 0 {
		return
	}
	var mine []*Provider
	sum := 0
	for i := range providers {
		if p := &providers[i]; p.Type == mt.name {
			mine = append(mine, p)
			sum += p.Active
		}
	}
	rank := func(p *Provider) int {
		switch {
		case p.Active > 0:
			return 0
		case held[p.Device]:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(mine, func(a, b *Provider) int { return cmp.Compare(rank(a), rank(b)) })
	for _, p := range mine {
		more := p.Total - p.Active
		if more > 0 && sum+more > mt.max {
			p.Total = p.Active
			continue
		}
		sum += more
	}
}
