// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// offline returns an agent for a command: without loops and sockets. It does not write to the state
// directory. With check it refuses an identity that the start of the agent would refuse.
func offline(cfg *config.Config, log zerolog.Logger, check bool) (_ *Agent, closeAll func() error, err error) {
	a, err := New(Options{Config: cfg, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			a.placement.CloseIdle()
		}
	}()
	a.claims.Dry = true
	if len(cfg.EnabledDrivers()) == 0 {
		return nil, nil, fmt.Errorf("%w: no driver is configured; add a table such as [drivers.libvirt] to %s",
			config.ErrInvalid, cfg.File())
	}
	a.self.uuid, err = resourcetracker.FindIdentity(cfg.Agent.StateDir, filepath.Dir(cfg.File()))
	if err != nil {
		return nil, nil, err
	}
	if check {
		if err := a.checkIdentity(); err != nil {
			return nil, nil, err
		}
	}
	if a.self.uuid == "" {
		a.self.uuid, a.self.temporary = uuid.NewString(), true // the host is new to Placement
	}
	if a.state.Disabled, err = statedir.OpenDisabled(cfg.Agent.StateDir); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(cfg.Agent.RuntimeDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("agent.runtime_dir: %w", err)
	}
	a.host, err = pluginhost.New(
		pluginhost.Options{Dir: cfg.Plugins.Dir, RuntimeDir: cfg.Agent.RuntimeDir, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	return a, func() error {
		a.placement.CloseIdle()
		return a.host.Close()
	}, nil
}

// withDrivers runs f with started drivers, without a running agent. The trackers do not run by
// themselves. A driver that does not start returns its error when it is called.
func withDrivers(
	ctx context.Context, cfg *config.Config, log zerolog.Logger, f func(ctx context.Context, a *Agent) error,
) (err error) {
	a, closeAll, err := offline(cfg, log, true) //nolint:contextcheck // closing has no time limit
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	defer a.endDrivers(ctx)
	var starting sync.WaitGroup
	defer starting.Wait()
	for _, name := range cfg.EnabledDrivers() {
		spec, err := a.spec(cfg, name)
		if err != nil {
			return err
		}
		plugin, err := a.host.Plugin(spec)
		if err != nil {
			return fmt.Errorf("%w: %w", config.ErrInvalid, err)
		}
		d := &driver{name: name, plugin: plugin}
		d.tracker = a.newTracker(d, true)
		a.drivers.add(d)
		starting.Go(func() {
			if err := plugin.Start(ctx); err != nil {
				log.Warn().Str("driver", name).Err(err).Msg("Failed to start the driver.")
			}
		})
	}
	starting.Wait()
	for _, d := range a.drivers.active() { // all of them, before any owns a node
		nodes, err := d.tracker.NamedNodes(ctx)
		a.claims.SetNodes(d.name, nodes, err)
	}
	return f(ctx, a)
}

// checkIdentity refuses an identity that the start of the agent would refuse, so that a command
// with a copied state directory does not change another host's allocations. Nothing is written.
func (a *Agent) checkIdentity() error {
	state, err := identity.Open(a.settings.current().Agent.StateDir)
	if err == nil && a.self.uuid == "" {
		err = state.CheckFirstStart(ownership.DirName)
	}
	if err == nil && a.self.uuid != "" {
		a.self.discrepancy,
			err = state.Check(identity.Self{UUID: a.self.uuid, Host: a.settings.current().Agent.Host,
			Machine: statedir.Machine(a.log)})
	}
	if err != nil {
		return &resourcetracker.FatalError{Node: a.settings.current().Agent.Host, Err: err, Protects: true}
	}
	return nil
}

// endDrivers stops the drivers of withDrivers.
func (a *Agent) endDrivers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx),
		a.settings.current().Plugins.ShutdownTimeout+time.Second)
	defer cancel()
	var ending sync.WaitGroup
	for _, d := range a.drivers.active() {
		ending.Go(func() {
			if err := d.plugin.Stop(ctx); err != nil {
				a.log.Warn().Str("driver", d.name).
					Err(err).Msg("The driver did not stop in time; its process was killed.")
			}
		})
	}
	ending.Wait()
}
