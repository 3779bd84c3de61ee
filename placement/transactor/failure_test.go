// SPDX-License-Identifier: Apache-2.0

package transactor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func offerVCPU(generation int64) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		_, err := tx.SetInventories("p", generation,
			[]ledger.Inventory{{Class: "VCPU", Total: 1, MinUnit: 1, MaxUnit: 1, StepSize: 1, AllocationRatio: 1}})
		return err
	}
}

// TestRefusedForWhatNeverWas: of two writes of one generation that share a commit, the second is
// refused for what the first did. When the commit fails, nothing happened that it could be refused
// for, and it must not get that refusal. One that was refused before the first gets its refusal.
func TestRefusedForWhatNeverWas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, failure := range map[string]error{"nothing was written": ledger.ErrFull,
		"outcome unknown": ledger.ErrOutcomeUnknown} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := openHeld(t)
				update := func(fn func(*ledger.Tx) error) <-chan error {
					done := make(chan error, 1)
					go func() {
						_, err := h.Update(ctx, fn)
						done <- err
					}()
					synctest.Wait() // it has its place in the queue
					return done
				}
				first := update(create("p"))
				<-h.entered
				early, winner, loser := update(offerVCPU(7)), update(offerVCPU(0)), update(offerVCPU(0))
				h.let <- nil
				testproc.Check(t, <-first)
				<-h.entered
				h.let <- failure
				if err := <-early; ledger.KindOf(err) != ledger.GenerationConflict {
					t.Errorf("the one that was wrong anyway: %v", err)
				}
				testproc.ErrorIs(t, <-winner, failure, "the one that would have won: %v")
				if err := <-loser; !errors.Is(err, failure) || ledger.KindOf(err) != 0 {
					t.Errorf("the one after it: %v", err)
				}
				testproc.NoError(t, h.Close())
			})
		})
	}
}

// forgetful commits and says that it does not know, and cannot load for a while.
type forgetful struct {
	placementtest.MemoryStore
	unknown, down atomic.Bool
}

func (f *forgetful) Commit(ctx context.Context, base int64, changes []ledger.Change) error {
	err := f.MemoryStore.Commit(ctx, base, changes)
	if err == nil && f.unknown.CompareAndSwap(true, false) {
		f.down.Store(true)
		return ledger.ErrOutcomeUnknown
	}
	return err
}

func (f *forgetful) Load(ctx context.Context) (*ledger.State, error) {
	if f.down.Load() {
		return nil, ledger.ErrUnavailable
	}
	return f.MemoryStore.Load(ctx)
}

// TestUnknownOutcomeIsReadBack: a ledger that has its store for itself does not ask it before each
// read. After a commit with an unknown outcome it does, until the outcome is known: what it shows
// and builds on is what the store holds.
func TestUnknownOutcomeIsReadBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := &forgetful{}
	l := testproc.Try(transactor.Open(t.Context(), store, transactor.Options{})).Or(t)
	defer func() { testproc.NoError(t, l.Close()) }()
	create := func(tx *ledger.Tx) error {
		_, _, err := tx.CreateTrait("CUSTOM_T")
		return err
	}
	before := l.Current().Version()
	store.unknown.Store(true)
	if _, err := l.Update(t.Context(), create); !errors.Is(err, ledger.ErrOutcomeUnknown) {
		t.Fatalf("got %v, want ErrOutcomeUnknown", err)
	}
	testproc.Try(l.Snapshot(t.Context())).ErrorIs(t, ledger.ErrUnavailable, "reading after an unknown outcome: got %v")
	if _, err := l.Update(t.Context(), create); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("writing after an unknown outcome: got %v, want ErrUnavailable", err)
	}
	store.down.Store(false)
	s, err := l.Snapshot(t.Context())
	if err != nil || s.Version() != before+1 {
		t.Errorf("when it can be known: version %d, %v, want %d", s.Version(), err, before+1)
	}
	if _, err := l.Update(t.Context(), create); err != nil {
		t.Errorf("writing does not go on: %v", err)
	}
}
