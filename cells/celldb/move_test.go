// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"path/filepath"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMove: the database of a cell moves from a file to a server, to another database there, and
// back to a file, by backups. It is the same database: its epoch, its revision and all rows stay,
// and new rows follow.
func TestMove(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutServers(t)
	at := filepath.Join(t.TempDir(), "cell.db")
	s := open(t, at)
	_, _, err := s.Report(ctx, serverstate.Reporter{Host: "h1"},
		cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: sid(91), Name: "n1"}}}, moment)
	testproc.Check(t, err)
	for n := range 5 {
		server := building(n)
		server.Name, server.Tags, server.Metadata = "é ", []string{"a ", "b"}, map[string]string{"k": "v"}
		release(t, s, server)
	}
	type contents struct {
		Info     celldb.Info
		Page     cellwire.ServerPage
		Services []cellwire.Service
	}
	read := func(s *celldb.DB) (c contents) {
		t.Helper()
		var err error
		c.Info, err = s.Info(ctx)
		testproc.Check(t, err)
		c.Page, err = s.Servers(ctx, cellwire.ServerQuery{Limit: 10}, moment)
		testproc.Check(t, err)
		c.Services, err = s.Services(ctx, moment)
		testproc.Check(t, err)
		return c
	}
	want := read(s)
	closeStore(t, s)
	for i, to := range []string{dbservers.Fresh(t), dbservers.Fresh(t), filepath.Join(t.TempDir(), "again.db")} {
		file := filepath.Join(t.TempDir(), "backup.db")
		testproc.Check(t, backup.Create(ctx, at, celldb.DatabaseOptions(), file))
		testproc.Try(backup.Restore(ctx, to, celldb.DatabaseOptions(), file)).Or(t)
		s := open(t, to)
		testproc.Samef(t, gocmp.Diff(want, read(s)), "move %d", i)
		release(t, s, building(20+i))
		want = read(s)
		closeStore(t, s)
		at = to
	}
}
