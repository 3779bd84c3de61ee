// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/dbfile"
)

// Options changes how a database is opened; the zero value is right for a service.
type Options struct {
	// BusyTimeout is how long to wait for another process's transaction to end; 0 is 5 s.
	BusyTimeout time.Duration
	// MaxPages is how large the database may become, in pages of 4 KiB; writes beyond that fail with apidb.ErrUnavailable. 0 is no limit.
	MaxPages int
	// Now is the clock of created_at and updated_at; nil is the system's.
	Now func() time.Time
	// Logger gets a line when writes begin to fail and when they work again.
	Logger zerolog.Logger
}

// readers is how many questions are answered at the same time.
const readers = 4

// Open opens the database file for service. While the path does not name the file that was opened, writes fail with apidb.ErrUnavailable. A file that is not there is made (mode 0600, its directory 0700), with the whole schema. One that
// lacks steps of the schema is refused with apidb.ErrSchema and what to do. Errors are *[Error].
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	return openStore(ctx, path, o, false)
}

// OpenAndUpgrade is Open, but runs the steps of the schema that are missing: for programs that are the only ones on the database.
func OpenAndUpgrade(ctx context.Context, path string, o Options) (*Store, error) {
	return openStore(ctx, path, o, true)
}

func openStore(ctx context.Context, path string, o Options, upgrade bool) (*Store, error) {
	const op = "opening the API database"
	if o.Now == nil {
		o.Now = time.Now
	}
	file, writer, guarded, err := openWriter(ctx, op, path, o)
	if err != nil {
		return nil, err
	}
	given, path := path, file.path
	mode := makeOnly
	if upgrade {
		mode = makeOrUpgrade
	}
	if _, err := migrate(ctx, op, writer, path, len(steps), mode); err != nil {
		return nil, errors.Join(err, file.close(writer))
	}
	reader, alsoGuarded, err := connect(op, path, o, url.Values{"_pragma": {"query_only(1)"}})
	if err != nil {
		return nil, errors.Join(err, file.close(writer))
	}
	reader.SetMaxOpenConns(readers)
	reader.SetMaxIdleConns(readers)
	s := &Store{writer: writer, reader: reader, file: file, path: path, now: o.Now}
	probe := func(ctx context.Context) error {
		return s.write(ctx, "probing the API database", func(tx *sql.Tx) error { return dbfile.Touch(ctx, tx) })
	}
	if s.guard, err = dbfile.Use(ctx, given, dbfile.Options{Probe: probe, Logger: o.Logger}); err != nil {
		return nil, errors.Join(fileError(op, path, err), file.close(reader, writer))
	}
	guarded.Guard(s.guard)
	alsoGuarded.Guard(s.guard)
	return s, nil
}

// openWriter opens the one connection that writes, after a look at what the file is: one of another program is left as it was.
func openWriter(ctx context.Context, op, path string, o Options) (_ *file, _ *sql.DB, _ *dbfile.Connector, err error) {
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = busyTimeout
	}
	file, mark, err := prepare(op, path)
	if err != nil {
		return nil, nil, nil, err
	}
	path = file.path
	if mark == markNone {
		// Either the schema is still in the write-ahead log alone, or it is another program's.
		if _, err := readVersion(ctx, op, path); err != nil {
			return nil, nil, nil, errors.Join(err, file.close())
		}
	}
	pragmas := []string{"journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)"}
	if o.MaxPages > 0 {
		pragmas = append(pragmas, "max_page_count("+strconv.Itoa(o.MaxPages)+")")
	}
	writer, guarded, err := connect(op, path, o, url.Values{"_txlock": {"immediate"}, "_pragma": pragmas})
	if err != nil {
		return nil, nil, nil, errors.Join(err, file.close())
	}
	writer.SetMaxOpenConns(1)
	if err := ping(ctx, writer, o.BusyTimeout); err != nil {
		return nil, nil, nil, errors.Join(failed(ctx, op, path, err), file.close(writer))
	}
	return file, writer, guarded, nil
}

// ping makes the connection. When several processes turn the write-ahead log on at the same moment, SQLite refuses all but one at once instead of
// having them wait, because each holds a lock that the others want to be gone.
func ping(ctx context.Context, db *sql.DB, patience time.Duration) error {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for wait := time.Millisecond; ; wait *= 2 {
		err := db.PingContext(ctx)
		if !busy(err) {
			return err
		}
		select {
		case <-patient.Done():
			return err
		case <-time.After(wait):
		}
	}
}

// busyTimeout is how long a transaction of another process is waited for if nothing else is said.
const busyTimeout = 5 * time.Second

func connect(op, path string, o Options, params url.Values) (*sql.DB, *dbfile.Connector, error) {
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = busyTimeout
	}
	// First: the other pragmas may have to wait, too.
	params["_pragma"] = append([]string{"busy_timeout(" + strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10) + ")"}, params["_pragma"]...)
	c, err := dbfile.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: params.Encode()}).String())
	if err != nil {
		return nil, nil, fileError(op, path, err)
	}
	return sql.OpenDB(c), c, nil
}

// PathOf returns the path in a URL of the form sqlite:///PATH, from / on.
func PathOf(dsn string) (string, error) {
	rest, ok := strings.CutPrefix(dsn, "sqlite://")
	if !ok || !strings.HasPrefix(rest, "/") {
		return "", fmt.Errorf("%q is no address of an SQLite database: write sqlite:///PATH", dsn)
	}
	if strings.ContainsAny(rest, "?#") {
		return "", fmt.Errorf("%q is no address of an SQLite database: it takes no options; in a path, ? is %%3F and # is %%23", dsn)
	}
	path, err := url.PathUnescape(rest)
	if path = filepath.Clean(path); err != nil || strings.ContainsRune(path, 0) || path == "/" {
		return "", fmt.Errorf("%q is no address of an SQLite database: its path cannot be read", dsn)
	}
	return path, nil
}
