// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// Options of a ledger. The zero value is right for a server.
type Options struct {
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Observer is told of commits and of catching up; nil costs nothing.
	Observer Observer
}

// Ledger is the one place through which the state of a Placement changes. It
// is safe for concurrent use.
//
// Reads take a snapshot. Writes are functions over a transaction: one
// goroutine runs them in turn, each on top of the last, commits what was
// waiting in one transaction of the store, publishes the new snapshot and
// answers. A single write waits for no one; under load one durable commit
// serves many.
type Ledger struct {
	store    Store
	now      func() time.Time
	observer Observer

	current atomic.Pointer[Snapshot]
	// doubtful says that current may not be what the store holds: a commit's
	// outcome is unknown, and loading the state again failed.
	doubtful atomic.Bool
	// refreshing is held by whoever moves current.
	refreshing sync.Mutex
	polls      singleflight.Group

	queue   chan *write
	closing chan struct{}
	close   sync.Once
	done    chan struct{}
}

// Open loads the state from the store, adds the standard resource classes and
// traits that are missing, and starts the writer. The ledger owns the store
// from here on, also when Open fails.
func Open(ctx context.Context, store Store, opts Options) (*Ledger, error) {
	l := &Ledger{
		store:    store,
		now:      opts.Now,
		observer: opts.Observer,
		queue:    make(chan *write, maxBatch),
		closing:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	if l.now == nil {
		l.now = time.Now
	}
	if err := l.reload(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the ledger: %w", err), store.Close())
	}
	go l.run() //nolint:contextcheck // the writer outlives the context of the opening
	if _, err := l.Update(ctx, (*Tx).syncStandard); err != nil {
		return nil, errors.Join(fmt.Errorf("adding the standard resource classes and traits: %w", err), l.Close())
	}
	return l, nil
}

// Snapshot returns the newest state: all that any server acknowledged before
// the call. The store is asked for its version first, unless no other process
// can commit; calls at the same time share one question.
func (l *Ledger) Snapshot(ctx context.Context) (*Snapshot, error) {
	if l.certain() {
		return l.current.Load(), nil
	}
	// A question that is under way already may have been answered before this
	// call began; the one after it was not.
	for range 2 {
		var mine bool
		answer := l.polls.DoChan("version", func() (any, error) {
			mine = true
			// Whoever waits may give up; the question is everybody's.
			return nil, l.refresh(context.WithoutCancel(ctx))
		})
		select {
		case r := <-answer:
			if r.Err != nil {
				return nil, fmt.Errorf("asking the store for its version: %w", r.Err)
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

// Current returns the newest state that this process knows, without asking
// the store: for metrics and the like.
func (l *Ledger) Current() *Snapshot { return l.current.Load() }

// certain says that the store need not be asked: nobody else commits, and
// what this process committed is known.
func (l *Ledger) certain() bool { return l.store.Exclusive() && !l.doubtful.Load() }

// refresh brings current up to the store's version.
func (l *Ledger) refresh(ctx context.Context) error {
	if l.doubtful.Load() {
		return l.reload(ctx)
	}
	version, err := l.store.Version(ctx)
	if err != nil {
		return err
	}
	if version == l.current.Load().version {
		return nil
	}
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	// The writer publishes under the same lock: what it committed meanwhile is here.
	base := l.current.Load()
	if version <= base.version {
		return nil
	}
	began := l.now()
	delta, err := l.store.Changes(ctx, base.version)
	var next *Snapshot
	if err == nil {
		next, err = refresh(base, delta)
	}
	whole := errors.Is(err, ErrReload)
	switch {
	case whole:
		err = l.reloadLocked(ctx)
	case err == nil:
		l.current.Store(next)
	}
	if err == nil && l.observer != nil {
		l.observer.Followed(Follow{Versions: l.current.Load().version - base.version, Whole: whole, Duration: l.now().Sub(began)})
	}
	return err
}

func (l *Ledger) reload(ctx context.Context) error {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	return l.reloadLocked(ctx)
}

func (l *Ledger) reloadLocked(ctx context.Context) error {
	state, err := l.store.Load(ctx)
	if err != nil {
		return err
	}
	next, err := NewSnapshot(state)
	if err != nil {
		return err
	}
	if now := l.current.Load(); now != nil && now.version > next.version {
		return fmt.Errorf("%w: the store's version went back from %d to %d", ErrBadState, now.version, next.version)
	}
	l.current.Store(next)
	l.doubtful.Store(false)
	return nil
}

// Update runs fn over a transaction on the newest state and makes what it did
// durable; it returns the snapshot that shows it. When fn returns an error,
// nothing of its transaction is applied and Update returns that error.
//
// fn runs in the writer's goroutine and everybody's writes wait for it: it
// computes, and does nothing else. It may run more than once, each time on a
// newer state, so it must set whatever it hands out anew each time.
//
// Errors beside fn's: ErrClosed, ErrBusy, *PanicError, the store's. When ctx
// ends while fn waits for its turn nothing was done and the error is ctx's; once
// its turn has come the error is ErrOutcomeUnknown, as it is when the store
// cannot tell.
func (l *Ledger) Update(ctx context.Context, fn func(*Tx) error) (*Snapshot, error) {
	w := &write{fn: fn, answer: make(chan answer, 1)}
	select {
	case <-l.closing:
		return nil, ErrClosed
	default:
	}
	select {
	case l.queue <- w:
	case <-l.closing:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-w.answer:
		return a.snapshot, a.err
	case <-l.done:
		// The writer answers all it took; what it did not take was not done.
		select {
		case a := <-w.answer:
			return a.snapshot, a.err
		default:
			return nil, ErrClosed
		}
	case <-ctx.Done():
	}
	if w.state.CompareAndSwap(waiting, given) {
		return nil, context.Cause(ctx)
	}
	select {
	case a := <-w.answer:
		return a.snapshot, a.err
	default:
		return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, context.Cause(ctx))
	}
}

// Close lets the write that is under way end, refuses those that wait, and
// closes the store.
func (l *Ledger) Close() error {
	var err error
	l.close.Do(func() {
		close(l.closing)
		<-l.done
		err = l.store.Close()
	})
	return err
}
