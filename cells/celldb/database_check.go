// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// Check reports whether the database is whole: it is the one that was opened, and has all tables
// and columns of the schema. It reads one row, and the schema only after that was changed, by
// whichever process.
func (s *DB) Check(ctx context.Context) error {
	const op = "checking"
	var info Info
	var version int64
	err := s.asked.QueryRowContext(ctx, "SELECT c.name, c.epoch, v.schema_version FROM cell c, pragma_schema_version v").Scan(&info.Name, &info.Epoch, &version)
	switch {
	case err != nil:
		return s.kit.Explain(ctx, op, err)
	case info != s.info:
		return fmt.Errorf("%w: %s %s: it was replaced by another database while the cell ran; restart the cell", ErrUnavailable, op, s.kit.Path())
	case version == s.whole.Load():
		return nil
	}
	want, err := expected()
	if err != nil {
		return err
	}
	has, err := columns(ctx, s.kit.Reader)
	if err != nil {
		return s.kit.Explain(ctx, op, err)
	}
	for _, c := range want {
		if !has[c] {
			return fmt.Errorf("%w: %s %s: it has no column %s of the table %s; stop the cell and restore a backup", ErrUnavailable, op, s.kit.Path(), c.name, c.table)
		}
	}
	s.whole.Store(version)
	return nil
}

// column is one of a table.
type column struct{ table, name string }

// expected are the columns that the schema steps make, by applying them to a database in memory.
var expected = sync.OnceValues(func() ([]column, error) {
	ctx := context.Background()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }() // nothing is kept
	db.SetMaxOpenConns(1)             // each has a memory of its own
	if err := schema("").Apply(ctx, sqldb.SQLite, db); err != nil {
		return nil, fmt.Errorf("make the schema in memory: %w", err)
	}
	has, err := columns(ctx, db)
	out := make([]column, 0, len(has))
	for c := range has {
		out = append(out, c)
	}
	return out, err
})

// columns are those of all tables.
func columns(ctx context.Context, db sqldb.Querier) (map[column]bool, error) {
	out := map[column]bool{}
	const query = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'"
	err := sqldb.Each(ctx, db, query, nil, func(row sqldb.Row) error {
		var c column
		err := row.Scan(&c.table, &c.name)
		out[c] = true
		return err
	})
	return out, err
}
