// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"embed"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Options changes how a database is opened; the zero value is right for a service.
type Options struct {
	// MaxPages is how large the database may become, in pages of 4 KiB; writes beyond that fail
	// with ErrUnavailable. 0 is no limit.
	MaxPages int
	// Now is the clock of created_at and updated_at; nil is the system's.
	Now func() time.Time
	// Logger gets a line when writes begin to fail and when they work again.
	Logger zerolog.Logger
	// Progress, if set, is called now and then while the schema is upgraded.
	Progress func()
}

// DB implements [Store] in an SQL database. A write to a file costs one fsync, and readers do not
// wait for it.
type DB struct {
	kit *sqldb.DB
	now func() time.Time
	// lease has to be held for writes; nil: it need not be.
	lease *sqldb.Lease
}

var _ Store = (*DB)(nil)

// olderHint is what to do about a database that lacks steps of the schema.
const olderHint = "keep a copy, and run `compute-agent cells manage db upgrade`; a compute API that still uses a " +
	"database file has to be stopped first"

// Open opens a database for service, by the path of a file or the DSN of servers, as
// [engine.ParseAddress] reads it. A file is for this process alone, and made when it is not there;
// a database of servers has to be there, and several processes may use it. One without tables gets
// the whole schema; one that lacks steps of it is refused with ErrSchema and what to do. Errors are
// *[engine.Error].
func Open(ctx context.Context, name string, o Options) (*DB, error) {
	return open(ctx, name, o, schema(olderHint))
}

// OpenAndUpgrade is Open, but runs the steps of the schema that are missing.
func OpenAndUpgrade(ctx context.Context, name string, o Options) (*DB, error) {
	return open(ctx, name, o, schema(""))
}

func open(ctx context.Context, name string, o Options, s *sqldb.Schema) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	kit, err := sqldb.Open(ctx, name,
		sqldb.Options{Schema: s, MaxPages: o.MaxPages, Means: classifyError, Logger: o.Logger, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	return &DB{kit: kit, now: o.Now}, nil
}

// Scheduling is the lease of the process that schedules. Table and Name of the options are set. It
// must be called before the database is used by several goroutines.
func (db *DB) Scheduling(o sqldb.LeaseOptions) *sqldb.Lease {
	o.Table, o.Name = "leases", "scheduler"
	return db.kit.NewLease(o)
}

// Fenced is the store for writes that only the holder of a lease may make: others get
// [sqldb.ErrLeaseLost], and nothing is written.
func (db *DB) Fenced(l *sqldb.Lease) Store { return &DB{kit: db.kit, now: db.now, lease: l} }

// Shared says that other processes may use the database at the same time.
func (db *DB) Shared() bool { return db.kit.Dialect.Shared() }

// Path is where the file is, absolute and without symbolic links; or the address of a database of
// servers, without its password.
func (db *DB) Path() string { return db.kit.Path() }

// Close closes the database. Closing it again does nothing.
func (db *DB) Close() error { return db.kit.Close() }

// SchemaVersion implements [Store].
func (db *DB) SchemaVersion(context.Context) (has, knows int, err error) {
	_, has = db.kit.Steps()
	return has, schema("").Newest(), nil
}

// Problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (db *DB) Problem() error { return db.kit.Problem() }

// ServeBackup answers a request with a consistent copy of the database.
func (db *DB) ServeBackup(w http.ResponseWriter, r *http.Request) { db.kit.ServeBackup(w, r) }

// AnswersAt notes the admin socket of the process beside the database.
func (db *DB) AnswersAt(socket string) { db.kit.AnswersAt(socket) }

// write runs f in a transaction that has no other writer beside it. An error of f undoes all. In a
// database of servers f may run more than once, so it must set its results each time.
func (db *DB) write(ctx context.Context, op string, f func(*sql.Tx) error) error {
	if db.lease == nil {
		return db.kit.Write(ctx, op+" in", f)
	}
	return db.kit.Write(ctx, op+" in", func(tx *sql.Tx) error {
		if err := db.lease.Check(ctx, tx); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		return f(tx)
	})
}

// execute is write for one statement.
func (db *DB) execute(ctx context.Context, op, statement string, args ...any) error {
	return db.write(ctx, op, func(tx *sql.Tx) error {
		_, err := sqldb.Exec(ctx, tx, statement, args...)
		return err
	})
}

// read runs f on a snapshot.
func (db *DB) read(ctx context.Context, op string, f func(*sql.Tx) error) error {
	return db.kit.Read(ctx, op+" in", f)
}

func (db *DB) failed(ctx context.Context, op string, err error) error {
	return db.kit.Explain(ctx, op+" in", err)
}

// limitOf is the LIMIT for a limit of which 0 is unlimited.
func limitOf(limit int) int {
	if limit <= 0 {
		return math.MaxInt32
	}
	return limit
}

// batch is how many rows or values one statement has at most.
const batch = 50

// insertAll inserts rows into a table, as many in a statement as it may have.
func insertAll(ctx context.Context, tx *sql.Tx, into string, rows [][]any) error {
	for some := range slices.Chunk(rows, batch) {
		one := "(" + sqldb.Placeholders(len(some[0])) + ")"
		if _, err := sqldb.Exec(ctx, tx, "INSERT INTO "+into+" VALUES "+one+strings.Repeat(", "+one, len(some)-1),
			slices.Concat(some...)...); err != nil {
			return err
		}
	}
	return nil
}

func micros(t time.Time) int64     { return t.UnixMicro() }
func fromMicros(t int64) time.Time { return time.UnixMicro(t).UTC() }

// timeOrNow is a time, or now if it is zero.
func (db *DB) timeOrNow(t time.Time) int64 {
	if t.IsZero() {
		t = db.now()
	}
	return micros(t)
}

// jsonText is the JSON of a value.
func jsonText(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// damaged is the error for a row that cannot be read.
func (db *DB) damaged(what string, err error) error {
	return &engine.Error{Op: "reading " + what + " in",
		Database: db.Path(), Hint: "a row of it cannot be read; restore a backup", Err: err, Means: ErrUnavailable}
}

func notFound(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrNotFound)
}

//go:embed sql/*.sql
var steps embed.FS

// applicationID marks files of the API database: "CAap".
const applicationID = 0x43416170

// schema is the tables of an API database. With older, one that lacks steps is refused.
func schema(older string) *sqldb.Schema {
	return &sqldb.Schema{Steps: steps, ApplicationID: applicationID, Table: "api_schema",
		Processes: "processes", OlderHint: older}
}

// DatabaseOptions returns the options with which sqldb opens an API database to copy or check it.
func DatabaseOptions() sqldb.Options { return sqldb.Options{Schema: schema(""), Means: classifyError} }

// classifyError is what a failure of the database is to the callers of this package.
func classifyError(kind error) error {
	if kind == engine.ErrSchema || kind == engine.ErrNotDatabase { //nolint:errorlint // one of these values
		return ErrSchema
	}
	return ErrUnavailable
}

// Version says how many steps of the schema the database of a name has had, and how many this
// program knows. It changes nothing. Without a file the error is fs.ErrNotExist; while another
// process has the file open it is engine.ErrLocked.
func Version(ctx context.Context, name string) (has, knows int, err error) {
	s := schema("")
	has, err = sqldb.Version(ctx, name, sqldb.Options{Schema: s, Means: classifyError})
	return has, s.Newest(), err
}

// Migrate runs steps of the schema until the database has had as many as are asked for (0: all
// there are), and says how many it had before. A file is made if it is not there, and all steps
// happen to it in one transaction: they are all run or none. In a database of servers a step that
// failed in the middle is run again the next time. Steps that older programs cannot live with are
// run as well, unless one of those lives: then the error, which names it, matches engine.ErrInUse.
// A database that has had more already is ErrSchema: steps are not undone.
func Migrate(ctx context.Context, name string, to int) (had int, err error) {
	had, _, err = sqldb.Migrate(ctx, name, to, DatabaseOptions())
	return had, err
}
