// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the databases of the processes

	"github.com/compute-agent/compute-agent/test/testproc"
)

// database is the file of the API database, cellDatabase that of a cell.
func (d deployment) database() string { return filepath.Join(d.Path("api"), "compute_api.db") }

func (d deployment) cellDatabase(name string) string { return filepath.Join(d.Path(name), "cell.db") }

// edit changes a database file that no process has open, as time, another program or an operator
// may have done.
func edit(t *testing.T, file, statement string, args ...any) {
	t.Helper()
	db := testproc.Try(sql.Open("sqlite", "file:"+file+"?_txlock=immediate")).Or(t)
	_, err := db.ExecContext(t.Context(), statement, args...)
	check(t, errors.Join(err, db.Close()))
}

// copied copies the rows of a table, or some of its columns, from one database file to another.
func copied(t *testing.T, from, to, table string) {
	t.Helper()
	db := testproc.Try(sql.Open("sqlite", "file:"+to)).Or(t)
	db.SetMaxOpenConns(1) // what is attached is so for a connection
	testproc.Try(db.ExecContext(t.Context(), "ATTACH ? AS source", "file:"+from+"?mode=ro")).Or(t)
	name, columns, some := strings.Cut(table, " ")
	if !some {
		columns = "*"
	}
	_, err := db.ExecContext(t.Context(), "INSERT INTO main."+table+" SELECT "+
		strings.Trim(columns, "()")+" FROM source."+name)
	check(t, errors.Join(err, db.Close()))
}

// queued is queued_for_delete of a server in a copy of the API database, which is made by the
// command for that.
func (d deployment) queued(server string) string {
	d.T.Helper()
	file := filepath.Join(d.T.TempDir(), "backup.db")
	d.Manage("db", "backup", file)
	db := testproc.Try(sql.Open("sqlite", "file:"+file+"?mode=ro")).Or(d.T)
	var n int
	err := db.QueryRowContext(d.T.Context(),
		"SELECT COALESCE(queued_for_delete, 2) FROM instance_mappings WHERE instance_uuid = ?", server).Scan(&n)
	check(d.T, errors.Join(err, db.Close()))
	return []string{"false", "true", "null"}[n]
}
