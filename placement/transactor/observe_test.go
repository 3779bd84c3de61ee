// SPDX-License-Identifier: Apache-2.0

package transactor_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// observed keeps what a ledger tells. All of it comes from the goroutines of one write after the
// other.
type observed struct {
	commits []transactor.Commit
	follows []transactor.Follow
}

func (o *observed) Committed(c transactor.Commit) { o.commits = append(o.commits, c) }
func (o *observed) Followed(f transactor.Follow)  { o.follows = append(o.follows, f) }

// shared is a store that other servers commit to as well.
type shared struct{ *placementtest.MemoryStore }

func (shared) Exclusive() bool { return false }

// TestObserver: it gets every try to commit with its outcome, and every catching up with other
// servers.
func TestObserver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var seen observed
	store := shared{new(placementtest.MemoryStore)}
	now := time.Unix(0, 0)
	l, err := transactor.Open(ctx, store, transactor.Options{Observer: &seen, Now: func() time.Time { return now }})
	testproc.Check(t, err)
	defer func() { testproc.NoError(t, l.Close()) }()
	if len(seen.commits) != 1 || seen.commits[0].Changes != len(ledger.StandardClasses())+len(ledger.StandardTraits()) {
		t.Fatalf("opening an empty store: %+v", seen.commits)
	}
	seen = observed{}

	disk := errors.New("the disk is gone")
	results := []error{ledger.ErrVersionConflict, nil, disk, ledger.ErrReload, nil}
	store.Before = func(int64, []ledger.Change) error {
		now = now.Add(time.Millisecond)
		err := results[0]
		results = results[1:]
		return err
	}
	testproc.Try(l.Update(ctx, create("a"))).Or(t)
	if _, err := l.Update(ctx, create("a")); ledger.KindOf(err) != ledger.DuplicateUUID {
		t.Fatal(err)
	}
	if _, err := l.Update(ctx, create("b")); !errors.Is(err, disk) {
		t.Fatal(err)
	}
	testproc.Try(l.Update(ctx, create("c"))).Or(t)
	ms := time.Millisecond
	want := []transactor.Commit{
		{Outcome: transactor.Conflict, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: transactor.Durable, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: transactor.Failed, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: transactor.Reloaded, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: transactor.Durable, Writes: 1, Changes: 1, Duration: ms},
	}
	testproc.Samef(t, cmp.Diff(want, seen.commits), "commits: want -, told +")
	store.Before = nil
	other := testproc.Try(transactor.Open(ctx, store, transactor.Options{})).Or(t)
	for _, name := range []string{"x", "y"} {
		testproc.Try(other.Update(ctx, create(name))).Or(t)
	}
	behind := other.Current().Version() - l.Current().Version()
	testproc.Try(l.Snapshot(ctx)).Or(t)
	if diff := cmp.Diff([]transactor.Follow{{Versions: behind, Whole: true}}, seen.follows,
		cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("catching up: want -, told +\n%s", diff)
	}
	if _, err := l.Snapshot(ctx); err != nil || len(seen.follows) != 1 {
		t.Errorf("there was nothing to catch up with: %+v, %v", seen.follows, err)
	}
	testproc.NoError(t, other.Close())
}
