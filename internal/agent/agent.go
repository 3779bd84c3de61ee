// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/agent/telemetry"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
	"github.com/compute-agent/compute-agent/systemd"
)

// Options configure an [Agent].
type Options struct {
	Config *config.Config
	// Load reads the configuration for a reload.
	Load func() (*config.Config, error)
	// Configuration returns the sources of Load, for commands that check the configuration.
	Configuration func(*config.Config) control.Configuration
	// Reload requests a reload for each value (SIGHUP).
	Reload <-chan os.Signal
	// Applied is called with the new configuration after each reload, for what the agent does not
	// own, such as the log level.
	Applied func(*config.Config)
	// Bundled means that Placement runs in this process.
	Bundled bool
	// Notify notifies systemd; nil for none.
	Notify *systemd.Notifier
	// OnReady is called once, after the first pass of every tracker or at the start-up deadline.
	OnReady func(ctx context.Context, a *Agent)
	Logger  zerolog.Logger
}

// Agent is the daemon. Create it with [New] and call Run once. Each part owns its state, and is in
// the file of its type: self (identity.go), settings (reload.go), drivers (drivers.go,
// reconfigure.go), conditions (conditions.go), absence (absence.go), cell (cell.go), renewer
// (renewal.go).
type Agent struct {
	opts      Options
	log       zerolog.Logger
	placement *reportclient.Client
	host      *pluginhost.Host
	state     *statedir.State
	providers *providerconfig.Source
	self      self
	started   time.Time
	telemetry telemetry.Telemetry
	// user detects other agents that run as the same user.
	user statedir.SoleUser

	settings   settings
	drivers    driverSet
	claims     statedir.Claims
	conditions conditions
	absence    absence
	ready      atomic.Bool
	run        thisRun
	cell       *cellService       // nil: none is configured
	renewer    *enrolment.Renewer // nil: this host has no certificate
}

// New validates the options without starting anything.
func New(opts Options) (*Agent, error) {
	providers, err := openProviders(opts.Config)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		opts: opts, log: opts.Logger, state: statedir.New(opts.Config.Agent.StateDir),
		providers: providers, started: time.Now(),
		telemetry: telemetry.Telemetry{Metrics: telemetry.NewMetrics(nil)}, settings: settings{cfg: opts.Config},
		drivers: driverSet{byName: map[string]*driver{}, reloads: map[string]*reconfiguration{}},
		absence: absence{changed: make(chan struct{}, 1)},
		user:    statedir.CurrentUser(), run: thisRun{own: process()},
	}
	a.placement, err = access.NewReportClient(opts.Config,
		a.state.Journal, a.telemetry.Request, &a.run.placement, opts.Logger)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	if a.cell, err = a.newCell(opts.Config.CellClient); err != nil {
		return nil, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	a.renewer = a.newRenewer(opts.Config)
	a.telemetry.Watch(a.statusWithUsage)
	a.claims.Recorded = a.owners
	return a, nil
}

// Run runs the agent until ctx ends or a tracker reports a [*resourcetracker.FatalError], which
// only happens during the start-up of a node. When it returns, no process, socket or goroutine of
// the agent is left.
func (a *Agent) Run(ctx context.Context) (err error) {
	unlock, err := a.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	socket, err := control.Open(ctx, a.settings.current().Agent.ControlSocket())
	if ctx.Err() != nil { // stopped during start-up
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	web, err := listenMetrics(ctx, a.settings.current().Metrics.Listen)
	if err != nil {
		return err
	}
	spans, err := StartTracing(ctx, a.settings.current(), tracedAgent, a.log)
	if err != nil {
		return err
	}
	defer spans.Close(ctx)
	a.telemetry.Trace(spans) // before anything is traced
	a.host, err = pluginhost.New(
		pluginhost.Options{Dir: a.settings.current().Plugins.Dir, RuntimeDir: a.settings.current().Agent.RuntimeDir,
			Logger: a.log, OnTransition: a.pluginTransition,
			Observe: a.telemetry.DriverCall},
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.host.Close()) }() //nolint:contextcheck // closing has no time limit
	defer a.placement.CloseIdle()

	a.log.Info().Str("host", a.settings.current().Agent.Host).Str("identity", a.self.uuid).
		Str("placement", placementEndpoint(a.settings.current().PlacementClient)).
		Strs("drivers", a.settings.current().EnabledDrivers()).Msg("The agent starts.")
	group, ctx := errgroup.WithContext(ctx)
	watch, stopWatching := context.WithCancel(context.WithoutCancel(ctx)) // feed the watchdog until the end
	defer stopWatching()
	group.Go(func() error { return socket.Serve(ctx, a, a.log) })
	if web != nil {
		group.Go(func() error { a.serveMetrics(ctx, web); return nil })
	}
	group.Go(func() error { a.serveCell(ctx); return nil })
	group.Go(func() error { a.renewCertificate(ctx); return nil })
	group.Go(func() error { a.runDrivers(ctx, group); stopWatching(); return nil })
	group.Go(func() error { a.opts.Notify.Watchdog(watch, a.lastBeat, a.log); return nil })
	group.Go(func() error { a.keepStatus(ctx); return nil })
	return group.Wait()
}

// prepare creates the directories, locks the state directory, and reads the host's identity.
func (a *Agent) prepare() (unlock func(), err error) {
	if err := statedir.Make(a.settings.current().Agent.StateDir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(a.settings.current().Agent.RuntimeDir, 0o700); err != nil {
		return nil, fmt.Errorf("agent.runtime_dir: %w; `compute-agent doctor` suggests a fix", err)
	}
	unlock, err = statedir.Lock(a.settings.current().Agent.StateDir)
	if err != nil {
		return nil, err
	}
	release, err := a.user.Acquire(a.settings.current().Agent.ShareUser, a.log)
	if err != nil {
		unlock()
		return nil, &resourcetracker.FatalError{Node: a.settings.current().Agent.Host, Err: err, Protects: true}
	}
	state := unlock
	unlock = func() { release(); state() }
	if err := a.identify(); err != nil {
		unlock()
		return nil, err
	}
	if a.state.Disabled, err = statedir.OpenDisabled(a.settings.current().Agent.StateDir); err != nil {
		unlock()
		return nil, &resourcetracker.FatalError{Node: a.settings.current().Agent.Host, Err: err, Protects: true}
	}
	a.run.begin(a.settings.current().Agent.Host, a.self.uuid)
	a.logDisabled()
	if a.providers.Config().Len() > 0 || len(a.providers.Warnings()) > 0 {
		a.logProviders("Read the provider.yaml files.")
	}
	a.loadJournal()
	return unlock, nil
}

// placementEndpoint describes the endpoint for logs, before it is known.
func placementEndpoint(c config.PlacementClient) string {
	if c.URL == "" {
		return "from the catalog of Keystone at " + c.Keystone.AuthURL
	}
	return c.URL
}

// owners returns the drivers of the nodes recorded in the state directory.
func (a *Agent) owners() map[string]statedir.Owner { return a.state.Owners(a.log) }

// lastBeat returns the oldest heartbeat of all trackers: one that hangs makes the watchdog restart
// the agent.
func (a *Agent) lastBeat() time.Time {
	oldest := time.Now()
	for _, d := range a.drivers.active() {
		if beat := d.tracker.LastHeartbeat(); beat.Before(oldest) {
			oldest = beat
		}
	}
	return oldest
}

// statusInterval is the interval of updates to systemd's status line.
const statusInterval = 5 * time.Second

func (a *Agent) keepStatus(ctx context.Context) {
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.publishStatus()
			a.finishEnabling()
		}
	}
}

// pluginTransition handles a change of a plugin's state.
func (a *Agent) pluginTransition(s pluginhost.Status) {
	a.telemetry.PluginTransition(s.Name, s.State)
	a.absence.check()
	a.publishStatus()
}

// publishStatus evaluates and logs the agent's conditions, and updates systemd's status line.
func (a *Agent) publishStatus() {
	summary := a.summary()
	if a.opts.Notify.Enabled() {
		a.logNotify(a.opts.Notify.Status(summary))
	}
}

func (a *Agent) summary() string {
	return a.currentStatus().Summary
}

// logNotify logs a failed notification of systemd, which does not affect the agent.
func (a *Agent) logNotify(err error) {
	if err != nil {
		a.log.Warn().Err(err).Msg("Failed to report the agent's state to systemd.")
	}
}

// Names of the services in spans.
const (
	TracedPlacement  = "placement"
	TracedComputeAPI = "compute-api"
	TracedCell       = "cell"
	tracedAgent      = "compute-agent"
)

// StartTracing starts tracing of a service, this agent or another one, as [tracing] has it; nil if
// that names no collector. Close it after the service, which delivers queued spans, for a limited
// time.
func StartTracing(
	ctx context.Context, cfg *config.Config, service string, log zerolog.Logger,
) (*tracing.Tracing, error) {
	c := cfg.Tracing
	spans, err := tracing.New(ctx, tracing.Config{
		Endpoint: c.Endpoint, SampleRatio: c.SampleRatio,
		TrustClients: c.TrustClients, Service: service, Host: cfg.Agent.Host, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: tracing.endpoint: %w", config.ErrInvalid, err)
	}
	return spans, nil
}
