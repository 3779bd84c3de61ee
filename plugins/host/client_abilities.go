// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// able returns an error for a call that the plugin did not announce: it is not made then.
func (p *process) able(call, capability string) error {
	if slices.Contains(p.info.GetCapabilities(), capability) {
		return nil
	}
	return p.failed(call, fmt.Errorf("%w: the plugin does not announce the capability %q", plugins.ErrUnsupported, capability))
}

// ShapeVersion is what the driver said when it was last configured.
func (p *process) ShapeVersion() (int, error) {
	const call = "ShapeVersion"
	if err := p.able(call, wire.CapabilityShapes); err != nil {
		return 0, err
	}
	if version := int(p.shape.Load()); version > 0 {
		return version, nil
	}
	return 0, p.failed(call, fmt.Errorf("%w: with its present configuration its shapes are not numbered", plugins.ErrUnsupported))
}

// ReshapeStep sends a tree of one shape and returns the one of the next. Cost: O(size of both trees and of the allocations) to convert.
func (p *process) ReshapeStep(ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations) (answer, error) {
	const call = "ReshapeStep"
	if err := p.able(call, wire.CapabilityShapes); err != nil {
		return answer{}, err
	}
	if from < 0 || from >= wire.MaxShape {
		return answer{}, p.failed(call, fmt.Errorf("there is no step from shape %d: shapes are 0 to %d", from, wire.MaxShape))
	}
	limit := p.timeouts.Load().Update
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := p.driver.ReshapeStep(ctx, &driverv1.ReshapeStepRequest{
		Tree: wire.FromTree(tree), Node: node, FromShape: int32(from), Allocations: wire.FromAllocations(allocations),
	})
	if err != nil {
		return answer{}, p.callError(ctx, call, limit, err)
	}
	after, moved, err := checkReply(tree, node, allocations, reply)
	if err != nil {
		return answer{}, p.failed(call, fmt.Errorf("%w: step from shape %d: %w", ErrBadReply, from, err))
	}
	return answer{tree: after, allocations: moved, renames: reply.GetClassRenames()}, nil
}

// Guests asks for the guests of a node.
func (p *process) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	const call = "Guests"
	if err := p.able(call, wire.CapabilityGuests); err != nil {
		return nil, err
	}
	limit := p.timeouts.Load().Update
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := p.driver.Guests(ctx, &driverv1.GuestsRequest{Tree: wire.FromTree(tree), Node: node})
	if err != nil {
		return nil, p.callError(ctx, call, limit, err)
	}
	guests, err := checkGuests(tree, reply.GetGuests())
	if err != nil {
		return nil, p.failed(call, fmt.Errorf("%w: %w", ErrBadReply, err))
	}
	return guests, nil
}

// NodeDeleted asks whether a node is gone for good.
func (p *process) NodeDeleted(ctx context.Context, node plugins.Node) (bool, error) {
	const call = "NodeDeleted"
	if err := p.able(call, wire.CapabilityNodeDeleted); err != nil {
		return false, err
	}
	limit := p.timeouts.Load().Nodes
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply, err := p.driver.NodeDeleted(ctx, &driverv1.NodeDeletedRequest{Node: &driverv1.Node{Name: node.Name, Uuid: node.UUID}})
	if err != nil {
		return false, p.callError(ctx, call, limit, err)
	}
	return reply.GetDeleted(), nil
}
