// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
)

// Plugin is one configured driver, whether its process runs or not. All methods may be called at
// any time from any goroutine.
type Plugin struct {
	pluginDeps

	reloads chan reloadRequest // to the supervisor
	hung    chan error         // from callers: the process does not answer any more

	notifying sync.Mutex // held while Spec.Changed runs

	mu     sync.Mutex
	spec   Spec
	status Status
	cause  error          // why there is no active process
	active *activeProcess // the process that serves calls, or nil
	// next is the state to come, of a plugin that has just lost its active process.
	next      State
	forbidden error         // why it cannot be started any more, or nil
	calls     callRecords   // to the active process
	changed   chan struct{} // closed and replaced at every transition
	tried     bool          // the first attempt to start has ended
	run       *running      // the supervisor, or nil

	managing instanceCalls

	renames      plugins.ClassRenames       // of the last reshape, or step of one
	capabilities map[string]map[string]bool // by node, of its last answer
	warnings     warnings                   // that are logged
}

// pluginDeps is what a plugin needs from its surroundings.
type pluginDeps struct {
	log          zerolog.Logger
	dir          string
	jitter       func(time.Duration) time.Duration
	onTransition func(Status)
	launch       func(ctx context.Context, spec Spec, log zerolog.Logger, reached func(State)) (instance, error)
	identify     func(path string) (fileID, error)
	verify       func(spec Spec) error // checks the executable as launch does
}

// running is a supervisor that runs.
type running struct {
	cancel context.CancelFunc // stop in an orderly way
	forced context.Context    //nolint:containedctx // ends when nothing is to be waited for any more
	abort  context.CancelFunc // ends forced
	done   chan struct{}
}

// activeProcess is a process that serves calls, and how many it is serving: one that is replaced
// ends after them.
type activeProcess struct {
	instance
	calls      sync.WaitGroup
	management management
}

// ErrRunning says that the plugin has a supervisor already.
var ErrRunning = errors.New("the plugin is running already")

func newPlugin(spec Spec, deps pluginDeps) *Plugin {
	return &Plugin{
		pluginDeps: deps, spec: spec,
		reloads: make(chan reloadRequest), hung: make(chan error, 1), changed: make(chan struct{}),
		status: Status{Name: spec.Name, State: Discovered, Since: time.Now(), Path: spec.Path},
	}
}

// Name of the driver.
func (p *Plugin) Name() string { return p.status.Name }

// Status is how the plugin is now.
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

// Start lets the plugin run until [Plugin.Stop], and waits for the outcome of the first attempt:
// nil, or why the driver does not work yet. Its supervisor goes on trying in the latter case too.
// If ctx ends first, so does the waiting.
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

// Run is the supervisor: it keeps the plugin running until ctx ends, then stops it and returns nil.
// A plugin that does not work is no reason to return.
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
	p.tried = false
	return p.run, nil
}

// Ready waits until the first attempt to start has ended. It returns nil if the plugin serves
// calls, or else an [*UnavailableError] with the cause.
func (p *Plugin) Ready(ctx context.Context) error {
	for {
		p.mu.Lock()
		changed, tried, active, err := p.changed, p.tried, p.active != nil, p.unavailable()
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

// Stop ends the plugin: calls under way are finished, the driver may tidy up, the process is gone
// when it returns. At the end of ctx that is cut short.
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

// forbidStart lets the plugin not be started any more.
func (p *Plugin) forbidStart(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forbidden = why
}

// abandon ends the plugin without asking its process.
func (p *Plugin) abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Stop(ended)
}

// notify passes on that a node's tree may look different.
func (p *Plugin) notify(node string) {
	p.notifying.Lock()
	defer p.notifying.Unlock()
	if changed := p.currentSpec().Changed; changed != nil {
		changed(node)
	}
}
