// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"slices"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// remedies of what is common. They follow what is wrong and the rule.
const (
	remedyUUID  = "make one with providertree.ChildUUID"
	remedyTotal = "leave out the class of which there is none"
)

// explainTree finds in words everything for which [wire.ToTree] refuses a tree. It looks at the message, since there is no tree.
//
// Cost: O(size of the message); it ends when it has found as much as is told.
func explainTree(d *defects, msg *driverv1.ProviderTree) {
	providers := msg.GetProviders()
	e := explainer{defects: d, uuids: make(map[string]*driverv1.ResourceProvider, len(providers)), names: make(map[string]*driverv1.ResourceProvider, len(providers))}
	for _, p := range providers {
		if e.enough() {
			return
		}
		e.identity(p)
		e.items(p)
	}
	whole := len(d.list) == 0
	for _, p := range providers {
		if e.enough() {
			return
		}
		whole = e.parent(p) && whole
	}
	if whole {
		e.loops(providers)
	}
}

// explainer is one explanation under way.
type explainer struct {
	*defects
	uuids, names map[string]*driverv1.ResourceProvider // uuids are canonical
}

// clipped quotes nothing and shortens: %q does the rest.
func clipped(s string) string { return clip(s, 200) }

func (e *explainer) wrong(p *driverv1.ResourceProvider, format string, args ...any) {
	e.add("resource provider %q (%s): "+format, append([]any{clipped(p.GetName()), words(p.GetUuid(), 64)}, args...)...)
}

func (e *explainer) identity(p *driverv1.ResourceProvider) {
	switch uuid, err := providertree.CanonicalUUID(p.GetUuid()); {
	case err != nil:
		e.wrong(p, "its uuid %q is none: %s", clipped(p.GetUuid()), remedyUUID)
	case e.uuids[uuid] != nil:
		e.wrong(p, "its uuid is also that of %q; each is given once: %s", clipped(e.uuids[uuid].GetName()), remedyUUID)
	default:
		e.uuids[uuid] = p
	}
	name := p.GetName()
	switch other := e.names[name]; {
	case providertree.ValidateProviderName(name) != nil:
		e.wrong(p, "its name has %d characters, must have 1 to 200", len([]rune(name)))
	case other != nil:
		e.wrong(p, "its name is also that of %s; each is given once", words(other.GetUuid(), 64))
	default:
		e.names[name] = p
	}
	if p.Generation != nil && p.GetGeneration() < 0 {
		e.wrong(p, "its generation is %d: send it back as it came, and none with a provider that is new", p.GetGeneration())
	}
}

func (e *explainer) items(p *driverv1.ResourceProvider) {
	for _, class := range slices.Sorted(maps.Keys(p.GetInventories())) {
		if providertree.ValidateClass(class) != nil {
			e.wrong(p, "inventory of %q: a resource class has 1 to 255 of A-Z, 0-9 and _, and begins with CUSTOM_ unless it is a standard one", clipped(class))
			continue
		}
		e.inventory(p, class, p.GetInventories()[class])
		if e.enough() {
			return
		}
	}
	for _, trait := range p.GetTraits() {
		if providertree.ValidateTrait(trait) != nil {
			e.wrong(p, "trait %q: a trait has 1 to 255 of A-Z, 0-9 and _, and begins with CUSTOM_ unless it is a standard one", clipped(trait))
		}
		if e.enough() {
			return
		}
	}
	for _, aggregate := range p.GetAggregates() {
		if _, err := providertree.CanonicalUUID(aggregate); err != nil {
			e.wrong(p, "aggregate %q: an aggregate is a uuid", clipped(aggregate))
		}
		if e.enough() {
			return
		}
	}
	for _, r := range p.GetResources() {
		if providertree.ValidateClass(r.GetResourceClass()) != nil {
			e.wrong(p, "named resource %q: its resource class %q has not 1 to 255 of A-Z, 0-9 and _", clipped(r.GetIdentifier()), clipped(r.GetResourceClass()))
		}
	}
}

func (e *explainer) inventory(p *driverv1.ResourceProvider, class string, m *driverv1.Inventory) {
	inv := providertree.Inventory{
		Total: m.GetTotal(), Reserved: m.GetReserved(), MinUnit: m.GetMinUnit(), MaxUnit: m.GetMaxUnit(),
		StepSize: m.GetStepSize(), AllocationRatio: m.GetAllocationRatio(),
	}
	bound := func(field string, v, low int64, remedy string) {
		if v < low || v > providertree.MaxUnit {
			e.wrong(p, "inventory of %s: %s is %d, must be between %d and %d%s", class, field, v, low, int64(providertree.MaxUnit), remedy)
		}
	}
	bound("total", inv.Total, 1, "; "+remedyTotal)
	bound("reserved", inv.Reserved, 0, "")
	const orDefault = ", or 0 for Placement's default"
	norm := inv.Normalize()
	bound("min_unit", norm.MinUnit, 1, orDefault)
	bound("max_unit", norm.MaxUnit, 1, orDefault)
	bound("step_size", norm.StepSize, 1, orDefault)
	if inv.Total = 1; (providertree.Inventory{Total: 1, AllocationRatio: inv.AllocationRatio}).Validate() != nil {
		e.wrong(p, "inventory of %s: allocation_ratio is %v, must be a finite number above 0, or 0 for Placement's default", class, inv.AllocationRatio)
	}
}

// parent reports whether the parent is there.
func (e *explainer) parent(p *driverv1.ResourceProvider) bool {
	if p.GetParentUuid() == "" {
		return true
	}
	parent, err := providertree.CanonicalUUID(p.GetParentUuid())
	self, _ := providertree.CanonicalUUID(p.GetUuid())
	switch {
	case err != nil:
		e.wrong(p, "its parent uuid %q is none", clipped(p.GetParentUuid()))
	case parent == self:
		e.wrong(p, "it is its own parent")
	case e.uuids[parent] == nil:
		e.wrong(p, "its parent %s is not in the tree: a provider goes with all that is below it, or is given back as it came", parent)
	default:
		return true
	}
	return false
}

// loops finds providers that are below themselves. All parents are there.
func (e *explainer) loops(providers []*driverv1.ResourceProvider) {
	const above, below = 1, 2 // on the way up, known to end at a root
	state := make(map[string]int, len(providers))
	for _, p := range providers {
		at, _ := providertree.CanonicalUUID(p.GetUuid())
		var path []string
		for at != "" && state[at] == 0 {
			state[at] = above
			path = append(path, at)
			if at = e.uuids[at].GetParentUuid(); at != "" {
				at, _ = providertree.CanonicalUUID(at)
			}
		}
		if at != "" && state[at] == above {
			e.wrong(e.uuids[at], "it is below itself, in a loop of %d providers: one of them must have a parent outside of it", len(path)-slices.Index(path, at))
		}
		for _, uuid := range path {
			state[uuid] = below
		}
	}
}

// explainAllocations finds in words everything for which [wire.ToAllocations] refuses allocations.
//
// Cost: O(n log n) in the size of the message; it ends when it has found as much as is told.
func explainAllocations(d *defects, msg *driverv1.Allocations) {
	seen := make(map[string]bool, len(msg.GetConsumers()))
	for _, consumer := range slices.Sorted(maps.Keys(msg.GetConsumers())) {
		if d.enough() {
			return
		}
		who := "allocations of consumer " + words(consumer, 64)
		switch uuid, err := providertree.CanonicalUUID(consumer); {
		case err != nil:
			d.add("allocations of consumer %q: a consumer is a uuid", clipped(consumer))
		case seen[uuid]:
			d.add("%s: it is there twice, in another notation: use uuids as they came", who)
		default:
			seen[uuid] = true
		}
		m := msg.GetConsumers()[consumer]
		if m != nil && m.Generation != nil && m.GetGeneration() < 0 {
			d.add("%s: generation %d: send it back as it came", who, m.GetGeneration())
		}
		explainResources(d, who, m.GetResources())
	}
}

// explainResources is the same for what one consumer or guest has.
func explainResources(d *defects, who string, msg map[string]*driverv1.Resources) {
	seen := make(map[string]bool, len(msg))
	for _, provider := range slices.Sorted(maps.Keys(msg)) {
		switch uuid, err := providertree.CanonicalUUID(provider); {
		case err != nil:
			d.add("%s: resource provider %q: a provider is a uuid", who, clipped(provider))
		case seen[uuid]:
			d.add("%s: resource provider %s is there twice, in another notation: use uuids as they came", who, uuid)
		default:
			seen[uuid] = true
		}
		amounts := msg[provider].GetAmounts()
		for _, class := range slices.Sorted(maps.Keys(amounts)) {
			if d.enough() {
				return
			}
			switch n := amounts[class]; {
			case providertree.ValidateClass(class) != nil:
				d.add("%s: resource class %q on %s: a class has 1 to 255 of A-Z, 0-9 and _", who, clipped(class), words(provider, 64))
			case n < 1 || n > providertree.MaxUnit:
				d.add("%s: %d of %s on %s, must be between 1 and %d; leave out what nothing is held of", who, n, class, words(provider, 64), int64(providertree.MaxUnit))
			}
		}
	}
}

// explained is the error of a conversion with all that is wrong, in words for the author of the driver. The kind stays.
func explained(err error, explain func(d *defects)) error {
	d := &defects{kind: err}
	explain(d)
	if d.err() == nil {
		d.join("", err)
	}
	return d
}
