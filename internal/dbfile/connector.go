// SPDX-License-Identifier: Apache-2.0

package dbfile

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"sync/atomic"

	"modernc.org/sqlite"
)

// Connector opens connections to one database. After Guard they are to the files that were opened first,
// or fail: a pool opens connections whenever it needs one, and SQLite creates what is missing.
type Connector struct {
	driver.Connector
	file atomic.Pointer[File]
}

// NewConnector makes the connector of a DSN as modernc.org/sqlite has it.
func NewConnector(dsn string) (*Connector, error) {
	c, err := sqlite.NewConnector(dsn)
	return &Connector{Connector: c}, err
}

// Guard makes connections from now on depend on the file's check.
func (c *Connector) Guard(f *File) { c.file.Store(f) }

// Connect implements [driver.Connector].
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	f := c.file.Load()
	if f == nil {
		return c.Connector.Connect(ctx)
	}
	if err := f.Check(); err != nil {
		return nil, err
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil {
		_ = conn.Close() // the error above is the one that matters
		return nil, err
	}
	return conn, nil
}

// Execer is a transaction, or a connection in one.
type Execer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Touch writes the first page of the database as it is.
func Touch(ctx context.Context, tx Execer) error {
	var version int64
	if err := tx.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return fmt.Errorf("read the schema version: %w", err)
	}
	_, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.FormatInt(version, 10)) // pragmas take no parameters
	return err
}
