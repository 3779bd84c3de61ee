// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDelete: in each stage of its life.
func TestDelete(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	t.Run("before it is placed", func(t *testing.T) {
		w := begin(t, []int{1})
		uuid := w.created()
		w.must(w.delete(uuid, false))
		testproc.ErrorIs(t, w.delete(uuid, false), apidb.ErrNotFound, "the second time: %v")
		w.schedule()
		w.consistent(map[string]bool{uuid: false})
	})
	t.Run("while it is scheduled", func(t *testing.T) {
		for _, step := range []string{"claim", "allocate", "insert"} {
			w := begin(t, []int{1})
			uuid := w.created()
			w.scheduler.SetAfter(func(s string) error {
				if s != step {
					return nil
				}
				return w.store.AbandonBuild(ctx, uuid) // as another process does
			})
			w.schedule()
			w.scheduler.SetAfter(nil)
			if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) > 0 {
				t.Errorf("%s: it holds %+v %v", step, held, err)
			}
			w.consistent(map[string]bool{uuid: false})
		}
	})
	t.Run("placed and not released", func(t *testing.T) {
		w := begin(t, []int{1})
		uuid := w.created()
		w.scheduler.SetAfter(func(s string) error {
			if s == "place" {
				return errors.New("the end")
			}
			return nil
		})
		w.schedule()
		w.restart()
		w.must(w.delete(uuid, false))
		testproc.Try(w.store.BuildRequest(ctx, uuid)).ErrorIs(t, apidb.ErrNotFound, "the build request: %v")
		w.consistent(map[string]bool{uuid: false})
	})
	t.Run("active", func(t *testing.T) {
		w := begin(t, []int{1})
		uuid := w.created()
		w.schedule()
		w.work()
		w.sites[1].link.counted()
		w.plink.counted()
		w.must(w.delete(uuid, false))
		diff(t, map[string]int{"POST /v1/servers/{uuid}/delete": 1}, w.sites[1].link.counted())
		diff(t, map[string]int{}, w.plink.counted())
		if row := w.row(uuid); row.TaskState != cellwire.TaskDeleting {
			t.Errorf("the row is %+v", row)
		}
		if m, _ := w.store.Mapping(ctx, uuid); !m.Queued() {
			t.Error("the mapping is not queued for delete")
		}
		w.work()
		w.consistent(map[string]bool{uuid: false})
	})
	t.Run("its host is down", func(t *testing.T) {
		w := begin(t, []int{1})
		uuid := w.created()
		w.schedule()
		w.work()
		w.pass(5 * scheduler.DefaultGrace)
		w.sites[1].link.counted()
		w.plink.counted()
		w.must(w.delete(uuid, false))
		diff(t, map[string]int{"POST /v1/servers/{uuid}/delete": 1, "POST /v1/servers/{uuid}/freed": 1},
			w.sites[1].link.counted())
		diff(t, map[string]int{"GET /allocations/{uuid}": 1, "PUT /allocations/{uuid}": 1}, w.plink.counted())
		if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) > 0 {
			t.Errorf("it holds %+v %v", held, err)
		}
		w.consistent(map[string]bool{uuid: false})
	})
	t.Run("its host is down, and Placement", func(t *testing.T) {
		w := begin(t, []int{1})
		uuid := w.created()
		w.schedule()
		w.work()
		w.pass(5 * scheduler.DefaultGrace)
		w.plink.set(refused)
		w.must(w.delete(uuid, false))
		w.plink.set(up)
		w.must(w.scheduler.Reconcile(ctx))
		if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) > 0 {
			t.Errorf("it holds %+v %v", held, err)
		}
		w.consistent(map[string]bool{uuid: false})
	})
	t.Run("its cell is down", func(t *testing.T) {
		w := begin(t, []int{1})
		uuid := w.created()
		w.schedule()
		w.work()
		for _, how := range []fault{refused, hangs, rubbish} {
			w.sites[1].link.set(how)
			testproc.ErrorIs(t, w.delete(uuid, false), gather.ErrDown, "deleting the server: %v")
			if m, _ := w.store.Mapping(ctx, uuid); m.Queued() {
				t.Error("the mapping is queued for delete")
			}
		}
		w.sites[1].link.set(lost) // the cell receives the request
		testproc.ErrorIs(t, w.delete(uuid, false), gather.ErrDown, "deleting the server: %v")
		w.sites[1].link.set(up)
		w.must(w.scheduler.Reconcile(ctx))
		if m, _ := w.store.Mapping(ctx, uuid); !m.Queued() {
			t.Error("the reconciler did not see that it is deleted")
		}
		w.consistent(map[string]bool{uuid: false})
	})
}

// TestSoftDelete: deleted softly, restored, and reclaimed.
func TestSoftDelete(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1}, limits(1, 20, 51200),
		func(b *scheduler.Options, _ *quota.Options) { b.Reclaim = 10 * scheduler.DefaultGrace })
	uuid := w.created()
	w.schedule()
	w.work()
	w.must(w.delete(uuid, true))
	w.work()
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	if row := w.row(uuid); row.VMState != cellwire.VMSoftDeleted || !m.Queued() {
		t.Errorf("the row is %+v, the mapping %+v", row, m)
	}
	testproc.Try(w.scheduler.Restore(ctx, m)).Or(w.t)
	w.work()
	if row := w.row(uuid); row.VMState != cellwire.VMActive || w.queued(uuid) {
		t.Errorf("the row is %+v, queued %v", row, w.queued(uuid))
	}
	w.must(w.delete(uuid, true))
	w.work()
	other := w.created() // in its place
	var exceeded *quota.ExceededError
	if _, err := w.scheduler.Restore(ctx, m); !errors.As(err, &exceeded) {
		t.Errorf("restoring over the quota: %v", err)
	}
	w.schedule()
	w.work()
	w.pass(9 * scheduler.DefaultGrace)
	w.beat()
	w.must(w.scheduler.Reconcile(ctx))
	if row := w.row(uuid); row.VMState != cellwire.VMSoftDeleted {
		t.Errorf("before its time the row is %+v", row)
	}
	w.pass(2 * scheduler.DefaultGrace)
	w.beat()
	w.must(w.scheduler.Reconcile(ctx))
	w.work()
	if row := w.row(uuid); !row.Deleted {
		t.Errorf("after its time the row is %+v", row)
	}
	w.consistent(map[string]bool{uuid: false, other: true})
}

// TestRestoredWhileOthersAreReclaimed: a server that is restored in the middle of a round of the
// reconciler is not deleted by it, although it was named at its beginning. Nor is one that was
// deleted again.
func TestRestoredWhileOthersAreReclaimed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, again := range []bool{false, true} {
		w := begin(t, []int{1}, func(b *scheduler.Options, _ *quota.Options) {
			b.Reclaim, b.Workers = time.Hour, 1 // one after the other
		})
		alive := map[string]bool{w.created(): true, w.created(): true}
		w.schedule()
		w.work()
		for uuid := range alive {
			w.must(w.delete(uuid, true))
		}
		w.work()
		w.pass(2 * time.Hour)
		w.beat()
		w.sites[1].link.when(func(r *http.Request) fault {
			if !strings.HasSuffix(r.URL.Path, "/delete") {
				return up
			}
			w.sites[1].link.when(nil)
			for uuid := range alive {
				if strings.Contains(r.URL.Path, uuid) {
					alive[uuid] = false
					continue
				}
				m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
				testproc.Try(w.scheduler.Restore(ctx, m)).Or(w.t)
				if again {
					w.work()
					w.must(w.delete(uuid, true))
					w.work()
				}
			}
			return up
		})
		w.must(w.scheduler.Reconcile(ctx))
		w.work()
		for uuid, restored := range alive {
			if row := w.row(uuid); restored == row.Deleted || row.TaskState != "" {
				t.Errorf("deleted again: %v, restored: %v, the row is %+v", again, restored, row)
			}
		}
	}
}

// TestRestoreWithoutARequestSpec: a server whose specification is not there any more is restored
// as others are, also within the quota.
func TestRestoreWithoutARequestSpec(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for limit, fits := range map[int]bool{1: true, 0: false} {
		w := begin(t, []int{1}, limits(-1, -1, -1),
			func(b *scheduler.Options, _ *quota.Options) { b.Reclaim = time.Hour })
		uuid := w.created()
		w.schedule()
		w.work()
		w.must(w.delete(uuid, true))
		w.work()
		dbservers.Execute(t, w.database, "DELETE FROM request_specs WHERE instance_uuid = '"+uuid+"'")
		w.must(w.store.SetQuotas(ctx, "p", apidb.QuotaSet{quota.Cores: int64(limit)}))
		m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
		_, err := w.scheduler.Restore(ctx, m)
		var exceeded *quota.ExceededError
		if fits && err != nil || !fits && !errors.As(err, &exceeded) {
			t.Errorf("with %d cores: %v", limit, err)
		}
	}
}

// TestDeleteCompletesAfterTheClientLeft: a client that goes away when its cell has said yes changes
// nothing of what follows.
func TestDeleteCompletesAfterTheClientLeft(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1}, func(b *scheduler.Options, _ *quota.Options) { b.Reclaim = time.Hour })
	uuid := w.created()
	w.schedule()
	w.work()
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	// gone is a request whose client goes away while the cell works on it.
	gone := func(what string) context.Context {
		asking, leave := context.WithCancel(ctx)
		link := w.site(m.CellUUID).link
		link.when(func(r *http.Request) fault {
			if strings.HasSuffix(r.URL.Path, "/"+what) {
				leave()
			}
			return up
		})
		t.Cleanup(func() { link.when(nil); leave() })
		return asking
	}
	w.must(w.scheduler.Delete(gone("delete"), m, true))
	if !w.queued(uuid) {
		t.Error("it is deleted, and that is not noted")
	}
	w.work()
	testproc.Try(w.scheduler.Restore(gone("restore"), m)).Or(w.t)
	if w.queued(uuid) {
		t.Error("it is restored, and that is not noted")
	}
}

func (w *world) queued(uuid string) bool {
	w.t.Helper()
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	return m.Queued()
}
