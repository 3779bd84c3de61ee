// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// PlanReshape is [NewReshapePlan] without the standard traits that this Placement has turned out
// not to know, see [Client.Plan].
func (c *Client) PlanReshape(known, desired *providertree.Tree, before, after providertree.Allocations) Plan {
	return NewReshapePlan(known, c.Possible(known, desired), before, after)
}

// NewReshapePlan is [NewPlan] for a pass in which the driver was given the allocations (before) and
// edited them (after): what moves is written in one transaction, [ReshapeTree]. It is pure. With
// after nil, or if nothing moves, it is NewPlan.
//
// The order is: custom resource classes and traits; new providers, parents first; renames and
// moves; aggregates and traits from the leaves up; the reshape; deletions, children first; and the
// inventories that are not part of it. A new provider that takes over the name of one that goes is
// called by its uuid until that has happened.
//
// A resource class moves if a consumer's amount of it changes on some provider, or if its capacity
// shrinks on one provider and grows on another. The reshape holds the providers whose inventory of
// such a class changes (with all their inventories, as they will be), those of which these
// consumers hold something whose capacity grows (it was closed, and Placement before 2025.1 checks
// the capacity for all that a consumer holds), and the consumers whose allocations change (with all
// their allocations). A consumer that is not in after keeps what it has. Owners and generations of
// consumers are those in before.
//
// Cost: O(providers + consumers), no request.
func NewReshapePlan(known, desired *providertree.Tree, before, after providertree.Allocations) Plan {
	changes := compare(known, desired)
	reshape := newReshape(known, desired, changes, before, after)
	if reshape == nil {
		return NewPlan(known, desired)
	}
	plan := Plan{desired: desired}
	plan.ensureSymbols(known, desired)
	taken := map[string]bool{} // names that become free only after the reshape
	for _, p := range changes.Removed {
		taken[p.Name] = true
	}
	fresh := freshProviders(known, desired)
	var later []Operation
	for p := range desired.All() {
		if !fresh[p.UUID] {
			continue
		}
		op := Operation{Kind: CreateProvider, UUID: p.UUID, Provider: p.Name, Parent: p.ParentUUID}
		if taken[p.Name] {
			op.Provider = p.UUID
			unnamed := p
			unnamed.Name = p.UUID
			later = append(later, Operation{Kind: UpdateProvider, UUID: p.UUID, Provider: p.Name, Parent: p.ParentUUID, Before: &unnamed})
		}
		plan.add(op)
	}
	for _, c := range changes.Changed {
		if !c.Renamed() && !c.Moved() || fresh[c.After.UUID] {
			continue
		}
		op := Operation{Kind: UpdateProvider, UUID: c.After.UUID, Provider: c.After.Name, Parent: c.After.ParentUUID, Before: &c.Before}
		if !taken[c.After.Name] {
			plan.add(op)
			continue
		}
		// below its new parent now, so that the old one can go; the name when it is free
		if c.Moved() {
			moved := c.Before
			moved.ParentUUID = c.After.ParentUUID
			plan.add(Operation{Kind: UpdateProvider, UUID: op.UUID, Provider: c.Before.Name, Parent: op.Parent, Before: &c.Before})
			op.Before = &moved
		}
		later = append(later, op)
	}
	eachFromLeaves(known, desired, plan.describeAssociations)
	plan.add(Operation{Kind: ReshapeTree, Reshape: reshape})
	plan.deletions(changes)
	plan.Operations = append(plan.Operations, later...)
	moved := map[string]bool{}
	for _, p := range reshape.Providers {
		moved[p.UUID] = true
	}
	eachFromLeaves(known, desired, func(before, after providertree.Provider) {
		if !moved[after.UUID] {
			plan.describeInventories(before, after)
		}
	})
	return plan
}

// newReshape collects what moves; nil if nothing does.
func newReshape(known, desired *providertree.Tree, changes providertree.Changes, before, after providertree.Allocations) *Reshape {
	if after == nil {
		return nil
	}
	out := &Reshape{Providers: []ReshapedProvider{}, Consumers: changedConsumers(before, after)}
	fresh := freshProviders(known, desired)
	var all []ReshapedProvider
	add := func(was, is providertree.Provider) {
		p := ReshapedProvider{UUID: is.UUID, Name: is.Name, Generation: providertree.NoGeneration, Before: providertree.Inventories{}, After: is.Inventories}
		if !fresh[is.UUID] {
			p.Generation, p.Before = was.Generation, was.Inventories
		}
		all = append(all, p)
	}
	for is := range desired.All() {
		was, _ := known.Provider(is.UUID)
		add(was, is)
	}
	for _, gone := range slices.Backward(changes.Removed) {
		if gone.Generation != providertree.NoGeneration {
			add(gone, providertree.Provider{UUID: gone.UUID, Name: gone.Name, Inventories: providertree.Inventories{}})
		}
	}
	touched, moving := movedAllocations(out.Consumers)
	movedCapacity(all, moving)
	posted := postedAgain(out.Consumers)
	for _, p := range all {
		opens := slices.ContainsFunc(posted[p.UUID].list(), func(class string) bool { return capacity(p.After, class) > capacity(p.Before, class) })
		if opens || slices.ContainsFunc(moving.list(), func(class string) bool { return inventoryChanges(p, class) }) {
			out.Providers = append(out.Providers, p)
		}
	}
	switch {
	case len(out.Providers) == 0 && len(out.Consumers) == 0:
		return nil
	case len(out.Providers) == 0:
		out.Providers = anchor(all, touched)
	}
	out.Names = otherNames(out, known, desired)
	return out
}

// otherNames are the names of the providers that consumers of a reshape hold from, other than those
// that it names anyway; nil if there are none.
func otherNames(r *Reshape, trees ...*providertree.Tree) map[string]string {
	named := make(map[string]bool, len(r.Providers))
	for _, p := range r.Providers {
		named[p.UUID] = true
	}
	var out map[string]string
	note := func(resources providertree.ProviderResources) {
		for uuid := range resources {
			if named[uuid] {
				continue
			}
			named[uuid] = true
			for _, tree := range trees {
				if p, found := tree.Provider(uuid); found {
					if out == nil {
						out = map[string]string{}
					}
					out[uuid] = p.Name
				}
			}
		}
	}
	for _, c := range r.Consumers {
		note(c.Before)
		note(c.After)
	}
	return out
}

// anchor is the provider that a reshape names although its inventory stays, since Placement wants
// one: the first that is touched, else the node's root.
func anchor(all []ReshapedProvider, touched map[string]bool) []ReshapedProvider {
	for _, p := range all {
		if touched[p.UUID] {
			return []ReshapedProvider{p}
		}
	}
	return all[:min(1, len(all))]
}

// changedConsumers are those whose allocations change, by uuid.
func changedConsumers(before, after providertree.Allocations) []ReshapedConsumer {
	out := []ReshapedConsumer{}
	for _, uuid := range slices.Sorted(maps.Keys(after)) {
		was, known := before[uuid]
		is := after[uuid]
		owner := is.Clone()
		if known { // the driver must not change it
			owner = was.Clone()
		}
		c := ReshapedConsumer{
			UUID: uuid, Generation: owner.Generation, ProjectID: owner.ProjectID, UserID: owner.UserID,
			Before: held(was.Resources), After: held(is.Resources),
		} // sent at 1.37, where a consumer keeps the type that it has
		if !c.Before.Equal(c.After) {
			out = append(out, c)
		}
	}
	return out
}

// held is a copy of what a consumer holds without amounts of 0 and providers of which it holds
// nothing: Placement refuses both.
func held(resources providertree.ProviderResources) providertree.ProviderResources {
	out := make(providertree.ProviderResources, len(resources))
	for provider, amounts := range resources {
		for class, amount := range amounts {
			out.Add(provider, class, amount)
		}
	}
	return out
}

// classes is a set of resource classes.
type classes map[string]bool

func (c classes) list() []string { return slices.Sorted(maps.Keys(c)) }

// movedAllocations returns the providers on which an amount comes or goes, and the classes of these
// amounts.
func movedAllocations(consumers []ReshapedConsumer) (touched map[string]bool, moving classes) {
	touched, moving = map[string]bool{}, classes{}
	note := func(from, to providertree.ProviderResources) {
		for provider, amounts := range from {
			for class, amount := range amounts {
				if to[provider][class] != amount {
					touched[provider], moving[class] = true, true
				}
			}
		}
	}
	for _, c := range consumers {
		note(c.Before, c.After)
		note(c.After, c.Before)
	}
	return touched, moving
}

// postedAgain are the classes by provider that consumers hold before and after.
func postedAgain(consumers []ReshapedConsumer) map[string]classes {
	out := map[string]classes{}
	for _, c := range consumers {
		for provider, amounts := range c.After {
			for class := range amounts {
				if out[provider] == nil {
					out[provider] = classes{}
				}
				out[provider][class] = true
			}
		}
	}
	return out
}

// movedCapacity adds the classes whose capacity shrinks on one provider and grows on another.
func movedCapacity(providers []ReshapedProvider, moving classes) {
	shrinks, grows := map[string]bool{}, map[string]bool{}
	for _, p := range providers {
		for class := range p.Before {
			if capacity(p.After, class) < capacity(p.Before, class) {
				shrinks[class] = true
			}
		}
		for class := range p.After {
			if capacity(p.After, class) > capacity(p.Before, class) {
				grows[class] = true
			}
		}
	}
	for class := range shrinks {
		if grows[class] {
			moving[class] = true
		}
	}
}

func capacity(inventories providertree.Inventories, class string) int64 {
	inv, found := inventories[class]
	if !found {
		return 0
	}
	return inv.Capacity()
}

func inventoryChanges(p ReshapedProvider, class string) bool {
	was, had := p.Before[class]
	is, has := p.After[class]
	return had != has || had && !was.Equal(is)
}
