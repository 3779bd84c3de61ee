// SPDX-License-Identifier: Apache-2.0

package listing

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/wire"
)

// leastBatch is how many rows a cell is asked for at least, if so many are wanted, and growth how much more it is asked for each time that they
// were not enough.
const (
	leastBatch = 10
	growth     = 4
)

// Result is a page of servers.
type Result struct {
	// Rows are at most Limit, sorted as asked. No uuid is there twice; of a server in two cells the first row counts.
	Rows []wire.Row
	// Down are the cells that have no rows in it because they are down, in the order of the cells given.
	Down []apidb.Cell
	// More says that there are more after these, in the cells that are up.
	More bool
}

// Servers lists the servers of the cells. A query that means nothing is a *wire.Error; another error is the end of ctx. What cells
// do wrong is in Down.
//
// Each cell has the gatherer's Timeout for all its batches together. Memory holds the result and about a batch of each cell.
func Servers(ctx context.Context, g *gather.Gatherer, cells []apidb.Cell, q wire.ServerQuery) (Result, error) {
	if err := q.Check(); err != nil {
		return Result{}, err
	}
	l := &list{query: q, order: orderOf(q.Sort), gatherer: g, budget: g.NewBudget(), batch: batchSize(q.Limit, len(cells))}
	for i, cell := range cells {
		l.sources = append(l.sources, &source{index: i, cell: cell, last: q.After, more: true})
	}
	for wanting := l.sources; len(wanting) > 0; {
		if err := l.fetch(ctx, wanting); err != nil {
			return Result{}, err
		}
		wanting = l.merge()
	}
	return l.result(), nil
}

// batchSize is how many rows a cell is asked for first: its part of the limit, and as many more as chance may give it when servers were spread
// evenly (four standard deviations), so that hardly any cell is asked twice. A cell that has more than its part, because the others have nothing
// for this list, is asked again, for several times as many. Nova's "distributed" strategy adds a tenth, and never asks for less than 100: with 50 cells
// that is 5,000 rows for a page of 100, which is most of what the page costs.
func batchSize(limit, cells int) int {
	if cells <= 1 {
		return limit
	}
	part := (limit + cells - 1) / cells
	return min(limit, max(leastBatch, part+int(4*math.Sqrt(float64(part)))))
}

// list is one list being made.
type list struct {
	query    wire.ServerQuery
	order    order
	gatherer *gather.Gatherer
	budget   *gather.Budget
	batch    int // rows that a cell is asked for first
	sources  []*source

	merged  []wire.Row
	emitted map[string]struct{} // uuids of merged
	rewind  bool                // merged has rows of a source that is down
}

// source is what one cell gave.
type source struct {
	index int // among the cells
	cell  apidb.Cell
	rows  []wire.Row
	seen  map[string]struct{} // uuids of rows
	next  int                 // row to be merged
	last  wire.Key            // of the last row, after which to go on
	more  bool                // the cell has more after these
	batch int                 // rows that it was asked for the last time
	down  bool
}

// fetch asks cells for a batch each and keeps what counts.
func (l *list) fetch(ctx context.Context, from []*source) error {
	// No more than can be needed, but not row by row either, as servers that are in two cells would have it.
	most := max(leastBatch, l.query.Limit-len(l.merged))
	cells := make([]apidb.Cell, len(from))
	for i, s := range from {
		cells[i], s.batch = s.cell, min(most, max(l.batch, growth*s.batch))
	}
	answers := gather.Each(ctx, l.gatherer, l.budget, cells, func(ctx context.Context, i int, c *cellclient.Client) (wire.ServerPage, error) {
		q := l.query
		q.Limit, q.After = from[i].batch, from[i].last
		page, err := c.Servers(ctx, q)
		if err != nil {
			return wire.ServerPage{}, understood(err)
		}
		if err := l.order.check(page, from[i], from[i].batch); err != nil {
			return wire.ServerPage{}, &cellclient.Failure{Kind: cellclient.Broken, Sent: true, Err: err}
		}
		return page, nil
	})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("listing servers: %w", err)
	}
	for i, a := range answers {
		if a.Err != nil {
			l.rewind = l.rewind || from[i].next > 0
			*from[i] = source{index: from[i].index, cell: from[i].cell, down: true}
			continue
		}
		from[i].take(a.Value)
	}
	return nil
}

// understood makes a broken answer of a refusal: the query is right, so a cell that does not take it is none that can be listed. Whom the cell does
// not let in is another matter.
func understood(err error) error {
	var refusal *wire.Error
	if errors.As(err, &refusal) && refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden {
		return &cellclient.Failure{Kind: cellclient.Broken, Sent: true, Err: errors.New("it refused a query that it should take: " + err.Error())}
	}
	return err
}

// take keeps a page that was checked.
func (s *source) take(page wire.ServerPage) {
	if s.seen == nil {
		s.seen = make(map[string]struct{}, len(page.Rows))
	}
	for i := range page.Rows {
		s.seen[page.Rows[i].Server.UUID] = struct{}{}
	}
	if s.rows == nil {
		s.rows = page.Rows
	} else {
		s.rows = append(s.rows, page.Rows...)
	}
	s.more = page.More
	if len(s.rows) > 0 {
		s.last = s.rows[len(s.rows)-1].Key
	}
}

// result is what was merged.
func (l *list) result() Result {
	r := Result{Rows: l.merged}
	for _, s := range l.sources {
		if s.down {
			r.Down = append(r.Down, s.cell)
			continue
		}
		r.More = r.More || s.more || slices.ContainsFunc(s.rows[s.next:], func(row wire.Row) bool {
			_, there := l.emitted[row.Server.UUID]
			return !there
		})
	}
	return r
}
