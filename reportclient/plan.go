// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Kind is what an operation does. Each is one request.
type Kind int

// The kinds. [NewPlan] and [NewReshapePlan] describe their order in a plan.
const (
	EnsureClass    Kind = iota + 1 // PUT /resource_classes/{class}
	EnsureTrait                    // PUT /traits/{trait}
	CreateProvider                 // POST /resource_providers
	UpdateProvider                 // PUT /resource_providers/{uuid}: name and parent
	DeleteProvider                 // DELETE /resource_providers/{uuid}
	SetInventories                 // PUT /resource_providers/{uuid}/inventories
	SetAggregates                  // PUT /resource_providers/{uuid}/aggregates
	SetTraits                      // PUT /resource_providers/{uuid}/traits
	ReshapeTree                    // POST /reshaper
)

// Operation is one write to Placement.
type Operation struct {
	Kind Kind
	// UUID and Provider (the name) identify the provider that is written; "" for EnsureClass,
	// EnsureTrait and ReshapeTree.
	UUID, Provider string
	// Parent is the uuid of the parent, for CreateProvider and UpdateProvider; "" for a root.
	Parent string
	// Symbol is the custom class or trait of EnsureClass and EnsureTrait.
	Symbol string
	// Inventories, Traits and Aggregates are the whole new content, for the kind that sets it.
	Inventories        providertree.Inventories
	Traits, Aggregates []string
	// Before is the provider as Placement has it, nil for one that is new.
	Before *providertree.Provider
	// Reshape is what moves, for ReshapeTree.
	Reshape *Reshape
}

// Plan is an ordered list of writes that bring Placement to the desired state. The zero Plan has
// none.
type Plan struct {
	Operations []Operation
	// Progress, if it is not nil, is called by Apply before each operation with the number of
	// operations that have ended.
	Progress func(done int)
	// desired is the tree that holds when all operations have happened.
	desired *providertree.Tree
}

// Empty reports whether there is nothing to do.
func (p Plan) Empty() bool { return len(p.Operations) == 0 }

// NewPlan compares the tree in Placement with the desired one and lists the writes that lead from
// the one to the other. It is pure: the same two trees give the same plan, which the agent applies,
// `compute-agent plan` prints and the tests assert.
//
// The order is: custom resource classes and traits; new providers, parents first; renames and
// moves; deletions, children first; and then, for each provider from the leaves up, inventory,
// aggregates and traits. Deletions precede inventories, because an inventory may add what a
// deletion frees. They come first of all if a new provider takes the name of a deleted one.
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
	deleteFirst := slices.ContainsFunc(changes.Removed, func(p providertree.Provider) bool {
		_, wanted := desired.ProviderByName(p.Name)
		return wanted
	})
	if deleteFirst {
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
			plan.add(Operation{Kind: UpdateProvider, UUID: c.After.UUID, Provider: c.After.Name,
				Parent: c.After.ParentUUID, Before: &c.Before})
		}
	}
	if !deleteFirst {
		plan.deletions(changes)
	}
	eachFromLeaves(known, desired, func(before, after providertree.Provider) {
		plan.describeInventories(before, after)
		plan.describeAssociations(before, after)
	})
	return plan
}

// PlanReshape is [NewReshapePlan] without the standard traits that this Placement has refused as
// unknown, see [Client.Plan].
func (c *Client) PlanReshape(known, desired *providertree.Tree, before, after providertree.Allocations) Plan {
	return NewReshapePlan(known, c.Storable(known, desired), before, after)
}

// NewReshapePlan is [NewPlan] for a pass in which the driver was given the allocations (before) and
// edited them (after): what moves is written in one transaction, [ReshapeTree]. It is pure. With
// after nil, or if nothing moves, it is NewPlan.
//
// The order is: custom resource classes and traits; new providers, parents first; renames and
// moves; aggregates and traits from the leaves up; the reshape; deletions, children first; and the
// inventories that are not part of the reshape. A new provider that takes the name of a deleted one
// has its uuid as its name until the deletion.
//
// A resource class moves if a consumer's amount of it changes on some provider, or if its capacity
// shrinks on one provider and grows on another. The reshape has
//
//   - the consumers whose allocations change, each with all its allocations;
//   - the providers whose inventory of a moving class changes, each with all its inventories;
//   - the providers on which these consumers keep an amount of a class whose capacity grows: its
//     inventory was closed, and Placement before 2025.2 checks the capacity for all allocations of
//     a consumer.
//
// A consumer that is not in after keeps its allocations. Projects, users and generations of
// consumers are taken from before.
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
			later = append(later,
				Operation{Kind: UpdateProvider, UUID: p.UUID, Provider: p.Name, Parent: p.ParentUUID, Before: &unnamed})
		}
		plan.add(op)
	}
	for _, c := range changes.Changed {
		if !c.Renamed() && !c.Moved() || fresh[c.After.UUID] {
			continue
		}
		op := Operation{Kind: UpdateProvider, UUID: c.After.UUID, Provider: c.After.Name,
			Parent: c.After.ParentUUID, Before: &c.Before}
		if !taken[c.After.Name] {
			plan.add(op)
			continue
		}
		// below its new parent now, so that the old one can go; the name when it is free
		if c.Moved() {
			moved := c.Before
			moved.ParentUUID = c.After.ParentUUID
			plan.add(Operation{Kind: UpdateProvider, UUID: op.UUID, Provider: c.Before.Name,
				Parent: op.Parent, Before: &c.Before})
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

// compare is [providertree.Diff] without the removal of sharing providers. A driver may leave these
// out of its answer, but they serve other hosts too.
func compare(known, desired *providertree.Tree) providertree.Changes {
	changes := providertree.Diff(known, desired)
	changes.Removed = slices.DeleteFunc(changes.Removed, func(p providertree.Provider) bool {
		return p.ParentUUID == "" && p.HasTrait(providertree.TraitSharesViaAggregate)
	})
	return changes
}

// freshProviders returns the uuids of the desired providers that Placement does not have yet.
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
			p.add(Operation{Kind: DeleteProvider, UUID: gone.UUID, Provider: gone.Name,
				Parent: gone.ParentUUID, Before: &gone})
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

// traitsPerQuery keeps the URL of a query below the 8 KiB that web servers take: a trait's name may
// have 255 characters.
const traitsPerQuery = 25

// Plan is [NewPlan] without the standard traits that this Placement has refused as unknown: a
// driver may be newer than the control plane.
func (c *Client) Plan(known, desired *providertree.Tree) Plan {
	return NewPlan(known, c.Storable(known, desired))
}

// Storable returns the desired tree without the standard traits that this Placement has refused as
// unknown; desired itself if it has refused none.
func (c *Client) Storable(known, desired *providertree.Tree) *providertree.Tree {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.unknown) == 0 {
		return desired
	}
	possible := desired.Clone()
	for _, uuid := range possible.UUIDs() {
		for trait := range c.unknown {
			if !known.HasTraits(uuid, trait) { // Placement may have learnt it meanwhile
				_, _ = possible.RemoveTraits(uuid, trait) // no error: it has the provider
			}
		}
	}
	return possible
}

// knownTraits asks which of these traits Placement knows, and remembers the others.
//
// Cost: one GET for each 25 traits, and only after Placement refused them.
func (c *Client) knownTraits(ctx context.Context, traits []string) ([]string, error) {
	var known []string
	for chunk := range slices.Chunk(traits, traitsPerQuery) {
		var out wire.TraitList
		path := "/traits?name=" + url.QueryEscape("in:"+strings.Join(chunk, ","))
		if err := c.placement.Do(ctx, http.MethodGet, path, nil, &out); err != nil {
			return nil, err
		}
		known = append(known, out.Traits...)
	}
	slices.Sort(known)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, trait := range traits {
		if _, found := slices.BinarySearch(known, trait); !found && !c.unknown[trait] && !providertree.IsCustom(trait) {
			c.unknown[trait] = true
			c.config.Logger.Warn().Str("trait", trait).
				Msg("Placement does not know this standard trait: it is omitted until the agent restarts. Update " +
					"os-traits on the control plane.")
		}
	}
	return known, nil
}
