// SPDX-License-Identifier: Apache-2.0

package transactor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cut is a database whose version cannot be read, and that takes no writes, while version says
// so.
type cut struct {
	*placementtest.RowStore
	version   func(context.Context) error
	exclusive bool
}

func (c *cut) Exclusive() bool { return c.exclusive }

func (c *cut) Version(ctx context.Context) (int64, error) {
	if c.version != nil {
		if err := c.version(ctx); err != nil {
			return 0, err
		}
	}
	return c.RowStore.Version(ctx)
}

func (c *cut) Commit(ctx context.Context, base int64, changes []ledger.Change) error {
	if c.version != nil {
		if err := c.version(ctx); err != nil {
			return err
		}
	}
	return c.RowStore.Commit(ctx, base, changes)
}

func openCut(t *testing.T, stale time.Duration) (*cut, *transactor.Ledger) {
	t.Helper()
	db := &cut{RowStore: placementtest.NewRowStore(ledger.State{})}
	l := testproc.Try(transactor.Open(ctx, db, transactor.Options{StaleReads: stale})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, l.Close()) })
	return db, l
}

// unreachable is what a store returns that has lost its database.
func unreachable(context.Context) error {
	return fmt.Errorf("%w: connection refused", ledger.ErrUnavailable)
}

// TestStaleReadsAreBounded: while the database cannot be asked, reads show the state in memory with
// its age, up to the bound. Writes and Snapshot fail at once, and all is current when it answers.
func TestStaleReadsAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		db, l := openCut(t, 5*time.Second)
		must(t, l, create("p"))
		read := func(age time.Duration) {
			t.Helper()
			s, got, err := l.Read(ctx)
			if err != nil || got != age {
				t.Fatalf("age %s, %v, want %s", got, err, age)
			}
			if _, ok := s.Provider("p"); !ok {
				t.Error("the state lacks what was written")
			}
		}
		time.Sleep(time.Minute)
		read(0) // a database that answers has no stale reads, however long no request came
		db.version = unreachable
		time.Sleep(2 * time.Second)
		read(2 * time.Second)
		testproc.Try(l.Snapshot(ctx)).ErrorIs(t, ledger.ErrUnavailable, "Snapshot: %v")
		testproc.Try(l.Update(ctx, create("q"))).ErrorIs(t, ledger.ErrUnavailable, "Update: %v")
		time.Sleep(3*time.Second - 1)
		read(5*time.Second - 1)
		time.Sleep(time.Nanosecond)
		if _, _, err := l.Read(ctx); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("at the bound: %v", err)
		}
		db.version = nil
		must(t, open(t, db.RowStore), create("of another server"))
		s, age, err := l.Read(ctx)
		if err != nil || age != 0 {
			t.Fatal(age, err)
		}
		if _, ok := s.Provider("of another server"); !ok {
			t.Error("a read of a database that answers again is stale")
		}
	})
}

// TestStaleReadsOfASilentDatabase: a read waits for a second, and is then answered from memory.
// From the bound on it waits for the database as any read does.
func TestStaleReadsOfASilentDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		db, l := openCut(t, 5*time.Second)
		must(t, l, create("p"))
		db.version = func(context.Context) error {
			time.Sleep(15 * time.Second)
			return unreachable(ctx)
		}
		began := time.Now()
		for second := 1; second < 5; second++ {
			if _, age, err := l.Read(ctx); err != nil ||
				age != time.Duration(second)*time.Second || time.Since(began) != age {
				t.Errorf("read %d: age %s after %s, %v", second, age, time.Since(began), err)
			}
		}
		if _, _, err := l.Read(ctx); !errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("after the bound: %v", err)
		}
		if took := time.Since(began); took != 15*time.Second { // with the version check that all of them share
			t.Errorf("the last read ended after %s", took)
		}
	})
}

// TestReadsThatAreNeverStale: the option is off, the caller gave up, no other process has the
// database, or the database answered and is not believed.
func TestReadsThatAreNeverStale(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for name, c := range map[string]struct {
		ctx   context.Context
		stale time.Duration
		set   func(*cut)
		want  error
	}{
		"off": {ctx, 0, func(db *cut) { db.version = unreachable }, ledger.ErrUnavailable},
		"canceled": {gone, time.Hour,
			func(db *cut) { db.version = func(context.Context) error { select {} } }, context.Canceled},
		"handed back": {ctx, time.Hour,
			func(db *cut) { db.version = func(context.Context) error { return ledger.ErrHandedBack } },
			ledger.ErrHandedBack},
		"made again": {ctx, time.Hour,
			func(db *cut) { db.version = func(context.Context) error { return ledger.ErrReplaced } },
			ledger.ErrReplaced},
		"a bug": {ctx, time.Hour,
			func(db *cut) { db.version = func(context.Context) error { return errTrouble } }, errTrouble},
		"it went back":      {ctx, time.Hour, func(db *cut) { db.Commits = nil }, ledger.ErrUnavailable},
		"one process alone": {ctx, time.Hour, func(db *cut) { db.exclusive, db.version = true, unreachable }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			db, l := openCut(t, c.stale)
			c.set(db)
			if _, age, err := l.Read(c.ctx); !errors.Is(err, c.want) || age != 0 {
				t.Errorf("age %s, %v, want %v", age, err, c.want)
			}
			db.exclusive = false
		})
	}
}

var errTrouble = errors.New("trouble")

// TestAgeCountsTheClockThatWentFurther: the monotonic clock stands still while a machine is
// suspended, and the wall clock may be set back.
func TestAgeCountsTheClockThatWentFurther(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	began := time.Now()
	now := began
	l, err := transactor.Open(ctx, &cut{RowStore: placementtest.NewRowStore(ledger.State{})},
		transactor.Options{Now: func() time.Time { return now }})
	testproc.Check(t, err)
	defer func() { testproc.NoError(t, l.Close()) }()
	for _, c := range []struct {
		now  time.Time
		want time.Duration
	}{
		{began.Add(time.Minute), time.Minute},
		{began.Add(-time.Minute), 0},
		{began.Round(0).Add(time.Hour), time.Hour}, // without a monotonic reading
	} {
		if now = c.now; l.Age() != c.want {
			t.Errorf("at %s: %s, want %s", now, l.Age(), c.want)
		}
	}
}

// TestVersionThatWentBack: what a store shows that went back is not believed, and when it has the
// version again, its history may be another one. Then the whole state is loaded.
func TestVersionThatWentBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, l := openCut(t, 0)
	must(t, l, create("lost"))
	had := l.Current().Version()
	// A backup without the last commit is restored, and another server goes on from there.
	restored := placementtest.NewRowStore(ledger.State{})
	restart := open(t, restored)
	db.RowStore = restored
	if _, err := l.Snapshot(ctx); !errors.Is(err, ledger.ErrUnavailable) {
		t.Fatalf("of an older version: %v", err)
	}
	must(t, restart, create("new"))
	if got := restart.Current().Version(); got != had {
		t.Fatalf("version %d, want %d", got, had)
	}
	s := testproc.Try(l.Snapshot(ctx)).Or(t)
	if _, ok := s.Provider("lost"); ok {
		t.Error("shows what the restored database does not have")
	}
	if _, ok := s.Provider("new"); !ok {
		t.Error("does not show what the restored database has")
	}
	loads := restored.Loads
	if _, err := l.Snapshot(ctx); err != nil || restored.Loads != loads {
		t.Errorf("loaded again: %d, %v", restored.Loads-loads, err)
	}
}
