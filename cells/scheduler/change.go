// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// change sends a cell a change that only the process which schedules makes. The cell refuses it,
// however late it arrives, after another one has taken over and changed something there.
//
// If the process holds the lease, but the cell has seen a higher term, the API database was
// restored from an older copy: change raises the term and repeats the request.
func change[T any](
	ctx context.Context, s *Scheduler, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) (answer T, err error) {
	if s.opts.Lease == nil {
		return gather.One(ctx, s.opts.Gatherer, cell, ask)
	}
	for raised := false; ; raised = true {
		term, err := s.opts.Lease.Term()
		if err != nil {
			return answer, fmt.Errorf("changing a server in cell %s: %w", cell.Name, err)
		}
		answer, err = gather.One(cellwire.WithTerm(ctx, term), s.opts.Gatherer, cell, ask)
		if raised || !cellclient.IsOutdated(err) {
			return answer, err
		}
		if err := s.raiseTerm(ctx, cell, term); err != nil {
			return answer, err
		}
	}
}

// fromClient is a context for changes that come from the request which asked for a server.
func fromClient(ctx context.Context, spec apidb.RequestSpec) context.Context {
	return cellwire.WithOrigin(ctx, cellwire.Origin{
		RequestID: spec.RequestID, UserID: spec.UserID, ProjectID: spec.ProjectID, Traceparent: spec.Traceparent,
	})
}

// log is the logger for what is done for a request.
func (s *Scheduler) log(ctx context.Context) *zerolog.Logger {
	return cellwire.LoggerOf(ctx, &s.opts.Logger)
}

// raiseTerm raises the term of this process above what a cell has seen. An error says, too, that
// another process schedules.
func (s *Scheduler) raiseTerm(ctx context.Context, cell apidb.Cell, term int64) error {
	info, err := gather.One(ctx, s.opts.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) { return c.Cell(ctx) })
	if err != nil {
		return fmt.Errorf("asking cell %s for its highest term: %w", cell.Name, err)
	}
	if err := s.opts.Lease.RaiseTerm(ctx, info.Term); err != nil {
		return fmt.Errorf("scheduling after term %d, which cell %s has seen: %w", info.Term, cell.Name, err)
	}
	s.opts.Logger.Warn().Str("cell", cell.Name).Int64("term", term).Int64("seen", info.Term).
		Msg("A cell has seen a higher term than this compute API had, as after the restore of an older API " +
			"database. The term was raised.")
	return nil
}

// checkActive returns an error if another process schedules now, so that the failure of a change is
// no reason to try anything else.
func (s *Scheduler) checkActive(ctx context.Context, err error) error {
	if lost := s.confirm(ctx); lost != nil {
		return fmt.Errorf("%w: %w", lost, err)
	}
	return nil
}
