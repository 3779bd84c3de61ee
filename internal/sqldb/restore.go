// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A backup is an SQLite file with the schema that the database has, whatever its engine is. So what
// was backed up from one engine can be restored to another.

// BackUp writes a consistent copy of a database to a new SQLite file (mode 0600). A file that is
// there is refused with fs.ErrExist. A database of servers may be in use; of a file no process of
// ours may have it open, see [DB.Backup].
func BackUp(ctx context.Context, name string, o Options, file string) error {
	a, err := ParseAddress(name)
	if err != nil {
		return addressError(o.Means, "copying", err)
	}
	if !a.Shared() {
		return BackUpFile(ctx, a.Path, file)
	}
	from, err := openReader(ctx, a, o)
	if err != nil {
		return err
	}
	err = from.copyToFile(ctx, o, file)
	return errors.Join(err, from.Close())
}

// BackUpServed is BackUp, also of a file that a service has open: the service makes the copy.
func BackUpServed(ctx context.Context, name string, o Options, file string) error {
	return RunWhereOpen(ctx, name, func() error { return BackUp(ctx, name, o, file) },
		func(socket string) error { return FetchBackup(ctx, socket, file) })
}

// Check is Examine, also of a file that a service has open, which makes a copy of it. It returns
// the digest of what is in the database, which verify finds to be valid; nil verifies nothing.
func Check(
	ctx context.Context, name string, o Options, verify func(context.Context, *DB) error,
) (digest Digest, err error) {
	examine := func(name string) error {
		return Examine(ctx, name, o, func(db *DB) (err error) {
			if verify != nil {
				if err := verify(ctx, db); err != nil {
					return err
				}
			}
			digest, err = db.Digest(ctx, o.Schema)
			return err
		})
	}
	err = RunWhereOpen(ctx, name, func() error { return examine(name) }, func(socket string) (err error) {
		dir, err := os.MkdirTemp("", "compute-agent-check-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		file := filepath.Join(dir, "copy.db")
		if err := FetchBackup(ctx, socket, file); err != nil {
			return err
		}
		return examine(file)
	})
	return digest, err
}

// openReader opens a database of servers to read from, and changes nothing.
func openReader(ctx context.Context, a Address, o Options) (*DB, error) {
	const op = "reading"
	db := &DB{Dialect: a.Dialect, path: a.String(), means: o.Means}
	var err error
	if db.connector, err = a.connect(patience); err != nil {
		return nil, db.Explain(ctx, op, err)
	}
	db.Reader = db.pool(1)
	has, err := o.Schema.version(ctx, db.Dialect, db.Reader)
	if newest := o.Schema.Newest(); err == nil && has != newest && (has > newest || has < o.Schema.Least()) {
		err = &Error{
			Kind: ErrSchema,
			Hint: fmt.Sprintf(
				"it has had %d steps of the schema, and this program knows %d: upgrade the database, or use the "+
					"program of its version", has, newest),
		}
	}
	if err != nil {
		return nil, errors.Join(db.Explain(ctx, op, err), db.Close())
	}
	return db, nil
}

// copyToFile makes the file under another name first: one that is there is whole.
func (db *DB) copyToFile(ctx context.Context, o Options, file string) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".backup-*")
	if err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	part := filepath.Join(dir, "copy.db")
	to, err := Open(ctx, part, Options{Schema: o.Schema, Means: o.Means})
	if err != nil {
		return err
	}
	if err := errors.Join(copyChecked(ctx, o, db, to), to.Close()); err != nil {
		return err
	}
	if err := os.Link(part, file); err != nil {
		return fmt.Errorf("make the backup: %w", err)
	}
	return syncFile(file)
}

// copyChecked copies all rows, and reads them again.
func copyChecked(ctx context.Context, o Options, from, to *DB) error {
	copied, err := copyRows(ctx, o, from, to)
	if err != nil {
		return err
	}
	is, err := to.Digest(ctx, o.Schema)
	if err == nil && is.String() != copied.String() {
		err = fmt.Errorf("the copy of %s in %s is not the same: the digests are %s and %s",
			from.Path(), to.Path(), copied, is)
	}
	return err
}

// Restore copies a backup into an empty database, which gets its tables when it has none, and says
// what is there now. The backup may be of an older program.
func Restore(ctx context.Context, name string, o Options, file string) (out Digest, err error) {
	err = withCopy(ctx, o, file, func(from *DB) error {
		o.patient = true
		to, err := Open(ctx, name, o)
		if err != nil {
			return err
		}
		if err = copyChecked(ctx, o, from, to); err == nil {
			out, err = to.Digest(ctx, o.Schema)
		}
		return errors.Join(err, to.Close())
	})
	return out, err
}

// Examine runs f on a database of servers, or on a copy of a database file, and changes nothing. A
// file is found to be whole first, and no process of ours may have it open.
func Examine(ctx context.Context, name string, o Options, f func(*DB) error) error {
	a, err := ParseAddress(name)
	if err != nil {
		return addressError(o.Means, "reading", err)
	}
	if !a.Shared() {
		return withCopy(ctx, o, a.Path, f)
	}
	db, err := openReader(ctx, a, o)
	if err != nil {
		return err
	}
	return errors.Join(f(db), db.Close())
}

// withCopy runs f with an open copy of a database file, which stays as it is. The copy has all
// steps of the schema, and is found to be whole.
func withCopy(ctx context.Context, o Options, file string, f func(*DB) error) (err error) {
	if _, err := os.Stat(file); err != nil {
		return fileError("reading", file, err)
	}
	dir, err := os.MkdirTemp("", "compute-agent-backup-")
	if err != nil {
		return fmt.Errorf("copy %s (to the directory that TMPDIR names): %w", file, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	part := filepath.Join(dir, filepath.Base(file))
	if err := BackUpFile(ctx, file, part); err != nil {
		return err
	}
	db, err := Open(ctx, part, Options{Schema: o.Schema, Means: o.Means})
	if err != nil {
		return nameFile(err, part, file)
	}
	if err = db.checkWhole(ctx); err == nil {
		err = f(db)
	}
	return nameFile(errors.Join(err, db.Close()), part, file)
}

// nameFile has an error of the copy speak of the file that was copied.
func nameFile(err error, part, file string) error {
	if e := new(Error); errors.As(err, &e) && e.Database == realName(part) {
		e.Database = file
	}
	return err
}

// checkWhole is an error for a file whose structure is damaged.
func (db *DB) checkWhole(ctx context.Context) error {
	const op = "checking"
	if problem, _, err := One(ctx, db.Reader, Value[string], "PRAGMA integrity_check(1)"); err != nil ||
		problem != "ok" {
		if err == nil {
			err = &Error{Kind: ErrCorrupt, Hint: problem}
		}
		return db.Explain(ctx, op, err)
	}
	return nil
}
