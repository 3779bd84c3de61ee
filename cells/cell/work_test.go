// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// countingStore counts the questions for work.
type countingStore struct {
	celldb.Store
	asked *atomic.Int64
}

func (c countingStore) Work(
	ctx context.Context, host string, after int64, epoch string, m celldb.Moment,
) (cellwire.Work, bool, error) {
	c.asked.Add(1)
	return c.Store.Work(ctx, host, after, epoch, m)
}

// poll asks for work in its own goroutine, as of the work before.
func (w *world) poll(
	ctx context.Context, host string, before cellwire.Work, wait int,
) <-chan *httptest.ResponseRecorder {
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		r := httptest.NewRequestWithContext(ctx, "GET", fmt.Sprintf("/v1/hosts/%s/work?after=%d&epoch=%s&wait=%d",
			host, before.Revision, before.Epoch, wait), nil)
		answer := httptest.NewRecorder()
		w.cell.ServeHTTP(answer, r)
		answered <- answer
	}()
	return answered
}

// waits runs a test in a bubble in which time passes by itself.
func waits(t *testing.T, f func(t *testing.T, w *world, asked *atomic.Int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		w := begin(t, func(c *cell.Config) {
			c.Store = countingStore{c.Store, &asked}
			c.MaxWait, c.MaxWaiting = 90*time.Second, 3
		})
		w.register("h1", "h2")
		f(t, w, &asked)
	})
}

func TestWorkWaits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	waits(t, func(t *testing.T, w *world, asked *atomic.Int64) {
		before := w.work("h1", 0, "")
		asked.Store(0)
		began := time.Now()
		polled := w.poll(t.Context(), "h1", before, 1000)
		synctest.Wait()
		// A change for another host, or for none, does not even make it look.
		w.release(building(2, "h2"))
		do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(1), building(1, "h1"))
		w.register("h1")
		synctest.Wait()
		testproc.Equal(t, asked.Load(), 1, "the database was asked %d times while there was nothing new")
		do[cellwire.Server](w, "POST", "/v1/servers/"+sid(1)+"/release", nil)
		work := decodeAs[cellwire.Work](t, (<-polled).Body.Bytes())
		same(t, "its work", wants(t, work), map[int]cellwire.Want{1: cellwire.WantPresent})
		if work.Complete || time.Since(began) != 0 || asked.Load() != 2 {
			t.Errorf("complete: %v, after %v and %d questions", work.Complete, time.Since(began), asked.Load())
		}
		// Nothing comes: the wait ends, at the bound that the cell has.
		polled = w.poll(t.Context(), "h1", work, 1000)
		quiet := decodeAs[cellwire.Work](t, (<-polled).Body.Bytes())
		if waited := time.Since(began); waited != 90*time.Second || len(quiet.Items) != 0 || quiet.Complete ||
			quiet.Revision < work.Revision {
			t.Errorf("after %v: %+v", waited, quiet)
		}
		testproc.Equal(t, asked.Load(), 4, "the database was asked %d times")
	})
}

// TestWorkWakes: each kind of change that concerns a host wakes it.
func TestWorkWakes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	waits(t, func(t *testing.T, w *world, _ *atomic.Int64) {
		service := do[cellwire.Discovery](w, "GET", "/v1/survey?project_id=x", nil).Services[0].UUID
		yes := true
		do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(1), building(1, "h1"))
		for _, change := range []struct {
			name string
			do   func()
		}{
			{"release", func() { w.call("release", 1) }},
			{"spawned", func() {
				w.report(
					"h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportSpawned, PowerState: 1})
			}},
			{"soft delete", func() { w.call("soft", 1) }},
			{"settled", func() {
				w.report(
					"h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportSettled, Revision: 1 << 40})
			}},
			{"restore", func() { w.call("restore", 1) }},
			{"delete", func() { w.call("delete", 1) }},
			{"drain", func() {
				do[cellwire.Service](w, "PATCH", "/v1/services/"+service, cellwire.ServicePatch{Disabled: &yes})
			}},
		} {
			before := w.work("h1", 0, "")
			polled := w.poll(t.Context(), "h1", before, 60)
			synctest.Wait()
			began := time.Now()
			change.do()
			if got := decodeAs[cellwire.Work](t, (<-polled).Body.Bytes()); time.Since(began) != 0 ||
				got.Revision <= before.Revision {
				t.Errorf("%s: it waited for %v, and gets %+v", change.name, time.Since(began), got)
			}
		}
	})
}

// TestReportsWakeTheOtherHostOfAMove: whether the guest on the destination is there decides what
// the source does with its own, so that it is woken when the destination reports it.
func TestReportsWakeTheOtherHostOfAMove(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	confirm := func(w *world) int {
		n := w.othersServers()["resized"]
		testproc.Try(w.store.Step(w.t.Context(), sid(500+n), cellwire.MigrationStep{Confirm: true},
			celldb.Moment{Now: w.clock(), DownTime: time.Hour})).Or(w.t)
		return n
	}
	for name, move := range map[string]func(w *world) (server int){
		"being confirmed": confirm,
		"being confirmed, ended by an administrator": func(w *world) int {
			n := confirm(w)
			w.pass(2 * time.Hour)
			testproc.Try(w.store.Step(w.t.Context(), sid(500+n), cellwire.MigrationStep{Abort: sid(700)},
				celldb.Moment{Now: w.clock(), DownTime: time.Hour})).Or(w.t)
			return n
		},
		"evacuated": func(w *world) int {
			n := w.othersServers()["active"]
			w.pass(2 * time.Hour)
			w.movable("h2")
			m := celldb.Moment{Now: w.clock(), DownTime: time.Hour}
			testproc.Try(w.store.Migrate(w.t.Context(),
				sid(n), cellwire.MigrateRequest{UUID: sid(500 + n), Type: cellwire.MigrationEvacuation}, m)).Or(w.t)
			to := cellwire.MigrationDestination{Host: "h2", Node: "h2-node", NodeUUID: nodeUUID("h2")}
			testproc.Try(w.store.Step(w.t.Context(), sid(500+n), cellwire.MigrationStep{Destination: &to}, m)).Or(w.t)
			w.report("h2", cellwire.Report{UUID: sid(n), Kind: cellwire.ReportArrived, Migration: sid(500 + n),
				PowerState: plugins.PowerRunning})
			return n
		},
	} {
		t.Run(name, func(t *testing.T) {
			waits(t, func(t *testing.T, w *world, _ *atomic.Int64) {
				n := move(w)
				for _, c := range []struct {
					power plugins.PowerState
					want  cellwire.Want
				}{
					{plugins.PowerNoState, cellwire.WantDeparting},
					{plugins.PowerRunning, cellwire.WantLeft},
				} {
					polled := w.poll(t.Context(), "h1", w.work("h1", 0, ""), 60)
					synctest.Wait()
					began := time.Now()
					w.report("h2", cellwire.Report{UUID: sid(n), Kind: cellwire.ReportPower, PowerState: c.power})
					got := wants(t, decodeAs[cellwire.Work](t, (<-polled).Body.Bytes()))
					if time.Since(began) != 0 || got[n] != c.want {
						t.Errorf("%s on the destination: the source waited for %v, and is asked for %v",
							c.power, time.Since(began), got)
					}
				}
			})
		})
	}
}

// TestWorkIsComplete: an agent that knows nothing, or whose revision is another database's or from
// a time that a backup undid, gets everything at once.
func TestWorkIsComplete(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	waits(t, func(t *testing.T, w *world, _ *atomic.Int64) {
		w.release(building(1, "h1"))
		now := w.work("h1", 0, "")
		for name, before := range map[string]cellwire.Work{"nothing": {},
			"another epoch": {Epoch: "another", Revision: 1}, "no epoch": {Revision: 1},
			"the future": {Epoch: now.Epoch, Revision: now.Revision + 1}} {
			began := time.Now()
			got := decodeAs[cellwire.Work](t, (<-w.poll(t.Context(), "h1", before, 60)).Body.Bytes())
			if same(t, name, wants(t, got), map[int]cellwire.Want{1: cellwire.WantPresent}); !got.Complete ||
				time.Since(began) != 0 {
				t.Errorf("after %s: complete is %v, after %v", name, got.Complete, time.Since(began))
			}
		}
		w.call("delete", 1)
		w.report("h1", cellwire.Report{UUID: sid(1), Kind: cellwire.ReportGone})
		if got := w.work("h1", 0, ""); !got.Complete || len(got.Items) != 0 {
			t.Errorf("with nothing to do: %+v", got)
		}
	})
}

func TestWaitingIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	waits(t, func(t *testing.T, w *world, _ *atomic.Int64) {
		before := w.work("h1", 0, "")
		ctx, cancel := context.WithCancel(t.Context())
		var polls []<-chan *httptest.ResponseRecorder
		for range 3 {
			polls = append(polls, w.poll(ctx, "h1", before, 60))
		}
		synctest.Wait()
		refusal(t, <-w.poll(t.Context(), "h1", before, 60), 503, cellwire.CodeUnavailable)
		if other := <-w.poll(t.Context(), "h2", cellwire.Work{}, 60); other.Code != 200 {
			t.Errorf("another host is refused too: %s", other.Body)
		}
		cancel() // they end with their requests, and free their slots
		for _, p := range polls {
			refusal(t, <-p, 503, cellwire.CodeUnavailable)
		}
		polled := w.poll(t.Context(), "h1", before, 60)
		synctest.Wait()
		w.release(building(1, "h1"))
		if got := <-polled; got.Code != 200 {
			t.Errorf("refused when there was room again: %s", got.Body)
		}
	})
}

// TestRestart: a cell that is closed while an agent waits, and opened again, goes on where it was,
// for the agent too.
func TestRestart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	w.release(building(1, "h1"))
	do[cellwire.Server](w, "PUT", "/v1/servers/"+sid(2), building(2, "h1"))
	before := w.work("h1", 0, "")
	serverBefore := w.server(1)
	w.close()
	w.open()
	same(t, "a server", w.server(1), serverBefore)
	w.call("release", 2)
	after := w.work("h1", before.Revision, before.Epoch)
	if same(t, "the changes", wants(t, after), map[int]cellwire.Want{2: cellwire.WantPresent}); after.Complete {
		t.Error("the agent gets everything again")
	}
	if !after.Service.Up {
		t.Error("the restart has cost the host its life")
	}
}

// TestManyAtOnce: many clients do the same things at the same time; each happens once, and agents
// that wait hear of all.
func TestManyAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t)
	w.register("h1")
	const servers, clients = 12, 4
	ctx, cancel := context.WithCancel(t.Context())
	known := map[int]cellwire.Want{}
	var agent, all sync.WaitGroup
	agent.Go(func() {
		var before cellwire.Work
		for len(known) < servers {
			answer := <-w.poll(ctx, "h1", before, 60)
			if answer.Code != http.StatusOK {
				return
			}
			before = decodeAs[cellwire.Work](t, answer.Body.Bytes())
			for n, want := range wants(t, before) {
				known[n] = want
			}
		}
	})
	for range clients {
		all.Go(func() {
			for n := range servers {
				for _, op := range []string{"insertHost", "release", "release"} {
					var got *httptest.ResponseRecorder
					if op == "insertHost" {
						got = w.send("PUT", "/v1/servers/"+sid(n), building(n, "h1"))
					} else {
						got = w.call(op, n)
					}
					if got.Code != http.StatusOK {
						t.Errorf("%s: %d %s", op, got.Code, got.Body)
					}
				}
				w.send("POST", "/v1/servers/query", cellwire.ServerQuery{Limit: 5})
			}
		})
	}
	all.Wait()
	agent.Wait()
	cancel()
	seen := map[int64]bool{}
	for n := range servers {
		if known[n] != cellwire.WantPresent {
			t.Errorf("the agent did not hear of server %d", n)
		}
		s := w.server(n)
		if seen[s.ID] || s.Hidden {
			t.Errorf("server %d: %+v", n, s)
		}
		seen[s.ID] = true
	}
}
