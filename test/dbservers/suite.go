// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"database/sql"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var chosen = flag.String("database", "", "the engine on which the suites run that have databases of "+
	"one engine at a time: sqlite (as without this flag), mariadb or postgresql")

// server is the only engine with a server that tests use which run on each, unless -database names
// one: mariadb or postgresql. Without it they use both.
var server = os.Getenv("TEST_DATABASE")

// Runs reports whether tests that run on each engine run on this one.
func Runs(engine string) bool {
	if *chosen != "" {
		return engine == *chosen
	}
	return server == "" || engine == server || engine == engines[0].name
}

// engines are where tests can have a database.
var engines = []struct {
	name  string
	fresh func(t testing.TB) string
}{{"sqlite", sqlite}, {"mariadb", MariaDB}, {"postgresql", PostgreSQL}}

func sqlite(t testing.TB) string { return "sqlite://" + filepath.Join(Memory(t), "database.db") }

// subtests are the engines of the subtests that Each and Brief run now, by their names.
var subtests sync.Map

// on runs f as a subtest on an engine.
func on(t *testing.T, engine string, f func(t *testing.T)) {
	t.Helper()
	t.Run(engine, func(t *testing.T) {
		subtests.Store(t.Name(), engine)
		t.Cleanup(func() { subtests.Delete(t.Name()) })
		f(t)
	})
}

// Engine is the engine on which a test of a suite runs: that of the subtest of [Each] or [Brief] it
// is part of, or else that of the flag -database; empty if there is neither.
func Engine(t testing.TB) string {
	t.Helper()
	for name, more := t.Name(), true; more; {
		if engine, ok := subtests.Load(name); ok {
			return engine.(string)
		}
		i := strings.LastIndexByte(name, '/')
		more, name = i >= 0, name[:max(i, 0)]
	}
	return *chosen
}

// Fresh makes an empty database on the engine on which the test runs (see [Engine]), SQLite if
// none is chosen, and returns its DSN. It lives as long as the test. A package whose tests call
// this is a suite: make test-databases runs all of its tests on each server.
func Fresh(t testing.TB) string {
	t.Helper()
	engine := Engine(t)
	for _, e := range engines {
		if e.name == engine || engine == "" {
			return e.fresh(t)
		}
	}
	t.Fatalf("-database=%s: there are sqlite, mariadb and postgresql", engine)
	return ""
}

// AboutFiles skips a test that is about the file of an SQLite database, if the suite runs on
// another engine.
func AboutFiles(t testing.TB) {
	t.Helper()
	if OnServer(t) {
		t.Skip("It is about the file of an SQLite database.")
	}
}

// AboutNoDatabase skips a long test that has a database and asks nothing of it, if the suite runs
// on an engine with a server.
func AboutNoDatabase(t testing.TB) {
	t.Helper()
	if OnServer(t) {
		t.Skip("It is not about the database.")
	}
}

// OnServer reports whether a test runs on an engine with a server.
func OnServer(t testing.TB) bool {
	t.Helper()
	engine := Engine(t)
	return engine != "" && engine != engines[0].name
}

// InBrief reports whether a test runs on an engine with a server as part of make test, which is to
// be over soon.
func InBrief(t testing.TB) bool {
	t.Helper()
	return *chosen == "" && OnServer(t)
}

// Case runs a case of a table as a subtest: on SQLite and in make nightly each of them, on an
// engine with a server one of three, by its name, and under the race detector the two others.
// It is for cases that ask the same of the database and differ in what is decided.
func Case(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	const every = 3
	third := crc32.ChecksumIEEE([]byte(t.Name()+"/"+name)) % every
	switch {
	case testproc.Nightly():
	case OnServer(t) && third != 0, !OnServer(t) && testproc.Race && third == 0:
		return
	}
	t.Run(name, f)
}

// FewerChecks has a property be checked less often, if the suite runs on an engine with a server:
// what it makes takes much longer there.
func FewerChecks(t testing.TB) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks == nil {
		t.Fatal("the package does not use rapid")
	}
	if !OnServer(t) {
		return
	}
	fewer.Do(func() {
		const few = 10
		if n, err := strconv.Atoi(checks.Value.String()); err != nil || n > few {
			testproc.Check(t, checks.Value.Set(strconv.Itoa(few)))
		}
	})
}

var fewer sync.Once

// Each runs f for SQLite, MariaDB and PostgreSQL, as the subtests "sqlite", "mariadb" and
// "postgresql"; with -database, for that one alone, and with TEST_DATABASE for that one and SQLite.
// fresh makes an empty database, which lives as long as the test it is given, and returns its DSN.
// For SQLite that is sqlite:///PATH of a file that does not exist yet.
func Each(t *testing.T, f func(t *testing.T, fresh func(t testing.TB) string)) {
	t.Helper()
	for _, e := range engines {
		if Runs(e.name) {
			on(t, e.name, func(t *testing.T) { f(t, e.fresh) })
		}
	}
}

// EachServer is [Each] without SQLite.
func EachServer(t *testing.T, f func(t *testing.T, fresh func(t testing.TB) string)) {
	t.Helper()
	for _, e := range engines[1:] {
		if Runs(e.name) {
			on(t, e.name, func(t *testing.T) { f(t, e.fresh) })
		}
	}
}

// Brief runs some tests of a suite, which get their databases from [Fresh], on MariaDB and
// PostgreSQL as well: what make test has of the suite on these. With -database there is nothing to
// do, as the whole suite runs there.
func Brief(t *testing.T, tests ...func(t *testing.T)) {
	t.Helper()
	if *chosen != "" {
		t.Skip("The whole suite runs on the engine of -database.")
	}
	for _, e := range engines[1:] {
		if !Runs(e.name) {
			continue
		}
		on(t, e.name, func(t *testing.T) {
			if len(tests) == 1 {
				tests[0](t)
				return
			}
			for _, f := range tests {
				name := runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
				t.Run(name[strings.LastIndexByte(name, '.')+1:], f)
			}
		})
	}
}

// Empty takes everything out of the database of a DSN, which is then as [Fresh] made it. Nothing
// may use it meanwhile.
func Empty(t testing.TB, dsn string) {
	t.Helper()
	scheme, path, _ := strings.Cut(dsn, "://")
	switch scheme {
	case "mysql":
		dropTables(t, dsn)
	case "postgres":
		Execute(t, dsn, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
	case "sqlite":
		// It has a directory of its own, with what else makes a database.
		testproc.Check(t, errors.Join(os.RemoveAll(filepath.Dir(path)), os.Mkdir(filepath.Dir(path), 0o700)))
	default:
		t.Fatalf("%s is no DSN of this package", dsn)
	}
}

func dropTables(t testing.TB, dsn string) {
	t.Helper()
	db := Open(t, dsn)
	var tables sql.NullString
	err := db.QueryRowContext(t.Context(),
		"SELECT GROUP_CONCAT('`', table_name, '`') FROM information_schema.tables WHERE table_schema = DATABASE()").
		Scan(&tables)
	if err == nil && tables.Valid {
		// All at once: in whatever order, a key of another one stands in the way.
		_, err = db.ExecContext(t.Context(), "SET STATEMENT foreign_key_checks = 0 FOR DROP TABLE "+tables.String)
	}
	testproc.Checkf(t, err, "emptying a database")
	testproc.NoError(t, db.Close())
}
