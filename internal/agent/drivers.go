// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// driver is one configured driver. After its removal from the configuration it stays, without a
// tracker, so that it can be enabled again.
type driver struct {
	name    string
	plugin  *pluginhost.Plugin
	tracker *resourcetracker.Tracker // nil: disabled
	stop    context.CancelFunc       // stops the tracker
	done    chan struct{}            // closed when the tracker has stopped
}

// driverSet holds the drivers and their running reconfigurations.
type driverSet struct {
	mu      sync.Mutex
	byName  map[string]*driver          // guarded by mu, as are the drivers' fields except name and plugin
	reloads map[string]*reconfiguration // the last one of each driver; guarded by mu
}

// add adds a driver.
func (s *driverSet) add(d *driver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byName[d.name] = d
}

// all returns all drivers by name, disabled ones included.
func (s *driverSet) all() map[string]*driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.byName)
}

// disabled returns the names of disabled drivers.
func (s *driverSet) disabled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for name, d := range s.byName {
		if d.tracker == nil {
			out = append(out, name)
		}
	}
	return out
}

// each calls f with the tracker of each enabled driver, while no tracker starts or stops.
func (s *driverSet) each(f func(*resourcetracker.Tracker)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.byName {
		if d.tracker != nil {
			f(d.tracker)
		}
	}
}

// active is a snapshot of an enabled driver. A reload may change the driver later.
type active struct {
	name    string
	plugin  *pluginhost.Plugin
	tracker *resourcetracker.Tracker
	done    <-chan struct{}
}

// active returns the enabled drivers sorted by name.
func (s *driverSet) active() []active {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]active, 0, len(s.byName))
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if d := s.byName[name]; d.tracker != nil {
			out = append(out, active{name: name, plugin: d.plugin, tracker: d.tracker, done: d.done})
		}
	}
	return out
}

// observer returns the observer of trackers.
func (a *Agent) observer() resourcetracker.Observer {
	return a.telemetry.Observer(passEnds{a.absence.check})
}

// passEnds calls ended after every pass.
type passEnds struct{ ended func() }

// Begin implements [resourcetracker.Observer].
func (p passEnds) Begin(ctx context.Context, step resourcetracker.Step, _, _ string) (context.Context, func(error)) {
	if step == resourcetracker.StepPass {
		return ctx, func(error) { p.ended() }
	}
	return ctx, func(error) {}
}

// Count implements [resourcetracker.Observer].
func (passEnds) Count(resourcetracker.Event, string, string, int) {}

// runDrivers starts the drivers, handles reloads, and stops trackers before their plugins.
func (a *Agent) runDrivers(ctx context.Context, group *errgroup.Group) {
	if err := a.startDrivers(ctx, group); err != nil {
		group.Go(func() error { return err })
	} else {
		group.Go(func() error { a.waitReady(ctx); return nil })
		group.Go(func() error { a.watchDrivers(ctx); return nil }) // needs all drivers
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
	a.log.Info().Msg("Stopping: the current pass finishes, then the drivers stop. Guests are not affected.")
	a.logNotify(a.opts.Notify.Stopping("finishing the current pass"))
	a.drivers.awaitReconfigured()
	grace := a.settings.current().Plugins.ShutdownTimeout
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace+5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, d := range a.drivers.all() {
		wg.Go(func() {
			if d.done != nil {
				<-d.done
			}
			if err := d.plugin.Stop(ending); err != nil {
				a.log.Warn().Str("driver", d.name).
					Err(err).Msg("The driver did not stop in time; its process was killed.")
			}
		})
	}
	wg.Wait()
	a.finishEnabling()
	a.log.Info().Msg("The agent has stopped.")
}

// startDrivers starts the plugins without waiting. An error is fatal: the configuration can never
// work.
func (a *Agent) startDrivers(ctx context.Context, group *errgroup.Group) error {
	if len(a.settings.current().EnabledDrivers()) == 0 {
		return fmt.Errorf(
			"%w: no driver is configured, so there is nothing to report; add a table such as [drivers.libvirt] to %s",
			config.ErrInvalid, a.settings.current().File())
	}
	a.claims.Expect(a.settings.current().EnabledDrivers()...)
	for _, name := range a.settings.current().EnabledDrivers() {
		spec, err := a.specToRun(a.settings.current(), name)
		if err != nil {
			return err
		}
		if err := a.addDriver(ctx, group, name, spec, true); err != nil {
			return err
		}
	}
	return nil
}

// addDriver creates and runs a plugin and its tracker. startup means that the agent is starting.
func (a *Agent) addDriver(
	ctx context.Context, group *errgroup.Group, name string, spec pluginhost.Spec, startup bool,
) error {
	plugin, err := a.host.Plugin(spec)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	d := &driver{name: name, plugin: plugin}
	a.drivers.add(d)
	a.track(ctx, group, d, startup)
	return nil
}

// track starts the tracker of a driver, after the first attempt to start its plugin, so that a slow
// start is not reported as a failure. A configuration that the driver rejects at start-up is fatal.
func (a *Agent) track(ctx context.Context, group *errgroup.Group, d *driver, startup bool) {
	ctx, stop := context.WithCancel(ctx)
	tracker, done := a.startTracker(d, stop, startup)
	group.Go(func() error {
		defer close(done)
		err := d.plugin.Start(ctx)
		var refused *plugins.ConfigError
		switch {
		case startup && errors.As(err, &refused):
			return fmt.Errorf("%w: driver %s: %w", config.ErrInvalid, d.name, refused)
		case errors.As(err, &refused):
			a.conditions.problems.configured(d.name, refused)
			a.publishStatus()
		case errors.Is(err, pluginhost.ErrRunning): // it was disabled before
		case ctx.Err() != nil:
			return nil
		}
		return tracker.Run(ctx)
	})
}

// startTracker sets the tracker of a driver. The lock makes reloads change its settings either
// before or after.
func (a *Agent) startTracker(
	d *driver, stop context.CancelFunc, startup bool,
) (tracker *resourcetracker.Tracker, done chan struct{}) {
	a.drivers.mu.Lock()
	defer a.drivers.mu.Unlock()
	d.stop, d.done, d.tracker = stop, make(chan struct{}), a.newTracker(d, startup)
	if a.state.Disabled.EnablingAny() {
		d.tracker.Enable(a.state.Disabled.Enabling)
	}
	return d.tracker, d.done
}

func (a *Agent) newTracker(d *driver, startup bool) *resourcetracker.Tracker {
	return resourcetracker.New(a.trackerConfig(d, startup))
}

func (a *Agent) trackerConfig(d *driver, startup bool) resourcetracker.Config {
	cfg := a.settings.current()
	return resourcetracker.Config{
		Name:      d.name,
		Driver:    d.plugin,
		Placement: a.admitting(d),
		Identity:  a.self.uuid,
		Timings:   timings(cfg),
		Logger:    a.log,
		Running:   !startup,
		Claim: func(ctx context.Context, nodes []plugins.Node, err error) map[string]*resourcetracker.ClaimedError {
			return a.claims.Claim(ctx, d.name, nodes, err)
		},
		HasOtherDriver: func(root string) bool { return a.claims.HasOtherDriver(root, d.name) },
		ReportedBy: func(ctx context.Context, root string) (string, error) {
			host, _, err := a.reportedBy(ctx, root)
			return host, err
		},
		NodeRemoved:    a.forgetNode,
		Journal:        a.state.Journal,
		Records:        a.state.Records,
		ProviderConfig: a.providerConfig,
		Disabled:       a.whyDisabled,
		Seen:           a.state.Seen,
		Compare:        a.differing,
		Observer:       a.observer(),
		Hold:           cfg.Reshape.OnFailure == config.OnFailureHold,
	}
}

// specToRun creates the driver's state directory and returns spec.
func (a *Agent) specToRun(cfg *config.Config, name string) (pluginhost.Spec, error) {
	if err := statedir.MakeDriverDir(cfg.Agent.StateDir, name); err != nil {
		return pluginhost.Spec{}, err
	}
	return a.spec(cfg, name)
}

// Executable returns what a configured driver is and what it is given: executable, digest,
// arguments, environment and its own configuration.
func Executable(cfg *config.Config, name string) (pluginhost.Spec, error) {
	c := cfg.Drivers[name]
	own, err := c.ConfigJSON()
	if err != nil {
		return pluginhost.Spec{}, fmt.Errorf("%w: drivers.%s.config: %w", config.ErrInvalid, name, err)
	}
	return pluginhost.Spec{Name: name, Path: c.Path, Searched: cfg.PluginDirsOf(name), SHA256: c.SHA256, Args: c.Args,
		Env: c.Env, Config: own, Sandbox: driverSandbox(cfg, name)}, nil
}

// spec returns the plugin host's specification of a driver whose changes this agent handles.
func (a *Agent) spec(cfg *config.Config, name string) (pluginhost.Spec, error) {
	s, err := Spec(cfg, name, a.state.Identity)
	s.Changed, s.InstanceChanged = func(string) { a.changed(name) }, a.instanceChanged
	return s, err
}

// Spec returns the plugin host's specification of a driver. state is the host's identity; nil: it
// is read. Nothing is written.
func Spec(cfg *config.Config, name string, state *identity.State) (pluginhost.Spec, error) {
	s, err := Executable(cfg, name)
	if err != nil {
		return pluginhost.Spec{}, err
	}
	timeouts, restart := cfg.Process(name)
	s.Disabled = !cfg.Drivers[name].Enabled
	s.HostInfo = plugins.HostInfo{Name: cfg.Agent.Host, StateDir: statedir.DriverDir(cfg.Agent.StateDir, name)}
	if state == nil { // a command without the daemon, perhaps of a user who may not read this
		state, _ = identity.Open(cfg.Agent.StateDir)
	}
	if state != nil {
		r, _ := state.Record()
		s.HostInfo.FormerNodes = r.Former
	}
	s.Timeouts = driverclient.Timeouts{
		Handshake: timeouts.Start, Configure: timeouts.Configure, Nodes: timeouts.Nodes, Update: timeouts.Update,
		Health: timeouts.Health, Stop: timeouts.Stop,
		Instance: timeouts.Instance,
	}
	s.Restart = pluginhost.Restart{
		HealthInterval: restart.HealthInterval, Misses: restart.HealthMisses, BackoffBase: restart.BackoffMin,
		BackoffMax: restart.BackoffMax,
		ResetAfter: restart.CrashWindow, FailureLimit: restart.CrashLimit, FailureWindow: restart.CrashWindow,
		Quarantine: restart.Quarantine,
	}
	return s, nil
}

// changed notifies a driver's tracker of a change that the driver reports.
func (a *Agent) changed(name string) {
	a.drivers.mu.Lock()
	defer a.drivers.mu.Unlock()
	if d := a.drivers.byName[name]; d != nil && d.tracker != nil {
		d.tracker.Changed("the driver reports a change")
	}
}

func timings(cfg *config.Config) resourcetracker.Timings {
	t := cfg.Tracker
	return resourcetracker.Timings{Interval: t.UpdateResourcesInterval, PassDeadline: t.PassDeadline,
		BackoffMin: t.RetryBackoffMin, BackoffMax: t.RetryBackoffMax}
}

// waitReady reports the agent as ready when every tracker has finished its first pass, or at the
// start-up deadline.
func (a *Agent) waitReady(ctx context.Context) {
	limit := a.opts.Config.Tracker.StartupDeadline
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	late := false
	for _, d := range a.drivers.active() {
		if late {
			break
		}
		select {
		case <-ctx.Done():
			return
		case <-d.tracker.Ready():
		case <-d.done: // a reload disabled it
		case <-deadline.C:
			late = true
			a.log.Warn().Str("driver", d.name).Stringer("startup_deadline", limit).
				Msg("The first pass did not finish before the start-up deadline. The agent counts as started, is " +
					"degraded, and retries.")
		}
	}
	if ctx.Err() != nil { // the driver's tracker may have stopped the agent
		return
	}
	a.ready.Store(true)
	a.finishEnabling()
	a.notifyReady()
	if a.opts.OnReady != nil {
		a.opts.OnReady(ctx, a)
	}
}

// notifyReady notifies systemd of the end of start-up or of a reload.
func (a *Agent) notifyReady() {
	if a.ready.Load() {
		a.logNotify(a.opts.Notify.Ready(a.summary()))
	}
}
