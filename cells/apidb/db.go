// SPDX-License-Identifier: Apache-2.0

package apidb

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
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
}

// DB implements [Store] in an SQL database. A write costs one fsync; readers do not wait for it.
type DB struct {
	kit *sqldb.DB
	now func() time.Time
}

var _ Store = (*DB)(nil)

// Open opens the database file for service, and for this process alone. One that is not there is
// made, with the whole schema; one that lacks steps of the schema is refused with ErrSchema and
// what to do. Errors are *[sqldb.Error].
func Open(ctx context.Context, path string, o Options) (*DB, error) {
	return open(ctx, path, o, schema("stop the compute API where it still runs, keep a copy, and run `compute-agent cells manage db upgrade`"))
}

// OpenAndUpgrade is Open, but runs the steps of the schema that are missing.
func OpenAndUpgrade(ctx context.Context, path string, o Options) (*DB, error) {
	return open(ctx, path, o, schema(""))
}

func open(ctx context.Context, path string, o Options, s *sqldb.Schema) (*DB, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	kit, err := sqldb.Open(ctx, path, sqldb.Options{Schema: s, MaxPages: o.MaxPages, Means: means, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &DB{kit: kit, now: o.Now}, nil
}

// Path is where the file is, absolute and without symbolic links.
func (s *DB) Path() string { return s.kit.Path() }

// Close closes the file. Closing it again does nothing.
func (s *DB) Close() error { return s.kit.Close() }

// SchemaVersion implements [Store].
func (s *DB) SchemaVersion(context.Context) (has, knows int, err error) {
	_, has = s.kit.Steps()
	return has, schema("").Newest(), nil
}

// Problem is why writes fail now; nil when nothing is known that keeps them from succeeding.
func (s *DB) Problem() error { return s.kit.Problem() }

// ServeBackup answers a request with a consistent copy of the database.
func (s *DB) ServeBackup(w http.ResponseWriter, r *http.Request) { s.kit.ServeBackup(w, r) }

// AnswersAt notes the admin socket of the process beside the database.
func (s *DB) AnswersAt(socket string) { s.kit.AnswersAt(socket) }

// write runs f in a transaction that has no other writer beside it. An error of f undoes all.
func (s *DB) write(ctx context.Context, op string, f func(*sql.Tx) error) error {
	return s.kit.Write(ctx, op+" in", f)
}

// read runs f on a snapshot.
func (s *DB) read(ctx context.Context, op string, f func(*sql.Tx) error) error {
	return s.kit.Read(ctx, op+" in", f)
}

func (s *DB) failed(ctx context.Context, op string, err error) error {
	return s.kit.Explain(ctx, op+" in", err)
}

// limitOf is the LIMIT for a limit of which 0 is unlimited.
func limitOf(limit int) int {
	if limit <= 0 {
		return -1
	}
	return limit
}

func timeIn(t time.Time) int64  { return t.UnixMicro() }
func timeOut(t int64) time.Time { return time.UnixMicro(t).UTC() }

// momentOr is a time, or now if it is zero.
func (s *DB) momentOr(t time.Time) int64 {
	if t.IsZero() {
		t = s.now()
	}
	return timeIn(t)
}

// text is the JSON of a value.
func text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// damaged is the error for a row that cannot be read.
func (s *DB) damaged(what string, err error) error {
	return &sqldb.Error{Op: "reading " + what + " in", Database: s.Path(), Hint: "a row of it cannot be read; restore a backup", Err: err, Means: ErrUnavailable}
}

func notFound(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), ErrNotFound)
}
