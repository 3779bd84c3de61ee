// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"iter"
	"maps"
	"slices"
)

// View is one resource provider of a [Tree], to be read without being copied. It shows the provider as it was when the View was taken:
// a change of the tree makes a new record and leaves this one as it is. The zero value shows nothing and must not be asked.
//
// Cost: nothing is copied but what a method returns.
type View struct{ n *node }

// View returns the provider of that uuid.
func (t *Tree) View(uuid string) (View, bool) {
	n := t.nodes[uuid]
	return View{n}, n != nil
}

// ViewByName returns the provider of that name.
func (t *Tree) ViewByName(name string) (View, bool) { return t.View(t.byName[name]) }

// Views is [Tree.All] without copies: all providers in pre-order, as they are at the start.
func (t *Tree) Views() iter.Seq[View] {
	views := make([]View, 0, len(t.nodes))
	for _, uuid := range t.UUIDs() {
		views = append(views, View{t.nodes[uuid]})
	}
	return slices.Values(views)
}

// UUID is canonical.
func (v View) UUID() string { return v.n.UUID }

// Name is the provider's.
func (v View) Name() string { return v.n.Name }

// ParentUUID is "" on a root.
func (v View) ParentUUID() string { return v.n.ParentUUID }

// Generation is Placement's, or [NoGeneration].
func (v View) Generation() int64 { return v.n.Generation }

// Classes is how many resource classes the provider has inventory of.
func (v View) Classes() int { return len(v.n.Inventories) }

// SortedClasses are the resource classes that the provider has inventory of.
func (v View) SortedClasses() []string { return sortedKeys(v.n.Inventories) }

// Inventory returns the inventory of one resource class.
func (v View) Inventory(class string) (Inventory, bool) {
	inv, ok := v.n.Inventories[class]
	return inv, ok
}

// Inventories lists the inventories by resource class, in no order.
func (v View) Inventories() iter.Seq2[string, Inventory] { return maps.All(v.n.Inventories) }

// AppendTraits appends the traits, sorted, to a list.
func (v View) AppendTraits(list []string) []string { return append(list, v.n.Traits...) }

// AppendAggregates appends the aggregates, sorted, to a list.
func (v View) AppendAggregates(list []string) []string { return append(list, v.n.Aggregates...) }

// TraitsAre reports whether the traits are these, in this order.
func (v View) TraitsAre(list []string) bool { return slices.Equal(v.n.Traits, list) }

// AggregatesAre reports whether the aggregates are these, in this order.
func (v View) AggregatesAre(list []string) bool { return slices.Equal(v.n.Aggregates, list) }

// Resources lists the named units by resource class, in no order; those of one class sorted.
func (v View) Resources() iter.Seq2[string, Resource] {
	return func(yield func(string, Resource) bool) {
		for class, units := range v.n.Resources {
			for _, u := range units {
				if !yield(class, u) {
					return
				}
			}
		}
	}
}

// Same reports whether both trees are one and the same in everything, also what [Tree.Equal] leaves out: generations, the order of
// siblings, allocation ratios to the last digit.
//
// Cost: O(providers); those that both trees share untouched, as a tree and its clone do, are not looked into.
func (t *Tree) Same(o *Tree) bool {
	if len(t.nodes) != len(o.nodes) || !slices.Equal(t.roots, o.roots) {
		return false
	}
	for uuid, a := range t.nodes {
		if b := o.nodes[uuid]; a != b && (b == nil || !a.same(b)) {
			return false
		}
	}
	return true
}

func (n *node) same(o *node) bool {
	return n.UUID == o.UUID && n.Name == o.Name && n.ParentUUID == o.ParentUUID && n.Generation == o.Generation &&
		maps.Equal(n.Inventories, o.Inventories) && slices.Equal(n.Traits, o.Traits) && slices.Equal(n.Aggregates, o.Aggregates) &&
		equalResources(n.Resources, o.Resources) && slices.Equal(n.children, o.children)
}
