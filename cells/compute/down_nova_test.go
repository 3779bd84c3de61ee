// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// novaCloud is what Nova's functional tests of 2.69 have (ServerTestV269): cell0 to cell3 with two
// servers of a project each, one server of another project in cell1 and in cell3, and cell1 and
// cell2 down.
func novaCloud(t *testing.T, options Options) *cloud {
	t.Helper()
	c := newCloud(t, options)
	c.cells[cellUUID(3)] = &fakeCell{}
	testproc.Try(c.store.CreateCell(t.Context(), apidb.Cell{UUID: cellUUID(3), Name: "cell3", URL: "http://cell3"})).
		Or(t)
	n := 0
	add := func(cell int, name, project string) {
		n++
		s := server(n, name)
		if s.ProjectID = project; cell == 0 {
			s.VMState, s.Host, s.Node = cellwire.VMError, "", ""
		}
		c.has(cell, s)
	}
	for i := range 2 {
		for cell := range 4 {
			add(cell, fmt.Sprintf("s%d%d", cell, i), "p1")
		}
	}
	add(1, "faker1", "p2")
	add(3, "faker3", "p2")
	c.cell(1).fail, c.cell(2).fail = refused, refused
	return c
}

// TestServersOfDownCellsAsInNova asserts what these tests assert.
func TestServersOfDownCellsAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	up := []string{"s31", "s01", "s30", "s00"} // newest first
	all := append([]string{"UNKNOWN:7", "UNKNOWN:6", "UNKNOWN:3", "UNKNOWN:2"}, up...)
	c := novaCloud(t, Options{ListSkipsDownCells: true})
	for _, tt := range []struct {
		who, path string
		want      []string
	}{
		{member, "", all}, // get_servers_with_down_cells
		{member, "/detail", all},
		{member, "/detail?limit=5", up},
		{member, "/detail?sort_key=created_at&sort_dir=asc&marker=" + uuid(4), []string{"s01", "s31"}},
		{member, "/detail?deleted=True", all},
		{administrator, "/detail?name=s31", []string{"s31"}},
		{administrator, "/detail?name=s11", []string{}},
		{administrator, "/detail?all_tenants=True", append(
			[]string{"UNKNOWN:9", "UNKNOWN:7", "UNKNOWN:6", "UNKNOWN:3", "UNKNOWN:2", "faker3"}, up...)},
	} {
		got := c.ask(tt.who, "2.69", "/v2.1/servers"+tt.path)
		testproc.Samef(t, gocmp.Diff(tt.want, got.names()), "%s", tt.path)
		tenants := map[any]bool{}
		for _, s := range got.body["servers"].([]any) {
			record, detail := s.(map[string]any), strings.HasPrefix(tt.path, "/detail")
			if members := map[bool]int{false: 3, true: 5}[detail]; record["status"] == api.StatusUnknown &&
				len(record) != members {
				t.Errorf("%s: the record has not %d members: %v", tt.path, members, record)
			}
			tenants[record["tenant_id"]] = true
		}
		if strings.Contains(tt.path, "all_tenants") && (!tenants["p1"] || !tenants["p2"]) {
			t.Errorf("the tenants are %v", tenants)
		}
	}
	for path, status := range map[string]int{"/" + uuid(2): 200, "/" + uuid(4): 200, "/detail?marker=" + uuid(3): 500} {
		if got := c.ask(member, "2.69", "/v2.1/servers"+path); got.status != status {
			t.Errorf("%s: %d %s", path, got.status, got.text)
		}
	}
	if got := c.ask(member, "2.68", "/v2.1/servers/"+uuid(2)); got.status != 500 {
		t.Errorf("before 2.69: %d %s", got.status, got.text)
	}
	strict := novaCloud(t, Options{}) // the_500_gift
	if got := strict.ask(member, "2.69", "/v2.1/servers/detail?limit=5"); got.status != 500 ||
		!strings.Contains(got.message(), "NovaException") {
		t.Errorf("a list that must not skip: %d %s", got.status, got.text)
	}
}

// TestRestOfMinimalRecords: the service of a host, a server without a specification, and a server
// from 2.71 on.
func TestRestOfMinimalRecords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{ListSkipsDownCells: true})
	c.servicesOf(1, c1h1)
	for n := 1; n <= 2; n++ {
		c.has(1, server(n, fmt.Sprintf("s%d", n)))
	}
	c.sql("DELETE FROM request_specs WHERE instance_uuid = '%s'", uuid(2))
	c.cell(1).fail = refused
	want := []any{map[string]any{"binary": "nova-compute", "host": "c1h1", "status": api.StatusUnknown}}
	testproc.Samef(t, gocmp.Diff(want, c.ask(administrator, "2.69", "/v2.1/os-services").body["services"]),
		"the services")
	if got := c.ask(member, "2.69", "/v2.1/servers").names(); !slices.Equal(got, []string{"UNKNOWN:2", "UNKNOWN:1"}) {
		t.Errorf("the list is %v", got)
	}
	shown := c.ask(member, "2.71", "/v2.1/servers/"+uuid(1)).body["server"].(map[string]any)
	if groups, is := shown["server_groups"].([]any); len(shown) != 11 || !is || len(groups) != 0 {
		t.Errorf("in 2.71 it is %v", shown)
	}
}

// TestUsageWithoutPlacement: what needs the usage that only Placement knows is refused until it is
// back, and nothing else.
func TestUsageWithoutPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	boots, quotas := c.withCalls()
	c.withFlavors()
	gone := fmt.Errorf("%w: connection refused", quota.ErrUsageUnknown)
	boots.err, quotas.err = gone, gone
	for _, tt := range []struct{ method, path, body string }{
		{"GET", "/limits", ""},
		{"GET", "/os-quota-sets/p1/detail", ""},
		{"PUT", "/os-quota-sets/p1", `{"quota_set":{"instances":10}}`},
		{"POST", "/servers", `{"server":{"name":"n1","imageRef":"` + image + `","flavorRef":"1","networks":"none"}}`},
	} {
		got := c.do(administrator, "2.69", tt.method, "/v2.1"+tt.path, tt.body)
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" ||
			!strings.HasPrefix(got.message(), "serviceUnavailable: The Placement service cannot be used now") {
			t.Errorf("%s %s: %d %s", tt.method, tt.path, got.status, got.text)
		}
	}
	if got := c.ask(administrator, "2.69", "/v2.1/servers"); got.status != http.StatusOK {
		t.Errorf("a list: %d %s", got.status, got.text)
	}
}
