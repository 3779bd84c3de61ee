// SPDX-License-Identifier: Apache-2.0

package transactor

import (
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Observer receives what a ledger does with its store, for metrics. Its methods
// must not block: all writes wait for them.
type Observer interface {
	// Committed is called after each attempt to commit a batch of writes.
	Committed(Commit)
	// Followed is called after this ledger has read the commits of other
	// servers.
	Followed(Follow)
}

// Outcome is the outcome of an attempt to commit.
type Outcome int

// The outcomes of an attempt to commit.
const (
	// Durable: the batch is in the store.
	Durable Outcome = iota
	// Conflict: another server committed first. The batch is run again.
	Conflict
	// Reloaded: rows differed from this ledger's state; it reloads the whole
	// state, and the batch is run again.
	Reloaded
	// Failed: the store did not take the batch; its writes failed.
	Failed
	// Unknown: the store does not know; see ledger.ErrOutcomeUnknown.
	Unknown
)

// String returns the outcome in one word.
func (o Outcome) String() string {
	switch o {
	case Durable:
		return "durable"
	case Conflict:
		return "conflict"
	case Reloaded:
		return "reload"
	case Failed:
		return "failed"
	}
	return "unknown"
}

// Commit is one attempt to commit a batch.
type Commit struct {
	Outcome Outcome
	// Writes is the number of accepted writes in the batch, Refused that of
	// refused ones, and Changes that of row changes.
	Writes, Refused, Changes int
	// Duration is the time in the store.
	Duration time.Duration
}

// Follow is one refresh with the commits of other servers.
type Follow struct {
	// Versions is the number of commits read.
	Versions int64
	// Whole: the whole state was loaded instead of the changes.
	Whole    bool
	Duration time.Duration
}

// outcomeOf maps the error of a commit to its outcome.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Durable
	case errors.Is(err, ledger.ErrVersionConflict):
		return Conflict
	case errors.Is(err, ledger.ErrReload):
		return Reloaded
	case errors.Is(err, ledger.ErrOutcomeUnknown):
		return Unknown
	}
	return Failed
}

// Waiting returns the number of queued writes.
func (l *Ledger) Waiting() int { return len(l.queue) }
