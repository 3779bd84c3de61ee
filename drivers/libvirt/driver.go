// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/instances"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Driver implements [plugins.Driver], and of the optional interfaces those that are listed below.
type Driver struct {
	open     hypervisor.Open
	eventLog *hypervisor.EventLog
	// connections counts connections: answers of an earlier one are requested again.
	connections atomic.Uint64

	// State kept from pass to pass. Passes never overlap.
	known            reusedAnswers
	deviceComparison deviceComparison
	labels           deviceLabels
	domainCache      domainCache
	discrepancies    discrepancies
	disks            disks
	access           limitedRead[string, map[string]string]
	lastHostError    string // what is wrong with /sys
	powerChecked     int    // the number of the configuration
	loggedDisk       string
	savedFile        string // domainCapabilitiesFile, or that of a test

	places   *places
	power    *instances.CPUPower
	managing *managing // of instances

	mu           sync.Mutex // for what may be called beside a pass
	cfg          config
	link         *hypervisor.Link
	warnings     []plugins.Warning
	capabilities map[string]bool
	productNames map[string]string
	hypervisor   plugins.Hypervisor
	renames      plugins.ClassRenames
}

var (
	_ plugins.Driver             = (*Driver)(nil)
	_ plugins.LayoutVersioner    = (*Driver)(nil)
	_ plugins.Renamer            = (*Driver)(nil)
	_ plugins.CapabilityReporter = (*Driver)(nil)
	_ plugins.ProductNamer       = (*Driver)(nil)
	_ plugins.HypervisorReporter = (*Driver)(nil)
	_ plugins.Watcher            = (*Driver)(nil)
	_ plugins.HealthChecker      = (*Driver)(nil)
	_ plugins.Warner             = (*Driver)(nil)
	_ plugins.GuestLister        = (*Driver)(nil)
	_ plugins.Shutdowner         = (*Driver)(nil)
)

func newDriver(open hypervisor.Open) *Driver {
	eventLog := hypervisor.NewEventLog()
	m, seen := newManaging(open, eventLog), &places{}
	m.prober.places, m.prober.power = seen, m.manager.Power()
	return &Driver{open: open, eventLog: eventLog, disks: disks{measure: measureDisk}, places: seen,
		power: m.manager.Power(), managing: m, savedFile: domainCapabilitiesFile}
}

// Info names the driver.
func (d *Driver) Info() plugins.Info { return plugins.Info{Name: "libvirt", Version: version.Number()} }

// ConfigSchema describes the keys of the configuration.
func (d *Driver) ConfigSchema() []byte { return slices.Clone(schema) }

// Configure takes the configuration and begins to connect to libvirt. A libvirt that is not there
// is no error.
func (d *Driver) Configure(ctx context.Context, raw json.RawMessage, host plugins.HostInfo) error {
	cfg, err := parseConfig(raw, host)
	if err != nil {
		return err
	}
	d.mu.Lock()
	old, former := d.link, d.cfg
	d.cfg = cfg
	d.cfg.number = former.number + 1
	same := old != nil && former.URI == cfg.URI && former.connectTimeout == cfg.connectTimeout &&
		former.callTimeout == cfg.callTimeout
	if !same {
		d.link = hypervisor.NewLink(hypervisor.Settings{ //nolint:contextcheck // the connection outlives this call
			URI: cfg.URI, Open: d.open, ConnectTimeout: cfg.connectTimeout, CallTimeout: cfg.callTimeout,
			Explain: hypervisor.Explain, Connected: func() { d.connections.Add(1) }, EventLog: d.eventLog,
		})
	}
	d.mu.Unlock()
	d.manage(ctx, cfg)
	if old != nil && !same {
		if err := old.Close(ctx); err != nil {
			logger := plugins.Logger(ctx)
			logger.Warn().Err(err).Str("uri", former.URI).
				Msg("Could not close the previous connection to libvirt cleanly. The new connection is not affected.")
		}
	}
	return nil
}

func (d *Driver) current() (config, *hypervisor.Link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.link == nil {
		return config{}, nil, &plugins.NotReady{Reason: "the libvirt driver is not configured yet"}
	}
	return d.cfg, d.link, nil
}

// AvailableNodes is the machine itself. Its identity is the agent's.
func (d *Driver) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	name, err := d.nodeName(ctx)
	if err != nil {
		return nil, driverError(err)
	}
	return []plugins.Node{{Name: name}}, nil
}

func (d *Driver) nodeName(ctx context.Context) (string, error) {
	cfg, link, err := d.current()
	if err != nil || cfg.Host != "" {
		return cfg.Host, err
	}
	return discoverHostname(ctx, link)
}

// UpdateProviderTree edits the tree to match the machine: see package inventory for the tree.
// Inventory that moves takes its allocations along, see reshape.go.
//
// An error leaves the tree as it was.
//
// Cost: that of discover, and O(CPUs + devices + domains).
func (d *Driver) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	cfg, link, root, err := d.nodeOf(ctx, tree, node)
	if err != nil {
		return nil, err
	}
	f, err := d.discover(ctx, cfg, link, allocations != nil)
	if err != nil {
		return nil, driverError(err)
	}
	c, err := d.choose(cfg, f, tree, root, node)
	if err != nil {
		return nil, driverError(err)
	}
	after, err := d.updateTree(ctx, cfg, c, tree, root, cfg.NUMA == nested, allocations)
	var failed *plugins.ReshapeFailed
	if err == nil || errors.As(err, &failed) { // a domain that cannot be read may be why
		d.logWarnings(ctx, f)
	}
	if err != nil {
		return nil, fmt.Errorf("node %q: %w", node, err)
	}
	d.nameProducts(cfg, c)
	d.identify(f.answers)
	return after, nil
}

// identify stores the result of Hypervisor.
func (d *Driver) identify(a answers) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hypervisor = plugins.Hypervisor{Type: a.hypervisor, Version: int64(a.guests.emulator)}
}

// Hypervisor is libvirt's driver and the version of its emulator, as Nova's libvirt driver has
// them.
func (d *Driver) Hypervisor(string) plugins.Hypervisor {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hypervisor
}

// nodeOf finds the root of a node in its tree.
func (d *Driver) nodeOf(
	ctx context.Context, tree *providertree.Tree, node string,
) (config, *hypervisor.Link, string, error) {
	root, ok := tree.ProviderByName(node)
	switch {
	case !ok:
		return config{}, nil, "", fmt.Errorf("the tree has no resource provider %q", node)
	case root.ParentUUID != "":
		return config{}, nil, "", fmt.Errorf("resource provider %q is not the root of a tree", node)
	}
	if name, err := d.nodeName(ctx); err != nil {
		return config{}, nil, "", driverError(err)
	} else if name != node {
		return config{}, nil, "", fmt.Errorf("the libvirt driver reports only node %q, not %q", name, node)
	}
	cfg, link, err := d.current()
	return cfg, link, root.UUID, err
}

// logWarnings logs new discrepancies, and the directory that DISK_GB is measured in.
func (d *Driver) logWarnings(ctx context.Context, f facts) {
	logger := plugins.Logger(ctx)
	warnings := d.discrepancies.log(logger)
	d.mu.Lock()
	d.warnings = warnings
	d.mu.Unlock()
	if d.loggedDisk != f.disk.Path {
		d.loggedDisk = f.disk.Path
		logger.Info().
			Str("directory", f.disk.Path).
			Msg("DISK_GB is the size of this directory's file system. If guests' disks are elsewhere, set " +
				"instances_path in the libvirt driver's configuration.")
	}
}

// notReadyError marks an error as one of the machine's state.
type notReadyError struct{ error }

func (e *notReadyError) Unwrap() error { return e.error }

// driverError converts an error for the agent: NotReady while libvirt or the disk is unavailable.
func driverError(err error) error {
	var gone *hypervisor.Unavailable
	var machine *notReadyError
	if errors.As(err, &gone) || errors.As(err, &machine) {
		return &plugins.NotReady{Reason: err.Error()}
	}
	return err
}

// Health is nil while libvirt can be asked.
func (d *Driver) Health(context.Context) error {
	_, link, err := d.current()
	if err != nil {
		return err
	}
	return link.State()
}

// Warnings are the discrepancies of the last complete pass.
func (d *Driver) Warnings() []plugins.Warning {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.warnings
}

// Capabilities returns the capabilities of the service that runs the guests, as far as they are
// configured.
func (d *Driver) Capabilities(string) map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.capabilities
}

// Shutdown closes the connections.
func (d *Driver) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	link := d.link
	d.mu.Unlock()
	if link == nil {
		return nil
	}
	return errors.Join(d.managing.end(ctx), link.Close(ctx))
}
