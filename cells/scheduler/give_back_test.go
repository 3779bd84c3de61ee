// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestFenceThatPlacementRefuses: a migration without a destination ends although Placement does not
// write once more what the server holds, because its host has become smaller; and only when what
// was claimed for it before has arrived.
func TestFenceThatPlacementRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, aborted := range map[string]bool{"no host": false, "aborted": true} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{1})
			uuid, from := w.moving(cellwire.MigrationCold)
			w.ask("PUT", "/resource_providers/"+from.node+"/inventories/VCPU",
				map[string]any{"resource_provider_generation": 2, "total": slots, "max_unit": 1}, nil)
			if aborted {
				m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t)
				w.must(w.scheduler.Abort(ctx, m, w.open(uuid)[0].ID))
			}
			w.moves()
			w.is(uuid, cellwire.VMActive, "", from)
			if row := w.row(uuid); !aborted &&
				(row.Fault == nil || !strings.Contains(row.Fault.Details, "what the server moves from")) {
				t.Errorf("the fault is %+v", row.Fault)
			}
			w.moves()
			if open := w.open(uuid); len(open) != 1 || !open[0].GiveBack {
				t.Fatalf("while a claim may be on its way, these are open: %+v", open)
			}
			testproc.Contains(t, w.logged(), "as a claim of it may still arrive", "the log says %s")
			w.pass(10 * time.Minute)
			w.beat()
			w.moves()
			if open := w.open(uuid); len(open) > 0 {
				t.Errorf("after ten minutes these are open: %+v", open)
			}
			w.holds(map[string]*agent{uuid: from})
			w.consistent(map[string]bool{uuid: true})
		})
	}
}

// TestClaimThatArrivesLateForNothing: nothing can be written once more of a server that holds
// nothing. What a late claim gives it elsewhere is taken back, and its migration does not end while
// one may arrive.
func TestClaimThatArrivesLateForNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{3})
	uuid, from := w.moving(cellwire.MigrationCold)
	w.must(w.client.Release(ctx, uuid))
	w.plink.when(func(r *http.Request) fault {
		if r.Method == http.MethodPost {
			return late
		}
		return up
	})
	w.moves()
	w.plink.set(up)
	queue := w.plink.queue
	if w.plink.queue = nil; len(queue) != 1 {
		t.Fatalf("%d requests are on their way", len(queue))
	}
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t)
	w.must(w.scheduler.Abort(ctx, m, w.open(uuid)[0].ID))
	w.pass(time.Minute)
	w.beat()
	w.moves()
	w.plink.queue = queue
	w.plink.deliver()
	if held := w.holders()[uuid]; len(held) != 1 || held[0] == from.node {
		t.Fatalf("the claim gives it something of %v", held)
	}
	for range 2 {
		if open := w.open(uuid); len(open) != 1 || !open[0].GiveBack {
			t.Fatalf("while a claim may be on its way, these are open: %+v", open)
		}
		w.pass(time.Minute)
		w.beat()
		w.moves()
	}
	w.pass(10 * time.Minute)
	w.beat()
	w.moves()
	if open := w.open(uuid); len(open) > 0 {
		t.Errorf("after ten minutes these are open: %+v", open)
	}
	if held := w.holders()[uuid]; len(held) > 0 {
		t.Errorf("it holds something of %v", held)
	}
	w.is(uuid, cellwire.VMActive, "", from)
}

// TestAbortWithoutDestination: a migration that has no destination ends, the server is what it was,
// and a claim that was made, or arrives late, is given back.
func TestAbortWithoutDestination(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, kind := range []cellwire.MigrationType{cellwire.MigrationCold, cellwire.MigrationEvacuation} {
		for _, claim := range []string{"none", "made", "late", "unanswered"} {
			t.Run(string(kind)+", claim: "+claim, func(t *testing.T) {
				w := begin(t, []int{3})
				uuid, from := w.moving(kind)
				switch claim {
				case "made":
					w.scheduler.SetAfter(func(string) error { return errEnd })
				case "late":
					w.plink.when(func(r *http.Request) fault {
						if r.Method == http.MethodPost {
							return late
						}
						return up
					})
				default:
					w.failing(hangs, uuid, claim == "unanswered")
				}
				w.moves()
				w.scheduler.SetAfter(nil)
				queue := w.plink.queue
				if w.plink.queue = nil; (len(queue) > 0) != (claim == "late") {
					t.Fatalf("%d requests are on their way", len(queue))
				}
				open := w.open(uuid)
				if len(open) != 1 || open[0].Status != cellwire.MigrationAccepted ||
					(len(w.holders()[open[0].UUID]) > 0) != (claim == "made") {
					t.Fatalf("%+v, and %v", open, w.holders())
				}
				m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(t)
				for range 2 { // repeating it changes nothing
					w.must(w.scheduler.Abort(ctx, m, open[0].ID))
				}
				w.is(uuid, cellwire.VMActive, "", from)
				if last := w.action(uuid); !last.Failed || !strings.Contains(last.Details, "An administrator ended") {
					t.Errorf("the action is %+v", last)
				}
				if err := w.migrate(uuid, kind, ""); !cellclient.IsConflict(err) {
					t.Errorf("it moves again before what it has is given back: %v", err)
				}
				w.plink.set(up)
				w.pass(time.Minute)
				w.beat()
				w.moves()
				w.plink.queue = queue
				w.plink.deliver()
				w.holds(map[string]*agent{uuid: from})
				if open := w.open(uuid); len(open) > 0 {
					t.Errorf("these are left: %+v", open)
				}
				w.must(w.migrate(uuid, kind, ""))
				w.moves()
				if open := w.open(uuid); len(open) != 1 || open[0].Status != cellwire.MigrationPre {
					t.Errorf("the next one is %+v", open)
				}
				w.consistent(map[string]bool{uuid: true})
			})
		}
	}
}
