// SPDX-License-Identifier: Apache-2.0

package ledger_test

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
	"github.com/compute-agent/compute-agent/placement/placementtest"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

func create(name string) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		_, err := tx.CreateProvider(ledger.NewProvider{UUID: name, Name: name})
		return err
	}
}

// held is a ledger whose commits wait until they are let go.
type held struct {
	*ledger.Ledger
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
	if h.Ledger, err = ledger.Open(ctx, h.store, ledger.Options{Observer: &h.seen}); err != nil {
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

// TestSwallowedError: a reshape that failed midway cannot be applied by a
// function that hides it.
func TestSwallowedError(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := open(t, new(placementtest.MemoryStore))
	_, err := l.Update(ctx, func(tx *ledger.Tx) error {
		if err := create("p")(tx); err != nil {
			return err
		}
		_ = tx.Reshape(ledger.Reshape{
			Inventories: map[string]ledger.ProviderInventories{"p": {Inventories: []ledger.Inventory{inventory(
				"VCPU", 1)}}},
			Allocations: []ledger.ConsumerAllocations{{Consumer: "c", Project: "q", User: "u",
				Resources: providertree.ProviderResources{"p": {"VCPU": 2}}}},
		})
		return nil
	})
	if ledger.KindOf(err) != ledger.AllocationConstraint {
		t.Errorf("got %v, want the reshape's own error", err)
	}
	testproc.Equal(t, l.Current().ProviderCount(), 0, "%d providers were applied")
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
	l := testproc.Try(ledger.Open(ctx, new(placementtest.MemoryStore), ledger.Options{})).Or(t)
	for range 2 {
		testproc.Check(t, l.Close())
	}
	testproc.Try(l.Update(ctx, create("p"))).ErrorIs(t, ledger.ErrClosed, "got %v")
}

func TestBadState(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, state := range map[string]ledger.State{
		"missing parent": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a", Parent: 2}}},
		"loop": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a", Parent: 2},
			{ID: 2, UUID: "b", Parent: 1}}},
		"missing class": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a"}},
			Inventories: []ledger.InventoryRow{{Provider: 1, Class: 10000}}},
		"missing trait": {Providers: []ledger.ProviderRow{{ID: 1, UUID: "a"}},
			ProviderTraits: []ledger.LinkRow{{Provider: 1, Target: 1}}},
		"missing project": {Consumers: []ledger.ConsumerRow{{ID: 1, UUID: "c", Project: 1, User: 1}}},
		"missing type": {Projects: []ledger.NamedRow{{ID: 1, Name: "q"}}, Users: []ledger.NamedRow{{ID: 1, Name: "u"}},
			Consumers: []ledger.ConsumerRow{{ID: 1, UUID: "c", Project: 1, User: 1, Type: 1}}},
		"host without its name": {Hosts: []ledger.HostRow{{ID: 1, Kind: ledger.HostClass, Name: "VCPU", Amount: 1}}},
		"lost allocation":       {Allocations: []ledger.AllocationRow{{Provider: 1, Consumer: "c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ledger.Open(ctx, &placementtest.MemoryStore{State: state},
				ledger.Options{}); !errors.Is(err, ledger.ErrBadState) {
				t.Errorf("got %v, want ErrBadState", err)
			}
		})
	}
}

// TestNamesOfHosts: a name that a database cannot store, or that is empty, is refused; what an
// earlier version stored without a name does not keep the ledger from opening, nor from writing.
func TestNamesOfHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	store := &placementtest.MemoryStore{State: ledger.State{Hosts: []ledger.HostRow{
		{ID: 1, Kind: ledger.HostItself}, {ID: 1, Kind: ledger.HostClass, Name: "VCPU", Amount: 1},
		{ID: 2, Kind: ledger.HostItself, Name: "a\x01"},
	}}}
	l := testproc.Try(ledger.Open(ctx, store, ledger.Options{})).Or(t)
	defer func() { testproc.NoError(t, l.Close()) }()
	for _, name := range []string{"", "a\xff", "a\x00", "a\n", "\x7f"} {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			_, err := tx.SetHost(ledger.Host{Name: name})
			return err
		})
		if refused := new(ledger.Error); !errors.As(err, &refused) || refused.Kind != ledger.InvalidName {
			t.Errorf("%q: got %v, want InvalidName", name, err)
		}
	}
	must(t, l, func(tx *ledger.Tx) error {
		h, err := tx.SetHost(ledger.Host{Name: "h"})
		if err == nil && h.ID != 3 {
			t.Errorf("the host has the ID %d, want 3", h.ID)
		}
		return err
	})
}

// TestNamesThatAreOneAlready: two providers whose names differ only in spaces at the end, of a
// database of an older version, are found by their own names, and by others the first one. Neither
// gets a name that is the other's.
func TestNamesThatAreOneAlready(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, names := range [][]string{{"node", "node "}, {"node ", "node  "}, {"node  ", "node"}} {
		store := &placementtest.MemoryStore{State: ledger.State{Providers: []ledger.ProviderRow{
			{ID: 1, UUID: "a", Name: names[0], Root: 1}, {ID: 2, UUID: "b", Name: names[1], Root: 2},
		}}}
		l := testproc.Try(ledger.Open(ctx, store, ledger.Options{})).Or(t)
		found := func(name, uuid string) {
			t.Helper()
			if p, ok := l.Current().ProviderByName(name); (uuid != "") != ok || ok && p.UUID != uuid {
				t.Errorf("with %q, %q is found as %+v", names, name, p)
			}
		}
		rename := func(uuid, to string) error {
			_, err := l.Update(ctx, func(tx *ledger.Tx) error {
				_, err := tx.UpdateProvider(uuid, ledger.ProviderUpdate{Name: to})
				return err
			})
			return err
		}
		found(names[0], "a")
		found(names[1], "b")
		for _, uuid := range []string{"a", "b"} {
			for _, name := range []string{"node", "node ", "node  ", "node   "} {
				if name == names[map[string]int{"a": 0, "b": 1}[uuid]] {
					continue
				}
				if err := rename(uuid, name); ledger.KindOf(err) != ledger.DuplicateName {
					t.Errorf("with %q, rename %s to %q: %v", names, uuid, name, err)
				}
			}
		}
		testproc.Check(t, rename("a", "other"))
		testproc.Check(t, rename("b", "node   "))
		found(names[0], "b")
		found("node     ", "b")
		_, err := l.Update(ctx, func(tx *ledger.Tx) error { return tx.DeleteProvider("b") })
		testproc.Check(t, err)
		found("node", "")
		found("node   ", "")
		testproc.Check(t, l.Close())
	}
}
