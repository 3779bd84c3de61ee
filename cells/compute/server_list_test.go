// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// next is the path of the next page, "" without one.
func (r reply) next() string {
	links, _ := r.body["servers_links"].([]any)
	if len(links) == 0 {
		return ""
	}
	return strings.TrimPrefix(links[0].(map[string]any)["href"].(string), "http://compute")
}

// follow walks through a list by its next links and returns all names.
func (c *cloud) follow(who, version, path string) []string {
	c.t.Helper()
	all := []string{}
	for pages := 0; path != ""; pages++ {
		if pages > 100 {
			c.t.Fatal("the list does not end")
		}
		got := c.ask(who, version, path)
		if got.status != 200 {
			c.t.Fatalf("%s: %d %s", path, got.status, got.text)
		}
		all = append(all, got.names()...)
		path = got.next()
	}
	return all
}

// TestPages: whatever the size of a page, what is on the pages one after another is the whole list,
// each server once; with a cell down it is the list without that cell.
func TestPages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	for _, down := range []bool{false, true} {
		want := allUp
		if c.cell(1).fail = nil; down {
			want, c.cell(1).fail = skipped, refused
		}
		for limit := 1; limit <= len(allUp)+1; limit++ {
			for _, path := range []string{"/v2.1/servers", "/v2.1/servers/detail"} {
				if diff := gocmp.Diff(want,
					c.follow(member, "2.69", fmt.Sprintf("%s?limit=%d", path, limit))); diff != "" {
					t.Errorf("%s by %d, down: %v (-want +got):\n%s", path, limit, down, diff)
				}
			}
		}
	}
}

// TestNextLink: when there is one, and what it says.
func TestNextLink(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	build, c1old := uuid(11), uuid(10)
	for path, want := range map[string]string{
		"/v2.1/servers":                 "",
		"/v2.1/servers?limit=100":       "",
		"/v2.1/servers?limit=8":         "",                                        // there are seven
		"/v2.1/servers?limit=7":         "/v2.1/servers?limit=7&marker=" + uuid(1), // full, although nothing follows
		"/v2.1/servers?limit=0":         "",
		"/v2.1/servers?limit=2":         "/v2.1/servers?limit=2&marker=" + c1old,
		"/v2.1/servers?limit=5&limit=1": "/v2.1/servers?limit=1&marker=" + build, // the last counts
		"/v2.1/servers/detail?limit=1":  "/v2.1/servers/detail?limit=1&marker=" + build,
		// Sorted, the marker in its place if there was one; without what does not count.
		"/v2.1/servers?name=b%2B%7Cc&limit=1&foo=bar": "/v2.1/servers?limit=1&name=b%2B%7Cc&marker=" +
			build,
		"/v2.1/servers?sort_dir=desc&marker=" + build +
			"&limit=1": "/v2.1/servers?limit=1&marker=" + c1old + "&sort_dir=desc",
	} {
		if got := c.ask(member, "2.69", path); got.status != 200 || got.next() != want {
			t.Errorf("%s: %d, the next is %q, not %q", path, got.status, got.next(), want)
		}
	}
}

// TestNoNextLinkAfterUnknown: a list that is full ends with a record that can be a marker, or has
// no link. Minimal records take what room there is up to max_limit.
func TestNoNextLinkAfterUnknown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct {
		most     int
		down     []int
		building bool
		want     []string
		next     bool
	}{
		{most: 2, down: []int{0, 1, 2}, want: []string{"UNKNOWN:10", "UNKNOWN:5"}},
		{most: 2, down: []int{0, 1, 2}, building: true, want: []string{"UNKNOWN:10", "build"}, next: true},
		{most: 4, down: []int{1}, want: []string{"UNKNOWN:10", "c2-b", "c2-a", "c0-a"}, next: true},
		{most: 3, down: []int{1}, want: []string{"c2-b", "c2-a", "c0-a"}, next: true},
		{most: 100, down: []int{0, 1, 2},
			want: []string{"UNKNOWN:10", "UNKNOWN:5", "UNKNOWN:4", "UNKNOWN:3", "UNKNOWN:2", "UNKNOWN:1"}},
	} {
		c := crowd(t, Options{ListSkipsDownCells: true, MaxLimit: tt.most})
		if !tt.building {
			testproc.Check(t, c.store.AbandonBuild(context.Background(), uuid(11)))
		}
		for _, n := range tt.down {
			c.cell(n).fail = refused
		}
		got := c.ask(member, "2.69", "/v2.1/servers")
		if diff := gocmp.Diff(tt.want, got.names()); diff != "" || (got.next() != "") != tt.next {
			t.Errorf("at most %d, down %v: the next is %q (-want +got):\n%s", tt.most, tt.down, got.next(), diff)
		}
		if tt.next {
			if follows := c.follow(member, "2.69", got.next()); slices.ContainsFunc(follows,
				func(s string) bool { return strings.HasPrefix(s, "UNKNOWN") }) {
				t.Errorf("at most %d: on the next pages are %v", tt.most, follows)
			}
		}
	}
}

// TestPlacedAndNotReleased: a server that has a cell and a build request is shown once, as being
// built, whether its cell shows it, hides it, or is down, and the page is not shorter for it.
func TestPlacedAndNotReleased(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	testproc.Check(t, c.store.Place(context.Background(), uuid(11), cellUUID(1)))
	released := server(11, "build")
	released.ProjectID, released.VMState, released.TaskState, released.CreatedAt = "p1", cellwire.VMBuilding,
		cellwire.TaskSpawning, c.clock
	hidden := released
	hidden.Hidden = true
	states := map[string]func(){
		"not there": func() {},
		"hidden":    func() { c.cell(1).servers = append(c.cell(1).servers, hidden) },
		"released":  func() { c.cell(1).servers[len(c.cell(1).servers)-1] = released },
	}
	for _, state := range []string{"not there", "hidden", "released"} {
		states[state]()
		testproc.Samef(t, gocmp.Diff(allUp, c.ask(member, "2.69", "/v2.1/servers/detail").names()), "%s", state)
		if got := c.ask(member, "2.69", "/v2.1/servers?limit=3"); len(got.names()) != 3 || got.next() == "" {
			t.Errorf("%s: a page of 3 has %v and goes on with %q", state, got.names(), got.next())
		}
		shown := c.ask(member, "2.69", "/v2.1/servers/"+uuid(11)).body["server"].(map[string]any)
		if shown["OS-EXT-STS:task_state"] != "scheduling" || shown["status"] != "BUILD" {
			t.Errorf("%s: %v", state, shown)
		}
	}
	c.cell(1).fail = refused
	testproc.Samef(t, gocmp.Diff(unknown, c.ask(member, "2.69", "/v2.1/servers").names()), "down")
	if shown := c.ask(member, "2.69", "/v2.1/servers/"+uuid(11)); shown.status != 200 ||
		shown.body["server"].(map[string]any)["status"] != "BUILD" {
		t.Errorf("down: %d %s", shown.status, shown.text)
	}
}

// TestMarkerThatIsDeleted: a list goes on after a server that was deleted meanwhile.
func TestMarkerThatIsDeleted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{})
	for n, name := range map[int]string{8: "deleted", 9: "softly deleted"} {
		got := c.ask(member, "2.69", "/v2.1/servers?marker="+uuid(n))
		if diff := gocmp.Diff(allUp[2:], got.names()); got.status != 200 || diff != "" {
			t.Errorf("%s: %d %s (-want +got):\n%s", name, got.status, got.message(), diff)
		}
	}
}

// TestListWithoutAProject: an administrator without a project has no servers, and not everybody's,
// unless these are asked for.
func TestListWithoutAProject(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{})
	c.api.service.Authenticator = osapi.Fixed{Principal: osapi.Principal{User: "root", Roles: []string{"admin"}}}
	for path, want := range map[string]int{"/v2.1/servers": 0, "/v2.1/servers?all_tenants=1": 9} {
		if got := c.ask(administrator, "2.69", path); got.status != 200 || len(got.names()) != want {
			t.Errorf("%s: %d %v", path, got.status, got.names())
		}
	}
}

// TestServerInTwoCells: it is listed once, as what a cell says of it, and never also as unknown.
func TestServerInTwoCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	copied := c.cell(1).servers[1] // c1-b
	c.cell(2).servers = append(c.cell(2).servers, copied)
	testproc.Same(t, gocmp.Diff(allUp, c.ask(member, "2.69", "/v2.1/servers").names()))
	c.cell(1).fail = refused
	want := []string{"UNKNOWN:10", "UNKNOWN:2", "build", "c2-b", "c1-b", "c2-a", "c0-a"}
	testproc.Samef(t, gocmp.Diff(want, c.ask(member, "2.69", "/v2.1/servers").names()), "with its own cell down")
}

// TestCellDiesBetweenBatches: the rows that it gave before do not count; its servers are unknown,
// each once.
func TestCellDiesBetweenBatches(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{ListSkipsDownCells: true, MaxLimit: 300})
	var want []string
	for n := range 250 {
		c.has(1, server(n+1, fmt.Sprintf("s%d", n+1)))
		want = append([]string{fmt.Sprintf("UNKNOWN:%d", n+1)}, want...)
	}
	c.cell(1).fail = func(_ *http.Request, n int) (*http.Response, error) {
		if n > 1 {
			return refused(nil, n)
		}
		return nil, nil
	}
	c.has(2, server(1000, "c2"))
	testproc.Same(t, gocmp.Diff(append(want, "c2"), c.ask(member, "2.69", "/v2.1/servers").names()))
	if asked := c.cell(1).requests; asked < 2 {
		t.Errorf("the cell was asked %d times", asked)
	}
}

// TestDisabledCell: nothing is placed there, but what is there is listed and shown.
func TestDisabledCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{})
	testproc.Check(t, c.store.UpdateCell(context.Background(),
		apidb.Cell{UUID: cellUUID(1), Name: "cell1", URL: "http://cell1", Disabled: true}))
	testproc.Same(t, gocmp.Diff(allUp, c.ask(member, "2.69", "/v2.1/servers").names()))
	if got := c.ask(member, "2.69", "/v2.1/servers/"+uuid(4)); got.status != 200 ||
		got.body["server"].(map[string]any)["name"] != "c1-b" {
		t.Errorf("a server of a disabled cell: got %d %s, want c1-b", got.status, got.text)
	}
}

// TestRequestsToCells: a list asks each cell once, a show one cell once, and no cell when nothing
// can be found.
func TestRequestsToCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct {
		who, path string
		want      []int
	}{
		{member, "/v2.1/servers", []int{1, 1, 1}},
		{member, "/v2.1/servers/detail", []int{1, 1, 1}},
		{administrator, "/v2.1/servers/detail?all_tenants=1", []int{1, 1, 1}},
		{member, "/v2.1/servers?limit=0", []int{0, 0, 0}},
		{member, "/v2.1/servers?limit=1", []int{0, 0, 0}}, // the one that is being built
		{member, "/v2.1/servers?ip=10.0.0.1", []int{0, 0, 0}},
		{member, "/v2.1/servers?marker=" + uuid(3), []int{1, 1, 2}},
		{member, "/v2.1/servers/" + uuid(3), []int{0, 0, 1}},
		{member, "/v2.1/servers/" + uuid(7), []int{0, 0, 0}}, // another project's
		{member, "/v2.1/servers/" + uuid(11), []int{0, 0, 0}},
		{member2, "/v2.1/servers", []int{1, 1, 1}},
	} {
		c := crowd(t, Options{})
		c.ask(tt.who, "2.69", tt.path)
		if got := []int{c.cell(0).requests, c.cell(1).requests, c.cell(2).requests}; !gocmp.Equal(got, tt.want) {
			t.Errorf("%s: the cells got %v requests, not %v", tt.path, got, tt.want)
		}
	}
	c := crowd(t, Options{PerProjectCells: true})
	c.ask(member3, "2.69", "/v2.1/servers")
	if c.cell(0).requests+c.cell(1).requests+c.cell(2).requests != 0 {
		t.Error("cells were asked for a project that has nothing anywhere")
	}
}

// TestSortedLists: the orders that lists can have, with the servers that are being built always
// first.
func TestSortedLists(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{})
	for query, want := range map[string][]string{
		"sort_key=display_name&sort_dir=asc": {"build", "c0-a", "c1-a",
			"c1-b", "c1-old", "c2-a", "c2-b"},
		"sort_key=display_name": {"build", "c2-b", "c2-a", "c1-old", "c1-b", "c1-a", "c0-a"},
		"sort_key=vm_state&sort_key=display_name&sort_dir=desc&sort_dir=asc": {"build", "c2-b", "c0-a",
			"c1-a", "c1-b", "c1-old", "c2-a"},
		"sort_key=vm_state&sort_key=display_name&sort_dir=asc": {"build", "c1-a", "c1-b",
			"c1-old", "c2-a", "c0-a", "c2-b"},
		"sort_key=kernel_id":          {"build", "c0-a", "c1-a", "c2-a", "c1-b", "c2-b", "c1-old"}, // all equal: by id
		"sort_key=vcpus&sort_dir=asc": allUp,
		"sort_key=vcpus&sort_key=display_name&sort_dir=desc&sort_dir=asc": {"build", "c0-a", "c1-a",
			"c1-b", "c1-old", "c2-a", "c2-b"},
		"sort_key=display_name&sort_key=display_name&sort_dir=asc": {"build", "c0-a", "c1-a",
			"c1-b", "c1-old", "c2-a", "c2-b"},
	} {
		testproc.Samef(t, gocmp.Diff(want, c.ask(member, "2.69", "/v2.1/servers?"+query).names()), "%s", query)
	}
	for query, says := range map[string]string{
		"sort_dir=up":                "Invalid input received: Unknown sort direction, must be 'desc' or 'asc'",
		"sort_dir=asc&sort_dir=desc": "Invalid input received: Sort direction size exceeds sort key size",
	} {
		if got := c.ask(member, "2.69", "/v2.1/servers?"+query); got.status != 400 ||
			got.message() != "badRequest: "+says {
			t.Errorf("%s: %d %s", query, got.status, got.text)
		}
	}
	got := c.ask(member, "2.69", "/v2.1/servers?sort_key=foo")
	if got.status != 400 ||
		!strings.HasPrefix(got.message(),
			"badRequest: Invalid input for query parameters sort_key. Value: foo. 'foo' is not one of "+
				"['access_ip_v4', ") ||
		!strings.HasSuffix(got.message(),
			"'vm_state', 'architecture', 'cell_name', 'cleaned', 'default_ephemeral_device', "+
				"'default_swap_device', 'deleted', 'deleted_at', 'disable_terminate', 'ephemeral_gb', "+
				"'ephemeral_key_uuid', 'id', 'key_data', 'launched_on', 'locked', 'memory_mb', 'os_type', "+
				"'reservation_id', 'root_gb', 'shutdown_terminate', 'user_data', 'vcpus', 'vm_mode']") {
		t.Errorf("an invalid sort_key: got %d %s, want the valid ones in the error", got.status, got.message())
	}
}

// TestAnyQuery: whatever is asked for, there is an answer, and it is no 500.
func TestAnyQuery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	var names []string
	for _, p := range c.api.lists.Routes()[0].Query.All {
		name := p.Name
		names = append(names, name)
	}
	names = append(names, "foo", "_x", "locked")
	slices.Sort(names)
	values := rapid.OneOf(
		rapid.SampledFrom([]string{"", "1", "0", "-1", "True", "abc", "a,b", "(", "[", "2024-05-01",
			"2024-05-01T12:00:00Z", "99999999999999999999", "asc", "desc",
			"active", "ACTIVE", "ERROR", "deleted", "created_at", "host", uuid(4), uuid(11), "ä",
			"\x00", "\xff"}), rapid.String())
	rapid.Check(t, func(rt *rapid.T) {
		params := url.Values{}
		for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(rt, "names") {
			params.Add(name, values.Draw(rt, name))
		}
		c.cell(1).fail = nil
		if rapid.Bool().Draw(rt, "down") {
			c.cell(1).fail = refused
		}
		for key := range params["sort_key"] { // the cells of the tests sort by few columns
			if !slices.Contains([]string{"created_at", "display_name", "host", "vm_state"}, params["sort_key"][key]) {
				params["sort_key"][key] = "display_name"
			}
		}
		version := rapid.SampledFrom([]string{"2.1", "2.26", "2.38", "2.66", "2.69"}).Draw(rt, "version")
		who := rapid.SampledFrom([]string{administrator, member, reader}).Draw(rt, "who")
		got := c.ask(who, version, "/v2.1/servers/detail?"+params.Encode())
		marker := params.Get("marker")
		if got.status >= 500 && (c.cell(1).fail == nil || !strings.Contains(got.text, "DBError") || marker == "") {
			rt.Fatalf("%s: %d %s", params.Encode(), got.status, got.text)
		}
	})
}

// TestPatterns: administrators search the columns that Nova searches, among servers of cells and
// those that are being built.
func TestPatterns(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	for i, hostname := range []string{"web-1", "db-1", "web-2"} {
		s := server(i+1, "vm-"+hostname)
		s.Hostname, s.Node, s.Reservation = hostname, "rack"+hostname, "r-"+hostname
		cell := []int{1, 2, nowhere}[i]
		if cell == nowhere {
			s.Host, s.Node = "", ""
		}
		c.has(cell, s)
	}
	for query, want := range map[string][]string{
		"hostname=^WEB": {"vm-web-2", "vm-web-1"}, "reservation_id=web": {"vm-web-2", "vm-web-1"},
		"node=.*":                {"vm-db-1", "vm-web-1"},
		"hostname=1&node=rackdb": {"vm-db-1"}, "description=.*": {},
	} {
		testproc.EqualList(t, c.ask(administrator, "2.69", "/v2.1/servers?"+query).names(), want, "%s: %v", query)
	}
}
