// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

// start is when the tests' clock begins.
var start = time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC)

// fatal is what helpers need of a test, of a benchmark and of a property.
type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func open(t fatal, path string, o apidb.Options) *apidb.DB {
	t.Helper()
	s, err := apidb.Open(ctx, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// fresh is a new database with a clock that stands still.
func fresh(t *testing.T) *apidb.DB {
	t.Helper()
	s := open(t, filepath.Join(t.TempDir(), "api.db"), apidb.Options{Now: func() time.Time { return start }})
	t.Cleanup(func() { shut(t, s) })
	return s
}

func shut(t testing.TB, s *apidb.DB) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

var must = testproc.Check

// wants compares what a method gave.
func wants[T any](t testing.TB, what string) func(got T, err error) func(want T) {
	t.Helper()
	return func(got T, err error) func(want T) {
		t.Helper()
		must(t, err)
		return func(want T) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
	}
}

func wantError(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// cellUUID is the uuid of a test's cell; the number 0 is cell0.
func cellUUID(n int) string { return fmt.Sprintf("%08d-0000-0000-0000-000000000000", n) }

// withCells makes cell0 and some more.
func withCells(t fatal, s *apidb.DB, n int) {
	t.Helper()
	for i := range n + 1 {
		if _, err := s.CreateCell(ctx, apidb.Cell{UUID: cellUUID(i), Name: fmt.Sprint("cell", i), URL: fmt.Sprintf("http://127.0.0.1:%d", 9000+i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// server is one of a project, of 2 VCPUs and 512 MiB.
func server(uuid, project string) apidb.RequestSpec {
	flavor := cellwire.Flavor{ID: "f1", Flavor: plugins.Flavor{Name: "small", VCPUs: 2, MemoryMB: 512, RootGB: 1, ExtraSpecs: map[string]string{"trait:CUSTOM_A": "required"}}}
	return apidb.RequestSpec{
		Server:     cellwire.Server{UUID: uuid, ProjectID: project, UserID: "user", Name: "server " + uuid, Flavor: flavor, ImageRef: "image", Zone: "zone", VMState: cellwire.VMBuilding, TaskState: cellwire.TaskScheduling},
		ForcedHost: "host", ForcedNode: "node",
	}
}

func at(n apidb.RequestSpec, created time.Time) apidb.RequestSpec {
	n.CreatedAt = created
	return n
}

// placed makes a server that is in a cell.
func placed(t fatal, s *apidb.DB, n apidb.RequestSpec, cell string) {
	t.Helper()
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{n}, nil))
	must(t, s.Place(ctx, n.UUID, cell))
	must(t, s.Built(ctx, n.UUID))
}

// execute runs statements on the file behind the store's back.
func execute(t testing.TB, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer func() { must(t, db.Close()) }()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// ask returns the first column of a query's rows, or all columns as text.
func ask(t testing.TB, path, query string, args ...any) (out []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	must(t, err)
	defer func() { must(t, db.Close()) }()
	rows, err := db.Query(query, args...)
	must(t, err)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	must(t, err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		must(t, rows.Scan(values...))
		line := ""
		for i, v := range values {
			if i > 0 {
				line += "|"
			}
			line += fmt.Sprint(*v.(*any))
		}
		out = append(out, line)
	}
	must(t, rows.Err())
	return out
}
