// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// Answer is the result of UpdateProviderTree or ReshapeStep.
type Answer struct {
	Tree        *providertree.Tree
	Allocations providertree.Allocations
	Renames     plugins.ClassRenames
	NodeFacts
}

// NodeFacts is what a response of UpdateProviderTree says of a node beside the tree. A map is nil
// if the plugin does not report it.
type NodeFacts struct {
	Capabilities map[string]bool   // traits
	ProductNames map[string]string // by the provider's name
	Hypervisor   plugins.Hypervisor
}

// UpdateProviderTree sends a tree and returns the driver's. Cost: O(size of both trees) to convert
// and check.
func (c *Client) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (Answer, error) {
	const call = "UpdateProviderTree"
	limit := c.timeouts.Load().Update
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req := &driverv1.UpdateProviderTreeRequest{Node: node,
		Tree: protocol.FromTree(tree), Allocations: protocol.FromAllocations(allocations)}
	reply, err := c.driver.UpdateProviderTree(ctx, req)
	if err != nil {
		return Answer{}, c.callError(ctx, call, limit, err)
	}
	after, moved, err := checkReply(tree, node, allocations, reply)
	if err != nil {
		return Answer{}, c.badReply(call, err)
	}
	traits, err := checkCapabilities(reply.GetCapabilityTraits(), c.info.Capabilities)
	if err != nil {
		return Answer{}, c.badReply(call, err)
	}
	names := checkProductNames(after, reply.GetProductNames(), c.info.Capabilities)
	hypervisor := checkHypervisor(reply.GetHypervisor(), c.info.Capabilities)
	return Answer{Tree: after, Allocations: moved, Renames: reply.GetClassRenames(),
		NodeFacts: NodeFacts{traits, names, hypervisor}}, nil
}

// ReshapeStep sends a tree of one layout version and returns the one of the next. Cost: O(size of
// both trees and of the allocations) to convert.
func (c *Client) ReshapeStep(
	ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations,
) (Answer, error) {
	const call = "ReshapeStep"
	if err := c.checkCapability(call, protocol.CapabilityLayouts); err != nil {
		return Answer{}, err
	}
	if from < 0 || from >= protocol.MaxLayout {
		return Answer{},
			c.failed(call, fmt.Errorf("layout version %d: must be 0 to %d to migrate from", from, protocol.MaxLayout-1))
	}
	request := &driverv1.ReshapeStepRequest{
		Tree: protocol.FromTree(tree), Node: node,
		FromShape: int32(from), Allocations: protocol.FromAllocations(allocations),
	}
	reply, err := withDeadline(ctx, c, call, c.timeouts.Load().Update, c.driver.ReshapeStep, request)
	if err != nil {
		return Answer{}, err
	}
	after, moved, err := checkReply(tree, node, allocations, reply)
	if err != nil {
		return Answer{}, c.failed(call, fmt.Errorf("%w: migrating from layout version %d: %w", ErrBadReply, from, err))
	}
	return Answer{Tree: after, Allocations: moved, Renames: reply.GetClassRenames()}, nil
}

// editedTree is a response with an edited tree: of UpdateProviderTree or ReshapeStep.
type editedTree interface {
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
	before *providertree.Tree, node string, given providertree.Allocations, reply editedTree,
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
