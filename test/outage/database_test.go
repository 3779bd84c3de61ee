// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the databases of the processes
)

// edit changes a database file that no process has open, as time, another program or an operator
// may have done.
func edit(t *testing.T, file, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate")
	check(t, err)
	defer func() { check(t, db.Close()) }()
	result, err := db.ExecContext(t.Context(), statement, args...)
	check(t, err)
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s %v changed %d rows, %v", statement, args, n, err)
	}
}

// editing stops the compute API, which has the API database to itself, while the database is
// changed.
func (w *world) editing(t *testing.T, do func(file string)) {
	t.Helper()
	w.api.process.Stop(t)
	do(w.database())
	w.api.restart(t)
}

// edit changes the API database.
func (w *world) edit(t *testing.T, statement string, args ...any) {
	t.Helper()
	w.editing(t, func(file string) { edit(t, file, statement, args...) })
}

// backup is a copy of a database, made by the command for that, which asks the process that has it
// open.
func backup(t *testing.T, words ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup.db")
	must(t, slices.Insert(words, len(words)-2, file)...)
	return file
}

// backup is a copy of the API database.
func (w *world) backup(t *testing.T) string {
	t.Helper()
	return backup(t, "cells", "manage", "db", "backup", "--config", w.api.config)
}

// cellBackup is a copy of the database of a cell.
func (w *world) cellBackup(t *testing.T, name string) string {
	t.Helper()
	return backup(t, "cells", "backup", "--config", w.cells[name].config)
}

// copied copies the rows of a table, or some of its columns, from one database file to another.
func copied(t *testing.T, from, to, table string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+to)
	check(t, err)
	defer func() { check(t, db.Close()) }()
	db.SetMaxOpenConns(1) // what is attached is so for a connection
	_, err = db.ExecContext(t.Context(), "ATTACH ? AS source", "file:"+from+"?mode=ro")
	check(t, err)
	name, columns, some := strings.Cut(table, " ")
	if !some {
		columns = "*"
	}
	_, err = db.ExecContext(t.Context(), "INSERT INTO main."+table+" SELECT "+strings.Trim(columns, "()")+" FROM source."+name)
	check(t, err)
}

// count is the number that a query of a database file gives.
func count(t *testing.T, file, query string, args ...any) int {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	check(t, err)
	defer func() { check(t, db.Close()) }()
	var n int
	check(t, db.QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// text is the text that a query of a database file gives.
func text(t *testing.T, file, query string, args ...any) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	check(t, err)
	defer func() { check(t, db.Close()) }()
	var s string
	check(t, db.QueryRowContext(t.Context(), query, args...).Scan(&s))
	return s
}

// queued is queued_for_delete of a server: "true", "false", "null", or "none" for one without a
// mapping.
func (w *world) queued(t *testing.T, server string) string {
	t.Helper()
	n := count(t, w.backup(t), `SELECT COALESCE((SELECT CASE WHEN queued_for_delete IS NULL THEN 2 ELSE queued_for_delete END
		FROM instance_mappings WHERE instance_uuid = ?), 3)`, server)
	return []string{"false", "true", "null", "none"}[n]
}

// written counts what a boot writes to the API database and to Placement.
func (w *world) written(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	file := w.backup(t)
	for _, table := range []string{"instance_mappings", "request_specs", "build_requests", "claims"} {
		out[table] = count(t, file, "SELECT COUNT(*) FROM "+table)
	}
	for _, h := range w.hosts {
		var answer struct{ Allocations map[string]any }
		w.placementAsk(t, "GET", "/resource_providers/"+h.node+"/allocations", nil, &answer)
		out["allocations"] += len(answer.Allocations)
	}
	return out
}
