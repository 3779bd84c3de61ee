// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/drivers/fake/internal/faults"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// driver is the fake driver without faults. It keeps its configuration and former ones: what is no
// longer configured must be removed from trees, where it looks like what other clients wrote.
type driver struct {
	mu      sync.Mutex
	cfg     config
	former  []provider           // nodes of earlier configurations
	changed chan struct{}        // closed and replaced when the configuration changes
	renames plugins.ClassRenames // of the last reshape
	played  *scenario            // where cfg comes from, or nil
	hyper   *hypervisor
}

// Info returns the driver's name and version.
func (d *driver) Info() plugins.Info {
	return plugins.Info{Name: "fake", Version: plugins.BuildVersion()}
}

// ConfigSchema returns the schema of its configuration.
func (d *driver) ConfigSchema() []byte { return faults.WithFaults(schema) }

// Configure checks everything before it changes anything, so that after an error the former
// configuration stays.
func (d *driver) Configure(ctx context.Context, raw json.RawMessage, host plugins.HostInfo) error {
	cfg, err := parse(raw, host)
	if err != nil {
		return err
	}
	var played *scenario
	if cfg.Scenario != "" {
		if played, err = readScenario(cfg.Scenario, host); err != nil {
			return &plugins.ConfigError{Key: "scenario", Problem: err.Error()}
		}
		cfg = played.current()
	}
	dir := ""
	if host.StateDir != "" {
		dir = filepath.Join(host.StateDir, machinesDir)
		if err := adoptMachines(host.StateDir, cfg.names()); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hyper.dir != dir {
		d.hyper = newHypervisor(dir)
	}
	if err := d.hyper.renamed(cfg, host); err != nil {
		return err
	}
	d.played = played
	d.apply(cfg)
	log := plugins.Logger(ctx)
	log.Debug().Int("nodes", len(cfg.Nodes)).Msg("Applied the configuration.")
	return nil
}

// apply applies a configuration.
func (d *driver) apply(cfg config) {
	if !reflect.DeepEqual(d.cfg.Nodes, cfg.Nodes) {
		d.former = append(d.former, d.cfg.Nodes...)
	}
	d.cfg, d.renames = cfg, cfg.ClassRenames
	close(d.changed)
	d.changed = make(chan struct{})
}

// AvailableNodes lists the configured nodes.
func (d *driver) AvailableNodes(context.Context) ([]plugins.Node, error) {
	cfg, _, err := d.current()
	if err != nil {
		return nil, err
	}
	nodes := make([]plugins.Node, 0, len(cfg.Nodes))
	for _, n := range cfg.Nodes {
		nodes = append(nodes, plugins.Node{Name: n.Name, UUID: n.UUID})
	}
	return nodes, nil
}

// UpdateProviderTree updates the node's tree to the configuration, and does not change what is not
// the driver's.
//
// Inventory that must move can be in use, and there is no hypervisor to ask: moving it is always a
// reshape.
func (d *driver) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	cfg, former, err := d.current()
	if err != nil {
		return nil, err
	}
	root, ok := tree.ProviderByName(node)
	if !ok {
		return nil, fmt.Errorf("the tree has no resource provider %q", node)
	}
	for _, n := range cfg.Nodes {
		if n.Name != node {
			continue
		}
		if cfg.Faults.Reshape == faults.Ignore {
			return allocations, put(tree, root.UUID, n, node, map[string]bool{})
		}
		relocations, err := cfg.relocations(tree, root.UUID, n)
		switch {
		case err != nil:
			return nil, err
		case cfg.Faults.Reshape == faults.Repeat && allocations == nil:
			return nil, &plugins.ReshapeNeeded{Reason: "it is configured to need one in every pass"}
		case len(relocations) > 0 && (allocations == nil || cfg.Faults.Reshape == faults.Again):
			return nil, &plugins.ReshapeNeeded{Reason: describe(tree, relocations)}
		}
		if allocations != nil {
			d.declare(cfg.ClassRenames)
			if cfg.machines, err = d.machines(); err != nil {
				return nil, err
			}
		}
		if len(relocations) > 0 && cfg.LayoutVersion > 0 {
			if allocations, err = cfg.steps(ctx, tree, root.UUID, node, allocations); err != nil {
				return nil, err
			}
			if relocations, err = cfg.relocations(tree, root.UUID, n); err != nil {
				return nil, err
			}
			if len(relocations) > 0 {
				return nil, unknownLayout(cfg.LayoutVersion, relocations)
			}
		}
		if err := withdraw(tree, root.UUID, n, former); err != nil {
			return nil, err
		}
		wanted := map[string]bool{}
		if err := put(tree, root.UUID, n, node, wanted); err != nil {
			return nil, err
		}
		if len(relocations) > 0 {
			if allocations, err = cfg.reshape(ctx, tree, relocations, allocations); err != nil {
				return nil, err
			}
		}
		return allocations, prune(tree, root.UUID, node, wanted)
	}
	return nil, fmt.Errorf("node %q is not configured", node)
}

// put writes one provider and those below it. It only adds: other classes and traits of the same
// provider are external.
func put(tree *providertree.Tree, uuid string, p provider, name string, wanted map[string]bool) error {
	var errs []error
	note := func(_ bool, err error) { errs = append(errs, err) }
	for class, inv := range p.Inventories {
		note(tree.SetInventory(uuid, class, providertree.Inventory(inv)))
	}
	note(tree.AddTraits(uuid, p.Traits...))
	note(tree.AddAggregates(uuid, p.Aggregates...))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	root, _ := tree.RootOf(uuid)
	for _, child := range p.Children {
		full := child.nameBelow(name)
		id, err := childOf(tree, root, full)
		if err != nil {
			return err
		}
		wanted[id] = true
		if !tree.Exists(id) {
			if err := tree.AddChild(uuid, id, full); err != nil {
				return err
			}
		}
		if _, err := tree.Move(id, uuid); err != nil { // layouts can have it below different parents
			return err
		}
		if err := put(tree, id, child, full, wanted); err != nil {
			return err
		}
	}
	return nil
}

// childOf returns the uuid of the child of that name: its uuid in the tree (a child of Nova is
// adopted by its name), or one derived from the root's uuid and the name, so that it is the same
// after every restart.
func childOf(tree *providertree.Tree, root, name string) (string, error) {
	if p, found := tree.ProviderByName(name); found {
		if its, _ := tree.RootOf(p.UUID); its == root {
			return p.UUID, nil
		}
	}
	return providertree.ChildUUID(root, name)
}

// withdraw removes from a node what former configurations added and the current one does not have.
func withdraw(tree *providertree.Tree, root string, now provider, former []provider) error {
	var errs []error
	for _, old := range former {
		if old.Name != now.Name {
			continue
		}
		for class := range old.Inventories {
			if _, still := now.Inventories[class]; !still {
				_, err := tree.RemoveInventory(root, class)
				errs = append(errs, err)
			}
		}
		gone := slices.DeleteFunc(slices.Clone(old.Traits),
			func(t string) bool { return slices.Contains(now.Traits, t) })
		_, err := tree.RemoveTraits(root, gone...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// prune removes children that are no longer configured. A uuid that is derived from the name shows
// that the provider is the driver's; one with external children stays.
func prune(tree *providertree.Tree, root, node string, wanted map[string]bool) error {
	uuids := tree.Subtree(root)
	for i := len(uuids) - 1; i > 0; i-- { // children before their parents; the first one is the root
		uuid := uuids[i]
		if wanted[uuid] {
			continue
		}
		p, _ := tree.Provider(uuid)
		own, err := providertree.ChildUUID(root, p.Name)
		if err != nil {
			return fmt.Errorf("node %s: %w", node, err)
		}
		if uuid != own || len(tree.Children(uuid)) > 0 {
			continue
		}
		if _, err := tree.Remove(uuid); err != nil {
			return err
		}
	}
	return nil
}

// ClassRenames returns the configured renames of resource classes, or those of the last step of a
// layout migration.
func (d *driver) ClassRenames() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.renames
}

func (d *driver) declare(renames plugins.ClassRenames) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renames = renames
}

// Health reports the configured problem, or what is wrong with the scenario.
func (d *driver) Health(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.follow()
	if d.played != nil && d.played.problem != nil {
		return fmt.Errorf("%w; the former state stays", d.played.problem)
	}
	if d.cfg.Health != "" {
		return errors.New(d.cfg.Health)
	}
	return nil
}

// Watch reports changes of the configuration and the scenario.
func (d *driver) Watch(ctx context.Context, changed func(node string)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for next := d.change(); ; {
		select {
		case <-next:
			changed("")
			next = d.change()
		case <-ticker.C:
			_, _, _ = d.current() // which closes next if the scenario goes on
		case <-ctx.Done():
			return nil
		}
	}
}

// change is closed when the configuration changes.
func (d *driver) change() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed
}

// follow applies the scenario's current state. Cost: one stat of its file, if there is a scenario.
func (d *driver) follow() {
	if d.played != nil && d.played.follow() {
		d.apply(d.played.current())
	}
}

func (d *driver) hypervisor() *hypervisor {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hyper
}

// machines returns all machines by uuid.
func (d *driver) machines() (map[string]machine, error) {
	list, err := d.hypervisor().list()
	out := make(map[string]machine, len(list))
	for _, m := range list {
		out[m.UUID] = m
	}
	return out, err
}

func (d *driver) current() (cfg config, former []provider, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.follow()
	if d.cfg.NotReady != "" {
		return config{}, nil, &plugins.NotReady{Reason: d.cfg.NotReady}
	}
	return d.cfg, d.former, nil
}
