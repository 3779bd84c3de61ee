// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// DB is a database in use. It is safe for concurrent use.
type DB struct {
	Dialect *engine.Dialect
	// Writer is the one connection that writes; its transactions begin with the lock for writing.
	// Reader reads.
	Writer, Reader          *sql.DB
	path                    string // of the file, without symbolic links; or the address
	means                   func(kind error) error
	lock                    *lockFile
	files                   *databaseFiles
	connectors              []*connector
	connector               driver.Connector // to the servers
	schema                  *Schema          // of a database of servers: its table has the row that transactions lock
	schemaSteps             int              // steps of that schema
	failover                time.Duration    // that of Options
	extra                   []*sql.DB
	presence                *presence // nil for a file
	stepsBefore, stepsAfter int       // steps of the schema
}

var busyPragma = "busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")"

// connect makes connections for this process alone. Until the files are protected, that is not
// checked.
func (db *DB) connect(maxConns int, params url.Values) (*sql.DB, error) {
	params["_pragma"] = append([]string{busyPragma}, params["_pragma"]...) // first: the others may have to wait
	params.Set("vfs", exclusive)
	pool, c, err := connect(db.path, maxConns, params)
	if err != nil {
		return nil, err
	}
	if db.files != nil {
		c.files.Store(db.files)
	}
	db.connectors = append(db.connectors, c)
	db.extra = append(db.extra, pool)
	return pool, nil
}

// Connect makes one more connection for writing, to a file with pragmas such as
// synchronous(NORMAL). It is closed with the database. It must be called before the database is
// used by several goroutines.
func (db *DB) Connect(pragmas ...string) (*sql.DB, error) {
	if db.Dialect.Shared() {
		return db.pool(1), nil
	}
	return db.connect(1, url.Values{"_txlock": {"immediate"}, "_pragma": pragmas})
}

// Failover is how long a transaction waits for a server that takes writes.
func (db *DB) Failover() time.Duration { return cmp.Or(db.failover, failover) }

// Path is where the file is, absolute and without symbolic links; or the address of a database of
// servers, without its password.
func (db *DB) Path() string { return db.path }

// Steps is how many steps of the schema the database had when it was opened, and how many it has.
func (db *DB) Steps() (had, has int) { return db.stepsBefore, db.stepsAfter }

// Explain makes an *engine.Error of an error of the database or of the file system, and of one that
// ends with the context the context's. What callers decide on passes as it is.
func (db *DB) Explain(ctx context.Context, op string, err error) error {
	return explain(ctx.Err(), db.Dialect, db.means, op, db.path, err)
}

// explain is Explain; ended is the error of the context.
func explain(ended error, d *engine.Dialect, means func(error) error, op, where string, err error) error {
	if err == nil {
		return nil
	}
	e := &engine.Error{}
	switch kind, hint := d.Kind(err); {
	case errors.As(err, &e):
		if e.Op != "" && e.Database != "" && e.Means != nil { // explained already
			return err
		}
		made := *e
		e = &made
		if e.Op == "" {
			e.Op = op
		}
		e.Database = where
	case ended != nil && (errors.Is(err, ended) || errors.Is(err, sql.ErrTxDone) || d.Is(err, engine.Interrupted)):
		return fmt.Errorf("%s %s: %w", op, where, ended)
	case errors.Is(err, engine.ErrOutcomeUnknown):
		e = &engine.Error{Op: op, Database: where, Kind: engine.ErrUnreachable, Err: err}
	case errors.Is(err, engine.ErrReplaced):
		e = &engine.Error{Op: op, Database: where, Kind: engine.ErrReplaced, Err: err}
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone):
		e = &engine.Error{Op: op, Database: where, Kind: engine.ErrUnreachable,
			Hint: "the connection to it is closed", Err: err}
	case kind != nil:
		e = &engine.Error{Op: op, Database: where, Kind: kind, Hint: hint, Err: err}
		if filepath.IsAbs(where) && errors.Is(kind, engine.ErrFull) {
			e.Hint += "; make space in " + filepath.Dir(where)
		}
	case d.Is(err, engine.Conflict|engine.Mismatch):
		e = &engine.Error{Op: op, Database: where, Err: err}
		if !d.Is(err, engine.Conflict) {
			e.Kind, e.Hint = engine.ErrSchema,
				"its tables are not those of this program's schema; restore a backup, or report this"
		}
	default:
		return err
	}
	if means != nil && e.Means == nil {
		e.Means = means(e.Kind)
	}
	return e
}

// Check returns an error that matches engine.ErrReplaced unless what is written now would be in the
// files that the path names. Cost: three stats, about 4 µs.
func (db *DB) Check() error {
	if db.files == nil {
		return nil
	}
	return db.files.check()
}

// Failed takes note of the error of a write that was not made by Write.
func (db *DB) Failed(err error) {
	if db.files != nil {
		db.files.writeFailed(err)
	}
}

// ProbeBy sets what runs the transaction by which it is found out whether writes work again, for an
// owner that keeps the one connection of Writer to itself.
func (db *DB) ProbeBy(run func(ctx context.Context, do func(context.Context, *sql.Tx) error) error) {
	do := touch
	if db.Dialect.Shared() {
		do = func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "UPDATE "+db.schema.Table+" SET beat = beat + 1 WHERE number = 0")
			return err
		}
	}
	db.files.probeBy(func(ctx context.Context) error { return run(ctx, do) })
}

// Problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (db *DB) Problem() error {
	if db.files == nil {
		return nil
	}
	return db.files.problem()
}

// Write runs f in a transaction that has no other writer beside it, and commits it. It returns nil
// only if what was committed is in the files that the path names; otherwise the outcome of the
// commit is not known. An error of f undoes all, and passes as it is unless it is of the database.
// In a database of servers f may run more than once, so it must set its results each time.
func (db *DB) Write(ctx context.Context, op string, f func(*sql.Tx) error) error {
	return db.WriteOn(ctx, db.Writer, op, f)
}

// WriteOn is Write on a connection that Connect made.
func (db *DB) WriteOn(ctx context.Context, on *sql.DB, op string, f func(*sql.Tx) error) error {
	var err error
	if db.Dialect.Shared() {
		err = db.sharedWrite(ctx, on, f)
	} else {
		err = db.transaction(ctx, on, f)
	}
	db.Failed(err)
	return db.Explain(ctx, op, err)
}

func (db *DB) transaction(ctx context.Context, on *sql.DB, f func(*sql.Tx) error) error {
	if err := db.Check(); err != nil {
		return err
	}
	tx, err := on.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return db.Check()
}

// Read runs f on one snapshot. A server that does not take writes is not believed, as what it has
// may be older than what was acknowledged.
func (db *DB) Read(ctx context.Context, op string, f func(*sql.Tx) error) error {
	began, err := db.read(ctx, f)
	//nolint:errorlint // one of these values, never wrapped
	if kind, _ := db.Dialect.Kind(err); !began &&
		db.Dialect.Shared() && (kind == engine.ErrUnreachable || kind == engine.ErrReadOnly) {
		db.CloseIdle()
		_, err = db.read(ctx, f)
	}
	return db.Explain(ctx, op, err)
}

// read is one try of Read. began is whether f was called.
func (db *DB) read(ctx context.Context, f func(*sql.Tx) error) (began bool, err error) {
	tx, err := db.Reader.BeginTx(ctx, db.Dialect.Snapshot())
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	if servers := db.Dialect.Servers; servers != nil && servers.Demotes {
		readOnly, _, err := One(ctx, tx, Value[int64], "SELECT "+db.Dialect.ReadOnly)
		if err == nil && readOnly != 0 {
			err = engine.ErrReadOnlyServer
		}
		if err != nil {
			return false, err
		}
	}
	return true, f(tx)
}

// RecordVersion writes down beside the database the version that was acknowledged last, where
// versions are counted.
func (db *DB) RecordVersion(version int64) {
	if db.lock != nil {
		db.lock.recordVersion(version)
	}
}

// AnswersAt records the admin socket of this process beside the database, so that commands that
// find the database in use can connect to it; see [HolderOf].
func (db *DB) AnswersAt(socket string) {
	if db.lock != nil {
		db.lock.recordHolder(socket)
	}
}

// RefuseLoss is an error that matches engine.ErrLost if the database is at a lower version than was
// noted. Otherwise the version is noted: after a restore, or the first time, it is known from now
// on what there was.
func (db *DB) RefuseLoss(ctx context.Context, version int64) error {
	if db.lock == nil {
		return nil
	}
	if err := db.lock.regressionError(version); err != nil {
		return db.Explain(ctx, "opening", err)
	}
	if version > db.lock.recordedVersion() {
		db.lock.recordVersion(version)
	}
	return nil
}

// Close closes the database. Closing again does nothing.
func (db *DB) Close() error {
	db.files.close()
	db.presence.close()
	var errs []error
	// The writer, which was opened first, last: it brings the write-ahead log into the file and
	// removes it.
	for i := len(db.extra) - 1; i >= 0; i-- {
		errs = append(errs, db.extra[i].Close())
	}
	if db.Dialect.Shared() {
		errs = nil // a connection that was lost cannot be closed, and has nothing to lose
	}
	db.files, db.extra, db.presence = nil, nil, nil
	if db.lock != nil {
		errs = append(errs, db.lock.close()) // last: from now on another process may come
		db.lock = nil
	}
	return explain(nil, db.Dialect, db.means, "closing", db.path, errors.Join(errs...))
}

// Repeatable runs one statement in a database of servers, outside of the order of all other
// writers: for a change that may be made twice, and beside any other. It is tried again as Write
// is. on is a connection that Connect made.
func (db *DB) Repeatable(ctx context.Context, on *sql.DB, op, query string, args ...any) error {
	err := db.repeat(ctx, on, query, args)
	db.Failed(err)
	return db.Explain(ctx, op, err)
}

func (db *DB) repeat(ctx context.Context, on *sql.DB, query string, args []any) error {
	r := db.retries()
	for {
		_, err := on.ExecContext(ctx, query, args...)
		if err == nil || !r.wait(ctx, err) {
			return err
		}
	}
}
