// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// noted is where suiteTest got its databases.
var noted []string

func suiteTest(t *testing.T) {
	t.Run("sub", func(t *testing.T) {
		scheme, _, _ := strings.Cut(dbservers.Fresh(t), "://")
		noted = append(noted, t.Name()[strings.IndexByte(t.Name(), '/')+1:]+" "+dbservers.Engine(t)+" "+scheme)
	})
}

// TestBriefRunsWhereItSays: the tests of a suite get databases of the engine that they are run for,
// also in their subtests; elsewhere of SQLite.
func TestBriefRunsWhereItSays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	noted = nil
	t.Run("brief", func(t *testing.T) { dbservers.Brief(t, suiteTest, suiteTest) })
	dbservers.Each(t, func(t *testing.T, _ func(testing.TB) string) { suiteTest(t) })
	t.Run("elsewhere", suiteTest)
	want := []string{
		"brief/mariadb/suiteTest/sub mariadb mysql", "brief/mariadb/suiteTest#01/sub mariadb mysql",
		"brief/postgresql/suiteTest/sub postgresql postgres", "brief/postgresql/suiteTest#01/sub postgresql postgres",
		"sqlite/sub sqlite sqlite", "mariadb/sub mariadb mysql",
		"postgresql/sub postgresql postgres", "elsewhere/sub  sqlite",
	}
	want = slices.DeleteFunc(want, func(note string) bool {
		engine := strings.Fields(note)[1]
		return engine != "sqlite" && !dbservers.Runs(engine)
	})
	testproc.Same(t, cmp.Diff(want, noted))
}

// TestEmpty fills a database with tables that refer to each other, and empties it twice.
func TestEmpty(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.Each(t, func(t *testing.T, fresh func(testing.TB) string) {
		dsn := fresh(t)
		for range 2 {
			dbservers.Execute(t, dsn, "CREATE TABLE hosts (id INTEGER PRIMARY KEY)",
				"CREATE TABLE guests (id INTEGER PRIMARY KEY, host INTEGER, FOREIGN KEY (host) REFERENCES hosts (id))",
				"INSERT INTO hosts VALUES (1)", "INSERT INTO guests VALUES (1, 1)")
			dbservers.Empty(t, dsn)
			dbservers.Empty(t, dsn)
		}
	})
}

// TestTemplateComesBackAsItWas: what a test does to a database of a template is not there for the
// next test: neither rows nor tables, not even if it leaves a transaction open.
func TestTemplateComesBackAsItWas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	template := dbservers.NewTemplate(func(dsn string) (*sql.DB, error) {
		dbservers.Execute(t, dsn, "CREATE TABLE kept (word VARCHAR(20) PRIMARY KEY, number INTEGER)",
			"INSERT INTO kept VALUES ('one', 1), ('none', NULL)",
			"CREATE TABLE hosts (id INTEGER PRIMARY KEY)",
			"CREATE TABLE guests (host INTEGER, FOREIGN KEY (host) REFERENCES hosts (id))")
		return dbservers.Open(t, dsn), nil
	})
	dbservers.Each(t, func(t *testing.T, _ func(testing.TB) string) {
		for _, change := range [][]string{
			{"DELETE FROM kept", "INSERT INTO hosts VALUES (1)", "INSERT INTO guests VALUES (1)"},
			{"UPDATE kept SET number = 2"},
			{"CREATE TABLE another (id INTEGER PRIMARY KEY)"},
			{"ALTER TABLE hosts ADD COLUMN name VARCHAR(20)"},
			{"DROP TABLE guests"},
		} {
			var left *sql.DB
			t.Run("", func(inner *testing.T) {
				dsn := template.Fresh(inner)
				want := "none NULL, one 1; no host, no guest"
				if got := contents(t, dsn); got != want {
					t.Errorf("before %s there is %q, not %q", change, got, want)
				}
				dbservers.Execute(t, dsn, change...)
				left = dbservers.Open(t, dsn)
				tx, err := left.BeginTx(t.Context(), nil)
				testproc.Check(t, err)
				_, err = tx.ExecContext(t.Context(), "INSERT INTO kept VALUES ('left', 3)")
				testproc.Check(t, err)
			})
		}
	})
}

// contents are the rows of the tables of TestTemplateComesBackAsItWas, which has no others.
func contents(t *testing.T, dsn string) string {
	db := dbservers.Open(t, dsn)
	rows, err := db.QueryContext(t.Context(), "SELECT word, number FROM kept ORDER BY word")
	testproc.Check(t, err)
	defer func() { testproc.Check(t, rows.Close()) }()
	var all []string
	for rows.Next() {
		var word string
		var number sql.NullInt64
		testproc.Check(t, rows.Scan(&word, &number))
		value := "NULL"
		if number.Valid {
			value = strconv.FormatInt(number.Int64, 10)
		}
		all = append(all, word+" "+value)
	}
	testproc.Check(t, rows.Err())
	out := strings.Join(all, ", ") + ";"
	for _, table := range []string{"host", "guest"} {
		var n int
		testproc.Check(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table+"s").Scan(&n))
		if n == 0 {
			out += " no " + table + ","
		}
	}
	return strings.TrimSuffix(out, ",")
}
