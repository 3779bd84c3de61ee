// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"maps"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// ShapeVersion is the number of the shape that the driver's UpdateProviderTree makes with its present configuration, from 1 on.
// It costs nothing: the driver says so when it is configured.
//
// Errors: [plugins.ErrUnsupported] if its shapes are not numbered; [ErrUnavailable] while the plugin is down.
func (p *Plugin) ShapeVersion(context.Context) (int, error) {
	s, err := p.take()
	if err != nil {
		return 0, err
	}
	defer s.calls.Done()
	return s.ShapeVersion()
}

// ReshapeStep asks the driver to make of a tree of shape from one of shape from+1, and to move the allocations along; nil stands for
// none at all. tree and allocations are left as they are; the answers are values of their own. The classes that this step renamed are in
// [Plugin.ClassRenames] until the next answer.
//
// Errors: as UpdateProviderTree; [plugins.ErrUnsupported] if the driver's shapes are not numbered. The driver's own are
// [*plugins.ReshapeFailed] and [plugins.ErrNotReady].
func (p *Plugin) ReshapeStep(ctx context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations) (*providertree.Tree, providertree.Allocations, error) {
	if allocations == nil {
		allocations = providertree.Allocations{}
	}
	var got answer
	err := p.ask(ctx, "ReshapeStep "+node, func(s *seat) (err error) {
		got, err = s.ReshapeStep(ctx, tree, node, from, allocations)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	p.mu.Lock()
	p.renames = got.renames
	p.mu.Unlock()
	return got.tree, got.allocations, nil
}

// Capabilities is what the driver said with its last answer to an UpdateProviderTree of that node: traits of the node's root, and
// whether it has them. Nil: the driver does not tell, or has not been asked since the agent started; what it says of nothing is an empty
// map.
func (p *Plugin) Capabilities(node string) map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.capabilities[node])
}

// Guests asks the driver for all guests of a node, running or not. tree is left as it is. uuids are canonical, each is there once; what
// guests have is on providers of the tree.
//
// Errors: as UpdateProviderTree; [plugins.ErrUnsupported] if the driver cannot tell, ever; [plugins.ErrNotReady] if it cannot tell now.
// Without an error the list is complete.
func (p *Plugin) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	var guests []plugins.Guest
	err := p.ask(ctx, "Guests "+node, func(s *seat) (err error) {
		guests, err = s.Guests(ctx, tree, node)
		return err
	})
	if err != nil {
		return nil, err
	}
	return guests, nil
}

// NodeDeleted asks the driver whether a node that AvailableNodes names no longer is gone for good: only true is proof.
//
// Errors: as AvailableNodes; [plugins.ErrUnsupported] if the driver does not tell.
func (p *Plugin) NodeDeleted(ctx context.Context, node plugins.Node) (bool, error) {
	var deleted bool
	err := p.ask(ctx, "NodeDeleted "+node.Name, func(s *seat) (err error) {
		deleted, err = s.NodeDeleted(ctx, node)
		return err
	})
	return err == nil && deleted, err
}

// remember keeps what came with an answer to UpdateProviderTree.
func (p *Plugin) remember(node string, got answer, reshaped bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reshaped {
		p.renames = got.renames
	}
	switch {
	case got.capabilities == nil:
		delete(p.capabilities, node)
	case p.capabilities == nil:
		p.capabilities = map[string]map[string]bool{node: got.capabilities}
	default:
		p.capabilities[node] = got.capabilities
	}
}

// forget drops what is remembered of nodes that are no more.
func (p *Plugin) forget(nodes []plugins.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.capabilities) == 0 {
		return
	}
	kept := make(map[string]map[string]bool, len(nodes))
	for _, n := range nodes {
		if c := p.capabilities[n.Name]; c != nil {
			kept[n.Name] = c
		}
	}
	p.capabilities = kept
}
