// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Options say how a database is opened. Schema is needed.
type Options struct {
	Schema *Schema
	// Steps is how many steps of the schema the database has to have; 0 is all of them.
	Steps int
	// Readers is how many queries are answered at the same time; 0 is 4.
	Readers int
	// MaxPages is how large the database may become, in pages of 4 KiB; writes beyond that fail
	// with engine.ErrFull. 0 is no limit.
	MaxPages int
	// Exclusive refuses a database of servers that another process has open, and keeps others from
	// opening it, where the schema has a table of processes. A file belongs to one process anyway.
	Exclusive bool
	// Failover is how long a transaction waits for a server that takes writes; 0 is 5 s.
	Failover time.Duration
	// Means is what a kind of failure is to the callers of the package whose database it is; see
	// [engine.Error].
	Means func(kind error) error
	// Logger gets a line when writes begin to fail and when they work again.
	Logger zerolog.Logger
	// Progress, if set, is called every few seconds while steps of the schema are run, also by
	// another process that this one waits for.
	Progress func()
	// Copied, if set, is called now and then while package backup copies rows, with the table and
	// how many rows of all tables are copied.
	Copied func(table string, rows int64)
	// Patient lets each statement take as long as one of a migration may.
	Patient bool
}

const (
	// readers is how many queries are answered at the same time if nothing else is set.
	readers = 4
	// busyTimeout is how long a lock of another program is waited for, which should not be there.
	busyTimeout = 5 * time.Second
)

// opening is held from the look at a file until SQLite has it open or it is closed again; see the
// package's documentation about locks.
var opening sync.Mutex

// Open opens a database by its name, as [engine.ParseAddress] reads it. Errors are *[engine.Error].
//
// A file is opened for this process alone, and made (mode 0600), as is its directory (0700), when
// it is not there. One that another process has open, that was lost, or that is another program's,
// is refused and not touched. A database of servers has to be there, and gets its tables when it
// has none.
func Open(ctx context.Context, name string, o Options) (*DB, error) {
	a, err := o.Address("opening", name)
	if err != nil {
		return nil, err
	}
	db := &DB{Dialect: a.Dialect, path: a.String(), means: o.Means}
	db.failover = o.Failover
	if o.Progress == nil {
		o.Progress = func() {}
	}
	if a.Shared() {
		err = db.openShared(ctx, a, o)
	} else {
		db.path = realName(a.Path)
		err = db.open(ctx, a.Path, o)
	}
	if err != nil {
		return nil, errors.Join(db.Explain(ctx, "opening", err), db.Close())
	}
	return db, nil
}

// Address reads the name of a database, as [engine.ParseAddress] does, for an operation. Errors are
// *[engine.Error].
func (o Options) Address(op, name string) (engine.Address, error) {
	a, err := engine.ParseAddress(name)
	if err == nil {
		return a, nil
	}
	e := &engine.Error{Op: op, Database: "a database", Kind: engine.ErrUnreachable, Err: err}
	if o.Means != nil {
		e.Means = o.Means(e.Kind)
	}
	return a, e
}

// requiredSteps is how many steps of the schema a database has to have.
func (o Options) requiredSteps() (int, error) {
	newest := o.Schema.Newest()
	switch {
	case o.Steps == 0:
		return newest, nil
	case o.Steps < 0 || o.Steps > newest:
		return 0, &engine.Error{Kind: engine.ErrSchema,
			Hint: fmt.Sprintf("there is no step %d of the schema, this program knows %d", o.Steps, newest)}
	}
	return o.Steps, nil
}

func (db *DB) open(ctx context.Context, given string, o Options) error {
	if err := db.lockAndOpen(ctx, o); err != nil {
		return err
	}
	want, err := o.requiredSteps()
	if err != nil {
		return err
	}
	stop := repeat(ctx, o.Progress)
	had, err := o.Schema.migrate(ctx, db.Dialect, db.Writer, want)
	stop()
	db.stepsBefore, db.stepsAfter = had, want
	if err != nil {
		return err
	}
	if o.Readers == 0 {
		o.Readers = readers
	}
	if db.Reader, err = db.connect(o.Readers, url.Values{"_pragma": {"query_only(1)"}}); err != nil {
		return err
	}
	db.files, err = protect(ctx, given, o.Logger, func(ctx context.Context) error {
		return db.Write(ctx, "probing", func(tx *sql.Tx) error { return touch(ctx, tx) })
	})
	if err != nil {
		return engine.FileError("", db.path, err)
	}
	for _, c := range db.connectors {
		c.files.Store(db.files)
	}
	return nil
}

// repeat calls a function every beatTime, until stop, and not for longer than a step of a schema
// may take.
func repeat(ctx context.Context, f func()) (stop func()) {
	ctx, cancel := context.WithTimeout(ctx, engine.Patience)
	var repeating sync.WaitGroup
	repeating.Go(func() {
		for wait.For(ctx, beatTime) {
			f()
		}
	})
	return func() {
		cancel()
		repeating.Wait()
	}
}

// lockAndOpen locks the file, and opens the connection that writes.
func (db *DB) lockAndOpen(ctx context.Context, o Options) error {
	opening.Lock()
	defer opening.Unlock()
	if err := os.MkdirAll(filepath.Dir(db.path), 0o700); err != nil {
		return engine.FileError("", db.path, err)
	}
	if _, err := os.Lstat(db.path + "-lock"); errors.Is(err, fs.ErrNotExist) {
		// No process of ours has it open. A file of another program is refused before anything is
		// put beside it.
		if _, err := db.probeFile(ctx, o.Schema, true); err != nil {
			return err
		}
		if err := db.checkNew(); err != nil {
			return err
		}
	}
	var err error
	if db.lock, err = lockSoon(ctx, db.path); err != nil {
		return err
	}
	if err := db.checkNew(); err != nil {
		return err
	}
	empty, err := db.probeFile(ctx, o.Schema, o.Schema.ApplicationID != 0)
	switch {
	case err != nil:
		return err
	case empty && db.lock.recordedVersion() > 0:
		return &engine.Error{Kind: engine.ErrLost, Err: lostHint(db.path)}
	}
	f, err := os.OpenFile(db.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return engine.FileError("", db.path, err)
	}
	pragmas := []string{"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}
	if o.MaxPages > 0 {
		pragmas = append(pragmas, "max_page_count("+strconv.Itoa(o.MaxPages)+")")
	}
	if db.Writer, err = db.Connect(pragmas...); err != nil {
		return err
	}
	return db.Writer.PingContext(ctx) // it turns the write-ahead log on
}

// checkNew refuses to make a database where there was one.
func (db *DB) checkNew() error {
	if err := checkNew(db.path); err != nil {
		return &engine.Error{Kind: engine.ErrLost, Err: err}
	}
	_, err := os.Lstat(db.path)
	if log, logErr := os.Stat(db.path + "-wal"); errors.Is(err, fs.ErrNotExist) && logErr == nil && log.Size() > 0 {
		return &engine.Error{
			Kind: engine.ErrLost,
			Hint: "it does not exist, but its write-ahead log " + db.path +
				"-wal is; put the file back, or move the log away to begin with an empty database",
		}
	}
	return nil
}

// header starts every SQLite file (SQLite's "Database File Format", section 1.3).
var header = []byte("SQLite format 3\x00")

const (
	headerSize    = 100
	atApplication = 68
)

// probeFile looks into the file without SQLite's help, which may write to what it opens. It says
// whether there is nothing yet. A file that does not have the schema's mark may be another
// program's; with probe, its tables say so.
func (db *DB) probeFile(ctx context.Context, s *Schema, probe bool) (empty bool, err error) {
	if info, err := os.Stat(db.path); err == nil && info.IsDir() {
		return false, engine.FileError("", db.path, &fs.PathError{Op: "open", Path: db.path, Err: syscall.EISDIR})
	}
	f, err := os.Open(db.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true, nil
	case err != nil:
		return false, engine.FileError("", db.path, err)
	}
	head := make([]byte, headerSize)
	n, err := io.ReadFull(f, head)
	_ = f.Close() // it was only read
	switch {
	case errors.Is(err, io.EOF):
		return true, nil
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return false, engine.FileError("", db.path, err)
	case n < headerSize || !bytes.HasPrefix(head, header):
		return false, &engine.Error{Kind: engine.ErrNotDatabase,
			Hint: "it does not start as SQLite files do; choose another path, the file was not touched"}
	}
	marked := s.ApplicationID != 0 && binary.BigEndian.Uint32(head[atApplication:]) == uint32(s.ApplicationID)
	if marked || !probe {
		return false, nil
	}
	return false, db.readOnly(func(q Querier) error {
		_, err := s.version(ctx, db.Dialect, q)
		return err
	})
}

// readOnly runs f on a connection of its own that writes nothing.
func (db *DB) readOnly(f func(Querier) error) (err error) {
	params := url.Values{"mode": {"ro"}, "_pragma": {busyPragma, "query_only(1)"}}
	if info, err := os.Stat(db.path + "-wal"); err != nil || info.Size() == 0 {
		// All of it is in the file. Without this, SQLite would put its files beside one that says
		// it uses a write-ahead log.
		params.Set("immutable", "1")
	}
	pool, _, err := connect(db.path, 1, params)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	return f(pool)
}

// Inspect runs f on a database of servers, or on a file that no process of ours has open, and
// changes nothing. A file that is not there is fs.ErrNotExist; an empty one has no tables. Errors
// are *[engine.Error].
func Inspect(
	ctx context.Context, name string, o Options, f func(context.Context, *engine.Dialect, Querier) error,
) (err error) {
	const op = "reading the schema of"
	a, err := o.Address(op, name)
	if err != nil {
		return err
	}
	db := &DB{Dialect: a.Dialect, path: a.String(), means: o.Means}
	if a.Shared() {
		if db.connector, err = a.Connect(0); err == nil {
			err = errors.Join(f(ctx, a.Dialect, db.pool(1)), db.Close())
		}
	} else {
		db.path = realName(a.Path)
		err = db.inspect(ctx, o.Schema, f)
	}
	return db.Explain(ctx, op, err)
}

func (db *DB) inspect(
	ctx context.Context, s *Schema, f func(context.Context, *engine.Dialect, Querier) error,
) (err error) {
	opening.Lock()
	defer opening.Unlock()
	switch info, err := os.Stat(db.path); {
	case err != nil:
		return engine.FileError("", db.path, err)
	case !info.Mode().IsRegular():
		return &engine.Error{Kind: engine.ErrNotDatabase, Hint: "it is not a file"}
	}
	held, err := lock(db.path, false, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.close()) }()
	if _, err := db.probeFile(ctx, s, false); err != nil {
		return err
	}
	return db.readOnly(func(q Querier) error { return f(ctx, db.Dialect, q) })
}

// OpenReader opens a database of servers to read from, and changes nothing. A statement may take an
// hour. Errors are *[engine.Error].
func OpenReader(ctx context.Context, a engine.Address, o Options) (*DB, error) {
	const op = "reading"
	db := &DB{Dialect: a.Dialect, path: a.String(), means: o.Means}
	var err error
	if db.connector, err = a.Connect(engine.Patience); err != nil {
		return nil, db.Explain(ctx, op, err)
	}
	db.Reader = db.pool(1)
	has, err := o.Schema.version(ctx, db.Dialect, db.Reader)
	if newest := o.Schema.Newest(); err == nil && has != newest && (has > newest || has < o.Schema.Least()) {
		err = &engine.Error{
			Kind: engine.ErrSchema,
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

// Version is how many steps of the schema a database has had; see [Inspect].
func Version(ctx context.Context, name string, o Options) (has int, err error) {
	err = Inspect(ctx, name, o, func(ctx context.Context, d *engine.Dialect, q Querier) (err error) {
		has, err = o.Schema.version(ctx, d, q)
		return err
	})
	return has, err
}

// Migrate runs steps of the schema of the options until a database has had as many as are asked
// for (0: all there are), and says how many it had before and has. Of a database of servers, that
// runs also the steps that older programs cannot live with, unless one of those has it open: then
// the error, which names it, matches [engine.ErrInUse].
func Migrate(ctx context.Context, name string, to int, o Options) (had, has int, err error) {
	if o.Steps = to; to == 0 {
		o.Steps = o.Schema.Newest() // by its number
	}
	db, err := Open(ctx, name, o)
	if err != nil {
		return 0, 0, err
	}
	had, has = db.Steps()
	return had, has, db.Close()
}

// realName is the path without symbolic links, also of a file that is not there yet. A database
// that two processes know by two names is one: its lock is beside the file itself.
func realName(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}
