// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Cell is what is asked of the cell; *cellclient.Client does it. A refusal is a [*cellwire.Error].
type Cell interface {
	Report(ctx context.Context, host string, report cellwire.HostReport) (cellwire.HostState, error)
	Work(ctx context.Context, host string, after int64, epoch string, wait time.Duration) (cellwire.Work, error)
	Reports(ctx context.Context, host string, reports []cellwire.Report) (cellwire.ReportsAnswer, error)
}

// Node is a compute node of this host, whether its driver makes guests or not.
type Node struct {
	UUID    string // of its root provider
	Name    string
	Manager plugins.InstanceManager
	// Tree returns what is known of its provider tree; nil: nothing yet.
	Tree func() *providertree.Tree
}

// Guests is where guests are made.
type Guests interface {
	// Nodes returns the nodes that there are. It asks nobody.
	Nodes(ctx context.Context) []Node
}

// Allocations is what Placement granted to servers.
type Allocations interface {
	// Granted returns all that a consumer holds, by uuid of the provider and by class; nothing: it holds nothing.
	Granted(ctx context.Context, uuid string) (providertree.ProviderResources, error)
	// Remove takes all of it away, by the consumer's generation. It succeeds if there is nothing.
	Remove(ctx context.Context, uuid string) error
}

// ErrImpossible is what a manager wraps if a call was not made, because no driver could be asked that: asking again does not help.
var ErrImpossible = errors.New("no driver can be asked that")

// Config is what a worker is made of. Host, Cell, Guests and Allocations are needed.
type Config struct {
	Host        string
	Version     string
	Cell        Cell
	Guests      Guests
	Allocations Allocations
	// Disable is told that the cell disabled the service of this host, and why, or that it is enabled: once, and again when it changes. An error
	// has it told again. Nil: nobody.
	Disable func(disabled bool, reason string) error
	// Builds is how many guests are made at the same time, 0: 10, as Nova has it (max_concurrent_builds); so many are removed, started and stopped beside them.
	Builds int
	// Timeout is for an answer that the cell need not wait for; 0: 30 s.
	Timeout time.Duration
	Logger  zerolog.Logger
}

// Times of a worker. All waiting after failures is by chance up to a half shorter.
const (
	reportInterval = 10 * time.Second       // between heartbeats, unless the cell says otherwise
	longestReport  = 5 * time.Minute        // of what a cell may say
	pollWait       = 30 * time.Second       // of a long poll
	patience       = 30 * time.Second       // with the cell, unless the configuration says otherwise
	firstLook      = 5 * time.Second        // how long the first heartbeat waits to know which nodes can have guests
	firstRetry     = time.Second            // after the first failure, then it doubles
	retryCell      = 30 * time.Second       // at most, for the cell
	retryServer    = 2 * time.Minute        // at most, for a server or a node
	retrySlow      = 10 * time.Minute       // for what somebody has to look at
	lookGap        = 250 * time.Millisecond // in which events are collected
	lookInterval   = 10 * time.Minute       // of power states, as Nova's sync_power_state_interval
	treeLimit      = 15 * time.Minute       // how long a grant may be about providers that are not known to be of the node
	leaveLimit     = 5 * time.Minute        // how long a server that the driver refuses waits for the guests of deleted ones to go
	farewell       = 3 * time.Second        // for the last word
)

// Worker does what a cell wants. Make one with New and call Run once.
type Worker struct {
	cfg    Config
	log    zerolog.Logger
	outbox *outbox

	slots      map[cellwire.Want]chan struct{} // for calls of the driver: a kind that takes long does not keep the others waiting
	rebeat     chan struct{}                   // holds a value when a heartbeat is due now
	relook     chan struct{}                   // holds a value when nodes are to be looked at
	registered chan struct{}                   // closed after the first heartbeat that the cell took
	tasks      sync.WaitGroup
	looks      sync.WaitGroup

	disabling sync.Mutex // held while Disable runs
	disabled  *serviceState

	mu       sync.Mutex
	epoch    string
	revision int64
	complete bool            // the servers of this epoch are all known
	listing  map[string]bool // those that were named since the cell began to tell all; nil: it does not
	servers  map[string]*server
	nodes    map[string]*nodeState // by uuid
	contact  contact
	counts   Counts
}

// New makes a worker. Nothing is asked.
func New(cfg Config) *Worker {
	if cfg.Builds <= 0 {
		cfg.Builds = 10
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = patience
	}
	slots := map[cellwire.Want]chan struct{}{}
	for _, want := range []cellwire.Want{cellwire.WantPresent, cellwire.WantGone, cellwire.WantRunning, cellwire.WantShutdown} {
		slots[want] = make(chan struct{}, cfg.Builds)
	}
	return &Worker{
		cfg: cfg, log: cfg.Logger, outbox: newOutbox(), slots: slots,
		rebeat: make(chan struct{}, 1), relook: make(chan struct{}, 1), registered: make(chan struct{}),
		servers: map[string]*server{}, nodes: map[string]*nodeState{},
	}
}

// Run works until ctx ends. Then calls of the driver that are under way are given up, what is left to report is tried once, and the cell is told that the
// agent stops; no guest is touched. When it returns no goroutine is left.
func (w *Worker) Run(ctx context.Context) {
	w.meetNodes(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { w.beat(ctx) })
	loops.Go(func() { w.poll(ctx) })
	loops.Go(func() { w.send(ctx) })
	loops.Go(func() { w.watch(ctx) })
	loops.Wait()
	w.looks.Wait()
	w.tasks.Wait()
	w.leave(context.WithoutCancel(ctx))
}

// leave says the last word.
func (w *Worker) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	select {
	case <-w.registered:
	default:
		return // the cell has never heard of this agent
	}
	if batch := w.outbox.take(cellwire.MaxReports); len(batch) > 0 {
		if answer, err := w.cfg.Cell.Reports(ctx, w.cfg.Host, batch); err == nil {
			w.taken(batch, answer)
		}
	}
	if _, err := w.cfg.Cell.Report(ctx, w.cfg.Host, cellwire.HostReport{Version: w.cfg.Version, Nodes: w.reportable(), Stopping: true}); err != nil {
		w.log.Info().Err(err).Msg("The cell could not be told that the agent stops. It takes the host for down when it has shown no life for a while.")
	}
}

// ask puts a value into a channel of one, if there is none.
func ask(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// sleep waits, and reports whether it was woken or the time is over rather than ctx.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return ctx.Err() == nil
}
