// SPDX-License-Identifier: Apache-2.0

package providertree

import "slices"

// Changes is what leads from one tree to another.
type Changes struct {
	// Added are the new providers, each after its parent.
	Added []Provider
	// Removed are the vanished ones, each before its parent: the order in which they can be
	// deleted.
	Removed []Provider
	// Changed are the providers in both trees that differ, in the pre-order of the newer tree.
	Changed []Change
}

// Change is one provider before and after.
type Change struct {
	Before, After Provider
}

// Renamed reports whether the name differs.
func (c Change) Renamed() bool { return c.Before.Name != c.After.Name }

// Moved reports whether the parent differs.
func (c Change) Moved() bool { return c.Before.ParentUUID != c.After.ParentUUID }

// Inventories reports whether the inventories differ.
func (c Change) Inventories() bool { return !c.Before.Inventories.Equal(c.After.Inventories) }

// Traits reports whether the traits differ.
func (c Change) Traits() bool { return !slices.Equal(c.Before.Traits, c.After.Traits) }

// Aggregates reports whether the aggregates differ.
func (c Change) Aggregates() bool { return !slices.Equal(c.Before.Aggregates, c.After.Aggregates) }

// Empty reports whether there is nothing to do.
func (c Changes) Empty() bool { return len(c.Added) == 0 && len(c.Removed) == 0 && len(c.Changed) == 0 }

// Diff compares two trees provider by provider, by uuid. Generations, named resources and the order
// among siblings do not count: Placement does not get them.
//
// Cost: O(providers), and nothing is copied for providers that both trees share untouched (as a
// tree and its clone do).
func Diff(before, after *Tree) Changes {
	var out Changes
	for _, uuid := range slices.Backward(before.UUIDs()) {
		if !after.Exists(uuid) {
			out.Removed = append(out.Removed, before.nodes[uuid].clone())
		}
	}
	for _, uuid := range after.UUIDs() {
		old, now := before.nodes[uuid], after.nodes[uuid]
		if old == nil {
			out.Added = append(out.Added, now.clone())
			continue
		}
		if old == now {
			continue
		}
		c := Change{Before: old.Provider, After: now.Provider}
		if c.Renamed() || c.Moved() || c.Inventories() || c.Traits() || c.Aggregates() {
			out.Changed = append(out.Changed, Change{Before: old.clone(), After: now.clone()})
		}
	}
	return out
}
