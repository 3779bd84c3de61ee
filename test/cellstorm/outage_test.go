// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// settleTime is when it is given up that all agree in the end: an agent waits up to two minutes
// between tries.
const settleTime = 4 * time.Minute

// TestOutage boots 20 servers over three cells, kills a cell, does what can be done, and brings it
// back: guests run on as if nothing had happened, and then everything goes together.
func TestOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	w := newWorld(t, plan{kinds: []kind{libvirt, libvirt, libvirt}, apis: 1, downTime: 20 * time.Second, unhurried: true})
	api := w.apis[0]
	watch := w.watching(t.Context(), unmoved)
	one, two := caller{"one", false}, caller{"two", false}

	// 20 servers: 9 of project one, 8 of project two, 3 of the administrator's. Project two stays
	// out of cell1.
	servers := map[string]caller{}
	add := func(who caller, flavor, zone string) {
		t.Helper()
		asking, extra := who, record{}
		if zone != "" { // only an administrator chooses a host
			asking.admin, extra = true, record{"availability_zone": "nova:" + zone}
		}
		servers[api.boot(t, asking, fmt.Sprintf("s%02d", len(servers)), flavor, extra)] = who
	}
	for i := range 9 {
		add(one, []string{"shared", "pinned", "gpu"}[i%3], fmt.Sprintf("h%d", i%3+1))
	}
	for i := range 8 {
		add(two, []string{"shared", "pinned"}[i%2], fmt.Sprintf("h%d", i%2+2))
	}
	for range 3 {
		add(admin, "shared", "")
	}
	allActive(t, api, slices.Collect(maps.Keys(servers)))
	before := w.settled(t, settleTime)
	pids := w.emulators()
	if len(pids) != 20 {
		t.Fatalf("%d guests run, not 20: %v", len(pids), pids)
	}

	w.cells[1].kill()
	ofCell1 := map[string]bool{}
	for uuid, m := range before.mappings {
		ofCell1[uuid] = m.CellUUID == w.cells[1].uuid
	}
	// Lists have all servers, those of the down cell as UNKNOWN; no project sees those of another.
	for who, query := range map[caller]string{one: "", two: "", admin: "?all_tenants=1"} {
		list := api.list(t, who, query)
		for uuid, owner := range servers {
			s, there := list[uuid]
			want := "ACTIVE"
			if ofCell1[uuid] {
				want = "UNKNOWN"
			}
			if visible := who == admin || who == owner; visible != there || there && s.Status != want {
				t.Errorf("the list of %s has %s of %s as %+v (%v), not as %s", who.project, uuid, owner.project, s, there, want)
			}
		}
		if len(list) == 0 {
			t.Errorf("the list of %s is empty", who.project)
		}
	}
	inCell1, elsewhere := firstOf(servers, one, ofCell1, true), firstOf(servers, one, ofCell1, false)
	for uuid, want := range map[string]string{inCell1: "UNKNOWN", elsewhere: "ACTIVE"} {
		testproc.Equal(t, show(t, api, one, uuid).Status, want, "%s is shown as %s", uuid)
		api.must(t, two, "GET", "/servers/"+uuid, nil, 404, nil)
	}
	// Projects with servers there must not boot; others and administrators may.
	api.must(t, one, "POST", "/servers", bootBody("no", "shared", nil), 403, nil)
	fromTwo := api.boot(t, two, "during", "shared", nil)
	fromAdmin := api.boot(t, caller{"one", true}, "during", "pinned", nil)
	servers[fromTwo], servers[fromAdmin] = two, one
	// What is in a cell that is up is deleted; in the one that is down nothing is.
	api.must(t, one, "DELETE", "/servers/"+inCell1, nil, 500, nil)
	api.must(t, two, "DELETE", "/servers/"+elsewhere, nil, 404, nil)
	api.must(t, one, "DELETE", "/servers/"+elsewhere, nil, 204, nil)
	gone(t, api, elsewhere)
	delete(servers, elsewhere)
	allActive(t, api, []string{fromTwo, fromAdmin})
	if n, _, _ := api.used(t, "one"); n != 9 {
		t.Errorf("project one uses %d instances during the outage, not 9", n)
	}

	// The agent knows by now, and the guests of all cells are the processes that they were.
	w.hosts[0].await(t, "The cell is unavailable.")
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
	check(t, w.cells[1].start())
	allActive(t, api, slices.Collect(maps.Keys(servers)))
	w.settled(t, settleTime)
	same("after")
	// Then the cell takes servers again, and deletes them.
	testproc.Eventually(t, patience, "project one may boot again", func() error {
		got, err := api.ask(t.Context(), one, "POST", "/servers", bootBody("after", "shared", nil))
		if err == nil && got.Code != 202 {
			err = errors.New(got.String())
		}
		return err
	})
	for uuid, s := range api.list(t, admin, "?all_tenants=1") {
		if s.Status == "BUILD" {
			allActive(t, api, []string{uuid})
		}
		api.must(t, admin, "DELETE", "/servers/"+uuid, nil, 204, nil)
	}
	w.nothingLeft(t, "one", "two", admin.project)
	wrong, seen, looks := watch.found()
	for _, text := range wrong {
		t.Error(text)
	}
	t.Logf("%d servers were seen in %d looks", seen, looks)
}

// firstOf is a server of a project in the cell, or elsewhere.
func firstOf(servers map[string]caller, who caller, in map[string]bool, there bool) string {
	for _, uuid := range slices.Sorted(maps.Keys(servers)) {
		if servers[uuid] == who && in[uuid] == there {
			return uuid
		}
	}
	return ""
}

func show(t *testing.T, api *api, who caller, uuid string) shown {
	t.Helper()
	var body struct{ Server shown }
	api.must(t, who, "GET", "/servers/"+uuid, nil, 200, &body)
	return body.Server
}

// allActive waits until servers are active.
func allActive(t *testing.T, api *api, uuids []string) {
	t.Helper()
	testproc.Eventually(t, 2*patience, fmt.Sprintf("%d servers are active", len(uuids)), func() error {
		list := api.list(t, admin, "?all_tenants=1")
		for _, uuid := range uuids {
			switch s := list[uuid]; {
			case s.Status == "ERROR":
				t.Fatalf("%s is in error: %+v", uuid, s)
			case s.Status != "ACTIVE" || s.Task != "":
				return fmt.Errorf("%s is %+v", uuid, s)
			}
		}
		return nil
	})
}

// gone waits until the API no longer has a server.
func gone(t *testing.T, api *api, uuid string) {
	t.Helper()
	testproc.Eventually(t, patience, uuid+" is gone", func() error {
		got, err := api.ask(t.Context(), admin, "GET", "/servers/"+uuid, nil)
		if err == nil && got.Code != 404 {
			err = errors.New(got.String())
		}
		return err
	})
}
