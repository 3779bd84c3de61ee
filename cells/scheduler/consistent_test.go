// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"errors"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// settle lets all that is under way come to its end: everything is up, and time passes.
func (w *world) settle() {
	w.t.Helper()
	w.plink.set(up)
	for _, s := range w.sites {
		s.link.set(up)
		for _, a := range s.agents {
			a.off = false
		}
	}
	w.scheduler.SetAfter(nil)
	for range 6 {
		w.beat()
		w.schedule()
		w.work()
		w.must(w.scheduler.Moves(ctx))
		w.work()
		w.must(w.scheduler.Reconcile(ctx))
		w.confirmAll()
		w.work()
		w.pass(scheduler.DefaultGrace / 2)
	}
}

// consistent lets the world settle, and then compares all who know of a server: the API database,
// the cells, Placement and the hosts. alive says of all servers that were ever asked for whether
// they are to be there.
func (w *world) consistent(alive map[string]bool) {
	w.t.Helper()
	w.settle()
	if requests, err := w.store.BuildRequests(ctx, "", 0); err != nil || len(requests) > 0 {
		w.t.Errorf("build requests are left: %v %v", requests, err)
	}
	if claims, err := w.store.Claims(ctx, w.clock()); err != nil || len(claims) > 0 {
		w.t.Errorf("claims are left: %v %v", claims, err)
	}
	holders := w.holders()
	guests := w.guests()
	for uuid, lives := range alive {
		w.consistentServer(uuid, lives, holders[uuid], guests[uuid])
		delete(holders, uuid)
		delete(guests, uuid)
	}
	if len(holders) > 0 || len(guests) > 0 {
		w.t.Errorf("there are allocations without a server: %v, and guests: %v", holders, guests)
	}
	for _, a := range w.all() {
		for uuid, n := range a.spawns {
			if n > 1 {
				w.t.Errorf("server %s was made %d times on %s", uuid, n, a.host)
			}
		}
	}
}

func (w *world) consistentServer(uuid string, lives bool, holds []string, guests int) {
	w.t.Helper()
	m, err := w.store.Mapping(ctx, uuid)
	if err != nil {
		w.t.Errorf("server %s is without record: %v", uuid, err)
		return
	}
	if m.QueuedForDelete == nil || *m.QueuedForDelete == lives {
		w.t.Errorf("server %s lives: %v, and queued_for_delete is %v", uuid, lives, m.QueuedForDelete)
	}
	if lives && m.CellUUID == "" {
		w.t.Errorf("server %s is placed nowhere", uuid)
	}
	var wantHolds []string
	wantGuests := 0
	for _, s := range w.sites {
		row, err := gather.One(ctx, w.gatherer, s.cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) { return c.Server(ctx, uuid) })
		switch {
		case cellclient.IsNotFound(err):
			if m.CellUUID == s.cell.UUID {
				w.t.Errorf("server %s is mapped to %s, which does not know it", uuid, s.cell.Name)
			}
		case err != nil:
			w.t.Fatal(err)
		case m.CellUUID != s.cell.UUID:
			w.t.Errorf("server %s is mapped to %q, and %s has a row (hidden: %v)",
				uuid, m.CellUUID, s.cell.Name, row.Hidden)
		case row.Hidden:
			w.t.Errorf("server %s is hidden in %s", uuid, s.cell.Name)
		case row.Deleted == lives:
			w.t.Errorf("server %s lives: %v, and its row is deleted: %v (%s %s)",
				uuid, lives, row.Deleted, row.VMState, row.TaskState)
		case lives && row.Host != "":
			wantHolds, wantGuests = []string{row.NodeUUID}, 1
			// in error after an evacuation
			if row.VMState != cellwire.VMActive && (row.VMState != cellwire.VMError || row.LaunchedAt == nil) {
				w.t.Errorf("server %s is %s (%s): %+v", uuid, row.VMState, row.TaskState, row.Fault)
			}
		}
	}
	if !slices.Equal(holds, wantHolds) {
		w.t.Errorf("server %s (lives: %v) holds something of %v, want %v", uuid, lives, holds, wantHolds)
	}
	if guests != wantGuests {
		w.t.Errorf("server %s has %d guests, want %d", uuid, guests, wantGuests)
	}
}

// confirmAll confirms all migrations that wait for it.
func (w *world) confirmAll() {
	w.t.Helper()
	for _, s := range w.sites {
		page, err := s.store.Servers(ctx,
			cellwire.ServerQuery{VMStates: []string{cellwire.VMResized}, TaskStates: []string{""}, Limit: 1000},
			celldb.Moment{Now: w.clock()})
		w.must(err)
		for _, row := range page.Rows {
			m := testproc.Try(w.store.Mapping(ctx, row.Server.UUID)).Or(w.t)
			if err := w.scheduler.Decide(ctx, m, true); err != nil && !errors.Is(err, scheduler.ErrNotResized) {
				w.t.Fatal(err)
			}
		}
	}
}

// holders are who holds something, with the nodes.
func (w *world) holders() map[string][]string {
	w.t.Helper()
	holders := map[string][]string{}
	for _, a := range w.all() {
		var answer struct {
			Allocations map[string]any `json:"allocations"`
		}
		w.ask("GET", "/resource_providers/"+a.node+"/allocations", nil, &answer)
		for consumer := range answer.Allocations {
			holders[consumer] = append(holders[consumer], a.node)
		}
	}
	return holders
}
