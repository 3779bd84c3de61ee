// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"io/fs"
)

// Schema is which tables a database has.
type Schema struct {
	// Migration is the last of this program's migrations that was run, 0 when
	// none was; Newest is the last that this program has.
	Migration, Newest int
	// Alembic is the version of OpenStack Placement's own migrations at which
	// its tables are, "" when there are none of them.
	Alembic string
}

// NeedsUpgrade says that migrations are left to run.
func (s Schema) NeedsUpgrade() bool { return s.Migration < s.Newest }

// CanBeAdopted says that there are no tables, or tables that this program can
// bring up to date: those of OpenStack Placement only at their last version.
func (s Schema) CanBeAdopted() bool {
	return s.Migration > 0 || s.Alembic == "" || s.Alembic == placementHead
}

// IsNewer says that a newer program was here, whose tables this one does not know.
func (s Schema) IsNewer() bool { return s.Migration > s.Newest }

// NewestMigration returns the number of the last migration in files.
func NewestMigration(files fs.FS) (int, error) {
	steps, err := migrations(files)
	return len(steps), err
}

// ReadSchema looks at a database and changes nothing. Of cfg it needs Reader,
// Where and, of the Dialect, Migrations, HasTable, AnyTable and Classify. A
// database of another program is an error (ErrSchema). Errors are *Error.
func ReadSchema(ctx context.Context, cfg Config) (Schema, error) {
	const op = "reading the schema of"
	s := &Store{cfg: cfg}
	newest, err := NewestMigration(cfg.Dialect.Migrations)
	if err != nil {
		return Schema{}, err
	}
	schema := Schema{Newest: newest}
	tx, err := cfg.Reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return Schema{}, s.failed(op, err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	if schema.Migration, err = s.migrated(ctx, tx); err != nil {
		return Schema{}, s.failed(op, err)
	}
	if schema.Migration == 0 {
		theirs, err := s.hasTable(ctx, tx, "resource_providers")
		if err == nil && !theirs {
			err = s.refuseForeign(ctx, tx, op)
		}
		if err != nil {
			return Schema{}, s.failed(op, err)
		}
	}
	has, err := s.hasTable(ctx, tx, "alembic_version")
	if err == nil && has {
		err = tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(version_num), '') FROM alembic_version").Scan(&schema.Alembic)
	}
	if err != nil {
		return Schema{}, s.failed(op, err)
	}
	return schema, nil
}
