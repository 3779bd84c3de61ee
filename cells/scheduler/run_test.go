// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// until waits for something that another goroutine does.

// run starts a scheduler. stop ends it and waits.
func run(s *scheduler.Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestRunSchedulesAndDiscovers: Run schedules servers and maps new hosts by itself, and so does the
// scheduler that is started after it.
func TestRunSchedulesAndDiscovers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1}, func(b *scheduler.Options, _ *quota.Options) {
		b.DiscoverInterval = 10 * time.Millisecond
	})
	placed := func(uuid string) func() bool {
		return func() bool {
			_, err := w.store.BuildRequest(ctx, uuid)
			return err != nil
		}
	}
	stop := run(w.scheduler)
	a := w.created()
	testproc.Eventually(t, testproc.Patience, "a server is placed", testproc.True(placed(a)))
	added := newAgent(w, w.sites[1], "new")
	w.sites[1].agents = append(w.sites[1].agents, added)
	added.beat()
	testproc.Eventually(t, testproc.Patience, "a new host is mapped", testproc.True(func() bool {
		hosts, err := w.store.Hosts(ctx)
		return err == nil && len(hosts) == 3
	}))
	stop()
	w.restart()
	stop = run(w.scheduler)
	b := w.created()
	testproc.Eventually(t, testproc.Patience, "the next scheduler places a server", testproc.True(placed(b)))
	stop()
	if row := w.row(b); row.VMState != cellwire.VMBuilding {
		t.Errorf("the row is %+v", row)
	}
	w.consistent(map[string]bool{a: true, b: true})
}

// TestManyAtOnce: workers that place servers at the same time put no more on a host than fits.
func TestManyAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2, 2}, func(b *scheduler.Options, _ *quota.Options) { b.Workers = 4 })
	alive := map[string]bool{}
	servers := testproc.Try(w.create(func(r *scheduler.CreateRequest) { r.Min = 4*slots + 2 })).Or(w.t)
	for _, s := range servers {
		alive[s.UUID] = true
	}
	w.schedule()
	w.work()
	for _, a := range w.all() {
		if len(a.guests) != slots {
			t.Errorf("%s has %d guests and capacity for %d", a.host, len(a.guests), slots)
		}
	}
	w.consistent(alive)
}

// TestDamagedBuildRequestIsSkipped: one that cannot be read stays, with a line in the log, and
// keeps no other from being built.
func TestDamagedBuildRequestIsSkipped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	broken, whole := w.created(), w.created()
	dbservers.Execute(t, w.database, "UPDATE build_requests SET instance = '[' WHERE instance_uuid = '"+broken+"'")
	w.schedule()
	w.work()
	if row := w.row(whole); row.VMState != cellwire.VMActive {
		t.Errorf("the other server is %+v", row)
	}
	if m, err := w.store.Mapping(ctx, broken); err != nil || m.CellUUID != "" {
		t.Errorf("it is placed: %+v, %v", m, err)
	}
	testproc.Contains(t, w.logged(), broken, "the log says %s")
}

// TestReconcilerWaitsForNone: what takes long about one server keeps no other from being finished.
func TestReconcilerWaitsForNone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	first, second := w.created(), w.created()
	w.scheduler.SetAfter(func(step string) error {
		if step == "place" {
			return errEnd
		}
		return nil
	})
	w.schedule()
	w.scheduler.SetAfter(nil)
	w.pass(2 * scheduler.DefaultGrace)
	w.beat()
	var arrived atomic.Int32
	both := make(chan struct{})
	w.sites[1].link.when(func(r *http.Request) fault {
		if !strings.HasSuffix(r.URL.Path, "/release") {
			return up
		}
		if arrived.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
			return up
		case <-time.After(testproc.Patience):
			t.Error("one server waits for another one")
			return hangs
		}
	})
	w.must(w.scheduler.Reconcile(ctx))
	for _, uuid := range []string{first, second} {
		if row := w.row(uuid); row.Hidden {
			t.Errorf("server %s is hidden", uuid)
		}
	}
	w.consistent(map[string]bool{first: true, second: true})
}
