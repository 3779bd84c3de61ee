// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins/host"
)

// reload reads the configuration again and brings everything to it that can be changed while running. One that is invalid
// changes nothing. Every driver is configured anew, also when its own table did not change: what it says may depend on the
// machine.
func (a *Agent) reload(ctx context.Context, group *errgroup.Group) {
	a.log.Info().Msg("Reload: the configuration is read again.")
	a.mu.Lock()
	ready := a.ready
	a.mu.Unlock()
	if ready { // before that, systemd waits for the start
		a.tell(a.opts.Notify.Reloading("reading the configuration again"))
	}
	defer a.sayReady()
	next, err := a.opts.Load()
	if err != nil {
		a.troubles.reloaded(nil, err)
		a.log.Error().Err(err).Msg("Reload: the configuration is invalid. The previous one stays in effect; `compute-agent config check` shows what is wrong.")
		return
	}
	a.mu.Lock()
	changes := config.Diff(a.cfg, next)
	a.mu.Unlock()
	a.troubles.reloaded(changes, nil)
	for _, c := range changes {
		level, msg := zerolog.InfoLevel, "Reload: a setting changed."
		if c.Restart {
			level, msg = zerolog.WarnLevel, "Reload: a changed setting takes effect at the next restart."
		}
		a.log.WithLevel(level).Str("key", c.Key).Str("from", c.Old).Str("to", c.New).Stringer("source", c.Source).Msg(msg)
	}
	if len(changes) == 0 {
		a.log.Info().Msg("Reload: no setting changed. The drivers are configured again, and restarted where the executable changed.")
	}
	a.adopt(next)
	a.reloadProviders(next.ProviderConfigDir())
	a.reconfigureDrivers(ctx, group, next)
}

// adopt takes over what applies at once. Settings that need a restart are compared with those of the start at the next
// reload too, so the agent keeps naming them.
func (a *Agent) adopt(next *config.Config) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := *next
	now.Agent, now.PlacementClient, now.Plugins.Dir = a.cfg.Agent, a.cfg.PlacementClient, a.cfg.Plugins.Dir
	now.Tracker.StartupDeadline, now.Log.Format = a.cfg.Tracker.StartupDeadline, a.cfg.Log.Format
	now.Placement, now.CORS, now.Policy = a.cfg.Placement, a.cfg.CORS, a.cfg.Policy
	now.Metrics, now.Tracing, now.CellClient = a.cfg.Metrics, a.cfg.Tracing, a.cfg.CellClient
	a.cfg, a.reloaded = &now, time.Now()
	a.placement.SetRefreshInterval(now.Tracker.AssociationRefresh)
	for _, d := range a.drivers {
		if d.tracker != nil {
			d.tracker.SetTimings(timings(&now))
			d.tracker.SetHold(now.Reshape.OnFailure == config.OnFailureHold)
		}
	}
	if a.opts.Applied != nil {
		a.opts.Applied(&now)
	}
}

// reconfigureDrivers brings each driver, old and new, to the configuration, all at the same time: one that hangs does not keep the others
// waiting, and the reload not for longer than systemd waits. A driver that refuses keeps its former one. What is wrong with one is told as a
// condition of it, once.
func (a *Agent) reconfigureDrivers(ctx context.Context, group *errgroup.Group, next *config.Config) {
	a.mu.Lock()
	cfg := a.cfg
	known := maps.Clone(a.drivers)
	a.mu.Unlock()
	for _, name := range next.EnabledDrivers() {
		if known[name] == nil {
			a.claims.Expect(name)
		}
	}
	var all []*settling
	for _, name := range slices.Sorted(maps.Keys(known)) {
		d := known[name]
		all = append(all, a.settle(name, func() {
			switch c := cfg.Drivers[name]; {
			case c == nil || !c.Enabled:
				a.disableDriver(ctx, d)
			default:
				a.reconfigureDriver(ctx, group, cfg, d)
			}
			a.tellStatus()
		}))
	}
	for _, name := range next.EnabledDrivers() {
		if known[name] != nil {
			continue
		}
		spec, err := a.specToRun(cfg, name)
		if err == nil {
			err = a.addDriver(ctx, group, name, spec, false)
		}
		a.troubles.configured(name, err)
		if err != nil {
			a.claims.Release(name)
			a.log.Error().Str("driver", name).Err(err).Msg("Reload: the new driver cannot be started.")
		}
	}
	a.awaitSettled(ctx, all, cfg.Tracker.StartupDeadline)
	a.tellStatus()
}

// reconfigureDriver gives one driver its configuration.
func (a *Agent) reconfigureDriver(ctx context.Context, group *errgroup.Group, cfg *config.Config, d *driver) {
	spec, err := a.specToRun(cfg, d.name)
	if err == nil {
		err = d.plugin.Reconfigure(ctx, spec)
	}
	var down *host.UnavailableError
	switch {
	case ctx.Err() != nil:
		return
	case errors.As(err, &down):
		a.log.Warn().Str("driver", d.name).Err(err).Msg("Reload: the driver has its new configuration and cannot be started with it yet. It is tried again.")
	case err != nil:
		a.troubles.configured(d.name, err)
		return
	}
	a.troubles.configured(d.name, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.tracker == nil {
		a.track(ctx, group, d, false)
		return
	}
	d.tracker.Reconfigured("the configuration was read again")
}

// disableDriver ends a driver that the configuration no longer wants. What it reported stays in Placement: its absence
// says nothing about the machine.
func (a *Agent) disableDriver(ctx context.Context, d *driver) {
	a.mu.Lock()
	stop, done := d.stop, d.done
	enabled := d.tracker != nil
	a.mu.Unlock()
	if !enabled {
		return
	}
	stop()
	<-done
	a.mu.Lock()
	d.tracker = nil
	a.mu.Unlock()
	a.claims.Release(d.name)
	for _, other := range a.active() { // a node that both named is one driver's now
		other.tracker.Refresh("another driver was disabled")
	}
	if err := d.plugin.Reconfigure(ctx, host.Spec{Name: d.name, Path: d.plugin.Status().Path, Disabled: true}); err != nil {
		a.log.Error().Str("driver", d.name).Err(err).Msg("Reload: the driver could not be ended.")
		return
	}
	a.log.Warn().Str("driver", d.name).Msg("Reload: the driver is disabled. What it last reported stays in Placement until it is removed (compute-agent node remove).")
}
