// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// checkedSchema is when Check last found the database whole: at a schema_version of SQLite, which
// grows with each change of the tables by whichever process, or on servers, which have no such
// number, at a time.
type checkedSchema struct {
	version atomic.Int64
	at      atomic.Int64 // nanoseconds since processStart
}

// recheckInterval is for how long on servers the tables are not checked again. A statement that
// needs what is missing fails meanwhile.
const recheckInterval = 10 * time.Second

// processStart is a time to count from, by the clock that is never set.
var processStart = time.Now()

// Check reports whether the database is whole: it is the one that was opened, and has all tables
// and columns of the schema. It reads one row, and the schema only after that was changed, by
// whichever process; on servers every recheckInterval.
func (d *DB) Check(ctx context.Context) error {
	const op = "checking"
	var info Info
	var version int64
	query, into := "SELECT name, epoch FROM cell", []any{&info.Name, &info.Epoch}
	if !d.engine.Shared() {
		query, into = "SELECT c.name, c.epoch, v.schema_version FROM cell c, pragma_schema_version v",
			append(into, &version)
	}
	now := time.Since(processStart).Nanoseconds() + 1
	err := d.checkConn.QueryRowContext(ctx, query).Scan(into...)
	switch at := d.checked.at.Load(); {
	case err != nil:
		return d.kit.Explain(ctx, op, err)
	case info != d.info:
		return fmt.Errorf("%w: %s %s: it was replaced by another database while the cell ran; restart the cell",
			ErrUnavailable, op, d.kit.Path())
	case at != 0 && version == d.checked.version.Load() &&
		(!d.engine.Shared() || now-at < recheckInterval.Nanoseconds()):
		return nil
	}
	want, err := expected()
	if err != nil {
		return err
	}
	has, err := d.engine.has(ctx, d.checkConn)
	if err != nil {
		return d.kit.Explain(ctx, op, err)
	}
	for _, c := range slices.Concat(want, d.engine.columns) {
		if !has[c] {
			return fmt.Errorf("%w: %s %s: it has no column %s of the table %s; stop the cell and restore a backup",
				ErrUnavailable, op, d.kit.Path(), c.name, c.table)
		}
	}
	d.checked.version.Store(version)
	d.checked.at.Store(now)
	return nil
}

// column is one of a table.
type column struct{ table, name string }

// expected are the columns that the schema steps make in all engines, by applying them to a
// database in memory.
var expected = sync.OnceValues(func() ([]column, error) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // nothing is kept
	db.SetMaxOpenConns(1)             // each has a memory of its own
	if err := schema("").Apply(ctx, engine.SQLite, db); err != nil {
		return nil, fmt.Errorf("make the schema in memory: %w", err)
	}
	has, err := engines[engine.SQLite].has(ctx, db)
	out := make([]column, 0, len(has))
	for c := range has {
		out = append(out, c)
	}
	return out, err
})
