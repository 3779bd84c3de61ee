// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/compute-agent/compute-agent/placement/store"
)

// ReadSchema looks at the database file and changes nothing, whoever uses it
// at the same time. A file that is not there is fs.ErrNotExist, with what this
// program would make of it; an empty one has no tables. Errors are *store.Error.
func ReadSchema(ctx context.Context, path string) (schema store.Schema, err error) {
	const op = "reading the schema of"
	path, err = filepath.Abs(path)
	if err != nil {
		return store.Schema{}, &store.Error{Op: op, Where: path, Kind: store.ErrUnreachable, Err: err}
	}
	files, err := fs.Sub(migrations, "sql")
	if err != nil {
		panic(err) // the embedded directory is part of the program
	}
	switch info, err := os.Stat(path); {
	case err != nil:
		newest, _ := store.NewestMigration(files) // of the program itself
		return store.Schema{Newest: newest}, fileError(op, path, err)
	case !info.Mode().IsRegular():
		return store.Schema{}, &store.Error{Op: op, Where: path, Kind: store.ErrNotDatabase, Hint: "it is no file"}
	}
	db, _, err := open(path, options{busyTimeout: 5 * time.Second}, url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)"}})
	if err != nil {
		return store.Schema{}, err
	}
	defer func() {
		if closing := db.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("closing %s: %w", path, closing))
		}
	}()
	return store.ReadSchema(ctx, store.Config{
		Reader: db, Where: path, Dialect: store.Dialect{Migrations: files, HasTable: hasTable, AnyTable: anyTable, Classify: classify(path)},
	})
}
