// SPDX-License-Identifier: Apache-2.0

package transactor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestReserve: after another server committed first, a store that can reserve the next commit is
// asked to, and released, unless no other process commits. The first try assumes the version.
func TestReserve(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	locked := errors.New("locked by another server")
	for _, tc := range []struct {
		name      string
		exclusive bool
		conflicts int
		fails     error
		want      []string
	}{
		{"no conflict", false, 0, nil, []string{"commit"}},
		{"three conflicts", false, 3, nil,
			[]string{"commit", "commit", "reserve", "commit", "release", "reserve", "commit", "release"}},
		{"no lock", false, 2, locked, []string{"commit", "commit", "reserve"}},
		{"exclusive", true, 1, nil, []string{"commit", "commit"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := &reserving{exclusive: tc.exclusive}
			l := open(t, store)
			store.fails, store.calls = tc.fails, nil
			store.Before = func(int64, []ledger.Change) error {
				store.calls = append(store.calls, "commit")
				if tc.conflicts--; tc.conflicts >= 0 {
					return ledger.ErrVersionConflict
				}
				return nil
			}
			testproc.Try(l.Update(ctx, create("p"))).ErrorIs(t, tc.fails, "got %v")
			if err := l.Close(); err != nil { // the writer releases after the answer
				t.Error(err)
			}
			testproc.EqualList(t, store.calls, tc.want, "calls %q")
		})
	}
}

// TestVersionIsAssumed: a server that alone writes does not read the version before it commits,
// except to refuse a write; after another one committed first, it reads it for a while.
func TestVersionIsAssumed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db := placementtest.NewRowStore(ledger.State{})
	store := &looking{RowStore: db}
	l, other := open(t, store), open(t, db)
	must(t, l, create("a")) // the other one has written when it was opened
	look := func(what string, want int, do func()) {
		t.Helper()
		store.looks = 0
		if do(); store.looks != want {
			t.Errorf("%s: the version is read %d times, want %d", what, store.looks, want)
		}
	}
	looks := func(what string, from, to, want int) {
		look(what, want, func() {
			for i := from; i < to; i++ {
				must(t, l, create(fmt.Sprint("p", i)))
			}
		})
	}
	looks("alone", 0, 10, 0)
	taken := func() {
		if _, err := l.Update(ctx, create("p0")); ledger.KindOf(err) != ledger.DuplicateUUID {
			t.Errorf("created again: %v", err)
		}
	}
	look("refused", 1, taken)
	look("nothing to do", 1, func() { must(t, l, func(*ledger.Tx) error { return nil }) })
	looks("after that", 10, 20, 0)
	must(t, other, create("p20"))
	testproc.Try(l.Snapshot(ctx)).Or(t)
	look("the newest version is not its own", 1, func() { must(t, l, create("p21")) })
	must(t, other, func(tx *ledger.Tx) error { return tx.DeleteProvider("p0") })
	look("accepted by what another server wrote", 1, func() { must(t, l, create("p0")) })
	must(t, other, create("p22"))
	looks("another server was first", 23, 43, 16)
	looks("alone again", 43, 50, 0)
}

// looking counts how often the version is read.
type looking struct {
	*placementtest.RowStore
	looks int
}

func (l *looking) Version(ctx context.Context) (int64, error) {
	l.looks++
	return l.RowStore.Version(ctx)
}

// reserving is a store that can reserve the next commit.
type reserving struct {
	placementtest.MemoryStore
	exclusive bool
	fails     error
	calls     []string
}

func (r *reserving) Exclusive() bool { return r.exclusive }

func (r *reserving) Reserve(context.Context) (func(), error) {
	r.calls = append(r.calls, "reserve")
	return func() { r.calls = append(r.calls, "release") }, r.fails
}
