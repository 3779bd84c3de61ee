// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// seen is an Observer that counts.
type seen struct {
	mu          sync.Mutex
	builds      map[scheduler.Outcome]int
	corrections map[scheduler.Correction]int
}

func (s *seen) Built(o scheduler.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.builds[o]++
}

func (s *seen) Corrected(c scheduler.Correction) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.corrections[c]++
}

// beginObserved begins a world with an observer.
func beginObserved(t *testing.T, hosts []int, options ...func(*scheduler.Options, *quota.Options)) (*world, *seen) {
	t.Helper()
	s := &seen{builds: map[scheduler.Outcome]int{}, corrections: map[scheduler.Correction]int{}}
	return begin(t, hosts, append(options,
		func(b *scheduler.Options, _ *quota.Options) { b.Observer = s })...), s
}

// TestBuildsAreCounted: each attempt by how it ended.
func TestBuildsAreCounted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type counts = map[scheduler.Outcome]int
	t.Run("placed, after Placement was down", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		w.created()
		w.plink.set(refused)
		w.schedule()
		diff(t, counts{scheduler.PutOff: 1}, s.builds)
		w.plink.set(up)
		w.pass(time.Minute)
		w.beat()
		w.schedule()
		diff(t, counts{scheduler.PutOff: 1, scheduler.Placed: 1}, s.builds)
		w.schedule()
		diff(t, counts{scheduler.PutOff: 1, scheduler.Placed: 1}, s.builds)
	})
	t.Run("no host", func(t *testing.T) {
		w, s := beginObserved(t, []int{0})
		w.created()
		w.schedule()
		diff(t, counts{scheduler.Unplaced: 1}, s.builds)
	})
	t.Run("deleted meanwhile", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		uuid := w.created()
		w.scheduler.SetAfter(func(step string) error {
			if step == "insert" {
				return w.store.AbandonBuild(ctx, uuid)
			}
			return nil
		})
		w.schedule()
		diff(t, counts{scheduler.Abandoned: 1}, s.builds)
	})
	t.Run("the process ends", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		w.created()
		w.scheduler.SetAfter(func(step string) error {
			if step == "release" {
				return errors.New("killed")
			}
			return nil
		})
		w.schedule()
		w.restart()
		w.schedule()
		diff(t, counts{scheduler.PutOff: 1, scheduler.Placed: 1}, s.builds)
	})
}

// TestCorrectionsAreCounted: what was left half done, when it is finished, once.
func TestCorrectionsAreCounted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type counts = map[scheduler.Correction]int
	killAfter := func(w *world, last string) {
		w.scheduler.SetAfter(func(step string) error {
			if step == last {
				return errors.New("killed")
			}
			return nil
		})
	}
	reconciled := func(t *testing.T, w *world, s *seen, want counts) {
		t.Helper()
		for range 3 { // a claim needs two, and the last finds nothing
			w.must(w.scheduler.Reconcile(ctx))
			w.pass(scheduler.DefaultGrace / 2)
		}
		diff(t, want, s.corrections)
	}
	t.Run("nothing", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		w.created()
		w.schedule()
		w.work()
		w.pass(2 * scheduler.DefaultGrace)
		reconciled(t, w, s, counts{})
	})
	t.Run("allocations of a deleted server", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		uuid := w.created()
		w.schedule()
		w.work()
		w.pass(5 * scheduler.DefaultGrace)
		w.plink.set(refused)
		w.must(w.delete(uuid, false))
		if err := w.scheduler.Reconcile(ctx); err == nil {
			t.Error("it is done without Placement")
		}
		diff(t, counts{}, s.corrections)
		w.plink.set(up)
		reconciled(t, w, s, counts{scheduler.FreedDeleted: 1})
	})
	t.Run("queued_for_delete", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		uuid := w.created()
		w.schedule()
		w.work()
		w.must(w.store.SetQueued(ctx, map[string]bool{uuid: true}))
		reconciled(t, w, s, counts{scheduler.CorrectedQueued: 1})
	})
	t.Run("a row of a server that was deleted, and its claim", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		uuid := w.created()
		killAfter(w, "insert")
		w.schedule()
		w.restart()
		w.must(w.store.AbandonBuild(ctx, uuid))
		w.pass(2 * scheduler.DefaultGrace)
		reconciled(t, w, s, counts{scheduler.DiscardedHidden: 1, scheduler.ClearedClaim: 1})
		w.consistent(map[string]bool{uuid: false})
	})
	t.Run("a row that was not shown", func(t *testing.T) {
		w, s := beginObserved(t, []int{1})
		uuid := w.created()
		killAfter(w, "place")
		w.schedule()
		w.restart()
		w.pass(2 * scheduler.DefaultGrace)
		w.beat()
		reconciled(t, w, s, counts{scheduler.ReleasedHidden: 1})
		w.schedule()
		w.work()
		w.consistent(map[string]bool{uuid: true})
	})
	t.Run("a soft delete that is over", func(t *testing.T) {
		w, s := beginObserved(t, []int{1},
			func(b *scheduler.Options, _ *quota.Options) { b.Reclaim = 10 * scheduler.DefaultGrace })
		uuid := w.created()
		w.schedule()
		w.work()
		w.must(w.delete(uuid, true))
		w.work()
		w.pass(11 * scheduler.DefaultGrace)
		w.beat()
		w.must(w.scheduler.Reconcile(ctx))
		diff(t, counts{scheduler.Reclaimed: 1}, s.corrections)
	})
}

// TestSchedulingWhileRunIsActive: Scheduling is true while Run is active, and at no other time.
func TestSchedulingWhileRunIsActive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	if w.scheduler.Scheduling() {
		t.Error("true before Run")
	}
	stop := run(w.scheduler)
	testproc.Eventually(t, testproc.Patience, "Scheduling is true", testproc.True(w.scheduler.Scheduling))
	stop()
	if w.scheduler.Scheduling() {
		t.Error("true after Run")
	}
}
