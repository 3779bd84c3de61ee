// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/compute-agent/compute-agent/providertree"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// FromTree converts a tree to its message. Cost: O(size of the tree).
func FromTree(tree *providertree.Tree) *driverv1.ProviderTree {
	out := &driverv1.ProviderTree{Providers: make([]*driverv1.ResourceProvider, 0, tree.Len())}
	for p := range tree.All() {
		out.Providers = append(out.Providers, fromProvider(p))
	}
	return out
}

func fromProvider(p providertree.Provider) *driverv1.ResourceProvider {
	out := &driverv1.ResourceProvider{
		Uuid: p.UUID, Name: p.Name, ParentUuid: p.ParentUUID, Traits: p.Traits, Aggregates: p.Aggregates,
		Inventories: make(map[string]*driverv1.Inventory, len(p.Inventories)),
	}
	if p.Generation != providertree.NoGeneration {
		out.Generation = &p.Generation
	}
	for class, inv := range p.Inventories {
		out.Inventories[class] = &driverv1.Inventory{
			Total: inv.Total, Reserved: inv.Reserved, MinUnit: inv.MinUnit, MaxUnit: inv.MaxUnit,
			StepSize: inv.StepSize, AllocationRatio: inv.AllocationRatio,
		}
	}
	for class, units := range p.Resources {
		for _, u := range units {
			out.Resources = append(out.Resources, &driverv1.NamedResource{ResourceClass: class, Identifier: u.Identifier, Metadata: u.Metadata})
		}
	}
	return out
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
