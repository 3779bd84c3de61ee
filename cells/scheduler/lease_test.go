// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// peer is the scheduler of one more process of the compute API.
type peer struct {
	*scheduler.Scheduler
	held chan struct{} // closed when it may schedule
}

// join starts one, which stands by while another one shows life. One with a beat of an hour shows
// none, as a process that was stopped.
func (w *world) join(t *testing.T, database string, beat time.Duration) *peer {
	t.Helper()
	store := testproc.Try(apidb.Open(ctx, database, apidb.Options{Now: w.clock})).Or(w.t)
	t.Cleanup(func() { testproc.Check(t, store.Close()) })
	lease := store.Scheduling(sqldb.LeaseOptions{Holder: t.Name(), Beat: beat, Silent: 3, Logger: zerolog.Nop()})
	p := &peer{held: make(chan struct{})}
	p.Scheduler = testproc.Try(scheduler.New(scheduler.Options{
		Store: store, Lease: lease, Fenced: store.Fenced(lease), Gatherer: w.gatherer, Placement: w.client,
		Quota: w.quota, Now: w.clock, Logger: zerolog.New(w.log),
	})).Or(w.t)
	held, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	var first sync.Once
	go func() {
		defer close(ended)
		lease.Run(held, func(ctx context.Context) {
			first.Do(func() { close(p.held) })
			<-ctx.Done()
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return p
}

func (p *peer) await(t *testing.T) {
	t.Helper()
	await(t, "a process becomes the active one", p.held)
}

// TestStoppedSchedulerDoesNoHarm: a process is stopped after each step of a build, another one
// takes over and builds the server, on another host where that is still open, and then the first
// one continues. The server is made once, and all agree about it.
func TestStoppedSchedulerDoesNoHarm(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	for _, step := range []string{"claim", "allocate", "insert", "place", "release", "cell0"} {
		t.Run(step, func(t *testing.T) {
			database := apiTemplate.Fresh(t)
			w := newWorldAt(t, databases(t), database, nil, []int{2}, nil)
			t.Cleanup(w.close)
			stopped := w.join(t, database, time.Hour)
			stopped.await(t)
			uuid := w.created(func(r *scheduler.CreateRequest) {
				if step == "cell0" {
					r.Flavor.VCPUs = 4096 // no host has so many
				}
			})
			at, goOn := make(chan struct{}), make(chan struct{})
			stopped.SetAfter(func(s string) error {
				if s == step {
					close(at)
					<-goOn
				}
				return nil
			})
			ended := make(chan error, 1)
			go func() { ended <- stopped.Schedule(ctx) }()
			select {
			case <-at:
			case err := <-ended:
				t.Fatalf("the build ended before it was stopped: %v; %s", err, w.logged())
			}
			next := w.join(t, database, 200*time.Millisecond)
			next.await(t)
			if step == "claim" || step == "allocate" || step == "insert" {
				w.claimedHost().off = true
				w.pass(2 * time.Minute)
			}
			w.beat()
			// On a machine that is slow, it may lose the lease for a moment.
			testproc.Eventually(t, testproc.Patience, "the next process builds the server", func() error {
				w.pass(time.Second)
				w.must(next.Schedule(ctx))
				if _, err := w.store.BuildRequest(ctx, uuid); !errors.Is(err, apidb.ErrNotFound) {
					return fmt.Errorf("its build request is there: %w", err)
				}
				return nil
			})
			w.work()
			close(goOn)
			w.must(<-ended)
			stopped.SetAfter(nil)
			w.must(stopped.Schedule(ctx)) // it has nothing that it may do

			w.work()
			w.scheduler = next.Scheduler
			row := w.row(uuid)
			if step == "cell0" {
				if row.VMState != cellwire.VMError || row.Host != "" {
					t.Errorf("the server is %+v", row)
				}
			} else if row.VMState != cellwire.VMActive {
				t.Errorf("the server is %+v; %s", row, w.logged())
			}
			w.consistent(map[string]bool{uuid: true})
		})
	}
}

// claimedHost is the host that a server was claimed for.
func (w *world) claimedHost() *agent {
	w.t.Helper()
	claims := testproc.Try(w.store.Claims(ctx, w.clock().Add(time.Hour))).Or(w.t)
	for _, a := range w.all() {
		if len(claims) == 1 && a.node == claims[0].NodeUUID {
			return a
		}
	}
	w.t.Fatalf("no host has the one claim of %v", claims)
	return nil
}

// TestStandbyDoesWhatClientsAsk: a process that stands by takes boots and deletions, and the active
// one finds the boots by itself.
func TestStandbyDoesWhatClientsAsk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	database := apiTemplate.Fresh(t)
	w := newWorldAt(t, databases(t), database, nil, []int{1, 1}, nil)
	t.Cleanup(w.close)
	active := w.join(t, database, time.Hour) // it keeps the lease, however slow the machine is
	active.await(t)
	standby := w.join(t, database, time.Hour) // it looks once
	w.scheduler = standby.Scheduler
	kept, deleted, abandoned := w.created(), w.created(), ""
	w.must(w.scheduler.Schedule(ctx)) // it may not
	if m, err := w.store.Mapping(ctx, kept); err != nil || m.CellUUID != "" {
		t.Errorf("a process that stands by placed a server: %+v, %v", m, err)
	}
	w.must(active.Schedule(ctx))
	w.work()
	abandoned = w.created()
	w.must(w.delete(abandoned, false))
	w.must(w.delete(deleted, false))
	w.scheduler = active.Scheduler
	w.consistent(map[string]bool{kept: true, deleted: false, abandoned: false})
}
