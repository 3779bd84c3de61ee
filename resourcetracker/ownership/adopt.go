// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"cmp"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Adopt returns the record for a tree that is in Placement before the agent has a record: one that
// Nova wrote, or an agent that lost its state. Bare is what the driver answers about an empty node,
// a root alone with the same uuid and name: so what is in it is what the driver itself says.
//
// The driver's are
//
//   - the root, and the providers of its tree that bare has too, by uuid or else by name;
//   - on each of these: the resource classes that bare has on any provider (a class that moves from
//     the root to children is on the root still), the traits and aggregates that bare has on that
//     one provider;
//   - on the root: all standard resource classes, which only the driver can have written, and the
//     traits in denied, which the driver says the host does not have ([Denied]).
//
// Everything else is another client's. Values are recorded as they are in Placement. A nil bare is
// an answer without anything but the root. Cost: O(size of both trees).
func Adopt(known, bare *providertree.Tree, root, node, driver string, denied []string) *Record {
	r := &Record{Root: root, Node: node, Driver: driver, Providers: map[string]Provider{}}
	if known == nil || !known.Exists(root) {
		return r
	}
	if bare == nil {
		bare = &providertree.Tree{}
	}
	counterpart, classes := map[string]providertree.Provider{}, map[string]bool{}
	for p := range bare.All() {
		for class := range p.Inventories {
			classes[class] = true
		}
		if known.Exists(p.UUID) {
			counterpart[p.UUID] = p
		}
	}
	// By uuid first: a name that passed to another provider must not hide it.
	for p := range bare.All() {
		if namesake, found := known.ProviderByName(p.Name); found && !known.Exists(p.UUID) {
			if _, taken := counterpart[namesake.UUID]; !taken {
				counterpart[namesake.UUID] = p
			}
		}
	}
	for _, uuid := range known.Subtree(root) {
		placed, found := counterpart[uuid]
		if !found && uuid != root {
			continue
		}
		p, _ := known.Provider(uuid)
		o := ours{owner: Driver, inventories: map[string]Owner{}, traits: map[string]Owner{},
			aggregates: map[string]Owner{}}
		for class := range p.Inventories {
			if classes[class] || uuid == root && !providertree.IsCustom(class) {
				o.inventories[class] = Driver
			}
		}
		for _, trait := range placed.Traits {
			o.traits[trait] = Driver
		}
		if uuid == root {
			for _, trait := range denied {
				o.traits[trait] = Driver
			}
		}
		for _, aggregate := range placed.Aggregates {
			o.aggregates[aggregate] = Driver
		}
		r.setProvider(p, o)
	}
	return r
}

// traitProbe is a trait that no driver and no operator knows.
const traitProbe = "CUSTOM_COMPUTE_AGENT_PROBE"

// Undecided are the traits of the root that the driver may deny: the standard traits that bare, the
// driver's answer about an empty node, does not have. Apart from those in except, which are the
// agent's.
func Undecided(known, bare *providertree.Tree, root string, except ...string) []string {
	p, _ := known.Provider(root)
	return slices.DeleteFunc(slices.Clone(p.Traits), func(trait string) bool {
		return providertree.IsCustom(trait) || bare.HasTraits(root, trait) || slices.Contains(except, trait)
	})
}

// Probe returns bare, an empty node, with the traits in undecided on the root. The driver's answer
// to it is for [Denied].
func Probe(bare *providertree.Tree, root string, undecided []string) (*providertree.Tree, error) {
	out := bare.Clone()
	_, err := out.AddTraits(root, append(slices.Clip(undecided), traitProbe)...)
	return out, err
}

// Denied are the traits in undecided that the driver removed from the tree of [Probe]: it knows
// them, and says that the host does not have them. A driver that replaces all traits, so that the
// probe is gone too, denies none: it does not say which it knows.
func Denied(answer *providertree.Tree, root string, undecided []string) []string {
	if !answer.HasTraits(root, traitProbe) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(undecided), func(trait string) bool { return answer.HasTraits(root, trait) })
}

// Inherit returns r, the record for a tree that another driver takes over, with what the record of
// the former driver says of it:
//
//   - what is the agent's and the operator's stays theirs, and goes when their layers no longer
//     have it;
//   - what was the former driver's and is not the new one's is [Former]'s: it goes, once nothing is
//     allocated of it. The new one's are the resource classes that bare has on any provider, and
//     what Adopt found besides inventories. Without a bare answer (nil), all that was the former
//     driver's is the new one's;
//   - of what is the new driver's, what the agent holds back is still known.
//
// Cost: O(size of the former record and of bare).
func (r *Record) Inherit(former *Record, known, bare *providertree.Tree) *Record {
	out := r.Clone()
	left := func(owner Owner) Owner {
		if owner == Driver && bare != nil {
			return Former
		}
		return owner
	}
	classes := map[string]bool{}
	if bare != nil {
		for p := range bare.All() {
			for class := range p.Inventories {
				classes[class] = true
			}
		}
	}
	for uuid, old := range former.Providers {
		p, found := known.Provider(uuid)
		if !found {
			continue
		}
		kept := out.provider(uuid)
		kept.Name, kept.Parent = p.Name, p.ParentUUID
		kept.Owner = cmp.Or(kept.Owner, left(old.Owner))
		for class, owned := range old.Inventories {
			inv, there := p.Inventories[class]
			adopted, is := kept.Inventories[class]
			switch {
			case there && (owned.Owner.layered() || !is || bare != nil && !classes[class]):
				put(&kept.Inventories, class, OwnedInventory{Owner: left(owned.Owner), Inventory: inv})
			case is && isHeld(owned.BeforeDrain, adopted.Inventory):
				adopted.BeforeDrain = owned.BeforeDrain
				kept.Inventories[class] = adopted
			}
		}
		for trait, owner := range old.Traits {
			if p.HasTrait(trait) && (owner.layered() || kept.Traits[trait] == "") {
				put(&kept.Traits, trait, left(owner))
			}
		}
		for aggregate, owner := range old.Aggregates {
			if slices.Contains(p.Aggregates, aggregate) && kept.Aggregates[aggregate] == "" {
				put(&kept.Aggregates, aggregate, left(owner))
			}
		}
		if kept.Owner != "" || kept.hasItems() {
			put(&out.Providers, uuid, kept)
		}
	}
	return out
}
