// SPDX-License-Identifier: Apache-2.0

package transactor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// held is a ledger whose commits wait until they are let go.
type held struct {
	*transactor.Ledger
	store *placementtest.MemoryStore
	// entered gets a value when a commit begins; each value sent to let ends one.
	entered chan struct{}
	let     chan error
	seen    observed
}

func openHeld(t *testing.T) *held {
	t.Helper()
	h := &held{store: new(placementtest.MemoryStore), entered: make(chan struct{}), let: make(chan error)}
	var err error
	if h.Ledger, err = transactor.Open(ctx, h.store, transactor.Options{Observer: &h.seen}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { testproc.NoError(t, h.Close()) })
	h.store.Before = func(int64, []ledger.Change) error {
		h.entered <- struct{}{}
		return <-h.let
	}
	return h
}

// TestGroupCommit: what waits while a commit is under way shares the next
// one; each write keeps its own answer.
func TestGroupCommit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := openHeld(t)
		before := len(h.store.Commits)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := h.Update(ctx, create("first")); err != nil {
				t.Error(err)
			}
		})
		<-h.entered
		var mu sync.Mutex
		refused := 0
		for i := range 20 {
			wg.Go(func() {
				_, err := h.Update(ctx, create(fmt.Sprint("p", i/2))) // each name twice
				if ledger.KindOf(err) == ledger.DuplicateUUID {
					mu.Lock()
					refused++
					mu.Unlock()
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		h.let <- nil
		<-h.entered
		h.let <- nil
		wg.Wait()
		testproc.Equal(t, refused, 10, "%d writes were refused")
		if got := h.store.Commits[before:]; len(got) != 2 || got[1] != 10 {
			t.Errorf("commits of %v changes, want [1 10]", got)
		}
		if got := h.seen.commits[len(h.seen.commits)-1]; got.Writes != 10 || got.Refused != 10 {
			t.Errorf("observed %+v, want 10 writes and 10 refused", got)
		}
		h.store.Before = nil
	})
}

// TestBigWriteGoesAlone: a write of more than 1000 rows, such as a reshape, does not hold up the
// small writes that came before it, and a commit ends with the write that takes it above 1000.
func TestBigWriteGoesAlone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := openHeld(t)
		before := len(h.store.Commits)
		var wg sync.WaitGroup
		update := func(name string, rows int) {
			wg.Go(func() {
				if _, err := h.Update(ctx, func(tx *ledger.Tx) error {
					for i := range rows {
						if err := create(fmt.Sprint(name, i))(tx); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		update("first", 1)
		<-h.entered
		for i, rows := range []int{1, 1000, 1, 999, 1, 1, 1001, 1} {
			update(fmt.Sprint("w", i, "-"), rows)
		}
		h.let <- nil
		want := []int{1, 1 + 1000, 1 + 999 + 1, 1, 1001, 1}
		for range want[1:] {
			<-h.entered
			h.let <- nil
		}
		wg.Wait()
		if got := h.store.Commits[before:]; !slices.Equal(got, want) {
			t.Errorf("commits of %v changes, want %v", got, want)
		}
		h.store.Before = nil
	})
}

// TestCancel: a caller that gives up while it waits has done nothing; one that gives up later gets
// ErrOutcomeUnknown.
func TestCancel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := openHeld(t)
		late, cancelLate := context.WithCancel(ctx)
		early, cancelEarly := context.WithCancel(ctx)
		errs := make(chan error, 2)
		go func() { _, err := h.Update(late, create("late")); errs <- err }()
		<-h.entered
		cancelLate()
		if err := <-errs; !errors.Is(err, ledger.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("given up during the commit: %v, want ErrOutcomeUnknown", err)
		}
		go func() { _, err := h.Update(early, create("early")); errs <- err }()
		synctest.Wait()
		cancelEarly()
		if err := <-errs; errors.Is(err, ledger.ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("given up in the queue: %v, want the context's error alone", err)
		}
		h.let <- nil
		h.store.Before = nil
		s := testproc.Try(h.Update(ctx, create("next"))).Or(t)
		if _, ok := s.Provider("late"); !ok {
			t.Error("the write that was committed is not there")
		}
		if _, ok := s.Provider("early"); ok {
			t.Error("the write that was given up in time was done")
		}
	})
}

func TestPanicDropsOnlyItsTransaction(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	_, err := l.Update(ctx, func(tx *ledger.Tx) error {
		if err := create("half")(tx); err != nil {
			return err
		}
		panic("a mistake")
	})
	var p *ledger.PanicError
	if !errors.As(err, &p) || p.Value != "a mistake" {
		t.Fatalf("got %v, want a PanicError", err)
	}
	s := testproc.Try(l.Update(ctx, create("whole"))).Or(t)
	if _, ok := s.Provider("half"); ok {
		t.Error("half a transaction was applied")
	}
}

func TestStoreErrors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	full := errors.New("no space")
	for name, tc := range map[string]struct {
		fail  error // what commits answer
		times int   // how often
		want  error // what Update answers, nil: it succeeds
		runs  int   // of the function
	}{
		"conflict, then free": {ledger.ErrVersionConflict, 3, nil, 4},
		"conflict forever":    {ledger.ErrVersionConflict, 1000, ledger.ErrBusy, 10},
		"rows differ, once":   {ledger.ErrReload, 1, nil, 2},
		"the store's own":     {full, 1, full, 1},
		"outcome unknown":     {ledger.ErrOutcomeUnknown, 1, ledger.ErrOutcomeUnknown, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := new(placementtest.MemoryStore)
				l := open(t, store)
				failed := 0
				store.Before = func(int64, []ledger.Change) error {
					if failed++; failed <= tc.times {
						return tc.fail
					}
					return nil
				}
				runs := 0
				_, err := l.Update(ctx, func(tx *ledger.Tx) error { runs++; return create("p")(tx) })
				if !errors.Is(err, tc.want) || runs != tc.runs {
					t.Errorf("after %d runs: %v; want %v after %d", runs, err, tc.want, tc.runs)
				}
				if _, ok := l.Current().Provider("p"); ok != (tc.want == nil) {
					t.Errorf("published: %v", ok)
				}
			})
		})
	}
}

// TestPauseBeforeRetry: a ledger whose commits lose against another server's tries again after
// pauses that double, up to a limit, with half of each as jitter.
func TestPauseBeforeRetry(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		store := new(placementtest.MemoryStore)
		l := open(t, store)
		var tries []time.Time
		store.Before = func(int64, []ledger.Change) error {
			tries = append(tries, time.Now()) // virtual
			return ledger.ErrVersionConflict
		}
		testproc.Try(l.Update(ctx, create("p"))).ErrorIs(t, ledger.ErrBusy, "got %v")
		for i, mean := range []time.Duration{2, 4, 8, 16, 32, 64, 128, 128, 128} {
			mean *= time.Millisecond
			if pause := tries[i+1].Sub(tries[i]); pause < mean/2 || pause >= mean*3/2 {
				t.Errorf("pause %d took %v, want around %v", i, pause, mean)
			}
		}
	})
}

// TestOneBump: two changes of one provider in one commit write its generation once.
func TestOneBump(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := new(placementtest.MemoryStore)
	l := open(t, store)
	var got []ledger.Change
	store.Before = func(_ int64, changes []ledger.Change) error {
		got = slices.Clone(changes)
		return nil
	}
	must(t, l, func(tx *ledger.Tx) error {
		for _, name := range []string{"a", "b"} {
			if err := create(name)(tx); err != nil {
				return err
			}
		}
		for _, name := range []string{"a", "b", "a"} {
			if err := tx.DeleteInventories(name); err != nil {
				return err
			}
		}
		return nil
	})
	var bumps []string
	for _, c := range got {
		if b, ok := c.(ledger.BumpProvider); ok {
			bumps = append(bumps, fmt.Sprintf("%d: %d to %d", b.ID, b.From, b.To))
		}
	}
	testproc.EqualList(t, bumps, []string{"2: 0 to 1", "1: 0 to 2"}, "generations are written as %q")
}

func TestClose(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := testproc.Try(transactor.Open(ctx, new(placementtest.MemoryStore), transactor.Options{})).Or(t)
	for range 2 {
		testproc.Check(t, l.Close())
	}
	testproc.Try(l.Update(ctx, create("p"))).ErrorIs(t, ledger.ErrClosed, "got %v")
}
