// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// again ends a cell's process, does something to its database, and starts it again.
func (w *world) again(s *site, do func(database string)) {
	w.t.Helper()
	w.must(s.store.Close())
	do(s.database)
	w.serve(s)
	var err error
	for _, a := range s.agents {
		a.cell, err = cellclient.New(
			cellclient.Config{URL: s.cell.URL, Transport: &link{to: s.server, counts: map[string]int{}}})
		w.must(err)
	}
}

// copied is a copy of a cell's database, to put back later.
func (w *world) copied(t *testing.T, s *site) (back func(database string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "copy.db")
	w.again(s, func(database string) {
		w.must(backup.Create(ctx, database, celldb.DatabaseOptions(), file))
	})
	return func(database string) {
		loseDatabase(t)(database)
		testproc.Try(backup.Restore(ctx, database, celldb.DatabaseOptions(), file)).Or(w.t)
	}
}

// loseDatabase leaves an empty database.
func loseDatabase(t *testing.T) func(database string) {
	return func(database string) { dbservers.Empty(t, database) }
}

// accept does what the command does.
func (w *world) accept(s *site) cellmappings.Difference {
	w.t.Helper()
	d := testproc.Try(cellmappings.Compare(ctx, w.store, w.gatherer, s.cell)).Or(w.t)
	w.must(w.store.AcceptCell(ctx, s.cell.UUID, d.Now))
	return d
}

// built is a server on its host.
func (w *world) built() string {
	uuid := w.created()
	w.schedule()
	w.work()
	return uuid
}

// round reconciles, with time passing.
func (w *world) round() {
	w.t.Helper()
	w.beat()
	w.must(w.scheduler.Reconcile(ctx))
	w.pass(scheduler.DefaultGrace / 2)
}

func (w *world) suspect(s *site) bool {
	w.t.Helper()
	known := testproc.Try(w.store.CellDatabases(ctx)).Or(w.t)
	return known[s.cell.UUID].Suspect != nil
}

// TestOrdinaryRestarts of cells and of the compute API, also in the middle of changes, are not
// suspicious, and cost no request.
func TestOrdinaryRestarts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	s := w.sites[1]
	alive := map[string]bool{}
	for range 3 {
		w.round()
		alive[w.built()] = true
		gone := w.built()
		w.must(w.delete(gone, false))
		w.work()
		alive[gone] = false
		w.again(s, func(string) {})
		w.restart()
	}
	s.link.counted()
	w.round()
	diff(t, map[string]int{"GET /v1/servers/unfinished": 1, "POST /v1/servers/states": 1}, s.link.counted())
	if w.suspect(s) || strings.Contains(w.logged(), `"level":"error"`) {
		t.Errorf("the cell is suspect: %v; the log:\n%s", w.suspect(s), w.logged())
	}
	w.consistent(alive)
}

// TestLostDatabase: the cell has a new database. That is logged once. Servers and allocations are
// left alone until the database is back, which no operator has to confirm.
func TestLostDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	s := w.sites[1]
	one, two, gone := w.built(), w.built(), w.built()
	w.must(w.delete(gone, false))
	w.work()
	w.round()
	back := w.copied(t, s)
	w.again(s, loseDatabase(t))
	for range 3 {
		w.round()
		w.restart() // another process knows it, too
	}
	if log := w.logged(); !w.suspect(s) || strings.Count(log, "another database than before") != 3 ||
		!strings.Contains(log, "cells manage accept cell1") || !strings.Contains(log, `"level":"error"`) {
		t.Errorf("the cell is suspect: %v; the log:\n%s", w.suspect(s), log)
	}
	w.round()
	w.round()
	if n := strings.Count(w.logged(), "another database than before"); n != 4 {
		t.Errorf("one process says it %d times in two rounds", n-3)
	}
	d, err := cellmappings.Compare(ctx, w.store, w.gatherer, s.cell)
	if err != nil || d.Living != 2 || d.Unknown != 2 ||
		d.Deleted != 1 || d.Back != 0 || d.Before.Known.Epoch == d.Now.Epoch {
		t.Errorf("the difference is %+v, %v", d, err)
	}
	w.again(s, back)
	w.round()
	if w.suspect(s) || !strings.Contains(w.logged(), "is the right one again") {
		t.Errorf("the cell is suspect: %v; the log:\n%s", w.suspect(s), w.logged())
	}
	w.consistent(map[string]bool{one: true, two: true, gone: false})
}

// TestLostDatabaseAccepted: what is lost is lost, and the cell goes on with the new one.
func TestLostDatabaseAccepted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	s := w.sites[1]
	lost := w.built()
	w.round()
	w.again(s, loseDatabase(t))
	w.round()
	if d := w.accept(s); d.Unknown != 1 {
		t.Errorf("the difference is %+v", d)
	}
	w.round()
	if w.suspect(s) || w.queued(lost) {
		t.Errorf("the cell is suspect: %v; the lost server is queued: %v", w.suspect(s), w.queued(lost))
	}
	if held, err := w.client.Allocations(ctx, lost); err != nil || len(held.Allocations) == 0 {
		t.Errorf("the lost server, whose guest runs, holds %+v, %v", held, err)
	}
	w.must(w.store.SetQueued(ctx, map[string]bool{lost: true})) // for the count below
	w.discover()
	added := w.built()
	if row := w.row(added); row.VMState != "active" {
		t.Errorf("a new server is %+v", row)
	}
}

// TestOlderCopy: of servers that were deleted after the copy was made none is taken for living; one
// that was restored after it is not reclaimed, and what the copy says is unfinished is not
// finished. When it is accepted all goes on by what the cell says.
func TestOlderCopy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w, seen := beginObserved(t, []int{2},
		func(b *scheduler.Options, _ *quota.Options) { b.Reclaim = 10 * scheduler.DefaultGrace })
	s := w.sites[1]
	stays, deleted, restored := w.built(), w.built(), w.built()
	w.must(w.delete(restored, true))
	w.work()
	w.round()
	back := w.copied(t, s)
	w.must(w.delete(deleted, false))
	m := testproc.Try(w.store.Mapping(ctx, restored)).Or(w.t)
	testproc.Try(w.scheduler.Restore(ctx, m)).Or(w.t)
	w.work()
	later := w.built()
	w.round()
	clear(seen.corrections)
	w.again(s, back)
	w.pass(20 * scheduler.DefaultGrace)
	for range 4 {
		w.round()
	}
	diff(t, map[scheduler.Correction]int{}, seen.corrections)
	if !w.suspect(s) || !strings.Contains(w.logged(), "is an older copy") {
		t.Errorf("the cell is suspect: %v; the log:\n%s", w.suspect(s), w.logged())
	}
	diff(t, []bool{false, true, false, false},
		[]bool{w.queued(stays), w.queued(deleted), w.queued(restored), w.queued(later)})
	if held, err := w.client.Allocations(ctx, restored); err != nil || len(held.Allocations) == 0 {
		t.Errorf("the restored server holds %+v, %v", held, err)
	}

	// It does not become the right one by going on.
	m = testproc.Try(w.store.Mapping(ctx, stays)).Or(w.t)
	for range 30 {
		w.must(w.delete(stays, true))
		w.work()
		testproc.Try(w.scheduler.Restore(ctx, m)).Or(w.t)
		w.work()
	}
	w.round()
	d := w.accept(s)
	if d.Now.Revision <= d.Before.Known.Revision || d.Before.Suspect == nil {
		t.Fatalf("the copy is at %d, and was suspect: %v: there is nothing to test", d.Now.Revision, d.Before.Suspect)
	}
	if d.Living != 3 || d.Unknown != 1 || d.Back != 1 {
		t.Errorf("the difference is %+v", d)
	}
	w.round()
	if w.suspect(s) || w.queued(deleted) {
		t.Errorf("after it is accepted it is suspect: %v; what lives in it is queued: %v",
			w.suspect(s), w.queued(deleted))
	}
	if seen.corrections[scheduler.CorrectedQueued] == 0 || seen.corrections[scheduler.Reclaimed] != 1 {
		t.Errorf("corrections after it is accepted: %v", seen.corrections)
	}
}

// TestDatabaseLostWithinARound: the copy is put back after the cell has told what is unfinished,
// and before it tells what became of its servers.
func TestDatabaseLostWithinARound(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	s := w.sites[1]
	uuid := w.built()
	back := w.copied(t, s)
	w.must(w.delete(uuid, false))
	w.work()
	w.round()
	swapped := false
	s.link.when(func(r *http.Request) fault {
		if strings.HasSuffix(r.URL.Path, "/states") && !swapped {
			swapped = true
			w.again(s, back)
		}
		return up
	})
	w.round()
	if !swapped || !w.queued(uuid) || !w.suspect(s) {
		t.Errorf("swapped: %v; the deleted server is queued: %v; the cell is suspect: %v",
			swapped, w.queued(uuid), w.suspect(s))
	}
}

// TestCompareWhileItIsRestored: nothing is logged about a cell that gets another database
// meanwhile, of whatever revision.
func TestCompareWhileItIsRestored(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, revision := range []string{"0", "1000"} {
		t.Run(revision, func(t *testing.T) {
			w := begin(t, []int{1})
			s := w.sites[1]
			w.built()
			s.link.when(func(r *http.Request) fault {
				if strings.HasSuffix(r.URL.Path, "/states") {
					w.again(s, loseDatabase(t))
					w.again(s,
						func(database string) {
							dbservers.Execute(t, database,
								"UPDATE cell SET revision = "+revision)
						})
				}
				return up
			})
			testproc.Try(cellmappings.Compare(ctx, w.store, w.gatherer, s.cell)).
				ErrorIs(t, cellmappings.ErrChanged, "it says %v")
		})
	}
}

// TestRestoreThatWasNotNoted: a server was restored, and the process died before it noted that: its
// cell knows, and is believed.
func TestRestoreThatWasNotNoted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1}, func(b *scheduler.Options, _ *quota.Options) { b.Reclaim = time.Hour })
	uuid := w.built()
	w.must(w.delete(uuid, true))
	w.work()
	w.round()
	s := w.sites[1]
	client := testproc.Try(cellclient.New(cellclient.Config{URL: s.cell.URL, Transport: s.link})).Or(w.t)
	testproc.Try(client.Restore(ctx, uuid)).Or(w.t)
	w.work()
	if !w.queued(uuid) {
		t.Fatal("it is noted: there is nothing to test")
	}
	w.restart()
	w.consistent(map[string]bool{uuid: true})
}

// claiming is an API database with a claim of a server whose build is over: what a process that
// died in a program of before may have left.
type claiming struct {
	apidb.Store
	uuid *string
}

func (c claiming) Claims(ctx context.Context, before time.Time) ([]apidb.Claim, error) {
	claims, err := c.Store.Claims(ctx, before)
	if *c.uuid != "" {
		claims = append(claims, apidb.Claim{InstanceUUID: *c.uuid})
	}
	return claims, err
}

// TestClaimInASuspectCell: allocations of a server that its cell does not know are not removed by a
// claim, unless the database is the cell's.
func TestClaimInASuspectCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var claimed string
	w := begin(t, []int{1},
		func(b *scheduler.Options, _ *quota.Options) { b.Store = claiming{b.Store, &claimed} })
	s := w.sites[1]
	uuid := w.built()
	w.round()
	w.again(s, loseDatabase(t))
	claimed = uuid
	w.round()
	w.round()
	if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) == 0 || !w.suspect(s) {
		t.Errorf("it holds %+v, %v; the cell is suspect: %v", held, err, w.suspect(s))
	}
	w.accept(s)
	w.round()
	if held, err := w.client.Allocations(ctx, uuid); err != nil || len(held.Allocations) > 0 {
		t.Errorf("after it is accepted it holds %+v, %v", held, err)
	}
}
