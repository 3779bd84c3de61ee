// SPDX-License-Identifier: Apache-2.0

package protocol

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
			out.Resources = append(out.Resources,
				&driverv1.NamedResource{ResourceClass: class, Identifier: u.Identifier, Metadata: u.Metadata})
		}
	}
	return out
}

// ToTree converts a message to a tree, and rejects one that is not a tree.
//
// Errors: [ErrMalformed] and those of [providertree.Tree.Populate]. Cost: O(size of the message).
func ToTree(msg *driverv1.ProviderTree) (*providertree.Tree, error) {
	if msg == nil {
		return nil, fmt.Errorf("%w: it has no provider tree", ErrMalformed)
	}
	providers := make([]providertree.Provider, 0, len(msg.GetProviders()))
	for _, m := range msg.GetProviders() {
		providers = append(providers, toProvider(m))
	}
	tree := &providertree.Tree{}
	if err := tree.Populate(providers); err != nil {
		return nil, err
	}
	return tree, nil
}

func toProvider(m *driverv1.ResourceProvider) providertree.Provider {
	p := providertree.Provider{
		UUID: m.GetUuid(), Name: m.GetName(), ParentUUID: m.GetParentUuid(), Generation: providertree.NoGeneration,
		Traits: m.GetTraits(), Aggregates: m.GetAggregates(),
	}
	if m != nil && m.Generation != nil {
		if p.Generation = m.GetGeneration(); p.Generation == providertree.NoGeneration {
			p.Generation-- // NoGeneration is sent as an absent field
		}
	}
	if len(m.GetInventories()) > 0 {
		p.Inventories = make(providertree.Inventories, len(m.GetInventories()))
	}
	for class, inv := range m.GetInventories() {
		p.Inventories[class] = providertree.Inventory{
			Total: inv.GetTotal(), Reserved: inv.GetReserved(), MinUnit: inv.GetMinUnit(), MaxUnit: inv.GetMaxUnit(),
			StepSize: inv.GetStepSize(), AllocationRatio: inv.GetAllocationRatio(),
		}
	}
	for _, r := range m.GetResources() {
		if p.Resources == nil {
			p.Resources = map[string][]providertree.Resource{}
		}
		p.Resources[r.GetResourceClass()] = append(p.Resources[r.GetResourceClass()],
			providertree.Resource{Identifier: r.GetIdentifier(), Metadata: r.GetMetadata()})
	}
	return p
}
