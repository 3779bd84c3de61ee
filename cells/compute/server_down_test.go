// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// crowd are servers of three projects: c0-… in cell0 (in error), c1-… in cell1, c2-… in cell2, and
// one that is being built. c1-gone and c1-soft are queued for delete; c1-old is of before the
// column. The later ones are the newer.
func crowd(t *testing.T, options Options) *cloud {
	t.Helper()
	c := newCloud(t, options)
	n := 0
	add := func(cell int, name, project string, change func(*cellwire.Server)) cellwire.Server {
		n++
		s := server(n, name)
		s.ProjectID = project
		if change != nil {
			change(&s)
		}
		return c.has(cell, s)
	}
	add(0, "c0-a", "p1", func(s *cellwire.Server) { s.VMState, s.Host, s.Node = cellwire.VMError, "", "" })       // 1
	add(1, "c1-a", "p1", nil)                                                                                     // 2
	add(2, "c2-a", "p1", func(s *cellwire.Server) { s.Tags = []string{"blue"} })                                  // 3
	add(1, "c1-b", "p1", nil)                                                                                     // 4
	add(2, "c2-b", "p1", func(s *cellwire.Server) { s.VMState, s.Host = cellwire.VMStopped, "h2" })               // 5
	add(1, "c1-x", "p2", nil)                                                                                     // 6
	add(2, "c2-x", "p2", nil)                                                                                     // 7
	gone := add(1, "c1-gone", "p1", func(s *cellwire.Server) { s.Deleted, s.VMState = true, cellwire.VMDeleted }) // 8
	soft := add(1, "c1-soft", "p1", func(s *cellwire.Server) { s.VMState = cellwire.VMSoftDeleted })              // 9
	old := add(1, "c1-old", "p1", func(s *cellwire.Server) { s.ImageRef = "" })                                   // 10
	add(nowhere, "build", "p1", func(s *cellwire.Server) {                                                        // 11
		s.VMState, s.TaskState, s.Host, s.Node, s.ID = cellwire.VMBuilding, cellwire.TaskScheduling, "", "", 0
	})
	testproc.Check(t, c.store.SetQueued(context.Background(), map[string]bool{gone.UUID: true, soft.UUID: true}))
	c.sql("UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid = '%s'", old.UUID)
	return c
}

// sql changes the database as no call of the store does: to what an older program left.
func (c *cloud) sql(statement string, args ...any) {
	c.t.Helper()
	dbservers.Execute(c.t, c.path, fmt.Sprintf(statement, args...))
}

// What p1 has in the crowd when all cells are up, and when cell1 is down.
var (
	allUp   = []string{"build", "c1-old", "c2-b", "c1-b", "c2-a", "c1-a", "c0-a"}
	skipped = []string{"build", "c2-b", "c2-a", "c0-a"}
	unknown = []string{"UNKNOWN:10", "UNKNOWN:4", "UNKNOWN:2", "build", "c2-b", "c2-a", "c0-a"}
)

// TestListsWhileACellIsDown: which lists have minimal records, which leave the cell out, and which
// are refused.
func TestListsWhileACellIsDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	if got := c.ask(member, "2.69", "/v2.1/servers").names(); !gocmp.Equal(got, allUp) {
		t.Fatalf("with all cells up: %v", got)
	}
	c.cell(1).fail = refused
	everybody := []string{"UNKNOWN:10", "UNKNOWN:6", "UNKNOWN:4", "UNKNOWN:2", "build", "c2-x", "c2-b", "c2-a", "c0-a"}
	none := []string{}
	for _, tt := range []struct {
		who, version, query string
		want                []string
		status              int
		says                string
	}{
		{who: member, version: "2.69", want: unknown},
		{who: member, version: "2.68", want: skipped},
		{who: member, version: "2.1", want: skipped},
		{who: reader, version: "2.69", want: unknown},
		{who: administrator, version: "2.69", want: unknown},
		{who: member3, version: "2.69", want: none},

		{who: administrator, version: "2.69", query: "all_tenants=1", want: everybody},
		{who: administrator, version: "2.69", query: "all_tenants=True", want: everybody},
		{who: administrator, version: "2.69", query: "all_tenants=", want: everybody},
		{who: administrator, version: "2.69", query: "all_tenants=0", want: unknown},
		{who: member, version: "2.69", query: "all_tenants=0", want: unknown},
		{
			who: administrator, version: "2.69", query: "all_tenants=abc", status: 400,
			says: "badRequest: Unrecognized value 'abc', acceptable values are: '0', '1', 'f', 'false', 'n', 'no', " +
				"'off', 'on', 't', 'true', 'y', 'yes'",
		},
		{who: member, version: "2.69", query: "all_tenants=1", status: 403,
			says: "forbidden: Policy doesn't allow os_compute_api:servers:LIST:get_all_tenants to be performed."},

		// The filters that the specification allows, by which all servers can be judged.
		{who: administrator, version: "2.69", query: "all_tenants=1&project_id=p2",
			want: []string{"UNKNOWN:6", "c2-x"}},
		{who: administrator, version: "2.69", query: "all_tenants=1&tenant_id=p2", want: []string{"UNKNOWN:6", "c2-x"}},
		{who: administrator, version: "2.69", query: "all_tenants=1&project_id=p2&deleted=False",
			want: []string{"UNKNOWN:6", "c2-x"}},
		{who: administrator, version: "2.69", query: "all_tenants=1&project_id=p3", want: none},
		{who: administrator, version: "2.69", query: "all_tenants=1&deleted=False", want: everybody},
		{who: administrator, version: "2.69", query: "project_id=p1", want: unknown},
		{who: administrator, version: "2.69", query: "project_id=p2", want: unknown}, // nothing without all_tenants
		{who: administrator, version: "2.69", query: "deleted=False", want: unknown},
		{who: administrator, version: "2.69", query: "deleted=0", want: unknown},
		{who: administrator, version: "2.69", query: "deleted=False&status=ACTIVE", want: []string{"c2-a"}},
		{who: administrator, version: "2.69", query: "deleted=False&limit=1000", want: skipped},
		{who: administrator, version: "2.69", query: "deleted=False&soft_deleted=1",
			want: []string{"build", "c2-b", "c2-a", "c0-a"}},
		{who: administrator, version: "2.68", query: "deleted=False", want: skipped},
		{who: administrator, version: "2.69", query: "deleted=True&project_id=p1", want: none},

		// Others: those that count take the cell out, those that do not are as if they were not
		// there.
		{who: member, version: "2.69", query: "project_id=p2", want: unknown},
		{who: member, version: "2.69", query: "deleted=False", want: unknown},
		{who: administrator, version: "2.69", query: "deleted=True", want: none},
		{who: member, version: "2.69", query: "deleted=True", want: unknown},
		{who: administrator, version: "2.69", query: "host=h2", want: []string{"c2-b"}},
		{who: member, version: "2.69", query: "host=h2", want: unknown},
		{who: member, version: "2.69", query: "name=c", want: []string{"c2-b", "c2-a", "c0-a"}},
		{who: member, version: "2.69", query: "status=ACTIVE", want: []string{"c2-a"}},
		{who: member, version: "2.69", query: "status=SHUTOFF&status=ERROR", want: []string{"c2-b", "c0-a"}},
		{who: member, version: "2.69", query: "tags=blue", want: []string{"c2-a"}},
		{who: member, version: "2.69", query: "not-tags=blue", want: []string{"build", "c2-b", "c0-a"}},
		{who: member, version: "2.69", query: "ip=10.0.0.1", want: none},
		{who: member, version: "2.69", query: "changes-since=2024-05-01T12:04:00Z", want: []string{"build", "c2-b"}},
		{who: member, version: "2.69", query: "status=UNKNOWN", status: 400, says: "badRequest: Invalid status value"},
		{who: member, version: "2.37", query: "status=UNKNOWN", want: none},
		{who: member, version: "2.69", query: "foo=bar", want: unknown},
		{who: member, version: "2.69", query: "locked=True", want: unknown},

		// Pages and orders.
		{who: member, version: "2.69", query: "limit=3", want: []string{"build", "c2-b", "c2-a"}},
		{who: member, version: "2.69", query: "limit=1000", want: skipped},
		{who: member, version: "2.69", query: "limit=0", want: none},
		{who: member, version: "2.69", query: "limit=-1",
			status: 400,
			says:   "badRequest: Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]*$'"},
		{who: member, version: "2.69", query: "sort_key=display_name", want: []string{"build", "c2-b", "c2-a", "c0-a"}},
		{who: member, version: "2.69", query: "sort_dir=asc", want: []string{"build", "c0-a", "c2-a", "c2-b"}},
		{who: member, version: "2.69", query: "sort_key=vcpus", want: skipped},
		{who: member, version: "2.69", query: "sort_key=host", status: 403,
			says: "forbidden: Only administrators can sort servers by host"},
		{who: administrator, version: "2.69", query: "sort_key=host&sort_dir=asc",
			want: []string{"build", "c0-a", "c2-a", "c2-b"}},
		{who: member, version: "2.69", query: "marker=" +
			uuid(4), status: 500,
			says: "computeFault: DBError: The cell of the marker is not responding. List from the beginning, or try " +
				"again when it is back."},
		{who: member, version: "2.69", query: "marker=" + uuid(5), want: []string{"c2-a", "c0-a"}},
		{who: member, version: "2.69", query: "marker=" + uuid(1), want: none},
		{who: member, version: "2.69", query: "marker=" + uuid(1) + "&sort_dir=asc", want: []string{"c2-a", "c2-b"}},
		{who: member, version: "2.69", query: "marker=" + uuid(11), want: []string{"c2-b", "c2-a", "c0-a"}},
		{who: member, version: "2.69", query: "marker=" +
			uuid(99), status: 400, says: "badRequest: marker [" + uuid(99) + "] not found"},
		{who: member, version: "2.69", query: "marker=" +
			uuid(7), status: 400, says: "badRequest: marker [" + uuid(7) + "] not found"},
		{who: member, version: "2.69", query: "marker=abc", status: 400, says: "badRequest: marker [abc] not found"},
	} {
		for _, path := range []string{"/v2.1/servers", "/v2.1/servers/detail"} {
			t.Run(fmt.Sprintf("%s %s %s?%s", tt.who, tt.version, path, tt.query), func(t *testing.T) {
				kind := "index"
				if strings.HasSuffix(path, "detail") {
					kind = "detail"
				}
				got := c.ask(tt.who, tt.version, path+"?"+tt.query)
				if tt.status != 0 {
					if says := strings.Replace(tt.says, "LIST", kind, 1); got.status != tt.status ||
						got.message() != says {
						t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, says)
					}
					return
				}
				if diff := gocmp.Diff(tt.want, got.names()); got.status != 200 || diff != "" {
					t.Errorf("%d %s\n(-want +got):\n%s", got.status, got.message(), diff)
				}
			})
		}
	}
}

// TestMinimalRecords: their keys and values in the three calls.
func TestMinimalRecords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	c.cell(1).fail = refused
	id := uuid(4)
	links := []any{
		map[string]any{"rel": "self", "href": "http://compute/v2.1/servers/" + id},
		map[string]any{"rel": "bookmark", "href": "http://compute/servers/" + id},
	}
	brief := map[string]any{"id": id, "status": "UNKNOWN", "links": links}
	detail := map[string]any{"id": id, "status": "UNKNOWN",
		"tenant_id": "p1", "created": "2024-05-01T12:03:00Z", "links": links}
	whole := map[string]any{
		"id": id, "status": "UNKNOWN", "tenant_id": "p1", "created": "2024-05-01T12:03:00Z", "links": links,
		"image": map[string]any{"id": "70a599e0-31e7-49b7-b260-868f441e862b", "links": []any{
			map[string]any{"rel": "bookmark", "href": "http://compute/images/70a599e0-31e7-49b7-b260-868f441e862b"},
		}},
		"flavor": map[string]any{"vcpus": 1.0, "ram": 512.0, "disk": 1.0, "ephemeral": 0.0,
			"swap": 0.0, "original_name": "m1.tiny", "extra_specs": map[string]any{}},
		"OS-EXT-AZ:availability_zone": "UNKNOWN", "OS-EXT-STS:power_state": 0.0, "user_id": "u-p1",
	}
	for path, want := range map[string]any{"/v2.1/servers": brief, "/v2.1/servers/detail": detail} {
		got := c.ask(member, "2.69", path).body["servers"].([]any)[1]
		testproc.Samef(t, gocmp.Diff(want, got), "%s", path)
	}
	if diff := gocmp.Diff(map[string]any{"server": whole},
		c.ask(member, "2.69", "/v2.1/servers/"+id).body); diff != "" {
		t.Errorf("show (-want +got):\n%s", diff)
	}
	// Booted from no image, with a zone that was asked for, of a user who is not known.
	none := c.ask(member, "2.69", "/v2.1/servers/"+uuid(10)).body["server"].(map[string]any)
	if image, is := none["image"].(map[string]any); !is ||
		image["id"] != "no-image" || none["OS-EXT-AZ:availability_zone"] != "UNKNOWN" {
		t.Errorf("booted from no image: %v", none)
	}
	s := server(20, "zoned")
	s.Zone = "az1"
	c.has(1, s)
	if zoned := c.ask(member, "2.69", "/v2.1/servers/"+uuid(20)).
		body["server"].(map[string]any); zoned["OS-EXT-AZ:availability_zone"] != "az1" {
		t.Errorf("with a zone: %v", zoned)
	}
	c.api.store = specless{Store: c.api.store}
	c.api.setDeps()
	if view := c.ask(member, "2.69", "/v2.1/servers/"+id).
		body["server"].(map[string]any); view["user_id"] != "UNKNOWN" {
		t.Errorf("without a user: %v", view)
	}
}

// specless has request specifications of old: without a user.
type specless struct{ apidb.Store }

func (s specless) RequestSpec(ctx context.Context, uuid string) (apidb.RequestSpec, error) {
	spec, err := s.Store.RequestSpec(ctx, uuid)
	spec.UserID = ""
	return spec, err
}

// TestShowWhileACellIsDown: 200, 404 and 500, before 2.69 and from then on.
func TestShowWhileACellIsDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := crowd(t, Options{ListSkipsDownCells: true})
	c.sql("DELETE FROM request_specs WHERE instance_uuid = '%s'", uuid(2))
	const down = "computeFault: NovaException: The server's cell is not responding. Try again when it is back."
	missing := func(n int) string { return "itemNotFound: Instance " + uuid(n) + " could not be found." }
	for _, tt := range []struct {
		name     string
		who      string
		n        int
		up       int
		down     int
		downSays string
		old      int // down, before 2.69
		oldSays  string
	}{
		{"living", member, 4, 200, 200, "", 500, down},
		{"not migrated", member, 10, 200, 200, "", 500, down},
		{"deleted", member, 8, 404, 404, missing(8), 500, down},
		{"softly deleted", member, 9, 200, 404, missing(9), 500, down},
		{"without a specification", member, 2, 200, 404, missing(2), 500, down},
		{"of another project", member, 6, 404, 404, missing(6), 404, missing(6)},
		{"of another project, for an administrator", administrator, 6, 200, 200, "", 500, down},
		{"of another cell", member, 5, 200, 200, "", 200, ""},
		{"of cell0", member, 1, 200, 200, "", 200, ""},
		{"being built", member, 11, 200, 200, "", 200, ""},
		{"none", member, 99, 404, 404, missing(99), 404, missing(99)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ask := func(fail func(*http.Request, int) (*http.Response, error), version string) reply {
				c.cell(1).fail = fail
				return c.ask(tt.who, version, "/v2.1/servers/"+uuid(tt.n))
			}
			if got := ask(nil, "2.69"); got.status != tt.up {
				t.Errorf("up: %d %s", got.status, got.text)
			}
			for name, fail := range waysToBeDown {
				if got := ask(fail, "2.69"); got.status != tt.down || got.message() != tt.downSays {
					t.Errorf("%s: %d %s", name, got.status, got.text)
				}
				if got := ask(fail, "2.68"); got.status != tt.old || got.message() != tt.oldSays {
					t.Errorf("%s, 2.68: %d %s", name, got.status, got.text)
				}
			}
		})
	}
	c.cell(1).fail, c.cell(1).servers = nil, nil
	if got := c.ask(member, "2.69", "/v2.1/servers/"+uuid(4)); got.status != 404 || got.message() != missing(4) {
		t.Errorf("a cell that does not know it: %d %s", got.status, got.text)
	}
	if got := c.ask(member, "2.69", "/v2.1/servers/not-a-uuid"); got.status != 404 ||
		got.message() != "itemNotFound: Instance not-a-uuid could not be found." {
		t.Errorf("GET of an invalid id: got %d %s, want 404", got.status, got.text)
	}
}

// TestEveryFailureOfACellIsDown: lists are the same whether a cell refuses, fails, or answers what
// is no answer.
func TestEveryFailureOfACellIsDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, fail := range waysToBeDown {
		c := crowd(t, Options{ListSkipsDownCells: true})
		c.cell(1).fail = fail
		for _, path := range []string{"/v2.1/servers", "/v2.1/servers/detail"} {
			testproc.Samef(t, gocmp.Diff(unknown, c.ask(member, "2.69", path).names()), "%s, %s", name, path)
		}
		c.cell(1).fail = nil
		if got := c.ask(member, "2.69", "/v2.1/servers").names(); !gocmp.Equal(got, allUp) {
			t.Errorf("%s: when it is back: %v", name, got)
		}
	}
}

// TestOtherCellsDown: cell0, several, and all of them.
func TestOtherCellsDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct {
		down []int
		want []string
	}{
		{[]int{0}, []string{"UNKNOWN:1", "build", "c1-old", "c2-b", "c1-b", "c2-a", "c1-a"}},
		{[]int{1, 2}, []string{"UNKNOWN:10", "UNKNOWN:5", "UNKNOWN:4", "UNKNOWN:3", "UNKNOWN:2", "build", "c0-a"}},
		{[]int{0, 1, 2}, []string{"UNKNOWN:10", "UNKNOWN:5", "UNKNOWN:4", "UNKNOWN:3",
			"UNKNOWN:2", "UNKNOWN:1", "build"}},
	} {
		c := crowd(t, Options{ListSkipsDownCells: true})
		for _, n := range tt.down {
			c.cell(n).fail = refused
		}
		testproc.Samef(t, gocmp.Diff(tt.want, c.ask(member, "2.69", "/v2.1/servers/detail").names()), "%v", tt.down)
		for _, n := range tt.down {
			if n == 0 {
				if got := c.ask(member, "2.69", "/v2.1/servers/"+uuid(1)); got.status != 200 ||
					len(got.body["server"].(map[string]any)) != 10 {
					t.Errorf("the server in cell0: %d %s", got.status, got.text)
				}
			}
		}
	}
}

// TestListsThatMustNotSkip: with list_records_by_skipping_down_cells off, what cannot have minimal
// records is refused.
func TestListsThatMustNotSkip(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tt := range []struct {
		who, version, query string
		perProject          bool
		status              int
	}{
		{who: member, version: "2.68", status: 500},
		{who: member2, version: "2.68", status: 500},
		{who: member3, version: "2.68", status: 500},
		{who: member3, version: "2.68", perProject: true, status: 200},       // nothing in that cell
		{who: member2, version: "2.68", perProject: true, status: 500},       // c1-x is in it
		{who: administrator, version: "2.68", perProject: true, status: 500}, // administrators see all cells
		{who: admin3, version: "2.68", perProject: true, status: 500},
		{who: member, version: "2.69", status: 200},
		{who: member, version: "2.69", query: "?name=c", status: 500},
		{who: member, version: "2.69", query: "?limit=5", status: 500},
		{who: member, version: "2.69", query: "?sort_key=vcpus", status: 500},
		{who: member, version: "2.69", query: "?host=h", status: 200}, // does not count for a member
	} {
		c := crowd(t, Options{ListSkipsDownCells: false, PerProjectCells: tt.perProject})
		c.cell(1).fail = refused
		for _, path := range []string{"/v2.1/servers", "/v2.1/servers/detail"} {
			got := c.ask(tt.who, tt.version, path+tt.query)
			if got.status != tt.status || tt.status == 500 && !strings.Contains(got.message(), "NovaException") {
				t.Errorf("%s %s %s%s: %d %s", tt.who, tt.version, path, tt.query, got.status, got.message())
			}
		}
	}
}
