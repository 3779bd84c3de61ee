// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/compute-agent/compute-agent/drivers/fake/internal/faults"
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

// Start runs the faults of the arguments --start=FAULT,... before the handshake: crash, hang, noise
// and others, which compute-driver-fake is started with in tests. It returns when the driver can be
// served.
//
// Errors: an argument that is something else.
func Start(args []string) error { return faults.Start(args) }

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
	if cfg.Faults != (faults.Config{}) {
		log := plugins.Logger(ctx)
		log.Warn().Msg("Faults are configured: the driver fails on purpose.")
	}
	if err := cfg.Faults.Run(ctx, cfg.Faults.Configure); err != nil {
		return err
	}
	return d.driver.Configure(ctx, raw, host)
}

// AvailableNodes has its faults first.
func (d *Driver) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	f := d.faults()
	if err := f.Run(ctx, f.Nodes); err != nil {
		return nil, err
	}
	return d.driver.AvailableNodes(ctx)
}

// UpdateProviderTree first has the faults of any call, and then those of its result.
func (d *Driver) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	f := d.faults()
	if err := f.BeforeUpdate(ctx); err != nil {
		return nil, err
	}
	after, err := d.driver.UpdateProviderTree(ctx, tree, node, allocations)
	if err != nil {
		return nil, err
	}
	root, _ := tree.ProviderByName(node)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.updates++
	u := &faults.TreeUpdate{Tree: tree, Root: root, Allocations: after.Clone(), Given: allocations != nil,
		Nth: d.updates}
	if err := f.AfterUpdate(u); err != nil {
		return nil, err
	}
	d.renames = u.Renames
	return u.Allocations, nil
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
	if err := f.Run(ctx, f.Health); err != nil {
		return err
	}
	return d.driver.Health(ctx)
}

// Watch has its faults when it begins.
func (d *Driver) Watch(ctx context.Context, changed func(node string)) error {
	if err := d.faults().BeforeWatch(ctx, changed); err != nil {
		return err
	}
	return d.driver.Watch(ctx, changed)
}

// Shutdown has only its faults.
func (d *Driver) Shutdown(ctx context.Context) error {
	f := d.faults()
	return f.Run(ctx, f.Shutdown)
}

// Instances has its faults after the list, which some of them change.
func (d *Driver) Instances(ctx context.Context, node string) ([]plugins.Instance, error) {
	f := d.faults()
	list, err := d.driver.Instances(ctx, node)
	if err != nil {
		return nil, err
	}
	return f.AfterList(ctx, list)
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
	return f.AfterInstance(ctx, made, f.Spawn)
}

// CheckSpawn has its faults first.
func (d *Driver) CheckSpawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	f := d.faults()
	if err := f.Run(ctx, f.Check); err != nil {
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
	return f.AfterInstance(ctx, restored, f.Spawn)
}

// Destroy has its faults before the instance is removed.
func (d *Driver) Destroy(ctx context.Context, node, uuid string) error {
	f := d.faults()
	if err := f.Run(ctx, f.Destroy); err != nil {
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
	return f.AfterInstance(ctx, is, f.Power)
}

// Depart has its faults after the machine is stopped.
func (d *Driver) Depart(ctx context.Context, node, uuid string) (string, error) {
	offer, err := d.driver.Depart(ctx, node, uuid)
	if err != nil {
		return "", err
	}
	f := d.faults()
	return offer, f.Run(ctx, f.Depart)
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
	return f.AfterInstance(ctx, made, f.Arrive)
}

// Leave has its faults before the instance is removed.
func (d *Driver) Leave(ctx context.Context, node, uuid string) error {
	f := d.faults()
	if err := f.Run(ctx, f.Leave); err != nil {
		return err
	}
	return d.driver.Leave(ctx, node, uuid)
}

// WatchInstances has its faults when it begins.
func (d *Driver) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	if err := d.faults().BeforeEvents(ctx, changed); err != nil {
		return err
	}
	return d.driver.WatchInstances(ctx, changed)
}

// faults returns the faults that are configured now.
func (d *driver) faults() faults.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.follow()
	return d.cfg.Faults
}
