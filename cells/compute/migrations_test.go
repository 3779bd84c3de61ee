// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// queryMigrations answers a query that names one, or is about a page. Filters are the cell's.
func (c *fakeCell) queryMigrations(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var q cellwire.MigrationQuery
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	found := []cellwire.Migration{}
	for _, m := range c.migrations {
		if (q.UUID == "" || q.UUID == m.UUID) &&
			(q.After == nil || cmp.Or(q.After.CreatedAt.Compare(m.CreatedAt), cmp.Compare(q.After.ID, m.ID),
				strings.Compare(m.UUID, q.After.UUID)) > 0) && len(found) < q.Limit {
			found = append(found, m)
		}
	}
	if q.UUID == "" {
		c.asked = q
	}
	return answerJSON(cellwire.MigrationsAnswer{Migrations: found})
}

// TestMigrationLists: os-migrations in its microversions, over two cells.
func TestMigrationLists(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	at := time.Date(2024, 5, 1, 12, 0, 0, 1000, time.UTC)
	for n := 1; n <= 4; n++ {
		m := cellwire.Migration{
			UUID: uuid(100 + n), ID: int64(n), ServerUUID: uuid(1), Type: cellwire.MigrationCold,
			Status: cellwire.MigrationFinished, CreatedAt: at.Add(time.Duration(n/2) * time.Minute),
			SourceHost: "h1", SourceNode: "n1", DestHost: "h2", DestNode: "n2", OldVMState: cellwire.VMActive,
		}
		if n == 4 {
			m.Type, m.Status, m.DestHost, m.DestNode, m.UpdatedAt = cellwire.MigrationEvacuation,
				cellwire.MigrationAccepted, "", "", &at
		}
		cell := c.cell(1 + n%2)
		cell.migrations = append([]cellwire.Migration{m}, cell.migrations...) // the newest first
	}
	c.has(1, server(1, "s1"))
	view := func(n, version int) string {
		hosts, kind, status, updated := `"dest_compute":"h2","dest_host":null,"dest_node":"n2"`,
			"migration", "finished", "null"
		if n == 4 {
			hosts, kind, status, updated = `"dest_compute":null,"dest_host":null,"dest_node":null`, "evacuation",
				"accepted", `"2024-05-01T12:00:00.000001"`
		}
		text := fmt.Sprintf(
			`{"created_at":"2024-05-01T12:0%d:00.000001",%s,"id":%d,"instance_uuid":%q,"new_instance_type_id":null,`+
				`"old_instance_type_id":null,`+
				`"source_compute":"h1","source_node":"n1","status":%q,"updated_at":%s`, n/2,
			hosts, n, uuid(1), status, updated)
		if version >= 23 {
			text += fmt.Sprintf(`,"migration_type":%q`, kind)
		}
		if version >= 59 {
			text += fmt.Sprintf(`,"uuid":%q`, uuid(100+n))
		}
		return text + "}"
	}
	list := func(version int, order ...int) string {
		var all []string
		for _, n := range order {
			all = append(all, view(n, version))
		}
		return `{"migrations":[` + strings.Join(all, ",") + `]}`
	}
	next := func(body, query string) string {
		return strings.TrimSuffix(body, "}") +
			`,"migrations_links":[{"rel":"next","href":"http://compute/v2.1/os-migrations?` + query + `"}]}`
	}
	policy := func(rule string) string {
		return "forbidden: Policy doesn't allow os_compute_api:os-migrations:" + rule + " to be performed."
	}
	marker := func(n int) string { return "marker=" + uuid(100+n) }
	hold := func(who, version, path string, status int, want string) {
		t.Helper()
		got := c.do(who, version, "GET", "/v2.1"+path, "")
		text := got.text
		if status != 200 {
			text = got.message()
		}
		if got.status != status || text != want {
			t.Errorf("%s asks for %s in %s: %d %s, not %d %s", who, path, version, got.status, text, status, want)
		}
	}
	const path = "/os-migrations"
	for _, tt := range []struct {
		who     string
		version int
		query   string
		status  int
		want    string
	}{
		{administrator, 1, "", 200, list(1, 4, 3, 2, 1)},
		{administrator, 22, "?limit=1&" + marker(2), 200, list(22, 4, 3, 2, 1)},
		{administrator, 23, "", 200, list(23, 4, 3, 2, 1)},
		{administrator, 59, "", 200, list(59, 4, 3, 2, 1)},
		{administrator, 59, "?limit=2", 200, next(list(59, 4, 3), "limit=2&"+marker(3))},
		{administrator, 59, "?limit=2&" + marker(3), 200, next(list(59, 2, 1), "limit=2&"+marker(1))},
		{administrator, 59, "?limit=2&" + marker(1), 200, list(59)},
		{administrator, 59, "?limit=0", 200, list(59)},
		{administrator, 59, "?" + marker(9), 400, "badRequest: Marker " + uuid(109) + " could not be found."},
		{administrator, 59, "?changes-before=2024-05-01T12:00:00Z", 400,
			"badRequest: Additional properties are not allowed ('changes-before' was unexpected)"},
		{administrator, 66, "?changes-since=2024-05-01T12:00:01Z&changes-before=2024-05-01T12:00:00Z", 400,
			"badRequest: The value of changes-since must be less than or equal to changes-before."},
		{administrator, 66, "?project_id=p1", 400,
			"badRequest: Additional properties are not allowed ('project_id' was unexpected)"},
		{manager, 58, "?project_id=p1", 200,
			strings.NewReplacer(`"h1"`, "null", `"n1"`, "null", `"h2"`, "null", `"n2"`, "null").
				Replace(list(58, 4, 3, 2, 1))},
		{manager, 58, "?project_id=p2", 403, policy("index:all_projects")},
		{manager, 66, "", 403, policy("index:all_projects")},
		{member, 66, "", 403, policy("index")},
	} {
		hold(tt.who, fmt.Sprint("2.", tt.version), path+tt.query, tt.status, tt.want)
	}
	c.do(administrator, "2.66", "GET", "/v2.1"+path+
		"?host=h1&source_compute=h2&instance_uuid=u&status=done&migration_type=evacuation&hidden=0&"+
		"changes-since=2024-05-01T12:00:00Z&limit=7", "")
	since := at.Truncate(time.Second)
	want := cellwire.MigrationQuery{Host: "h1", ServerUUID: "u", Status: cellwire.MigrationDone,
		Type: cellwire.MigrationEvacuation, ChangedSince: &since, Limit: 7}
	testproc.Samef(t, gocmp.Diff(want, c.cell(1).asked), "the cell is asked")

	of := "/servers/" + uuid(1) + "/migrations"
	gone := "itemNotFound: Instance " + uuid(1) + " could not be found."
	hold(administrator, "2.23", of, 200, `{"migrations":[]}`)
	hold(administrator, "2.23", of+"/1", 404, "itemNotFound: Migration 1 for server "+uuid(1)+" is not live-migration.")
	hold(administrator, "2.23", of+"/9", 404,
		"itemNotFound: In-progress live migration 9 is not found for server "+uuid(1)+".")
	hold(member2, "2.23", of, 404, gone)
	hold(member, "2.23", of, 403,
		"forbidden: Policy doesn't allow os_compute_api:servers:migrations:index to be performed.")
	if got := c.ask(administrator, "2.22", "/v2.1"+of); got.status != 404 {
		t.Errorf("before 2.23: %d %s", got.status, got.text)
	}

	c.cell(2).fail = refused
	hold(administrator, "2.59", path, 200, list(59, 4, 2))
}
