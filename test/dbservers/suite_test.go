// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"slices"
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
		"sqlite/sub sqlite sqlite", "mariadb/sub mariadb mysql", "postgresql/sub postgresql postgres", "elsewhere/sub  sqlite",
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
