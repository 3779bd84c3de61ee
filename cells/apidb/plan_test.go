// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPlans: what is asked often reads neither a whole table of servers nor sorts.
func TestPlans(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testproc.Try(Open(context.Background(), filepath.Join(t.TempDir(), "api.db"), Options{})).Or(t)
	defer func() { testproc.NoError(t, s.Close()) }()
	d := s.kit.Dialect
	ofProject, args := pages(d, MappingFilter{ProjectID: "p", Living: true, Limit: 1000}, []int64{1})[0].queryAfter(nil)
	ofCell, cellArgs := pages(d, MappingFilter{Living: true, Limit: 1000}, []int64{1})[0].queryAfter(nil)
	goingOn, onArgs := pages(d, MappingFilter{ProjectID: "p", Living: true, Limit: 1000},
		[]int64{1})[0].queryAfter(&Mapping{})
	for _, c := range []struct {
		name, query, index string
		args               []any
	}{
		{"living servers of a project in a cell",
			ofProject, "instance_mappings_living_project (project_id=? AND cell_id=?)", args},
		{"the next page of these", goingOn,
			"instance_mappings_living_project (project_id=? AND cell_id=? AND created_at<?)", onArgs},
		{"living servers of a cell", ofCell, "instance_mappings_living_cell (cell_id=?)", cellArgs},
		{"a page of a cell", mappingsAfter, "instance_mappings_cell (cell_id=? AND rowid>?)", []any{"c", 0, 10}},
		{"not migrated", unmigrated, "instance_mappings_unmigrated (cell_id=?)", []any{"c", 10}},
		{"cells that are not migrated", unmigratedCells, "instance_mappings_unmigrated (cell_id=?)", nil},
		{"cells of a project", projectCells, "instance_mappings_project (project_id=? AND cell_id=?)", []any{"p"}},
		{"count of a project", countLiving(d, false, false),
			"instance_mappings_living_project (project_id=?)", []any{"p"}},
		{"sizes, for the count", countLiving(d, false, false),
			"SEARCH s USING INDEX sqlite_autoindex_request_specs_1 (instance_uuid=?)", []any{"p"}},
		{"count of a user of a project", countLiving(d, true, false),
			"instance_mappings_living_project (project_id=?)", []any{"p", "u"}},
		{"count of a user in cells", countLiving(d, true, true),
			"instance_mappings_living_project (project_id=?", []any{"p", "u", "[]"}},
		{"count of a project in cells", countLiving(d, false, true),
			"instance_mappings_living_project (project_id=?", []any{"p", "[]"}},
		{"mappings of servers", mappingsOf(d), "(instance_uuid=?)", []any{"[]"}},
		{"build requests of a project", buildRequests +
			"WHERE b.project_id = ? ORDER BY b.created_at DESC, b.instance_uuid LIMIT ?",
			"build_requests_project (project_id=?)", []any{"p", 10}},
	} {
		plan, err := sqldb.All(context.Background(), s.kit.Reader, func(row sqldb.Row) (detail string, err error) {
			var id, parent, unused int
			err = row.Scan(&id, &parent, &unused, &detail)
			return detail, err
		}, "EXPLAIN QUERY PLAN "+c.query, c.args...)
		testproc.Checkf(t, err, "%s", c.name)
		text := strings.Join(plan, "\n")
		if !strings.Contains(text, c.index) || strings.Contains(text, "SCAN m") || strings.Contains(text, "SCAN b") ||
			strings.Contains(text, "TEMP B-TREE") {
			t.Errorf("%s: want %s, without a scan of servers and without sorting:\n%s", c.name, c.index, text)
		}
	}
}

// TestConnectionsAreDurableAndReadersReadOnly: what is acknowledged is on the disk, references
// hold, and readers cannot write.
func TestConnectionsAreDurableAndReadersReadOnly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testproc.Try(Open(context.Background(), filepath.Join(t.TempDir(), "api.db"), Options{})).Or(t)
	defer func() { testproc.NoError(t, s.Close()) }()
	for _, c := range []struct {
		db            *sql.DB
		pragma, value string
	}{
		{s.kit.Writer, "journal_mode", "wal"}, {s.kit.Writer, "synchronous", "2"}, {s.kit.Writer, "foreign_keys", "1"},
		{s.kit.Writer, "busy_timeout", "5000"},
		{s.kit.Reader, "journal_mode", "wal"}, {s.kit.Reader, "query_only", "1"},
		{s.kit.Reader, "busy_timeout", "5000"},
	} {
		var got string
		if err := c.db.QueryRowContext(context.Background(), "PRAGMA "+c.pragma).Scan(&got); err != nil ||
			got != c.value {
			t.Errorf("%s is %q, %v; want %q", c.pragma, got, err, c.value)
		}
	}
}
