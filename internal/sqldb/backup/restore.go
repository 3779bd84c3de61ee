// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Create writes a consistent copy of a database to a new SQLite file (mode 0600). A file that is
// there is refused with fs.ErrExist. A database of servers may be in use; of a file no process of
// ours may have it open, see [sqldb.DB.Backup].
func Create(ctx context.Context, name string, o sqldb.Options, file string) error {
	a, err := o.Address("copying", name)
	if err != nil {
		return err
	}
	if !a.Shared() {
		return sqldb.BackUpFile(ctx, a.Path, file)
	}
	from, err := sqldb.OpenReader(ctx, a, o)
	if err != nil {
		return err
	}
	err = copyToFile(ctx, from, o, file)
	return errors.Join(err, from.Close())
}

// CreateServed is Create, also of a file that a service has open: the service makes the copy.
func CreateServed(ctx context.Context, name string, o sqldb.Options, file string) error {
	return sqldb.RunWhereOpen(ctx, name, func() error { return Create(ctx, name, o, file) },
		func(socket string) error { return sqldb.FetchBackup(ctx, socket, file) })
}

// Check is Examine, also of a file that a service has open, which makes a copy of it. It returns
// the digest of what is in the database, which verify finds to be valid; nil verifies nothing.
func Check(
	ctx context.Context, name string, o sqldb.Options, verify func(context.Context, *sqldb.DB) error,
) (digest Digest, err error) {
	examine := func(name string) error {
		return Examine(ctx, name, o, func(db *sqldb.DB) (err error) {
			if verify != nil {
				if err := verify(ctx, db); err != nil {
					return err
				}
			}
			digest, err = DigestOf(ctx, db, o.Schema)
			return err
		})
	}
	err = sqldb.RunWhereOpen(ctx, name, func() error { return examine(name) }, func(socket string) (err error) {
		dir, err := os.MkdirTemp("", "compute-agent-check-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		file := filepath.Join(dir, "copy.db")
		if err := sqldb.FetchBackup(ctx, socket, file); err != nil {
			return err
		}
		return examine(file)
	})
	return digest, err
}

// copyToFile makes the file under another name first: one that is there is whole.
func copyToFile(ctx context.Context, db *sqldb.DB, o sqldb.Options, file string) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".backup-*")
	if err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	part := filepath.Join(dir, "copy.db")
	to, err := sqldb.Open(ctx, part, sqldb.Options{Schema: o.Schema, Means: o.Means})
	if err != nil {
		return err
	}
	if err := errors.Join(copyChecked(ctx, o, db, to), to.Close()); err != nil {
		return err
	}
	if err := os.Link(part, file); err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	return sqldb.SyncFile(file)
}

// copyChecked copies all rows, and reads them again.
func copyChecked(ctx context.Context, o sqldb.Options, from, to *sqldb.DB) error {
	copied, err := copyRows(ctx, o, from, to)
	if err != nil {
		return err
	}
	is, err := DigestOf(ctx, to, o.Schema)
	if err == nil && is.String() != copied.String() {
		err = fmt.Errorf("the copy of %s in %s is not the same: the digests are %s and %s",
			from.Path(), to.Path(), copied, is)
	}
	return err
}

// Restore copies a backup into an empty database, which gets its tables when it has none, and says
// what is there now. The backup may be of an older program.
func Restore(ctx context.Context, name string, o sqldb.Options, file string) (out Digest, err error) {
	err = withCopy(ctx, o, file, func(from *sqldb.DB) error {
		o.Patient = true
		to, err := sqldb.Open(ctx, name, o)
		if err != nil {
			return err
		}
		if err = copyChecked(ctx, o, from, to); err == nil {
			out, err = DigestOf(ctx, to, o.Schema)
		}
		return errors.Join(err, to.Close())
	})
	return out, err
}

// Examine runs f on a database of servers, or on a copy of a database file, and changes nothing. A
// file is found to be whole first, and no process of ours may have it open.
func Examine(ctx context.Context, name string, o sqldb.Options, f func(*sqldb.DB) error) error {
	a, err := o.Address("reading", name)
	if err != nil {
		return err
	}
	if !a.Shared() {
		return withCopy(ctx, o, a.Path, f)
	}
	db, err := sqldb.OpenReader(ctx, a, o)
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

// withCopy runs f with an open copy of a database file, which stays as it is. The copy has all
// steps of the schema, and is found to be whole.
func withCopy(ctx context.Context, o sqldb.Options, file string, f func(*sqldb.DB) error) (err error) {
	if _, err := os.Stat(file); err != nil {
		return engine.FileError("reading", file, err)
	}
	dir, err := os.MkdirTemp("", "compute-agent-backup-")
	if err != nil {
		return fmt.Errorf("copy %s (to the directory that TMPDIR names): %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	part := filepath.Join(dir, filepath.Base(file))
	if err := sqldb.BackUpFile(ctx, file, part); err != nil {
		return err
	}
	db, err := sqldb.Open(ctx, part, sqldb.Options{Schema: o.Schema, Means: o.Means})
	if err != nil {
		return nameFile(err, part, file)
	}
	if err = checkWhole(ctx, db); err == nil {
		err = f(db)
	}
	return nameFile(errors.Join(err, db.Close()), part, file)
}

// nameFile has an error of the copy speak of the file that was copied.
func nameFile(err error, part, file string) error {
	e := new(engine.Error)
	if !errors.As(err, &e) {
		return err
	}
	// The copy itself may be gone.
	if dir, missing := filepath.EvalSymlinks(filepath.Dir(part)); missing == nil &&
		e.Database == filepath.Join(dir, filepath.Base(part)) {
		e.Database = file
	}
	return err
}

// checkWhole is an error for a file whose structure is damaged.
func checkWhole(ctx context.Context, db *sqldb.DB) error {
	const op = "checking"
	if problem, _, err := sqldb.One(ctx, db.Reader, sqldb.Value[string], "PRAGMA integrity_check(1)"); err != nil ||
		problem != "ok" {
		if err == nil {
			err = &engine.Error{Kind: engine.ErrCorrupt, Hint: problem}
		}
		return db.Explain(ctx, op, err)
	}
	return nil
}
