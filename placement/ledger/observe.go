// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"errors"
	"time"
)

// Observer is told of what a ledger does with its store, for metrics. Its
// methods must not block: all writes wait for them.
type Observer interface {
	// Committed is called after each try to commit a batch of writes.
	Committed(Commit)
	// Followed is called after this ledger caught up with what other servers
	// committed.
	Followed(Follow)
}

// Outcome is what became of a try to commit.
type Outcome int

// What becomes of a try to commit.
const (
	// Durable: the batch is in the store.
	Durable Outcome = iota
	// Conflict: another server committed first. The batch is run again.
	Conflict
	// Reloaded: rows were not as this ledger knew them; it loads the whole
	// state, and the batch is run again.
	Reloaded
	// Failed: the store did not take the batch; its writes failed.
	Failed
	// Unknown: the store could not tell; see ErrOutcomeUnknown.
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

// Commit is one try to commit a batch.
type Commit struct {
	Outcome Outcome
	// Writes is how many writes the batch has that were not refused, Refused
	// how many were, and Changes how many changes of rows it makes.
	Writes, Refused, Changes int
	// Duration is what the store took.
	Duration time.Duration
}

// Follow is one catching up with other servers.
type Follow struct {
	// Versions is by how many commits this ledger was behind.
	Versions int64
	// Whole says that the whole state was loaded, instead of what changed.
	Whole    bool
	Duration time.Duration
}

// outcomeOf tells what became of a commit by what the store returned.
func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Durable
	case errors.Is(err, ErrVersionConflict):
		return Conflict
	case errors.Is(err, ErrReload):
		return Reloaded
	case errors.Is(err, ErrOutcomeUnknown):
		return Unknown
	}
	return Failed
}

// Waiting returns how many writes wait for their turn at the moment.
func (l *Ledger) Waiting() int { return len(l.queue) }
