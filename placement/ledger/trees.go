// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/internal/lib/pmap"
)

// Tree is one tree of providers in a snapshot. It is immutable: any change in it (an inventory, a
// trait, an allocation) makes another Tree, and unchanged trees are the same Tree in the next
// snapshot.
type Tree struct {
	owner *pmap.Owner
	// nodes are in pre-order, siblings in order of their IDs.
	nodes   []*Provider
	derived [derivations]atomic.Pointer[any]
}

// Derivation names a value that readers compute from a tree and cache with it.
type Derivation int

// The derivations.
const (
	// DerivedLayout is the tree as the search for candidates reads it.
	DerivedLayout Derivation = iota
	// DerivedSummaries are the provider summaries of the API.
	DerivedSummaries

	derivations
)

// Providers returns the providers in pre-order, the root first. They must not be modified.
func (t *Tree) Providers() []*Provider { return t.nodes }

// Root returns the root provider.
func (t *Tree) Root() *Provider { return t.nodes[0] }

// Derive returns the cached value of a derivation, or computes it. Several readers may compute it
// at the same time; one of the results, which must be equal, is cached as long as the tree. Cost:
// an atomic load if it is cached.
func (t *Tree) Derive(d Derivation, derive func(*Tree) any) any {
	if v := t.derived[d].Load(); v != nil {
		return *v
	}
	v := derive(t)
	t.derived[d].Store(&v)
	return v
}

// TreeNumber returns the number of the provider's tree in its snapshot. Numbers are dense: those of
// removed trees are reused.
func (p *Provider) TreeNumber() int64 { return p.slot }

// Used returns the allocated amount of the class with the ID, in the provider's own snapshot.
func (p *Provider) Used(class int64) int64 { return p.usedOf(class) }

// ClassID returns the ID of the inventory's class.
func (i *Inventory) ClassID() int64 { return i.class }

// TreeNumbers returns the largest tree number so far, plus one.
func (s *Snapshot) TreeNumbers() int64 { return s.nextSlot }

// TreeCount returns the number of trees.
func (s *Snapshot) TreeCount() int { return s.trees.Len() }

// TreeAt returns the tree with the number.
func (s *Snapshot) TreeAt(number int64) (*Tree, bool) { return s.trees.Get(number) }

// Trees iterates over the trees in order of their numbers.
func (s *Snapshot) Trees() iter.Seq[*Tree] {
	return func(yield func(*Tree) bool) {
		for _, t := range s.trees.All() {
			if !yield(t) {
				return
			}
		}
	}
}

// Tree returns the providers of a tree in pre-order, the root first; nil if
// the uuid is not a root's.
func (s *Snapshot) Tree(rootUUID string) []*Provider {
	p, ok := s.Provider(rootUUID)
	if !ok || p.Parent != "" {
		return nil
	}
	t, _ := s.trees.Get(p.slot)
	return slices.Clip(t.nodes)
}

// ProviderSet is a set of providers of one snapshot. The zero ProviderSet is empty.
type ProviderSet struct {
	s   *Snapshot
	ids pmap.IntSet
}

// Len returns the number of providers in the set.
func (s ProviderSet) Len() int { return s.ids.Len() }

// Has reports whether the provider is in the set. Cost: about 20 ns in a set of thousands.
func (s ProviderSet) Has(p *Provider) bool { return s.ids.Has(p.ID) }

// HasID is Has by the provider's ID.
func (s ProviderSet) HasID(id int64) bool { return s.ids.Has(id) }

// All iterates over the providers in order of creation.
func (s ProviderSet) All() iter.Seq[*Provider] {
	return func(yield func(*Provider) bool) {
		for id := range s.ids.All() {
			if p, ok := s.s.providers.Get(id); ok && !yield(p) {
				return
			}
		}
	}
}

// WithTrait returns the set of providers that have a trait.
func (s *Snapshot) WithTrait(trait string) ProviderSet {
	t, ok := s.traits.Get(trait)
	if !ok {
		return ProviderSet{}
	}
	return s.setOf(s.withTrait, t.ID)
}

// WithClass returns the set of providers that have an inventory of a class.
func (s *Snapshot) WithClass(class string) ProviderSet {
	c, ok := s.classes.Get(class)
	if !ok {
		return ProviderSet{}
	}
	return s.setOf(s.withClass, c.ID)
}

// InAggregate returns the members of an aggregate.
func (s *Snapshot) InAggregate(aggregate string) ProviderSet {
	id, ok := s.aggregates.id(aggregate)
	if !ok {
		return ProviderSet{}
	}
	return s.setOf(s.inAggregate, id)
}

func (s *Snapshot) setOf(index pmap.IntMap[pmap.IntSet], key int64) ProviderSet {
	ids, _ := index.Get(key)
	return ProviderSet{s: s, ids: ids}
}
