// SPDX-License-Identifier: Apache-2.0

package cellmappings

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// ErrChanged says that a cell got another database while it was looked at.
var ErrChanged = errors.New("the database of the cell was replaced in the meantime")

// SuspectCause says what is wrong with the database of a cell, for an operator.
func SuspectCause(d apidb.CellDatabase) string {
	switch {
	case d.Suspect == nil:
		return ""
	case d.Suspect.Epoch == d.Known.Epoch:
		return fmt.Sprintf(
			"The database of the cell is an older copy: it was at revision %d after revision %d had been seen (%s).",
			d.Suspect.Revision, d.Known.Revision, d.Since.Format(time.RFC3339))
	default:
		return fmt.Sprintf(
			"The cell has another database than before: a new one, or another cell's (epoch %s at revision %d; "+
				"before, %s at %d; %s).",
			d.Suspect.Epoch, d.Suspect.Revision, d.Known.Epoch, d.Known.Revision, d.Since.Format(time.RFC3339))
	}
}

// SuspectHint says what to do about it.
func SuspectHint(cell apidb.Cell) string {
	return fmt.Sprintf(
		"Stop the cell and restore a more recent copy of its database if one exists; then, or if this is the most "+
			"recent copy: compute-agent cells manage accept %s.",
		cell.Name,
	)
}

// Difference is how the database of a cell differs from what the API database knows.
type Difference struct {
	// Before is what was known, and Now what the cell has.
	Before apidb.CellDatabase
	Now    apidb.CellMark
	// Living are mappings of servers that are not queued for delete, and Unknown those of them that
	// the cell does not know.
	Living, Unknown int
	// Deleted are mappings of servers that are queued for delete, and Back those of them that live
	// in the cell.
	Deleted, Back int
}

// Compare asks a cell for all of its servers that the API database knows. Nothing is changed. One
// request for each 1,000 mappings of the cell, and two. ErrChanged says that the database of the
// cell was replaced in the meantime.
func Compare(ctx context.Context, store apidb.Store, g *gather.Gatherer, cell apidb.Cell) (d Difference, err error) {
	known, err := store.CellDatabases(ctx)
	if err != nil {
		return d, err
	}
	d.Before = known[cell.UUID]
	first, err := Mark(ctx, g, cell)
	if err != nil {
		return d, err
	}
	for after, more := int64(0), true; more; {
		page, err := store.MappingsAfter(ctx, cell.UUID, after, Page)
		if err != nil {
			return d, fmt.Errorf("reading the mappings of cell %s: %w", cell.Name, err)
		}
		if more = len(page) == Page; more {
			after = page[len(page)-1].ID
		}
		if err := d.count(ctx, g, cell, page); err != nil {
			return d, err
		}
	}
	unmigrated, err := store.Unmigrated(ctx, cell.UUID, 0)
	if err != nil {
		return d, fmt.Errorf("reading the mappings of cell %s: %w", cell.Name, err)
	}
	if err := d.count(ctx, g, cell, unmigrated); err != nil {
		return d, err
	}
	if d.Now, err = Mark(ctx, g, cell); err != nil {
		return d, err
	}
	if d.Now.Epoch != first.Epoch || d.Now.Revision < first.Revision {
		return d, fmt.Errorf("cell %s: %w", cell.Name, ErrChanged)
	}
	return d, nil
}

// count compares some mappings.
func (d *Difference) count(ctx context.Context, g *gather.Gatherer, cell apidb.Cell, mappings []apidb.Mapping) error {
	if len(mappings) == 0 {
		return nil
	}
	states, err := States(ctx, g, cell, Servers(mappings))
	if err != nil {
		return err
	}
	for _, m := range mappings {
		state, known := states[m.InstanceUUID]
		switch {
		case !m.Queued():
			d.Living++
			if !known {
				d.Unknown++
			}
		default:
			d.Deleted++
			if known && !state.Gone() {
				d.Back++
			}
		}
	}
	return nil
}

// Mark asks a cell which database it has. One request.
func Mark(ctx context.Context, g *gather.Gatherer, cell apidb.Cell) (apidb.CellMark, error) {
	info, err := gather.One(ctx, g, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) { return c.Cell(ctx) })
	return apidb.CellMark{Epoch: info.Epoch, Revision: info.Revision}, err
}
