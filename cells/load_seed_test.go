// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// born is when the server before the first was created; each came a second after the one before.
var born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// template is the server that all others are copies of, but for what seedCell and seedAPI set.
func template() cellwire.Server {
	name := "template"
	return cellwire.Server{
		UUID: "ffffffff-ffff-4fff-8fff-ffffffffffff", ProjectID: "template", UserID: "user", Name: name,
		Description: &name, Hostname: name,
		ImageRef: "5ff0f6d5-1f3c-4b0c-9d0e-0d4c6c6a1f0e", Zone: "nova", DiskConfig: "AUTO", Reservation: "r-abcdefgh",
		Flavor: cellwire.Flavor{ID: "1",
			Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 512, RootGB: 1,
				ExtraSpecs: map[string]string{"trait:CUSTOM_A": "required"}}},
		Metadata: map[string]string{"role": "web", "stage": "production"}, Tags: []string{"blue"},
		VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning, CreatedAt: born,
	}
}

// uuidOf is the SQL of the model's uuid, of a server's number g.
const uuidOf = "printf('%08x-0000-4000-8000-%012x', g, g)"

// seed makes all databases.
func seed(ctx context.Context, m model, dir string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for c := range m.cells {
		group.Go(func() error { return m.seedCell(ctx, c, dir) })
	}
	return group.Wait()
}

// seedCell makes the database of a cell with its hosts and servers.
func (m model) seedCell(ctx context.Context, c int, dir string) error {
	path := filepath.Join(dir, cellName(c)+".db")
	store, err := celldb.Open(ctx, path, cellName(c), celldb.Options{})
	if err != nil {
		return err
	}
	moment := celldb.Moment{Now: serverstate.TruncateTime(time.Now()), DownTime: downTime}
	for h := range hostsPerCell {
		if _, _, err := store.Report(ctx, serverstate.Reporter{Host: hostName(c, h)},
			cellwire.HostReport{Version: "1"}, moment); err != nil {
			return err
		}
	}
	s := template()
	s.Host, s.Node, s.NodeUUID = hostName(c, 0), hostName(c, 0), "ffffffff-ffff-4fff-8fff-fffffffffffe"
	if _, err := store.Insert(ctx, s, moment); err != nil {
		return err
	}
	if s, err = store.Release(ctx, s.UUID, moment); err != nil {
		return err
	}
	if _, err := store.Apply(ctx, s.Host,
		[]cellwire.Report{{UUID: s.UUID, Kind: cellwire.ReportSpawned, PowerState: plugins.PowerRunning,
			Revision: s.Revision}}, moment); err != nil {
		return err
	}
	if err := store.Close(); err != nil {
		return err
	}
	return direct(ctx, path, func(tx *sql.Tx) error {
		// Server i of the cell is number i*cells+c+1 of all.
		numbers := fmt.Sprintf(
			"WITH RECURSIVE i(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM i WHERE i < %d), n AS (SELECT i, i * %d + "+
				"%d AS g FROM i)",
			m.perCell()-1, m.cells, c+1)
		return multiply(ctx, tx, "instances", numbers, map[string]string{
			"uuid": uuidOf, "project_id": fmt.Sprintf("'p' || (i %% %d)", m.projects), "display_name": "'server-' || g",
			"hostname":   "'server-' || g",
			"created_at": fmt.Sprintf("%d + g * 1000000", born.UnixMicro()),
		}, "uuid = '"+template().UUID+"'")
	})
}

// multiply replaces the one row of a table that a condition is about by copies, one for each row of
// numbers. Set are the columns that differ.
func multiply(ctx context.Context, tx *sql.Tx, table, numbers string, set map[string]string, condition string) error {
	rows, err := tx.QueryContext(ctx, "SELECT name FROM pragma_table_info(?)", table)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var into, from []string
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return err
		}
		if column == "id" {
			continue
		}
		into = append(into, column)
		if expression, ok := set[column]; ok {
			column = expression
		}
		from = append(from, column)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, statement := range []string{
		fmt.Sprintf("INSERT INTO %s (%s) %s SELECT %s FROM %s, n WHERE %s",
			table, strings.Join(into, ", "), numbers, strings.Join(from, ", "), table, condition),
		fmt.Sprintf("DELETE FROM %s WHERE %s", table, condition),
	} {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// direct runs a transaction on a database that no process has open.
func direct(ctx context.Context, path string, do func(*sql.Tx) error) (err error) {
	db, err := sql.Open("sqlite", "file:"+path+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_pragma=cache_size(-65536)")
	if err != nil {
		return err
	}
	defer func() {
		if closing := db.Close(); err == nil {
			err = closing
		}
	}()
	db.SetMaxOpenConns(1)
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// seedAPI makes the API database: cells at their URLs, their hosts, and the mapping and
// specification of each server.
func (m model) seedAPI(t *testing.T, path string, url func(c int) string) {
	t.Helper()
	ctx := t.Context()
	store := testproc.Try(apidb.Open(ctx, path, apidb.Options{})).Or(t)
	var nodes []apidb.Node
	for c := range m.cells {
		cell := apidb.Cell{UUID: cellUUID(c), Name: cellName(c), URL: url(c)}
		testproc.Try(store.CreateCell(ctx, cell)).Or(t)
		for h := range hostsPerCell {
			nodes = append(nodes, apidb.Node{UUID: fmt.Sprintf("%08x-0000-4000-8000-%012x", c, h), Name: hostName(c, h),
				Host: hostName(c, h), CellUUID: cell.UUID})
		}
	}
	check(t, store.MapNodes(ctx, nodes))
	s := template()
	check(t, store.CreateServers(ctx, []apidb.RequestSpec{{Server: s}}, nil))
	check(t, store.Place(ctx, s.UUID, cellUUID(1)))
	check(t, store.FinishBuild(ctx, s.UUID))
	check(t, store.Close())
	check(t, direct(ctx, path, func(tx *sql.Tx) error {
		numbers := fmt.Sprintf(
			"WITH RECURSIVE g(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM g WHERE g < %d), n AS (SELECT g, (g - 1) "+
				"/ %d AS i, (g - 1) %% %[2]d AS c FROM g)",
			m.servers, m.cells)
		if err := multiply(ctx, tx, "instance_mappings", numbers, map[string]string{
			"instance_uuid": uuidOf, "project_id": fmt.Sprintf("'p' || (i %% %d)", m.projects),
			"created_at": fmt.Sprintf("%d + g * 1000000", born.UnixMicro()),
			"cell_id":    "(SELECT id FROM cell_mappings WHERE name = 'cell' || c)",
		}, "instance_uuid = '"+s.UUID+"'"); err != nil {
			return err
		}
		return multiply(ctx, tx, "request_specs", numbers, map[string]string{
			"instance_uuid": uuidOf, "spec": "json_set(spec, '$.uuid', " + uuidOf + ", '$.project_id', 'p' || (i % " +
				fmt.Sprint(m.projects) + "))",
		}, "instance_uuid = '"+s.UUID+"'")
	}))
}
