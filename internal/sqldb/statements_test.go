// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	_ "modernc.org/sqlite" // a driver

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// counting is a driver that counts what is prepared and closed. Every question has one row: its
// text.
type counting struct{ made, closed atomic.Int64 }

func (c *counting) Connect(context.Context) (driver.Conn, error) { return connection{c}, nil }
func (c *counting) Driver() driver.Driver                        { return nil }

type connection struct{ *counting }

func (c connection) Prepare(text string) (driver.Stmt, error) {
	if text == "nonsense" {
		return nil, errNonsense
	}
	c.made.Add(1)
	return &question{c.counting, text}, nil
}
func (c connection) Close() error              { return nil }
func (c connection) Begin() (driver.Tx, error) { return nil, errors.ErrUnsupported }

var errNonsense = errors.New("nonsense")

type question struct {
	*counting
	text string
}

func (q *question) Close() error                               { q.closed.Add(1); return nil }
func (q *question) NumInput() int                              { return -1 }
func (q *question) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }
func (q *question) Query([]driver.Value) (driver.Rows, error)  { return &answer{text: q.text}, nil }

type answer struct {
	text string
	over bool
}

func (a *answer) Columns() []string { return []string{"text"} }
func (a *answer) Close() error      { return nil }
func (a *answer) Next(into []driver.Value) error {
	if a.over {
		return io.EOF
	}
	into[0], a.over = a.text, true
	return nil
}

// counted is a database of one connection, on which a text is prepared once.
func counted(t *testing.T) (*sql.DB, *counting) {
	t.Helper()
	c := &counting{}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db, c
}

func ask(t *testing.T, s *sqldb.Statements, text string) {
	t.Helper()
	var got string
	if err := s.QueryRowContext(t.Context(), text).Scan(&got); err != nil || got != text {
		t.Fatalf("%q, %v", got, err)
	}
}

// TestATextIsPreparedOnce, and again when it had to frees capacity for those that were asked since.
func TestATextIsPreparedOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, c := counted(t)
	s := sqldb.NewStatements(db, 2)
	for _, step := range []struct {
		text         string
		made, closed int64
	}{{"a", 1, 0}, {"a", 1, 0}, {"b", 2, 0}, {"a", 2, 0}, {"c", 3, 1}, {"a", 3, 1}, {"b", 4, 2}, {"c", 5, 3}} {
		ask(t, s, step.text)
		if c.made.Load() != step.made || c.closed.Load() != step.closed {
			t.Fatalf("after %q %d were made and %d closed", step.text, c.made.Load(), c.closed.Load())
		}
	}
	if err := s.Close(); err != nil || c.closed.Load() != c.made.Load() {
		t.Errorf("%d of %d are closed, %v", c.closed.Load(), c.made.Load(), err)
	}
}

// TestNonsense: what cannot be prepared is an error, and not kept.
func TestNonsense(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db, _ := counted(t)
	s := sqldb.NewStatements(db, 2)
	rows, err := s.QueryContext(t.Context(), "nonsense")
	testproc.ErrorIs(t, err, errNonsense, "rows: %v")
	if err == nil {
		_ = rows.Close()
	}
	testproc.ErrorIs(t, s.QueryRowContext(t.Context(), "nonsense").Scan(new(string)), errNonsense, "a row: %v")
}

// TestRowsOutliveTheirStatement: rows that are being read are whole although their statement was
// dropped meanwhile.
func TestRowsOutliveTheirStatement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := &counting{}
	db := sql.OpenDB(c)
	defer func() { _ = db.Close() }()
	s := sqldb.NewStatements(db, 1)
	rows := testproc.Try(s.QueryContext(t.Context(), "a")).Or(t)
	ask(t, s, "b")
	if c.closed.Load() != 0 {
		t.Error("the statement is closed while its rows are read")
	}
	var got string
	if !rows.Next() || rows.Scan(&got) != nil || got != "a" || rows.Next() {
		t.Errorf("got %q, %v", got, rows.Err())
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || c.closed.Load() == 0 {
		t.Errorf("%d are closed, %v", c.closed.Load(), err)
	}
}

// TestManyAtOnce: with SQLite, more texts than the cache holds, asked by many at the same time;
// each gets its own answer.
func TestManyAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	db := testproc.Try(sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "db"))).Or(t)
	defer func() { _ = db.Close() }()
	db.SetMaxOpenConns(3)
	s := sqldb.NewStatements(db, 4)
	var all sync.WaitGroup
	for who := range 8 {
		all.Go(func() {
			for n := range 100 {
				want, got := (who+n)%7, 0
				if err := s.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d + ?", want), n).Scan(&got); err != nil || got != want+n {
					t.Errorf("%d and not %d, %v", got, want+n, err)
				}
			}
		})
	}
	all.Wait()
	testproc.NoError(t, s.Close())
}
