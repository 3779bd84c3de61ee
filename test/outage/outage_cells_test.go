// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellclient"
)

// cellsLane are outages of other cells than cell1, and of several. Project p1 has a server in each
// cell.
var cellsLane = lane{build: cellsWorld, cases: []aCase{
	{62, "server_in_two_cells", func(t *testing.T, w *world) {
		// What a scheduler left that died: the server is in cell1, and in cell2 there is a row that
		// was never released.
		web1, client := w.id(t, "web1"), map[string]*cellclient.Client{}
		for _, name := range []string{"cell1", "cell2"} {
			var err error
			client[name], err = cellclient.New(cellclient.Config{URL: w.cells[name].url})
			check(t, err)
			defer client[name].CloseIdle()
		}
		row, err := client["cell1"].Server(t.Context(), web1)
		check(t, err)
		row.Host, row.Node, row.NodeUUID, row.VMState, row.LaunchedAt = "c2h1", "c2h1", w.hosts["c2h1"].node, "building", nil
		row.UpdatedAt, row.PowerState = nil, 0
		_, err = client["cell2"].Insert(t.Context(), row)
		check(t, err)
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "lost", "web2", "web1")
		w.down(t, "cell1")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web1?", "lost", "web2")
		if s := w.show(t, of("p1"), "2.69", "web1").server(t); !isUnknown(s) {
			t.Errorf("web1 is %v", s)
		}
		w.up(t)
		w.down(t, "cell2")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web2?", "lost", "web1")
		w.up(t)
		check(t, client["cell2"].Discard(t.Context(), web1))
	}},
	{36, "cell0_down", func(t *testing.T, w *world) {
		w.down(t, "cell0")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "lost?", "web2", "web1")
		w.lists(t, w.api.get(t, of("p1"), "2.68", "/servers"), "web2", "web1")
		a := w.show(t, of("p1"), "2.69", "lost")
		if s := a.server(t); len(s) != 10 || !isUnknown(s) {
			t.Errorf("lost is %v", s)
		}
		w.golden(t, "36-show-lost", a)
		w.golden(t, "36-services", w.api.get(t, admin, "2.69", "/os-services").status(t, 200))
		w.up(t)
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "lost", "web2", "web1")
	}},
	{37, "cell1_and_cell2_down", func(t *testing.T, w *world) {
		w.down(t, "cell1", "cell2")
		w.placement.Kill() // so that what is asked for stays a build request
		w.accepted(t, w.api.post(t, of("p2"), "coming", nil), "coming")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web2?", "web1?", "lost")
		w.lists(t, w.api.get(t, of("p1"), "2.68", "/servers"), "lost")
		for _, version := range []string{"2.68", "2.69"} {
			w.lists(t, w.api.get(t, of("p2"), version, "/servers"), "coming")
		}
		if s := w.api.get(t, admin, "2.68", "/os-services").services(t); len(s) != 0 {
			t.Errorf("before 2.69 the services are %v", s)
		}
		w.golden(t, "37-detail-build-request", w.api.get(t, of("p2"), "2.69", "/servers/detail").status(t, 200))
		w.golden(t, "37-show-build-request", w.show(t, of("p2"), "2.69", "coming").status(t, 200))
		w.lists(t, w.api.get(t, admin, "2.69", "/servers?all_tenants=1"), "web2?", "web1?", "coming", "lost")
		w.golden(t, "37-services", w.api.get(t, admin, "2.69", "/os-services").status(t, 200))
		w.startPlacement(t)
		w.placement.Await(t, 0, "Serving the Placement API.")
		w.up(t)
	}},
	{38, "all_cells_down_and_more_than_max_limit", func(t *testing.T, w *world) {
		w.down(t, "cell0", "cell1", "cell2")
		short := w.another(t, "short", "compute_api.max_limit = 2")
		a := short.get(t, of("p1"), "2.69", "/servers")
		servers := a.servers(t)
		if len(servers) != 2 || !slices.ContainsFunc(servers, isUnknown) || a.next(t) != "" {
			t.Errorf("%s", a.raw)
		}
		w.golden(t, "38-max-limit", a)
		w.lists(t, short.get(t, of("p1"), "2.68", "/servers"))
		w.up(t)
	}},
}}

func cellsWorld(t *testing.T) *world {
	w := newWorld(t, plan{})
	w.begin(t, "p1", "web1", "c1h1")
	w.begin(t, "p1", "web2", "c2h1")
	w.bury(t, "p1", "lost")
	w.settled(t, "ERROR", "lost")
	w.settled(t, "ACTIVE", "web1", "web2")
	return w
}
