// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/dbfile"
)

// Store implements [apidb.Store]. A write costs one fsync; readers do not wait for it.
type Store struct {
	writer, reader *sql.DB
	file           *file
	guard          *dbfile.File
	path           string
	now            func() time.Time
}

var _ apidb.Store = (*Store)(nil)

// Path is where the file is, absolute and without symbolic links.
func (s *Store) Path() string { return s.path }

// Close closes the file. Closing it again does nothing.
func (s *Store) Close() error {
	s.guard.Close()
	// The writer last: it brings the write-ahead log into the file and removes it.
	return s.file.close(s.reader, s.writer)
}

// SchemaVersion implements [apidb.Store].
func (s *Store) SchemaVersion(ctx context.Context) (has, knows int, err error) {
	has, err = versionIn(ctx, s.reader, "reading the schema of the API database", s.path)
	return has, len(steps), err
}

// write runs f in a transaction that no other writer, of this process or another, is beside of. An error of f undoes all.
func (s *Store) write(ctx context.Context, op string, f func(*sql.Tx) error) error {
	return failed(ctx, op, s.path, s.guard.Transaction(ctx, s.writer, f))
}

// Problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (s *Store) Problem() error { return s.guard.Problem() }

// read runs f on a snapshot.
func (s *Store) read(ctx context.Context, op string, f func(*sql.Tx) error) error {
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return failed(ctx, op, s.path, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	return failed(ctx, op, s.path, f(tx))
}

// scanner is a row.
type scanner interface{ Scan(into ...any) error }

// all returns the rows of a query.
func all[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }() // Err below says what went wrong
	var out []T
	for rows.Next() {
		row, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

// one returns the row of a query, and whether there is one.
func one[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) (T, bool, error) {
	row, err := scan(q.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		var none T
		return none, false, nil
	}
	return row, err == nil, err
}

// value scans a row of one column.
func value[T any](row scanner) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// exec runs a statement and returns how many rows it changed.
func exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (int64, error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// limitOf is the LIMIT for a limit of which 0 is none.
func limitOf(limit int) int {
	if limit <= 0 {
		return -1
	}
	return limit
}

// list is one parameter for any number of values: IN (SELECT value FROM json_each(?)).
func list(values []string) string {
	if values == nil {
		values = []string{}
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // strings always have a form
	}
	return string(text)
}

func timeIn(t time.Time) int64  { return t.UnixMicro() }
func timeOut(t int64) time.Time { return time.UnixMicro(t).UTC() }

// momentOr is a time, or now if it is zero.
func (s *Store) momentOr(t time.Time) int64 {
	if t.IsZero() {
		t = s.now()
	}
	return timeIn(t)
}

// text is the JSON of a value.
func text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// damaged is the error for a row that cannot be read.
func (s *Store) damaged(what string, err error) error {
	return &Error{Op: "reading " + what, Path: s.path, Kind: apidb.ErrUnavailable, What: "a row of it cannot be read", Hint: "restore a backup", Err: err}
}

func notFound(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), apidb.ErrNotFound)
}
