// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDiscover: new hosts are mapped once; a cell that is down is left for later, and so is a host
// that is in two cells.
func TestDiscover(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1})
	nodes := testproc.Try(w.store.Nodes(ctx)).Or(w.t)
	if len(nodes) != 2 {
		t.Fatalf("at the beginning %d nodes are mapped", len(nodes))
	}
	for _, s := range w.sites {
		s.link.counted()
	}
	if report := w.discover(); len(report.Mapped)+len(report.Conflicts)+len(report.Down) != 0 {
		t.Errorf("without new hosts: %+v", report)
	}
	diff(t, map[string]int{}, w.sites[0].link.counted())
	diff(t, map[string]int{"GET /v1/compute-nodes": 1}, w.sites[1].link.counted())

	fresh := newAgent(w, w.sites[1], "new")
	w.sites[1].agents = append(w.sites[1].agents, fresh)
	clash := newAgent(w, w.sites[2], "clash")
	clash.host = "cell1-host1"
	w.sites[2].agents = append(w.sites[2].agents, newAgent(w, w.sites[2], "other"), clash)
	w.sites[1].link.set(refused)
	report := w.discover()
	if len(report.Down) != 1 || len(report.Mapped) != 1 || report.Mapped[0].Host != "other" ||
		len(report.Conflicts) != 1 || report.Conflicts[0].Node.Host != "cell1-host1" ||
		!errors.Is(report.Conflicts[0].Err, apidb.ErrExists) {
		t.Errorf("discovery without cell1: got %+v, want it down, one host mapped and one conflict", report)
	}
	w.sites[1].link.set(up)
	// They are mapped, and the cell does not receive that: it is sent again.
	w.sites[1].link.when(func(r *http.Request) fault {
		if strings.HasSuffix(r.URL.Path, "/mapped") {
			return refused
		}
		return up
	})
	for range 2 {
		if report = w.discover(); len(report.Mapped) != 1 || report.Mapped[0].Host != "new" ||
			report.Mapped[0].UUID != fresh.node {
			t.Errorf("discovery of a new node: got %+v, want it mapped", report)
		}
	}
	w.sites[1].link.set(up)
	w.discover()
	if report = w.discover(); len(report.Mapped) != 0 {
		t.Errorf("discovery when all is mapped: got %+v, want nothing mapped", report)
	}
}

// flags are queued_for_delete of servers: y, n or -.
func (w *world) flags(uuids ...string) string {
	w.t.Helper()
	text := ""
	for _, uuid := range uuids {
		m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
		switch {
		case m.QueuedForDelete == nil:
			text += "-"
		case *m.QueuedForDelete:
			text += "y"
		default:
			text += "n"
		}
	}
	return text
}

// migrated sets the stage: in each of two cells a living server, one that is deleted, one softly,
// one that the cell never had; and one that is placed nowhere. All are of before queued_for_delete.
func migrated(t *testing.T) (w *world, uuids []string) {
	w = begin(t, []int{1, 1})
	for _, s := range w.sites[1:] {
		host := func(r *scheduler.CreateRequest) { r.ForcedHost = s.agents[0].host }
		lives, deleted, softly := w.created(host), w.created(host), w.created(host)
		w.schedule()
		w.work()
		w.must(w.delete(deleted, false))
		w.must(w.delete(softly, true))
		w.work()
		purged := w.created()
		w.must(w.store.Place(ctx, purged, s.cell.UUID))
		w.must(w.store.FinishBuild(ctx, purged))
		uuids = append(uuids, lives, deleted, softly, purged)
	}
	uuids = append(uuids, w.created())
	unmigrate(t, w.database, uuids...)
	for _, s := range w.sites {
		s.link.counted()
	}
	return w, uuids
}

// TestMigrateQueued: two, the rest, none; as Nova's test of populate_queued_for_delete.
func TestMigrateQueued(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w, uuids := migrated(t)
	for _, c := range []struct {
		most, want, asked int
	}{{2, 2, 1}, {0, 6, 2}, {0, 0, 0}} {
		report := testproc.Try(cellmappings.MigrateQueued(ctx, w.store, w.gatherer, c.most)).Or(w.t)
		asked := 0
		for _, s := range w.sites {
			asked += s.link.counted()["POST /v1/servers/states"]
		}
		if report.Found != c.want || report.Migrated != c.want || len(report.Failed) != 0 || asked != c.asked {
			t.Errorf("at most %d: %+v, %d cells asked; want %d and %d", c.most, report, asked, c.want, c.asked)
		}
	}
	diff(t, "nyyn"+"nyyn"+"-", w.flags(uuids...))
}

// TestMigrateWithoutACell: one that is down keeps no other from being migrated; its own stay as
// they are, and are migrated when it is back.
func TestMigrateWithoutACell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w, uuids := migrated(t)
	w.sites[1].link.set(refused)
	report := testproc.Try(cellmappings.MigrateQueued(ctx, w.store, w.gatherer, 0)).Or(w.t)
	if report.Migrated != 4 || len(report.Failed) != 1 || report.Failed[0].Cell.Name != "cell1" {
		t.Errorf("MigrateQueued without cell1: got %+v, want 4 servers, and cell1 failed", report)
	}
	diff(t, "----"+"nyyn"+"-", w.flags(uuids...))
	w.sites[1].link.set(up)
	report = testproc.Try(cellmappings.MigrateQueued(ctx, w.store, w.gatherer, 0)).Or(w.t)
	if report.Migrated != 4 || len(report.Failed) != 0 {
		t.Errorf("MigrateQueued: got %+v, want 4 servers, and no failure", report)
	}
	diff(t, "nyyn"+"nyyn"+"-", w.flags(uuids...))
}

// TestCompare: flags that say something else than the cell are put right, and nothing else.
func TestCompare(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w, uuids := migrated(t)
	testproc.Try(cellmappings.MigrateQueued(ctx, w.store, w.gatherer, 0)).Or(w.t)
	wrong := map[string]bool{uuids[0]: true, uuids[1]: false, uuids[3]: true, uuids[6]: false}
	w.must(w.store.SetQueued(ctx, wrong))
	w.must(w.scheduler.Reconcile(ctx))
	diff(t, "nyyy"+"nyyn"+"-", w.flags(uuids...)) // unknown for a server that the cell does not have
}

// TestNewHostsAreFoundWhenTheyAreNeeded: a server that only hosts could take that are not mapped
// yet does not fail for that; servers that are scheduled together have them looked for once, and
// where hosts are mapped by hand only, they are not.
func TestNewHostsAreFoundWhenTheyAreNeeded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, interval := range map[string]time.Duration{"by itself": time.Hour, "by hand": 0} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, []int{0},
				func(b *scheduler.Options, _ *quota.Options) { b.DiscoverInterval = interval })
			w.sites[1].agents = append(w.sites[1].agents, newAgent(w, w.sites[1], "new"))
			w.beat()
			made := testproc.Try(w.create(func(r *scheduler.CreateRequest) { r.Min = 3 })).Or(w.t)
			w.sites[1].link.counted()
			w.schedule()
			asked := w.sites[1].link.counted()["GET /v1/compute-nodes"]
			for _, s := range made {
				row := w.row(s.UUID)
				if interval > 0 && (row.Host != "new" || asked != 1) {
					t.Errorf("it is %s on %q, new hosts were looked for %d times", row.VMState, row.Host, asked)
				}
				if interval == 0 &&
					(row.VMState != cellwire.VMError ||
						asked != 0 || !strings.Contains(row.Fault.Details, "1 on nodes without a cell")) {
					t.Errorf("it is %+v, new hosts were looked for %d times", row, asked)
				}
			}
		})
	}
}

// TestUnmappedHostsAreMappedAgain: whatever a cell has noted of its nodes, those that the API
// database does not have are mapped.
func TestUnmappedHostsAreMappedAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1})
	w.must(w.store.DeleteHost(ctx, "cell1-host1"))
	if report := w.discover(); len(report.Mapped) != 1 || report.Mapped[0].Host != "cell1-host1" {
		t.Errorf("discovery after a host was unmapped: got %+v, want it mapped again", report)
	}
	if report := w.discover(); len(report.Mapped) != 0 {
		t.Errorf("discovery when all is mapped: got %+v, want nothing mapped", report)
	}
	uuid := w.created(func(r *scheduler.CreateRequest) { r.ForcedHost = "cell1-host1" })
	w.schedule()
	testproc.Equal(t, w.row(uuid).Host, "cell1-host1", "it is on %q")
}

// TestConflictsAreLoggedOnce: a host that cannot be mapped is an error in the log when it is found,
// and not every time that it is still so.
func TestConflictsAreLoggedOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 0})
	clash := newAgent(w, w.sites[2], "clash")
	clash.host = "cell1-host1"
	w.sites[2].agents = append(w.sites[2].agents, clash)
	w.beat()
	for range 3 {
		w.scheduler.DiscoverAndLog(ctx)
	}
	if !strings.Contains(w.logged(), `"cell":"cell2"`) || !strings.Contains(w.logged(), "in cell cell1, not cell2") {
		t.Errorf("the cells are not named:\n%s", w.logged())
	}
	if n := strings.Count(w.logged(), "A node gets no new servers"); n != 1 {
		t.Errorf("told %d times:\n%s", n, w.logged())
	}
}
