// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"modernc.org/sqlite"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// watched makes connections to a file that keep a few statements, and notes what is prepared ahead
// and how many of these are closed.
type watched struct {
	driver.Connector
	most         int
	made, closed atomic.Int64
}

type watchedConn struct {
	fileConn
	w *watched
}

type watchedStmt struct {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	w *watched
}

func (w *watched) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := w.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	file := conn.(fileConn) // the driver implements fileConn
	return withKeptStatements(watchedConn{file, w}, w.most), nil
}

func (c watchedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	st, err := c.fileConn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	c.w.made.Add(1)
	return watchedStmt{st, st.(driver.StmtExecContext), st.(driver.StmtQueryContext), c.w},
		nil
}

func (s watchedStmt) Close() error {
	s.w.closed.Add(1)
	return s.Stmt.Close()
}

// state is how many statements were made, and how many of them are closed.
func (w *watched) state() [2]int { return [2]int{int(w.made.Load()), int(w.closed.Load())} }

// fruit is a database of one connection with the table fruit.
func fruit(t *testing.T, most int) (*sql.DB, *watched) {
	t.Helper()
	params := url.Values{"_pragma": {busyPragma, "journal_mode(WAL)", "synchronous(OFF)"}}
	c, err := sqlite.NewConnector(
		(&url.URL{Scheme: "file", Path: filepath.Join(t.TempDir(), "db"), RawQuery: params.Encode()}).String())
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{Connector: c, most: most}
	db := sql.OpenDB(w)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		if s := w.state(); s[0] != s[1] {
			t.Errorf("%d of %d statements are closed with the database", s[1], s[0])
		}
	})
	exec(t, db, "CREATE TABLE fruit (name TEXT PRIMARY KEY)")
	exec(t, db, "INSERT INTO fruit VALUES ('apple'), ('pear'), ('quince')")
	return db, w
}

func exec(t *testing.T, db *sql.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// count asks a query that has one number.
func count(t *testing.T, q Querier, text string, args ...any) int {
	t.Helper()
	n, _, err := One(t.Context(), q, Value[int], text, args...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return n
}

// TestATextIsPreparedOnce, and again when it had to make space for those that were asked since.
func TestATextIsPreparedOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, w := fruit(t, 2)
	// The first one fills the table.
	for i, step := range []struct{ n, made, closed int }{{1, 2, 0}, {1, 2, 0}, {2, 3, 1}, {1, 3, 1}, {3, 4, 2},
		{1, 4, 2}, {2, 5, 3}, {3, 6, 4}} {
		if got := count(t, db, fmt.Sprintf("SELECT %d + ?", step.n), i); got != step.n+i {
			t.Fatalf("%d + %d is %d", step.n, i, got)
		}
		if got := w.state(); got != [2]int{step.made, step.closed} {
			t.Fatalf("after step %d %d were made and %d closed", i, got[0], got[1])
		}
	}
}

// TestKeeps: what is not the same each time, or does its work when it is prepared, is not kept.
func TestKeeps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for text, want := range map[string]bool{
		"SELECT 1": true, "\n\tSELECT\n\t1": true, "WITH a AS (SELECT 1) SELECT * FROM a": true,
		"INSERT INTO a VALUES (?)": true,
		"UPDATE a SET b = ?":       true, "DELETE FROM a": true, "": false, "PRAGMA foreign_keys = 1": false,
		"pragma user_version": false, "EXPLAIN SELECT 1": false,
		"CREATE TABLE a (b)": false, "VACUUM INTO ?": false, "-- SELECT 1": false, "SELECT " +
			strings.Repeat("1", keptText): false,
	} {
		if isKept(text) != want {
			t.Errorf("%.40q: %v", text, !want)
		}
	}
}

// TestKeptStatementsFollowTheSchema, also when another connection changes it.
func TestKeptStatementsFollowTheSchema(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, w := fruit(t, 10)
	db.SetMaxOpenConns(2)
	mine, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mine.Close() }()
	columns := func() []string {
		t.Helper()
		rows, err := mine.QueryContext(t.Context(), "SELECT * FROM fruit")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		names, err := rows.Columns()
		if err = errors.Join(err, rows.Err()); err != nil {
			t.Fatal(err)
		}
		return names
	}
	if got := columns(); !slices.Equal(got, []string{"name"}) {
		t.Error(got)
	}
	before := w.state()
	exec(t, db, "ALTER TABLE fruit ADD COLUMN colour TEXT")
	if got := columns(); !slices.Equal(got, []string{"name", "colour"}) || w.state() != before {
		t.Errorf("%v, %v statements and not %v", got, w.state(), before)
	}
	exec(t, db, "DROP TABLE fruit")
	if rows, err := mine.QueryContext(t.Context(), "SELECT * FROM fruit"); err == nil {
		t.Error("there is no table, but its rows", rows.Close())
	}
	exec(t, db, "CREATE TABLE fruit (seeds INTEGER)")
	if got := columns(); !slices.Equal(got, []string{"seeds"}) {
		t.Error(got)
	}
	exec(t, db, "VACUUM") // is refused while a statement is in progress
}

// TestOneTextWithinItself: rows of a text are read while the same text is asked, and dropped from
// the kept ones, in one transaction.
func TestOneTextWithinItself(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, _ := fruit(t, 1)
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	const text = "SELECT name FROM fruit WHERE name > ? ORDER BY name"
	var seen []string
	err = Each(t.Context(), tx, text, []any{""}, func(row Row) error {
		outer, err := Value[string](row)
		if err != nil {
			return err
		}
		count(t, tx, "SELECT COUNT(*) FROM fruit")
		inner, err := All(t.Context(), tx, Value[string], text, outer)
		seen = append(seen, fmt.Sprint(outer, inner))
		return err
	})
	if want := []string{"apple[pear quince]", "pear[quince]", "quince[]"}; err != nil || !slices.Equal(seen, want) {
		t.Errorf("queries within each other: got %q, %v", seen, err)
	}
}

// TestKeptStatementsAfterFailures: a statement that failed, was undone, or whose context ended in
// the middle of its rows, has the right answer the next time.
func TestKeptStatementsAfterFailures(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, w := fruit(t, 10)
	const add, all = "INSERT INTO fruit VALUES (?)", "SELECT COUNT(*) FROM fruit"
	for range 2 {
		if _, err := db.ExecContext(t.Context(), add, "apple"); !engine.SQLite.Is(err, engine.Duplicate) {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := Exec(t.Context(), tx, add, "medlar"); err != nil || n != 1 || count(t, tx, all) != 4 {
			t.Error(n, err)
		}
		if err := tx.Rollback(); err != nil || count(t, db, all) != 3 {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		rows, err := db.QueryContext(ctx, "SELECT name FROM fruit")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		cancel()
		for rows.Next() { // until it notices
		}
		if err := rows.Close(); err != nil {
			t.Error(err)
		}
		if _, err := db.ExecContext(ctx, add, "medlar"); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := db.ExecContext(t.Context(), add); err == nil {
			t.Error("a statement lacks its parameter")
		}
		if _, err := db.QueryContext(t.Context(), "SELECT nonsense"); err == nil {
			t.Error("there is no such column")
		}
	}
	exec(t, db, add, "medlar")
	if n := count(t, db, all); n != 4 {
		t.Errorf("%d kinds", n)
	}
	exec(t, db, "DELETE FROM fruit WHERE name = ?", "medlar")
	made := w.state()
	exec(t, db, add, "medlar")
	if w.state() != made {
		t.Error("a statement that did not fail is prepared again")
	}
}

// begun is what the function begun() of SQLite calls. SQLite forgets an interruption that comes
// before the query begins.
var begun atomic.Pointer[context.CancelFunc]

func init() {
	sqlite.MustRegisterScalarFunction("begun", 0, func(*sqlite.FunctionContext, []driver.Value) (driver.Value, error) {
		(*begun.Load())()
		return int64(1), nil
	})
}

// TestACanceledQuery is interrupted while it works out its first row; then the connection goes on.
func TestACanceledQuery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ctx, cancel := context.WithCancel(t.Context())
	begun.Store(&cancel)
	db, _ := fruit(t, 10)
	const text = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + begun() FROM n WHERE i < ?) SELECT " +
		"COUNT(*) FROM n"
	if got := count(t, db, text, 1); got != 1 {
		t.Error(got)
	}
	if _, _, err := One(ctx, db, Value[int], text, 1<<60); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got := count(t, db, text, 10); got != 10 {
		t.Error(got)
	}
}

// TestManyAtOnce: more texts than are kept, asked by many at the same time on three connections;
// each gets its own answer.
func TestManyAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, _ := fruit(t, 4)
	db.SetMaxOpenConns(3)
	var all sync.WaitGroup
	for who := range 8 {
		all.Go(func() {
			for n := range 100 {
				want := (who + n) % 7
				if got, _, err := One(t.Context(), db, Value[int], fmt.Sprintf("SELECT %d + ?", want), n); err != nil ||
					got != want+n {
					t.Errorf("%d and not %d, %v", got, want+n, err)
				}
			}
		})
	}
	all.Wait()
}

// TestSQLitesConnectionsKeepStatements: those of a database that is opened do.
func TestSQLitesConnectionsKeepStatements(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	pool, _, err := connect(filepath.Join(t.TempDir(), "db"), 1, url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	conn, err := pool.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	count(t, conn, "SELECT 1")
	err = conn.Raw(func(c any) error {
		if kept := c.(*keepingConn).kept; len(kept) != 1 {
			t.Errorf("%d statements are kept", len(kept))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
