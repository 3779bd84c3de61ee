// SPDX-License-Identifier: Apache-2.0

package transactor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Options of a ledger. The zero value is right for a server.
type Options struct {
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Observer receives commits and refreshes; nil costs nothing.
	Observer Observer
	// StaleReads is the maximum age of the state that Read returns while the store cannot be asked
	// for its version. With 0, Read fails then.
	StaleReads time.Duration
}

// Ledger is the state of a Placement. All changes go through it. It is safe
// for concurrent use.
//
// Reads take a snapshot. Writes are functions over a transaction: one
// goroutine runs all queued functions one after the other, commits their
// changes in one transaction of the store, publishes the new snapshot and
// answers. Under load, one durable commit serves many writes.
type Ledger struct {
	store    ledger.Store
	now      func() time.Time
	observer Observer
	// resolution is the unit to which times in rows are truncated; 0 keeps them.
	resolution time.Duration
	// ratio rounds allocation ratios; nil keeps them.
	ratio func(float64) float64
	// staleReads is Options.StaleReads.
	staleReads time.Duration

	current atomic.Pointer[ledger.Snapshot]
	// stale: current may differ from the store, because a commit's outcome is
	// unknown and reloading the state failed, or because the store's version went
	// back. The state is reloaded when the version has reached current's again.
	stale atomic.Bool
	// checked is when the last read of the store's version began that had an
	// outcome: nothing acknowledged before is missing in current.
	checked atomic.Pointer[time.Time]
	// refreshing is held while current changes.
	refreshing sync.Mutex
	polls      singleflight.Group

	// alone is how many writes get commits of their own, because a commit of all
	// of them was refused. It belongs to the writer.
	alone int
	// own is the version that the last commit made; 0 if it failed. verify is how many
	// commits do not assume that it is the newest. They belong to the writer.
	own    int64
	verify int

	queue   chan *write
	closing chan struct{}
	close   sync.Once
	done    chan struct{}
}

// Open loads the state from the store, adds the missing standard resource
// classes and traits, and starts the writer. The ledger owns the store, even
// if Open fails.
func Open(ctx context.Context, store ledger.Store, opts Options) (*Ledger, error) {
	l := &Ledger{
		store:    store,
		now:      opts.Now,
		observer: opts.Observer,

		staleReads: opts.StaleReads,

		queue:   make(chan *write, maxBatch),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	if l.now == nil {
		l.now = time.Now
	}
	if c, ok := store.(ledger.Coarse); ok {
		l.resolution, l.ratio = c.TimeResolution(), c.Ratio
	}
	began := l.now()
	l.checked.Store(&began)
	if err := l.reload(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the ledger: %w", err), store.Close())
	}
	go l.run() //nolint:contextcheck // the writer outlives the context of the opening
	if _, err := l.Update(ctx, (*ledger.Tx).SyncStandard); err != nil {
		return nil, errors.Join(fmt.Errorf("add the standard resource classes and traits: %w", err), l.Close())
	}
	return l, nil
}

// Snapshot returns the newest state: everything that any server acknowledged
// before the call. It reads the store's version first, unless no other process
// can commit; concurrent calls share one read.
func (l *Ledger) Snapshot(ctx context.Context) (*ledger.Snapshot, error) {
	if l.upToDate() {
		return l.current.Load(), nil
	}
	// A read that is in progress may have read the version before this call
	// began; the next one has not.
	for range 2 {
		var mine bool
		answer := l.polls.DoChan("version", func() (any, error) {
			mine = true
			// One caller's context must not cancel the read that others share.
			return nil, l.refresh(context.WithoutCancel(ctx))
		})
		select {
		case r := <-answer:
			if r.Err != nil {
				return nil, fmt.Errorf("read the version of the database: %w", r.Err)
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if mine {
			break
		}
	}
	return l.current.Load(), nil
}

// Current returns the newest state in memory, without reading the store's
// version: for metrics and the like.
func (l *Ledger) Current() *ledger.Snapshot { return l.current.Load() }

// upToDate reports that current is the store's newest state without reading
// its version: no other process commits, and the outcome of every commit is
// known.
func (l *Ledger) upToDate() bool { return l.store.Exclusive() && !l.stale.Load() }

// refresh updates current to the store's version.
func (l *Ledger) refresh(ctx context.Context) error {
	began := l.now()
	err := l.follow(ctx)
	if err == nil {
		l.checked.Store(&began)
	}
	return err
}

func (l *Ledger) follow(ctx context.Context) error {
	had := l.current.Load().Version()
	version, err := l.store.Version(ctx)
	if err != nil {
		return err
	}
	if version < had {
		return l.markRegressed(had, version)
	}
	reached := func() bool { return l.current.Load().Version() >= version && !l.stale.Load() }
	if reached() {
		return nil
	}
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	if reached() { // by the writer, which publishes under the same lock
		return nil
	}
	base := l.current.Load()
	began := l.now()
	whole := l.stale.Load()
	if !whole {
		err = l.followLocked(ctx, base, version)
		whole = errors.Is(err, ledger.ErrReload)
	}
	if whole {
		err = l.reloadLocked(ctx, version)
	}
	if err == nil && l.observer != nil {
		l.observer.Followed(Follow{Versions: l.current.Load().Version() - base.Version(), Whole: whole,
			Duration: l.now().Sub(began)})
	}
	return err
}

// followLocked updates current by what changed since base, up to a version at least.
func (l *Ledger) followLocked(ctx context.Context, base *ledger.Snapshot, version int64) error {
	delta, err := l.store.Changes(ctx, base.Version())
	if err != nil {
		return err
	}
	if delta.Version < version {
		return l.markRegressed(version, delta.Version)
	}
	next, err := ledger.Refresh(base, delta)
	if err == nil {
		l.current.Store(next)
	}
	return err
}

func (l *Ledger) reload(ctx context.Context) error {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	var had int64
	if now := l.current.Load(); now != nil {
		had = now.Version()
	}
	return l.reloadLocked(ctx, had)
}

// markRegressed marks the state as stale, and returns the error about a store that shows less than
// it did. Its rows are not believed: other servers, and clients, have seen newer ones. When it has
// reached the version again, its history may be another one: then the whole state is loaded.
func (l *Ledger) markRegressed(from, to int64) error {
	l.stale.Store(true)
	return fmt.Errorf("%w: %w: its version went back from %d to %d: a server that is behind answered, or a backup "+
		"was restored, after which the service has to be restarted",
		ledger.ErrUnavailable, errRegression, from, to)
}

// reloadLocked loads the state, which has to be at a version at least.
func (l *Ledger) reloadLocked(ctx context.Context, least int64) error {
	state, err := l.store.Load(ctx)
	if err != nil {
		return err
	}
	next, err := ledger.NewSnapshot(state)
	if err != nil {
		return err
	}
	if next.Version() < least {
		return l.markRegressed(least, next.Version())
	}
	l.current.Store(next)
	l.stale.Store(false)
	return nil
}

// Update runs fn over a transaction on the newest state, makes its changes
// durable, and returns the snapshot with them. If fn returns an error, nothing
// of its transaction is applied and Update returns that error.
//
// fn runs in the writer's goroutine and all writes wait for it, so it must
// only compute. It may run more than once, each time on a newer state, so it
// must reset its results each time.
//
// Other errors: ledger.ErrClosed, ledger.ErrBusy, *ledger.PanicError, the store's. If ctx ends
// while fn is queued, nothing was done and the error is ctx's; after that it is
// ledger.ErrOutcomeUnknown, as it is if the store does not know the outcome.
func (l *Ledger) Update(ctx context.Context, fn func(*ledger.Tx) error) (*ledger.Snapshot, error) {
	w := &write{fn: fn, answer: make(chan answer, 1)}
	select {
	case <-l.closing:
		return nil, ledger.ErrClosed
	default:
	}
	select {
	case l.queue <- w:
	case <-l.closing:
		return nil, ledger.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-w.answer:
		return a.snapshot, a.err
	case <-l.done:
		// The writer answers every write that it took; the others were not done.
		select {
		case a := <-w.answer:
			return a.snapshot, a.err
		default:
			return nil, ledger.ErrClosed
		}
	case <-ctx.Done():
	}
	if w.state.CompareAndSwap(waiting, abandoned) {
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-w.answer:
		return a.snapshot, a.err
	default:
		return nil, fmt.Errorf("%w: %w", ledger.ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// Close finishes the write in progress, refuses those in the queue, and closes
// the store.
func (l *Ledger) Close() error {
	var err error
	l.close.Do(func() {
		close(l.closing)
		<-l.done
		err = l.store.Close()
	})
	return err
}
