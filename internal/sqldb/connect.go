// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net/url"
	"strconv"
	"sync/atomic"

	"modernc.org/sqlite"
)

// connector opens connections to one database. From guard on they are to the files that were opened
// first, or fail: a pool opens connections whenever it needs one, and SQLite creates what is
// missing.
type connector struct {
	driver.Connector
	files atomic.Pointer[databaseFiles]
}

// Connect implements [driver.Connector].
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	f := c.files.Load()
	if f != nil {
		if err := f.check(); err != nil {
			return nil, err
		}
	}
	made, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn := withKeptStatements(made, keptStatements)
	if f == nil {
		return conn, nil
	}
	if err := f.check(); err != nil {
		_ = conn.Close() // the error above is the one that matters
		return nil, err
	}
	return conn, nil
}

// exclusive is the VFS of SQLite that keeps other processes out; see the package's documentation.
const exclusive = "unix-excl"

// connect makes a pool of connections to the file.
func connect(path string, maxConns int, params url.Values) (*sql.DB, *connector, error) {
	c, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}).String())
	if err != nil {
		return nil, nil, err
	}
	guarded := &connector{Connector: c}
	db := sql.OpenDB(guarded)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	return db, guarded, nil
}

// touch writes the first page of the database as it is.
func touch(ctx context.Context, tx *sql.Tx) error {
	var version int64
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.FormatInt(version, 10)) // pragmas take no parameters
	return err
}
