// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Driver is the fake driver, with the configured faults around every call.
type Driver struct {
	*driver

	mu      sync.Mutex
	updates int               // how many there were: what the fault flicker follows
	renames map[string]string // of the fault rename in the last one
}

// The optional interfaces that it implements.
var (
	_ plugins.Driver             = (*Driver)(nil)
	_ plugins.CapabilityReporter = (*Driver)(nil)
	_ plugins.ConsoleLogger      = (*Driver)(nil)
	_ plugins.SpawnChecker       = (*Driver)(nil)
	_ plugins.ConsoleOpener      = (*Driver)(nil)
	_ plugins.GuestLister        = (*Driver)(nil)
	_ plugins.HealthChecker      = (*Driver)(nil)
	_ plugins.InstanceManager    = (*Driver)(nil)
	_ plugins.InstanceWatcher    = (*Driver)(nil)
	_ plugins.InstanceMover      = (*Driver)(nil)
	_ plugins.NodeChecker        = (*Driver)(nil)
	_ plugins.ProductNamer       = (*Driver)(nil)
	_ plugins.HypervisorReporter = (*Driver)(nil)
	_ plugins.Renamer            = (*Driver)(nil)
	_ plugins.LayoutVersioner    = (*Driver)(nil)
	_ plugins.Shutdowner         = (*Driver)(nil)
	_ plugins.Warner             = (*Driver)(nil)
	_ plugins.Watcher            = (*Driver)(nil)
)

// New returns a driver without a configuration.
func New() *Driver {
	return &Driver{driver: &driver{changed: make(chan struct{}), hyper: newHypervisor("")}}
}

// Configure has its faults before it applies the configuration.
func (d *Driver) Configure(ctx context.Context, raw json.RawMessage, host plugins.HostInfo) error {
	cfg, err := parse(raw, host)
	if err != nil {
		return err
	}
	if cfg.Faults != (faults{}) {
		log := plugins.Logger(ctx)
		log.Warn().Msg("Faults are configured: the driver fails on purpose.")
	}
	if err := cfg.Faults.run(ctx, cfg.Faults.Configure); err != nil {
		return err
	}
	return d.driver.Configure(ctx, raw, host)
}

// AvailableNodes has its faults first.
func (d *Driver) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	f := d.faults()
	if err := f.run(ctx, f.Nodes); err != nil {
		return nil, err
	}
	return d.driver.AvailableNodes(ctx)
}

// UpdateProviderTree first has the faults of any call, and then those of its result.
func (d *Driver) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	f := d.faults()
	var spoils []treeFault
	for _, name := range strings.Fields(f.Update) {
		if spoil, ok := treeFaults[name]; ok {
			spoils = append(spoils, spoil)
		} else if err := f.run(ctx, name); err != nil {
			return nil, err
		}
	}
	after, err := d.driver.UpdateProviderTree(ctx, tree, node, allocations)
	if err != nil {
		return nil, err
	}
	root, _ := tree.ProviderByName(node)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.updates++
	u := &treeUpdate{tree: tree, root: root, allocations: after.Clone(), given: allocations != nil, nth: d.updates}
	for _, spoil := range spoils {
		if err := spoil.do(u); err != nil {
			return nil, err
		}
	}
	d.renames = u.renames
	return u.allocations, nil
}

// ClassRenames returns the renames of the fault rename, or else of the last reshape.
func (d *Driver) ClassRenames() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.renames != nil {
		return d.renames
	}
	return d.driver.ClassRenames()
}

// Health has its faults first.
func (d *Driver) Health(ctx context.Context) error {
	f := d.faults()
	if err := f.run(ctx, f.Health); err != nil {
		return err
	}
	return d.driver.Health(ctx)
}

// Watch has its faults when it begins.
func (d *Driver) Watch(ctx context.Context, changed func(node string)) error {
	f := d.faults()
	for _, name := range strings.Fields(f.Watch) {
		if name == "storm" {
			for range stormLines {
				changed("")
			}
		} else if err := f.run(ctx, name); err != nil {
			return err
		}
	}
	return d.driver.Watch(ctx, changed)
}

// Shutdown has only its faults.
func (d *Driver) Shutdown(ctx context.Context) error {
	f := d.faults()
	return f.run(ctx, f.Shutdown)
}

// Instances has its faults after the list, which some of them change.
func (d *Driver) Instances(ctx context.Context, node string) ([]plugins.Instance, error) {
	f := d.faults()
	list, err := d.driver.Instances(ctx, node)
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(f.List) {
		if spoil, ok := listFaults[name]; ok {
			list = spoil.do(list)
		} else if err := f.run(ctx, name); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Spawn has its faults after the instance is created: it exists whatever they do.
func (d *Driver) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	made, err := d.driver.Spawn(ctx, node, spec, tree)
	if err != nil {
		return made, err
	}
	f := d.faults()
	return f.answer(ctx, made, f.Spawn)
}

// CheckSpawn has its faults first.
func (d *Driver) CheckSpawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	f := d.faults()
	if err := f.run(ctx, f.Check); err != nil {
		return err
	}
	return d.driver.CheckSpawn(ctx, node, spec, tree)
}

// Restore has its faults, which are those of Spawn, after the instance is created.
func (d *Driver) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	restored, err := d.driver.Restore(ctx, node, spec, tree)
	if err != nil {
		return restored, err
	}
	f := d.faults()
	return f.answer(ctx, restored, f.Spawn)
}

// Destroy has its faults before the instance is removed.
func (d *Driver) Destroy(ctx context.Context, node, uuid string) error {
	f := d.faults()
	if err := f.run(ctx, f.Destroy); err != nil {
		return err
	}
	return d.driver.Destroy(ctx, node, uuid)
}

// SetPower has its faults after the power state is set.
func (d *Driver) SetPower(
	ctx context.Context, node, uuid string, to plugins.PowerState, hard bool,
) (plugins.Instance, error) {
	is, err := d.driver.SetPower(ctx, node, uuid, to, hard)
	if err != nil {
		return is, err
	}
	f := d.faults()
	return f.answer(ctx, is, f.Power)
}

// Depart has its faults after the machine is stopped.
func (d *Driver) Depart(ctx context.Context, node, uuid string) (string, error) {
	offer, err := d.driver.Depart(ctx, node, uuid)
	if err != nil {
		return "", err
	}
	f := d.faults()
	return offer, f.run(ctx, f.Depart)
}

// Arrive has its faults after the instance is created.
func (d *Driver) Arrive(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	made, err := d.driver.Arrive(ctx, node, spec, tree, from)
	if err != nil {
		return made, err
	}
	f := d.faults()
	return f.answer(ctx, made, f.Arrive)
}

// Leave has its faults before the instance is removed.
func (d *Driver) Leave(ctx context.Context, node, uuid string) error {
	f := d.faults()
	if err := f.run(ctx, f.Leave); err != nil {
		return err
	}
	return d.driver.Leave(ctx, node, uuid)
}

// answer has faults after a call for one instance, some of which change the result.
func (f faults) answer(ctx context.Context, answer plugins.Instance, names string) (plugins.Instance, error) {
	for _, name := range strings.Fields(names) {
		if spoil, ok := instanceFaults[name]; ok {
			spoil.do(&answer)
		} else if err := f.run(ctx, name); err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// WatchInstances has its faults when it begins.
func (d *Driver) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	f := d.faults()
	for _, name := range strings.Fields(f.Events) {
		switch name {
		case "storm":
			for i := range stormLines {
				changed("", fmt.Sprintf("00000000-dead-4bad-8bad-%012d", i))
			}
		case invalidEvents:
			for _, uuid := range []string{notAUUID, "\xff\xfe", strings.Repeat("u", 1<<20), inventedUUID + "\n"} {
				changed("no such node\x00", uuid)
			}
		default:
			if err := f.run(ctx, name); err != nil {
				return err
			}
		}
	}
	return d.driver.WatchInstances(ctx, changed)
}

// faults are those that are configured now.
func (d *driver) faults() faults {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.follow()
	return d.cfg.Faults
}
