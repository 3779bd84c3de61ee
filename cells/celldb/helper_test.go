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
	"github.com/compute-agent/compute-agent/cells/serverstate"
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

func insert(t testing.TB, s celldb.ServerStore, server cellwire.Server) {
	t.Helper()
	testproc.Try(s.Insert(ctx, server, moment)).Or(t)
}

func release(t testing.TB, s celldb.ServerStore, server cellwire.Server) {
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

// hosts registers hosts with one node each, that can migrate.
func hosts(t *testing.T, s *celldb.DB, names ...string) {
	t.Helper()
	for i, name := range names {
		node := cellwire.ReportedNode{UUID: sid(900 + i),
			Name: "n" + name[1:], Abilities: []string{plugins.AbilityMigrate}}
		_, _, err := s.Report(ctx, serverstate.Reporter{Host: name},
			cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{node}}, moment)
		testproc.Check(t, err)
	}
}

// active makes a server that is active on h1.
func active(t *testing.T, s *celldb.DB, server cellwire.Server) {
	t.Helper()
	release(t, s, server)
	reported(t, s, "h1", cellwire.Report{UUID: server.UUID,
		Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning})
}

func reported(t *testing.T, s *celldb.DB, host string, report cellwire.Report) {
	t.Helper()
	refused := testproc.Try(s.Apply(ctx, host, []cellwire.Report{report}, moment)).Or(t).Refused
	if refused[0] != "" {
		t.Fatalf("the report %s of %s is refused: %s", report.Kind, host, refused[0])
	}
}

// wants are the wants of a host after a revision, as "UUID's last digits: want (status)".
func wants(t *testing.T, s *celldb.DB, host string, after int64) (out []string) {
	t.Helper()
	info := testproc.Try(s.Info(ctx)).Or(t)
	last := after
	for more := true; more; {
		work, _, err := s.Work(ctx, host, last, info.Epoch, moment)
		testproc.Check(t, err)
		for _, item := range work.Items {
			text := item.Server.UUID[34:] + ": " + string(item.Want)
			if m := item.Migration; m != nil {
				text += fmt.Sprintf(" (%s)", m.Status)
			}
			if item.Server.Revision <= last {
				t.Errorf("host %s gets revision %d after %d", host, item.Server.Revision, last)
			}
			out, last = append(out, text), item.Server.Revision
		}
		if more = work.More; more && work.Revision != last {
			t.Errorf("host %s has all until %d, and got %d", host, work.Revision, last)
		}
	}
	return out
}

// hostsOf are the hosts of a server.
func hostsOf(t *testing.T, s *celldb.DB, n int) []string {
	t.Helper()
	all := testproc.Try(s.ServerHosts(ctx, cellwire.HostsRequest{UUIDs: []string{sid(n)}})).Or(t)
	if len(all) != 1 {
		t.Fatalf("the hosts of server %d are %v", n, all)
	}
	return all[0].Hosts
}
