// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Schema is the tables of a database, as numbered steps. All steps that are missing are run in one
// transaction.
type Schema struct {
	// Steps holds the steps in the directory sql, in files that begin with their numbers: 0001.sql,
	// 0002_name.sql. The documentation of the package says how to write one. A step after which
	// older programs cannot use the database has "-- contract" as its first line. It takes away
	// what this program does not use, so that this one can use a database of servers before it,
	// beside older programs.
	Steps fs.FS
	// Processes is the table of the processes that have a database of servers open, which one of
	// the steps makes; "" for none. While one that does not know a contract step lives, that is
	// refused with its name.
	//
	//	token VARCHAR(36) PRIMARY KEY, name VARCHAR(255), beat BIGINT, alone SMALLINT,
	//	knows INTEGER
	Processes string
	// Fence, in a transaction before a contract step of a database of servers, has what older
	// programs write from then on fail; nil leaves that to the row that [DB.Write] changes.
	Fence func(ctx context.Context, tx *sql.Tx, step int) error
	// ApplicationID marks the files of the schema (application_id), which then have the number of
	// the steps that were run as their user_version.
	ApplicationID int32
	// Table has a row for each step that was run: in a database of servers, and in a file where the
	// tables are another program's as well, and ApplicationID is 0.
	Table string
	// Transient are tables that are not copied with a database: they say what processes do.
	Transient []string
	// Adopt says how many steps count as run in a database that has no Table: more than 0 for one
	// that another program made and that can be used, an *engine.Error for one that cannot. Nil
	// refuses all that have tables.
	Adopt func(ctx context.Context, d *engine.Dialect, q Querier) (steps int, err error)
	// New runs once in a new database, after its tables were made; nil does nothing.
	New func(ctx context.Context, tx *sql.Tx) error
	// OlderHint has a database that lacks some steps refused, with what to do about it; "" has it
	// upgraded.
	OlderHint string
}

// Querier is a database handle, a connection, or a transaction.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Newest is the number of steps that this program knows, the same for all dialects.
func (s *Schema) Newest() int { return len(s.known()) }

// Least is how many steps this program needs: contract steps at the end only take away what it does
// not use.
func (s *Schema) Least() int { return least(s.known()) }

func (s *Schema) known() []step {
	steps, err := s.steps(engine.SQLite)
	if err != nil {
		panic(err) // the embedded files are part of the program
	}
	return steps
}

func least(steps []step) int {
	n := len(steps)
	for n > 1 && steps[n-1].contract {
		n--
	}
	return n
}

const notTouched = "it belongs to another program; choose another path, nothing was changed"

// version is how many steps of the schema a database has had. One without any table is as good as
// new, one of another program is an *engine.Error.
func (s *Schema) version(ctx context.Context, d *engine.Dialect, q Querier) (int, error) {
	if s.ApplicationID != 0 && !d.Shared() {
		return s.headerVersion(ctx, d, q)
	}
	has, err := HasTable(ctx, d, q, s.Table)
	if err == nil && !has {
		problem := s.checkEmpty(ctx, d, q)
		if problem == nil {
			return 0, nil
		}
		// Another process may have begun to make the tables in between.
		if has, err = HasTable(ctx, d, q, s.Table); err != nil || !has {
			return 0, problem
		}
	}
	if err != nil {
		return 0, err
	}
	return s.Done(ctx, d, q)
}

// Done is how many steps were run to their end in a database that has the table of the steps.
func (s *Schema) Done(ctx context.Context, d *engine.Dialect, q Querier) (done int, err error) {
	query := "SELECT COALESCE(MAX(number), 0) FROM " + s.Table
	if d.Shared() {
		query += " WHERE done = 1"
	}
	err = q.QueryRowContext(ctx, query).Scan(&done)
	return done, err
}

// checkEmpty is an error for a database with tables of another program that cannot be adopted.
func (s *Schema) checkEmpty(ctx context.Context, d *engine.Dialect, q Querier) error {
	table, err := SomeTable(ctx, d, q)
	if err != nil || table == "" {
		return err
	}
	if s.Adopt != nil {
		_, err := s.Adopt(ctx, d, q)
		return err
	}
	return &engine.Error{Kind: engine.ErrSchema,
		Hint: fmt.Sprintf("it has the table %q and not %q: %s", table, s.Table, notTouched)}
}

func (s *Schema) headerVersion(ctx context.Context, d *engine.Dialect, q Querier) (int, error) {
	var id, version int64
	var table string
	if err := q.QueryRowContext(ctx, "SELECT a.application_id, v.user_version, ("+
		d.SomeTable()+") FROM pragma_application_id a, pragma_user_version v").Scan(&id, &version, &table); err != nil {
		return 0, err
	}
	switch ours := id == int64(s.ApplicationID); {
	case table == "" && (id == 0 || ours):
		return 0, nil
	case !ours && table != "":
		return 0, &engine.Error{Kind: engine.ErrSchema,
			Hint: fmt.Sprintf("it has the table %q and not our mark: %s", table, notTouched)}
	case !ours:
		return 0, &engine.Error{Kind: engine.ErrSchema, Hint: "it is marked as another program's: " + notTouched}
	case version < 1:
		return 0, &engine.Error{Kind: engine.ErrSchema,
			Hint: "it has tables, and says that it has had no step of the schema; restore a backup"}
	}
	return int(version), nil
}

// HasTable reports whether there is a table with a name.
func HasTable(ctx context.Context, d *engine.Dialect, q Querier, name string) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, d.CountTables()+" WHERE name = ?", name).Scan(&n)
	return n > 0, err
}

// SomeTable returns the name of some table, or "" if the database has no table.
func SomeTable(ctx context.Context, d *engine.Dialect, q Querier) (name string, err error) {
	err = q.QueryRowContext(ctx, d.SomeTable()).Scan(&name)
	return name, err
}

// Apply runs all steps in a new database, such as one in memory.
func (s *Schema) Apply(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
	_, err := s.migrate(ctx, d, db, s.Newest())
	return err
}

// migrate runs the steps until as many were run as are asked for, and says how many there were
// before.
func (s *Schema) migrate(ctx context.Context, d *engine.Dialect, db *sql.DB, to int) (had int, err error) {
	steps, err := s.steps(d)
	if err != nil {
		return 0, err
	}
	if had, err := s.version(ctx, d, db); err == nil && had == to {
		return had, nil // without taking the lock for writing
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	had, err = s.version(ctx, d, tx)
	switch {
	case err != nil:
		return 0, err
	case had > to:
		return had, &engine.Error{
			Kind: engine.ErrSchema,
			Hint: fmt.Sprintf(
				"it has had %d steps of the schema, and this needs it at %d: a newer program was here, use that "+
					"one; steps are not undone", had, to),
		}
	case had > 0 && had < to && s.OlderHint != "":
		return had, &engine.Error{Kind: engine.ErrSchema,
			Hint: fmt.Sprintf("it has had %d of %d steps of the schema; %s", had, to, s.OlderHint)}
	}
	if err := s.run(ctx, d, tx, had, steps[:to]); err != nil {
		return had, err
	}
	return had, tx.Commit()
}

func (s *Schema) run(ctx context.Context, d *engine.Dialect, tx *sql.Tx, had int, steps []step) (err error) {
	done := had
	if s.ApplicationID == 0 && had == 0 {
		if s.Adopt != nil {
			if done, err = s.Adopt(ctx, d, tx); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, "CREATE TABLE "+s.Table+" (number INTEGER NOT NULL PRIMARY KEY)"); err != nil {
			return err
		}
		for n := range done {
			if err := s.done(ctx, tx, n+1); err != nil {
				return err
			}
		}
	}
	for n := done + 1; n <= len(steps); n++ {
		for _, statement := range steps[n-1].statements {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("step %d of the schema: %w", n, err)
			}
		}
		if err := s.done(ctx, tx, n); err != nil {
			return err
		}
	}
	if had == 0 && s.New != nil {
		return s.New(ctx, tx)
	}
	return nil
}

// done writes down that a step was run.
func (s *Schema) done(ctx context.Context, tx *sql.Tx, n int) error {
	if s.ApplicationID == 0 {
		_, err := tx.ExecContext(ctx, "INSERT INTO "+s.Table+" (number) VALUES (?)", n)
		return err
	}
	// Pragmas take no parameters. Both are in the first page, and so in the transaction.
	_, err := tx.ExecContext(ctx,
		fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", s.ApplicationID, n))
	return err
}
