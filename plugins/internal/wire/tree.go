// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// FromTree converts a tree to its message.
//
// Cost: O(size of the tree), two allocations for a provider that has inventories (its map) and none for others: the parts of the
// message are taken from blocks, which live as long as any part does.
func FromTree(tree *providertree.Tree) *driverv1.ProviderTree {
	out := &driverv1.ProviderTree{Providers: make([]*driverv1.ResourceProvider, 0, tree.Len())}
	parts := newParts(min(tree.Len(), 128))
	for p := range tree.Views() {
		out.Providers = append(out.Providers, parts.provider(p))
	}
	return out
}

// parts is where the parts of a message come from.
type parts struct {
	size        int // of a block
	providers   block[driverv1.ResourceProvider]
	inventories block[driverv1.Inventory]
	generations block[int64]
	strings     []string
}

func newParts(size int) *parts {
	return &parts{
		size:      size,
		providers: block[driverv1.ResourceProvider]{size: size}, inventories: block[driverv1.Inventory]{size: size}, generations: block[int64]{size: size},
	}
}

func (s *parts) provider(p providertree.View) *driverv1.ResourceProvider {
	out := s.providers.one()
	out.Uuid, out.Name, out.ParentUuid = p.UUID(), p.Name(), p.ParentUUID()
	out.Traits, out.Aggregates = s.list(p.AppendTraits), s.list(p.AppendAggregates)
	if g := p.Generation(); g != providertree.NoGeneration {
		out.Generation = s.generations.one()
		*out.Generation = g
	}
	if n := p.Classes(); n > 0 {
		out.Inventories = make(map[string]*driverv1.Inventory, n)
		for class, inv := range p.Inventories() {
			m := s.inventories.one()
			m.Total, m.Reserved, m.MinUnit, m.MaxUnit = inv.Total, inv.Reserved, inv.MinUnit, inv.MaxUnit
			m.StepSize, m.AllocationRatio = inv.StepSize, inv.AllocationRatio
			out.Inventories[class] = m
		}
	}
	for class, u := range p.Resources() {
		out.Resources = append(out.Resources, &driverv1.NamedResource{ResourceClass: class, Identifier: u.Identifier, Metadata: u.Metadata})
	}
	return out
}

// list is what a function appends, or nil. The lists of many providers share an array, of which each has a part of its own.
func (s *parts) list(appendTo func([]string) []string) []string {
	if cap(s.strings)-len(s.strings) < 8 {
		s.strings = make([]string, 0, 8*s.size)
	}
	start := len(s.strings)
	s.strings = appendTo(s.strings)
	if len(s.strings) == start {
		return nil
	}
	return s.strings[start:len(s.strings):len(s.strings)]
}

// block hands out pointers to the elements of arrays of one size.
type block[T any] struct {
	size int
	left []T
}

func (b *block[T]) one() *T {
	if len(b.left) == 0 {
		b.left = make([]T, b.size)
	}
	p := &b.left[0]
	b.left = b.left[1:]
	return p
}

// ToTreeLike is [ToTree] for a message that may well say what a known tree says: then the result is a copy of that, which shares its
// providers, and nothing needs to be checked again. In steady passes that is so in both directions.
//
// Errors: those of [ToTree]. Cost: O(size of the message) to compare, without an allocation per provider; from the first difference on
// that of [ToTree].
func ToTreeLike(msg *driverv1.ProviderTree, known *providertree.Tree) (*providertree.Tree, error) {
	if msg != nil && known != nil && same(msg, known) {
		return known.Clone(), nil
	}
	return ToTree(msg)
}

// same reports whether a message says exactly what a tree says, in the same order.
func same(msg *driverv1.ProviderTree, tree *providertree.Tree) bool {
	providers := msg.GetProviders()
	if len(providers) != tree.Len() {
		return false
	}
	i := 0
	for p := range tree.Views() {
		if !sameProvider(providers[i], p) {
			return false
		}
		i++
	}
	return true
}

func sameProvider(m *driverv1.ResourceProvider, p providertree.View) bool {
	generation := providertree.NoGeneration
	if m.GetGeneration() < 0 {
		return false
	} else if m != nil && m.Generation != nil {
		generation = *m.Generation
	}
	if m.GetUuid() != p.UUID() || m.GetName() != p.Name() || m.GetParentUuid() != p.ParentUUID() || generation != p.Generation() ||
		!p.TraitsAre(m.GetTraits()) || !p.AggregatesAre(m.GetAggregates()) || len(m.GetInventories()) != p.Classes() {
		return false
	}
	for class, inv := range m.GetInventories() {
		if is, ok := p.Inventory(class); !ok || is != toInventory(inv) {
			return false
		}
	}
	if len(m.GetResources()) > 0 { // rare, and their order is nobody's
		return false
	}
	for range p.Resources() {
		return false
	}
	return true
}

// ToTree converts a message to a tree, and checks everything that a tree demands: unique names and uuids, parents that
// exist, no loops, well-formed classes, traits and inventories.
//
// Errors: [ErrMalformed] and those of [providertree.Tree.Populate]. Cost: O(size of the message).
func ToTree(msg *driverv1.ProviderTree) (*providertree.Tree, error) {
	if msg == nil {
		return nil, fmt.Errorf("%w: it holds no provider tree", ErrMalformed)
	}
	providers := make([]providertree.Provider, 0, len(msg.GetProviders()))
	for i, m := range msg.GetProviders() {
		p, err := toProvider(m)
		if err != nil {
			return nil, fmt.Errorf("provider %d of the tree: %w", i, err)
		}
		providers = append(providers, p)
	}
	tree := &providertree.Tree{}
	if err := tree.Populate(providers); err != nil {
		return nil, err
	}
	return tree, nil
}

func toProvider(m *driverv1.ResourceProvider) (providertree.Provider, error) {
	p := providertree.Provider{
		UUID: m.GetUuid(), Name: m.GetName(), ParentUUID: m.GetParentUuid(), Generation: providertree.NoGeneration,
		Traits: m.GetTraits(), Aggregates: m.GetAggregates(),
	}
	if m.Generation != nil {
		if p.Generation = m.GetGeneration(); p.Generation < 0 {
			return p, fmt.Errorf("%w: generation %d of %q is negative", ErrMalformed, p.Generation, clip(p.Name))
		}
	}
	if len(m.GetInventories()) > 0 {
		p.Inventories = make(providertree.Inventories, len(m.GetInventories()))
	}
	for class, inv := range m.GetInventories() {
		p.Inventories[class] = toInventory(inv)
	}
	for _, r := range m.GetResources() {
		if err := providertree.ValidateClass(r.GetResourceClass()); err != nil {
			return p, fmt.Errorf("%w: named resource of %q: %w", ErrMalformed, clip(p.Name), err)
		}
		if p.Resources == nil {
			p.Resources = map[string][]providertree.Resource{}
		}
		p.Resources[r.GetResourceClass()] = append(p.Resources[r.GetResourceClass()],
			providertree.Resource{Identifier: r.GetIdentifier(), Metadata: r.GetMetadata()})
	}
	return p, nil
}

func toInventory(m *driverv1.Inventory) providertree.Inventory {
	return providertree.Inventory{
		Total: m.GetTotal(), Reserved: m.GetReserved(), MinUnit: m.GetMinUnit(), MaxUnit: m.GetMaxUnit(),
		StepSize: m.GetStepSize(), AllocationRatio: m.GetAllocationRatio(),
	}
}

// clip keeps hostile strings from filling a log line.
func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
