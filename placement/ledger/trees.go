// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"iter"
	"slices"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/placement/ledger/internal/pmap"
)

// Tree is one tree of providers as a snapshot shows it. It is immutable: a change of anything in it (an inventory, a trait,
// what is allocated) makes another Tree, and trees that did not change are the same Tree in the next snapshot.
type Tree struct {
	owner *pmap.Owner
	// nodes are in pre-order, siblings in order of their IDs.
	nodes   []*Provider
	derived [derivations]atomic.Pointer[any]
}

// Derivation names something that readers make of a tree and keep with it.
type Derivation int

// What is derived from trees.
const (
	// DerivedShape is what the search for candidates needs to know of a tree's form.
	DerivedShape Derivation = iota
	// DerivedSummaries is how the API shows the providers of a tree.
	DerivedSummaries

	derivations
)

// Providers returns the providers in pre-order, the root first. They must not be modified.
func (t *Tree) Providers() []*Provider { return t.nodes }

// Root returns the root provider.
func (t *Tree) Root() *Provider { return t.nodes[0] }

// Derive returns what was made of the tree for the same purpose earlier, or makes it. Several readers may make it at the
// same time; one of the results, which should be equal, stays with the tree for as long as there is a snapshot with it.
// Cost: an atomic load when it is there.
func (t *Tree) Derive(d Derivation, derive func(*Tree) any) any {
	if v := t.derived[d].Load(); v != nil {
		return *v
	}
	v := derive(t)
	t.derived[d].Store(&v)
	return v
}

// TreeNumber returns the number of the provider's tree in its snapshot. Numbers are dense, and those of trees that went
// are used again.
func (p *Provider) TreeNumber() int64 { return p.slot }

// Used returns how much is allocated of the class with the ID, as the provider's own snapshot knows it.
func (p *Provider) Used(class int64) int64 { return p.usedOf(class) }

// ClassID returns the ID of the inventory's class.
func (i *Inventory) ClassID() int64 { return i.class }

// TreeNumbers returns the number that is larger by one than the largest number of a tree that there was so far.
func (s *Snapshot) TreeNumbers() int64 { return s.nextSlot }

// TreeCount returns how many trees there are.
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

// Tree returns the providers of a tree in pre-order, the root first; nil when
// the uuid is not that of a root.
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
	ids pmap.IDSet
}

// Len returns the number of providers in the set.
func (s ProviderSet) Len() int { return s.ids.Len() }

// Has says whether the provider is in the set. Cost: about 20 ns in a set of thousands.
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

// InAggregate returns the set of the members of an aggregate.
func (s *Snapshot) InAggregate(aggregate string) ProviderSet {
	id, ok := s.aggregates.ids.Get(aggregate)
	if !ok {
		return ProviderSet{}
	}
	return s.setOf(s.inAggregate, id)
}

func (s *Snapshot) setOf(index pmap.IntMap[pmap.IDSet], key int64) ProviderSet {
	ids, _ := index.Get(key)
	return ProviderSet{s: s, ids: ids}
}
