// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Cell is what a worker needs of a *cellclient.Client. A refusal is a [*cellwire.Error].
type Cell interface {
	Report(ctx context.Context, host string, report cellwire.HostReport) (cellwire.HostState, error)
	Work(ctx context.Context, host string, after int64, epoch string, wait time.Duration) (cellwire.Work, error)
	Reports(ctx context.Context, host string, reports []cellwire.Report) (cellwire.ReportsAnswer, error)
	// OpenSource opens a stream to the source of the migration by which the server with the uuid
	// arrives at host.
	OpenSource(ctx context.Context, host, uuid string) (*cellwire.Stream, error)
	AcceptStream(ctx context.Context, host, id string) (*cellwire.Stream, error)
}

// Node is a compute node of this host, whether its driver makes guests or not.
type Node struct {
	UUID    string // of its root provider
	Name    string
	Manager plugins.InstanceManager
	// Abilities are the abilities of the manager, among [plugins.Abilities].
	Abilities []string
	// Hypervisor is what its driver says of it; nil: it was not asked yet.
	Hypervisor *plugins.Hypervisor
	// Tree returns what is known of its provider tree; nil: nothing yet.
	Tree func() *providertree.Tree
	// Held is why the node is held: it may belong to another host. Then it is not reported to the
	// cell, and no driver is asked about its guests. "": it is used.
	Held string
}

// Guests is where guests are made.
type Guests interface {
	// Nodes returns the current nodes, from memory. complete says that each driver has listed its
	// nodes since the start of the agent.
	Nodes(ctx context.Context) (nodes []Node, complete bool)
}

// Allocations is what Placement granted to servers.
type Allocations interface {
	// Granted returns all allocations of a consumer, by uuid of the provider and by class; empty
	// for a consumer without any.
	Granted(ctx context.Context, uuid string) (providertree.ProviderResources, error)
	// Remove removes all allocations of a consumer, with the consumer's generation. It succeeds if
	// there are none.
	Remove(ctx context.Context, uuid string) error
}

// ErrImpossible is wrapped by the error of a call that no driver supports, so that it was not made.
// A retry does not help.
var ErrImpossible = errors.New("no driver supports this call")

// Config configures a worker. Host, Cell, Guests and Allocations are required.
type Config struct {
	Host    string
	Version string
	// Process is this run of the agent. Without a token the cell cannot tell whether another agent
	// reports as the host.
	Process     agentruns.Process
	Cell        Cell
	Guests      Guests
	Allocations Allocations
	// Address is the address of this host; "": the one from which the cell is asked.
	Address string
	// Disable is called with whether, and why, the service of this host is disabled in the cell:
	// when that is first known, at each change, and again after an error. It may be nil.
	Disable func(disabled bool, reason string) error
	// Builds is how many guests are created at the same time: Nova's max_concurrent_builds. 0: 10.
	// It also bounds each other kind of work by itself: removing, starting, stopping, moving.
	Builds int
	// BuildTimeout is how long the creation of a guest is tried while its outcome is unknown. Then
	// the server is reported as failed: Nova's instance_build_timeout. 0: no limit.
	BuildTimeout time.Duration
	// Timeout bounds a request to the cell; a long poll may take this much longer than its wait. 0:
	// 30 s.
	Timeout time.Duration
	// Tracing returns the tracing for spans of work. Without it, or if it returns nil, there are no
	// spans.
	Tracing func() *tracing.Tracing
	Logger  zerolog.Logger
}

// Times of a worker. All waiting after failures is by chance up to a half shorter.
const (
	reportInterval    = 10 * time.Second // between heartbeats, unless the cell says otherwise
	maxReportInterval = 5 * time.Minute  // of what a cell may say
	pollWait          = 30 * time.Second // of a long poll
	defaultTimeout    = 30 * time.Second // with the cell, unless the configuration says otherwise
	// How long the first heartbeat waits to know which nodes can have guests.
	nodesTimeout = 5 * time.Second
	// startTimeout is how long a node that the previous run reported is kept while its driver has
	// not listed its nodes.
	startTimeout    = 2 * time.Minute
	firstRetry      = time.Second            // after the first failure, then it doubles
	retryCell       = 30 * time.Second       // at most, for the cell
	retryServer     = 2 * time.Minute        // at most, for a server or a node
	retryOperator   = 10 * time.Minute       // for what an operator has to resolve
	eventGap        = 250 * time.Millisecond // in which events are collected
	compareInterval = 10 * time.Minute       // of power states, as Nova's sync_power_state_interval
	// How long a grant may be about providers that are not known to be of the node.
	treeTimeout = 15 * time.Minute
	// How long a server that the driver refuses waits for the guests of deleted ones to go.
	deletedGuestsTimeout = 5 * time.Minute
	// How long a source of a migration may be unreachable before the server is given back to it.
	sourceTimeout = time.Hour
	stopTimeout   = 3 * time.Second // for the final report, and before it for a heartbeat under way
	// How long a guest that is rebooted stays off for a cell that does not say to start it.
	rebootTimeout = 30 * time.Second
)

// Worker brings the servers of one host to their desired states. Make one with New and call Run
// once.
type Worker struct {
	cfg    Config
	log    zerolog.Logger
	outbox *outbox

	// for calls of the driver: a kind that takes long does not keep the others waiting
	slots        map[cellwire.Want]chan struct{}
	heartbeatNow chan struct{} // has a value when a heartbeat is due now
	compareNow   chan struct{} // has a value when nodes are to be looked at
	registered   chan struct{} // closed after the first heartbeat that the cell took
	tasks        sync.WaitGroup
	comparisons  sync.WaitGroup

	disabling sync.Mutex // held while Disable runs
	disabled  *serviceState

	// of the heartbeats' loop, and then of the final report
	extent   reportExtent
	detailed bool  // the cell takes details of nodes
	turn     int64 // of the last answer
	begun    time.Time
	started  bool // the nodes are known since the start, or were not for startTimeout
	// unanswered: the stop has ended a heartbeat, which the cell may have taken.
	unanswered bool

	mu       sync.Mutex
	epoch    string
	revision int64
	complete bool // the servers of this epoch are all known
	// listing has the servers named so far while the cell sends its complete list; nil: it does not
	listing       map[string]bool
	servers       map[string]*server
	nodes         map[string]*nodeState // by uuid
	held          []Node                // those with Held, which are not in nodes
	named         bool                  // nodes has all that the drivers have
	streams       map[string]bool       // by id: those that the cell offers, and whether they are served now
	lastHeartbeat heartbeatResult
	counts        Counts
	address       string // from which the cell was asked; "": not known
}

// New returns a worker. It sends no request.
func New(cfg Config) *Worker {
	if cfg.Builds <= 0 {
		cfg.Builds = 10
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.Tracing == nil {
		cfg.Tracing = func() *tracing.Tracing { return nil }
	}
	slots := map[cellwire.Want]chan struct{}{}
	for _, want := range []cellwire.Want{
		cellwire.WantPresent, cellwire.WantGone, cellwire.WantRunning, cellwire.WantShutdown,
		cellwire.WantCleared, cellwire.WantRebuilt,
		cellwire.WantDeparting, cellwire.WantArriving, cellwire.WantLeft, cellwire.WantLeaving,
	} {
		slots[want] = make(chan struct{}, cfg.Builds)
	}
	extent := wholeReport
	if cfg.Process.Token == "" {
		extent = withoutProcess
	}
	return &Worker{
		cfg: cfg, log: cfg.Logger, outbox: newOutbox(), slots: slots, extent: extent,
		heartbeatNow: make(chan struct{}, 1), compareNow: make(chan struct{}, 1), registered: make(chan struct{}),
		servers: map[string]*server{}, nodes: map[string]*nodeState{}, streams: map[string]bool{},
	}
}

// Run works until ctx ends. Then it cancels calls of the driver, sends queued reports once, and
// reports to the cell that the agent stops; guests are left alone. No goroutine is left when it
// returns.
func (w *Worker) Run(ctx context.Context) {
	w.begun = time.Now()
	w.refreshNodes(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { w.heartbeatLoop(ctx) })
	loops.Go(func() { w.pollLoop(ctx) })
	loops.Go(func() { w.reportLoop(ctx) })
	loops.Go(func() { w.watchLoop(ctx) })
	loops.Wait()
	w.comparisons.Wait()
	w.tasks.Wait()
	w.reportStopping(context.WithoutCancel(ctx))
}

// reportStopping sends queued reports and reports that the agent stops.
func (w *Worker) reportStopping(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-w.registered:
	default:
		if !w.unanswered {
			return // the agent never registered with the cell
		}
	}
	if batch := w.outbox.begin(cellwire.MaxReports); len(batch) > 0 {
		if answer, err := w.cfg.Cell.Reports(ctx, w.cfg.Host, batch); err == nil {
			w.recordAccepted(batch, answer)
		}
	}
	if _, err := w.cfg.Cell.Report(ctx, w.cfg.Host, w.hostReport(true)); err != nil {
		w.log.Info().Err(err).
			Msg("Could not report to the cell that the agent stops. The cell marks the host down when its " +
				"heartbeats time out.")
	}
}

// signal puts a value into a channel of capacity 1, unless it has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// backoff is how long to wait after failures in a row. The zero value has seen none.
type backoff struct{ failures int }

// next counts a failure, and returns a time that doubles from firstRetry to maxDelay, less up to a
// half of it by chance: a thousand agents come back one after the other.
func (b *backoff) next(maxDelay time.Duration) time.Duration {
	b.failures++
	return wait.Backoff{Min: firstRetry, Max: maxDelay, Jitter: 0.5}.Delay(b.failures, rand.Float64())
}

func (b *backoff) reset() { b.failures = 0 }
