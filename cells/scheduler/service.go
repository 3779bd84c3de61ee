// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Options configure a Scheduler. Store, Gatherer, Placement and Quota are required.
type Options struct {
	Store     apidb.Store
	Gatherer  *gather.Gatherer
	Placement *placementcalls.Client
	Quota     *quota.Quotas

	// Lease is held by the one process of the API database that schedules. Fenced is the Store for
	// writes that only the holder may make. Both are nil if there is no other process.
	Lease  Lease
	Fenced apidb.Store

	// Aliases are names for PCI devices in flavors.
	Aliases extraspecs.Aliases

	// Workers is how many servers are scheduled at once. 0: 8.
	Workers int
	// MaxCandidates is how many candidates Placement is asked for: Nova's [scheduler]
	// max_placement_results. 0: [resourcerequest.DefaultLimit].
	MaxCandidates int
	// MaxAttempts is on how many hosts the build of a server is tried, one after the other, if each
	// fails: Nova's [scheduler] max_attempts. 0: 1.
	MaxAttempts int
	// Zone is the availability zone of hosts that have none: Nova's default_availability_zone. "":
	// nova.
	Zone string
	// Aggregates are the options about host aggregates.
	Aggregates placementcalls.AggregateOptions
	// Reclaim is how long softly deleted servers are kept before they are deleted for good. 0:
	// there is no soft delete.
	Reclaim time.Duration
	// ConfirmAfter is how long a finished migration waits for its owner before it is confirmed:
	// Nova's resize_confirm_window. 0: without limit.
	ConfirmAfter time.Duration
	// RecheckQuota checks the quota again after a server has got its allocations: Nova's [quota]
	// recheck_quota.
	RecheckQuota bool
	// PollInterval is how often build requests of other processes are looked for. 0: 2 s.
	PollInterval time.Duration
	// Grace is the minimum age of claims and hidden rows that the reconciler cleans up: a live
	// process may still use younger ones. It must be longer than any request to Placement or a cell
	// takes. 0: a minute.
	Grace time.Duration
	// ReconcileInterval is the time between rounds of the reconciler. 0: half of Grace.
	ReconcileInterval time.Duration
	// DiscoverInterval is how often new hosts are mapped. 0: never.
	DiscoverInterval time.Duration
	// DiscoverPatterns are shell patterns of the names of hosts that are mapped although no person
	// enrolled them. They get no servers with user data.
	DiscoverPatterns []string

	// Observer receives builds and corrections; nil costs nothing.
	Observer Observer
	// Tracing makes spans of what is done for a request after its answer; nil is off.
	Tracing *tracing.Tracing
	// Now is the clock; nil: time.Now.
	Now    func() time.Time
	Logger zerolog.Logger
}

// defaultGrace is the default of Options.Grace.
const defaultGrace = time.Minute

// Scheduler creates, schedules and deletes servers. It is safe for concurrent use.
type Scheduler struct {
	opts Options
	kick chan struct{}
	// kickMoves says that there may be a migration to go on with.
	kickMoves chan struct{}
	locks     serverLocks
	// groups has the server groups that a server is built in.
	groups serverLocks
	delay  backoff
	// migrationDelay has migrations.
	migrationDelay backoff
	cells          numaCells

	scheduling  atomic.Bool // Run is active
	mirrorFails atomic.Bool // the last round of the mirror failed
	mirror      placementcalls.Mirror

	after func(step string) error // tests end the process here; nil otherwise

	mu        sync.Mutex
	conflicts map[apidb.Node]bool  // hosts that could not be mapped, and were logged
	cursor    map[string]int64     // by cell: the mapping up to which the reconciler came
	suspects  map[string]time.Time // by cell: since when its database is suspect, as logged
	released  map[string]time.Time // by server: when what a claim speaks of was removed first, see clearClaim
}

// New returns a service. Nothing is scheduled before Run.
func New(o Options) (*Scheduler, error) {
	if o.Store == nil || o.Gatherer == nil || o.Placement == nil || o.Quota == nil {
		return nil, errors.New(
			"scheduler: the API database, the gatherer, the Placement client and the quota service are needed")
	}
	if o.Workers <= 0 {
		o.Workers = 8
	}
	if o.MaxCandidates <= 0 {
		o.MaxCandidates = resourcerequest.DefaultLimit
	}
	if o.Zone == "" {
		o.Zone = "nova"
	}
	if o.PollInterval <= 0 {
		o.PollInterval = 2 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.ReconcileInterval <= 0 {
		o.ReconcileInterval = o.Grace / 2
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Fenced == nil {
		o.Fenced = o.Store
	}
	return &Scheduler{
		opts:      o,
		kick:      make(chan struct{}, 1),
		kickMoves: make(chan struct{}, 1),
		mirror:    placementcalls.Mirror{Store: o.Store, Fenced: o.Fenced, Placement: o.Placement},
		cursor:    map[string]int64{},
		suspects:  map[string]time.Time{},
		locks:     serverLocks{servers: map[string]chan struct{}{}},
		groups:    serverLocks{servers: map[string]chan struct{}{}},
	}, nil
}

// Lease is held by at most one of several processes at a time.
type Lease interface {
	// Run runs f whenever this process holds the lease, until the context ends.
	Run(ctx context.Context, f func(context.Context))
	// Confirm returns an error unless this process holds the lease now.
	Confirm(ctx context.Context) error
	// Term returns a number that grows with each process that gets the lease; 0 if there is no
	// other process. It fails if this process does not hold the lease.
	Term() (int64, error)
	// RaiseTerm raises the term of this process above a number. It fails if this process does not
	// hold the lease.
	RaiseTerm(ctx context.Context, above int64) error
}

// Kick says that there is something to schedule.
func (s *Scheduler) Kick() { wake(s.kick) }

// wake kicks a loop of [Scheduler.loop].
func wake(kick chan<- struct{}) {
	select {
	case kick <- struct{}{}:
	default: // it is known
	}
}

// Run schedules, reconciles, reclaims, mirrors aggregates and discovers hosts until the context
// ends, while this process holds the lease. Create, Delete and Restore work in all processes.
func (s *Scheduler) Run(ctx context.Context) {
	if s.opts.Lease == nil {
		s.run(ctx)
		return
	}
	s.opts.Lease.Run(ctx, s.run)
}

func (s *Scheduler) run(ctx context.Context) {
	s.scheduling.Store(true)
	defer s.scheduling.Store(false)
	var all sync.WaitGroup
	all.Go(func() { s.scheduleLoop(ctx) })
	all.Go(func() { s.migrationLoop(ctx) })
	all.Go(func() { s.loop(ctx, s.opts.ReconcileInterval, nil, s.reconcileAndLog) })
	all.Go(func() { s.loop(ctx, s.opts.ReconcileInterval, nil, s.mirrorAndLog) })
	if s.opts.DiscoverInterval > 0 {
		all.Go(func() { s.loop(ctx, s.opts.DiscoverInterval, nil, s.discoverAndLog) })
	}
	all.Wait()
}

// loop does something at an interval, and at each kick, until the context ends.
func (s *Scheduler) loop(ctx context.Context, interval time.Duration, kick <-chan struct{}, do func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		do(ctx)
		select {
		case <-ctx.Done():
			return
		case <-kick:
		case <-ticker.C:
		}
	}
}

// confirm returns an error if another process schedules now.
func (s *Scheduler) confirm(ctx context.Context) error {
	if s.opts.Lease == nil {
		return nil
	}
	return s.opts.Lease.Confirm(ctx)
}

// release removes the allocations of a server, if this process still schedules.
func (s *Scheduler) release(ctx context.Context, uuid string) error {
	return s.opts.Placement.ReleaseIf(ctx, uuid, s.confirm)
}

// next confirms that this process still schedules, so that one that was stopped here does nothing
// more to the server when it continues.
func (s *Scheduler) next(ctx context.Context, name string) error {
	if err := s.step(name); err != nil {
		return err
	}
	return s.confirm(ctx)
}

// step lets a test end the process after a named step (SetAfter).
func (s *Scheduler) step(name string) error {
	if s.after == nil {
		return nil
	}
	return s.after(name)
}

// serverLocks has the servers that something is done to in this process, so that the scheduler, the
// reconciler and a deletion take turns.
type serverLocks struct {
	mu      sync.Mutex
	servers map[string]chan struct{} // closed when it is free
}

// lock waits for a server, until the context ends.
func (s *serverLocks) lock(ctx context.Context, uuid string) (free func(), err error) {
	for {
		free, wait := s.tryLock(uuid)
		if free != nil {
			return free, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for server %s: %w", uuid, ctx.Err())
		case <-wait:
		}
	}
}

// tryLock takes a server if it is free; otherwise free is nil, and wait is closed when to try
// again.
func (s *serverLocks) tryLock(uuid string) (free func(), wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken, is := s.servers[uuid]; is {
		return nil, taken
	}
	done := make(chan struct{})
	s.servers[uuid] = done
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.servers, uuid)
		close(done)
	}, nil
}

// The mirror of host aggregates in Placement, see [placementcalls.Mirror]. A change is written at
// once by the process that was asked for it, and what is left of it after an outage by the rounds
// of the process that schedules.

// mirrorWait is how long a request that changes an aggregate waits for Placement at most.
const mirrorWait = 5 * time.Second

// MirrorHost writes the aggregates of a host to Placement. If that fails or takes too long, it is
// logged, and left to a later round of [Scheduler.Run]. Cost: two requests for each node of the
// host.
func (s *Scheduler) MirrorHost(ctx context.Context, host string) {
	// the change is made: a client that goes does not undo it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mirrorWait)
	defer cancel()
	nodes, err := s.opts.Store.Nodes(ctx)
	for _, node := range nodes {
		if node.Host == host {
			err = errors.Join(err, s.mirror.Node(ctx, node))
		}
	}
	if err != nil {
		s.opts.Logger.Warn().Err(err).Str("host", host).
			Msg("Could not write the aggregates of a host to Placement. Servers may be refused there until the next " +
				"round writes them.")
	}
}

// Capacities returns the capacities of compute nodes: see [placementcalls.Client.Capacities].
func (s *Scheduler) Capacities(ctx context.Context, roots []string) ([]placementcalls.Capacity, error) {
	return s.opts.Placement.Capacities(ctx, roots)
}

// mirrorAndLog does one round, and logs the first failure in a row.
func (s *Scheduler) mirrorAndLog(ctx context.Context) {
	switch err := s.mirror.Round(ctx); {
	case ctx.Err() != nil:
	case err == nil && s.mirrorFails.Swap(false):
		s.opts.Logger.Info().Msg("The host aggregates are in Placement again as they should be.")
	case err != nil && !s.mirrorFails.Swap(true):
		s.opts.Logger.Warn().Err(err).
			Msg("Could not compare the host aggregates with those in Placement. Servers may be refused where they " +
				"should fit. Retrying.")
	}
}

// Observer receives what a Scheduler does, for metrics. Its methods are called concurrently, and
// must not block.
type Observer interface {
	// Built is called with the outcome of each attempt to build a server, also with [PutOff].
	Built(Outcome)
	// Corrected is called whenever the reconciler has finished something that was interrupted.
	Corrected(Correction)
}

// Outcome is how an attempt to build a server ended.
type Outcome string

// The outcomes. A server has any number of PutOff, and one of the others.
const (
	Placed    Outcome = "placed"    // in a cell, for its host to make
	Unplaced  Outcome = "unplaced"  // in error, in cell0: no host could take it, or the quota was exceeded meanwhile
	Abandoned Outcome = "abandoned" // its owner deleted it meanwhile
	PutOff    Outcome = "put_off"   // something could not be used; it stays in BUILD and is tried again
)

// Outcomes returns all outcomes.
func Outcomes() []Outcome { return []Outcome{Placed, Unplaced, Abandoned, PutOff} }

// Correction is what the reconciler finished.
type Correction string

// The corrections.
const (
	ReleasedHidden Correction = "hidden_released" // the row of a server that was placed and not shown
	// The row of a server that is placed elsewhere, or nowhere any more.
	DiscardedHidden Correction = "hidden_discarded"
	FreedDeleted    Correction = "unfreed"           // the allocations of a server that its cell deleted
	ClearedClaim    Correction = "claim"             // a claim that no build leads to any more, with its allocations
	CorrectedQueued Correction = "queued_for_delete" // a mapping that differed from the cell
	Reclaimed       Correction = "reclaimed"         // a softly deleted server whose time was over
)

// Corrections returns all corrections.
func Corrections() []Correction {
	return []Correction{ReleasedHidden, DiscardedHidden, FreedDeleted, ClearedClaim, CorrectedQueued, Reclaimed}
}

// Scheduling reports whether this process is the one that schedules and reconciles.
func (s *Scheduler) Scheduling() bool { return s.scheduling.Load() }

func (s *Scheduler) built(o Outcome) {
	if s.opts.Observer != nil {
		s.opts.Observer.Built(o)
	}
}

// corrected reports a successful correction to the observer.
func (s *Scheduler) corrected(what Correction, err error) error {
	if err == nil && s.opts.Observer != nil {
		s.opts.Observer.Corrected(what)
	}
	return err
}
