// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRequestsThatPlacementNeverAnswers: a request for one server that Placement refuses, or always
// fails, delays no other server, and puts that one in error.
func TestRequestsThatPlacementNeverAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		how   fault
		tries bool // it is tried again
		why   string
	}{
		"too long": {how: tooLong, why: "placement rejects the request as invalid"},
		"a failure": {how: rubbish, tries: true,
			why: "Placement failed a request for this server 10 times, while it answered others."},
		"no answer": {how: hangs, tries: true,
			why: "Placement failed a request for this server 10 times, while it answered others."},
		"a denial": {how: denied, tries: true,
			why: "Placement failed a request for this server 10 times, while it answered others."},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{1})
			w.plink.when(func(r *http.Request) fault {
				if r.URL.Path == "/allocation_candidates" && strings.Contains(r.URL.RawQuery, "VCPU%3A2") {
					return c.how
				}
				return up
			})
			bad := w.created(func(r *scheduler.CreateRequest) { r.Flavor.VCPUs = 2 })
			w.schedule()
			good := w.created()
			w.schedule()
			if row := w.row(good); row.Host == "" {
				t.Errorf("another server is %s: %+v", row.VMState, row.Fault)
			}
			if m := testproc.Try(w.store.Mapping(ctx, bad)).Or(t); (m.CellUUID == "") != c.tries {
				t.Errorf("after one try it is in cell %q", m.CellUUID)
			}
			for range 10 {
				w.pass(time.Minute)
				w.beat()
				w.schedule()
			}
			if row := w.row(bad); row.VMState != cellwire.VMError || row.Fault == nil ||
				!strings.Contains(row.Fault.Details, c.why) {
				t.Errorf("it is %s: %+v", row.VMState, row.Fault)
			}
			w.consistent(map[string]bool{bad: true, good: true})
		})
	}
}

// failing has Placement fail requests that are about a server of two VCPUs: for candidates, or also
// about its allocations.
func (w *world) failing(how fault, server string, allocations bool) {
	w.plink.when(func(r *http.Request) fault {
		about := r.URL.Path == "/allocation_candidates" && strings.Contains(r.URL.RawQuery, "VCPU%3A2")
		if allocations {
			about = about || strings.HasSuffix(r.URL.Path, server) || strings.Contains(posted(r), server)
		}
		if about {
			return how
		}
		return up
	})
}

// posted is the body of a POST, which can still be read.
func posted(r *http.Request) string {
	if r.Method != http.MethodPost {
		return ""
	}
	return sent(r)
}

// sent is the body of a request, which can still be read.
func sent(r *http.Request) string {
	if r.Body == nil {
		return ""
	}
	body, _ := io.ReadAll(r.Body) // what is missing fails where it is served
	r.Body = io.NopCloser(bytes.NewReader(body))
	return string(body)
}

// moving begins a move of a server of two VCPUs, which is on a host.
func (w *world) moving(kind cellwire.MigrationType) (uuid string, from *agent) {
	w.t.Helper()
	uuid = w.created(func(r *scheduler.CreateRequest) { r.Flavor.VCPUs = 2 })
	w.schedule()
	from = w.host(uuid)
	if kind == cellwire.MigrationBuild {
		from.fails = map[cellwire.Want]bool{cellwire.WantPresent: true}
	}
	w.work()
	switch kind {
	case cellwire.MigrationBuild:
		w.is(uuid, cellwire.VMBuilding, cellwire.TaskScheduling, from)
		return uuid, from
	case cellwire.MigrationEvacuation:
		w.dies(from)
	}
	w.must(w.migrate(uuid, kind, ""))
	return uuid, from
}

// TestMovesThatPlacementNeverAnswers: a move of a server whose requests Placement refuses, or
// always fails, delays no other, and ends as often as a build is tried, with that as its fault. It
// leaves nothing behind.
func TestMovesThatPlacementNeverAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const never = "Placement failed a request for this server 10 times, while it answered others."
	for _, c := range []struct {
		name        string
		how         fault
		allocations bool
		tries       int
		why         string
	}{
		{name: "too long", how: tooLong, tries: 1, why: "placement rejects the request as invalid"},
		{name: "a failure", how: rubbish, tries: 10, why: never},
		{name: "no answer", how: hangs, tries: 10, why: never},
		{name: "a denial", how: denied, tries: 10, why: never},
		{name: "a failure of all", how: rubbish, allocations: true, tries: 10, why: never},
		{name: "no answer to all", how: hangs, allocations: true, tries: 10, why: never},
		{name: "a denial of all", how: denied, allocations: true, tries: 10, why: never},
		{name: "too long, all", how: tooLong, allocations: true, tries: 10, why: never},
	} {
		for _, kind := range []cellwire.MigrationType{
			cellwire.MigrationCold, cellwire.MigrationEvacuation, cellwire.MigrationBuild,
		} {
			dbservers.Case(t, c.name+", "+string(kind), func(t *testing.T) {
				w := begin(t, []int{3, 3}, attempts(3))
				bad, from := w.moving(kind)
				others := map[string]*agent{}
				for _, s := range w.sites[1:] { // in both cells
					i := 0
					for s.agents[i] == from {
						i++
					}
					uuid := w.created(func(r *scheduler.CreateRequest) { r.ForcedHost = s.agents[i].host })
					others[uuid] = s.agents[i]
				}
				w.schedule()
				w.work()
				w.failing(c.how, bad, c.allocations)
				for uuid := range others {
					w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
				}
				w.moves()
				for uuid, at := range others {
					w.is(uuid, cellwire.VMActive, cellwire.TaskResizeMigrating, at)
				}
				tries := 1
				ended := func() bool { return w.row(bad).TaskState == "" }
				for ; !ended() && tries < 20; tries++ {
					w.pass(time.Minute)
					w.beat()
					w.moves()
				}
				testproc.Equal(t, tries, c.tries, "it ends after %d tries")
				vm := map[cellwire.MigrationType]string{cellwire.MigrationCold: cellwire.VMActive}[kind]
				w.is(bad, cmp.Or(vm, cellwire.VMError), "", from)
				if row := w.row(bad); row.Fault == nil || !strings.Contains(row.Fault.Details, c.why) {
					t.Errorf("the fault is %+v", row.Fault)
				}
				if last := w.action(bad); !last.Failed || last.FinishedAt == nil {
					t.Errorf("the action is %+v", last)
				}
				w.plink.set(up)
				w.pass(10 * time.Minute) // nothing that a build holds could be written once more
				w.beat()
				w.moves()
				if open := w.open(bad); len(open) > 0 {
					t.Errorf("these are left: %+v", open)
				}
				held := w.holders()[bad]
				if kind != cellwire.MigrationBuild && !slices.Equal(held, []string{from.node}) ||
					kind == cellwire.MigrationBuild && len(held) > 0 {
					t.Errorf("it holds something of %v", held)
				}
				alive := map[string]bool{bad: kind != cellwire.MigrationBuild}
				if kind == cellwire.MigrationBuild {
					w.must(w.delete(bad, false))
				}
				for uuid := range others {
					alive[uuid] = true
				}
				w.consistent(alive)
			})
		}
	}
}

// TestUnansweredMigrationDelaysNoOther: while Placement does not answer the requests of one move,
// others begin and go on, with a single worker too once it was asked.
func TestUnansweredMigrationDelaysNoOther(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{3}, func(o *scheduler.Options, _ *quota.Options) {
		o.Workers, o.PollInterval = 1, time.Millisecond
	})
	bad, _ := w.moving(cellwire.MigrationCold)
	w.failing(rubbish, bad, false)
	w.moves() // now it is known
	others := []string{w.created(), w.created()}
	w.schedule()
	w.work()
	defer w.runWhileOneHangs()()
	for _, uuid := range others { // each in a round of its own
		w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
		testproc.Eventually(t, testproc.Patience, "a server gets a destination", testproc.True(func() bool {
			return w.row(uuid).TaskState == cellwire.TaskResizeMigrating
		}))
	}
}

// runWhileOneHangs runs the scheduler until the end, and returns when Placement was asked for two
// VCPUs, which it does not answer until then.
func (w *world) runWhileOneHangs() (end func()) {
	w.t.Helper()
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	w.plink.when(func(r *http.Request) fault {
		if r.URL.Path == "/allocation_candidates" && strings.Contains(r.URL.RawQuery, "VCPU%3A2") {
			once.Do(func() { close(asked) })
			<-answer
			return hangs
		}
		return up
	})
	w.pass(time.Minute)
	w.beat()
	stop := run(w.scheduler)
	<-asked
	return func() {
		close(answer) // before stop, which waits for all workers
		stop()
	}
}

// TestUnansweredMemberDelaysNoServerGroup: while Placement does not answer the requests of a member
// of a server group, once it was asked, the others of the group are built.
func TestUnansweredMemberDelaysNoServerGroup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{3}, func(o *scheduler.Options, _ *quota.Options) {
		o.Workers, o.PollInterval = 1, time.Millisecond
	})
	_, in := w.group(apidb.PolicyAntiAffinity, 0)
	bad := w.created(in, func(r *scheduler.CreateRequest) { r.Flavor.VCPUs = 2 })
	w.failing(rubbish, bad, false)
	w.schedule() // now it is known
	defer w.runWhileOneHangs()()
	for _, uuid := range []string{w.created(in), w.created()} {
		testproc.Eventually(t, testproc.Patience, "a server is placed", testproc.True(func() bool {
			return testproc.Try(w.store.Mapping(ctx, uuid)).Or(t).CellUUID != ""
		}))
	}
}

// TestQueriesBeforeTheTurnInAGroup: what is asked for before the turn of a member of a server group
// is what was not answered: nothing after a claim that failed, and no other hosts than the one that
// the server is for.
func TestQueriesBeforeTheTurnInAGroup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, claims := range map[string]bool{"candidates": false, "claims": true} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{3})
			_, in := w.group(apidb.PolicyAntiAffinity, 0)
			bad := w.created(in, func(r *scheduler.CreateRequest) { r.Flavor.VCPUs, r.ForcedHost = 2, "cell1-host2" })
			asked, elsewhere := 0, 0
			w.plink.when(func(r *http.Request) fault {
				if r.URL.Path == "/allocation_candidates" && strings.Contains(r.URL.RawQuery, "VCPU%3A2") {
					if asked++; !strings.Contains(r.URL.RawQuery, "in_tree=") {
						elsewhere++
					}
					if !claims {
						return rubbish
					}
				}
				if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, bad) {
					return rubbish
				}
				return up
			})
			for range 3 {
				w.schedule()
				w.pass(time.Minute)
				w.beat()
			}
			testproc.Equal(t, asked, 3, "there are %d queries for three tries")
			testproc.Equal(t, elsewhere, 0, "%d of them are about other hosts")
		})
	}
}

// TestMovesInAnOlderCell: a move whose requests Placement fails ends in a cell that does not know
// that there may be something to give back: its allocations are written once more before.
func TestMovesInAnOlderCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{3})
	bad, from := w.moving(cellwire.MigrationCold)
	w.failing(rubbish, bad, false)
	cell, asked := w.sites[1].link.to, 0
	w.sites[1].link.to = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if text := posted(r); strings.Contains(text, `"give_back"`) {
			asked++
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(rw,
				`{"code":"bad_request","message":"The body cannot be read: unknown field \"give_back\"."}`)
			return
		}
		cell.ServeHTTP(rw, r)
	})
	for range 10 {
		w.pass(time.Minute)
		w.beat()
		w.moves()
	}
	testproc.Equal(t, asked, 1, "it was asked %d times for what it does not know")
	w.is(bad, cellwire.VMActive, "", from)
	if row := w.row(bad); row.Fault == nil ||
		!strings.Contains(row.Fault.Details, "Placement failed a request for this server 10 times") {
		t.Errorf("the fault is %+v", row.Fault)
	}
	testproc.Equal(t, strings.Count(w.logged(), "It stays where it is; its fault says why"), 1,
		"that it ended is logged %d times")
	if open := w.open(bad); len(open) > 0 {
		t.Errorf("these are left: %+v", open)
	}
	w.consistent(map[string]bool{bad: true})
}

// TestNothingAskedIsNoAnswer: that nothing was to be asked for a server that moves does not end an
// outage of Placement.
func TestNothingAskedIsNoAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{3})
	waits, _ := w.moving(cellwire.MigrationCold)
	first, _ := w.moving(cellwire.MigrationCold)
	second, _ := w.moving(cellwire.MigrationCold)
	alive := map[string]bool{waits: true, first: false, second: false}
	// and their hosts do nothing about it yet
	for leaves, aborted := range map[string]bool{first: false, second: true} {
		if aborted {
			m := testproc.Try(w.store.Mapping(ctx, leaves)).Or(t)
			w.must(w.scheduler.Abort(ctx, m, w.open(leaves)[0].ID))
		}
		w.must(w.delete(leaves, false))
		if open := w.open(leaves); len(open) != 1 || open[0].GiveBack != aborted {
			t.Fatalf("the migration of a server that is being deleted is %+v", open)
		}
	}
	w.plink.set(refused)
	for range 10 {
		w.moves()
		w.pass(time.Minute)
		w.beat()
	}
	if said := w.logged(); strings.Count(said, "Placement is unavailable") != 1 ||
		strings.Contains(said, "available again") {
		t.Errorf("an outage is not logged once: %s", said)
	}
	w.plink.set(up)
	w.moves()
	if said := w.logged(); strings.Count(said, "available again") != 1 {
		t.Errorf("its end is not logged once: %s", said)
	}
	w.consistent(alive)
}

// TestRacesAreAnswers: a conflict with other writes is an answer, however often it comes: it does
// not end a move as if Placement did not answer.
func TestRacesAreAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1}) // there is no other host
	uuid, from := w.moving(cellwire.MigrationCold)
	w.plink.when(func(r *http.Request) fault {
		if r.Method != http.MethodGet {
			return raced
		}
		return up
	})
	for range 20 {
		w.moves()
		w.pass(time.Minute)
		w.beat()
	}
	w.is(uuid, cellwire.VMActive, cellwire.TaskResizePrep, from)
	w.plink.set(up)
	w.moves()
	w.is(uuid, cellwire.VMActive, "", from)
	if row := w.row(uuid); row.Fault == nil || !strings.Contains(row.Fault.Details, "what the server moves from") {
		t.Errorf("the fault is %+v", row.Fault)
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestZoneOfManyAggregates: however many aggregates a zone has, the query stays short, and servers
// go to hosts of the zone.
func TestZoneOfManyAggregates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const many, longest = 200, 4000
	w := begin(t, []int{2})
	for i := range many {
		a, err := w.store.CreateAggregate(ctx, fmt.Sprint("a", i), map[string]string{apidb.ZoneKey: "east"})
		w.must(err)
		if i == many-1 {
			_, err = w.store.ChangeAggregate(ctx, a.ID, func(a *apidb.Aggregate, _ []apidb.Aggregate) error {
				a.Hosts = []string{"cell1-host2"}
				return nil
			})
			w.must(err)
		}
	}
	w.must(w.scheduler.Reconcile(ctx))
	query := 0
	w.plink.when(func(r *http.Request) fault {
		query = max(query, len(r.URL.RawQuery))
		return up
	})
	for range 2 {
		uuid := w.created(func(r *scheduler.CreateRequest) { r.Zone = "east" })
		w.schedule()
		if row := w.row(uuid); row.Host != "cell1-host2" {
			t.Errorf("it is on %q: %+v", row.Host, row.Fault)
		}
	}
	elsewhere := w.created(func(r *scheduler.CreateRequest) { r.Zone = "nova" })
	w.schedule()
	if row := w.row(elsewhere); row.Host != "cell1-host1" {
		t.Errorf("one of the default zone is on %q: %+v", row.Host, row.Fault)
	}
	if query > longest {
		t.Errorf("a query has %d bytes, more than %d", query, longest)
	}
}
