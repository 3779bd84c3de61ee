// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"cmp"
	"container/heap"
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// mappings selects mappings, with their cells.
const mappings = `SELECT m.id, m.instance_uuid, COALESCE(c.uuid, ''), m.project_id, COALESCE(m.user_id, ''), m.queued_for_delete, m.created_at, m.updated_at
	FROM instance_mappings m LEFT JOIN cell_mappings c ON c.id = m.cell_id `

func scanMapping(row sqldb.Row) (m Mapping, err error) {
	var queued sql.NullBool
	var created int64
	var updated sql.NullInt64
	if err := row.Scan(&m.ID, &m.InstanceUUID, &m.CellUUID,
		&m.ProjectID, &m.UserID, &queued, &created, &updated); err != nil {
		return m, err
	}
	if queued.Valid {
		m.QueuedForDelete = &queued.Bool
	}
	m.CreatedAt = fromMicros(created)
	if updated.Valid {
		at := fromMicros(updated.Int64)
		m.UpdatedAt = &at
	}
	return m, nil
}

// Mapping implements [Store]. Cost: two look-ups.
func (db *DB) Mapping(ctx context.Context, uuid string) (Mapping, error) {
	m, found, err := sqldb.One(ctx, db.kit.Reader, scanMapping, mappings+"WHERE m.instance_uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("the mapping of server %s", uuid)
	}
	return m, db.failed(ctx, "reading the mapping of server "+uuid, err)
}

// MappingsOf implements [Store]. Cost: two look-ups for each server, in one question.
func (db *DB) MappingsOf(ctx context.Context, uuids []string) (map[string]Mapping, error) {
	found, err := sqldb.All(ctx, db.kit.Reader, scanMapping, mappingsOf(db.kit.Dialect), sqldb.List(uuids))
	if err != nil {
		return nil, db.failed(ctx, "reading mappings", err)
	}
	out := make(map[string]Mapping, len(found))
	for _, m := range found {
		out[m.InstanceUUID] = m
	}
	return out, nil
}

// Mappings implements [Store]. A cell that is not there has none.
//
// Cost: the living ones of each cell are read in the order of an index, page by page, and merged,
// so that it is the answer and a page for each cell, however many rows there are. Without Living,
// all mappings of the cells (and project) are sorted.
func (db *DB) Mappings(ctx context.Context, f MappingFilter) (out []Mapping, err error) {
	err = db.read(ctx, "listing mappings", func(tx *sql.Tx) error {
		cells, err := sqldb.All(ctx, tx, sqldb.Value[int64], "SELECT id FROM cell_mappings")
		if f.CellUUIDs != nil {
			cells, err = sqldb.All(ctx, tx, sqldb.Value[int64], "SELECT id FROM cell_mappings WHERE uuid IN ("+
				db.kit.Dialect.Texts+")", sqldb.List(f.CellUUIDs))
		}
		if err != nil {
			return err
		}
		out, err = db.mergePages(ctx, tx, f, cells)
		return err
	})
	return out, err
}

// livingConditions together select the servers that are not known to be deleted. Each condition has
// an index that is in the order of lists.
func livingConditions(d *engine.Dialect) []string {
	if d == engine.MySQL { // it has no partial indexes
		return []string{"m.queued_for_delete = 0", "m.queued_for_delete IS NULL"}
	}
	return []string{"m.queued_for_delete IS DISTINCT FROM 1"}
}

// mappingsOf selects the mappings of servers.
func mappingsOf(d *engine.Dialect) string {
	return mappings + "WHERE m.instance_uuid IN (" + d.Texts + ")"
}

// page is a query for mappings of one cell, in the order of lists, that go on after others.
type page struct {
	where string
	args  []any
	size  int
}

// pages are the pages whose merged rows are those of a filter, in some cells.
func pages(d *engine.Dialect, f MappingFilter, cells []int64) (out []page) {
	conditions := []string{""}
	if f.Living {
		conditions = livingConditions(d)
	}
	size := limitOf(f.Limit)
	if f.Living { // else each page sorts all there is
		size = min(size, max(leastPage, 2*f.Limit/max(len(cells), 1)))
	}
	for _, cell := range cells {
		for _, condition := range conditions {
			p := page{where: "WHERE m.cell_id = ?", args: []any{cell}, size: size}
			if f.ProjectID != "" {
				p.where, p.args = p.where+" AND m.project_id = ?", append(p.args, f.ProjectID)
			}
			if condition != "" {
				p.where += " AND " + condition
			}
			out = append(out, p)
		}
	}
	return out
}

// leastPage is the least size of a page: a query costs as much as some rows do.
const leastPage = 50

// queryAfter is the query for the rows that come after one; nil: the first ones.
func (p page) queryAfter(last *Mapping) (query string, args []any) {
	query, args = mappings+p.where, slices.Clone(p.args)
	if last != nil {
		at := micros(last.CreatedAt)
		query, args = query+" AND m.created_at <= ? AND (m.created_at < ? OR m.instance_uuid > ?)",
			append(args, at, at, last.InstanceUUID)
	}
	return query + " ORDER BY m.created_at DESC, m.instance_uuid LIMIT ?", append(args, p.size)
}

// mergePages reads the cells' mappings side by side.
func (db *DB) mergePages(ctx context.Context, tx *sql.Tx, f MappingFilter, cells []int64) (out []Mapping, err error) {
	var open streams
	for _, p := range pages(db.kit.Dialect, f, cells) {
		st := &stream{page: p, more: true}
		more, err := st.advance(ctx, tx)
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
		if f.Limit > 0 && len(out) == f.Limit {
			break
		}
		more, err := first.advance(ctx, tx)
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

// stream is the mappings of one page after the other, in their order.
type stream struct {
	page page
	head Mapping
	rest []Mapping // of the page that was read
	more bool      // there may be another page
}

func (st *stream) advance(ctx context.Context, tx *sql.Tx) (more bool, err error) {
	if len(st.rest) == 0 && st.more {
		var last *Mapping
		if st.head.ID != 0 {
			last = &st.head
		}
		query, args := st.page.queryAfter(last)
		if st.rest, err = sqldb.All(ctx, tx, scanMapping, query, args...); err != nil {
			return false, err
		}
		st.more = len(st.rest) == st.page.size
	}
	if len(st.rest) == 0 {
		return false, nil
	}
	st.head, st.rest = st.rest[0], st.rest[1:]
	return true, nil
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
func (db *DB) MappingsAfter(ctx context.Context, cellUUID string, afterID int64, limit int) ([]Mapping, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, scanMapping, mappingsAfter, cellUUID, afterID, limitOf(limit))
	return out, db.failed(ctx, "paging through the mappings of cell "+cellUUID, err)
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
func (db *DB) SetQueued(ctx context.Context, queued map[string]bool) error {
	if len(queued) == 0 {
		return nil
	}
	sides := map[bool][]string{}
	for _, uuid := range slices.Sorted(maps.Keys(queued)) {
		sides[queued[uuid]] = append(sides[queued[uuid]], uuid)
	}
	return db.write(ctx, "setting queued_for_delete", func(tx *sql.Tx) error {
		at := micros(db.now())
		for q, uuids := range sides {
			for some := range slices.Chunk(uuids, batch) {
				args := []any{q, at, q}
				for _, uuid := range some {
					args = append(args, uuid)
				}
				in := " IN (" + sqldb.Placeholders(len(some)) + ")"
				if _, err := sqldb.Exec(ctx, tx, `UPDATE instance_mappings SET queued_for_delete = ?, updated_at = ?
					WHERE (queued_for_delete IS NULL OR queued_for_delete <> ?) AND instance_uuid`+in, args...); err != nil {
					return err
				}
				if !q {
					continue
				}
				if _, err := sqldb.Exec(ctx, tx, "DELETE FROM console_tokens WHERE instance_uuid"+in,
					args[3:]...); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// ProjectCells implements [Store]: those with mappings of deleted servers as well, in the order of
// Cells. Cost: one look-up for each cell.
func (db *DB) ProjectCells(ctx context.Context, projectID string) ([]string, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, sqldb.Value[string], projectCells, projectID)
	return out, db.failed(ctx, "listing the cells of project "+projectID, err)
}

// Unmigrated implements [Store], oldest first. Cost: the answer, in the order of an index.
func (db *DB) Unmigrated(ctx context.Context, cellUUID string, limit int) ([]Mapping, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, scanMapping, unmigrated, cellUUID, limitOf(limit))
	return out, db.failed(ctx, "listing what is not migrated of cell "+cellUUID, err)
}

// UnmigratedCells implements [Store], in the order of Cells. Cost: one look-up for each cell.
func (db *DB) UnmigratedCells(ctx context.Context) ([]string, error) {
	out, err := sqldb.All(ctx, db.kit.Reader, sqldb.Value[string], unmigratedCells)
	return out, db.failed(ctx, "listing cells with mappings that are not migrated", err)
}

// readSpec reads the specification of a server. In those of older programs its uuid has another
// name.
func (db *DB) readSpec(uuid, text string) (spec RequestSpec, err error) {
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return spec, db.damaged("the specification of server "+uuid, err)
	}
	spec.UUID = uuid
	return spec, nil
}

// RequestSpec implements [Store]. Cost: one look-up.
func (db *DB) RequestSpec(ctx context.Context, uuid string) (RequestSpec, error) {
	spec, found, err := sqldb.One(ctx, db.kit.Reader, func(row sqldb.Row) (RequestSpec, error) {
		var text string
		if err := row.Scan(&text); err != nil {
			return RequestSpec{}, err
		}
		return db.readSpec(uuid, text)
	}, "SELECT spec FROM request_specs WHERE instance_uuid = ?", uuid)
	if err == nil && !found {
		err = notFound("the specification of server %s", uuid)
	}
	return spec, db.failed(ctx, "reading the specification of server "+uuid, err)
}
