// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"cmp"
	"container/heap"
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// mappings selects mappings, with their cells.
const mappings = `SELECT m.id, m.instance_uuid, COALESCE(c.uuid, ''), m.project_id, COALESCE(m.user_id, ''), m.queued_for_delete, m.created_at, m.updated_at
	FROM instance_mappings m LEFT JOIN cell_mappings c ON c.id = m.cell_id `

func scanMapping(row sqldb.Row) (m Mapping, err error) {
	var queued sql.NullBool
	var created int64
	var updated sql.NullInt64
	if err := row.Scan(&m.ID, &m.InstanceUUID, &m.CellUUID, &m.ProjectID, &m.UserID, &queued, &created, &updated); err != nil {
		return m, err
	}
	if queued.Valid {
		m.QueuedForDelete = &queued.Bool
	}
	m.CreatedAt = timeOut(created)
	if updated.Valid {
		at := timeOut(updated.Int64)
		m.UpdatedAt = &at
	}
	return m, nil
}

// Mapping implements [Store]. Cost: two look-ups.
func (s *DB) Mapping(ctx context.Context, uuid string) (Mapping, error) {
	m, found, err := sqldb.One(ctx, s.kit.Reader, scanMapping, mappings+"WHERE m.instance_uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("the mapping of server %s", uuid)
	}
	return m, s.failed(ctx, "reading the mapping of server "+uuid, err)
}

// MappingsOf implements [Store]. Cost: two look-ups for each server, in one question.
func (s *DB) MappingsOf(ctx context.Context, uuids []string) (map[string]Mapping, error) {
	found, err := sqldb.All(ctx, s.kit.Reader, scanMapping, mappings+"WHERE m.instance_uuid IN (SELECT value FROM json_each(?))", sqldb.List(uuids))
	if err != nil {
		return nil, s.failed(ctx, "reading mappings", err)
	}
	out := make(map[string]Mapping, len(found))
	for _, m := range found {
		out[m.InstanceUUID] = m
	}
	return out, nil
}

// Mappings implements [Store]. A cell that is not there has none.
//
// Cost: the living ones of each cell are read in the order of an index and merged, so that it is
// the answer and one row for each cell, however many rows there are. Without Living, all mappings
// of the cells (and project) are sorted.
func (s *DB) Mappings(ctx context.Context, f MappingFilter) (out []Mapping, err error) {
	err = s.read(ctx, "listing mappings", func(tx *sql.Tx) error {
		cells, err := sqldb.All(ctx, tx, sqldb.Value[int64], "SELECT id FROM cell_mappings")
		if f.CellUUIDs != nil {
			cells, err = sqldb.All(ctx, tx, sqldb.Value[int64], "SELECT id FROM cell_mappings WHERE uuid IN (SELECT value FROM json_each(?))", sqldb.List(f.CellUUIDs))
		}
		if err != nil {
			return err
		}
		out, err = merged(ctx, tx, f, cells)
		return err
	})
	return out, err
}

func mappingsQuery(f MappingFilter, cell int64) (query string, args []any) {
	var b strings.Builder
	b.WriteString(mappings + "WHERE m.cell_id = ? ")
	args = append(args, cell)
	if f.ProjectID != "" {
		b.WriteString("AND m.project_id = ? ")
		args = append(args, f.ProjectID)
	}
	if f.Living {
		b.WriteString("AND m.queued_for_delete IS NOT 1 ")
	}
	b.WriteString("ORDER BY m.created_at DESC, m.instance_uuid LIMIT ?")
	return b.String(), append(args, limitOf(f.Limit))
}

// merged reads the cells' mappings side by side.
func merged(ctx context.Context, tx *sql.Tx, f MappingFilter, cells []int64) (out []Mapping, err error) {
	var open streams
	for _, cell := range cells {
		query, args := mappingsQuery(f, cell)
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }() // Err says what went wrong
		st := &stream{rows: rows}
		more, err := st.advance()
		if err != nil {
			return nil, err
		}
		if more {
			open = append(open, st)
		}
	}
	heap.Init(&open)
	for len(open) > 0 && (f.Limit <= 0 || len(out) < f.Limit) {
		first := open[0]
		out = append(out, first.head)
		more, err := first.advance()
		if err != nil {
			return nil, err
		}
		if more {
			heap.Fix(&open, 0)
		} else {
			heap.Pop(&open)
		}
	}
	return out, nil
}

// stream is the mappings of one cell, in their order.
type stream struct {
	rows *sql.Rows
	head Mapping
}

func (st *stream) advance() (more bool, err error) {
	if !st.rows.Next() {
		return false, st.rows.Err()
	}
	st.head, err = scanMapping(st.rows)
	return err == nil, err
}

// streams is a heap: the stream whose head is next of all is first.
type streams []*stream

func (s streams) Len() int      { return len(s) }
func (s streams) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s streams) Less(i, j int) bool {
	a, b := s[i].head, s[j].head
	return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.InstanceUUID, b.InstanceUUID)) < 0
}
func (s *streams) Push(x any) { *s = append(*s, x.(*stream)) }
func (s *streams) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = slices.Delete(*s, last, last+1)
	return x
}

// MappingsAfter implements [Store]. Cost: the answer, in the order of an index.
func (s *DB) MappingsAfter(ctx context.Context, cellUUID string, afterID int64, limit int) ([]Mapping, error) {
	out, err := sqldb.All(ctx, s.kit.Reader, scanMapping, mappingsAfter, cellUUID, afterID, limitOf(limit))
	return out, s.failed(ctx, "paging through the mappings of cell "+cellUUID, err)
}

const (
	mappingsAfter = mappings + `WHERE m.cell_id = (SELECT id FROM cell_mappings WHERE uuid = ?) AND m.id > ? AND m.queued_for_delete IS NOT NULL
	ORDER BY m.id LIMIT ?`
	unmigrated = mappings + `WHERE m.cell_id = (SELECT id FROM cell_mappings WHERE uuid = ?) AND m.queued_for_delete IS NULL
	ORDER BY m.id LIMIT ?`
	unmigratedCells = `SELECT c.uuid FROM cell_mappings c
	WHERE EXISTS (SELECT 1 FROM instance_mappings m WHERE m.cell_id = c.id AND m.queued_for_delete IS NULL) ORDER BY c.id`
	projectCells = `SELECT c.uuid FROM cell_mappings c
	WHERE EXISTS (SELECT 1 FROM instance_mappings m WHERE m.cell_id = c.id AND m.project_id = ?) ORDER BY c.id`
)

// SetQueued implements [Store]. Rows that say so already are left alone. Cost: one fsync, and a
// look-up for each server.
func (s *DB) SetQueued(ctx context.Context, queued map[string]bool) error {
	if len(queued) == 0 {
		return nil
	}
	sides := map[bool][]string{}
	for uuid, q := range queued {
		sides[q] = append(sides[q], uuid)
	}
	return s.write(ctx, "setting queued_for_delete", func(tx *sql.Tx) error {
		for q, uuids := range sides {
			if _, err := sqldb.Exec(ctx, tx, `UPDATE instance_mappings SET queued_for_delete = ?1, updated_at = ?2
				WHERE instance_uuid IN (SELECT value FROM json_each(?3)) AND queued_for_delete IS NOT ?1`, q, timeIn(s.now()), sqldb.List(uuids)); err != nil {
				return err
			}
		}
		return nil
	})
}

// ProjectCells implements [Store]: those with mappings of deleted servers as well, in the order of
// Cells. Cost: one look-up for each cell.
func (s *DB) ProjectCells(ctx context.Context, projectID string) ([]string, error) {
	out, err := sqldb.All(ctx, s.kit.Reader, sqldb.Value[string], projectCells, projectID)
	return out, s.failed(ctx, "listing the cells of project "+projectID, err)
}

// Unmigrated implements [Store], oldest first. Cost: the answer, in the order of an index.
func (s *DB) Unmigrated(ctx context.Context, cellUUID string, limit int) ([]Mapping, error) {
	out, err := sqldb.All(ctx, s.kit.Reader, scanMapping, unmigrated, cellUUID, limitOf(limit))
	return out, s.failed(ctx, "listing what is not migrated of cell "+cellUUID, err)
}

// UnmigratedCells implements [Store], in the order of Cells. Cost: one look-up for each cell.
func (s *DB) UnmigratedCells(ctx context.Context) ([]string, error) {
	out, err := sqldb.All(ctx, s.kit.Reader, sqldb.Value[string], unmigratedCells)
	return out, s.failed(ctx, "listing cells with mappings that are not migrated", err)
}

// readSpec reads the specification of a server. In those of older programs its uuid has another
// name.
func (s *DB) readSpec(uuid, text string) (spec RequestSpec, err error) {
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return spec, s.damaged("the specification of server "+uuid, err)
	}
	spec.UUID = uuid
	return spec, nil
}

// RequestSpec implements [Store]. Cost: one look-up.
func (s *DB) RequestSpec(ctx context.Context, uuid string) (RequestSpec, error) {
	spec, found, err := sqldb.One(ctx, s.kit.Reader, func(row sqldb.Row) (RequestSpec, error) {
		var text string
		if err := row.Scan(&text); err != nil {
			return RequestSpec{}, err
		}
		return s.readSpec(uuid, text)
	}, "SELECT spec FROM request_specs WHERE instance_uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("the specification of server %s", uuid)
	}
	return spec, s.failed(ctx, "reading the specification of server "+uuid, err)
}
