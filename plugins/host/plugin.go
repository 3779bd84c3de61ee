// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Plugin is one configured driver, whether its process runs or not. All methods may be called at any time from any
// goroutine.
type Plugin struct {
	pluginDeps

	orders chan order // to the supervisor
	silent chan error // from callers: the process does not answer any more

	telling sync.Mutex // held while Spec.Changed runs

	mu     sync.Mutex
	spec   Spec
	status Status
	cause  error // why there is no seat
	seat   *seat // the process that serves calls, or nil
	// leaving is the state to come, of a plugin that has just lost its seat.
	leaving State
	over    error         // why it cannot be started any more, or nil
	mute    silence       // calls without an answer
	broken  breakages     // calls that end with a defect of the plugin
	moved   chan struct{} // closed and replaced at every transition
	tried   bool          // the first attempt to start has ended
	run     *running      // the supervisor, or nil

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
	hurry  context.Context    //nolint:containedctx // ends when nothing is to be waited for any more
	abort  context.CancelFunc // ends hurry
	done   chan struct{}
}

// seat is a process that serves calls, and how many it is serving: one that is replaced ends after them.
type seat struct {
	instance
	calls      sync.WaitGroup
	management management
}

// ErrRunning says that the plugin has a supervisor already.
var ErrRunning = errors.New("the plugin is running already")

func newPlugin(spec Spec, deps pluginDeps) *Plugin {
	return &Plugin{
		pluginDeps: deps, spec: spec,
		orders: make(chan order), silent: make(chan error, 1), moved: make(chan struct{}),
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
	if status.State.serving() && p.seat == nil {
		status.State = p.leaving
	}
	return status
}

// Start lets the plugin run until [Plugin.Stop], and waits for the outcome of the first attempt: nil, or why the driver
// does not work yet. Its supervisor goes on trying in the latter case too. If ctx ends first, so does the waiting.
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

// Run is the supervisor: it keeps the plugin running until ctx ends, then stops it and returns nil. A plugin that does not
// work is no reason to return.
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
	if p.over != nil {
		return nil, fmt.Errorf("driver %s cannot be started: %w", p.status.Name, p.over)
	}
	if p.run != nil {
		return nil, ErrRunning
	}
	p.run = &running{cancel: cancel, done: make(chan struct{})}
	p.run.hurry, p.run.abort = context.WithCancel(context.Background())
	p.tried = false
	return p.run, nil
}

// Ready waits until the first attempt to start has ended. It returns nil if the plugin serves calls, or else an
// [*UnavailableError] with the cause.
func (p *Plugin) Ready(ctx context.Context) error {
	for {
		p.mu.Lock()
		moved, tried, seated, err := p.moved, p.tried, p.seat != nil, p.unavailable()
		p.mu.Unlock()
		switch {
		case seated:
			return nil
		case tried:
			return err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Stop ends the plugin: calls under way are finished, the driver may tidy up, the process is gone when it returns. At the
// end of ctx that is cut short.
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

// forbid lets the plugin not be started any more.
func (p *Plugin) forbid(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = why
}

// abandon ends the plugin without asking its process.
func (p *Plugin) abandon() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Stop(ended)
}

// AvailableNodes asks the driver for the compute nodes that it is responsible for.
//
// Errors: [ErrUnavailable] at once while the plugin is down; otherwise a [*CallError] around the driver's own error,
// [ErrNoAnswer] or [ErrBadReply].
func (p *Plugin) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	var nodes []plugins.Node
	err := p.ask(ctx, "AvailableNodes", func(s *seat) (err error) {
		nodes, err = s.AvailableNodes(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	p.forget(nodes)
	return nodes, nil
}

// UpdateProviderTree asks the driver what the node can give. tree is left as it is; the answer is a tree of its own.
//
// Errors: as AvailableNodes; the driver's own are [plugins.ErrReshapeNeeded], [*plugins.ReshapeFailed],
// [plugins.ErrNotReady]. Without an error the tree is complete, never a partial or empty one for want of an answer.
func (p *Plugin) UpdateProviderTree(ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations) (*providertree.Tree, providertree.Allocations, error) {
	var got answer
	err := p.ask(ctx, "UpdateProviderTree "+node, func(s *seat) (err error) {
		got, err = s.UpdateProviderTree(ctx, tree, node, allocations)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	p.remember(node, got, allocations != nil)
	return got.tree, got.allocations, nil
}

// Warnings asks the driver what it warns of now, for tools: an agent hears of it with each health check ([Status]).
//
// Errors: as AvailableNodes.
func (p *Plugin) Warnings(ctx context.Context) ([]plugins.Warning, error) {
	var out []plugins.Warning
	err := p.ask(ctx, "Health", func(s *seat) (err error) {
		out, err = s.Health(ctx)
		return err
	})
	return out, err
}

// ClassRenames is what came with the last answer to a ReshapeStep, or an UpdateProviderTree that was given allocations: the resource
// classes that the driver renamed in it, by their former names. It makes a Plugin a [plugins.Renamer].
func (p *Plugin) ClassRenames() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.renames)
}

// tell passes on that a node's tree may look different.
func (p *Plugin) tell(node string) {
	p.telling.Lock()
	defer p.telling.Unlock()
	if changed := p.currentSpec().Changed; changed != nil {
		changed(node)
	}
}

// ask makes a call that changes nothing. If its process ends before it has answered, and another one has taken over meanwhile, that one is
// asked, once.
func (p *Plugin) ask(ctx context.Context, call string, make func(*seat) error) error {
	err := p.askOne(ctx, call, make)
	if replaced := (*ReplacedError)(nil); errors.As(err, &replaced) && ctx.Err() == nil {
		p.log.Info().Str("call", call).Err(err).Msg("The call is made again: it changes nothing, and the process that has taken over can answer it.")
		return p.askOne(ctx, call, make)
	}
	return err
}

func (p *Plugin) askOne(ctx context.Context, call string, make func(*seat) error) error {
	s, err := p.take()
	if err != nil {
		return err
	}
	defer s.calls.Done()
	return p.heard(ctx, s, call, make(s))
}

// take returns the serving process, which will not be stopped until calls.Done.
func (p *Plugin) take() (*seat, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seat == nil {
		return nil, p.unavailable()
	}
	p.seat.calls.Add(1)
	return p.seat, nil
}

// unavailable is the error of a plugin that is down. p.mu is held.
func (p *Plugin) unavailable() error { return p.unavailableFor(p.cause) }

func (p *Plugin) unavailableFor(cause error) error {
	e := &UnavailableError{Driver: p.status.Name, State: p.status.State, Since: p.status.Since, Cause: cause}
	if e.State.serving() { // it is about to be said by the supervisor, or it is the process' end that the caller noticed first
		e.State, e.Since = Backoff, time.Now()
		if p.seat == nil {
			e.State = p.leaving
		}
	}
	return e
}

// heard takes note of how a call ended, by its name and, if it is about one, its node. Several in a row without an answer count
// like missed health checks: the process may well be alive while the driver's code hangs. Several in a row that the driver's code panicked in
// make the plugin degraded at the next health check: the process is alive, and a new one would panic too.
func (p *Plugin) heard(ctx context.Context, s *seat, call string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	gaveUp := gaveUp(ctx, err)
	silent := errors.Is(err, ErrNoAnswer) && !gaveUp
	switch {
	case p.seat != s, errors.As(err, new(*excused)): // replaced meanwhile
	case !silent:
		if !gaveUp {
			p.mute.answered(call)
			p.broken.heard(call, err, time.Now())
		}
	default:
		if p.mute.missed(call) >= p.spec.Restart.Misses {
			p.mute = silence{}
			select {
			case p.silent <- err:
			default:
			}
		}
	}
	return p.whyUnanswered(s, err)
}

// whyUnanswered is the error of a call to a process, after a look at what became of that. p.mu is held.
func (p *Plugin) whyUnanswered(s *seat, err error) error {
	switch {
	case !errors.Is(err, ErrUnavailable):
		return err
	case p.seat != nil && p.seat != s:
		return &ReplacedError{Driver: p.status.Name, Cause: err}
	}
	return p.unavailableFor(err)
}
