// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// schemaToken is a query for the token of the step that made the tables of this program: another
// one means that the database was handed back and adopted again.
const schemaToken = "SELECT token FROM ledger_migrations WHERE number = 2"

// handedBack is the error of a store whose tables were removed while it was open.
func handedBack() error {
	return &sqldb.Error{Kind: sqldb.ErrSchema, Means: ledger.ErrHandedBack,
		Hint: "it was handed back to OpenStack Placement while this server ran; stop this server"}
}

// tablesReplaced is the error of a store whose tables are others than those that it opened. What it
// knows is of the former ones, however the versions compare.
func tablesReplaced() error {
	return &sqldb.Error{Kind: sqldb.ErrSchema, Means: ledger.ErrReplaced,
		Hint: "its tables were made again while this server ran: a backup was restored, or it was handed back and " +
			"adopted again; restart this server"}
}

// checkTables turns the error of a statement that did not fit the tables into that of
// a database that was handed back, if it was.
func (s *Store) checkTables(ctx context.Context, err error) error {
	if s.exclusive || err == nil || !s.db.Dialect.Is(err, sqldb.Mismatch) {
		return err
	}
	if has, lookErr := sqldb.HasTable(ctx, s.db.Dialect, s.db.Reader, "ledger_version"); lookErr != nil || has {
		return err
	}
	return handedBack()
}
