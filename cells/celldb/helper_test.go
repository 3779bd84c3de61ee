// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	ctx    = context.Background()
	start  = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	moment = celldb.Moment{Now: start, DownTime: time.Minute}
)

func open(t testing.TB, address string) *celldb.DB {
	t.Helper()
	return testproc.Try(celldb.Open(ctx, address, "cell1", celldb.Options{})).Or(t)
}

func closeStore(t testing.TB, s *celldb.DB) {
	t.Helper()
	testproc.NoError(t, s.Close())
}

// fresh is a store on a new file.
func fresh(t testing.TB) *celldb.DB {
	t.Helper()
	s := open(t, copied(t, filepath.Join(dbservers.Memory(t), "cell.db")))
	t.Cleanup(func() { closeStore(t, s) })
	return s
}

// template is what databases of cell1 begin as.
var template = dbservers.NewTemplate(func(dsn string) (*celldb.DB, error) {
	return celldb.Open(ctx, dsn, "cell1", celldb.Options{})
})

// copied makes the database of cell1 at an address, if that is a file.
func copied(t testing.TB, address string) string {
	t.Helper()
	testproc.Check(t, template.Copy(address))
	return address
}

// onEach runs f for a store on a new database of each engine.
func onEach(t *testing.T, f func(t *testing.T, s *celldb.DB)) {
	t.Helper()
	dbservers.Each(t, func(t *testing.T, fresh func(testing.TB) string) {
		s := open(t, copied(t, fresh(t)))
		t.Cleanup(func() { closeStore(t, s) })
		f(t, s)
	})
}

func sid(n int) string { return fmt.Sprintf("5e000000-0000-4000-8000-%012x", n) }

func building(n int) cellwire.Server {
	return cellwire.Server{UUID: sid(n), ProjectID: "p", Name: fmt.Sprint("server-", n), Host: "h1", Node: "n1",
		VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
		Flavor:    cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 128}},
		CreatedAt: start.Add(time.Duration(n) * time.Second)}
}

func insert(t testing.TB, s celldb.Store, server cellwire.Server) {
	t.Helper()
	testproc.Try(s.Insert(ctx, server, moment)).Or(t)
}

func release(t testing.TB, s celldb.Store, server cellwire.Server) {
	t.Helper()
	insert(t, s, server)
	testproc.Try(s.Release(ctx, server.UUID, moment)).Or(t)
}

// execute runs statements on the file behind the store's back.
func execute(t testing.TB, path string, statements ...string) {
	t.Helper()
	db := testproc.Try(sql.Open("sqlite", path)).Or(t)
	defer func() { testproc.NoError(t, db.Close()) }()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}
