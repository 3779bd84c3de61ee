// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAcknowledgedVersions: a database at a lower version than was noted beside it is refused,
// until the note is removed.
func TestAcknowledgedVersions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "x.db")
	reopen := func(version int64) error {
		t.Helper()
		db := open(t, path)
		defer func() { must(t, db.Close()) }()
		return db.RefuseLoss(t.Context(), version)
	}
	must(t, reopen(0))
	must(t, reopen(7)) // the first time it is noted
	must(t, reopen(7))
	if err := reopen(6); !errors.Is(err, engine.ErrLost) ||
		!strings.Contains(err.Error(), "it is at version 6, and version 7 was acknowledged: x.db-wal was removed") {
		t.Errorf("an older one: %v", err)
	}
	must(t, reopen(7)) // the refused one was not noted
	db := open(t, path)
	db.RecordVersion(1<<63 - 1)
	must(t, db.Close())
	testproc.ErrorIs(t, reopen(7), engine.ErrLost, "after the last version there can be: %v")
	for _, text := range []string{"", "garbage", "0000000000000000000x\n"} {
		must(t, os.WriteFile(path+"-lock", []byte(text), 0o600))
		must(t, reopen(3))
	}
	must(t, os.Remove(path+"-lock"))
	must(t, reopen(1))
	// A file that was emptied while a version is noted is no new database, also without the marker.
	must(t, errors.Join(os.Remove(sqldb.Marker(path)), os.Truncate(path, 0)))
	testproc.Try(sqldb.Open(t.Context(), path, options())).ErrorIs(t, engine.ErrLost, "an empty one: %v")
}

// kept are options for a schema whose steps are rows of a table.
func kept(adopt func(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (int, error)) sqldb.Options {
	o := options()
	o.Schema.ApplicationID, o.Schema.Table, o.Schema.Adopt = 0, "steps", adopt
	return o
}

// TestStepsInATable: a schema beside tables of another program knows its steps by a table; what the
// other program made is adopted or refused.
func TestStepsInATable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	foreign := func(t *testing.T, statements string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "x.db")
		db := testproc.Try(sql.Open("sqlite", "file:"+path)).Or(t)
		_, err := db.ExecContext(t.Context(), statements)
		must(t, errors.Join(err, db.Close()))
		return path
	}
	noted := func(t *testing.T, db *sqldb.DB) []int {
		t.Helper()
		rows, err := sqldb.All(t.Context(), db.Reader, sqldb.Value[int], "SELECT number FROM steps ORDER BY number")
		must(t, err)
		return rows
	}
	t.Run("new", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "x.db")
		o := kept(nil)
		made := 0
		o.Schema.New = func(context.Context, *sql.Tx) error { made++; return nil }
		for _, had := range []int{0, 2} {
			db := testproc.Try(sqldb.Open(t.Context(), path, o)).Or(t)
			if before, has := db.Steps(); before != had ||
				has != 2 || !slices.Equal(noted(t, db), []int{1, 2}) || made != 1 {
				t.Errorf("it had %d steps and has %d: %v, made %d times", before, has, noted(t, db), made)
			}
			must(t, insert(t, db))
			must(t, db.Close())
		}
	})
	t.Run("adopted", func(t *testing.T) {
		path := foreign(t, "CREATE TABLE t (x TEXT); CREATE TABLE u (x TEXT)")
		adopt := func(ctx context.Context, d *engine.Dialect, q sqldb.Querier) (int, error) {
			if has, err := sqldb.HasTable(ctx, d, q, "t"); err != nil || !has {
				return 0, err
			}
			return 1, nil
		}
		db := testproc.Try(sqldb.Open(t.Context(), path, kept(adopt))).Or(t)
		testproc.EqualList(t, noted(t, db), []int{1, 2}, "the steps: %v")
		must(t, insert(t, db))
		must(t, db.Close())
	})
	t.Run("not adopted", func(t *testing.T) {
		other := errors.New("tables of another age")
		path := foreign(t, "CREATE TABLE other (x TEXT)")
		before := testproc.Try(os.ReadFile(path)).Or(t)
		for adopt, want := range map[string]string{"": `it has the table "other" and not "steps": it belongs to ` +
			`another program`, "refuses": other.Error()} {
			o := kept(nil)
			if adopt != "" {
				o = kept(func(context.Context, *engine.Dialect, sqldb.Querier) (int, error) { return 0, other })
			}
			testproc.Try(sqldb.Open(t.Context(), path, o)).ErrorHas(t, want, "Open: %v")
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
			t.Errorf("the refused file was changed, %v", err)
		}
	})
}

// TestForeignFiles: a file that is not ours is refused and left as it is.
func TestForeignFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for statements, want := range map[string]string{
		"CREATE TABLE other (x TEXT)":                            `it has the table "other" and not our mark`,
		"PRAGMA application_id = 1; CREATE TABLE other (x TEXT)": `it has the table "other" and not our mark`,
		"PRAGMA application_id = 1":                              "it is marked as another program's",
		fmt.Sprintf("PRAGMA application_id = %d; CREATE TABLE other (x TEXT)",
			mark): "it has tables, and says that it has had no step of the schema",
		fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 3; CREATE TABLE t (x)",
			mark): "it has had 3 steps of the schema, and this needs it at 2",
	} {
		path := filepath.Join(t.TempDir(), "x.db")
		db := testproc.Try(sql.Open("sqlite", "file:"+path)).Or(t)
		_, err := db.ExecContext(t.Context(), statements)
		must(t, errors.Join(err, db.Close()))
		if _, err := sqldb.Open(t.Context(), path, options()); !errors.Is(err, engine.ErrSchema) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", statements, err, want)
		}
	}
	path := filepath.Join(t.TempDir(), "x.db")
	for _, text := range []string{"x", strings.Repeat("x", 100), strings.Repeat("x", 5000)} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := sqldb.Open(t.Context(), path, options()); !errors.Is(err, engine.ErrNotDatabase) {
			t.Errorf("%d bytes of text: %v", len(text), err)
		}
	}
	for _, steps := range []int{-1, 3} {
		o := options()
		o.Steps = steps
		_, err := sqldb.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), o)
		if !errors.Is(err, engine.ErrSchema) ||
			!strings.Contains(err.Error(), fmt.Sprintf("there is no step %d", steps)) {
			t.Errorf("step %d: %v", steps, err)
		}
	}
}

// TestRows: rows are read until the end, until that is enough, or until one cannot be.
func TestRows(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db := open(t, filepath.Join(t.TempDir(), "x.db"))
	defer func() { must(t, db.Close()) }()
	const three = "SELECT value FROM json_each('[1, 2, 3]')"
	bad := errors.New("no number")
	upTo := func(last int, end error) ([]int, error) {
		var got []int
		err := sqldb.Each(t.Context(), db.Reader, three, nil, func(row sqldb.Row) error {
			n, err := sqldb.Value[int](row)
			if got = append(got, n); err == nil && n == last {
				return end
			}
			return err
		})
		return got, err
	}
	if got, err := upTo(0, nil); err != nil || !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := upTo(2, sqldb.ErrEnough); err != nil || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("enough: %v, %v", got, err)
	}
	if got, err := upTo(2, bad); !errors.Is(err, bad) || !slices.Equal(got, []int{1, 2}) {
		t.Errorf("an error: %v, %v", got, err)
	}
	if got, err := sqldb.All(t.Context(), db.Reader, sqldb.Value[int], three); err != nil ||
		!slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("all: %v, %v", got, err)
	}
	if got, err := sqldb.All(t.Context(), db.Reader,
		sqldb.Value[int], "SELECT value FROM json_each('[1, \"x\"]')"); err == nil || got != nil {
		t.Errorf("a row that cannot be read: %v, %v", got, err)
	}
	if _, err := sqldb.All(t.Context(), db.Reader, sqldb.Value[int], "SELECT nonsense"); err == nil {
		t.Error("a query that cannot be read")
	}
	for query, want := range map[string]struct {
		n      int
		ok     bool
		failed bool
	}{"SELECT 7": {7, true, false}, three + " WHERE value > 3": {0, false, false}, "SELECT 'x'": {0, false, true}} {
		if n, ok, err := sqldb.One(t.Context(), db.Reader, sqldb.Value[int], query); n != want.n || ok != want.ok ||
			(err != nil) != want.failed {
			t.Errorf("%s: %d, %t, %v", query, n, ok, err)
		}
	}
	for list, want := range map[string]string{sqldb.List[int](nil): "[]", sqldb.List([]string{"a", "b"}): `["a","b"]`} {
		testproc.Equal(t, list, want, "%s")
	}
	err := db.Write(t.Context(), "changing", func(tx *sql.Tx) error {
		for query, want := range map[string]int64{"INSERT INTO u (x) VALUES ('a'), ('b')": 2, "DELETE FROM t": 0} {
			if n, err := sqldb.Exec(t.Context(), tx, query); err != nil || n != want {
				t.Errorf("%s: %d rows, %v", query, n, err)
			}
		}
		_, err := sqldb.Exec(t.Context(), tx, "INSERT INTO nowhere (x) VALUES ('a')")
		return err
	})
	if err == nil {
		t.Error("a statement that fails is no error")
	}
	if n, _, err := sqldb.One(t.Context(), db.Reader, sqldb.Value[int], "SELECT COUNT(*) FROM u"); err != nil ||
		n != 0 {
		t.Errorf("%d rows of a transaction that failed, %v", n, err)
	}
}

// TestCommands: the process that has a database open runs commands for others.
func TestCommands(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l := testproc.Try(net.Listen("unix", socket)).Or(t)
	mux := http.NewServeMux()
	mux.Handle(sqldb.CommandPath,
		sqldb.ServeCommand(func(_ context.Context, words []string, stdout, stderr io.Writer) int {
			_, _ = fmt.Fprint(stdout, strings.Join(words, " "))
			_, _ = fmt.Fprint(stderr, "careful")
			return len(words)
		}))
	server := &http.Server{Handler: mux}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	run := func(words ...string) (string, int, error) {
		var out, problems strings.Builder
		code, err := sqldb.RunAt(t.Context(), socket, words, &out, &problems)
		return out.String() + "|" + problems.String(), code, err
	}
	if text, code, err := run("move", "it"); err != nil || code != 2 || text != "move it|careful" {
		t.Errorf("RunAt: got %q, %d, %v, want exit code 2 and both texts", text, code, err)
	}
	if text, _, err := run(strings.Repeat("x", 1<<20)); err == nil ||
		!strings.Contains(err.Error(), "400 Bad Request: http: request body too large") || text != "|" {
		t.Errorf("%.100q, %v", text, err)
	}
	must(t, server.Close())
	<-ended
	if _, _, err := run("again"); err == nil || !strings.Contains(err.Error(), "ask the process at "+socket) {
		t.Errorf("a process that does not answer: %v", err)
	}
}
