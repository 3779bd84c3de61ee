// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
)

// Row is a row that is read.
type Row interface{ Scan(into ...any) error }

// ErrEnough ends Each without an error, when its function returns it.
var ErrEnough = errors.New("that is enough")

// Each calls f for each row of a query, until f returns ErrEnough.
func Each(ctx context.Context, q Querier, query string, args []any, f func(Row) error) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows); errors.Is(err, ErrEnough) {
			return nil
		} else if err != nil {
			return err
		}
	}
	return rows.Err()
}

// All returns the rows of a query.
func All[T any](
	ctx context.Context, q Querier, scan func(Row) (T, error), query string, args ...any,
) (out []T, err error) {
	err = Each(ctx, q, query, args, func(row Row) error {
		one, err := scan(row)
		out = append(out, one)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// One returns the row of a query, and whether there is one.
func One[T any](ctx context.Context, q Querier, scan func(Row) (T, error), query string, args ...any) (T, bool, error) {
	row, err := scan(q.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		var none T
		return none, false, nil
	}
	return row, err == nil, err
}

// Value scans a row of one column.
func Value[T any](row Row) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// Exec runs a statement and returns how many rows it changed.
func Exec(ctx context.Context, tx *sql.Tx, query string, args ...any) (int64, error) {
	result, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// List is one parameter for any number of values, as JSON: IN (SELECT value FROM json_each(?)).
func List[T any](values []T) string {
	if values == nil {
		values = []T{}
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // strings and numbers always have a form
	}
	return string(text)
}

// Placeholders returns the parameters of a statement for n values: "?, ?" for two.
func Placeholders(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

// MaxListed is how many texts [ListParameters] takes at most.
const MaxListed = 512

// ListParameters returns the parameters of a list of texts, which is not empty, in parentheses, and
// the texts: the length is a power of two, the last is repeated, so that statements have few forms.
// MariaDB reads all rows for an UPDATE whose list comes from a query.
func ListParameters(texts []string) (parameters string, args []any) {
	n := 1
	for n < len(texts) {
		n *= 2
	}
	for i := range n {
		args = append(args, texts[min(i, len(texts)-1)])
	}
	return "(" + Placeholders(n) + ")", args
}
