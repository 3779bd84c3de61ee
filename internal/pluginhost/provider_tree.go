// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// UpdateProviderTree returns the node's tree as the driver wants it. tree is not changed; the
// result is a new tree.
//
// Errors: as AvailableNodes; the driver's own are [plugins.ErrReshapeNeeded],
// [*plugins.ReshapeFailed], [plugins.ErrNotReady]. Without an error the tree is complete, never
// partial or empty because of a missing response.
func (p *Plugin) UpdateProviderTree(
	ctx context.Context,
	tree *providertree.Tree,
	node string,
	allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	got, err := ask(ctx, p, "UpdateProviderTree "+node, func(s *activeProcess) (answer, error) {
		return s.UpdateProviderTree(ctx, tree, node, allocations)
	})
	if err != nil {
		return nil, nil, err
	}
	p.cacheResult(node, got, allocations != nil)
	return got.tree, got.allocations, nil
}

// ReshapeStep lets the driver migrate a tree from layout version from to from+1, and move the
// allocations; nil counts as empty. tree and allocations are not changed; the results are new
// values. The classes that this step renamed are in [Plugin.ClassRenames] until the next response.
//
// Errors: as UpdateProviderTree; [plugins.ErrUnsupported] if the driver's layouts have no versions.
// The driver's own are [*plugins.ReshapeFailed] and [plugins.ErrNotReady].
func (p *Plugin) ReshapeStep(
	ctx context.Context,
	tree *providertree.Tree,
	node string,
	from int,
	allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	if allocations == nil {
		allocations = providertree.Allocations{}
	}
	got, err := ask(ctx, p, "ReshapeStep "+node, func(s *activeProcess) (answer, error) {
		return s.ReshapeStep(ctx, tree, node, from, allocations)
	})
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	p.renames = got.renames
	p.mu.Unlock()
	return got.tree, got.allocations, nil
}

// cacheResult keeps the renames, and the facts about the node beside the tree, of a response of
// UpdateProviderTree.
func (p *Plugin) cacheResult(node string, got answer, reshaped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reshaped {
		p.renames = got.renames
	}
	if p.nodes == nil {
		p.nodes = map[string]nodeFacts{}
	}
	p.nodes[node] = got.nodeFacts
}

// answer is the result of UpdateProviderTree or ReshapeStep.
type answer struct {
	tree        *providertree.Tree
	allocations providertree.Allocations
	renames     plugins.ClassRenames
	nodeFacts
}

// nodeFacts is what a response of UpdateProviderTree says of a node beside the tree. A map is nil
// if the plugin does not report it.
type nodeFacts struct {
	capabilities map[string]bool   // traits
	productNames map[string]string // by the provider's name
	hypervisor   plugins.Hypervisor
}

// UpdateProviderTree sends a tree and returns the driver's. Cost: O(size of both trees) to convert
// and check.
func (p *process) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (answer, error) {
	const call = "UpdateProviderTree"
	limit := p.timeouts.Load().Update
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req := &driverv1.UpdateProviderTreeRequest{Node: node,
		Tree: protocol.FromTree(tree), Allocations: protocol.FromAllocations(allocations)}
	reply, err := p.driver.UpdateProviderTree(ctx, req)
	if err != nil {
		return answer{}, p.callError(ctx, call, limit, err)
	}
	after, moved, err := checkReply(tree, node, allocations, reply)
	if err != nil {
		return answer{}, p.badReply(call, err)
	}
	traits, err := checkCapabilities(reply.GetCapabilityTraits(), p.info.GetCapabilities())
	if err != nil {
		return answer{}, p.badReply(call, err)
	}
	names := checkProductNames(after, reply.GetProductNames(), p.info.GetCapabilities())
	hypervisor := checkHypervisor(reply.GetHypervisor(), p.info.GetCapabilities())
	return answer{tree: after, allocations: moved, renames: reply.GetClassRenames(),
		nodeFacts: nodeFacts{traits, names, hypervisor}}, nil
}

// ReshapeStep sends a tree of one layout version and returns the one of the next. Cost: O(size of
// both trees and of the allocations) to convert.
func (p *process) ReshapeStep(
	ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations,
) (answer, error) {
	const call = "ReshapeStep"
	if err := p.checkCapability(call, protocol.CapabilityLayouts); err != nil {
		return answer{}, err
	}
	if from < 0 || from >= protocol.MaxLayout {
		return answer{},
			p.failed(call, fmt.Errorf("layout version %d: must be 0 to %d to migrate from", from, protocol.MaxLayout-1))
	}
	reply, err := within(ctx, p, call, p.timeouts.Load().Update, p.driver.ReshapeStep, &driverv1.ReshapeStepRequest{
		Tree: protocol.FromTree(tree), Node: node,
		FromShape: int32(from), Allocations: protocol.FromAllocations(allocations),
	})
	if err != nil {
		return answer{}, err
	}
	after, moved, err := checkReply(tree, node, allocations, reply)
	if err != nil {
		return answer{}, p.failed(call, fmt.Errorf("%w: migrating from layout version %d: %w", ErrBadReply, from, err))
	}
	return answer{tree: after, allocations: moved, renames: reply.GetClassRenames()}, nil
}

// edited is a response with an edited tree: of UpdateProviderTree or ReshapeStep.
type edited interface {
	GetTree() *driverv1.ProviderTree
	GetAllocations() *driverv1.Allocations
	GetClassRenames() map[string]string
}

// checkReply converts a driver's response to a tree and allocations, or returns all its defects, up
// to [maxDefects]. [providertree.Check] defines what a valid tree is and what a driver can change;
// checkReply adds the rules of the protocol. What needs more than request and response is checked
// elsewhere:
//
//   - what other clients wrote to the node's tree (neutron's providers, an administrator's
//     traits): package resourcetracker/ownership restores it;
//   - whether a reshape keeps the amounts of every consumer: the resource tracker checks it with
//     the declared renames and the capacities;
//   - whether a standard class or trait exists, and whether a name or uuid is another host's:
//     only Placement knows.
//
// Cost: O(size of the reply).
func checkReply(
	before *providertree.Tree, node string, given providertree.Allocations, reply edited,
) (*providertree.Tree, providertree.Allocations, error) {
	after, err := protocol.ToTree(reply.GetTree())
	if err != nil {
		return nil, nil, err
	}
	d := &defects{}
	d.violations(providertree.Check(before, after, node))
	allocations, err := protocol.ToAllocations(reply.GetAllocations())
	var found providertree.Violations
	switch {
	case given == nil && reply.GetAllocations() != nil:
		d.add("it has allocations, and the request had none: a driver that must move inventory in use returns " +
			"ReshapeNeeded")
	case given != nil && reply.GetAllocations() == nil:
		d.add("it lacks the allocations of the request: return them, also those that did not move")
	case errors.As(err, &found):
		d.kind = err
		d.violations(found)
	case given == nil && len(reply.GetClassRenames()) > 0:
		d.add("it renames resource classes, and the request had no allocations: renames belong to a reshape")
	}
	d.join("", plugins.ClassRenames(reply.GetClassRenames()).Validate())
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	return after, allocations, nil
}
