// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Why a change of a tree was refused. The tree is as it was before in every case.
var (
	// ErrNotFound: no provider of that uuid is in the tree.
	ErrNotFound = errors.New("no such resource provider")
	// ErrExists: a provider of that uuid or name is in the tree already.
	ErrExists = errors.New("resource provider exists")
	// ErrParent: the parent is neither in the tree nor among the providers given, or is below its
	// own child.
	ErrParent = errors.New("impossible parent")
	// ErrStaleGeneration: a newer generation of the provider is known.
	ErrStaleGeneration = errors.New("stale generation")
	// ErrInvalid: a value that Placement would refuse.
	ErrInvalid = errors.New("invalid")
)

// Tree is any number of provider trees. The zero value is empty and ready to use; copy it with
// [Tree.Clone], not by assignment.
//
// Cost: lookups by uuid and by name are O(1), a change of one provider is O(its own size), Clone is
// O(providers) in pointers. Providers are listed in pre-order: every ancestor before its
// descendants, children in the order in which they were added.
type Tree struct {
	nodes  map[string]*node  // by uuid
	byName map[string]string // name -> uuid
	roots  []string          // uuids, in the order in which they were added
}

// node is immutable: a change replaces it, so clones can share it.
type node struct {
	Provider
	children []string
}

// Clone returns an independent copy.
func (t *Tree) Clone() *Tree {
	return &Tree{nodes: maps.Clone(t.nodes), byName: maps.Clone(t.byName), roots: slices.Clone(t.roots)}
}

// Len is the number of providers.
func (t *Tree) Len() int { return len(t.nodes) }

// Exists reports whether a provider of that uuid is in the tree.
func (t *Tree) Exists(uuid string) bool { return t.nodes[uuid] != nil }

// Provider returns a copy of the provider of that uuid.
func (t *Tree) Provider(uuid string) (Provider, bool) {
	n := t.nodes[uuid]
	if n == nil {
		return Provider{}, false
	}
	return n.clone(), true
}

// ProviderByName returns a copy of the provider of that name.
func (t *Tree) ProviderByName(name string) (Provider, bool) { return t.Provider(t.byName[name]) }

// Inventory returns one inventory of a provider, without copying the rest.
func (t *Tree) Inventory(uuid, class string) (Inventory, bool) {
	n := t.nodes[uuid]
	if n == nil {
		return Inventory{}, false
	}
	inv, ok := n.Inventories[class]
	return inv, ok
}

// HasTraits reports whether the provider carries all these traits; with none given, whether it
// exists.
func (t *Tree) HasTraits(uuid string, traits ...string) bool {
	n := t.nodes[uuid]
	return n != nil && !slices.ContainsFunc(traits, func(trait string) bool { return !n.HasTrait(trait) })
}

// InAggregates reports whether the provider is in all these aggregates; with none given, whether it
// exists.
func (t *Tree) InAggregates(uuid string, aggregates ...string) bool {
	n := t.nodes[uuid]
	if n == nil {
		return false
	}
	for _, a := range aggregates {
		if _, found := slices.BinarySearch(n.Aggregates, a); !found {
			return false
		}
	}
	return true
}

// HasSharingProvider reports whether some provider in the tree shares inventory of a resource
// class.
func (t *Tree) HasSharingProvider(class string) bool {
	for _, n := range t.nodes {
		if _, ok := n.Inventories[class]; ok && n.HasTrait(TraitSharesViaAggregate) {
			return true
		}
	}
	return false
}

// Roots returns the uuids of the roots.
func (t *Tree) Roots() []string { return slices.Clone(t.roots) }

// Children returns the uuids of the direct children, nil for an unknown provider.
func (t *Tree) Children(uuid string) []string {
	n := t.nodes[uuid]
	if n == nil {
		return nil
	}
	return slices.Clone(n.children)
}

// RootOf returns the uuid of the root above a provider (itself, if it is one).
func (t *Tree) RootOf(uuid string) (string, bool) {
	n := t.nodes[uuid]
	if n == nil {
		return "", false
	}
	for n.ParentUUID != "" {
		n = t.nodes[n.ParentUUID]
	}
	return n.UUID, true
}

// UUIDs returns the uuids of all providers in pre-order. Reversed, it is an order in which they can
// be deleted.
func (t *Tree) UUIDs() []string {
	out := make([]string, 0, len(t.nodes))
	for _, root := range t.roots {
		out = t.appendSubtree(out, root)
	}
	return out
}

// Subtree returns the uuids of a provider and all its descendants in pre-order, nil for an unknown
// provider.
func (t *Tree) Subtree(uuid string) []string {
	if t.nodes[uuid] == nil {
		return nil
	}
	return t.appendSubtree(nil, uuid)
}

// appendSubtree keeps its own stack: a hostile chain of children must not overflow the goroutine's.
func (t *Tree) appendSubtree(out []string, uuid string) []string {
	stack := []string{uuid}
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		out = append(out, top)
		for _, child := range slices.Backward(t.nodes[top].children) {
			stack = append(stack, child)
		}
	}
	return out
}

// All returns copies of all providers in pre-order. The tree may be changed while ranging: what is
// listed is the tree as it was at the start.
func (t *Tree) All() iter.Seq[Provider] {
	uuids, nodes := t.UUIDs(), maps.Clone(t.nodes)
	return func(yield func(Provider) bool) {
		for _, uuid := range uuids {
			if !yield(nodes[uuid].clone()) {
				return
			}
		}
	}
}

// Equal reports whether both trees hold the same providers with the same content. Generations and
// the order among siblings do not count.
func (t *Tree) Equal(other *Tree) bool {
	return maps.EqualFunc(t.nodes, other.nodes, func(a, b *node) bool { return a == b || a.Equal(b.Provider) })
}

func notFound(uuid string) error { return fmt.Errorf("%w: %q", ErrNotFound, clip(uuid)) }
