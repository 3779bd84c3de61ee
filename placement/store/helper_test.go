// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

// execute runs statements on the database behind the ledger's back.
func execute(t testing.TB, name string, statements ...string) {
	t.Helper()
	dbservers.Execute(t, name, statements...)
}

// testEngine is where databases are.
type testEngine struct {
	name  string
	fresh func(testing.TB) string // the name of a new database
	// shared: several servers can use a database at the same time.
	shared bool
}

var engines = []testEngine{
	{"sqlite", func(t testing.TB) string { return filepath.Join(t.TempDir(), "placement.db") }, false},
	{"mariadb", dbservers.MariaDB, true},
	{"postgresql", dbservers.PostgreSQL, true},
}

// each runs f for all engines.
func each(t *testing.T, f func(t *testing.T, e testEngine)) {
	t.Helper()
	dbservers.Each(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := dbservers.Engine(t)
		f(t, testEngine{name, fresh, name != "sqlite"})
	})
}

// eachShared runs f for the engines that several servers can share.
func eachShared(t *testing.T, f func(t *testing.T, e testEngine)) {
	t.Helper()
	dbservers.EachServer(t,
		func(t *testing.T, fresh func(testing.TB) string) { f(t, testEngine{dbservers.Engine(t), fresh, true}) })
}
