// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// filled is the uuid of a row of fill's.
func filled(i int) string { return fmt.Sprintf("%08x-1111-4111-8111-000000000000", i) }

// fill writes living servers of 100 projects, evenly over cells 1 to cells, by statements of its
// own: a second later each.
func fill(t testing.TB, path string, n, cells int) {
	t.Helper()
	execute(t, path, fmt.Sprintf(`WITH RECURSIVE i(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM i WHERE i < %d)
		INSERT INTO instance_mappings (instance_uuid, cell_id, project_id, user_id, queued_for_delete, created_at)
		SELECT printf('%%08x-1111-4111-8111-000000000000', i), (SELECT id FROM cell_mappings WHERE name = 'cell' || (1 + i %% %d)), 'p' || ((i / %d) %% 100), 'u', 0,
			%d + i * 1000000 FROM i`, n-1, cells, cells, start.UnixMicro()),
		`INSERT INTO request_specs (instance_uuid, vcpus, memory_mb, spec) SELECT instance_uuid, 2, 512, '{"instance_uuid": "' || instance_uuid || '"}' FROM instance_mappings`)
}

// setQueued writes what no method does: NULL.
func setQueued(path, uuid string, queued any) error {
	return direct(path, "UPDATE instance_mappings SET queued_for_delete = ? WHERE instance_uuid = ?", queued, uuid)
}

// erase removes all servers.
func erase(path string) error { return direct(path, "DELETE FROM instance_mappings") }

func direct(path, statement string, args ...any) (err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=synchronous(OFF)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.Exec(statement, args...)
	return err
}

// BenchmarkMappings lists the living servers of cells that are down: 100,000 rows in 50 cells.
func BenchmarkMappings(b *testing.B) {
	path := b.TempDir() + "/api.db"
	s := open(b, path, apidb.Options{})
	defer shut(b, s)
	withCells(b, s, 50)
	fill(b, path, 100000, 50)
	var every []string
	for i := range 50 {
		every = append(every, cellUUID(i+1))
	}
	for _, c := range mappingsCases(every) {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				got, err := s.Mappings(ctx, c.filter)
				if err != nil || len(got) != c.rows {
					b.Fatal(len(got), err)
				}
			}
		})
	}
	b.Run("count of a project", func(b *testing.B) {
		for b.Loop() {
			if c, err := s.CountProject(ctx, "p7", every); err != nil || c.Instances != 1000 {
				b.Fatal(c, err)
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Mapping(ctx, filled(77777)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

type mappingsCase struct {
	name   string
	filter apidb.MappingFilter
	rows   int
}

func mappingsCases(every []string) []mappingsCase {
	return []mappingsCase{
		{"one cell, one project", apidb.MappingFilter{ProjectID: "p7", CellUUIDs: every[:1], Living: true, Limit: 1000}, 20},
		{"one cell, all projects", apidb.MappingFilter{CellUUIDs: every[:1], Living: true, Limit: 1000}, 1000},
		{"all cells, one project", apidb.MappingFilter{ProjectID: "p7", CellUUIDs: every, Living: true, Limit: 1000}, 1000},
		{"all cells, all projects", apidb.MappingFilter{CellUUIDs: every, Living: true, Limit: 1000}, 1000},
	}
}

// BenchmarkBoot is all that a boot writes: four transactions, each with its fsync.
func BenchmarkBoot(b *testing.B) {
	s := open(b, b.TempDir()+"/api.db", apidb.Options{})
	defer shut(b, s)
	withCells(b, s, 1)
	i := 0
	for b.Loop() {
		uuid := filled(i)
		i++
		must(b, s.CreateServers(ctx, []apidb.RequestSpec{server(uuid, "p")}, func(apidb.Counts) error { return nil }))
		must(b, s.Claim(ctx, apidb.Claim{InstanceUUID: uuid, NodeUUID: "n", CellUUID: cellUUID(1)}))
		must(b, s.Place(ctx, uuid, cellUUID(1)))
		must(b, s.Built(ctx, uuid))
	}
}
