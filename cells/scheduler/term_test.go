// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// hold stops the first request to a cell that a route names, on its way, until goOn is called.
func (s *site) hold(route string) (held <-chan struct{}, goOn func()) {
	at, free, first := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	first <- struct{}{}
	s.link.when(func(r *http.Request) fault {
		if _, action, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/servers/"),
			"/"); strings.TrimSpace(r.Method+" "+action) != route {
			return up
		}
		select {
		case <-first:
			close(at)
			<-free
		default:
		}
		return up
	})
	return at, func() { close(free) }
}

const (
	inserting = "PUT"
	releasing = "POST release"
	erasing   = "POST discard"
)

func await(t *testing.T, what string, at <-chan struct{}) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, what, testproc.True(func() bool {
		select {
		case <-at:
			return true
		default:
			return false
		}
	}))
}

// scheduled waits until a process has built a server. On a machine that is slow, it may lose the
// lease for a moment.
func (w *world) scheduled(t *testing.T, p *peer, uuid string) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, "the next process builds the server", func() error {
		w.pass(time.Second)
		w.must(p.Schedule(ctx))
		if _, err := w.store.BuildRequest(ctx, uuid); !errors.Is(err, apidb.ErrNotFound) {
			return fmt.Errorf("its build request is there: %w", err)
		}
		return nil
	})
}

// elsewhere has the host go down that a server was claimed for.
func (w *world) elsewhere() {
	w.claimedHost().off = true
	w.pass(2 * time.Minute)
	w.beat()
}

// activeOnce is that a server was built once, and all agree about it.
func (w *world) activeOnce(t *testing.T, uuid string) {
	t.Helper()
	w.work()
	if row := w.row(uuid); row.VMState != cellwire.VMActive {
		t.Errorf("the server is %+v; %s", row, w.logged())
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestLateRequestOfStoppedScheduler: a process is stopped after it has made sure of its lease, with
// a request to a cell on its way. Another process takes over and builds the server, on another host
// where that is still open. Then the request arrives.
func TestLateRequestOfStoppedScheduler(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	for _, route := range []string{inserting, releasing} {
		t.Run(route, func(t *testing.T) {
			database := apiTemplate.Fresh(t)
			w := newWorldAt(t, databases(t), database, nil, []int{2}, nil)
			t.Cleanup(w.close)
			stopped := w.join(t, database, time.Hour)
			stopped.await(t)
			uuid := w.created()
			at, goOn := w.sites[1].hold(route)
			ended := make(chan error, 1)
			go func() { ended <- stopped.Schedule(ctx) }()
			await(t, "a process comes to "+route, at)
			next := w.join(t, database, 200*time.Millisecond)
			next.await(t)
			if route == inserting {
				w.elsewhere()
			}
			w.beat()
			w.scheduled(t, next, uuid)
			goOn()
			w.must(<-ended)
			w.scheduler = next.Scheduler
			w.activeOnce(t, uuid)
		})
	}
}

// TestLateReplacementOfStoppedScheduler: a process is stopped while it replaces the hidden row of
// an attempt before. Another process takes over, replaces it by that of a third host, and decides
// for it. Then the first one would erase that row and insert its own, of a host on which the server
// holds nothing.
func TestLateReplacementOfStoppedScheduler(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	database := apiTemplate.Fresh(t)
	w := newWorldAt(t, databases(t), database, nil, []int{3}, nil)
	t.Cleanup(w.close)
	stopped := w.join(t, database, time.Hour)
	stopped.await(t)
	uuid := w.created()
	stopped.SetAfter(func(step string) error {
		if step == "insert" {
			return errors.New("the attempt ends here")
		}
		return nil
	})
	w.must(stopped.Schedule(ctx))
	stopped.SetAfter(nil)
	w.elsewhere()

	erase, eraseNow := w.sites[1].hold(erasing)
	ended := make(chan error, 2)
	go func() { ended <- stopped.Schedule(ctx) }()
	await(t, "a process comes to "+erasing, erase)
	next := w.join(t, database, 2*time.Second) // it must keep the lease, also on a machine that is slow
	next.await(t)
	w.elsewhere()
	placed, goOn := make(chan struct{}), make(chan struct{})
	next.SetAfter(func(step string) error {
		if step == "place" {
			close(placed)
			<-goOn
		}
		return nil
	})
	go func() { ended <- next.Schedule(ctx) }()
	await(t, "the next process decides", placed)
	eraseNow()
	w.must(<-ended)
	close(goOn)
	w.must(<-ended)
	next.SetAfter(nil)
	w.scheduled(t, next, uuid)
	w.scheduler = next.Scheduler
	w.activeOnce(t, uuid)
}

// TestTermsAndOlderPeers: a cell that knows no terms is used as before, and so is a newer one by a
// compute API that sends none.
func TestTermsAndOlderPeers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	database := apiTemplate.Fresh(t)
	w := newWorldAt(t, databases(t), database, nil, []int{1}, nil)
	t.Cleanup(w.close)
	cell := w.sites[1]
	term := func() int64 {
		t.Helper()
		info := testproc.Try(cell.store.Info(ctx)).Or(w.t)
		return info.Term
	}
	first := w.join(t, database, 200*time.Millisecond)
	first.await(t)
	w.scheduler = first.Scheduler
	cell.link.when(func(r *http.Request) fault {
		r.Header.Del(cellwire.HeaderTerm) // as an older cell sees it, or as an older compute API sends it
		return up
	})
	older := w.created()
	w.scheduled(t, first, older)
	testproc.Equal(t, term(), 0, "the cell has seen the term %d")
	cell.link.set(up)
	newer := w.created()
	w.scheduled(t, first, newer)
	if term() == 0 {
		t.Error("the cell has seen no term")
	}
	cell.link.when(func(r *http.Request) fault {
		r.Header.Del(cellwire.HeaderTerm)
		return up
	})
	again := w.created()
	w.scheduled(t, first, again)
	w.work()
	w.consistent(map[string]bool{older: true, newer: true, again: true})
}

// TestTermAfterRestore: the API database is an older copy, whose lease has lower terms than a cell
// has seen. The process that holds it goes on with a higher one, and not one that has lost it.
func TestTermAfterRestore(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	database := apiTemplate.Fresh(t)
	w := newWorldAt(t, databases(t), database, nil, []int{1}, nil)
	t.Cleanup(w.close)
	const seen = 1_000_000
	cell := w.sites[1].store
	w.must(cell.Discard(cellwire.WithTerm(ctx, seen), "5e000000-0000-4000-8000-000000000001"))
	stopped := w.join(t, database, time.Hour)
	stopped.await(t)
	uuid := w.created()
	at, goOn := w.sites[1].hold(inserting)
	ended := make(chan error, 1)
	go func() { ended <- stopped.Schedule(ctx) }()
	await(t, "a process comes to "+inserting, at)
	next := w.join(t, database, 200*time.Millisecond)
	next.await(t)
	goOn()
	w.must(<-ended)
	if info, err := cell.Info(ctx); err != nil || info.Term != seen {
		t.Errorf("a process that has lost the lease made the term of the cell %d (%v)", info.Term, err)
	}
	w.scheduled(t, next, uuid)
	if info, err := cell.Info(ctx); err != nil || info.Term <= seen {
		t.Errorf("the term of the cell is %d (%v)", info.Term, err)
	}
	w.scheduler = next.Scheduler
	w.activeOnce(t, uuid)
}
