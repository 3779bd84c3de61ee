// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// placementHead is the newest migration of OpenStack Placement's own tables
// that this program knows: consumer types, the last one since 2021.
const placementHead = "422ece571366"

type migration struct {
	number int
	sql    string
}

func migrations(files fs.FS) ([]migration, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("listing the migrations: %w", err)
	}
	slices.Sort(names)
	out := make([]migration, 0, len(names))
	for i, name := range names {
		number, err := strconv.Atoi(strings.TrimSuffix(path.Base(name), ".sql"))
		if err != nil || number != i+1 {
			return nil, fmt.Errorf("migration %s is out of order: it should be number %d", name, i+1)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("reading migration %s: %w", name, err)
		}
		out = append(out, migration{number, string(text)})
	}
	return out, nil
}

// migrate brings the schema up to date. All of it happens in one transaction,
// so that of two processes that start at once one migrates and the other
// finds it done. A database that OpenStack Placement made is adopted: the
// first migration counts as done.
func (s *Store) migrate(ctx context.Context) error {
	steps, err := migrations(s.cfg.Dialect.Migrations)
	if err != nil {
		return err
	}
	const op = "bringing up to date the schema of"
	if done, err := s.migrated(ctx, s.cfg.Reader); err == nil && done == len(steps) {
		return nil
	}
	tx, err := s.cfg.Writer.BeginTx(ctx, nil)
	if err != nil {
		return s.failed(op, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	done, err := s.migrated(ctx, tx)
	if err != nil {
		return s.failed(op, err)
	}
	if done > len(steps) {
		return &Error{Op: op, Where: s.cfg.Where, Kind: ErrSchema, Hint: fmt.Sprintf("it is at migration %d and this program knows %d; a newer program was here, use that", done, len(steps))}
	}
	if done == 0 {
		adopted, err := s.adopt(ctx, tx)
		if err != nil {
			return s.failed(op, err)
		}
		if _, err := tx.ExecContext(ctx, "CREATE TABLE ledger_migrations (number INTEGER NOT NULL PRIMARY KEY)"); err != nil {
			return s.failed(op, err)
		}
		if adopted {
			if err := s.markDone(ctx, tx, 1); err != nil {
				return s.failed(op, err)
			}
			done = 1
		}
	}
	for _, step := range steps[done:] {
		for _, statement := range statements(step.sql) {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return s.failed(fmt.Sprintf("running migration %04d on", step.number), err)
			}
		}
		if err := s.markDone(ctx, tx, step.number); err != nil {
			return s.failed(op, err)
		}
	}
	return s.failed(op, tx.Commit())
}

// statements cuts a migration at the semicolons that end its lines.
func statements(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ";\n") {
		if strings.TrimSpace(part) != "" {
			out = append(out, part)
		}
	}
	return out
}

func (s *Store) markDone(ctx context.Context, tx *sql.Tx, number int) error {
	_, err := tx.ExecContext(ctx, s.cfg.Dialect.rebind("INSERT INTO ledger_migrations (number) VALUES (?)"), number)
	return err
}

// querier is a database handle or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// migrated returns the number of the last migration that was run.
func (s *Store) migrated(ctx context.Context, q querier) (int, error) {
	has, err := s.hasTable(ctx, q, "ledger_migrations")
	if err != nil || !has {
		return 0, err
	}
	var done int
	err = q.QueryRowContext(ctx, "SELECT COALESCE(MAX(number), 0) FROM ledger_migrations").Scan(&done)
	return done, err
}

func (s *Store) hasTable(ctx context.Context, q querier, name string) (bool, error) {
	var n int
	err := q.QueryRowContext(ctx, s.cfg.Dialect.rebind(s.cfg.Dialect.HasTable), name).Scan(&n)
	return n > 0, err
}

// adopt says whether OpenStack Placement made the database, and refuses those
// of its schemas that are not the one known here.
func (s *Store) adopt(ctx context.Context, q querier) (bool, error) {
	const op = "adopting the tables of"
	theirs, err := s.hasTable(ctx, q, "resource_providers")
	if err != nil {
		return false, err
	}
	if !theirs {
		return false, s.refuseForeign(ctx, q, op)
	}
	versioned, err := s.hasTable(ctx, q, "alembic_version")
	if err != nil {
		return false, err
	}
	head := ""
	if versioned {
		if err := q.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_num), '') FROM alembic_version").Scan(&head); err != nil {
			return false, err
		}
	}
	if head != placementHead {
		return false, &Error{Op: op, Where: s.cfg.Where, Kind: ErrSchema,
			Hint: fmt.Sprintf("its alembic version is %q, not %q; run `placement-manage db sync` of OpenStack Placement 6.0.0 or later first", head, placementHead)}
	}
	return true, nil
}

// refuseForeign is the error for a database without the tables of Placement
// that has others: it is somebody else's.
func (s *Store) refuseForeign(ctx context.Context, q querier, op string) error {
	var table string
	if err := q.QueryRowContext(ctx, s.cfg.Dialect.AnyTable).Scan(&table); err != nil || table == "" {
		return err
	}
	return &Error{Op: op, Where: s.cfg.Where, Kind: ErrSchema,
		Hint: fmt.Sprintf("it has the table %q and none of Placement's: it belongs to another program; choose another path, nothing was changed", table)}
}
