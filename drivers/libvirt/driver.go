// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hostfs"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// watchInterval is how often the kernel's list of online CPUs is read.
const watchInterval = 10 * time.Second

// Driver implements [plugins.Driver], and Watcher, HealthChecker, GuestLister and Shutdowner with it.
type Driver struct {
	open hypervisor.Open
	news chan struct{} // a connection was made; holds at most one

	// What UpdateProviderTree remembers from pass to pass.
	known    expansion
	doubts   doubts
	disks    disks
	toldDisk string

	mu   sync.Mutex // for what Health, Watch and Shutdown see
	cfg  config
	link *hypervisor.Link
}

var (
	_ plugins.Driver        = (*Driver)(nil)
	_ plugins.Watcher       = (*Driver)(nil)
	_ plugins.HealthChecker = (*Driver)(nil)
	_ plugins.GuestLister   = (*Driver)(nil)
	_ plugins.Shutdowner    = (*Driver)(nil)
)

func newDriver(open hypervisor.Open) *Driver {
	return &Driver{open: open, news: make(chan struct{}, 1), disks: disks{measure: measureDisk}}
}

// Info names the driver.
func (d *Driver) Info() plugins.Info { return plugins.Info{Name: "libvirt", Version: version.Number()} }

// ConfigSchema describes the keys of the configuration.
func (d *Driver) ConfigSchema() []byte { return slices.Clone(schema) }

// Configure takes the configuration and begins to connect to libvirt. A libvirt that is not there is no error.
func (d *Driver) Configure(ctx context.Context, raw json.RawMessage, host plugins.HostInfo) error {
	cfg, err := parseConfig(raw, host)
	if err != nil {
		return err
	}
	d.mu.Lock()
	old, former := d.link, d.cfg
	d.cfg = cfg
	same := old != nil && former.URI == cfg.URI && former.connectTimeout == cfg.connectTimeout && former.callTimeout == cfg.callTimeout
	if !same {
		d.link = hypervisor.NewLink(hypervisor.Settings{ //nolint:contextcheck // the connection outlives this call
			URI: cfg.URI, Open: d.open, ConnectTimeout: cfg.connectTimeout, CallTimeout: cfg.callTimeout,
			Explain: hypervisor.Explain, Up: d.connected,
		})
	}
	d.mu.Unlock()
	if old != nil && !same {
		if err := old.Close(ctx); err != nil {
			logger := plugins.Logger(ctx)
			logger.Warn().Err(err).Str("uri", former.URI).Msg("The former connection to libvirt could not be closed properly. The new one is not affected.")
		}
	}
	return nil
}

func (d *Driver) connected() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

func (d *Driver) current() (config, *hypervisor.Link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.link == nil {
		return config{}, nil, &plugins.NotReady{Reason: "the libvirt driver has not been configured yet"}
	}
	return d.cfg, d.link, nil
}

// AvailableNodes is the machine itself. Its identity is the agent's.
func (d *Driver) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	name, err := d.nodeName(ctx)
	if err != nil {
		return nil, answer(err)
	}
	return []plugins.Node{{Name: name}}, nil
}

func (d *Driver) nodeName(ctx context.Context) (string, error) {
	cfg, link, err := d.current()
	if err != nil || cfg.Host != "" {
		return cfg.Host, err
	}
	return surveyHostname(ctx, link)
}

// UpdateProviderTree says on the root of the node what the machine has.
//
// Cost: four calls of libvirt (some 10 ms altogether, but seconds for the first, in which libvirt questions its
// emulators), a few files of /sys and /proc per CPU, one statfs.
func (d *Driver) UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations) (providertree.Allocations, error) {
	root, ok := tree.ProviderByName(node)
	switch {
	case !ok:
		return nil, fmt.Errorf("the tree has no resource provider %q", node)
	case root.ParentUUID != "":
		return nil, fmt.Errorf("resource provider %q is not the root of a tree", node)
	}
	if name, err := d.nodeName(ctx); err != nil {
		return nil, answer(err)
	} else if name != node {
		return nil, fmt.Errorf("the libvirt driver knows the node %q only, not %q", name, node)
	}
	cfg, link, err := d.current()
	if err != nil {
		return nil, err
	}
	known := d.known
	a, err := hypervisor.Call(ctx, link, "the host's inventory", func(c hypervisor.Conn) (answers, error) { return ask(c, known) })
	if err != nil {
		return nil, answer(err)
	}
	d.known = expansion{cpu: a.caps.CPU, features: a.expanded}
	disk, err := d.disks.survey(ctx, cfg.InstancesPath)
	if err != nil {
		return nil, answer(err)
	}
	d.doubts.begin()
	f, err := survey(a, disk, hostfs.Root(cfg.Chroot), &d.doubts)
	if err != nil {
		return nil, answer(err)
	}
	d.tell(ctx, f)
	if err := report(tree, root.UUID, f, cfg); err != nil {
		return nil, fmt.Errorf("node %q: %w", node, err)
	}
	return allocations, nil
}

// tell logs what an operator may not expect, once.
func (d *Driver) tell(ctx context.Context, f facts) {
	logger := plugins.Logger(ctx)
	d.doubts.log(logger)
	if d.toldDisk != f.disk.Path {
		d.toldDisk = f.disk.Path
		logger.Info().Str("directory", f.disk.Path).Msg("DISK_GB is the size of the file system of this directory. Set instances_path in the libvirt driver's configuration if it is another one.")
	}
}

// notReadyError marks an error as one of the machine's state.
type notReadyError struct{ error }

func (e *notReadyError) Unwrap() error { return e.error }

// answer makes of an error what the agent understands: NotReady while libvirt or the disk is away.
func answer(err error) error {
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

// Watch says to look again whenever a connection to libvirt was made, and when CPUs went online or offline.
func (d *Driver) Watch(ctx context.Context, changed func(node string)) error {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	cpus := d.onlineCPUs()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.news:
			changed("")
		case <-tick.C:
			// A list that cannot be read now says nothing.
			if now := d.onlineCPUs(); now != nil && !slices.Equal(now, cpus) {
				if cpus != nil {
					changed("")
				}
				cpus = now
			}
		}
	}
}

func (d *Driver) onlineCPUs() []int {
	d.mu.Lock()
	root := hostfs.Root(d.cfg.Chroot)
	d.mu.Unlock()
	cpus, err := root.OnlineCPUs()
	if err != nil {
		return nil
	}
	return cpus
}

// Shutdown closes the connection.
func (d *Driver) Shutdown(ctx context.Context) error {
	d.mu.Lock()
	link := d.link
	d.mu.Unlock()
	if link == nil {
		return nil
	}
	return link.Close(ctx)
}
