// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// onEachEngine runs a benchmark for a new database of each engine.
func onEachEngine(b *testing.B, f func(b *testing.B, s *celldb.DB)) {
	b.Helper()
	for _, e := range []struct {
		name  string
		fresh func(testing.TB) string
	}{
		{"sqlite", func(t testing.TB) string { t.Helper(); return filepath.Join(t.TempDir(), "cell.db") }},
		{"mariadb", dbservers.MariaDB},
		{"postgresql", dbservers.PostgreSQL},
	} {
		b.Run(e.name, func(b *testing.B) {
			s := open(b, e.fresh(b))
			b.Cleanup(func() { closeStore(b, s) })
			f(b, s)
		})
	}
}

// crowd makes a project of 100,000 active servers on 1,000 hosts.
func crowd(t testing.TB, s *celldb.DB) {
	t.Helper()
	const servers, hosts = 100_000, 1_000
	for n := range hosts {
		name := fmt.Sprint("host-", n)
		nodes := []cellwire.ReportedNode{{UUID: fmt.Sprintf("90de0000-0000-4000-8000-%012x", n), Name: name}}
		if _, _, err := s.Report(ctx, serverstate.Reporter{Host: name},
			cellwire.HostReport{Version: "1", Nodes: nodes}, moment); err != nil {
			t.Fatal(err)
		}
	}
	records := make([]*serverstate.Record, servers)
	for n := range records {
		server := building(n)
		server.Tags, server.Metadata = []string{"blue"}, map[string]string{"k": "v"}
		server.Host, server.CreatedAt = fmt.Sprint("host-", n%hosts), start.Add(time.Duration(n)*time.Millisecond)
		r := testproc.Try(serverstate.NewRecord(server, moment.Now)).Or(t)
		r.Release()
		r.Apply(cellwire.Report{Kind: cellwire.ReportSpawned, PowerState: 1}, moment.Now)
		records[n] = r
	}
	testproc.Check(t, s.Fill(ctx, records))
	testproc.Check(t, s.Analyze(ctx))
}

// BenchmarkList is a page of 100 of the default list of a project with 100,000 servers: the first,
// and one in the middle.
func BenchmarkList(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		crowd(b, s)
		list(b, s)
	})
}

func list(b *testing.B, s *celldb.DB) {
	b.Helper()
	newest := []cellwire.SortKey{{Key: "created_at", Desc: true}}
	for name, q := range map[string]cellwire.ServerQuery{
		"first":   {ProjectID: "p"},
		"middle":  {ProjectID: "p", After: cellwire.Key{start.UnixMicro() + 50_000_000, sid(50_000)}},
		"brief":   {ProjectID: "p", Brief: true},
		"pattern": {ProjectID: "p", NamePattern: "^server-1234$"}, // looks at all
		"by name": {ProjectID: "p", Sort: []cellwire.SortKey{{Key: "display_name"}}},
	} {
		if q.Sort == nil {
			q.Sort = newest
		}
		q.Limit = 100
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				page, err := s.Servers(ctx, q, moment)
				if err != nil || len(page.Rows) != 100 && name != "pattern" || len(page.Rows) == 0 {
					b.Fatal(len(page.Rows), err)
				}
			}
		})
	}
}

// BenchmarkDiscovery is what a boot asks of a cell of 1,000 hosts, for a project with 100,000
// servers.
func BenchmarkDiscovery(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		crowd(b, s)
		discovery(b, s)
	})
}

func discovery(b *testing.B, s *celldb.DB) {
	b.Helper()
	for b.Loop() {
		got, err := s.Discovery(ctx, "p", moment)
		if err != nil || got.Usage.Instances != 100_000 || len(got.Services) != 1000 || len(got.Nodes) != 1000 {
			b.Fatal(got.Usage, len(got.Services), len(got.Nodes), err)
		}
	}
}

// BenchmarkReport is a host's sign of life, one of many a second.
func BenchmarkReport(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		for b.Loop() {
			if _, _, err := s.Report(ctx, serverstate.Reporter{Host: "h1"},
				cellwire.HostReport{Version: "1"}, moment); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkReports is the same of hosts of which 32 report at the same time.
func BenchmarkReports(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		b.SetParallelism(16)
		var next atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			host := fmt.Sprint("h", next.Add(1))
			for pb.Next() {
				if _, _, err := s.Report(ctx, serverstate.Reporter{Host: host},
					cellwire.HostReport{Version: "1"}, moment); err != nil {
					b.Error(err)
				}
			}
		})
	})
}

// BenchmarkWork is an agent's poll for newer state when there is none, and for all of it.
func BenchmarkWork(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		crowd(b, s)
		work(b, s)
	})
}

func work(b *testing.B, s *celldb.DB) {
	b.Helper()
	info := testproc.Try(s.Info(ctx)).Or(b)
	for name, after := range map[string]int64{"changes": info.Revision, "everything": 0} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				work, _, err := s.Work(ctx, "host-7", after, info.Epoch, moment)
				if err != nil || len(work.Items) != map[string]int{"changes": 0, "everything": 100}[name] {
					b.Fatal(len(work.Items), err)
				}
			}
		})
	}
}

// BenchmarkInsert is a server that is inserted, with its fsync.
func BenchmarkInsert(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		for n := 0; b.Loop(); n++ {
			insert(b, s, building(n))
		}
	})
}

// BenchmarkRelease is a server that is inserted and released.
func BenchmarkRelease(b *testing.B) {
	onEachEngine(b, func(b *testing.B, s *celldb.DB) {
		b.Helper()
		for n := 0; b.Loop(); n++ {
			release(b, s, building(n))
		}
	})
}
