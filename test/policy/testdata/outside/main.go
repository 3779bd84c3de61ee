// SPDX-License-Identifier: Apache-2.0

// Command compute-driver-outside is a driver of one node, in a module of its own.
package main

import (
	"context"
	"encoding/json"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

type driver struct{}

func (driver) Info() plugins.Info { return plugins.Info{Name: "outside", Version: "1.0.0"} }

func (driver) ConfigSchema() []byte { return nil }

func (driver) Configure(_ context.Context, config json.RawMessage, _ plugins.HostInfo) error {
	return plugins.DecodeConfig(config, &struct{}{})
}

func (driver) AvailableNodes(context.Context) ([]plugins.Node, error) {
	return []plugins.Node{{Name: "outside"}}, nil
}

func (driver) UpdateProviderTree(
	_ context.Context, tree *providertree.Tree, node string, _ providertree.Allocations,
) (providertree.Allocations, error) {
	root, _ := tree.ProviderByName(node)
	_, err := tree.SetInventory(root.UUID, "VCPU", providertree.Inventory{Total: 4})
	return nil, err
}

func main() { plugins.Serve(driver{}) }
