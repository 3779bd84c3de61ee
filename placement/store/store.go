// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// shard is the row of ledger_version that all commits share.
const shard = 0

const versionQuery = "SELECT version FROM ledger_version WHERE shard = ?"

const (
	// followTime and loadTime bound the reading of what others changed, and of everything.
	followTime = time.Minute
	loadTime   = 10 * time.Minute
)

// Options say how a file is opened; the zero value is right for a server.
type Options struct {
	// MaxPages is the maximum size of the database, in pages of 4 KiB; writes
	// beyond that fail with engine.ErrFull. 0 is no limit.
	MaxPages int
	// Exclusive refuses a database that another process serves, and keeps others from
	// serving it until the store is closed.
	Exclusive bool
	// Failover is how long a commit waits for a server that takes writes; 0 is 5 s.
	Failover time.Duration
	// Upgrade also runs the steps of the schema after which older programs cannot
	// use the database.
	Upgrade bool
	// Logger gets a line when writes begin to fail and when they work again.
	Logger zerolog.Logger
	// Progress, if set, is called now and then while the schema is upgraded, and while rows are
	// loaded.
	Progress func()
}

// Store is a ledger.Store on an SQL database. It is safe for concurrent use.
type Store struct {
	db *sqldb.DB
	// exclusive: no other process can commit. ledger_changes is not written.
	exclusive bool
	// coarse: the column of allocation ratios has single precision.
	coarse bool

	// committing guards the writing session.
	committing sync.Mutex
	writer     *session
	// reserved is the transaction that Reserve began; its goroutine holds committing.
	reserved *sql.Tx
	closed   bool

	version *sql.Stmt // on the reading connections

	progress func() // nil: no one wants to know

	made string // the token of the tables that were opened, "" for a file
}

var (
	_ ledger.Store    = (*Store)(nil)
	_ ledger.Reserver = (*Store)(nil)
)

// Open opens a database by its name (see engine.ParseAddress): an SQLite file for
// this process alone, which it creates if it does not exist, or a database that
// several servers share. It upgrades the schema, or adopts a file that OpenStack
// Placement created. Errors are *engine.Error.
func Open(ctx context.Context, name string, o Options) (*Store, error) {
	opening := sqldb.Options{Schema: schema, MaxPages: o.MaxPages, Exclusive: o.Exclusive, Failover: o.Failover,
		Means: ledgerError, Logger: o.Logger, Progress: o.Progress}
	if o.Upgrade {
		opening.Steps = schema.Newest()
	}
	db, err := sqldb.Open(ctx, name, opening)
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, db)
	if err != nil {
		return nil, err
	}
	s.progress = o.Progress
	db.ProbeBy(s.probe)
	if !s.exclusive {
		if err := db.Reader.QueryRowContext(ctx, schemaToken).Scan(&s.made); err != nil {
			return nil, errors.Join(s.failed(ctx, "opening", err), s.Close())
		}
		return s, nil
	}
	version, err := s.Version(ctx)
	if err == nil {
		err = db.RefuseLoss(ctx, version)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newStore owns the database, even if it fails.
func newStore(ctx context.Context, db *sqldb.DB) (*Store, error) {
	s := &Store{db: db, exclusive: !db.Dialect.Shared()}
	var err error
	if db.Dialect == engine.MySQL {
		if err := db.Reader.QueryRowContext(ctx, singlePrecision).Scan(&s.coarse); err != nil {
			return nil, errors.Join(s.failed(ctx, "opening", err), s.Close())
		}
	}
	query := "SELECT version, " + db.Dialect.ReadOnly + ", '' FROM ledger_version WHERE shard = ?"
	if !s.exclusive {
		query = "SELECT version, " + db.Dialect.ReadOnly +
			", COALESCE((" + schemaToken + "), '') FROM ledger_version WHERE shard = ?"
	}
	if s.version, err = db.Reader.PrepareContext(ctx, query); err != nil {
		return nil, errors.Join(s.failed(ctx, "opening", err), s.Close())
	}
	return s, nil
}

// ledgerError maps a failure to the ledger's error: one that can pass by itself, or
// with an operator's help, is ledger.ErrUnavailable.
func ledgerError(kind error) error {
	//nolint:errorlint // one of these values, never wrapped
	switch kind {
	case engine.ErrFull:
		return errFull
	case engine.ErrSchema:
		return ledger.ErrSchema
	case engine.ErrReadOnly, engine.ErrDenied, engine.ErrUnsuitable, engine.ErrLocked, engine.ErrUnreachable,
		engine.ErrIO, engine.ErrReplaced:
		return ledger.ErrUnavailable
	}
	return nil
}

// errFull is both errors of a full disk.
var errFull = errors.Join(ledger.ErrFull, ledger.ErrUnavailable)

// Exclusive implements ledger.Store.
func (s *Store) Exclusive() bool { return s.exclusive }

// TimeResolution implements ledger.Coarse.
func (s *Store) TimeResolution() time.Duration { return s.db.Dialect.TimeResolution }

// singlePrecision is a query for whether allocation ratios are kept with about
// seven digits, as they are where OpenStack Placement made MySQL's tables.
const singlePrecision = "SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = DATABASE() " +
	"AND table_name = 'inventories' AND column_name = 'allocation_ratio' AND data_type = 'float'"

// Ratio implements ledger.Coarse. MySQL shows six digits of a FLOAT.
func (s *Store) Ratio(written float64) float64 {
	if !s.coarse {
		return written
	}
	kept, err := strconv.ParseFloat(strconv.FormatFloat(float64(float32(written)), 'g', 6, 64), 64)
	if err != nil {
		return written // too large for the column, which refuses it
	}
	return kept
}

// Problem is the reason why commits fail now; nil if none is known.
func (s *Store) Problem() error { return s.db.Problem() }

// ServeBackup answers a request with a consistent copy of the database.
func (s *Store) ServeBackup(w http.ResponseWriter, r *http.Request) { s.db.ServeBackup(w, r) }

// AnswersAt notes the admin socket of the process beside the database.
func (s *Store) AnswersAt(socket string) { s.db.AnswersAt(socket) }

// Version implements ledger.Store. Cost: one query by key, about 20 µs on
// SQLite and 200 µs on a server. A server that does not take writes is not
// believed: it may be behind. After a lost connection another one is tried.
func (s *Store) Version(ctx context.Context) (version int64, err error) {
	const op = "reading the version of"
	for range 2 {
		if version, err = s.readVersion(ctx); err == nil || s.exclusive {
			break
		}
		if err = s.failed(ctx, op, err); !errors.Is(err, engine.ErrUnreachable) && !errors.Is(err, engine.ErrReadOnly) {
			break
		}
		s.db.CloseIdle()
	}
	s.db.Failed(err)
	return version, s.failed(ctx, op, err)
}

func (s *Store) readVersion(ctx context.Context) (version int64, err error) {
	if !s.exclusive {
		var cancel context.CancelFunc
		ctx, cancel = engine.Bounded(ctx)
		defer cancel()
	}
	var readOnly bool
	var made string
	err = s.version.QueryRowContext(ctx, shard).Scan(&version, &readOnly, &made)
	if err == nil && s.made != "" && made != s.made {
		return 0, tablesReplaced()
	}
	if err == nil && readOnly {
		err = &engine.Error{Kind: engine.ErrReadOnly,
			Hint: "the database server became read-only: it may be a replica now"}
	}
	return version, err
}

// failed explains a driver's error. It returns the ledger's own errors unchanged.
func (s *Store) failed(ctx context.Context, op string, err error) error {
	if errors.Is(err, ledger.ErrVersionConflict) || errors.Is(err, ledger.ErrReload) {
		return err
	}
	return s.db.Explain(ctx, op, s.checkTables(ctx, err))
}

// Close implements ledger.Store. Closing again does nothing.
func (s *Store) Close() error {
	s.committing.Lock()
	if s.closed {
		s.committing.Unlock()
		return nil
	}
	s.closed = true
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.version != nil {
		errs = append(errs, s.version.Close())
	}
	if !s.exclusive {
		errs = nil // a connection that was lost cannot be closed, and has nothing to lose
	}
	s.committing.Unlock() // a probe that waits for it ends before the database is closed
	errs = append(errs, s.db.Close())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close %s: %w", s.db.Path(), err)
	}
	return nil
}

// session is the one connection that commits, with its prepared statements. It is
// opened when it is first needed, and again after it was lost.
type session struct {
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

// session returns the writing session. The caller holds s.committing.
func (s *Store) session(ctx context.Context) (*session, error) {
	if s.writer != nil {
		return s.writer, nil
	}
	conn, err := s.db.Writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s.writer = &session{conn: conn, stmts: map[string]*sql.Stmt{}}
	return s.writer, nil
}

// dropLost drops the session if err is that its connection is closed; on a database
// of servers, unless err says that it is of use: prepared statements can be too old,
// and a server can refuse writes.
func (s *Store) dropLost(err error) {
	if err == nil || s.writer == nil {
		return
	}
	d := s.db.Dialect
	ofUse := errors.Is(err, ledger.ErrVersionConflict) ||
		errors.Is(err, ledger.ErrReload) || d.Is(err, engine.Retry|engine.Conflict|engine.Unfit)
	if !s.exclusive && !ofUse || errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		_ = s.writer.close() // it is gone already
		s.writer = nil
	}
}

// prepared returns the statement for a query; queries are few and written in
// this package.
func (s *session) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt, ok := s.stmts[query]; ok {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	s.stmts[query] = stmt
	return stmt, nil
}

func (s *session) close() error {
	var errs []error
	for _, stmt := range s.stmts {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, s.conn.Close())...)
}
