// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/celldb/sqlite/internal/prepared"
	"github.com/compute-agent/compute-agent/internal/dbfile"
)

// steps are the schema steps, in the order of their names. One that was released never changes.
//
//go:embed sql/*.sql
var steps embed.FS

// applicationID marks the files of this package ("cacl" in ASCII), in the header that SQLite has for that. The count of the schema steps that a file
// has had is beside it, as user_version.
const applicationID = 0x6361636c

// Places in SQLite's header (https://www.sqlite.org/fileformat.html, section 1.3).
const (
	headerSize    = 100
	atUserVersion = 60
	atApplication = 68
)

// Store is a cell's database in a file. It implements celldb.Store.
type Store struct {
	path  string
	lock  *os.File
	guard *dbfile.File
	// turn makes writer and pulse take turns, which are two connections to the same file: who writes has put something in.
	turn   chan struct{}
	writer *sql.DB // one connection, one fsync for each commit
	pulse  *sql.DB // one connection, without
	reader *sql.DB
	asked  *prepared.Statements // of reader
	whole  atomic.Int64         // the schema_version of SQLite that Check last found whole
	// connectors are of writer, pulse and reader.
	connectors []*dbfile.Connector
	info       celldb.Info // without the revision
}

var _ celldb.Store = (*Store)(nil)

// busyTimeout is how long to wait for a process that should not be there.
const busyTimeout = "busy_timeout(5000)"

// maxStatements is how many are kept prepared on each connection for reading. Lists have few forms, and as many limits as callers come up with.
const maxStatements = 64

// Option changes how Open opens.
type Option func(*options)

type options struct{ log zerolog.Logger }

// Logger gets a line when writes begin to fail and when they work again.
func Logger(log zerolog.Logger) Option { return func(o *options) { o.log = log } }

// Open opens the database of the cell with the name, and makes it (mode 0600), and its directory (0700), when it is not there. It brings the schema up
// to date. The file of another program, or of a newer one, is refused and not touched.
func Open(ctx context.Context, path, name string, opts ...Option) (*Store, error) {
	const op = "opening"
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s: %w", celldb.ErrUnavailable, op, path, err)
	}
	given := path
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		path = whole
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fileError(op, path, err)
	}
	if _, err := look(path); err != nil {
		return nil, err
	}
	s := &Store{path: path, turn: make(chan struct{}, 1)}
	if s.lock, err = takeLock(path); err != nil {
		return nil, err
	}
	empty, err := look(path)
	if err == nil && empty { // again: another process may have made it, and be gone
		err = s.create(ctx, name)
	}
	if err == nil {
		err = s.open(ctx, name)
	}
	if err == nil {
		err = s.protect(ctx, given, o.log)
	}
	if err != nil {
		return nil, errors.Join(explain(path, op, err), s.Close())
	}
	return s, nil
}

// look reads the header of the file with no help of SQLite's, which may write to what it opens. It says whether there is nothing yet.
func look(path string) (empty bool, err error) {
	const op = "opening"
	f, err := os.Open(path) //nolint:gosec // the operator's path
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, fileError(op, path, err)
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	head := make([]byte, headerSize)
	n, err := io.ReadFull(f, head)
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return false, fileError(op, path, err)
	case n < headerSize || !bytes.HasPrefix(head, []byte("SQLite format 3\x00")):
		return false, fmt.Errorf("%w: %s is no SQLite database; choose another path, the file was not touched", celldb.ErrSchema, path)
	case binary.BigEndian.Uint32(head[atApplication:]) != applicationID:
		return false, fmt.Errorf("%w: %s is the database of another program; choose another path, the file was not touched", celldb.ErrSchema, path)
	}
	return false, checkVersion(path, int(binary.BigEndian.Uint32(head[atUserVersion:])))
}

func checkVersion(path string, has int) error {
	if knows := len(stepNames()); has > knows {
		return fmt.Errorf("%w: %s has had %d schema steps and this program knows %d: a newer one made it; run that one, the file was not touched", celldb.ErrSchema, path, has, knows)
	}
	return nil
}

// takeLock locks PATH-lock for as long as the store is open. The kernel lets go of it when the process ends, in whatever way.
func takeLock(path string) (*os.File, error) {
	const op = "locking"
	f, err := os.OpenFile(path+"-lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fileError(op, path, err)
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		_ = f.Close() // the error above is the one that matters
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s is in use by another process, and a cell is one process; stop that one first", celldb.ErrUnavailable, path)
		}
		return nil, fileError(op, path, err)
	}
	return f, nil
}

// create makes the file under another name and gives it its own when it is whole.
func (s *Store) create(ctx context.Context, name string) (err error) {
	if err := dbfile.CheckNew(s.path); err != nil {
		return err
	}
	if _, err := os.Lstat(s.path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s is not there, but its write-ahead log %[2]s-wal is; put the file back, or move the log away to begin with an empty cell", celldb.ErrUnavailable, s.path)
	}
	unfinished := s.path + "-new"
	for _, leftover := range []string{unfinished, unfinished + "-journal"} {
		if err := os.Remove(leftover); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fileError("creating", s.path, err)
		}
	}
	f, err := os.OpenFile(unfinished, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator's path
	if err != nil {
		return fileError("creating", s.path, err)
	}
	if err := f.Close(); err != nil {
		return fileError("creating", s.path, err)
	}
	db, _, err := connect(unfinished, 1, url.Values{"_txlock": {"immediate"}, "_pragma": {"synchronous(FULL)", "application_id(" + strconv.Itoa(applicationID) + ")"}})
	if err != nil {
		return err
	}
	err = migrate(ctx, db, 0, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO cell (one, name, epoch, revision) VALUES (1, ?, ?, 1)", name, uuid.NewString())
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Rename(unfinished, s.path); err != nil {
		return fileError("creating", s.path, err)
	}
	return syncDir(filepath.Dir(s.path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the operator's path
	if err != nil {
		return fileError("creating", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fileError("creating", dir, err)
	}
	return nil
}

// protect begins to look after the files that were opened.
func (s *Store) protect(ctx context.Context, path string, log zerolog.Logger) (err error) {
	probe := func(ctx context.Context) error {
		return s.write(ctx, "probing", func(tx *sql.Tx) error { return dbfile.Touch(ctx, tx) })
	}
	if s.guard, err = dbfile.Use(ctx, path, dbfile.Options{Probe: probe, Logger: log}); err != nil {
		return err
	}
	for _, c := range s.connectors {
		c.Guard(s.guard)
	}
	return nil
}

// Problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (s *Store) Problem() error { return s.guard.Problem() }

// open connects, brings the schema up to date and looks whose cell it is.
func (s *Store) open(ctx context.Context, name string) (err error) {
	if s.reader, err = s.connect(s.path, 4, url.Values{"_pragma": {busyTimeout, "query_only(1)"}}); err != nil {
		return err
	}
	s.asked = prepared.New(s.reader, maxStatements)
	has, knows, err := s.SchemaVersion(ctx)
	if err != nil {
		return err
	}
	if err := checkVersion(s.path, has); err != nil {
		return err
	}
	if err := s.reader.QueryRowContext(ctx, "SELECT name, epoch FROM cell").Scan(&s.info.Name, &s.info.Epoch); err != nil {
		return err
	}
	if s.info.Name != name {
		return fmt.Errorf("%w: %s is of the cell %q, not of %q; choose another path, or that name", celldb.ErrName, s.path, s.info.Name, name)
	}
	if s.writer, err = s.connect(s.path, 1, url.Values{"_txlock": {"immediate"}, "_pragma": {busyTimeout, "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}}); err != nil {
		return err
	}
	if s.pulse, err = s.connect(s.path, 1, url.Values{"_txlock": {"immediate"}, "_pragma": {busyTimeout, "synchronous(NORMAL)"}}); err != nil {
		return err
	}
	if err := s.writer.PingContext(ctx); err != nil {
		return err
	}
	if has < knows {
		return migrate(ctx, s.writer, has, nil)
	}
	return nil
}

// connect is the function connect for the database itself.
func (s *Store) connect(path string, most int, params url.Values) (*sql.DB, error) {
	db, c, err := connect(path, most, params)
	if err == nil {
		s.connectors = append(s.connectors, c)
	}
	return db, err
}

func connect(path string, most int, params url.Values) (*sql.DB, *dbfile.Connector, error) {
	c, err := dbfile.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}).String())
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, c, nil
}

// stepNames are the files of the schema steps, in their order.
func stepNames() []string {
	names, err := fs.Glob(steps, "sql/*.sql")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return names
}

// migrate takes the steps after the first has of them, and then the one given, in one transaction.
func migrate(ctx context.Context, db *sql.DB, has int, last func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	names := stepNames()
	for _, name := range names[has:] {
		text, err := steps.ReadFile(name)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, string(text)); err != nil {
			return fmt.Errorf("schema step %s: %w", name, err)
		}
	}
	if _, err := tx.ExecContext(ctx, "PRAGMA user_version = "+strconv.Itoa(len(names))); err != nil {
		return err
	}
	if last != nil {
		if err := last(tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// SchemaVersion is how many schema steps the database has had, and how many this program knows.
func (s *Store) SchemaVersion(ctx context.Context) (has, knows int, err error) {
	err = s.reader.QueryRowContext(ctx, "PRAGMA user_version").Scan(&has)
	return has, len(stepNames()), explain(s.path, "reading the schema version of", err)
}

// Close closes the database. Nothing may use it any more.
func (s *Store) Close() error {
	s.guard.Close()
	var errs []error
	if s.asked != nil {
		errs = append(errs, s.asked.Close())
	}
	for _, db := range []*sql.DB{s.reader, s.pulse, s.writer} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close()) // last: from now on another process may come
	}
	return explain(s.path, "closing", errors.Join(errs...))
}

// fileError is the error of an operation on the file system.
func fileError(op, path string, err error) error {
	hint := "check that it is a file, and the owner and mode of it and of its directory"
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		hint = "make space in " + filepath.Dir(path)
	}
	return fmt.Errorf("%w: %s %s: %w; %s", celldb.ErrUnavailable, op, path, err, hint)
}
