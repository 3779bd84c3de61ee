// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// One sorted page of servers out of the pages of many cells:
//
//	cell A ── rows 1-100 ──┐
//	cell B ── rows 1-100 ──┼── merge ── until the page is full, or a cell runs out
//	cell C ── rows 1-100 ──┘      ▲                                  │
//	                              └──────────── its next rows ───────┘
//
// All cells are asked at once for a batch each, and again only those whose batch is used up. A cell
// that goes down, in whichever batch, contributes no rows: the rows it returned before are dropped,
// so that all of its servers are listed once, as minimal records. Therefore nothing is written
// before the merge ends.
//
// A page of a cell counts only if it is sorted, follows the page before and repeats no server.
// Otherwise the cell is broken: merging it would disorder the rows of the other cells.

// minBatch is how many rows a cell is asked for at least, if so many are wanted, and growth how
// much more it is asked for each time that they were not enough.
const (
	minBatch    = 10
	batchGrowth = 4
)

// mergedServers is a page of servers.
type mergedServers struct {
	// Rows are at most Limit, sorted. No uuid is repeated; of a server in two cells the first row
	// counts.
	Rows []cellwire.Row
	// Down are the cells that have no rows in it because they are down, in the order of the cells
	// given.
	Down []apidb.Cell
	// Late says that one of them is not known to be worse than slow.
	Late bool
	// More says that there are more after these, in the cells that are up.
	More bool
}

// mergeServers lists the servers of the cells. Failures of cells are in Down.
//
// Each cell has the gatherer's Timeout for each of its batches. Memory holds the result and about a
// batch of each cell.
//
// Errors: a *cellwire.Error for an invalid query; any other is that of ctx.
func mergeServers(
	ctx context.Context, g *gather.Gatherer, cells []apidb.Cell, q cellwire.ServerQuery,
) (last mergedServers, err error) {
	err = mergeServersEarly(ctx, g, cells, q, func(r mergedServers) error {
		last = r
		return nil
	})
	return last, err
}

// mergeServersEarly is mergeServers that passes the result to use. While a cell does not answer, it
// passes the result without that cell in advance: all requests that wait for this cell time out at
// the same moment, and then only send what is prepared. The last result counts; one that is equal
// to the last is not passed again, unless use failed. The error of use for the final result is
// returned.
func mergeServersEarly(
	ctx context.Context, g *gather.Gatherer, cells []apidb.Cell, q cellwire.ServerQuery, use func(mergedServers) error,
) error {
	if err := q.Check(); err != nil {
		return err
	}
	sm := &serverMerge{query: q, order: keyOrderOf(q.Sort), batch: batchSize(q.Limit, len(cells))}
	for i, cell := range cells {
		sm.sources = append(sm.sources, &cellSource{index: i, cell: cell, last: q.After, more: true})
	}
	if len(cells) == 0 {
		return use(sm.result())
	}
	sm.request = gather.Begin[cellwire.ServerPage](ctx, g, len(cells))
	defer sm.request.End()
	sm.fetch(sm.sources)
	var foreseen *mergedServers
	for sm.request.Pending() > 0 {
		i, answer, ok := sm.request.Next()
		if ok {
			sm.sources[i].addAnswer(sm, answer)
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("listing servers: %w", err)
		}
		if ok && sm.request.Pending() > 0 {
			continue
		}
		short := sm.merge()
		sm.fetch(short)
		if ok || len(short) > 0 || sm.request.Pending() == len(cells) ||
			slices.ContainsFunc(sm.sources, (*cellSource).withinTies) {
			continue // there is more to come, or nothing to go by
		}
		if result := sm.result(); foreseen == nil || !result.same(*foreseen) {
			if foreseen = &result; use(result) != nil {
				foreseen = nil
			}
		}
	}
	result := sm.result()
	if foreseen != nil && result.same(*foreseen) {
		return nil
	}
	return use(result)
}

// same reports whether two results of a list are the same. Rows that were merged stay as they are:
// those of another merge are at another place.
func (m mergedServers) same(other mergedServers) bool {
	return len(m.Rows) == len(other.Rows) && (len(m.Rows) == 0 || &m.Rows[0] == &other.Rows[0]) &&
		m.More == other.More && slices.Equal(m.Down, other.Down)
}

// batchSize is how many rows a cell is asked for first: its part of the limit, and as many more as
// chance may give it when servers were spread evenly (four standard deviations), so that hardly any
// cell is asked twice. A cell that has more than its part, because the others have nothing for this
// list, is asked again, for several times as many. Nova's "distributed" strategy adds a tenth, and
// never asks for less than 100: with 50 cells that is 5,000 rows for a page of 100, which is most
// of what the page costs.
func batchSize(limit, cells int) int {
	if cells <= 1 {
		return limit
	}
	part := (limit + cells - 1) / cells
	return min(limit, max(minBatch, part+int(4*math.Sqrt(float64(part)))))
}

// serverMerge is one list being made.
type serverMerge struct {
	query   cellwire.ServerQuery
	order   keyOrder
	request *gather.Request[cellwire.ServerPage]
	batch   int // rows that a cell is asked for first
	sources []*cellSource

	merged  []cellwire.Row
	emitted map[string]struct{} // uuids of merged
	rewind  bool                // merged has rows of a source that is down, or was made without a source that has rows
}

// cellSource is what one cell gave.
type cellSource struct {
	index int // among the cells
	cell  apidb.Cell
	rows  []cellwire.Row
	seen  map[string]struct{} // uuids of rows
	next  int                 // row to be merged
	last  cellwire.Key        // of the last row, after which to go on
	more  bool                // the cell has more after these
	asked bool                // and is asked for them
	batch int                 // rows that it was asked for the last time
	down  bool
	late  bool // and has not answered in time
}

// withinTies reports whether the cell is asked for more after rows that count only if it answers.
func (s *cellSource) withinTies() bool { return s.asked && s.seen != nil }

// fetch asks cells for a batch each.
func (sm *serverMerge) fetch(from []*cellSource) {
	// No more than can be needed, but not row by row either, as servers that are in two cells would
	// have it.
	most := max(minBatch, sm.query.Limit-len(sm.merged))
	for _, s := range from {
		s.asked, s.batch = true, min(most, max(sm.batch, batchGrowth*s.batch))
		q := sm.query
		q.Limit, q.After = s.batch, s.last
		sm.request.Ask(s.index, s.cell, func(ctx context.Context, c *cellclient.Client) (cellwire.ServerPage, error) {
			page, err := c.Servers(ctx, q)
			if err != nil {
				return cellwire.ServerPage{}, cellclient.AsFailure(err)
			}
			// The source does not change while it is asked.
			if err := sm.order.checkPage(page, s, q.Limit); err != nil {
				return cellwire.ServerPage{}, &cellclient.Failure{Kind: cellclient.Broken, Sent: true, Err: err}
			}
			return page, nil
		})
	}
}

// addAnswer keeps what counts of an answer.
func (s *cellSource) addAnswer(sm *serverMerge, a gather.Answer[cellwire.ServerPage]) {
	if a.Err != nil {
		sm.rewind = sm.rewind || s.next > 0
		*s = cellSource{index: s.index, cell: s.cell, down: true, late: a.State == gather.TimedOut}
		return
	}
	if sm.emitted != nil && s.seen == nil && len(a.Value.Rows) > 0 {
		sm.rewind = true // It was merged without.
	}
	s.asked = false
	s.addPage(a.Value)
}

// addPage keeps a page that was checked.
func (s *cellSource) addPage(page cellwire.ServerPage) {
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

// result is what was merged. A cell that has not answered is down until it does.
func (sm *serverMerge) result() mergedServers {
	m := mergedServers{Rows: sm.merged}
	for _, s := range sm.sources {
		if s.down || s.asked {
			m.Down = append(m.Down, s.cell)
			m.Late = m.Late || s.asked || s.late
			continue
		}
		m.More = m.More || s.more || slices.ContainsFunc(s.rows[s.next:], func(row cellwire.Row) bool {
			_, there := sm.emitted[row.Server.UUID]
			return !there
		})
	}
	return m
}
