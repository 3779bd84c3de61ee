// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// database is an SQLite file in use.
type database struct {
	*databaseFiles
	db    *sql.DB
	path  string
	log   bytes.Buffer
	probe error
}

// open opens a database and guards it. The guard's own goroutine is ended: tests call
// probeAfterFailure.
func open(t *testing.T, params ...string) *database {
	t.Helper()
	d := &database{path: filepath.Join(t.TempDir(), "state", "x.db")}
	testproc.Check(t, os.Mkdir(filepath.Dir(d.path), 0o700))
	pragmas := append([]string{"journal_mode(WAL)"}, params...)
	db, c, err := connect(d.path, 0, url.Values{"_pragma": pragmas})
	testproc.Check(t, err)
	db.SetMaxIdleConns(2)
	d.db = db
	t.Cleanup(func() { _ = d.db.Close() })
	testproc.Try(d.db.ExecContext(t.Context(), "CREATE TABLE t (x)")).Or(t)
	d.databaseFiles = testproc.Try(protect(t.Context(), d.path, zerolog.New(&d.log), func(ctx context.Context) error {
		return errors.Join(d.probe, d.transaction(ctx, func(tx *sql.Tx) error { return touch(ctx, tx) }))
	})).Or(t)
	c.files.Store(d.databaseFiles)
	d.close()
	return d
}

// transaction is that of a DB on these files.
func (d *database) transaction(ctx context.Context, f func(*sql.Tx) error) error {
	db := &DB{Dialect: engine.SQLite, files: d.databaseFiles}
	err := db.transaction(ctx, d.db, f)
	db.Failed(err)
	return err
}

func (d *database) insert(t *testing.T, value string) error {
	return d.transaction(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO t (x) VALUES (?)", value)
		return err
	})
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	testproc.Check(t, os.Rename(from, to))
}

// TestWriteToReplacedFileFails: whichever of the files goes away or is another one, writes are
// refused and no connection is opened until it is back.
func TestWriteToReplacedFileFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, suffix := range []string{"", "-wal"} {
		for _, replaced := range []bool{false, true} {
			d := open(t)
			rename(t, d.path+suffix, d.path+".away")
			if replaced {
				testproc.Check(t, os.WriteFile(d.path+suffix, nil, 0o600))
			}
			if err := d.insert(t, "lost"); !errors.Is(err, engine.ErrReplaced) ||
				!errors.Is(d.problem(), engine.ErrReplaced) {
				t.Errorf("%q, replaced %v: write: %v, problem: %v", suffix, replaced, err, d.problem())
			}
			busy, err := d.db.Conn(t.Context()) // the one that the pool has
			testproc.Check(t, err)
			if other, err := d.db.Conn(t.Context()); !errors.Is(err, engine.ErrReplaced) {
				t.Errorf("%q, replaced %v: a connection to another file: %v, %v", suffix, replaced, other, err)
			}
			_ = busy.Close()
			d.probeAfterFailure(t.Context())
			d.probeAfterFailure(t.Context())
			rename(t, d.path+".away", d.path+suffix)
			if err := d.insert(t, "kept"); err != nil || d.problem() != nil {
				t.Errorf("%q, replaced %v: put back: %v, %v", suffix, replaced, err, d.problem())
			}
			d.probeAfterFailure(t.Context())
			// the level and the field
			if text := d.log.String(); strings.Count(text, `"error"`) != 2 || strings.Count(text, `"info"`) != 1 {
				t.Errorf("log:\n%s", text)
			}
		}
	}
}

func TestDirectoryRenamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := open(t)
	dir := filepath.Dir(d.path)
	rename(t, dir, dir+"-old")
	testproc.ErrorIs(t, d.insert(t, "lost"), engine.ErrReplaced, "write: %v")
	testproc.Check(t, os.Mkdir(dir, 0o700))
	testproc.ErrorIs(t, d.insert(t, "lost"), engine.ErrReplaced, "write with an empty directory in its place: %v")
}

// TestRemovedDuringCommit: the commit succeeds, in a file that is no longer there.
func TestRemovedDuringCommit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := open(t)
	err := d.transaction(t.Context(), func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO t (x) VALUES ('lost')"); err != nil {
			return err
		}
		return os.Remove(d.path)
	})
	testproc.ErrorIs(t, err, engine.ErrReplaced, "got %v")
}

// TestProblemLastsUntilProbeSucceeds: a write for which there is no space makes the database
// unwritable until a probe succeeds; a write that violates a constraint does not.
func TestProblemLastsUntilProbeSucceeds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := open(t, "max_page_count(4)")
	testproc.Try(d.db.ExecContext(t.Context(), "CREATE UNIQUE INDEX one ON t (x)")).Or(t)
	testproc.Check(t, errors.Join(d.insert(t, "a"), d.problem()))
	if err := d.insert(t, "a"); err == nil || d.problem() != nil {
		t.Errorf("a violated constraint: %v, problem: %v", err, d.problem())
	}
	if err := d.insert(t, strings.Repeat("x", 100_000)); err == nil || d.problem() == nil ||
		engine.Reason(d.problem()) != "no space is left on its disk" {
		t.Fatalf("no space: %v, problem: %v", err, d.problem())
	}
	d.probe = errors.New("still full")
	if d.probeAfterFailure(t.Context()); d.problem() == nil {
		t.Error("no problem although the probe failed")
	}
	d.probe = nil
	if d.probeAfterFailure(t.Context()); d.problem() != nil {
		t.Errorf("after a probe that succeeded: %v", d.problem())
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(d.path), ".probe*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
