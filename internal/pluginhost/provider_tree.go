// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/providertree"
)

// UpdateProviderTree returns the node's tree as the driver wants it. tree is not changed; the
// result is a new tree.
//
// Errors: as AvailableNodes; the driver's own are [plugins.ErrReshapeNeeded],
// [*plugins.ReshapeFailed], [plugins.ErrNotReady]. Without an error the tree is complete, never
// partial or empty because of a missing response.
func (p *Plugin) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	got, err := call(ctx, p, "UpdateProviderTree "+node, func(s *activeProcess) (driverclient.Answer, error) {
		return s.UpdateProviderTree(ctx, tree, node, allocations)
	})
	if err != nil {
		return nil, nil, err
	}
	p.cacheResult(node, got, allocations != nil)
	return got.Tree, got.Allocations, nil
}

// ReshapeStep lets the driver migrate a tree from layout version from to from+1, and move the
// allocations; nil counts as empty. tree and allocations are not changed; the results are new
// values. The classes that this step renamed are in [Plugin.ClassRenames] until the next response.
//
// Errors: as UpdateProviderTree; [plugins.ErrUnsupported] if the driver's layouts have no versions.
// The driver's own are [*plugins.ReshapeFailed] and [plugins.ErrNotReady].
func (p *Plugin) ReshapeStep(
	ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	if allocations == nil {
		allocations = providertree.Allocations{}
	}
	got, err := call(ctx, p, "ReshapeStep "+node, func(s *activeProcess) (driverclient.Answer, error) {
		return s.ReshapeStep(ctx, tree, node, from, allocations)
	})
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	p.renames = got.Renames
	p.mu.Unlock()
	return got.Tree, got.Allocations, nil
}

// cacheResult keeps the renames, and the facts about the node beside the tree, of a response of
// UpdateProviderTree.
func (p *Plugin) cacheResult(node string, got driverclient.Answer, reshaped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reshaped {
		p.renames = got.Renames
	}
	if p.nodes == nil {
		p.nodes = map[string]driverclient.NodeFacts{}
	}
	p.nodes[node] = got.NodeFacts
}
