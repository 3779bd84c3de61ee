// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// settings is the configuration in effect.
type settings struct {
	mu       sync.Mutex
	cfg      *config.Config
	reloaded time.Time // zero: never
}

// current returns the configuration in effect. It is never modified.
func (s *settings) current() *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// lastReload returns the time of the last reload, zero if there was none.
func (s *settings) lastReload() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reloaded
}

// apply puts a configuration into effect, except settings that need a restart: these stay, so that
// the next reload reports them again.
func (s *settings) apply(next *config.Config) *config.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := *next
	now.Agent, now.PlacementClient, now.Plugins.Dir = s.cfg.Agent, s.cfg.PlacementClient, s.cfg.Plugins.Dir
	now.Tracker.StartupDeadline, now.Log.Format = s.cfg.Tracker.StartupDeadline, s.cfg.Log.Format
	now.Placement, now.CORS, now.Policy = s.cfg.Placement, s.cfg.CORS, s.cfg.Policy
	now.Metrics, now.Tracing, now.CellClient = s.cfg.Metrics, s.cfg.Tracing, s.cfg.CellClient
	s.cfg, s.reloaded = &now, time.Now()
	return s.cfg
}

// reload reads the configuration and applies what can change at run time. An invalid one changes
// nothing. Every driver is configured again, even if its table did not change, because its result
// may depend on the machine.
func (a *Agent) reload(ctx context.Context, group *errgroup.Group) {
	a.log.Info().Msg("Reload: reading the configuration.")
	if a.ready.Load() { // before that, systemd waits for the start
		a.logNotify(a.opts.Notify.Reloading("reading the configuration"))
	}
	defer a.notifyReady()
	next, err := a.opts.Load()
	if err != nil {
		a.conditions.problems.reloaded(nil, err)
		a.log.Error().Err(err).
			Msg("Reload: the configuration is invalid. The previous one stays in effect; `compute-agent config " +
				"check` shows what is wrong.")
		return
	}
	changes := config.Diff(a.settings.current(), next)
	a.conditions.problems.reloaded(changes, nil)
	for _, c := range changes {
		level, msg := zerolog.InfoLevel, "Reload: a setting changed."
		if c.Restart {
			level, msg = zerolog.WarnLevel, "Reload: a changed setting takes effect at the next restart."
		}
		a.log.WithLevel(level).Str("key", c.Key).Str("from", c.Old).Str("to", c.New).
			Stringer("source", c.Source).Msg(msg)
	}
	if len(changes) == 0 {
		a.log.Info().Msg(
			"Reload: no setting changed. Drivers are configured again, and restarted if their executable changed.")
	}
	cfg := a.apply(next)
	a.reloadProviders(next.ProviderConfigDir())
	a.reconfigureDrivers(ctx, group, cfg)
}

// apply applies a configuration to the agent and its trackers.
func (a *Agent) apply(next *config.Config) *config.Config {
	cfg := a.settings.apply(next)
	a.placement.SetRefreshInterval(cfg.Tracker.AssociationRefresh)
	a.drivers.each(func(t *resourcetracker.Tracker) {
		t.SetTimings(timings(cfg))
		t.SetHold(cfg.Reshape.OnFailure == config.OnFailureHold)
	})
	if a.opts.Applied != nil {
		a.opts.Applied(cfg)
	}
	return cfg
}

// reconfigureDrivers applies the configuration to all drivers, old and new, concurrently: one that
// hangs delays neither the others nor the reload. A driver that rejects its configuration keeps the
// previous one. Failures become conditions.
func (a *Agent) reconfigureDrivers(ctx context.Context, group *errgroup.Group, cfg *config.Config) {
	known := a.drivers.all()
	for _, name := range cfg.EnabledDrivers() {
		if known[name] == nil {
			a.claims.Expect(name)
		}
	}
	var all []*reconfiguration
	for _, name := range slices.Sorted(maps.Keys(known)) {
		d := known[name]
		all = append(all, a.drivers.reconfigure(name, func() {
			switch c := cfg.Drivers[name]; {
			case c == nil || !c.Enabled:
				a.disableDriver(ctx, d)
			default:
				a.reconfigureDriver(ctx, group, cfg, d)
			}
			a.publishStatus()
		}))
	}
	for _, name := range cfg.EnabledDrivers() {
		if known[name] != nil {
			continue
		}
		spec, err := a.specToRun(cfg, name)
		if err == nil {
			err = a.addDriver(ctx, group, name, spec, false)
		}
		a.conditions.problems.configured(name, err)
		if err != nil {
			a.claims.Release(name)
			a.log.Error().Str("driver", name).Err(err).Msg("Reload: failed to start the new driver.")
		}
	}
	a.awaitReload(ctx, all, cfg.Tracker.StartupDeadline)
	a.publishStatus()
}

// reconfigureDriver applies the configuration to one driver.
func (a *Agent) reconfigureDriver(ctx context.Context, group *errgroup.Group, cfg *config.Config, d *driver) {
	spec, err := a.specToRun(cfg, d.name)
	if err == nil {
		err = d.plugin.Reconfigure(ctx, spec)
	}
	var down *pluginhost.UnavailableError
	switch {
	case ctx.Err() != nil:
		return
	case errors.As(err, &down):
		a.log.Warn().Str("driver", d.name).Err(err).
			Msg("Reload: the driver cannot be started with its new configuration yet; retrying.")
	case err != nil:
		a.conditions.problems.configured(d.name, err)
		return
	}
	a.conditions.problems.configured(d.name, nil)
	a.drivers.mu.Lock()
	tracker := d.tracker
	a.drivers.mu.Unlock()
	if tracker == nil {
		a.track(ctx, group, d, false)
		return
	}
	tracker.Reconfigured("the configuration was reloaded")
}

// disableDriver stops a driver that is no longer configured. What it reported stays in Placement,
// because its absence does not mean that the hardware is gone.
func (a *Agent) disableDriver(ctx context.Context, d *driver) {
	a.drivers.mu.Lock()
	stop, done := d.stop, d.done
	enabled := d.tracker != nil
	a.drivers.mu.Unlock()
	if !enabled {
		return
	}
	stop()
	<-done
	a.drivers.mu.Lock()
	d.tracker = nil
	a.drivers.mu.Unlock()
	a.claims.Release(d.name)
	for _, other := range a.drivers.active() { // nodes that both reported belong to the other one now
		other.tracker.Refresh("another driver was disabled")
	}
	if err := d.plugin.Reconfigure(ctx,
		pluginhost.Spec{Name: d.name, Path: d.plugin.Status().Path, Disabled: true}); err != nil {
		a.log.Error().Str("driver", d.name).Err(err).Msg("Reload: failed to stop the driver.")
		return
	}
	a.log.Warn().Str("driver", d.name).
		Msg("Reload: the driver is disabled. What it last reported stays in Placement until it is removed " +
			"(compute-agent node remove).")
}
