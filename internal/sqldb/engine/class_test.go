// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestClassesOfServersErrors: what the errors of both drivers of servers mean for a statement.
func TestClassesOfServersErrors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	is := func(d *Dialect, err error, want Class) {
		t.Helper()
		if got := d.class(err); got != want {
			t.Errorf("%s: %v is of the classes %b, want %b", d.Name, err, got, want)
		}
	}
	for number, want := range map[uint16]Class{
		1062: Conflict | Duplicate, 1452: Conflict, 1406: Mismatch | Unfit, 1146: Mismatch, 1213: Retry, 1061: Exists,
		1180: CommitUnknown, 1317: Interrupted | CommitUnknown, 1969: Interrupted, 1021: 0,
	} {
		is(MySQL, fmt.Errorf("x: %w", &mysql.MySQLError{Number: number}), want)
	}
	for state, want := range map[string]Class{
		"23505": Conflict | Duplicate, "23503": Conflict, "22001": Mismatch | Unfit, "42P01": Mismatch, "42501": 0,
		"42701": Mismatch | Exists, "40P01": Retry, "40003": Retry | CommitUnknown, "57014": Interrupted,
		"57P01": CommitUnknown, "08006": CommitUnknown, "53100": 0,
	} {
		is(PostgreSQL, fmt.Errorf("x: %w", &pgconn.PgError{Code: state}), want)
	}
	// Two sessions made a table at once.
	inCatalog := &pgconn.PgError{Code: "23505", ConstraintName: "pg_class_relname_nsp_index"}
	is(PostgreSQL, inCatalog, Conflict|Duplicate|Exists)
	for _, d := range []*Dialect{MySQL, PostgreSQL} {
		is(d, driver.ErrBadConn, CommitUnknown)
		is(d, context.Canceled, CommitUnknown)
	}
	for _, d := range Dialects {
		is(d, errors.New("x"), 0)
		is(d, nil, 0)
	}
}
