// SPDX-License-Identifier: Apache-2.0

package cellmappings

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// MigrationReport says what MigrateQueued did.
type MigrationReport struct {
	// Found are mappings that were looked at, and Migrated those that have a queued_for_delete now.
	Found, Migrated int
	// Failed are cells that could not be asked; their mappings are as they were.
	Failed []MigrationFailure
}

// MigrationFailure is a cell that could not be asked.
type MigrationFailure struct {
	Cell apidb.Cell
	Err  error
}

// MigrateQueued sets queued_for_delete of the mappings without one, at most maxCount of them (0:
// all): true where the server is deleted, softly deleted or being deleted, and false elsewhere,
// also where the cell does not know the server. Mappings without a cell are left alone. It is
// populate_queued_for_delete of Nova, but that a cell that is down does not keep the others from
// being done.
//
// It can be repeated at any time; when nothing is left no cell is asked. One request to a cell for
// each 1,000 of its mappings.
func MigrateQueued(ctx context.Context, store apidb.Store, g *gather.Gatherer, maxCount int) (MigrationReport, error) {
	var report MigrationReport
	uuids, err := store.UnmigratedCells(ctx)
	if err != nil || len(uuids) == 0 {
		return report, err
	}
	cells, err := store.Cells(ctx)
	if err != nil {
		return report, fmt.Errorf("reading the cells: %w", err)
	}
	with := make(map[string]bool, len(uuids))
	for _, uuid := range uuids {
		with[uuid] = true
	}
	for _, cell := range cells {
		if !with[cell.UUID] {
			continue
		}
		if maxCount > 0 && report.Found >= maxCount {
			break
		}
		err := migrateCell(ctx, store, g, cell, maxCount, &report)
		if errors.Is(err, errAsking) {
			report.Failed = append(report.Failed, MigrationFailure{cell, err})
			continue
		}
		if err != nil {
			return report, err
		}
	}
	return report, nil
}

// errAsking marks an error of asking a cell, and not of the API database.
var errAsking = errors.New("the cell did not answer")

// migrateCell migrates the mappings of one cell, page by page.
func migrateCell(
	ctx context.Context, store apidb.Store, g *gather.Gatherer, cell apidb.Cell, maxCount int, report *MigrationReport,
) error {
	for {
		page := Page
		if maxCount > 0 {
			page = min(page, maxCount-report.Found)
		}
		if page <= 0 {
			return nil
		}
		mappings, err := store.Unmigrated(ctx, cell.UUID, page)
		if err != nil {
			return fmt.Errorf("reading the mappings of cell %s: %w", cell.Name, err)
		}
		if len(mappings) == 0 {
			return nil
		}
		uuids := Servers(mappings)
		states, err := States(ctx, g, cell, uuids)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%w: %w", errAsking, err)
		}
		queued := make(map[string]bool, len(uuids))
		for _, uuid := range uuids {
			queued[uuid] = states[uuid].Gone()
		}
		if err := store.SetQueued(ctx, queued); err != nil {
			return fmt.Errorf("writing queued_for_delete of servers in cell %s: %w", cell.Name, err)
		}
		report.Found += len(uuids)
		report.Migrated += len(uuids)
	}
}
