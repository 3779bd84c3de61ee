// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Plan is an ordered list of writes that brings Placement to the desired state. The zero Plan is:
// nothing to do.
type Plan struct {
	Operations []Operation
	// Progress, if it is not nil, is called by Apply after each operation with how many of them are
	// over.
	Progress func(done int)
	// desired is the tree that holds when all operations have happened.
	desired *providertree.Tree
}

// Empty reports whether there is nothing to do.
func (p Plan) Empty() bool { return len(p.Operations) == 0 }

// NewPlan compares what Placement says with what it should say and lists the writes that lead
// there. It is pure: the same two trees give the same plan, which the agent applies, `compute-agent
// plan` prints and the tests assert.
//
// The order is: custom resource classes and traits; new providers, parents first; renames and
// moves; deletions, children first; and then, for each provider from the leaves up, inventory,
// aggregates and traits. Deletions come before the inventories since what they free may be what an
// inventory adds; they come first of all if a new provider takes the name of one that goes.
//
// Cost: O(providers), no request.
func NewPlan(known, desired *providertree.Tree) Plan {
	changes := compare(known, desired)
	plan := Plan{desired: desired}
	if changes.Empty() && !hasUncreated(desired) {
		return plan
	}
	plan.ensureSymbols(known, desired)
	// A name that passes from a provider that goes to one that comes must be free first.
	early := slices.ContainsFunc(changes.Removed, func(p providertree.Provider) bool {
		_, wanted := desired.ProviderByName(p.Name)
		return wanted
	})
	if early {
		plan.deletions(changes)
	}
	fresh := freshProviders(known, desired)
	for p := range desired.All() {
		if fresh[p.UUID] {
			plan.add(Operation{Kind: CreateProvider, UUID: p.UUID, Provider: p.Name, Parent: p.ParentUUID})
		}
	}
	for _, c := range changes.Changed {
		if (c.Renamed() || c.Moved()) && !fresh[c.After.UUID] {
			plan.add(Operation{Kind: UpdateProvider, UUID: c.After.UUID, Provider: c.After.Name, Parent: c.After.ParentUUID, Before: &c.Before})
		}
	}
	if !early {
		plan.deletions(changes)
	}
	eachFromLeaves(known, desired, func(before, after providertree.Provider) {
		plan.describeInventories(before, after)
		plan.describeAssociations(before, after)
	})
	return plan
}

// compare is [providertree.Diff], but that a sharing provider which the driver left out is left
// alone: it is shown to drivers, and serves other hosts too.
func compare(known, desired *providertree.Tree) providertree.Changes {
	changes := providertree.Diff(known, desired)
	changes.Removed = slices.DeleteFunc(changes.Removed, func(p providertree.Provider) bool {
		return p.ParentUUID == "" && p.HasTrait(providertree.TraitSharesViaAggregate)
	})
	return changes
}

// freshProviders are those that Placement does not have yet.
func freshProviders(known, desired *providertree.Tree) map[string]bool {
	fresh := map[string]bool{}
	for p := range desired.All() {
		if p.Generation == providertree.NoGeneration || !known.Exists(p.UUID) {
			fresh[p.UUID] = true
		}
	}
	return fresh
}

// eachFromLeaves visits the providers of the desired tree, children before parents, with what
// Placement has of each: the zero Provider for those that it does not have yet.
func eachFromLeaves(known, desired *providertree.Tree, visit func(before, after providertree.Provider)) {
	fresh := freshProviders(known, desired)
	for _, uuid := range slices.Backward(desired.UUIDs()) {
		after, _ := desired.Provider(uuid)
		before, _ := known.Provider(uuid)
		if fresh[uuid] {
			before = providertree.Provider{}
		}
		visit(before, after)
	}
}

// deletions adds what is needed for the providers that go, children first.
func (p *Plan) deletions(changes providertree.Changes) {
	for _, gone := range changes.Removed {
		if gone.Generation != providertree.NoGeneration {
			p.add(Operation{Kind: DeleteProvider, UUID: gone.UUID, Provider: gone.Name, Parent: gone.ParentUUID, Before: &gone})
		}
	}
}

func (p *Plan) add(op Operation) { p.Operations = append(p.Operations, op) }

// describeInventories adds the write for what one provider has.
func (p *Plan) describeInventories(before, after providertree.Provider) {
	if !before.Inventories.Equal(after.Inventories) {
		op := operationOn(before, after)
		op.Kind, op.Inventories = SetInventories, after.Inventories
		p.add(op)
	}
}

// describeAssociations adds the writes for its aggregates and traits.
func (p *Plan) describeAssociations(before, after providertree.Provider) {
	if !slices.Equal(before.Aggregates, after.Aggregates) {
		op := operationOn(before, after)
		op.Kind, op.Aggregates = SetAggregates, after.Aggregates
		p.add(op)
	}
	if !slices.Equal(before.Traits, after.Traits) {
		op := operationOn(before, after)
		op.Kind, op.Traits = SetTraits, after.Traits
		p.add(op)
	}
}

func operationOn(before, after providertree.Provider) Operation {
	op := Operation{UUID: after.UUID, Provider: after.Name}
	if before.UUID != "" {
		op.Before = &before
	}
	return op
}

// ensureSymbols adds the creation of custom classes and traits that no known provider uses yet.
// (Those that one uses exist.) Standard ones are Placement's own: it may be newer than the agent,
// so they are not checked here.
func (p *Plan) ensureSymbols(known, desired *providertree.Tree) {
	classes, traits := customSymbols(known)
	newClasses, newTraits := customSymbols(desired)
	for _, class := range slices.Sorted(maps.Keys(newClasses)) {
		if !classes[class] {
			p.add(Operation{Kind: EnsureClass, Symbol: class})
		}
	}
	for _, trait := range slices.Sorted(maps.Keys(newTraits)) {
		if !traits[trait] {
			p.add(Operation{Kind: EnsureTrait, Symbol: trait})
		}
	}
}

func customSymbols(tree *providertree.Tree) (classes, traits map[string]bool) {
	classes, traits = map[string]bool{}, map[string]bool{}
	for p := range tree.All() {
		for class := range p.Inventories {
			if providertree.IsCustom(class) {
				classes[class] = true
			}
		}
		for _, trait := range p.Traits {
			if providertree.IsCustom(trait) {
				traits[trait] = true
			}
		}
	}
	return classes, traits
}

// hasUncreated reports whether a provider does not exist in Placement yet. A tree that was read for
// a node that is new to Placement holds its root in that state.
func hasUncreated(tree *providertree.Tree) bool {
	for p := range tree.All() {
		if p.Generation == providertree.NoGeneration {
			return true
		}
	}
	return false
}
