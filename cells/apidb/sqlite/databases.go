// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

const cellDatabases = `SELECT c.uuid, d.epoch, d.revision, d.suspect_epoch, d.suspect_revision, d.suspect_since
	FROM cell_databases d JOIN cell_mappings c ON c.id = d.cell_id `

func scanCellDatabase(row scanner) (d apidb.CellDatabase, err error) {
	var suspect apidb.CellMark
	var since int64
	err = row.Scan(&d.CellUUID, &d.Known.Epoch, &d.Known.Revision, &suspect.Epoch, &suspect.Revision, &since)
	if suspect.Epoch != "" {
		d.Suspect, d.Since = &suspect, timeOut(since)
	}
	return d, err
}

// CellDatabases implements [apidb.Store]. Cost: one row for each cell.
func (s *Store) CellDatabases(ctx context.Context) (map[string]apidb.CellDatabase, error) {
	found, err := all(ctx, s.reader, scanCellDatabase, cellDatabases)
	if err != nil {
		return nil, failed(ctx, "reading what is known of the databases of cells", s.path, err)
	}
	out := make(map[string]apidb.CellDatabase, len(found))
	for _, d := range found {
		out[d.CellUUID] = d
	}
	return out, nil
}

// SawCell implements [apidb.Store]. Cost: nothing if nothing is new; otherwise one fsync.
func (s *Store) SawCell(ctx context.Context, before apidb.CellDatabase, seen apidb.CellMark) (now apidb.CellDatabase, err error) {
	if err := validMark(seen); err != nil {
		return apidb.CellDatabase{}, err
	}
	if before.Known == seen && before.Suspect == nil {
		return before, nil
	}
	if before.Suspect != nil && !before.Fits(seen) {
		return before, nil
	}
	err = s.write(ctx, "noting the database of cell "+before.CellUUID, func(tx *sql.Tx) error {
		id, err := cellID(ctx, tx, before.CellUUID)
		if err != nil {
			return err
		}
		var found bool
		now, found, err = one(ctx, tx, scanCellDatabase, cellDatabases+"WHERE d.cell_id = ?", id)
		if err != nil {
			return err
		}
		if !found {
			now = apidb.CellDatabase{CellUUID: before.CellUUID, Known: seen}
			_, err = exec(ctx, tx, "INSERT INTO cell_databases (cell_id, epoch, revision) VALUES (?, ?, ?)", id, seen.Epoch, seen.Revision)
			return err
		}
		switch fits := now.Fits(seen); {
		case fits:
			now.Known, now.Suspect, now.Since = seen, nil, time.Time{}
			_, err = exec(ctx, tx, setKnown, seen.Epoch, seen.Revision, id)
		case now.Suspect != nil || before.Fits(seen):
			// It is known already; or others told of more meanwhile, which is no going back.
		default:
			at := s.now()
			now.Suspect, now.Since = &seen, timeOut(timeIn(at))
			_, err = exec(ctx, tx, "UPDATE cell_databases SET suspect_epoch = ?, suspect_revision = ?, suspect_since = ? WHERE cell_id = ?", seen.Epoch, seen.Revision, timeIn(at), id)
		}
		return err
	})
	return now, err
}

const setKnown = "UPDATE cell_databases SET epoch = ?, revision = ?, suspect_epoch = '', suspect_revision = 0, suspect_since = 0 WHERE cell_id = ?"

// AcceptCell implements [apidb.Store].
func (s *Store) AcceptCell(ctx context.Context, cellUUID string, seen apidb.CellMark) error {
	if err := validMark(seen); err != nil {
		return err
	}
	return s.write(ctx, "accepting the database of cell "+cellUUID, func(tx *sql.Tx) error {
		id, err := cellID(ctx, tx, cellUUID)
		if err != nil {
			return err
		}
		if _, err := exec(ctx, tx, "INSERT INTO cell_databases (cell_id, epoch, revision) VALUES (?, '', 0) ON CONFLICT DO NOTHING", id); err != nil {
			return err
		}
		_, err = exec(ctx, tx, setKnown, seen.Epoch, seen.Revision, id)
		return err
	})
}

func validMark(seen apidb.CellMark) error {
	if seen.Epoch == "" || seen.Revision < 1 {
		return fmt.Errorf("a database has an epoch and a revision of at least 1, got %+v: %w", seen, apidb.ErrInvalid)
	}
	return nil
}
