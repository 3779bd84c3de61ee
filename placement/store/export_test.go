// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/compute-agent/compute-agent/internal/sqldb"
)

// Shared opens a database as one of several servers do, each with connections
// of its own. The file stands for a database that is shared: it has the tables
// already, and no process has it to itself.
func Shared(ctx context.Context, path string) (*Store, error) {
	writer, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(60000)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	writer.SetMaxOpenConns(1)
	reader, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(60000)&_pragma=query_only(1)")
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	return New(ctx, sqldb.New(sqldb.SQLite, path, writer, reader))
}
