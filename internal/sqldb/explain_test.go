// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestExplain: an error of the database says once what was being done to which file, and is what
// its kind means to the callers; what callers decide on passes as it is.
func TestExplain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	busy := errors.New("try again later")
	o := options()
	o.Means = func(kind error) error {
		if errors.Is(kind, engine.ErrUnreachable) || errors.Is(kind, engine.ErrSchema) {
			return busy
		}
		return nil
	}
	db := testproc.Try(sqldb.Open(t.Context(), path, o)).Or(t)
	defer func() { must(t, db.Close()) }()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	own := errors.New("of the caller")
	missing := db.Write(t.Context(), "inserting into", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO nowhere (x) VALUES ('a')")
		return err
	})
	for name, c := range map[string]struct {
		ctx   context.Context
		err   error
		text  string
		is    []error
		means bool
	}{
		"none":                     {t.Context(), nil, "", nil, false},
		"the caller's":             {t.Context(), own, "of the caller", []error{own}, false},
		"the caller's, at the end": {ended, own, "of the caller", []error{own}, false},
		"the context's": {ended, fmt.Errorf("begin: %w", context.Canceled), "reading " + path +
			": context canceled", []error{context.Canceled}, false},
		"of a transaction it ended": {ended, sql.ErrTxDone, "reading " + path + ": context canceled",
			[]error{context.Canceled}, false},
		"of a transaction that ended": {t.Context(),
			sql.ErrTxDone, "reading " + path + ": it cannot be opened (the connection to it is closed): " +
				sql.ErrTxDone.Error(), []error{engine.ErrUnreachable, sql.ErrTxDone, busy}, true},
		"of a closed connection": {t.Context(),
			sql.ErrConnDone, "reading " + path + ": it cannot be opened (the connection to it is closed): " +
				sql.ErrConnDone.Error(), []error{engine.ErrUnreachable, busy}, true},
		"without what was being done": {t.Context(), &engine.Error{Kind: engine.ErrFull, Hint: "make space"},
			"reading " + path + ": the disk is full (make space)", []error{engine.ErrFull}, false},
		"with what was being done": {t.Context(), &engine.Error{Op: "writing", Kind: engine.ErrSchema}, "writing " +
			path + ": its schema cannot be used", []error{engine.ErrSchema, busy}, true},
		"explained already": {t.Context(),
			&engine.Error{Op: "writing", Database: "elsewhere", Kind: engine.ErrSchema, Means: own},
			"writing elsewhere: its schema cannot be used", []error{engine.ErrSchema, own}, false},
		"with a meaning": {t.Context(), &engine.Error{Kind: engine.ErrSchema, Means: own}, "reading " + path +
			": its schema cannot be used", []error{own}, false},
		"of tables that are missing": {t.Context(), missing, missing.Error(), []error{engine.ErrSchema, busy}, true},
	} {
		got := db.Explain(c.ctx, "reading", c.err)
		text := ""
		if got != nil {
			text = got.Error()
		}
		if text != c.text || errors.Is(got, busy) != c.means {
			t.Errorf("%s: %s (%v), want %s", name, text, errors.Is(got, busy), c.text)
		}
		for _, is := range c.is {
			testproc.ErrorIs(t, got, is, "%s: %v", name)
		}
	}
}

// TestConflictAndFull: a row that conflicts with another is no fault of the database, and one that
// the file has no pages left for names the directory to make space in.
func TestConflictAndFull(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	o := options()
	o.MaxPages = 20
	db := testproc.Try(sqldb.Open(t.Context(), path, o)).Or(t)
	defer func() { must(t, db.Close()) }()
	write := func(statement string) error {
		return db.Write(t.Context(), "writing", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), statement)
			return err
		})
	}
	must(t, write("CREATE TABLE c (x TEXT PRIMARY KEY); INSERT INTO c VALUES ('a')"))
	var e *engine.Error
	if err := write("INSERT INTO c VALUES ('a')"); !errors.As(err, &e) || e.Kind != nil || e.Hint != "" ||
		!engine.SQLite.Is(err, engine.Conflict) {
		t.Errorf("a conflict: %v", err)
	}
	if err := write("INSERT INTO c VALUES (hex(zeroblob(60000)))"); !errors.Is(err, engine.ErrFull) ||
		!errors.As(err, &e) || e.Hint != "nothing was written; make space in "+filepath.Dir(path) {
		t.Errorf("a full file: %v", err)
	}
	must(t, write("INSERT INTO c VALUES ('b')"))
}
