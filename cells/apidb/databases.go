// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

const cellDatabases = `SELECT c.uuid, d.epoch, d.revision, d.suspect_epoch, d.suspect_revision, d.suspect_since
	FROM cell_databases d JOIN cell_mappings c ON c.id = d.cell_id `

func scanCellDatabase(row sqldb.Row) (d CellDatabase, err error) {
	var suspect CellMark
	var since int64
	err = row.Scan(&d.CellUUID, &d.Known.Epoch, &d.Known.Revision, &suspect.Epoch, &suspect.Revision, &since)
	if suspect.Epoch != "" {
		d.Suspect, d.Since = &suspect, fromMicros(since)
	}
	return d, err
}

// CellDatabases implements [Store]. Cost: one row for each cell.
func (db *DB) CellDatabases(ctx context.Context) (map[string]CellDatabase, error) {
	found, err := sqldb.All(ctx, db.kit.Reader, scanCellDatabase, cellDatabases)
	if err != nil {
		return nil, db.failed(ctx, "reading what is known of the databases of cells", err)
	}
	out := make(map[string]CellDatabase, len(found))
	for _, d := range found {
		out[d.CellUUID] = d
	}
	return out, nil
}

// RecordMark implements [Store]. Cost: nothing if nothing is new; otherwise one fsync.
func (db *DB) RecordMark(ctx context.Context, before CellDatabase, seen CellMark) (now CellDatabase, err error) {
	if err := checkMark(seen); err != nil {
		return CellDatabase{}, err
	}
	if before.Known == seen && before.Suspect == nil {
		return before, nil
	}
	if before.Suspect != nil && !before.Fits(seen) {
		return before, nil
	}
	err = db.write(ctx, "noting the database of cell "+before.CellUUID, func(tx *sql.Tx) error {
		id, err := cellID(ctx, tx, before.CellUUID)
		if err != nil {
			return err
		}
		var found bool
		now, found, err = sqldb.One(ctx, tx, scanCellDatabase, cellDatabases+"WHERE d.cell_id = ?", id)
		if err != nil {
			return err
		}
		if !found {
			now = CellDatabase{CellUUID: before.CellUUID, Known: seen}
			_, err = sqldb.Exec(ctx, tx, "INSERT INTO cell_databases (cell_id, epoch, revision) VALUES (?, ?, ?)",
				id, seen.Epoch, seen.Revision)
			return err
		}
		switch fits := now.Fits(seen); {
		case fits:
			now.Known, now.Suspect, now.Since = seen, nil, time.Time{}
			_, err = sqldb.Exec(ctx, tx, setKnown, seen.Epoch, seen.Revision, id)
		case now.Suspect != nil || before.Fits(seen):
			// Already recorded; or others recorded a higher revision in the meantime.
		default:
			at := db.now()
			now.Suspect, now.Since = &seen, fromMicros(micros(at))
			_, err = sqldb.Exec(ctx, tx,
				"UPDATE cell_databases SET suspect_epoch = ?, suspect_revision = ?, suspect_since = ? WHERE "+
					"cell_id = ?", seen.Epoch, seen.Revision, micros(at), id)
		}
		return err
	})
	return now, err
}

const setKnown = "UPDATE cell_databases SET epoch = ?, revision = ?, suspect_epoch = '', suspect_revision = 0, " +
	"suspect_since = 0 WHERE cell_id = ?"

// AcceptCell implements [Store].
func (db *DB) AcceptCell(ctx context.Context, cellUUID string, seen CellMark) error {
	if err := checkMark(seen); err != nil {
		return err
	}
	return db.write(ctx, "accepting the database of cell "+cellUUID, func(tx *sql.Tx) error {
		id, err := cellID(ctx, tx, cellUUID)
		if err != nil {
			return err
		}
		if _, err := sqldb.Exec(ctx, tx, "INSERT INTO cell_databases (cell_id, epoch, revision) VALUES (?, '', 0)"+
			db.kit.Dialect.Upsert("cell_id"), id); err != nil {
			return err
		}
		_, err = sqldb.Exec(ctx, tx, setKnown, seen.Epoch, seen.Revision, id)
		return err
	})
}

func checkMark(seen CellMark) error {
	if seen.Epoch == "" || seen.Revision < 1 {
		return fmt.Errorf("a database has an epoch and a revision of at least 1, got %+v: %w", seen, ErrInvalid)
	}
	return nil
}
