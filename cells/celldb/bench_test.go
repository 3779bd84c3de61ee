// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// crowded is a store with a project of 100,000 active servers on 1,000 hosts, copied from one that
// was made by the book.
func crowded(b *testing.B) *celldb.DB {
	b.Helper()
	const servers, hosts = 100_000, 1_000
	path := filepath.Join(b.TempDir(), "cell.db")
	s := open(b, path)
	if _, _, err := s.Report(ctx, "h1", cellwire.HostReport{}, moment); err != nil {
		b.Fatal(err)
	}
	first := building(0)
	first.Tags, first.Metadata = []string{"blue"}, map[string]string{"k": "v"}
	release(b, s, first)
	if _, err := s.Apply(ctx, "h1", []cellwire.Report{{UUID: sid(0), Kind: cellwire.ReportSpawned, PowerState: 1}}, moment); err != nil {
		b.Fatal(err)
	}
	closeStore(b, s)
	columns := `project_id, user_id, display_description, hostname, image_ref, flavor_id, vcpus, memory_mb, availability_zone, config_drive, disk_config, access_ip_v4,
		access_ip_v6, locked, reservation_id, launch_index, node, node_uuid, vm_state, task_state, power_state, updated_at, changed_at, launched_at, terminated_at,
		deleted_at, inserted_at, gone, hidden, cleanup_due, unfreed, revision, want_revision, digest, tags, metadata, rest`
	execute(b, path,
		fmt.Sprintf(`WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
			INSERT INTO services (uuid, host, version, last_seen_up, created_at, updated_at, revision)
			SELECT printf('5e41ce00-0000-4000-8000-%%012x', n.n), 'host-' || n.n, '1', last_seen_up, created_at, updated_at, revision FROM services, n`, hosts-1),
		fmt.Sprintf(`WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
			INSERT INTO compute_nodes (uuid, host, hypervisor_hostname, created_at) SELECT printf('90de0000-0000-4000-8000-%%012x', n), 'host-' || n, 'host-' || n, 0 FROM n`, hosts),
		fmt.Sprintf(`WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < %d)
			INSERT INTO instances (uuid, display_name, host, created_at, %s)
			SELECT printf('5e000000-0000-4000-8000-%%012x', n), 'server-' || n, 'host-' || (n %% %d), created_at + n * 1000, %[2]s FROM instances, n`, servers-1, columns, hosts))
	s = open(b, path)
	b.Cleanup(func() { closeStore(b, s) })
	return s
}

// BenchmarkList is a page of 100 of the default list of a project with 100,000 servers: the first,
// and one in the middle.
func BenchmarkList(b *testing.B) {
	s := crowded(b)
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
	s := crowded(b)
	for b.Loop() {
		got, err := s.Discovery(ctx, "p", moment)
		if err != nil || got.Usage.Instances != 100_000 || len(got.Services) != 1000 || len(got.Nodes) != 1000 {
			b.Fatal(got.Usage, len(got.Services), len(got.Nodes), err)
		}
	}
}

// BenchmarkReport is a host's sign of life, one of many a second.
func BenchmarkReport(b *testing.B) {
	s := fresh(b)
	for b.Loop() {
		if _, _, err := s.Report(ctx, "h1", cellwire.HostReport{Version: "1"}, moment); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWork is an agent's poll for newer state when there is none, and for all of it.
func BenchmarkWork(b *testing.B) {
	s := crowded(b)
	info, err := s.Info(ctx)
	if err != nil {
		b.Fatal(err)
	}
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
	s := fresh(b)
	for n := 0; b.Loop(); n++ {
		insert(b, s, building(n))
	}
}
