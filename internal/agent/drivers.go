// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// driver is one configured driver. One that was taken out of the configuration stays known, without a tracker, so that it
// can come back.
type driver struct {
	name    string
	plugin  *host.Plugin
	tracker *resourcetracker.Tracker // nil: disabled
	stop    context.CancelFunc       // ends the tracker
	done    chan struct{}            // closed when it has ended
}

// runDrivers starts what is configured, says when it is ready, reloads when asked to, and in the end stops everything in
// order: trackers first, then the processes that they ask.
func (a *Agent) runDrivers(ctx context.Context, group *errgroup.Group) {
	if err := a.startDrivers(ctx, group); err != nil {
		group.Go(func() error { return err })
	} else {
		group.Go(func() error { a.waitReady(ctx); return nil })
		group.Go(func() error { a.watchDrivers(ctx); return nil }) // now that all drivers are known
	}
	for {
		select {
		case <-a.opts.Reload:
			a.reload(ctx, group)
			continue
		case <-ctx.Done():
		}
		break
	}
	a.log.Info().Msg("The agent stops: a pass that is under way is finished, then the drivers are ended. Guests are not affected.")
	a.tell(a.opts.Notify.Stopping("finishing the pass under way"))
	a.awaitAllSettled()
	a.mu.Lock()
	all := make([]*driver, 0, len(a.drivers))
	for _, d := range a.drivers {
		all = append(all, d)
	}
	grace := a.cfg.Plugins.ShutdownTimeout
	a.mu.Unlock()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, d := range all {
		wg.Go(func() {
			if d.done != nil {
				<-d.done
			}
			if err := d.plugin.Stop(ending); err != nil {
				a.log.Warn().Str("driver", d.name).Err(err).Msg("The driver did not end in time: its process was killed.")
			}
		})
	}
	wg.Wait()
	a.settleEnabling()
	a.log.Info().Msg("The agent has stopped.")
}

// startDrivers starts the plugins and waits for none. An error is fatal: a plugin that can never be started as configured.
func (a *Agent) startDrivers(ctx context.Context, group *errgroup.Group) error {
	if len(a.cfg.EnabledDrivers()) == 0 {
		return fmt.Errorf("%w: no driver is configured, so there is nothing to report; add a table such as [drivers.libvirt] to %s", config.ErrInvalid, a.cfg.File())
	}
	a.claims.Expect(a.cfg.EnabledDrivers()...)
	for _, name := range a.cfg.EnabledDrivers() {
		spec, err := a.specToRun(a.cfg, name)
		if err != nil {
			return err
		}
		if err := a.addDriver(ctx, group, name, spec, true); err != nil {
			return err
		}
	}
	return nil
}

// addDriver makes a plugin and its tracker and lets them run. startup: the agent itself is starting.
func (a *Agent) addDriver(ctx context.Context, group *errgroup.Group, name string, spec host.Spec, startup bool) error {
	plugin, err := a.host.Plugin(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	d := &driver{name: name, plugin: plugin}
	a.mu.Lock()
	a.drivers[name] = d
	a.track(ctx, group, d, startup)
	a.mu.Unlock()
	return nil
}

// track starts the tracker of a driver: once its plugin has had its first try, so that a start that takes a second is not
// reported as a failure. A configuration that the driver refuses at start-up is fatal. a.mu is held.
func (a *Agent) track(ctx context.Context, group *errgroup.Group, d *driver, startup bool) {
	ctx, d.stop = context.WithCancel(ctx)
	d.done = make(chan struct{})
	d.tracker = a.newTracker(d, startup)
	if a.state.Disabled.EnablingAny() {
		d.tracker.Enable(a.state.Disabled.Enabling)
	}
	tracker, done := d.tracker, d.done
	group.Go(func() error {
		defer close(done)
		err := d.plugin.Start(ctx)
		var refused *plugins.ConfigError
		switch {
		case startup && errors.As(err, &refused):
			return fmt.Errorf("%w: driver %s: %w", config.ErrInvalid, d.name, refused)
		case errors.As(err, &refused):
			a.troubles.configured(d.name, refused)
			a.tellStatus()
		case errors.Is(err, host.ErrRunning): // it was disabled and comes back
		case ctx.Err() != nil:
			return nil
		}
		return tracker.Run(ctx)
	})
}

func (a *Agent) newTracker(d *driver, startup bool) *resourcetracker.Tracker {
	return resourcetracker.New(a.trackerConfig(d, startup))
}

func (a *Agent) trackerConfig(d *driver, startup bool) resourcetracker.Config {
	return resourcetracker.Config{
		Name: d.name, Driver: d.plugin, Placement: a.admitting(d), Identity: a.identity, Timings: timings(a.cfg), Logger: a.log, Running: !startup,
		Claim: func(ctx context.Context, nodes []plugins.Node, err error) map[string]*resourcetracker.ClaimedError {
			return a.claims.Claim(ctx, d.name, nodes, err)
		},
		Elsewhere: func(root string) bool { return a.claims.Elsewhere(root, d.name) },
		Journal:   a.state.Journal, Records: a.state.Records, ProviderConfig: a.providerConfig, Disabled: a.whyDisabled, Seen: a.state.Seen, Observer: a.observer(), Hold: a.cfg.Reshape.OnFailure == config.OnFailureHold,
	}
}

// specToRun is spec for an agent that is to run the driver: it makes the driver's state directory.
func (a *Agent) specToRun(cfg *config.Config, name string) (host.Spec, error) {
	if err := makeDriverState(cfg, name); err != nil {
		return host.Spec{}, err
	}
	return a.spec(cfg, name)
}

// spec is what the host must know of a driver. Nothing is written.
func (a *Agent) spec(cfg *config.Config, name string) (host.Spec, error) {
	c := cfg.Drivers[name]
	timeouts, restart := cfg.Process(name)
	own, err := c.ConfigJSON()
	if err != nil {
		return host.Spec{}, fmt.Errorf("%w: drivers.%s.config: %w", config.ErrInvalid, name, err)
	}
	return host.Spec{
		Name: name, Path: c.Path, Searched: cfg.PluginDirsOf(name), SHA256: c.SHA256, Args: c.Args, Env: c.Env, Config: own, Disabled: !c.Enabled,
		HostInfo: plugins.HostInfo{Name: cfg.Agent.Host, StateDir: driverState(cfg, name)},
		Timeouts: host.Timeouts{
			Handshake: timeouts.Start, Configure: timeouts.Configure, Nodes: timeouts.Nodes, Update: timeouts.Update, Health: timeouts.Health, Stop: timeouts.Stop,
			Instance: timeouts.Instance,
		},
		Restart: host.Restart{
			HealthInterval: restart.HealthInterval, Misses: restart.HealthMisses, BackoffBase: restart.BackoffMin, BackoffMax: restart.BackoffMax,
			ResetAfter: restart.CrashWindow, FailureLimit: restart.CrashLimit, FailureWindow: restart.CrashWindow, Quarantine: restart.Quarantine,
		},
		Changed: func(string) { a.changed(name) }, InstanceChanged: a.instanceChanged,
	}, nil
}

// changed tells a driver's tracker that the driver sees a change.
func (a *Agent) changed(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.drivers[name]; d != nil && d.tracker != nil {
		d.tracker.Changed("the driver sees a change")
	}
}

func timings(cfg *config.Config) resourcetracker.Timings {
	t := cfg.Tracker
	return resourcetracker.Timings{Interval: t.UpdateResourcesInterval, PassDeadline: t.PassDeadline, BackoffMin: t.RetryBackoffMin, BackoffMax: t.RetryBackoffMax}
}

// waitReady says that the agent is ready when every tracker has made its first turn, or at the start-up deadline.
func (a *Agent) waitReady(ctx context.Context) {
	limit := a.opts.Config.Tracker.StartupDeadline
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	late := false
	for _, d := range a.active() {
		if late {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-d.tracker.Ready():
		case <-d.done: // a reload took it away
		case <-deadline.C:
			late = true
			a.log.Warn().Str("driver", d.name).Stringer("startup_deadline", limit).
				Msg("The first pass was not finished at the start-up deadline. The agent counts as started and is degraded. It retries.")
		}
	}
	if ctx.Err() != nil { // a driver that ended the agent has ended, too
		return
	}
	a.mu.Lock()
	a.ready = true
	a.mu.Unlock()
	a.settleEnabling()
	a.sayReady()
	if a.opts.OnReady != nil {
		a.opts.OnReady(ctx, a)
	}
}

// sayReady tells systemd that start-up, or a reload after it, is finished.
func (a *Agent) sayReady() {
	a.mu.Lock()
	ready := a.ready
	a.mu.Unlock()
	if ready {
		a.tell(a.opts.Notify.Ready(a.summary()))
	}
}
