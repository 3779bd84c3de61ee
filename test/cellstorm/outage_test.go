// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// settleTime is when it is given up that all agree in the end: an agent waits up to two minutes
// between tries.
const settleTime = 4 * time.Minute

// TestOutage boots 20 servers over three cells, kills a cell, does what can be done, and brings it
// back: guests run on as if nothing had happened, and then everything goes together.
func TestOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	w := newWorld(t, plan{cells: 3, kinds: []kind{libvirt, libvirt, libvirt},
		downTime: 20 * time.Second, api: unhurried})
	watch := w.watching(unmoved)
	one, two := world.Of("one"), world.Of("two")

	// 20 servers: 9 of project one, 8 of project two, 3 of the administrator's. Project two stays
	// out of cell1.
	servers := map[string]world.Caller{}
	add := func(who world.Caller, flavor, zone string) {
		t.Helper()
		asking, extra := who, record{}
		if zone != "" { // only an administrator chooses a host
			asking, extra = world.AdminOf(who.Project), record{"availability_zone": "nova:" + zone}
		}
		servers[w.boot(asking, fmt.Sprintf("s%02d", len(servers)), flavor, extra)] = who
	}
	for i := range 9 {
		add(one, []string{"shared", "pinned", "gpu"}[i%3], fmt.Sprintf("h%d", i%3+1))
	}
	for i := range 8 {
		add(two, []string{"shared", "pinned"}[i%2], fmt.Sprintf("h%d", i%2+2))
	}
	for range 3 {
		add(world.Admin, "shared", "")
	}
	w.allActive(maps.Keys(servers))
	before := w.settled()
	pids := w.emulators()
	if len(pids) != 20 {
		t.Fatalf("%d guests run, not 20: %v", len(pids), pids)
	}

	cell1 := w.processes[slices.IndexFunc(w.processes, func(p *process) bool { return p.Name() == "cell1" })]
	cell1.kill()
	ofCell1 := map[string]bool{}
	for uuid, m := range before.mappings {
		ofCell1[uuid] = m.CellUUID == w.cells[1].uuid
	}
	// Lists have all servers, those of the down cell as UNKNOWN; no project sees those of another.
	for _, who := range []world.Caller{one, two, world.Admin} {
		list := w.list(who)
		for uuid, owner := range servers {
			s, there := list[uuid]
			want := "ACTIVE"
			if ofCell1[uuid] {
				want = "UNKNOWN"
			}
			if visible := who == world.Admin || who == owner; visible != there || there && s.Status != want {
				t.Errorf("the list of %s has %s of %s as %+v (%v), not as %s",
					who.Project, uuid, owner.Project, s, there, want)
			}
		}
		if len(list) == 0 {
			t.Errorf("the list of %s is empty", who.Project)
		}
	}
	var inCell1, elsewhere string // of project one
	for uuid, owner := range servers {
		switch {
		case owner != one:
		case ofCell1[uuid]:
			inCell1 = uuid
		default:
			elsewhere = uuid
		}
	}
	for uuid, want := range map[string]string{inCell1: "UNKNOWN", elsewhere: "ACTIVE"} {
		testproc.Equal(t, w.show(one, uuid).Status, want, "%s is shown as %s", uuid)
		w.Get(two, "2.69", "/servers/"+uuid).Is(t, 404)
	}
	// Projects with servers there must not boot; others and administrators may.
	w.Post(one, "no", record{"flavorRef": "shared"}).Is(t, 403)
	fromTwo := w.boot(two, "of two", "shared", nil)
	fromAdmin := w.boot(world.AdminOf("one"), "of one", "pinned", nil)
	servers[fromTwo], servers[fromAdmin] = two, one
	// What is in a cell that is up is deleted; in the one that is down nothing is.
	w.Ask(one, "2.69", "DELETE", "/servers/"+inCell1, nil).Is(t, 500)
	w.Ask(two, "2.69", "DELETE", "/servers/"+elsewhere, nil).Is(t, 404)
	w.Ask(one, "2.69", "DELETE", "/servers/"+elsewhere, nil).Is(t, 204)
	w.Gone(w.NameOf(elsewhere))
	delete(servers, elsewhere)
	w.Settled("ACTIVE", "of two", "of one")
	if n, _, _ := w.used("one"); n != 9 {
		t.Errorf("project one uses %d instances during the outage, not 9", n)
	}

	// The agent knows by now, and the guests of all cells are the processes that they were.
	w.hosts[0].Await(t, 0, "The cell is unavailable.")
	same := func(when string) {
		t.Helper()
		now := w.emulators()
		for uuid, guests := range pids {
			if uuid != elsewhere && !slices.Equal(now[uuid], guests) {
				t.Errorf("the guest of %s was %+v, and is %+v %s the outage of its cell", uuid, guests, now[uuid], when)
			}
		}
	}
	same("in")
	cell1.start(t)
	w.allActive(maps.Keys(servers))
	w.settled()
	same("after")
	// Then the cell takes servers again, and deletes them.
	w.Eventually("project one may boot again", func() error {
		got := w.Post(one, "after", record{"flavorRef": "shared"})
		if got.Code != 202 {
			return errors.New(got.String())
		}
		w.Accepted(got, "after")
		return nil
	})
	w.Settled("ACTIVE", "after")
	for uuid := range w.list(world.Admin) {
		w.Ask(world.Admin, "2.69", "DELETE", "/servers/"+uuid, nil).Is(t, 204)
	}
	w.nothingLeft()
	watch.judge()
}

// allActive waits until servers are active.
func (d *deployment) allActive(uuids iter.Seq[string]) {
	d.T.Helper()
	for uuid := range uuids {
		d.Settled("ACTIVE", d.NameOf(uuid))
	}
}
