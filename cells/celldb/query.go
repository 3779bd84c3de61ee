// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/celldb/serverquery"
	"github.com/compute-agent/compute-agent/cells/cellwire"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// initialRows is the initial capacity in rows: a list over many cells asks for no more.
const initialRows = 40

// Servers is a page of servers. Sorted by created_at it reads the page's rows from an index, and
// those before the page not at all; sorted by something else it reads all rows that match and keeps
// the page's. Patterns, tags and metadata are looked at row by row as they come.
func (d *DB) Servers(ctx context.Context, q cellwire.ServerQuery, m Moment) (page cellwire.ServerPage, err error) {
	const op = "listing servers from"
	if err := serverquery.Check(q); err != nil {
		return cellwire.ServerPage{}, err
	}
	if residual := d.engine.Residual(q); residual != nil {
		err = d.read(ctx, op, func(db sqldb.Querier) error {
			page, err = d.filterRows(ctx, db, q, residual, m)
			return err
		})
		return page, err
	}
	page, err = d.page(ctx, q, m)
	if err != nil {
		return cellwire.ServerPage{}, d.kit.Explain(ctx, op, err)
	}
	return page, nil
}

// page answers a query with one statement.
func (d *DB) page(ctx context.Context, q cellwire.ServerQuery, m Moment) (cellwire.ServerPage, error) {
	columns, from := "SELECT i.id, i.uuid, i.display_name%s", " FROM instances i "
	if !q.Brief {
		columns, from = selectRecords, ""
	}
	query, args, keys := d.engine.Statement(q, columns, from)
	page, weight := cellwire.ServerPage{Rows: make([]cellwire.Row, 0, min(q.Limit, initialRows))}, 0
	var brief cellwire.Server
	key, into := serverquery.NewKey(keys)
	briefly, reader := append([]any{&brief.ID, &brief.UUID, &brief.Name}, into...), newRecordReader(into...)
	err := sqldb.Each(ctx, d.kit.Reader, query, args, func(row sqldb.Row) error {
		if len(page.Rows) == q.Limit {
			page.More = true
			return sqldb.ErrEnough
		}
		if q.Brief {
			if err := row.Scan(briefly...); err != nil {
				return err
			}
			page.Rows = append(page.Rows, cellwire.Row{Server: brief, Key: serverquery.KeyOf(key)})
			return nil
		}
		r, err := reader.read(row)
		if err != nil {
			return err
		}
		if weight += Weight(r.Server); weight > MaxAnswer && len(page.Rows) > 0 {
			page.More = true
			return sqldb.ErrEnough
		}
		page.Rows = append(page.Rows, cellwire.Row{Server: r.server(m), Key: serverquery.KeyOf(key)})
		return nil
	})
	return page, err
}

const (
	// siftedFirst is how many rows are looked at in the first part, siftedMore how many times as
	// many in the next: each part has to be sorted if there is no index in its order.
	siftedFirst, siftedMore = 1000, 8
	// readAtOnce is how many servers are read of those that were found.
	readAtOnce = 500
)

// filterRows answers a query with a residual. It first finds the matching rows, part by part and
// with few columns, and then reads the rows of the page.
func (d *DB) filterRows(
	ctx context.Context, db sqldb.Querier, q cellwire.ServerQuery, r *serverquery.Residual, m Moment,
) (cellwire.ServerPage, error) {
	columns := "SELECT i.id, i.uuid, i.display_name, " + strings.Join(r.Columns, ", ") + "%s"
	var found []cellwire.Row
	part := q
	for size := max(siftedFirst, q.Limit); len(found) <= q.Limit; size *= siftedMore {
		part.Limit = size
		query, args, keys := d.engine.Statement(part, columns, " FROM instances i ")
		var server cellwire.Server
		values := make([]sql.NullString, len(r.Columns))
		key, into := serverquery.NewKey(keys)
		into = slices.Concat([]any{&server.ID, &server.UUID, &server.Name}, pointers(values), into)
		n := 0
		if err := sqldb.Each(ctx, db, query, args, func(row sqldb.Row) error {
			n++
			if err := row.Scan(into...); err != nil {
				return err
			}
			part.After = serverquery.KeyOf(key)
			ok, err := r.Holds(values)
			if ok && len(found) <= q.Limit {
				found = append(found, cellwire.Row{Server: server, Key: part.After})
			}
			return err
		}); err != nil {
			return cellwire.ServerPage{}, err
		}
		if n <= size { // these were all
			break
		}
	}
	page := cellwire.ServerPage{Rows: found, More: len(found) > q.Limit}
	if page.More {
		page.Rows = found[:q.Limit]
	}
	if page.Rows == nil {
		page.Rows = []cellwire.Row{}
	}
	if q.Brief {
		return page, nil
	}
	return d.readRows(ctx, db, page, m)
}

func pointers(values []sql.NullString) []any {
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	return into
}

// readRows reads the servers of a page, as many as fit into MaxAnswer.
func (d *DB) readRows(
	ctx context.Context, db sqldb.Querier, page cellwire.ServerPage, m Moment,
) (cellwire.ServerPage, error) {
	query := fmt.Sprintf(selectRecords, "") + "WHERE i.uuid IN (" + d.engine.Texts + ")"
	weight, done := 0, 0
	for part := range slices.Chunk(page.Rows, readAtOnce) {
		uuids := make([]string, len(part))
		for i := range part {
			uuids[i] = part[i].Server.UUID
		}
		servers, reader := make(map[string]cellwire.Server, len(part)), newRecordReader()
		if err := sqldb.Each(ctx, db, query, []any{sqldb.List(uuids)}, func(row sqldb.Row) error {
			r, err := reader.read(row)
			if err == nil {
				servers[r.Server.UUID] = r.server(m)
			}
			return err
		}); err != nil {
			return cellwire.ServerPage{}, err
		}
		for i, uuid := range uuids {
			part[i].Server = servers[uuid]
			if weight += Weight(part[i].Server); weight > MaxAnswer && done > 0 {
				return cellwire.ServerPage{Rows: page.Rows[:done], More: true}, nil
			}
			done++
		}
	}
	return page, nil
}

// MaxAnswer bounds the servers of one answer, in bytes by their [Weight]: what does not fit comes
// with the next one. If every character has to be escaped an answer is six times as long as that,
// which is still less than the 64 MiB that clients read.
const MaxAnswer = 8 << 20

// Weight is the approximate size of a server in an answer in bytes, without escapes: nearly all of
// it is its owner's data.
func Weight(s cellwire.Server) int {
	const others = 1 << 10 // keys, states and times
	n := others + len(s.Name) + len(s.Hostname) + len(s.UserData) + len(s.ImageRef) + len(s.ProjectID) + len(s.UserID) +
		len(s.KeyName) + len(s.KeyData)
	if s.Description != nil {
		n += len(*s.Description)
	}
	if s.Fault != nil {
		n += len(s.Fault.Message) + len(s.Fault.Details)
	}
	for _, texts := range []map[string]string{s.Metadata, s.Flavor.ExtraSpecs} {
		for key, value := range texts {
			n += len(key) + len(value) + 6
		}
	}
	for _, texts := range [][]string{s.Tags, s.TrustedCerts} {
		for _, text := range texts {
			n += len(text) + 3
		}
	}
	return n
}
