// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The services of the recordings.
var (
	c1h1 = cellwire.Service{UUID: "ce4a4790-3afe-4f0e-a468-a34d988cdd6e", ID: 7, Host: "c1h1", Binary: "nova-compute",
		Disabled: true, DisabledReason: "maint", UpdatedAt: &start}
	c1h2 = cellwire.Service{UUID: "54394ca7-1328-49b1-93bc-4eb2281fed79", ID: 8, Host: "c1h2",
		Binary: "nova-compute", Up: true, UpdatedAt: &start}
	c2h1 = cellwire.Service{UUID: "1a4f2e20-c790-4466-88dd-67123a78a011", ID: 7, Host: "c2h1",
		Binary: "nova-compute", Up: true, UpdatedAt: &start}
	c2h2 = cellwire.Service{UUID: "8ffce557-831e-4aed-979f-75375d1658f4", ID: 8, Host: "c2h2",
		Binary: "nova-compute", Up: true, UpdatedAt: &start}
)

// computeServices takes what only Nova has out of an answer, schedulers and conductors, the order,
// and the moments.
func computeServices(_ string, body any) any {
	answer, _ := body.(map[string]any)
	var services []any
	if list, has := answer["services"].([]any); has {
		services = slices.DeleteFunc(list, func(s any) bool { return s.(map[string]any)["binary"] != "nova-compute" })
		slices.SortFunc(services, func(a, b any) int {
			return strings.Compare(fmt.Sprint(a.(map[string]any)["host"]), fmt.Sprint(b.(map[string]any)["host"]))
		})
		answer["services"] = services
	}
	if one, has := answer["service"]; has {
		services = append(services, one)
	}
	for _, s := range services {
		if s := s.(map[string]any); s["updated_at"] != nil {
			_, err := time.Parse("2006-01-02T15:04:05.000000", s["updated_at"].(string))
			s["updated_at"] = err
		}
	}
	return body
}

// TestServicesAsInNova lists and changes services as the recordings do.
func TestServicesAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.servicesOf(1, c1h1, c1h2).refusal = cellwire.CodeInUse
	c.servicesOf(2, c2h1, c2h2)
	c.replay(recordedCalls(t, "nova_services.json"), map[string]ours{
		"put-scheduler": {
			why: "there are no records of schedulers", status: 404,
			says: "itemNotFound: Service d2766790-7d92-4dc1-990c-95ab7323d4d6 could not be found.",
		},
		"show": {
			why: "a method that a path does not have is refused as such", status: 405,
			says: "badMethod: The method GET is not allowed for this resource.",
		},
	}, computeServices)
}

// hosts are the hosts of a list of services, those that are minimal records with their number of
// members.
func (r reply) hosts() []string {
	hosts := []string{}
	for _, s := range r.body["services"].([]any) {
		record := s.(map[string]any)
		host := record["host"].(string)
		if record["status"] == "UNKNOWN" {
			host += fmt.Sprintf(":%d", len(record))
		}
		hosts = append(hosts, host)
	}
	return hosts
}

// TestServicesOfCellsThatAreDown: from 2.69 on the hosts of a cell that is down are there with
// three members; before, they are left out, and never is it an error, whatever else is configured.
func TestServicesOfCellsThatAreDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type cells = map[int]func(*cloud)
	down := func(n int) func(*cloud) { return func(c *cloud) { c.cell(n).fail = refused } }
	for _, tt := range []struct {
		name, version, query string
		cells                cells
		hosts                []string
	}{
		{name: "all up", version: "2.69", hosts: []string{"c1h1", "c1h2", "c2h1", "c2h2"}},
		{name: "one down", version: "2.69", cells: cells{1: down(1)},
			hosts: []string{"c2h1", "c2h2", "c1h1:3", "c1h2:3"}},
		{name: "one answers rubbish", version: "2.69", cells: cells{1: func(c *cloud) { c.cell(1).fail = rubbish }},
			hosts: []string{"c2h1", "c2h2", "c1h1:3", "c1h2:3"}},
		{name: "one has an error", version: "2.69", cells: cells{2: func(c *cloud) { c.cell(2).fail = brokenCell }},
			hosts: []string{"c1h1", "c1h2", "c2h1:3", "c2h2:3"}},
		{name: "before", version: "2.68", cells: cells{1: down(1)}, hosts: []string{"c2h1", "c2h2"}},
		{name: "the first", version: "2.1", cells: cells{1: down(1)}, hosts: []string{"c2h1", "c2h2"}},
		{name: "both down", version: "2.69", cells: cells{1: down(1), 2: down(2)},
			hosts: []string{"c1h1:3", "c1h2:3", "c2h1:3", "c2h2:3"}},
		{name: "both down, before", version: "2.53", cells: cells{1: down(1), 2: down(2)}, hosts: []string{}},
		{name: "cell0 down", version: "2.69", cells: cells{0: down(0)},
			hosts: []string{"c1h1", "c1h2", "c2h1", "c2h2"}},
		{name: "a host of it", version: "2.69", query: "?host=c1h1",
			cells: cells{1: down(1)}, hosts: []string{"c1h1:3"}},
		{name: "a host of another", version: "2.69",
			query: "?host=c2h1", cells: cells{1: down(1)}, hosts: []string{"c2h1"}},
		{name: "a host of none", version: "2.69", query: "?host=zzz", cells: cells{1: down(1)}, hosts: []string{}},
		{name: "computes", version: "2.69", query: "?binary=nova-compute", cells: cells{1: down(1)},
			hosts: []string{"c2h1", "c2h2", "c1h1:3", "c1h2:3"}},
		{name: "conductors", version: "2.69", query: "?binary=nova-conductor",
			cells: cells{1: down(1)}, hosts: []string{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			c.servicesOf(1, c1h2, c1h1)
			c.servicesOf(2, c2h1, c2h2)
			for _, fail := range tt.cells {
				fail(c)
			}
			got := c.ask(administrator, tt.version, "/v2.1/os-services"+tt.query)
			if got.status != 200 {
				t.Fatalf("GET /os-services: got %d %s, want 200", got.status, got.text)
			}
			testproc.Same(t, gocmp.Diff(tt.hosts, got.hosts()))
		})
	}
}

// TestServicesComeBack: the next list has them, without anything being done.
func TestServicesComeBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	all := c.servicesOf(1, c1h1)
	c.cell(1).fail = refused
	c.ask(administrator, "2.69", "/v2.1/os-services")
	c.cell(1).fail = all.answer
	testproc.Same(t, gocmp.Diff([]string{"c1h1"}, c.ask(administrator, "2.69", "/v2.1/os-services").hosts()))
}

// TestServiceChangesInAnOutage: what is in a cell that is down cannot be changed, and what is in no
// cell that is up may be there.
func TestServiceChangesInAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const unknown = "computeFault: NovaException: Service 11111111-1111-1111-1111-111111111111 is in no cell that " +
		"is responding, and not all are. Try again when they are back."
	const isDown = "computeFault: NovaException: The service's cell is not responding. Try again when it is back."
	for _, tt := range []struct {
		name, version, method, path, body string
		status                            int
		says                              string
	}{
		{name: "an unknown one", version: "2.69", method: "PUT", path: "11111111-1111-1111-1111-111111111111",
			body: `{"status":"enabled"}`, status: 500, says: unknown},
		{name: "an unknown one, to be deleted", version: "2.69", method: "DELETE",
			path: "11111111-1111-1111-1111-111111111111", status: 500, says: unknown},
		{name: "one of another cell", version: "2.69",
			method: "PUT", path: c2h1.UUID, body: `{"forced_down":true}`, status: 200},
		{name: "the old way", version: "2.11", method: "PUT", path: "disable",
			body: `{"host":"c1h1","binary":"nova-compute"}`, status: 500, says: isDown},
		{name: "the old way, another cell", version: "2.11", method: "PUT", path: "disable",
			body: `{"host":"c2h1","binary":"nova-compute"}`, status: 200},
		{name: "gone meanwhile", version: "2.69", method: "PUT", path: c2h2.UUID, body: `{"status":"enabled"}`,
			status: 404, says: "itemNotFound: Service " + c2h2.UUID + " could not be found."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			c.servicesOf(1, c1h1)
			c.servicesOf(2, c2h1, c2h2).gone = c2h2.UUID
			c.cell(1).fail = refused
			got := c.do(administrator, tt.version, tt.method, "/v2.1/os-services/"+tt.path, tt.body)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
		})
	}
}

// TestForcedUp: a host is not forced up while it has not removed what was evacuated from it.
func TestForcedUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const refused = "badRequest: Unable to force up host c1h1 as `done` evacuation migration records remain " +
		"associated with the host. Ensure the compute service has been " +
		"restarted, allowing these records to move to `completed` before retrying this request."
	for _, tt := range []struct {
		version, path, body string
		done                bool
		says                string
	}{
		{"2.69", c1h1.UUID, `{"forced_down":false}`, true, refused},
		{"2.69", c1h1.UUID, `{"status":"enabled","forced_down":false}`, true, refused},
		{"2.69", c1h1.UUID, `{"forced_down":true}`, true, ""},
		{"2.69", c1h1.UUID, `{"status":"enabled"}`, true, ""},
		{"2.69", c1h1.UUID, `{"forced_down":false}`, false, ""},
		{"2.11", "force-down", `{"host":"c1h1","binary":"nova-compute","forced_down":false}`, true, refused},
		{"2.11", "force-down", `{"host":"c1h1","binary":"nova-compute","forced_down":true}`, true, ""},
	} {
		t.Run(tt.version+" "+tt.body, func(t *testing.T) {
			c := newCloud(t, Options{})
			c.servicesOf(1, c1h1)
			if tt.done {
				c.cell(1).migrations = []cellwire.Migration{
					{UUID: uuid(1), SourceHost: "c1h1",
						Type: cellwire.MigrationEvacuation, Status: cellwire.MigrationDone},
				}
			}
			got := c.do(administrator, tt.version, "PUT", "/v2.1/os-services/"+tt.path, tt.body)
			if (got.status == 200) != (tt.says == "") || got.message() != tt.says {
				t.Errorf("%d %s, not %s", got.status, got.message(), tt.says)
			}
			want := cellwire.MigrationQuery{
				SourceHost: "c1h1", Type: cellwire.MigrationEvacuation, Status: cellwire.MigrationDone, Limit: 1,
			}
			if tt.says != "" {
				testproc.Same(t, gocmp.Diff(want, c.cell(1).asked))
			}
		})
	}
}

// TestServicesAreDeleted: a host goes from its cell, and from the API database if it is mapped to
// that cell, or nothing changes.
func TestServicesAreDeleted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const busy = "conflictingRequest: Unable to delete compute service that is hosting instances. Migrate or delete " +
		"the instances first."
	const alive = "conflictingRequest: Unable to delete compute service whose agent reports to its cell. Stop " +
		"compute-agent on the host, or take away its [cell_client], and delete the service when it is down."
	// its agent was once at cell 1
	elsewhere := cellwire.Service{UUID: "7c0e2f5c-2f42-4d3e-9b0e-0a1c5a7d9f11", ID: 9,
		Host: "c2h1", Binary: "nova-compute"}
	for _, tt := range []struct {
		name, version, id string
		refusal           cellwire.Code
		gone              bool
		down              int
		status            int
		says              string
		mapped            []string
	}{
		{name: "gone", version: "2.69", id: c1h2.UUID, status: 204, mapped: []string{"c1h1", "c2h1", "c2h2"}},
		{name: "mapped elsewhere", version: "2.69", id: elsewhere.UUID, status: 204},
		{name: "by number", version: "2.52", id: "9", status: 204},
		{name: "two of a number", version: "2.52", id: "7",
			status: 400, says: "badRequest: Service id 7 refers to multiple services."},
		{name: "perhaps two of a number", version: "2.52",
			id: "9", down: 2, status: 500,
			says: "computeFault: NovaException: Service 9 is in no cell that is responding, and not all are. Try " +
				"again when they are back."},
		{name: "with servers", version: "2.69", id: c1h2.UUID, refusal: cellwire.CodeInUse, status: 409, says: busy},
		{name: "alive", version: "2.69", id: c1h2.UUID, refusal: cellwire.CodeConflict, status: 409, says: alive},
		{name: "gone meanwhile", version: "2.69", id: c1h2.UUID, gone: true, status: 404,
			says: "itemNotFound: Service " + c1h2.UUID + " not found."},
		{name: "another cell down", version: "2.69", id: c1h2.UUID, down: 2, status: 204,
			mapped: []string{"c1h1", "c2h1", "c2h2"}},
		{name: "its cell down", version: "2.69", id: c1h2.UUID, down: 1, status: 500,
			says: "computeFault: NovaException: Service " +
				c1h2.UUID + " is in no cell that is responding, and not all are. Try again when they are back."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			c.servicesOf(2, c2h1, c2h2)
			first := c.servicesOf(1, c1h1, c1h2)
			first.services, first.refusal = append(first.services, elsewhere), tt.refusal
			if tt.gone {
				first.gone = tt.id
			}
			if tt.down != 0 {
				c.cell(tt.down).fail = refused
			}
			got := c.do(administrator, tt.version, "DELETE", "/v2.1/os-services/"+tt.id, "")
			if got.status != tt.status || tt.says != "" && got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.text, tt.status, tt.says)
			}
			if tt.mapped == nil {
				tt.mapped = []string{"c1h1", "c1h2", "c2h1", "c2h2"}
			}
			mappings := testproc.Try(c.store.Hosts(t.Context())).Or(t)
			var mapped []string
			for _, m := range mappings {
				mapped = append(mapped, m.Host)
			}
			testproc.Same(t, gocmp.Diff(tt.mapped, mapped))
		})
	}
}

// TestServiceThatWasNeverChanged has no time of a change, and the default zone when no
// aggregate says another one.
func TestServiceThatWasNeverChanged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{DefaultZone: "here"})
	c.servicesOf(1, cellwire.Service{UUID: c1h1.UUID, Host: "c1h1", Binary: "nova-compute"})
	got := c.ask(administrator, "2.69", "/v2.1/os-services").body["services"].([]any)[0]
	want := map[string]any{
		"binary": "nova-compute", "host": "c1h1", "id": c1h1.UUID, "zone": "here", "status": "enabled", "state": "down",
		"updated_at": nil, "disabled_reason": nil, "forced_down": false,
	}
	testproc.Same(t, gocmp.Diff(any(want), got))
}
