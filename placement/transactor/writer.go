// SPDX-License-Identifier: Apache-2.0

package transactor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

const (
	// maxBatch is the maximum number of writes in one commit.
	maxBatch = 256
	// bigWrite is the number of changed rows from which a write gets a commit of
	// its own, so that smaller writes before it do not wait for it.
	bigWrite = 1000
	// maxTries bounds how often a batch is run because others committed first.
	maxTries = 10
	// verifyAfterConflict is how many commits begin with a look at the version, after one that
	// assumed it and was late.
	verifyAfterConflict = 16
)

// retryPause is how long the writer waits before another try: 2 ms on average before the second
// one, and 128 ms at most, each up to a half shorter or longer by chance, so that two servers do
// not stay in step.
var retryPause = wait.Backoff{Min: 3 * time.Millisecond, Max: 192 * time.Millisecond, Jitter: 2.0 / 3}

// The states of a write. The goroutine that changes it from waiting owns it.
const (
	waiting   int32 = iota
	taken           // by the writer
	abandoned       // by its caller
)

// write is a call of Update.
type write struct {
	fn     func(*ledger.Tx) error
	state  atomic.Int32
	answer chan answer // of capacity 1
}

type answer struct {
	snapshot *ledger.Snapshot
	err      error
}

// run is the writer goroutine.
func (l *Ledger) run() {
	defer close(l.done)
	// No caller's context cancels a commit: it serves many callers.
	ctx := context.Background()
	for {
		select {
		case <-l.closing:
			return
		case w := <-l.queue:
			batch := l.collect(w)
			for len(batch) > 0 {
				batch = l.commit(ctx, batch)
			}
		}
	}
}

// collect takes all queued writes, without waiting for more.
func (l *Ledger) collect(first *write) []*write {
	batch := make([]*write, 0, len(l.queue)+1)
	for w := first; ; {
		if w.state.CompareAndSwap(waiting, taken) {
			batch = append(batch, w)
		}
		if len(batch) == maxBatch {
			return batch
		}
		select {
		case w = <-l.queue:
		default:
			return batch
		}
	}
}

// commit runs the writes, commits and answers, as the table in doc.go says. It returns
// the rest of the batch, which needs another commit.
func (l *Ledger) commit(ctx context.Context, batch []*write) (rest []*write) {
	var lastErr error
	release := func() {}
	defer func() { release() }()
	for try := 0; try < maxTries; try++ {
		assumed := try == 0 && l.assumesNewest()
		if try > 0 {
			release()
			wait.Until(ctx, retryPause.Delay(try, rand.Float64()), l.closing)
			var err error
			if release, err = l.reserve(ctx); err != nil {
				refuseAll(batch, fmt.Errorf("lock the database: %w", err))
				return nil
			}
		}
		base, run, err := l.baseFor(ctx, batch, assumed)
		if err != nil {
			refuseAll(batch, fmt.Errorf("read the version of the database: %w", err))
			return nil
		}
		rest = batch[run.n:]
		if len(run.changes) == 0 {
			run.answer(base)
			return rest
		}
		if err = run.announce(ctx); err != nil {
			run.fail(err)
			return rest
		}
		next, err := l.publish(ctx, base, run)
		switch classify(err, l.store.Exclusive()) {
		case committed:
			run.answer(next)
			return rest
		case conflict:
			if assumed {
				l.verify = verifyAfterConflict
				try-- // as if the version had been read
			}
		case rowsDiffer:
			if reloadErr := l.reload(ctx); reloadErr != nil {
				refuseAll(batch, fmt.Errorf("reload the state: %w", reloadErr))
				return nil
			}
			if errors.Is(err, ledger.ErrDuplicate) && try > 0 && run.n == 1 &&
				l.current.Load().Version() == base.Version() {
				// Nothing has changed, so that no other try has another outcome.
				run.fail(&ledger.Error{Kind: ledger.DuplicateName,
					Detail: "the database takes a name or uuid of the request for equal to one that exists"})
				return rest
			}
			if try > 0 && run.n > 1 {
				l.alone = run.n
			}
		case rowRefused:
			if run.n > 1 { // the others must not fail with it
				l.alone = run.n
				return batch
			}
			fallthrough
		case failed:
			run.fail(fmt.Errorf("write to the database: %w", err))
			return rest
		case unknownShared: // the next write reads the version first
			run.fail(err)
			return rest
		case unknownExclusive:
			// The next write must see the commit if it happened.
			if reloadErr := l.reload(ctx); reloadErr != nil {
				l.stale.Store(true)
				err = errors.Join(err, fmt.Errorf("reload the state: %w", reloadErr))
			}
			run.fail(err)
			return rest
		}
		lastErr = err
	}
	refuseAll(batch, fmt.Errorf("%w (%d tries): %w", ledger.ErrBusy, maxTries, lastErr))
	return nil
}

// tryOutcome is what a try to commit means for its writes: a row of the table in doc.go.
type tryOutcome int

const (
	committed tryOutcome = iota
	conflict
	rowsDiffer
	rowRefused
	unknownShared
	unknownExclusive
	failed
)

// classify returns the outcome of a try by the store's error, and by whether no other process
// commits. That a commit may have happened counts before what else the error is.
func classify(err error, exclusive bool) tryOutcome {
	switch {
	case err == nil:
		return committed
	case errors.Is(err, ledger.ErrOutcomeUnknown) && exclusive:
		return unknownExclusive
	case errors.Is(err, ledger.ErrOutcomeUnknown):
		return unknownShared
	case errors.Is(err, ledger.ErrVersionConflict):
		return conflict
	case errors.Is(err, ledger.ErrReload):
		return rowsDiffer
	case errors.Is(err, ledger.ErrRow):
		return rowRefused
	}
	return failed
}

// baseFor runs the writes on the newest state, which fn must decide on. Where that is assumed, and
// no commit will find out, the version is read after all.
func (l *Ledger) baseFor(
	ctx context.Context, batch []*write, assumed bool,
) (base *ledger.Snapshot, run batchResult, err error) {
	if !assumed && !l.upToDate() {
		if err = l.refresh(ctx); err != nil {
			return nil, run, err
		}
	}
	base = l.current.Load()
	run = l.runBatch(base, batch)
	if !assumed || len(run.changes) > 0 && run.refused() == 0 {
		return base, run, nil
	}
	if err = l.refresh(ctx); err != nil {
		return nil, run, err
	}
	if now := l.current.Load(); now != base {
		base, run = now, l.runBatch(now, batch)
	}
	return base, run, nil
}

// publish commits the changes of a run on base, and publishes the snapshot with them, which it
// returns. It reports the outcome to the observer and the writes, but does not answer these.
func (l *Ledger) publish(ctx context.Context, base *ledger.Snapshot, run batchResult) (*ledger.Snapshot, error) {
	next := run.top.At(base.Version() + 1)
	// No reader refreshes between the commit and its publication.
	l.refreshing.Lock()
	began := l.now()
	changes := coalesce(run.changes)
	l.own = 0
	err := l.store.Commit(ctx, base.Version(), changes)
	if err == nil {
		l.current.Store(next)
		l.own = next.Version()
	}
	l.refreshing.Unlock()
	if l.observer != nil {
		refused := run.refused()
		l.observer.Committed(Commit{Outcome: outcomeOf(err), Writes: run.n - refused, Refused: refused,
			Changes: len(changes), Duration: l.now().Sub(began)})
	}
	if err == nil || errors.Is(err, ledger.ErrOutcomeUnknown) {
		run.reportOutcome(err)
	} else {
		run.abandon()
	}
	return next, err
}

// coalesce keeps one [ledger.BumpProvider] for each provider, at the position of the last: a batch
// that increments a generation fifty times writes the row once. It changes the list in place.
func coalesce(changes []ledger.Change) []ledger.Change {
	first := map[int64]int64{} // generation before
	last := map[int64]int{}
	for i, c := range changes {
		if b, ok := c.(ledger.BumpProvider); ok {
			if _, seen := first[b.ID]; !seen {
				first[b.ID] = b.From
			}
			last[b.ID] = i
		}
	}
	out := changes[:0]
	for i, c := range changes {
		if b, ok := c.(ledger.BumpProvider); ok {
			if last[b.ID] != i {
				continue
			}
			if from := first[b.ID]; b.From != from {
				b.From = from
				c = b
			}
		}
		out = append(out, c)
	}
	return out
}

// assumesNewest reports that the next commit begins without a look at the version: the
// newest one that is known is this ledger's own. If it is not the newest, the commit
// is refused.
func (l *Ledger) assumesNewest() bool {
	if l.verify > 0 {
		l.verify--
		return false
	}
	return l.own != 0 && l.own == l.current.Load().Version() &&
		l.alone == 0 && !l.store.Exclusive() && !l.stale.Load()
}

// reserve keeps other servers from committing, if the store can.
func (l *Ledger) reserve(ctx context.Context) (release func(), err error) {
	none := func() {}
	r, ok := l.store.(ledger.Reserver)
	if !ok || l.store.Exclusive() {
		return none, nil
	}
	if release, err = r.Reserve(ctx); err != nil {
		return none, err
	}
	return release, nil
}

// batchResult is the result of the first n writes of a batch.
type batchResult struct {
	batch     []*write // the n writes
	errs      []error  // of each
	n         int
	top       *ledger.Snapshot // with all writes that succeeded
	changes   []ledger.Change
	outcome   []func(error)          // of the writes that succeeded, see ledger.Tx.OnOutcome
	intents   []func() ledger.Intent // of these, see ledger.Tx.BeforeCommit
	announced []ledger.Intent        // those that were announced
}

// runBatch runs the writes, each in a draft on top of the one before.
func (l *Ledger) runBatch(base *ledger.Snapshot, batch []*write) batchResult {
	r := batchResult{top: base}
	now := l.now().Truncate(l.resolution) // the same in all rows of a commit, which can then share statements
	for _, w := range batch {
		did, err := ledger.Run(r.top, now, l.ratio, w.fn)
		if err == nil && len(did.Changes) > bigWrite && r.n > 0 {
			break // it gets the next commit for itself
		}
		r.n++
		r.errs = append(r.errs, err)
		if err == nil {
			r.top = did.Snapshot
			r.changes = append(r.changes, did.Changes...)
			if len(did.Changes) > 0 {
				r.outcome = append(r.outcome, did.Outcome...)
				r.intents = append(r.intents, did.Intents...)
			}
			if len(r.changes) > bigWrite {
				break
			}
		}
		if l.alone > 0 {
			l.alone--
			break
		}
	}
	r.batch = batch[:r.n]
	return r
}

// refused counts the writes whose fn returned an error.
func (r batchResult) refused() int {
	n := 0
	for _, err := range r.errs {
		if err != nil {
			n++
		}
	}
	return n
}

// announce announces the writes, and returns when they may be committed. With an error none may:
// each is on top of those before it.
func (r *batchResult) announce(ctx context.Context) error {
	for _, fn := range r.intents {
		r.announced = append(r.announced, fn())
	}
	for _, i := range r.announced {
		if err := i.Wait(ctx); err != nil {
			r.abandon()
			return err
		}
	}
	return nil
}

// abandon tells the intents that nothing was committed.
func (r *batchResult) abandon() {
	for _, i := range r.announced {
		i.Abandon()
	}
}

// reportOutcome calls what the writes registered for the outcome of their commit.
func (r batchResult) reportOutcome(err error) {
	for _, fn := range r.outcome {
		fn(err)
	}
}

// answer sends each write its own error or the snapshot.
func (r batchResult) answer(s *ledger.Snapshot) {
	for i, w := range r.batch {
		if r.errs[i] != nil {
			w.answer <- answer{err: r.errs[i]}
		} else {
			w.answer <- answer{snapshot: s}
		}
	}
}

// fail sends the commit's error to the writes that succeeded and to all after
// the first of them: these may have been refused because of a change that was
// not committed. Writes that were refused on the committed state get their own
// error.
func (r batchResult) fail(err error) {
	onCommitted := true
	for i, w := range r.batch {
		onCommitted = onCommitted && r.errs[i] != nil
		if onCommitted {
			w.answer <- answer{err: r.errs[i]}
		} else {
			w.answer <- answer{err: err}
		}
	}
}

// refuseAll sends all writes of a batch the same error.
func refuseAll(batch []*write, err error) {
	for _, w := range batch {
		w.answer <- answer{err: err}
	}
}
