// SPDX-License-Identifier: Apache-2.0

package transactor

import (
	"context"
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// maxPatience is how long a read waits for a store that is slow to say its
// version, where an older state is allowed. A store that works takes less than a
// millisecond.
const maxPatience = time.Second

var (
	// errSlow is the cause of a read that did not wait any longer.
	errSlow = errors.New("the database did not say its version in time")
	// errRegression: the store shows less than it did.
	errRegression = errors.New("the database is older than it was")
)

// Read is Snapshot for reads that may be stale. While the store cannot be asked
// for its version, or takes more than a second to answer, Read returns the state
// in memory with its age, if that is below Options.StaleReads: all that was
// acknowledged that long ago is in it. An age of 0 means the newest state.
//
// It must not be used for what a write depends on.
func (l *Ledger) Read(ctx context.Context) (s *ledger.Snapshot, age time.Duration, err error) {
	if l.staleReads <= 0 || l.store.Exclusive() {
		s, err = l.Snapshot(ctx)
		return s, 0, err
	}
	patient, cancel := context.WithTimeoutCause(ctx, min(maxPatience, l.staleReads/2), errSlow)
	defer cancel()
	s, err = l.Snapshot(patient)
	if err == nil || !mayBeStale(err) {
		return s, 0, err
	}
	// The age first: with a refresh in between, the state is younger and not older than it.
	age = l.Age()
	s = l.current.Load()
	if age < l.staleReads {
		return s, max(age, 1), nil
	}
	if errors.Is(err, errSlow) {
		s, err = l.Snapshot(ctx)
		return s, 0, err
	}
	return nil, 0, err
}

// mayBeStale reports that a store could not be asked. One that answered, and is not
// believed, is no reason to show an older state.
func mayBeStale(err error) bool {
	switch {
	case errors.Is(err, errRegression), errors.Is(err, ledger.ErrHandedBack), errors.Is(err, ledger.ErrReplaced):
		return false
	}
	return errors.Is(err, errSlow) || errors.Is(err, ledger.ErrUnavailable)
}

// Age returns how old the state in memory may be: the time since the start of the last successful
// read of the store's version. It is 0 if no other process can commit. It grows while there are no
// requests, because only requests make the ledger read the version.
//
// It is the longer of the times by the monotonic clock and by the wall clock: the former stands
// still while the machine is suspended.
func (l *Ledger) Age() time.Duration {
	if l.store.Exclusive() {
		return 0
	}
	from, to := *l.checked.Load(), l.now()
	return max(to.Sub(from), to.Round(0).Sub(from.Round(0)), 0)
}
