// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// aSecond is the address with an answer from the server bounded to a second.
func aSecond(name string) string {
	if strings.Contains(name, "?") {
		return name + "&read_timeout=1"
	}
	return name + "?read_timeout=1"
}

// slowly are statements that take three seconds.
var slowly = map[string]string{"mysql": "DO SLEEP(3)", "postgres": "SELECT pg_sleep(3)"}

// TestStepsMayTakeLong: a statement of a step takes longer than any other may, as an index of a
// large table does. Other processes see meanwhile that the one that runs it lives, and the log has
// a line.
func TestStepsMayTakeLong(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := aSecond(fresh(t))
		files := steps("CREATE TABLE a (n BIGINT NOT NULL PRIMARY KEY)",
			"$mysql("+slowly["mysql"]+") $postgres("+slowly["postgres"]+")",
			"CREATE TABLE b (n BIGINT NOT NULL PRIMARY KEY)")
		var log strings.Builder
		db, err := sqldb.Open(t.Context(), name,
			sqldb.Options{Schema: &sqldb.Schema{Steps: files, Table: "steps"}, Logger: zerolog.New(&log)})
		must(t, err)
		defer func() { must(t, db.Close()) }()
		var done, beat int
		must(t, db.Read(t.Context(), "reading", func(tx *sql.Tx) error {
			return tx.QueryRowContext(t.Context(), "SELECT done, beat FROM steps WHERE number = 1").Scan(&done, &beat)
		}))
		if done != 1 || beat == 0 {
			t.Errorf("done %d, %d signs of life", done, beat)
		}
		if n := strings.Count(log.String(), "A step of the database's schema is running"); n != 1 {
			t.Errorf("%d lines in the log: %s", n, log.String())
		}
		_, err = db.Writer.ExecContext(t.Context(), slowly[db.Dialect.Name])
		if err == nil {
			t.Error("a statement of a service may take as long")
		}
	})
}

// TestAdministrationMayTakeLong: so do the statements of adoptions, and those of a copy or a check
// of everything.
func TestAdministrationMayTakeLong(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := aSecond(fresh(t))
		must(t, sqldb.Administer(t.Context(), name, "testing", sqldb.Options{},
			func(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
				_, err := db.ExecContext(ctx, slowly[d.Name])
				return err
			}))
		openSummed(t, name)
		must(t, backup.Examine(t.Context(), name, summed(), func(db *sqldb.DB) error {
			_, err := db.Reader.ExecContext(t.Context(), slowly[db.Dialect.Name])
			return err
		}))
	})
}
