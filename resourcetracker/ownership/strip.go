// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Strip returns the tree that a driver is given: what Placement says, without what the agent laid
// over the driver's own answer for the operator and for itself. So a driver that hands on what it
// was given does not make that its own, and what left provider.yaml is gone without an explicit
// removal. What a former driver made and the present one does not report is not shown either, so
// that it goes. What was closed because it went while it was allocated is as it was before
// ([Record.Hold]): a device that comes back is not taken for one that an operator has reserved.
//
// Known is not changed; the providers that have nothing of the kind are shared with it. A nil
// record strips nothing. Cost: O(providers) in pointers and O(layered items).
func Strip(known *providertree.Tree, r *Record) *providertree.Tree {
	out := known.Clone()
	if r == nil {
		return out
	}
	for uuid, p := range r.Providers {
		if !out.Exists(uuid) {
			continue
		}
		for class, stock := range p.Inventories {
			now, found := out.Inventory(uuid, class)
			switch {
			case stock.Owner.layered():
				_, _ = out.RemoveInventory(uuid, class) // fails only for an unknown provider
			case found && isHeld(stock.Held, now):
				_, _ = out.SetInventory(uuid, class, *stock.Held) // and Placement had that already
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
	for _, stock := range p.Inventories {
		if stock.Owner != Former {
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
