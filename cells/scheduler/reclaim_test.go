// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRestoredBeforeItIsReclaimed: the reconciler knows that a server is to be deleted for good,
// and its owner restores it (by way of another process) before the request reaches the cell: just
// then, or a little earlier and deletes it once more. It stays what its owner made it.
func TestRestoredBeforeItIsReclaimed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		before  string // the request that is overtaken
		again   bool   // deleted once more
		vmState string
	}{
		"it is read":                     {"GET ", false, cellwire.VMActive},
		"it is read, and deleted again":  {"GET ", true, cellwire.VMSoftDeleted},
		"it is deleted for good, almost": {"/delete", false, cellwire.VMActive},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{1},
				func(b *scheduler.Options, _ *quota.Options) { b.Reclaim = 10 * scheduler.DefaultGrace })
			uuid := w.created()
			w.schedule()
			w.work()
			w.must(w.delete(uuid, true))
			w.work()
			w.pass(11 * scheduler.DefaultGrace)
			w.beat()
			site := w.sites[1]
			restored := false
			site.link.when(func(r *http.Request) fault {
				if call := r.Method + " " + r.URL.Path; !restored && strings.Contains(call, c.before) &&
					strings.Contains(call, uuid) {
					restored = true
					m := celldb.Moment{Now: w.clock(), DownTime: time.Minute}
					testproc.Try(site.store.Restore(ctx, uuid, m)).Or(w.t)
					if c.again {
						testproc.Try(site.store.Delete(ctx, uuid, cellwire.DeleteSoft, m)).Or(w.t)
					}
				}
				return up
			})
			w.must(w.scheduler.Reconcile(ctx))
			site.link.when(nil)
			if !restored {
				t.Fatal("nothing was overtaken")
			}
			w.beat()
			w.work()
			if row := w.row(uuid); row.VMState != c.vmState || row.TaskState != "" || row.Deleted {
				t.Errorf("the row is %+v", row)
			}
		})
	}
}
