// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/instances"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

var (
	_ plugins.InstanceManager = (*Driver)(nil)
	_ plugins.InstanceWatcher = (*Driver)(nil)
	_ plugins.InstanceMover   = (*Driver)(nil)
	_ plugins.ConsoleLogger   = (*Driver)(nil)
	_ plugins.SpawnChecker    = (*Driver)(nil)
	_ plugins.ConsoleOpener   = (*Driver)(nil)
)

const (
	// writers is how many connections with write access there are while instances are managed: one
	// for what is answered at once, the others for starts and the like.
	writers = 3
	// closeTime is how long Configure waits for calls over connections that are not needed any
	// more. They are closed when those return.
	closeTime = 5 * time.Second
)

// managing is what the driver needs to manage instances.
type managing struct {
	manager *instances.Manager
	// prober discovers the host for the manager, concurrently with the driver's passes and with its
	// own caches. The manager runs it once at a time.
	prober *Driver

	mu    sync.Mutex
	to    connectionKey
	links []*hypervisor.Link // with write access
}

// connectionKey has the settings after whose change connections are opened again.
type connectionKey struct {
	uri           string
	connect, call time.Duration
}

func newManaging(open hypervisor.Open, eventLog *hypervisor.EventLog) *managing {
	return &managing{
		manager: instances.New(eventLog),
		prober:  &Driver{open: open, eventLog: eventLog, disks: disks{measure: measureDisk}},
	}
}

// manage starts, continues or stops managing instances, as configured.
func (d *Driver) manage(ctx context.Context, cfg config) {
	m := d.managing
	m.mu.Lock()
	old, key := m.links, connectionKey{cfg.URI, cfg.connectTimeout, cfg.callTimeout}
	switch {
	case cfg.Instances == nil:
		m.links = nil
	case old != nil && m.to == key:
		old = nil
	default:
		m.links, m.to = make([]*hypervisor.Link, writers), key
		for i := range m.links {
			m.links[i] = hypervisor.NewLink(hypervisor.Settings{ //nolint:contextcheck // it outlives this call
				URI: cfg.URI, Write: true, Open: d.open, ConnectTimeout: cfg.connectTimeout,
				CallTimeout: cfg.callTimeout, Explain: hypervisor.Explain,
			})
		}
	}
	links := m.links
	m.mu.Unlock()
	if _, read, err := d.current(); err != nil || cfg.Instances == nil {
		m.manager.SetSetup(nil)
	} else {
		m.manager.SetSetup(&instances.Setup{
			Settings: cfg.instances,
			Node:     d.nodeName,
			Former:   cfg.former,
			Directory: func(ctx context.Context) (string, error) {
				return instancesDirectory(ctx, cfg.guestsDirectory())
			},
			Discover: d.discoverHost,
			Power:    d.powerSetup(cfg, read),
			Chroot:   cfg.Chroot,
			Read:     read,
			Write:    links,
		})
	}
	limited, cancel := context.WithTimeout(ctx, closeTime)
	defer cancel()
	if err := closeAll(limited, old); err != nil {
		logger := plugins.Logger(ctx)
		logger.Warn().Err(err).
			Msg("Could not close the previous connections to libvirt with write access cleanly. The new connections " +
				"are not affected.")
	}
}

// end closes the connections.
func (m *managing) end(ctx context.Context) error {
	m.mu.Lock()
	links := m.links
	m.mu.Unlock()
	return closeAll(ctx, links)
}

func closeAll(ctx context.Context, links []*hypervisor.Link) error {
	var errs []error
	for _, l := range links {
		errs = append(errs, l.Close(ctx))
	}
	return errors.Join(errs...)
}

// instancesDirectory is where the guests' disks are. Nothing is put into a directory that is only
// above the usual one.
func instancesDirectory(ctx context.Context, configured string) (string, error) {
	one := disks{measure: measureDisk}
	disk, err := one.discover(ctx, configured)
	if err != nil {
		return "", driverError(err)
	}
	if !slices.Contains([]string{configured, novaInstances, libvirtImages}, disk.Path) {
		return "", &plugins.NotReady{Reason: fmt.Sprintf(
			"the directory of the guests' disks %s does not exist: create it, or set instances_path", libvirtImages)}
	}
	return disk.Path, nil
}

// discoverHost discovers the host as a pass does, for a decision about an instance.
func (d *Driver) discoverHost(ctx context.Context, tree *providertree.Tree, node string) (instances.Host, error) {
	cfg, link, root, err := d.nodeOf(ctx, tree, node)
	if err != nil {
		return instances.Host{}, err
	}
	s := d.managing.prober
	s.connections.Store(d.connections.Load())
	f, err := s.discover(ctx, cfg, link, true)
	if err != nil {
		return instances.Host{}, driverError(err)
	}
	if !f.domainsKnown {
		return instances.Host{}, fmt.Errorf("%w: this hypervisor (%s) cannot list domains",
			plugins.ErrUnsupported, f.hypervisor)
	}
	if len(f.unread) > 0 { // its processors and devices would be given away again
		first := slices.Min(slices.Collect(maps.Values(f.unread)))
		return instances.Host{}, &plugins.NotReady{
			Reason: fmt.Sprintf(
				"%d of the domains cannot be read: %s; inspect it with virsh dumpxml, and fix it with virsh edit",
				len(f.unread), first),
		}
	}
	c, err := s.choose(cfg, f, tree, root, node)
	if err != nil {
		return instances.Host{}, driverError(err)
	}
	if err := s.checkCells(c.machine, cfg.NUMA == nested); err != nil {
		return instances.Host{}, err
	}
	wanted, _, err := inventory.Want(c.host, cfg.settings(cfg.NUMA == nested))
	if err != nil {
		return instances.Host{}, err
	}
	sites, err := wanted.Sites(tree, root)
	if err != nil {
		return instances.Host{}, err
	}
	traits := f.traits(cfg)
	traits.Config.More = inventory.ReportTrait // to guests it does not matter which traits are reported
	return instances.Host{
		Traits: traits.Verdicts(), Machine: f.machine, Shared: c.cpus.VCPU, Dedicated: c.cpus.PCPU, Domains: f.domains,
		Providers: sites, QEMU: s.known.qemu,
		KVM: slices.ContainsFunc(s.known.kinds,
			func(k capabilities.Kind) bool { return k.Type == "kvm" && k.Arch == f.machine.Arch }),
	}, nil
}

// Instances lists the instances that Spawn made.
func (d *Driver) Instances(ctx context.Context, node string) ([]plugins.Instance, error) {
	return d.managing.manager.Instances(ctx, node)
}

// Spawn creates an instance from the resources that Placement granted it, and starts it.
func (d *Driver) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	return d.managing.manager.Spawn(ctx, node, spec, tree)
}

// CheckSpawn reports what keeps Spawn from creating an instance, as far as its owner can change it.
func (d *Driver) CheckSpawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) error {
	return d.managing.manager.CheckSpawn(ctx, node, spec, tree)
}

// Restore creates an instance again over its disks, and leaves it off.
func (d *Driver) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	return d.managing.manager.Restore(ctx, node, spec, tree)
}

// Destroy ends an instance and removes what Spawn made for it.
func (d *Driver) Destroy(ctx context.Context, node, uuid string) error {
	return d.managing.manager.Destroy(ctx, node, uuid)
}

// SetPower starts an instance, or shuts it down.
func (d *Driver) SetPower(
	ctx context.Context, node, uuid string, to plugins.PowerState, hard bool,
) (plugins.Instance, error) {
	return d.managing.manager.SetPower(ctx, node, uuid, to, hard)
}

// Depart shuts an instance down that is to be moved, and describes its disks.
func (d *Driver) Depart(ctx context.Context, node, uuid string) (string, error) {
	return d.managing.manager.Depart(ctx, node, uuid)
}

// ReadFile reads a disk of an instance that departed.
func (d *Driver) ReadFile(ctx context.Context, node, uuid, name string, offset int64, send plugins.ChunkFunc) error {
	return d.managing.manager.ReadFile(ctx, node, uuid, name, offset, send)
}

// Arrive creates an instance that comes from another host, and leaves it off.
func (d *Driver) Arrive(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	return d.managing.manager.Arrive(ctx, node, spec, tree, from)
}

// Leave removes an instance that is on another host, but not the disks that it has there.
func (d *Driver) Leave(ctx context.Context, node, uuid string) error {
	return d.managing.manager.Leave(ctx, node, uuid)
}

// ConsoleLog returns the end of what an instance wrote to its serial console.
func (d *Driver) ConsoleLog(ctx context.Context, node, uuid string, maxBytes int) ([]byte, error) {
	return d.managing.manager.ConsoleLog(ctx, node, uuid, maxBytes)
}

// OpenConsole opens the serial console of an instance.
func (d *Driver) OpenConsole(ctx context.Context, node, uuid string) (io.ReadWriteCloser, error) {
	return d.managing.manager.OpenConsole(ctx, node, uuid)
}

// WatchInstances reports instances that changed, none while instances are not managed.
func (d *Driver) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	return d.managing.manager.Watch(ctx, changed)
}

// Guests lists libvirt's domains, running or only defined, whatever created them: all or an error.
// A domain that Nova created has the uuid of the instance, and metadata with the owner and the
// flavor, from which its allocations follow. They are unknown for guests that have more than a
// flavor's sizes (dedicated processors, devices), or a volume as root disk.
//
// Cost: that of domainCache.list; with NUMA cells as providers, that of discover.
func (d *Driver) Guests(ctx context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	cfg, link, root, err := d.nodeOf(ctx, tree, node)
	if err != nil {
		return nil, err
	}
	r := requests{cfg: cfg, tree: tree, node: node, root: root}
	if cfg.NUMA == nested {
		f, err := d.discover(ctx, cfg, link, false)
		if err != nil {
			return nil, driverError(err)
		}
		r.host = assignment.NewHost(f.machine)
	}
	domains, unread, err := d.domainCache.list(ctx, link, false)
	switch {
	case errors.Is(err, hypervisor.ErrUnsupported):
		return nil, fmt.Errorf("%w: %w", plugins.ErrUnsupported, err)
	case err != nil:
		return nil, driverError(err)
	case len(unread) > 0:
		return nil, fmt.Errorf(
			"%d of the domains cannot be read: %s; inspect it with virsh dumpxml, and fix it with virsh edit",
			len(unread), unread[0].Text)
	}
	guests := make([]plugins.Guest, len(domains))
	for i, domain := range domains {
		guests[i] = r.guest(domain)
	}
	return guests, nil
}
