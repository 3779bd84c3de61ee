// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// AllocationsForProviderTree reads the allocations of all consumers of a compute node. It finds the
// consumers on the root and the providers below it, and then reads all allocations of each
// consumer, also those of sharing providers and, during a migration, of other hosts. It leaves out
// a consumer that has no allocations on the node any more when its allocations are read.
//
// It cannot find a consumer that has allocations of a sharing provider only: Placement does not
// show to which node such a consumer belongs.
//
// The result is not a snapshot. When a reshape is posted, Placement checks the generations of the
// providers and consumers in it, and refuses it if one of them has changed since.
//
// Cost: one GET for each provider that the last Tree found (sharing ones not counted) and one for
// each consumer; one more if nothing of the node is known. Nothing is cached.
func (c *Client) AllocationsForProviderTree(ctx context.Context, root string) (providertree.Allocations, error) {
	local, err := c.localProviders(ctx, root)
	if err != nil {
		return nil, err
	}
	consumers := map[string]bool{}
	for _, uuid := range local {
		held, err := c.placement.AllocationsOf(ctx, uuid)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("%w: resource provider %s was deleted since the tree was read: %w",
				ErrConflict, uuid, err)
		}
		if err != nil {
			return nil, err
		}
		for consumer := range held {
			consumers[consumer] = true
		}
	}
	allocations := make(providertree.Allocations, len(consumers))
	for _, consumer := range slices.Sorted(maps.Keys(consumers)) {
		held, err := c.Consumer(ctx, consumer)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(local, func(uuid string) bool { return len(held.Resources[uuid]) > 0 }) {
			allocations[consumer] = held.ConsumerAllocations
		}
	}
	return allocations, nil
}

// localProviders are the uuids of a node's providers: those of the cached tree, or else those that
// Placement lists.
func (c *Client) localProviders(ctx context.Context, root string) ([]string, error) {
	n := c.node(root)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.tree != nil {
		return slices.DeleteFunc(n.tree.Subtree(root), func(uuid string) bool {
			p, _ := n.tree.Provider(uuid)
			// Placement does not have it yet, so no consumer has allocations of it
			return p.Generation == providertree.NoGeneration
		}), nil
	}
	list, err := c.placement.ProvidersInTree(ctx, root)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(list))
	for _, rp := range list {
		out = append(out, canonical(rp.UUID))
	}
	return out, nil
}

// allocationsFromWire has canonical uuids: Placement gives them back as they were written.
func allocationsFromWire(in wire.ProviderResources) providertree.ProviderResources {
	out := make(providertree.ProviderResources, len(in))
	for provider, amounts := range in {
		out[canonical(provider)] = amounts
	}
	return out
}
