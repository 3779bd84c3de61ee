// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/disabled"
	"github.com/compute-agent/compute-agent/internal/agent/telemetry"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
	"github.com/compute-agent/compute-agent/systemd"
)

// Options are what an agent is made of.
type Options struct {
	Config *config.Config
	// Load reads the configuration again, for a reload.
	Load func() (*config.Config, error)
	// Configuration is what Load reads, for commands that judge the configuration.
	Configuration func(*config.Config) control.Configuration
	// Reload asks for a reload, once for each value (SIGHUP).
	Reload <-chan os.Signal
	// Applied is called with the new configuration after each reload, for what the agent does not own (the log level).
	Applied func(*config.Config)
	// Bundled says that Placement runs in this process, for the status.
	Bundled bool
	// Notify tells systemd; nil tells nobody.
	Notify *systemd.Notifier
	// OnReady is called once, after the first turn of every tracker or at the start-up deadline.
	OnReady func(ctx context.Context, a *Agent)
	Logger  zerolog.Logger
}

// Agent is the daemon. Make one with New and call Run once.
type Agent struct {
	opts      Options
	log       zerolog.Logger
	placement *reportclient.Client
	host      *host.Host
	state     *statedir.State
	providers *providerconfig.Source
	identity  string
	unknown   bool   // identity is made up: the host has none yet
	doubt     string // why it is in doubt that this is the machine of the state directory; only without a running agent
	started   time.Time

	metrics  *telemetry.Metrics
	tracing  *telemetry.Tracing // nil: nothing is traced. Run sets it before anything else runs
	watch    watch
	troubles troubles

	mu       sync.Mutex
	cfg      *config.Config
	drivers  map[string]*driver
	ready    bool
	reloaded time.Time

	settlings map[string]*settling // by driver, what the last reload does about it

	claims statedir.Claims

	absence absence

	cell *cellService // nil: none is configured
}

// New checks what can be checked without starting anything.
func New(opts Options) (*Agent, error) {
	providers, err := openProviders(opts.Config)
	if err != nil {
		return nil, err
	}
	a := &Agent{opts: opts, log: opts.Logger, cfg: opts.Config, state: statedir.New(opts.Config.Agent.StateDir), providers: providers,
		drivers: map[string]*driver{}, settlings: map[string]*settling{}, started: time.Now(),
		metrics: telemetry.NewMetrics(nil), absence: absence{moved: make(chan struct{}, 1)}}
	a.placement, err = NewPlacementClient(opts.Config, a.state.Journal, a.observeRequest, opts.Logger)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	if a.cell, err = a.newCell(opts.Config.CellClient); err != nil {
		return nil, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	a.metrics.Watch(a.measured)
	a.claims.Recorded = a.owners
	return a, nil
}

// Run is the life of the agent, until ctx ends or a tracker finds, while start-up lasts for one of its nodes, that it must not go on (a
// [*resourcetracker.FatalError]). When it returns, no process, socket or goroutine of its own is left.
func (a *Agent) Run(ctx context.Context) (err error) {
	unlock, err := a.prepare()
	if err != nil {
		return err
	}
	defer unlock()
	socket, err := control.Listen(ctx, a.cfg.Agent.ControlSocket())
	if ctx.Err() != nil { // told to stop before anything began
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	web, err := listenMetrics(ctx, a.cfg.Metrics.Listen)
	if err != nil {
		return err
	}
	stopTracing, err := a.startTracing(ctx)
	if err != nil {
		return fmt.Errorf("%w: tracing.endpoint: %w", config.ErrInvalid, err)
	}
	defer stopTracing()
	a.host, err = host.New(host.Options{Dir: a.cfg.Plugins.Dir, RuntimeDir: a.cfg.Agent.RuntimeDir, Logger: a.log, OnTransition: a.pluginMoved})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.host.Close()) }() //nolint:contextcheck // what is closed has no time limit
	defer a.placement.CloseIdle()

	a.log.Info().Str("host", a.cfg.Agent.Host).Str("identity", a.identity).Str("placement", whereIsPlacement(a.cfg.PlacementClient)).
		Strs("drivers", a.cfg.EnabledDrivers()).Msg("The agent starts.")
	group, ctx := errgroup.WithContext(ctx)
	watch, stopWatching := context.WithCancel(context.WithoutCancel(ctx)) // the watchdog is fed until the very end
	defer stopWatching()
	group.Go(func() error { return control.Serve(ctx, socket, a) })
	if web != nil {
		group.Go(func() error { a.serveMetrics(ctx, web); return nil })
	}
	group.Go(func() error { a.serveCell(ctx); return nil })
	group.Go(func() error { a.runDrivers(ctx, group); stopWatching(); return nil })
	group.Go(func() error { a.opts.Notify.Watchdog(watch, a.lastBeat, a.log); return nil })
	group.Go(func() error { a.keepStatus(ctx); return nil })
	return group.Wait()
}

// prepare makes the directories, takes the state directory for this process alone, and reads the host's identity.
func (a *Agent) prepare() (unlock func(), err error) {
	if err := statedir.Make(a.cfg.Agent.StateDir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(a.cfg.Agent.RuntimeDir, 0o700); err != nil {
		return nil, fmt.Errorf("agent.runtime_dir: %w; `compute-agent doctor` names what to do", err)
	}
	unlock, err = statedir.Lock(a.cfg.Agent.StateDir)
	if err != nil {
		return nil, err
	}
	if err := a.identify(); err != nil {
		unlock()
		return nil, err
	}
	if a.state.Disabled, err = disabled.Open(a.cfg.Agent.StateDir); err != nil {
		unlock()
		return nil, &resourcetracker.FatalError{Node: a.cfg.Agent.Host, Err: err, Protects: true}
	}
	a.logDisabled()
	if a.providers.Config().Len() > 0 || len(a.providers.Warnings()) > 0 {
		a.logProviders("The provider.yaml files were read.")
	}
	a.loadJournal()
	return unlock, nil
}

// owners are the drivers of the nodes that the state directory knows of.
func (a *Agent) owners() map[string]statedir.Owner { return a.state.Owners(a.log) }

// active is an enabled driver as it was at a moment: a reload may change the driver itself meanwhile.
type active struct {
	name    string
	plugin  *host.Plugin
	tracker *resourcetracker.Tracker
	done    <-chan struct{}
}

// active returns the enabled drivers by name.
func (a *Agent) active() []active {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]active, 0, len(a.drivers))
	for _, name := range slices.Sorted(maps.Keys(a.drivers)) {
		if d := a.drivers[name]; d.tracker != nil {
			out = append(out, active{name: name, plugin: d.plugin, tracker: d.tracker, done: d.done})
		}
	}
	return out
}

// lastBeat is when the slowest tracker last showed life: one that hangs is enough to have the agent restarted.
func (a *Agent) lastBeat() time.Time {
	oldest := time.Now()
	for _, d := range a.active() {
		if beat := d.tracker.Beat(); beat.Before(oldest) {
			oldest = beat
		}
	}
	return oldest
}

// statusInterval is how often systemd's status line is brought up to date.
const statusInterval = 5 * time.Second

func (a *Agent) keepStatus(ctx context.Context) {
	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			a.tellStatus()
			a.settleEnabling()
		}
	}
}

// pluginMoved is told of every change of a plugin's state.
func (a *Agent) pluginMoved(s host.Status) {
	a.metrics.PluginTransition(s.Name, s.State)
	a.driverMoved()
	a.tellStatus()
}

// tellStatus looks at the agent, which logs what is new about its conditions, and tells systemd in one line.
func (a *Agent) tellStatus() {
	summary := a.summary()
	if a.opts.Notify.Enabled() {
		a.tell(a.opts.Notify.Status(summary))
	}
}

func (a *Agent) summary() string {
	return a.now().Summary
}

// tell logs what systemd could not be told; the agent goes on.
func (a *Agent) tell(err error) {
	if err != nil {
		a.log.Warn().Err(err).Msg("Failed to report the agent's state to systemd.")
	}
}
