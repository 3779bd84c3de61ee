// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
)

// Repeatable runs one statement in a database of servers, outside of the order of all other
// writers: for a change that may be made twice, and beside any other. It is tried again as Write
// is. on is a connection that Connect made.
func (db *DB) Repeatable(ctx context.Context, on *sql.DB, op, query string, args ...any) error {
	err := db.repeat(ctx, on, query, args)
	db.Failed(err)
	return db.Explain(ctx, op, err)
}

func (db *DB) repeat(ctx context.Context, on *sql.DB, query string, args []any) error {
	r := db.retries()
	for {
		_, err := on.ExecContext(ctx, query, args...)
		if err == nil || !r.wait(ctx, err) {
			return err
		}
	}
}
