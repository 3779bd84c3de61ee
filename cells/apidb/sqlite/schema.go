// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

//go:embed sql/*.sql
var stepFiles embed.FS

// steps are the texts of the steps of the schema; step n is steps[n-1]. The number of those that were run is in the file's user_version.
var steps = func() []string {
	var out []string
	for {
		text, err := stepFiles.ReadFile(fmt.Sprintf("sql/%04d.sql", len(out)+1))
		if errors.Is(err, fs.ErrNotExist) {
			return out
		}
		if err != nil {
			panic(err) // the embedded files are part of the program
		}
		out = append(out, string(text))
	}
}()

// state asks, of one snapshot, for the mark of the file, the number of steps that were run, and the name of a table that is not SQLite's own.
const state = `SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),
	COALESCE((SELECT MIN(name) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'), '')`

// Version says how many steps of the schema the database at a path has had, and how many this program knows. It changes nothing. Without a
// file the error is fs.ErrNotExist.
func Version(ctx context.Context, path string) (has, knows int, err error) {
	const op = "reading the schema of the API database"
	file, mark, err := look(op, path)
	if err != nil {
		return 0, len(steps), err
	}
	defer func() { err = errors.Join(err, file.close()) }()
	if mark == markEmpty {
		return 0, len(steps), nil
	}
	has, err = readVersion(ctx, op, file.path)
	return has, len(steps), err
}

// Migrate runs steps of the schema until the database has had as many as are asked for (0: all there are), and says how many it had before. The
// file is made if it is not there. All steps happen in one transaction: they are all run or none. A database that has had more already is
// apidb.ErrSchema: steps are not undone.
func Migrate(ctx context.Context, path string, to int) (had int, err error) {
	const op = "upgrading the API database"
	if to == 0 {
		to = len(steps)
	}
	if to < 0 || to > len(steps) {
		return 0, fmt.Errorf("%s: %w: there is no step %d of the schema, this program knows %d", op, apidb.ErrSchema, to, len(steps))
	}
	file, db, _, err := openWriter(ctx, op, path, Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.close(db)) }()
	return migrate(ctx, op, db, file.path, to, makeOrUpgrade)
}

// migrateMode says what may be done about a database that lacks steps.
type migrateMode int

const (
	makeOnly      migrateMode = iota // only if it has had none
	makeOrUpgrade                    // whatever it lacks
)

func migrate(ctx context.Context, op string, db *sql.DB, path string, to int, mode migrateMode) (had int, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return 0, failed(ctx, op, path, err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	had, err = versionIn(ctx, tx, op, path)
	switch {
	case err != nil:
		return 0, err
	case had > to:
		return had, &Error{Op: op, Path: path, Kind: apidb.ErrSchema,
			What: fmt.Sprintf("it has had %d steps of the schema and this needs it at %d", had, to), Hint: "a newer program was here: use that one; steps are not undone"}
	case had == to:
		return had, nil
	case had > 0 && mode == makeOnly:
		return had, &Error{Op: op, Path: path, Kind: apidb.ErrSchema, What: fmt.Sprintf("it has had %d of %d steps of the schema", had, to),
			Hint: "stop the compute API where it still runs, keep a copy, and run `compute-agent cells manage db upgrade`"}
	}
	for n := had + 1; n <= to; n++ {
		if _, err := tx.ExecContext(ctx, steps[n-1]); err != nil {
			return had, failed(ctx, fmt.Sprintf("%s: step %d of the schema", op, n), path, err)
		}
	}
	// Pragmas take no parameters. Both are in the first page, and so in the transaction.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, to)); err != nil {
		return had, failed(ctx, op, path, err)
	}
	return had, failed(ctx, op, path, tx.Commit())
}

// querier is a database handle or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// versionIn reads how many steps the database has had. One without any table is as good as new, one of another program is apidb.ErrSchema.
func versionIn(ctx context.Context, q querier, op, path string) (int, error) {
	var id, version int64
	var table string
	if err := q.QueryRowContext(ctx, state).Scan(&id, &version, &table); err != nil {
		return 0, failed(ctx, op, path, err)
	}
	switch {
	case table == "" && (id == 0 || id == applicationID):
		return 0, nil
	case id != applicationID:
		what := "it is marked as another program's"
		if table != "" {
			what = fmt.Sprintf("it has the table %q and not the mark of an API database", table)
		}
		return 0, &Error{Op: op, Path: path, Kind: apidb.ErrSchema, What: what, Hint: "it belongs to another program; choose another path, nothing was changed"}
	case version < 1:
		return 0, &Error{Op: op, Path: path, Kind: apidb.ErrSchema, What: "it has tables but says that it has had no step of the schema", Hint: "restore a backup"}
	}
	return int(version), nil
}

// readVersion is versionIn by a connection of its own, that writes nothing.
func readVersion(ctx context.Context, op, path string) (has int, err error) {
	params := url.Values{"mode": {"ro"}, "_pragma": {"query_only(1)"}}
	if info, err := os.Stat(path + "-wal"); err != nil || info.Size() == 0 {
		// All of it is in the file. Without this, SQLite would put its files beside one that says it uses a write-ahead log.
		params.Set("immutable", "1")
	}
	db, _, err := connect(op, path, Options{}, params)
	if err != nil {
		return 0, err
	}
	defer func() {
		if closing := db.Close(); closing != nil {
			err = errors.Join(err, failed(ctx, op, path, closing))
		}
	}()
	return versionIn(ctx, db, op, path)
}

func notADatabase(op, path string) error {
	return &Error{Op: op, Path: path, Kind: apidb.ErrSchema, What: "it is not a database: it does not start as SQLite files do",
		Hint: "choose another path, the file was not touched"}
}
