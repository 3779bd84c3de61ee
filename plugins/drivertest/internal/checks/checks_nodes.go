// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeNodes = "plugins.Driver.AvailableNodes; proto: Driver.AvailableNodes"

var nodeChecks = []Check{
	{
		ID: "nodes/some", Title: "lists the compute nodes that it is responsible for",
		Protects: "a node that would disappear: an empty list means that there is none",
		Rule: "AvailableNodes lists the nodes; while they are not known yet it returns NotReady, never an empty " +
			"list. The suite needs a driver that is ready.",
		See: seeNodes, run: checkNodesSome,
	},
	{
		ID: "nodes/names", Title: "gives each node a unique name that Placement accepts",
		Protects: "a root provider that Placement rejects",
		Rule:     "A node's name has 1 to 200 characters and is unique.",
		See:      seeNodes, run: checkNodeNames,
	},
	{
		ID: "nodes/uuids", Title: "gives each node a unique uuid; at most one node has none",
		Protects: "two nodes that would be one resource provider",
		Rule: "A node's uuid is valid and unique. It can be empty for one node, which then gets the agent's " +
			"own identity.",
		See: "plugins.Node; proto: Node.uuid", run: checkNodeUUIDs,
	},
	{
		ID: "nodes/repeated", Title: "lists the same nodes each time",
		Protects: "nodes that would come and go, with their inventory",
		Rule:     "The list has all nodes, not only new ones.",
		See:      seeNodes, run: checkNodesRepeated,
	},
	{
		ID: "nodes/restart", Title: "lists the same nodes after a restart",
		Protects: "a node whose identity would change with every update of the driver",
		Rule: "The agent can stop the process at any time and start it again: a driver keeps no state that it " +
			"cannot find again.",
		See: "plugins.Driver", run: checkNodesRestart,
	},
}

func (b *Bench) nodes(ctx context.Context) ([]plugins.Node, *proc, error) {
	p, err := b.shared(ctx)
	if err != nil {
		return nil, nil, err
	}
	nodes, err := p.nodes(ctx)
	if err != nil || len(nodes) == 0 {
		return nil, nil, notRun("the driver lists no node; see nodes/some")
	}
	return nodes, p, nil
}

func checkNodesSome(ctx context.Context, b *Bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	nodes, err := p.nodes(ctx)
	switch {
	case err != nil:
		return failf("AvailableNodes", "%s", describe(err))
	case len(nodes) == 0:
		return failf("AvailableNodes", "an empty list")
	}
	return nil
}

func checkNodeNames(ctx context.Context, b *Bench) error {
	nodes, _, err := b.nodes(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	seen := map[string]bool{}
	for _, n := range nodes {
		if err := providertree.ValidateProviderName(n.Name); err != nil {
			wrong = append(wrong, fmt.Sprintf("a node %q: %v", n.Name, err))
		}
		if seen[n.Name] {
			wrong = append(wrong, fmt.Sprintf("the node %q is listed twice", n.Name))
		}
		seen[n.Name] = true
	}
	return failLines("AvailableNodes", wrong)
}

func checkNodeUUIDs(ctx context.Context, b *Bench) error {
	nodes, _, err := b.nodes(ctx)
	if err != nil {
		return err
	}
	var wrong []string
	seen := map[string]string{}
	for _, n := range nodes {
		id := n.UUID
		if id != "" {
			if id, err = providertree.CanonicalUUID(n.UUID); err != nil {
				wrong = append(wrong, fmt.Sprintf("the node %q: %v", n.Name, err))
				continue
			}
		}
		if other, taken := seen[id]; taken {
			wrong = append(wrong, fmt.Sprintf("the node %q with the uuid of %q (%q)", n.Name, other, id))
		}
		seen[id] = n.Name
	}
	return failLines("AvailableNodes", wrong)
}

func checkNodesRepeated(ctx context.Context, b *Bench) error {
	nodes, p, err := b.nodes(ctx)
	if err != nil {
		return err
	}
	for i := range 10 {
		again, err := p.nodes(ctx)
		if err != nil {
			return failf(fmt.Sprintf("AvailableNodes, the %dth time", i+2), "%s", describe(err))
		}
		if !sameNodes(nodes, again) {
			return failf(fmt.Sprintf("AvailableNodes, the %dth time", i+2),
				"%v; it was %v the first time", again, nodes)
		}
	}
	return nil
}

func sameNodes(a, b []plugins.Node) bool {
	by := func(x, y plugins.Node) int { return strings.Compare(x.Name, y.Name) }
	return slices.Equal(slices.SortedFunc(slices.Values(a), by), slices.SortedFunc(slices.Values(b), by))
}

func checkNodesRestart(ctx context.Context, b *Bench) error {
	nodes, _, err := b.nodes(ctx)
	if err != nil {
		return err
	}
	p, err := b.configured(ctx)
	if err != nil {
		return err
	}
	again, err := p.nodes(ctx)
	if err != nil {
		return failf("AvailableNodes after a restart", "%s", describe(err))
	}
	if !sameNodes(nodes, again) {
		return failf("AvailableNodes after a restart", "%v; it was %v before", again, nodes)
	}
	return nil
}
