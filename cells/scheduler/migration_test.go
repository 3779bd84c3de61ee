// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// down is for how long a host shows no life until it counts as down.
const down = 2 * time.Minute

// placed is a server that is active, and its host.
func (w *world) placed() (uuid string, on *agent) {
	w.t.Helper()
	uuid = w.created()
	w.schedule()
	w.work()
	if row := w.row(uuid); row.VMState != cellwire.VMActive {
		w.t.Fatalf("server %s is %s", uuid, row.VMState)
	}
	return uuid, w.host(uuid)
}

// host is where a server is.
func (w *world) host(uuid string) *agent {
	w.t.Helper()
	row := w.row(uuid)
	all := w.all()
	i := slices.IndexFunc(all, func(a *agent) bool { return a.host == row.Host })
	if i < 0 {
		w.t.Fatalf("server %s is on host %q", uuid, row.Host)
	}
	return all[i]
}

func (w *world) migrate(uuid string, kind cellwire.MigrationType, host string) error {
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	return w.scheduler.Migrate(ctx, m, kind, host)
}

func (w *world) moves() {
	w.t.Helper()
	w.must(w.scheduler.Moves(ctx))
}

// dies takes a host down, with all others alive.
func (w *world) dies(a *agent) {
	a.off = true
	w.pass(down)
	w.beat()
}

// open are the open migrations of a server.
func (w *world) open(uuid string) []cellwire.Migration {
	w.t.Helper()
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	return testproc.Try(w.site(m.CellUUID).store.MigrationsOf(ctx, uuid)).Or(w.t)
}

// action is the last action of a server.
func (w *world) action(uuid string) cellwire.Action {
	w.t.Helper()
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	all := testproc.Try(w.site(m.CellUUID).store.Actions(ctx, uuid)).Or(w.t)
	return all.Actions[0]
}

// is fails unless a server is in these states on a host.
func (w *world) is(uuid, vm, task string, on *agent) {
	w.t.Helper()
	if row := w.row(uuid); row.VMState != vm || row.TaskState != task ||
		row.Host != on.host || row.NodeUUID != on.node {
		w.t.Errorf("server %s is %s (%s) on %s, want %s (%s) on %s; %+v",
			uuid, row.VMState, row.TaskState, row.Host, vm, task, on.host, row.Fault)
	}
}

// holds fails unless consumers have allocations on just these hosts.
func (w *world) holds(of map[string]*agent) {
	w.t.Helper()
	want := map[string][]string{}
	for consumer, on := range of {
		want[consumer] = []string{on.node}
	}
	got := w.holders()
	for consumer, nodes := range want {
		if !slices.Equal(got[consumer], nodes) {
			w.t.Errorf("consumer %s holds something of %v, want %v", consumer, got[consumer], nodes)
		}
	}
	if len(got) != len(want) {
		w.t.Errorf("the consumers are %v, want %v", got, want)
	}
}

// TestEvacuation: a server whose host is down is made elsewhere, and its old host removes what it
// has when it is back.
func TestEvacuation(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	evacuation(t, begin(t, []int{2}))
}

// evacuation is it in a world of two hosts.
func evacuation(t *testing.T, w *world) {
	t.Helper()
	uuid, from := w.placed()
	if err := w.migrate(uuid, cellwire.MigrationEvacuation, ""); !cellclient.IsInUse(err) {
		t.Errorf("evacuating a server from a host that is up: %v", err)
	}
	w.dies(from)
	w.must(w.migrate(uuid, cellwire.MigrationEvacuation, ""))
	w.is(uuid, cellwire.VMActive, cellwire.TaskRebuilding, from)
	if err := w.migrate(uuid, cellwire.MigrationEvacuation, ""); !cellclient.IsConflict(err) {
		t.Errorf("evacuating it twice: %v", err)
	}
	w.moves()
	to := w.host(uuid)
	if to == from {
		t.Fatal("it stays on its host")
	}
	migration := w.open(uuid)[0]
	w.holds(map[string]*agent{uuid: to, migration.UUID: from})
	w.is(uuid, cellwire.VMActive, cellwire.TaskRebuilding, to)
	var held struct {
		Type string `json:"consumer_type"`
	}
	w.ask("GET", "/allocations/"+migration.UUID, nil, &held)
	testproc.Equal(t, held.Type, scheduler.ConsumerTypeMigration, "the consumer is a %s")
	w.work()
	w.is(uuid, cellwire.VMActive, "", to)
	testproc.Equal(t, w.open(uuid)[0].Status, cellwire.MigrationDone, "the migration is %s")
	if last := w.action(uuid); last.Name != cellwire.ActionEvacuate || last.FinishedAt == nil || last.Failed {
		t.Errorf("the action is %+v", last)
	}
	if from.guests[uuid] != true {
		t.Error("the old host has lost its guest while it was down")
	}
	from.off = false
	w.work()
	if _, left := from.guests[uuid]; left {
		t.Error("the old host has its guest still")
	}
	w.holds(map[string]*agent{uuid: to})
	if all := w.open(uuid); len(all) > 0 {
		t.Errorf("these migrations are left: %+v", all)
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestEvacuationWithoutHost: the server is in error where it was, and nothing has changed.
func TestEvacuationWithoutHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1})
	uuid, from := w.placed()
	w.dies(from)
	w.must(w.migrate(uuid, cellwire.MigrationEvacuation, ""))
	w.moves()
	w.is(uuid, cellwire.VMError, "", from)
	w.holds(map[string]*agent{uuid: from})
	row := w.row(uuid)
	if row.Fault == nil || !strings.Contains(row.Fault.Message, "No valid host") ||
		!strings.Contains(row.Fault.Details, "in another cell") {
		t.Errorf("the fault is %+v", row.Fault)
	}
	if last := w.action(uuid); !last.Failed || last.FinishedAt == nil {
		t.Errorf("the action is %+v", last)
	}
	w.must(w.migrate(uuid, cellwire.MigrationEvacuation, "")) // from error, too
	w.moves()
	w.consistent(map[string]bool{uuid: true})
}

// TestEvacuationFails: the destination cannot make the guest. The server is in error on its old
// host, with its allocations there.
func TestEvacuationFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	uuid, from := w.placed()
	for _, a := range w.all() {
		a.fails = map[cellwire.Want]bool{cellwire.WantArriving: true}
	}
	w.dies(from)
	w.must(w.migrate(uuid, cellwire.MigrationEvacuation, ""))
	w.moves()
	w.work()
	w.is(uuid, cellwire.VMError, cellwire.TaskRebuilding, w.host(uuid))
	w.moves()
	w.is(uuid, cellwire.VMError, "", from)
	w.holds(map[string]*agent{uuid: from})
	if row := w.row(uuid); row.Fault == nil || !strings.Contains(row.Fault.Message, "cannot do that") {
		t.Errorf("the fault is %+v", row.Fault)
	}
	if last := w.action(uuid); !last.Failed || !strings.Contains(last.Details, "cannot do that") {
		t.Errorf("the action is %+v", last)
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestColdMigration: a server goes to another host, and stays there or comes back.
func TestColdMigration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	coldMigration(t, func(t *testing.T) *world {
		t.Helper()
		return begin(t, []int{2})
	})
}

// coldMigration is it in worlds of two hosts.
func coldMigration(t *testing.T, made func(*testing.T) *world) {
	t.Helper()
	for name, stays := range map[string]bool{"confirmed": true, "reverted": false} {
		t.Run(name, func(t *testing.T) {
			w := made(t)
			uuid, from := w.placed()
			w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
			w.is(uuid, cellwire.VMActive, cellwire.TaskResizePrep, from)
			w.moves()
			w.is(uuid, cellwire.VMActive, cellwire.TaskResizeMigrating, from)
			migration := w.open(uuid)[0]
			from.work()
			to := w.host(uuid)
			w.is(uuid, cellwire.VMActive, cellwire.TaskResizeFinish, to)
			if from.guests[uuid] {
				t.Error("the guest runs where it has departed from")
			}
			to.work()
			w.is(uuid, cellwire.VMResized, "", to)
			w.holds(map[string]*agent{uuid: to, migration.UUID: from})
			if last := w.action(uuid); last.Name != cellwire.ActionMigrate || last.FinishedAt == nil || last.Failed {
				t.Errorf("the action is %+v", last)
			}
			m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t)
			check(t, w.scheduler.Decide(ctx, m, stays))
			testproc.ErrorIs(t, w.scheduler.Decide(ctx, m, stays), scheduler.ErrNotResized, "the second time: %v")
			at := to
			w.work()
			if !stays {
				at = from
				w.is(uuid, cellwire.VMResized, cellwire.TaskResizeReverting, to)
				w.moves()
				w.is(uuid, cellwire.VMResized, cellwire.TaskResizeReverting, from)
				w.work()
			}
			w.is(uuid, cellwire.VMActive, "", at)
			w.holds(map[string]*agent{uuid: at})
			if last := w.action(uuid); last.FinishedAt == nil || last.Failed ||
				(last.Name == cellwire.ActionConfirm) != stays {
				t.Errorf("the action is %+v", last)
			}
			if !at.guests[uuid] {
				t.Error("it does not run")
			}
			w.consistent(map[string]bool{uuid: true})
		})
	}
}

// TestColdMigrationFails: on either host. The server is as it was, and the action says why.
func TestColdMigrationFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, want := range []cellwire.Want{cellwire.WantDeparting, cellwire.WantArriving} {
		t.Run(string(want), func(t *testing.T) {
			w := begin(t, []int{2})
			uuid, from := w.placed()
			for _, a := range w.all() {
				a.fails = map[cellwire.Want]bool{want: true}
			}
			w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
			for range 3 {
				w.moves()
				w.work()
			}
			w.is(uuid, cellwire.VMActive, "", from)
			w.holds(map[string]*agent{uuid: from})
			if last := w.action(uuid); !last.Failed || !strings.Contains(last.Details, "cannot do that") {
				t.Errorf("the action is %+v", last)
			}
			if !from.guests[uuid] {
				t.Error("it does not run")
			}
			w.consistent(map[string]bool{uuid: true})
		})
	}
}

// TestMigrationsEndAfterEveryStep: the process ends once after each step, and another goes on.
func TestMigrationsEndAfterEveryStep(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, step := range moveSteps {
		t.Run(step, func(t *testing.T) {
			w := begin(t, []int{2})
			uuid, from := w.placed()
			reached := false
			w.scheduler.SetAfter(func(s string) error {
				if s != step {
					return nil
				}
				reached = true
				return errEnd
			})
			switch step {
			case "fail":
				for _, a := range w.all() {
					if a != from {
						a.off = true
					}
				}
				w.pass(down)
				w.beat()
			case "give back":
				from.fails = map[cellwire.Want]bool{cellwire.WantDeparting: true}
			}
			w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
			w.moves()
			w.work()
			w.moves()
			if !reached {
				t.Error("the step was never reached")
			}
			w.restart()
			w.consistent(map[string]bool{uuid: true})
		})
	}
}

// TestMigrationClaimThatArrivesLate: the claim of an attempt without an answer arrives when another
// attempt has succeeded, or when there was no host after all. It changes nothing.
func TestMigrationClaimThatArrivesLate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, fails := range []bool{false, true} {
		w := begin(t, []int{3})
		uuid, from := w.placed()
		w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
		w.plink.when(func(r *http.Request) fault {
			if r.Method == http.MethodPost {
				return late
			}
			return up
		})
		w.moves()
		queue := w.plink.queue
		if len(queue) != 1 {
			t.Fatalf("%d requests are on their way", len(queue))
		}
		w.plink.queue = nil
		w.plink.set(up)
		if fails {
			for _, a := range w.all() {
				a.off = a != from
			}
			w.pass(down)
		}
		w.pass(time.Minute)
		w.beat()
		w.moves()
		before := w.holders()
		w.plink.queue = queue
		w.plink.deliver()
		diff(t, before, w.holders())
		if fails {
			w.is(uuid, cellwire.VMActive, "", from)
		}
		w.consistent(map[string]bool{uuid: true})
	}
}

// TestDeleteWhileItMoves: at each stage, with both hosts up, or one of them down.
func TestDeleteWhileItMoves(t *testing.T) {
	t.Parallel()
	for _, kind := range []cellwire.MigrationType{cellwire.MigrationCold, cellwire.MigrationEvacuation} {
		for stage := range 6 {
			for _, dead := range []string{"", "source", "home"} {
				name := fmt.Sprintf("%s, stage %d, down: %s", kind, stage, cmp.Or(dead, "none"))
				dbservers.Case(t, name, func(t *testing.T) {
					testproc.Parallel(t, testproc.Light)
					deleteWhileItMoves(t, kind, stage, dead)
				})
			}
		}
	}
}

func deleteWhileItMoves(t *testing.T, kind cellwire.MigrationType, stage int, dead string) {
	t.Helper()
	w := begin(t, []int{2})
	uuid, from := w.placed()
	if kind == cellwire.MigrationEvacuation {
		w.dies(from)
	}
	w.must(w.migrate(uuid, kind, ""))
	for i := range stage {
		if i%2 == 0 {
			w.moves()
		} else {
			w.work()
		}
		if i == 3 && kind == cellwire.MigrationCold {
			m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t)
			check(t, w.scheduler.Decide(ctx, m, false))
		}
	}
	switch dead {
	case "source":
		w.dies(from)
	case "home":
		w.dies(w.host(uuid))
	}
	if err := w.delete(uuid, true); !cellclient.IsConflict(err) && len(w.open(uuid)) > 0 &&
		w.row(uuid).VMState != cellwire.VMSoftDeleted &&
		w.row(uuid).TaskState != cellwire.TaskSoftDeleting {
		t.Errorf("deleting it softly while it moves: %v", err)
	}
	w.must(w.delete(uuid, false))
	w.consistent(map[string]bool{uuid: false})
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t)
	if all, err := w.site(m.CellUUID).store.MigrationsDue(ctx); err != nil || len(all) > 0 {
		t.Errorf("these are to be done: %+v, %v", all, err)
	}
	if all := w.open(uuid); len(all) > 0 {
		t.Errorf("these are left: %+v", all)
	}
}

// TestHostsWithoutTheAbility take and give no servers of others.
func TestHostsWithoutTheAbility(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	uuid, from := w.placed()
	unable := func(a *agent) {
		_, err := a.cell.Report(ctx, a.host,
			cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: a.node, Name: a.host}}})
		check(t, err)
	}
	unable(from)
	if err := w.migrate(uuid, cellwire.MigrationCold, ""); !cellclient.IsUnable(err) {
		t.Errorf("from a host that cannot: %v", err)
	}
	w.is(uuid, cellwire.VMActive, "", from)
	w.beat()
	for _, a := range w.all() {
		if a != from {
			unable(a)
		}
	}
	check(t, w.migrate(uuid, cellwire.MigrationCold, ""))
	w.moves()
	w.is(uuid, cellwire.VMActive, "", from)
	if row := w.row(uuid); row.Fault == nil || !strings.Contains(row.Fault.Details, "without the ability") {
		t.Errorf("the fault is %+v", row.Fault)
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestConfirmWindow: a migration is confirmed after a time if no client does that, and not before.
func TestConfirmWindow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const window = time.Hour
	w := begin(t, []int{2}, func(o *scheduler.Options, _ *quota.Options) { o.ConfirmAfter = window })
	uuid, _ := w.placed()
	w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
	w.moves()
	w.work()
	w.work()
	to := w.host(uuid)
	for _, wait := range []time.Duration{0, window - time.Minute, 2 * time.Minute} {
		w.is(uuid, cellwire.VMResized, "", to)
		w.pass(wait)
		w.must(w.scheduler.Reconcile(ctx))
		w.work()
	}
	w.is(uuid, cellwire.VMActive, "", to)
	w.holds(map[string]*agent{uuid: to})
	w.consistent(map[string]bool{uuid: true})
}

// TestMigrationToAHostThatStarts: a host whose agent has restarted, and does not know its nodes
// yet, takes servers as before. One whose agent reports no node does not, with that as the reason.
func TestMigrationToAHostThatStarts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	uuid, from := w.placed()
	to := w.sites[1].agents[0]
	if to == from {
		to = w.sites[1].agents[1]
	}
	report := func(starting bool) {
		t.Helper()
		testproc.Try(to.cell.Report(ctx, to.host,
			cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{}, Starting: starting})).Or(t)
	}
	report(false)
	w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
	w.moves()
	if row := w.row(uuid); row.Fault == nil ||
		!strings.Contains(row.Fault.Details, "1 not reported by their hosts now") {
		t.Fatalf("to a host that reports no node: %+v", row.Fault)
	}
	to.beat()
	report(true)
	w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
	w.moves()
	if open := w.open(uuid); len(open) != 1 || open[0].DestHost != to.host {
		t.Errorf("to a host that starts: %+v, %+v", open, w.row(uuid).Fault)
	}
}

// TestRealPlacementOfMigrations: migrations are the same with OpenStack's Placement.
func TestRealPlacementOfMigrations(t *testing.T) {
	real := testproc.StartPlacement(t)
	at := testproc.Try(url.Parse(real.URL)).Or(t)
	made := func(t *testing.T) *world {
		t.Helper()
		check(t, real.Reset(t.Context()))
		w := newWorldOn(t, databases(t), httputil.NewSingleHostReverseProxy(at), []int{2}, nil)
		t.Cleanup(w.close)
		return w
	}
	coldMigration(t, made)
	t.Run("evacuated", func(t *testing.T) { evacuation(t, made(t)) })
}
