// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/dbfile"
	"github.com/compute-agent/compute-agent/placement/store"
)

//go:embed sql/*.sql
var migrations embed.FS

// hasTable counts the tables with a name.
const hasTable = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?"

// anyTable names a table that is not SQLite's own.
const anyTable = "SELECT COALESCE(MIN(name), '') FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"

// Option changes how Open opens. Without any, other processes may have the
// file open as well.
type Option func(*options)

type options struct {
	exclusive   bool
	busyTimeout time.Duration
	maxPages    int
	log         zerolog.Logger
}

// Exclusive keeps other processes out while the store is open, and saves
// asking for their commits.
func Exclusive() Option { return func(o *options) { o.exclusive = true } }

// BusyTimeout is how long to wait for another process's transaction to end; 5 s
// by default.
func BusyTimeout(d time.Duration) Option { return func(o *options) { o.busyTimeout = d } }

// MaxPages is how large the database may become, in pages of 4 KiB; writes
// beyond that fail with store.ErrFull. No limit by default.
func MaxPages(n int) Option { return func(o *options) { o.maxPages = n } }

// Logger gets a line when writes begin to fail and when they work again.
func Logger(log zerolog.Logger) Option { return func(o *options) { o.log = log } }

// Store is a store on an SQLite file.
type Store struct {
	*store.Store
	file *dbfile.File
}

// Problem is why commits fail now; nil when nothing is known that keeps them from succeeding.
func (s *Store) Problem() error { return s.file.Problem() }

// Open opens the database file, and makes it (mode 0600) and its directory
// (0700) when they are not there. It brings the schema up to date, or adopts
// the file when OpenStack Placement made it. Errors are *store.Error.
//
// While the store is open, commits fail with store.ErrReplaced as long as the
// path does not name the file that was opened.
func Open(ctx context.Context, path string, opts ...Option) (*Store, error) {
	const op = "opening"
	o := options{busyTimeout: 5 * time.Second}
	for _, opt := range opts {
		opt(&o)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, &store.Error{Op: op, Where: path, Kind: store.ErrUnreachable, Err: err}
	}
	given := path
	// A database that two servers know by two names is one: its lock lies beside the file itself.
	if whole, err := filepath.EvalSymlinks(path); err == nil {
		path = whole
	}
	empty, err := prepare(path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path + "-lock"); !empty && errors.Is(err, fs.ErrNotExist) {
		// Nobody of ours was here: the file of another program is refused before anything of it changes.
		if _, err := ReadSchema(ctx, path); errors.Is(err, store.ErrSchema) {
			return nil, err
		}
	}
	held, err := lock(path, o.exclusive)
	if err != nil {
		return nil, err
	}
	unlock := held.close
	// Before the version is read: another server may commit meanwhile.
	noted := held.noted()
	if empty && noted > 0 {
		// Unless another server has filled it by now, it held something once.
		if info, err := os.Stat(path); err == nil && info.Size() == 0 {
			return nil, errors.Join(&store.Error{Op: op, Where: path, Kind: store.ErrLost, Err: dbfile.Lost(path, path+"-lock")}, unlock())
		}
	}
	pragmas := []string{"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}
	if o.maxPages > 0 {
		pragmas = append(pragmas, "max_page_count("+strconv.Itoa(o.maxPages)+")")
	}
	writer, guarded, err := open(path, o, url.Values{"_txlock": {"immediate"}, "_pragma": pragmas})
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	writer.SetMaxOpenConns(1)
	reader, alsoGuarded, err := open(path, o, url.Values{"_pragma": {"query_only(1)"}})
	if err != nil {
		return nil, errors.Join(err, writer.Close(), unlock())
	}
	reader.SetMaxOpenConns(4)
	reader.SetMaxIdleConns(4)
	files, err := fs.Sub(migrations, "sql")
	if err != nil {
		panic(err) // the embedded directory is part of the program
	}
	// The writer first: it turns the write-ahead log on.
	if err := writer.PingContext(ctx); err != nil {
		failed, _ := classify(path)(op, err)
		return nil, errors.Join(failed, reader.Close(), writer.Close(), unlock())
	}
	// From here on the index is there; it is let go of after the connections, and before another process may be alone.
	wal := indexOf(path)
	closed := func() error {
		wal.release()
		return unlock()
	}
	var file *dbfile.File
	made, err := store.New(ctx, store.Config{
		Writer: writer, Reader: reader, Where: path, Exclusive: o.exclusive, OnCommit: held.note, OnClose: closed,
		Dialect: store.Dialect{
			TimeColumn: func(column string) string { return "CAST(" + column + " AS TEXT)" },
			TimeArg:    func(t time.Time) any { return t.UTC().Format(store.TimeText) },
			MaxParams:  900,
			Migrations: files,
			HasTable:   hasTable, AnyTable: anyTable,
			Classify: classify(path), CommitUnknown: commitUnknown,
		},
		Mark: wal.mark,
		Check: func() error {
			if file == nil {
				return nil // it is being opened
			}
			return file.Check()
		},
		OnFail: func(err error) { file.Failed(err) },
	})
	if err != nil {
		return nil, err
	}
	s := &Store{Store: made}
	version, err := s.Version(ctx)
	if err == nil {
		err = held.refuseLoss(version, noted)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	// After a restore, or the first time: from now on it is known what there was.
	if version > held.noted() {
		held.note(version)
	}
	probe := func(ctx context.Context) error {
		return s.Probe(ctx, func(ctx context.Context, tx *sql.Tx) error { return dbfile.Touch(ctx, tx) })
	}
	if file, err = dbfile.Use(ctx, given, dbfile.Options{Probe: probe, Logger: o.log}); err != nil {
		return nil, errors.Join(fileError(op, path, err), s.Close())
	}
	s.file = file
	guarded.Guard(file)
	alsoGuarded.Guard(file)
	return s, nil
}

// Close implements ledger.Store. Closing again does nothing.
func (s *Store) Close() error {
	s.file.Close()
	return s.Store.Close()
}

// PathOf returns the path in a URL of the form sqlite:///PATH, from / on; of
// sqlite:////PATH, as others write it, too.
func PathOf(dsn string) (string, error) {
	rest, ok := strings.CutPrefix(dsn, "sqlite://")
	if !ok || !strings.HasPrefix(rest, "/") {
		return "", fmt.Errorf("%q is no address of an SQLite database: write sqlite:///PATH", dsn)
	}
	if path, _, ok := strings.Cut(rest, "?"); ok {
		return "", fmt.Errorf("%q with a question mark is no address of an SQLite database: it takes no options, and a question mark in a name is %%3F", "sqlite://"+path)
	}
	path, err := url.PathUnescape(rest)
	if err != nil || strings.ContainsAny(path, "\x00") {
		return "", fmt.Errorf("%q is no address of an SQLite database: its path cannot be read", dsn)
	}
	return path, nil
}

func open(path string, o options, params url.Values) (*sql.DB, *dbfile.Connector, error) {
	params["_pragma"] = append([]string{"busy_timeout(" + strconv.FormatInt(o.busyTimeout.Milliseconds(), 10) + ")"}, params["_pragma"]...)
	c, err := dbfile.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}).String())
	if err != nil {
		return nil, nil, &store.Error{Op: "opening", Where: path, Kind: store.ErrUnreachable, Err: err}
	}
	return sql.OpenDB(c), c, nil
}

// header starts every SQLite file.
var header = []byte("SQLite format 3\x00")

// prepare makes the directory and the file, and finds the plain mistakes that
// SQLite reports late or in its own words. It says whether the file is empty.
func prepare(path string) (empty bool, err error) {
	const op = "opening"
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return false, fileError(op, path, err)
	}
	if err := dbfile.CheckNew(path, path+"-lock"); err != nil {
		return false, &store.Error{Op: op, Where: path, Kind: store.ErrLost, Err: err}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, fileError(op, path, err)
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	head := make([]byte, len(header))
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fileError(op, path, err)
	}
	if n > 0 && !bytes.Equal(head, header) {
		return false, &store.Error{Op: op, Where: path, Kind: store.ErrNotDatabase, Hint: "it does not start as SQLite files do; choose another path, the file was not touched"}
	}
	return n == 0, nil
}
