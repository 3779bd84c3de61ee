// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
)

// Plugin is one configured driver, whether its process runs or not. Its methods can be called
// concurrently.
type Plugin struct {
	pluginDeps

	reloads chan reloadRequest // to the supervisor
	hung    chan error         // from callers: the process does not respond

	notifying sync.Mutex // held while Spec.Changed runs

	mu     sync.Mutex
	spec   Spec
	status Status
	cause  error          // why there is no active process
	active *activeProcess // the process that serves calls, or nil
	// next is the next state of a plugin that has just lost its active process.
	next      State
	forbidden error         // why it can no longer be started, or nil
	calls     callRecords   // to the active process
	changed   chan struct{} // closed and replaced at every transition
	attempted bool          // the first attempt to start has ended
	run       *running      // the supervisor, or nil

	managing instanceCalls

	renames  plugins.ClassRenames              // of the last reshape, or step of one
	nodes    map[string]driverclient.NodeFacts // by node, of its last response
	warnings warnings                          // that were logged
}

// pluginDeps is what a plugin needs from its surroundings.
type pluginDeps struct {
	log          zerolog.Logger
	dir          string
	jitter       func(time.Duration) time.Duration
	onTransition func(Status)
	launch       func(ctx context.Context, spec Spec, log zerolog.Logger, reached func(State)) (instance, error)
	identify     func(path string) (launch.ID, error)
	verify       func(spec Spec) error // checks the executable as launch does
}

// running is a supervisor that runs.
type running struct {
	cancel context.CancelFunc // stops in an orderly way
	forced context.Context    // ends when the rest must be killed
	abort  context.CancelFunc // ends forced
	done   chan struct{}
}

// activeProcess is a process that serves calls, with those that it serves: a replaced process ends
// after them.
type activeProcess struct {
	instance
	calls      sync.WaitGroup
	management management
	stopping   atomic.Bool // it is asked to stop, and its streams end with it
}

// ErrRunning says that the plugin has a supervisor already.
var ErrRunning = errors.New("the plugin is already running")

func newPlugin(spec Spec, deps pluginDeps) *Plugin {
	return &Plugin{
		pluginDeps: deps, spec: spec,
		reloads: make(chan reloadRequest), hung: make(chan error, 1), changed: make(chan struct{}),
		status: Status{Name: spec.Name, State: Discovered, Since: time.Now(), Path: spec.Path},
	}
}

// Name of the driver.
func (p *Plugin) Name() string { return p.status.Name }

// Status returns the current state.
func (p *Plugin) Status() Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.status
	status.Warnings = slices.Clone(status.Warnings)
	if status.State.serving() && p.active == nil {
		status.State = p.next
	}
	return status
}

// Start runs the plugin until [Plugin.Stop], and waits for the result of the first attempt: nil, or
// why the driver does not work yet. The supervisor keeps trying after an error. If ctx ends first,
// Start returns its error.
func (p *Plugin) Start(ctx context.Context) error {
	runCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r, err := p.begin(cancel)
	if err != nil {
		cancel()
		return err
	}
	go p.supervise(runCtx, r)
	return p.Ready(ctx)
}

// Run keeps the plugin running until ctx ends, then stops it and returns nil. It does not return
// because a plugin does not work.
func (p *Plugin) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := p.begin(cancel)
	if err != nil {
		return err
	}
	p.supervise(ctx, r)
	return nil
}

func (p *Plugin) begin(cancel context.CancelFunc) (*running, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.forbidden != nil {
		return nil, fmt.Errorf("driver %s cannot be started: %w", p.status.Name, p.forbidden)
	}
	if p.run != nil {
		return nil, ErrRunning
	}
	p.run = &running{cancel: cancel, done: make(chan struct{})}
	p.run.forced, p.run.abort = context.WithCancel(context.Background())
	p.attempted = false
	return p.run, nil
}

// Ready waits until the first attempt to start has ended. It returns nil if the plugin serves
// calls, or else an [*UnavailableError] with the cause.
func (p *Plugin) Ready(ctx context.Context) error {
	for {
		p.mu.Lock()
		changed, tried, active, err := p.changed, p.attempted, p.active != nil, p.unavailable()
		p.mu.Unlock()
		switch {
		case active:
			return nil
		case tried:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stop stops the plugin: running calls finish, the driver can clean up, and the process is gone
// when Stop returns. When ctx ends, the process is killed.
func (p *Plugin) Stop(ctx context.Context) error {
	p.mu.Lock()
	r := p.run
	p.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	r.abort()
	<-r.done
	return ctx.Err()
}

// forbidStart makes later starts fail with why.
func (p *Plugin) forbidStart(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forbidden = why
}

// abandon stops the plugin without asking its process.
func (p *Plugin) abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Stop(ended)
}

// notify reports that a node's tree may have changed.
func (p *Plugin) notify(node string) {
	p.notifying.Lock()
	defer p.notifying.Unlock()
	if changed := p.currentSpec().Changed; changed != nil {
		changed(node)
	}
}
