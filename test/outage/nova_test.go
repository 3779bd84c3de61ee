// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestNovaServers asserts what Nova's functional tests of 2.69 assert (ServerTestV269 and those
// of its API samples), with their data: cell0 to cell3 with two servers of a project each, one
// server of another project in cell1 and in cell3, and cell1 and cell2 down. Here they are dead.
func TestNovaServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{cells: []string{"cell1", "cell2", "cell3"}})
	defer func() { w.close(t, t.Failed()) }()
	var order []string // of creation
	for i := range 2 {
		for cell := range 4 {
			name := fmt.Sprintf("s%d%d", cell, i)
			if cell == 0 {
				w.bury(t, "p", name)
			} else {
				w.begin(t, "p", name, fmt.Sprintf("c%dh1", cell))
			}
			order = append(order, name)
		}
	}
	for _, cell := range []string{"1", "3"} {
		name := "faker" + cell
		w.begin(t, "faker", name, "c"+cell+"h1")
		order = append(order, name)
	}
	for _, name := range order {
		status := "ACTIVE"
		if strings.HasPrefix(name, "s0") {
			status = "ERROR"
		}
		w.settled(t, status, name)
	}
	w.down(t, "cell1", "cell2")

	up := []string{"s31", "s01", "s30", "s00"} // newest first
	all := append([]string{"s21?", "s11?", "s20?", "s10?"}, up...)
	withKeys := func(t *testing.T, servers []record, want ...string) {
		t.Helper()
		for _, s := range servers {
			if isUnknown(s) && !slices.Equal(keys(s), want) {
				t.Errorf("an UNKNOWN record has the keys %v", keys(s))
			}
			if !isUnknown(s) && s["name"] == nil {
				t.Errorf("a record of a cell that is up has no name: %v", s)
			}
		}
	}
	t.Run("get_servers_with_down_cells", func(t *testing.T) {
		a := w.api.get(t, of("p"), "2.69", "/servers")
		w.lists(t, a, all...)
		withKeys(t, a.servers(t), "id", "links", "status")
	})
	t.Run("get_servers_detail_with_down_cells", func(t *testing.T) {
		a := w.api.get(t, of("p"), "2.69", "/servers/detail")
		w.lists(t, a, all...)
		withKeys(t, a.servers(t), "created", "id", "links", "status", "tenant_id")
	})
	t.Run("get_servers_detail_limits_with_down_cells", func(t *testing.T) {
		w.lists(t, w.api.get(t, of("p"), "2.69", "/servers/detail?limit=5"), up...)
	})
	t.Run("get_servers_detail_limits_with_down_cells_the_500_gift", func(t *testing.T) {
		strict := w.another(t, "strict", "compute_api.list_records_by_skipping_down_cells = false")
		if m := strict.get(t, of("p"), "2.69", "/servers/detail?limit=5").fault(t, "computeFault", 500); !strings.Contains(m, "NovaException") {
			t.Errorf("the message is %q", m)
		}
	})
	t.Run("get_servers_detail_marker_in_down_cells", func(t *testing.T) {
		if m := w.api.get(t, of("p"), "2.69", "/servers/detail?marker="+w.id(t, "s20")).fault(t, "computeFault", 500); !strings.Contains(m, "DBError") {
			t.Errorf("the message is %q", m)
		}
	})
	t.Run("get_servers_detail_marker_sorting", func(t *testing.T) {
		path := "/servers/detail?sort_key=created_at&sort_dir=asc&marker=" + w.id(t, "s30")
		w.lists(t, w.api.get(t, of("p"), "2.69", path), "s01", "s31")
	})
	t.Run("get_servers_detail_non_admin_with_deleted_flag", func(t *testing.T) {
		w.lists(t, w.api.get(t, of("p"), "2.69", "/servers/detail?deleted=True"), all...)
	})
	t.Run("get_servers_detail_filters", func(t *testing.T) {
		w.lists(t, w.api.get(t, adminOf("p"), "2.69", "/servers/detail?hostname=s31"), "s31")
		w.lists(t, w.api.get(t, adminOf("p"), "2.69", "/servers/detail?hostname=s11"))
	})
	t.Run("get_servers_detail_all_tenants_with_down_cells", func(t *testing.T) {
		a := w.api.get(t, admin, "2.69", "/servers/detail?all_tenants=True")
		w.lists(t, a, "faker1?", "s21?", "s11?", "s20?", "s10?", "faker3", "s31", "s01", "s30", "s00")
		withKeys(t, a.servers(t), "created", "id", "links", "status", "tenant_id")
		tenants := map[any]bool{}
		for _, s := range a.servers(t) {
			if isUnknown(s) {
				tenants[s["tenant_id"]] = true
			}
		}
		if len(tenants) != 2 {
			t.Errorf("the tenants are %v", tenants)
		}
	})
	t.Run("server_get_with_down_cells", func(t *testing.T) {
		if s := w.show(t, of("p"), "2.69", "s10").server(t); len(s) != 10 || !isUnknown(s) {
			t.Errorf("%v", s)
		}
		if s := w.show(t, of("p"), "2.69", "s30").server(t); s["status"] != "ACTIVE" {
			t.Errorf("%v", s)
		}
		w.show(t, of("p"), "2.68", "s10").fault(t, "computeFault", 500)
	})

	// The bodies of Nova's API samples servers/v2.69 and os-services/v2.69, with the values of this
	// data: one server in a cell that is down, and all hosts down. Without the security groups,
	// which are of the network service, which is missing here.
	t.Run("samples", func(t *testing.T) {
		w.down(t, "cell0", "cell3")
		w.golden(t, "sample-services-list-get", w.api.get(t, admin, "2.69", "/os-services").status(t, 200))
		w.golden(t, "sample-servers-list", w.api.get(t, of("faker"), "2.69", "/servers").status(t, 200))
		w.golden(t, "sample-servers-details", w.api.get(t, of("faker"), "2.69", "/servers/detail").status(t, 200))
		w.golden(t, "sample-server-get", w.show(t, of("faker"), "2.69", "faker1").status(t, 200))
		w.golden(t, "sample-server-get-2.71", w.show(t, of("faker"), "2.71", "faker1").status(t, 200))
	})
}

// markerLane is about three cells with hosts. In case 26 the marker is half way in a cell that is
// up, another is down, and of the third come the servers after the marker in the order of the list.
var markerLane = lane{build: markerWorld, cases: []aCase{
	{26, "marker_half_way", func(t *testing.T, w *world) {
		w.down(t, "cell2")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?sort_key=display_name&sort_dir=asc&marker="+w.id(t, "n2a")), "n3c", "n4a", "n6c")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?marker="+w.id(t, "n4a")), "n3c", "n2a", "n1c")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers/detail?limit=2&marker="+w.id(t, "n4a")), "n3c", "n2a")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers?marker="+w.id(t, "n1c")))
	}},
	{50, "reads_after_the_recovery", func(t *testing.T, w *world) {
		w.down(t, "cell2")
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "n5b?", "n0b?", "n6c", "n4a", "n3c", "n2a", "n1c")
		w.up(t)
		w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "n6c", "n5b", "n4a", "n3c", "n2a", "n1c", "n0b")
	}},
}}

// markerWorld has servers of p1 in three cells, a letter for each, numbered in the order of their
// creation.
func markerWorld(t *testing.T) *world {
	w := newWorld(t, plan{cells: []string{"cell1", "cell2", "cell3"}})
	hosts := map[byte]string{'a': "c1h1", 'b': "c2h1", 'c': "c3h1"}
	for _, name := range []string{"n0b", "n1c", "n2a", "n3c", "n4a", "n5b", "n6c"} {
		w.begin(t, "p1", name, hosts[name[2]])
	}
	w.settled(t, "ACTIVE", "n0b", "n1c", "n2a", "n3c", "n4a", "n5b", "n6c")
	return w
}
