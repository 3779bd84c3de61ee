// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestClaimOfAPlacementThatHung: Placement hangs with the request for a server's allocations before
// it, the server is deleted, and what Placement does first when it goes on is what it was asked
// later: to say what the server holds, which is nothing yet.
func TestClaimOfAPlacementThatHung(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	uuid := w.created()
	w.plink.when(func(r *http.Request) fault {
		if r.Method == http.MethodPut {
			return late
		}
		return up
	})
	w.schedule()
	w.must(w.delete(uuid, false))
	queue := w.plink.queue
	if len(queue) != 1 {
		t.Fatalf("%d requests are on their way", len(queue))
	}
	w.plink.queue = nil // it arrives when this test says so
	w.plink.set(up)
	w.pass(2 * scheduler.DefaultGrace)
	w.must(w.scheduler.Reconcile(ctx))
	w.plink.queue = queue
	w.plink.deliver()
	if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) == 0 {
		t.Fatalf("it holds %+v %v: there is nothing to test", held, err)
	}
	w.consistent(map[string]bool{uuid: false})
}

// TestClaimOfAnEarlierAttempt: of an attempt before the last one the request for allocations is
// still on its way, when the server turns out to be deleted, and what the last attempt allocated is
// removed.
func TestClaimOfAnEarlierAttempt(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	uuid := w.created()
	arrive := w.scheduleLate()
	w.pass(scheduler.DefaultGrace / 2)
	w.scheduler.SetAfter(func(step string) error {
		if step == "insert" {
			w.must(w.store.AbandonBuild(ctx, uuid))
		}
		return nil
	})
	w.schedule()
	w.scheduler.SetAfter(nil)
	if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) > 0 {
		t.Fatalf("it holds %+v %v", held, err)
	}
	arrive()
	if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) == 0 {
		t.Fatalf("it holds %+v %v: there is nothing to test", held, err)
	}
	w.consistent(map[string]bool{uuid: false})
}

// TestClaimOfAServerInCell0: the request for a server's allocations is still on its way when the
// server has ended in cell0. No process remembers it; its claim does.
func TestClaimOfAServerInCell0(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		restarts, deleted bool
	}{
		"the same process decides":                    {},
		"the same process decides, and it is deleted": {deleted: true},
		"another process decides":                     {restarts: true},
		"another process decides, and it is deleted":  {restarts: true, deleted: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{1})
			uuid := w.created()
			arrive := w.scheduleLate()
			w.sites[1].link.set(refused)
			if c.restarts {
				w.restart()
			}
			w.pass(scheduler.DefaultGrace / 2)
			w.schedule()
			if m, err := w.store.Mapping(ctx, uuid); err != nil || m.CellUUID != apidb.Cell0UUID {
				t.Fatalf("it is mapped to %q %v", m.CellUUID, err)
			}
			if c.deleted {
				w.must(w.delete(uuid, false))
			}
			arrive()
			w.sites[1].link.set(up)
			if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) == 0 {
				t.Fatalf("it holds %+v %v: there is nothing to test", held, err)
			}
			testproc.Try(w.store.BuildRequest(ctx, uuid)).ErrorIs(t, apidb.ErrNotFound, "its build has not ended: %v")
			w.consistent(map[string]bool{uuid: !c.deleted})
		})
	}
}
