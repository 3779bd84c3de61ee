// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// filled is the uuid of a row of fill's.
func filled(i int) string { return fmt.Sprintf("%08x-1111-4111-8111-000000000000", i) }

// fill writes living servers of 100 projects, evenly over cells 1 to cells, by statements of its
// own: a second later each.
func fill(t testing.TB, name string, n, cells int) {
	t.Helper()
	ids := map[string]string{}
	for _, row := range ask(t, name, "SELECT name, id FROM cell_mappings") {
		cell, id, _ := strings.Cut(row, "|")
		ids[cell] = id
	}
	var mappings, specs, statements []string
	for i := range n {
		mappings = append(mappings, fmt.Sprintf("('%s', %s, 'p%d', 'u', 0, %d)",
			filled(i), ids[fmt.Sprint("cell", 1+i%cells)], i/cells%100, start.UnixMicro()+int64(i)*1000000))
		specs = append(specs, fmt.Sprintf(`('%s', 2, 512, '{"instance_uuid": "%[1]s"}')`, filled(i)))
		if len(specs) == 1000 || i == n-1 {
			statements = append(statements,
				"INSERT INTO instance_mappings (instance_uuid, cell_id, project_id, user_id, queued_for_delete, "+
					"created_at) VALUES "+strings.Join(mappings, ", "),
				"INSERT INTO request_specs (instance_uuid, vcpus, memory_mb, spec) VALUES "+strings.Join(specs, ", "))
			mappings, specs = nil, nil
		}
	}
	execute(t, name, statements...)
}

// setQueued writes what no method does: nil is NULL.
func setQueued(name, uuid string, queued any) error {
	return direct(name, settingQueued(uuid, queued))
}

func settingQueued(uuid string, queued any) string {
	if queued == nil {
		queued = "NULL"
	}
	return fmt.Sprintf("UPDATE instance_mappings SET queued_for_delete = %v WHERE instance_uuid = '%s'", queued, uuid)
}

// erase removes all servers.
func erase(name string) error { return direct(name, "DELETE FROM instance_mappings") }

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
			if c, err := s.CountProject(ctx, "p7", "", every); err != nil || c.Instances != 1000 {
				b.Fatal(c, err)
			}
		}
	})
	b.Run("one", func(b *testing.B) {
		for b.Loop() {
			testproc.Try(s.Mapping(ctx, filled(77777))).Or(b)
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
		{"one cell, one project", apidb.MappingFilter{ProjectID: "p7", CellUUIDs: every[:1], Living: true, Limit: 1000},
			20},
		{"one cell, all projects", apidb.MappingFilter{CellUUIDs: every[:1], Living: true, Limit: 1000}, 1000},
		{"all cells, one project", apidb.MappingFilter{ProjectID: "p7", CellUUIDs: every, Living: true, Limit: 1000},
			1000},
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
		must(b, s.FinishBuild(ctx, uuid))
	}
}
