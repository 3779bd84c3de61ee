// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// observed keeps what a ledger tells. All of it comes from the goroutines of one write after the
// other.
type observed struct {
	commits []ledger.Commit
	follows []ledger.Follow
}

func (o *observed) Committed(c ledger.Commit) { o.commits = append(o.commits, c) }
func (o *observed) Followed(f ledger.Follow)  { o.follows = append(o.follows, f) }

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
	l, err := ledger.Open(ctx, store, ledger.Options{Observer: &seen, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
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
	if _, err := l.Update(ctx, create("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Update(ctx, create("a")); ledger.KindOf(err) != ledger.DuplicateUUID {
		t.Fatal(err)
	}
	if _, err := l.Update(ctx, create("b")); !errors.Is(err, disk) {
		t.Fatal(err)
	}
	if _, err := l.Update(ctx, create("c")); err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	want := []ledger.Commit{
		{Outcome: ledger.Conflict, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: ledger.Durable, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: ledger.Failed, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: ledger.Reloaded, Writes: 1, Changes: 1, Duration: ms},
		{Outcome: ledger.Durable, Writes: 1, Changes: 1, Duration: ms},
	}
	if diff := cmp.Diff(want, seen.commits); diff != "" {
		t.Errorf("commits: want -, told +\n%s", diff)
	}
	store.Before = nil
	other, err := ledger.Open(ctx, store, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "y"} {
		if _, err := other.Update(ctx, create(name)); err != nil {
			t.Fatal(err)
		}
	}
	behind := other.Current().Version() - l.Current().Version()
	if _, err := l.Snapshot(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]ledger.Follow{{Versions: behind, Whole: true}}, seen.follows, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("catching up: want -, told +\n%s", diff)
	}
	if _, err := l.Snapshot(ctx); err != nil || len(seen.follows) != 1 {
		t.Errorf("there was nothing to catch up with: %+v, %v", seen.follows, err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}
