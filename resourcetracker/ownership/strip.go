// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Strip returns the tree that a driver is given: the tree in Placement without the items that the
// agent added to the driver's answer for the operator and for itself. So these do not become the
// driver's when it returns them, and an item that was removed from provider.yaml disappears.
//
// It also removes items of a former driver that the present one does not report. It shows closed
// inventories as they were before ([Record.Hold]), so that a device which comes back does not look
// as if an operator had reserved it.
//
// known is not changed; unchanged providers are shared with it. A nil record strips nothing. Cost:
// O(providers) in pointers and O(stripped items).
func Strip(known *providertree.Tree, r *Record) *providertree.Tree {
	out := known.Clone()
	if r == nil {
		return out
	}
	for uuid, p := range r.Providers {
		if !out.Exists(uuid) {
			continue
		}
		for class, owned := range p.Inventories {
			now, found := out.Inventory(uuid, class)
			switch {
			case owned.Owner.layered():
				_, _ = out.RemoveInventory(uuid, class) // fails only for an unknown provider
			case found && isHeld(owned.BeforeDrain, now):
				_, _ = out.SetInventory(uuid, class, *owned.BeforeDrain) // and Placement had that already
			}
		}
		if traits := layered(p.Traits); len(traits) > 0 {
			_, _ = out.RemoveTraits(uuid, traits...)
		}
		if aggregates := layered(p.Aggregates); len(aggregates) > 0 {
			_, _ = out.RemoveAggregates(uuid, aggregates...)
		}
	}
	stripFormer(out, r)
	return out
}

// stripFormer removes the providers that a former driver made and that have nothing of any
// other owner on or below them, the operator's included.
func stripFormer(out *providertree.Tree, r *Record) {
	below := out.Subtree(r.Root)
	slices.Reverse(below) // from the leaves to the root
	for _, uuid := range below {
		p, _ := out.Provider(uuid)
		if r.Providers[uuid].onlyFormer() && uuid != r.Root && len(p.Inventories)+len(p.Traits)+
			len(p.Aggregates) == 0 && len(out.Subtree(uuid)) == 1 {
			_, _ = out.Remove(uuid) // fails only for an unknown provider
		}
	}
}

// onlyFormer reports whether a provider, and all that is ours of it, is a former driver's.
func (p Provider) onlyFormer() bool {
	for _, owned := range p.Inventories {
		if owned.Owner != Former {
			return false
		}
	}
	others := func(items map[string]Owner) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(items)), func(o Owner) bool { return o != Former })
	}
	return p.Owner == Former && !others(p.Traits) && !others(p.Aggregates)
}

func layered(items map[string]Owner) []string {
	var out []string
	for item, owner := range items {
		if owner.layered() {
			out = append(out, item)
		}
	}
	return out
}
