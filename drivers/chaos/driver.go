// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// onlyNode is the node that it reports.
const onlyNode = "cn1"

// Driver is the chaos driver.
type Driver struct {
	mu  sync.Mutex
	cfg config

	machines *fake.Driver // the instances

	updates int // how many there were: what flicker follows
	renames map[string]string
}

var (
	_ plugins.Driver          = (*Driver)(nil)
	_ plugins.HealthChecker   = (*Driver)(nil)
	_ plugins.InstanceManager = (*Driver)(nil)
	_ plugins.InstanceWatcher = (*Driver)(nil)
	_ plugins.Renamer         = (*Driver)(nil)
	_ plugins.Shutdowner      = (*Driver)(nil)
	_ plugins.Watcher         = (*Driver)(nil)
)

// New returns a driver without orders.
func New() *Driver { return &Driver{machines: fake.New()} }

// Info is who the driver is.
func (d *Driver) Info() plugins.Info {
	return plugins.Info{Name: "chaos", Version: plugins.BuildVersion()}
}

// ConfigSchema lists all that it can be ordered to do.
func (d *Driver) ConfigSchema() []byte { return schema() }

// Configure takes new orders, after doing what they say for Configure itself.
func (d *Driver) Configure(ctx context.Context, raw json.RawMessage, host plugins.HostInfo) error {
	cfg, err := parse(raw)
	if err != nil {
		return err
	}
	if err := do(ctx, cfg.Configure, cfg); err != nil {
		return err
	}
	if err := d.machines.Configure(ctx, json.RawMessage(machines), host); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg = cfg
	return nil
}

// AvailableNodes is one node.
func (d *Driver) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	cfg := d.config()
	if err := do(ctx, cfg.Nodes, cfg); err != nil {
		return nil, err
	}
	return []plugins.Node{{Name: onlyNode}}, nil
}

// UpdateProviderTree does its deeds, and then what it should unless one of them left it undone.
func (d *Driver) UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations) (providertree.Allocations, error) {
	cfg := d.config()
	root, ok := tree.ProviderByName(node)
	if !ok || node != onlyNode {
		return nil, fmt.Errorf("node %q is not this driver's, or not in the tree", node)
	}
	if _, err := tree.SetInventory(root.UUID, "VCPU", providertree.Inventory{Total: 8}); err != nil {
		return nil, err
	}
	d.updates++
	a := &update{tree: tree, root: root, allocations: allocations.Clone(), given: allocations != nil, nth: d.updates}
	for _, name := range strings.Fields(cfg.Update) {
		var err error
		if d, special := treeDeeds[name]; special {
			err = d.do(a)
		} else {
			err = do(ctx, name, cfg)
		}
		if err != nil {
			return nil, err
		}
	}
	d.renames = a.renames
	return a.allocations, nil
}

// ClassRenames are those of the deed rename.
func (d *Driver) ClassRenames() map[string]string { return d.renames }

// Health is as good as ordered.
func (d *Driver) Health(ctx context.Context) error {
	cfg := d.config()
	return do(ctx, cfg.Health, cfg)
}

// Watch does its deeds and then notices nothing.
func (d *Driver) Watch(ctx context.Context, changed func(node string)) error {
	cfg := d.config()
	for _, name := range strings.Fields(cfg.Watch) {
		if name == "storm" {
			for range stormLines {
				changed("")
			}
			continue
		}
		if err := do(ctx, name, cfg); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// Shutdown does its deeds.
func (d *Driver) Shutdown(ctx context.Context) error {
	cfg := d.config()
	return do(ctx, cfg.Shutdown, cfg)
}

func (d *Driver) config() config {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cfg
}
