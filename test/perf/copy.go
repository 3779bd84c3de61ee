// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// placementTables are Placement's, all that hold data.
var placementTables = []string{
	"resource_classes", "traits", "placement_aggregates",
	"projects", "users", "consumer_types", "resource_providers", "inventories",
	"resource_provider_traits", "resource_provider_aggregates", "consumers", "allocations",
}

// copyFrom makes the rows of Placement's placementTables in the database of a DSN those of an
// SQLite database.
func (p *peer) copyFrom(ctx context.Context, from, to string) (err error) {
	db, err := sql.Open("sqlite", "file:"+from+"?mode=ro")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	script, err := os.CreateTemp(p.dir, "*.sql")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, script.Close(), os.Remove(script.Name())) }()
	w := bufio.NewWriter(script)
	fmt.Fprintln(w, "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO', FOREIGN_KEY_CHECKS=0, UNIQUE_CHECKS=0; START "+
		"TRANSACTION;")
	for _, table := range placementTables {
		fmt.Fprintf(w, "DELETE FROM %s;\n", table)
		if err := writeRows(ctx, w, db, table); err != nil {
			return fmt.Errorf("read the table %s: %w", table, err)
		}
	}
	fmt.Fprintf(w, "COMMIT; ANALYZE TABLE %s;\n", strings.Join(placementTables, ", "))
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := script.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return p.sql(ctx, "load the rows", to, script)
}

// writeRows writes the rows of a table as statements of many rows each. Errors of w stay with it,
// for Flush.
func writeRows(ctx context.Context, w *bufio.Writer, db *sql.DB, table string) (err error) {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, targets := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	const atOnce = 1000
	n := 0
	for ; rows.Next(); n++ {
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		separator := ","
		if n%atOnce == 0 {
			if separator = fmt.Sprintf("INSERT INTO %s (%s) VALUES\n", table, strings.Join(columns, ",")); n > 0 {
				separator = ";\n" + separator
			}
		}
		_, _ = w.WriteString(separator)
		for i, v := range values {
			_ = w.WriteByte("(,"[min(i, 1)])
			_, _ = w.WriteString(literal(v))
		}
		_ = w.WriteByte(')')
	}
	if n > 0 {
		_, _ = w.WriteString(";\n")
	}
	return rows.Err()
}

// literal writes a value as SQL does.
func literal(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case time.Time:
		return v.UTC().Format("'2006-01-02 15:04:05'")
	case []byte:
		return literal(string(v))
	case string:
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(v) + "'"
	}
	return fmt.Sprintf("/* %T */", v)
}
