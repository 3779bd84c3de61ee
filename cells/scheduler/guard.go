// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
)

// The guard against the wrong database. If a cell and the API database differ, the reconciler
// believes the cell: that a server lives that is recorded as deleted, or that allocations are
// unused. A cell with a new database, or an older copy of its own, is wrong about that, and the
// consequences could not be undone. So the reconciler checks which database answers before it does
// anything in a cell. It leaves the cell alone until the right database is back, or until an
// operator has accepted the present one.

// recordDatabase records which database answered a request, and reports whether it is the cell's.
// before is the record from before the request. It costs no request, and a write to the API
// database if the cell has changed. For a cell without revisions, before decides.
func (s *Scheduler) recordDatabase(
	ctx context.Context, cell apidb.Cell, before apidb.CellDatabase, seen apidb.CellMark,
) (bool, error) {
	before.CellUUID = cell.UUID
	if seen.Epoch == "" || seen.Revision < 1 {
		return before.Suspect == nil, nil
	}
	now, err := s.opts.Store.RecordMark(ctx, before, seen)
	if err != nil {
		return false, fmt.Errorf("recording the database of cell %s: %w", cell.Name, err)
	}
	s.logSuspect(cell, now, seen)
	return now.Suspect == nil, nil
}

// checkDatabase asks a cell which database it has, and reports whether that is the cell's own.
// Earlier answers of the cell came from it, too, or from one that it has replaced since.
func (s *Scheduler) checkDatabase(ctx context.Context, cell apidb.Cell) (bool, error) {
	known, err := s.opts.Store.CellDatabases(ctx)
	if err != nil {
		return false, err
	}
	seen, err := cellmappings.Mark(ctx, s.opts.Gatherer, cell)
	if err != nil {
		return false, fmt.Errorf("asking cell %s for its database: %w", cell.Name, err)
	}
	return s.recordDatabase(ctx, cell, known[cell.UUID], seen)
}

// logSuspect logs when a database becomes suspect, and when it is no more, once.
func (s *Scheduler) logSuspect(cell apidb.Cell, now apidb.CellDatabase, seen apidb.CellMark) {
	s.mu.Lock()
	logged, was := s.suspects[cell.UUID]
	if now.Suspect == nil {
		delete(s.suspects, cell.UUID)
	} else {
		s.suspects[cell.UUID] = now.Since
	}
	s.mu.Unlock()
	switch {
	case now.Suspect == nil && was:
		s.opts.Logger.Info().Str("cell", cell.Name).Str("epoch", seen.Epoch).Int64("revision", seen.Revision).
			Msg("The database of a cell is the right one again, or was accepted. Reconciliation of the cell resumes.")
	case now.Suspect != nil && (!was || !logged.Equal(now.Since)):
		s.opts.Logger.Error().Str("cell", cell.Name).Str("epoch", seen.Epoch).Int64("revision", seen.Revision).
			Str("known_epoch", now.Known.Epoch).Int64("known_revision", now.Known.Revision).Time("since", now.Since).
			Msg(cellmappings.SuspectCause(now) +
				" Servers that it lacks are missing from lists and answered " +
				"with 404 while their guests run; deleted servers may be back. " +
				"Reconciliation of the cell is suspended until this is resolved. " + cellmappings.SuspectHint(cell))
	}
}
