// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

//go:embed sql/*.sql
var steps embed.FS

// applicationID marks the files of a cell's database ("cacl" in ASCII), and a table with the steps
// of the schema a database of servers.
const (
	applicationID = 0x6361636c
	stepsTable    = "cell_schema"
)

// DB is a cell's database in SQL. It implements Store.
//
// Each commit is on the disk before it is acknowledged. Only heartbeats in a file are not: they are
// synced with the next commit, because hosts repeat them in seconds. One process has a file open; a
// database of servers may have several processes, which see each other's changes with Changes.
type DB struct {
	kit    *sqldb.DB
	engine *dbEngine
	// writeSem is held by who writes: the kit's writer and beating are two connections to the same
	// file.
	writeSem      chan struct{}
	heartbeatConn *sql.DB // one connection for heartbeats, without fsync
	heartbeats    *heartbeats
	checkConn     *sql.DB // a connection that waits for no list
	checked       checkedSchema
	info          Info // without the revision
	maxNodes      int
	forget        time.Duration
}

var _ Store = (*DB)(nil)

// Options changes how a database is opened; the zero value is right for tests and commands.
type Options struct {
	// Logger gets a line when writes begin to fail and when they work again.
	Logger zerolog.Logger
	// Progress, if set, is called now and then while the schema is upgraded.
	Progress func()
	// MaxNodes bounds the nodes of a host that its certificate does not name; 0: DefaultMaxNodes.
	MaxNodes int
	// ForgetNodes is how long a node is kept that its host does not report and that has no servers;
	// 0: a day.
	ForgetNodes time.Duration
}

// DefaultMaxNodes is how many nodes a host may have.
const DefaultMaxNodes = 16

// Open opens the database of the cell with the name, and brings its schema up to date. The address
// is as engine.ParseAddress reads it. A file is for this process alone; if it does not exist, it is
// created (mode 0600), and so is its directory (0700). A database of servers must exist. A database
// of another program, or of a newer version, is refused and not changed.
func Open(ctx context.Context, address, name string, o Options) (*DB, error) {
	kit, err := sqldb.Open(ctx, address,
		sqldb.Options{Schema: schema(name), Means: classifyError, Logger: o.Logger, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	d := &DB{kit: kit, engine: engines[kit.Dialect], writeSem: make(chan struct{}, 1),
		maxNodes: cmp.Or(o.MaxNodes, DefaultMaxNodes), forget: cmp.Or(o.ForgetNodes, defaultForget)}
	d.heartbeats = newHeartbeats(d.saveHeartbeats)
	if err := d.open(ctx, name); err != nil {
		return nil, errors.Join(kit.Explain(ctx, "opening", err), d.Close())
	}
	return d, nil
}

func (d *DB) open(ctx context.Context, name string) (err error) {
	if err := d.kit.Reader.QueryRowContext(ctx, "SELECT name, epoch FROM cell").
		Scan(&d.info.Name, &d.info.Epoch); err != nil {
		return err
	}
	if d.info.Name != name {
		return fmt.Errorf("%w: %s belongs to the cell %q, not to %q; use another path, or that name",
			ErrName, d.kit.Path(), d.info.Name, name)
	}
	if d.heartbeatConn, err = d.kit.Connect("synchronous(NORMAL)"); err != nil {
		return err
	}
	d.checkConn, err = d.kit.Connect("query_only(1)")
	return err
}

// DatabaseOptions returns the options with which sqldb opens a cell's database to copy or check it.
func DatabaseOptions() sqldb.Options { return sqldb.Options{Schema: schema(""), Means: classifyError} }

// Version returns how many schema steps the database at an address has had, and how many this
// program knows. It changes nothing. Errors: fs.ErrNotExist without a file; engine.ErrLocked while
// another process has the file open.
func Version(ctx context.Context, address string) (has, knows int, err error) {
	o := DatabaseOptions()
	has, err = sqldb.Version(ctx, address, o)
	return has, o.Schema.Newest(), err
}

// Migrate runs the schema steps that a cell's database lacks, up to number to (0: all), and returns
// how many it had before. It also runs steps after which older programs cannot use the database. If
// such a program has the database open, the error names it and matches engine.ErrInUse. A database
// without a cell is ErrNoCell.
func Migrate(ctx context.Context, address string, to int) (had int, err error) {
	if had, _, err = Version(ctx, address); errors.Is(err, fs.ErrNotExist) || err == nil && had == 0 {
		return 0, fmt.Errorf("%w at %s; `compute-agent cells serve` makes it, with its name",
			ErrNoCell, engine.Shown(address))
	}
	if err != nil {
		return 0, err
	}
	had, _, err = sqldb.Migrate(ctx, address, to, DatabaseOptions())
	return had, err
}

// schema is the tables of a cell's database; a new one is that of the cell with the name.
func schema(name string) *sqldb.Schema {
	return &sqldb.Schema{Steps: steps, ApplicationID: applicationID, Table: stepsTable, Processes: "processes",
		New: func(ctx context.Context, tx *sql.Tx) error {
			// from an attempt before
			if _, found, err := sqldb.One(ctx, tx, sqldb.Value[string], "SELECT epoch FROM cell"); err != nil || found {
				return err
			}
			_, err := tx.ExecContext(ctx, "INSERT INTO cell (one, name, epoch, revision) VALUES (1, ?, ?, 1)", name,
				uuid.NewString())
			return err
		}}
}

var (
	// errDamaged is both errors of a database that cannot be read, errNotOurs all of a file whose
	// tables are not those of a cell.
	errDamaged = errors.Join(ErrUnavailable, ErrDamaged)
	errNotOurs = errors.Join(ErrUnavailable, ErrSchema)
)

// classifyError is what a failure of the database is to the callers of this package.
func classifyError(kind error) error {
	//nolint:errorlint // one of these values, never wrapped
	switch kind {
	case engine.ErrCorrupt:
		return errDamaged
	case engine.ErrSchema, engine.ErrNotDatabase:
		return errNotOurs
	}
	return ErrUnavailable
}

// Shared says that other processes may have the database as well.
func (d *DB) Shared() bool { return d.engine.Shared() }

// Address is the file of the database, or its address without a password.
func (d *DB) Address() string { return d.kit.Path() }

// Problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (d *DB) Problem() error { return d.kit.Problem() }

// ServeBackup answers a request with a consistent copy of the database, if that is a file.
func (d *DB) ServeBackup(w http.ResponseWriter, r *http.Request) {
	if d.engine.Shared() {
		http.Error(w, d.kit.Path()+
			" is on database servers: copy it with cells backup, which needs no process of the cell",
			http.StatusNotImplemented)
		return
	}
	d.kit.ServeBackup(w, r)
}

// AnswersAt notes the admin socket of the process beside the database.
func (d *DB) AnswersAt(socket string) { d.kit.AnswersAt(socket) }

// SchemaVersion is how many schema steps the database has had, and how many this program knows.
func (d *DB) SchemaVersion(context.Context) (has, knows int, err error) {
	_, has = d.kit.Steps()
	return has, schema("").Newest(), nil
}

// Close closes the database. Nothing may use it any more.
func (d *DB) Close() error {
	return d.kit.Close()
}
