// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/serverstate"
)

// Execute runs statements on the database of the store, whatever they change there.
func (d *DB) Execute(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := d.kit.Writer.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// LookAgain has the next Check look at the tables.
func (d *DB) LookAgain() { d.checked.at.Store(0) }

// Fill writes rows as they are, many at a time.
func (d *DB) Fill(ctx context.Context, records []*serverstate.Record) error {
	return d.write(ctx, "filling", func(tx *writeTx) error {
		row := insertRecord[strings.LastIndex(insertRecord, "("):]
		for part := range slices.Chunk(records, 700/len(recordColumns)) {
			var args []any
			for _, r := range part {
				values, err := recordValues(r)
				if err != nil {
					return err
				}
				args = append(args, values...)
			}
			if _, err := tx.ExecContext(ctx, insertRecord+strings.Repeat(", "+row, len(part)-1), args...); err != nil {
				return err
			}
		}
		return nil
	})
}

// Analyze has the engine count what its tables have.
func (d *DB) Analyze(ctx context.Context) error {
	switch d.engine.Name {
	case "mysql":
		return d.Execute(ctx, "ANALYZE TABLE instances, services, compute_nodes")
	case "postgres":
		return d.Execute(ctx, "VACUUM ANALYZE")
	}
	return nil
}
