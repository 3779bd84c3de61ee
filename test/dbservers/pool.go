// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// pool has databases of a template on a server. To make the tables of one takes longer than most
// tests, and to drop them as long, so that a test gets the database that another one has left, with
// the rows of the template. They go with the server.
type pool struct {
	of *shared

	mu   sync.Mutex
	free []*pooled
	rows map[string][]row  // those of the template, by table; nil until the first one is filled
	made map[string]string // its tables' definitions, by table

	copying  sync.Mutex
	original string // the database that others are copies of; "" until there is one
}

type row []any

// pooled is a database of a pool. A server needs as long for a new connection, which has yet to
// learn what tables there are, as to reset the database: so the connection that resets it is kept.
type pooled struct {
	name string
	db   *sql.DB // one connection of the administrator; nil until there is a first one that is kept
}

// allPooled are those of all pools.
var allPooled = struct {
	mu  sync.Mutex
	all map[*pooled]bool
}{all: map[*pooled]bool{}}

// Tests are the tests of a package with goleak, whose goroutines have to end with them: those of
// the connections that were kept, too.
type Tests struct{ *testing.M }

// Run runs the tests, and closes what is kept.
func (t Tests) Run() int {
	code := t.M.Run()
	allPooled.mu.Lock()
	defer allPooled.mu.Unlock()
	for p := range allPooled.all {
		_ = p.db.Close() // the test that needs it has ended
	}
	return code
}

// connect returns the connection, and what to call when it is not needed any more.
func (p *pooled) connect(srv *instance) (db *sql.DB, done func(), err error) {
	bubble := inBubble()
	if p.db != nil && !bubble {
		return p.db, func() {}, nil
	}
	if db, err = srv.kind.open(srv, p.name); err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1) // settings are those of a connection
	if bubble {
		return db, func() { _ = db.Close() }, nil // that is done with it
	}
	p.db = db
	allPooled.mu.Lock()
	defer allPooled.mu.Unlock()
	allPooled.all[p] = true
	return db, func() {}, nil
}

// inBubble reports whether this runs in a bubble of testing/synctest, whose clock begins in 2000.
// What is made there cannot be used elsewhere, nor the other way round.
func inBubble() bool { return time.Now().Year() < 2020 }

// drop ends a database.
func (p *pooled) drop(ctx context.Context, srv *instance) error {
	if p.db != nil {
		allPooled.mu.Lock()
		delete(allPooled.all, p)
		allPooled.mu.Unlock()
		_ = p.db.Close() // that is done with it
	}
	return srv.statements(ctx, srv.kind.drop(p.name)...)
}

// database is one as fill leaves it, which the test has until it ends.
func (p *pool) database(t testing.TB, fill func(dsn string) error) string {
	t.Helper()
	srv := testproc.Try(p.of.server(t.Context())).Or(t)
	leased, err := p.lease(t.Context(), srv, fill)
	if err != nil {
		t.Fatalf("making a database on %s: %v\n%s", srv.kind, err, srv.tail())
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, leased)
	})
	return patiently(srv.kind.dsn(leased.name, srv.password, srv.address, leased.name))
}

// patiently is a DSN with which a busy server has as long to greet as a test waits for anything.
func patiently(dsn string) string {
	and := "?"
	if strings.Contains(dsn, "?") {
		and = "&"
	}
	return dsn + and + "connect_timeout=" + strconv.Itoa(int(testproc.Patience.Seconds()))
}

func (p *pool) lease(ctx context.Context, srv *instance, fill func(dsn string) error) (*pooled, error) {
	for d := p.take(); d != nil; d = p.take() {
		if err := p.reset(ctx, srv, d); err == nil {
			return d, nil
		}
		// Its test has changed more than rows.
		if err := d.drop(ctx, srv); err != nil {
			return nil, err
		}
	}
	d := &pooled{name: newName()}
	if err := p.create(ctx, srv, d, fill); err != nil {
		return nil, err
	}
	return d, p.note(ctx, srv, d)
}

// create makes a database as fill leaves it: a copy, where the server has copies.
func (p *pool) create(ctx context.Context, srv *instance, d *pooled, fill func(dsn string) error) error {
	kind, ok := srv.kind.(copier)
	if !ok {
		return create(ctx, srv, d.name, fill)
	}
	original, err := p.copyable(ctx, srv, fill)
	if err != nil {
		return err
	}
	statements, own := kind.copied(original, d.name, srv.password)
	if err := srv.statements(ctx, statements...); err != nil {
		return err
	}
	db, done, err := d.connect(srv)
	if err != nil {
		return err
	}
	defer done()
	_, err = db.ExecContext(ctx, own)
	return err
}

// copyable makes the database that others are copies of, at the first call. No test has it.
func (p *pool) copyable(ctx context.Context, srv *instance, fill func(dsn string) error) (string, error) {
	p.copying.Lock()
	defer p.copying.Unlock()
	if p.original != "" {
		return p.original, nil
	}
	name := newName()
	if err := create(ctx, srv, name, fill); err != nil {
		return "", err
	}
	// What its user owns goes to that of a copy, except for the database itself.
	if err := srv.statements(ctx, "ALTER DATABASE "+name+" OWNER TO "+admin); err != nil {
		return "", err
	}
	p.original = name
	return name, nil
}

// create makes a database and fills it.
func create(ctx context.Context, srv *instance, name string, fill func(dsn string) error) error {
	if err := srv.statements(ctx, srv.kind.create(name, srv.password)...); err != nil {
		return err
	}
	return fill(patiently(srv.kind.dsn(name, srv.password, srv.address, name)))
}

// take returns the database that was free last, whose connection knows most; nil if all are used.
func (p *pool) take() *pooled {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < 0 {
		return nil
	}
	d := p.free[last]
	p.free = p.free[:last]
	return d
}

// note remembers what the template is, at the first database that is made.
func (p *pool) note(ctx context.Context, srv *instance, d *pooled) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows != nil {
		return nil
	}
	db, done, err := d.connect(srv)
	if err != nil {
		return err
	}
	defer done()
	if p.made, err = definitions(ctx, srv, db, d.name); err != nil {
		return err
	}
	rows := map[string][]row{}
	for table := range p.made {
		if rows[table], err = read(ctx, db, "SELECT * FROM "+table); err != nil {
			return err
		}
	}
	p.rows = rows
	return nil
}

// reset makes a database that a test has left what the template is. It fails if there are other
// tables or columns.
func (p *pool) reset(ctx context.Context, srv *instance, d *pooled) error {
	db, done, err := d.connect(srv)
	if err != nil {
		return err
	}
	defer done()
	if err := srv.kind.disconnect(ctx, db, d.name); err != nil {
		return err
	}
	made, err := definitions(ctx, srv, db, d.name)
	if err != nil {
		return err
	}
	if !maps.Equal(made, p.made) {
		return errors.New("its tables are others")
	}
	if _, err := db.ExecContext(ctx, srv.kind.unchecked()); err != nil {
		return err
	}
	used, err := filled(ctx, db, slices.Sorted(maps.Keys(p.rows)))
	if err != nil {
		return err
	}
	for _, table := range used {
		if _, err := db.ExecContext(ctx, "DELETE FROM "+table); err != nil { // TRUNCATE makes a new table
			return err
		}
		if len(p.rows[table]) > 0 {
			continue
		}
		if _, err := db.ExecContext(ctx, srv.kind.renumber(table)); err != nil {
			return err
		}
	}
	for table, rows := range p.rows {
		for some := range slices.Chunk(rows, 100) {
			if err := insert(ctx, srv, db, table, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// filled returns those of some tables that have rows.
func filled(ctx context.Context, db *sql.DB, tables []string) ([]string, error) {
	queries := make([]string, len(tables))
	for i, table := range tables {
		queries[i] = "SELECT '" + table + "' WHERE EXISTS (SELECT 1 FROM " + table + ")"
	}
	rows, err := read(ctx, db, strings.Join(queries, " UNION ALL "))
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = fmt.Sprintf("%s", r[0])
	}
	return out, err
}

// insert adds rows, at least one.
func insert(ctx context.Context, srv *instance, db *sql.DB, table string, rows []row) error {
	var values []any
	var list []string
	for _, r := range rows {
		marks := make([]string, len(r))
		for i, v := range r {
			values = append(values, v)
			marks[i] = srv.kind.placeholder(len(values))
		}
		list = append(list, "("+strings.Join(marks, ", ")+")")
	}
	_, err := db.ExecContext(ctx, "INSERT INTO "+table+" VALUES "+strings.Join(list, ", "), values...)
	return err
}

// read returns the rows of a query.
func read(ctx context.Context, db *sql.DB, query string) (out []row, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		r, to := make(row, len(columns)), make([]any, len(columns))
		for i := range r {
			to[i] = &r[i]
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// disconnect executes a statement that ends connections, and waits until a count of them is 0: an
// open transaction would hold what a reset needs.
func disconnect(ctx context.Context, db *sql.DB, end, count string) error {
	if _, err := db.ExecContext(ctx, end); err != nil {
		return err
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var n int
		if err := db.QueryRowContext(ctx, count).Scan(&n); err != nil || n == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// definitions are the columns and triggers of the tables of a database, by table.
func definitions(ctx context.Context, srv *instance, db *sql.DB, name string) (map[string]string, error) {
	rows, err := read(ctx, db, srv.kind.columns(name)+" ORDER BY 1, 2, 3")
	out := map[string]string{}
	for _, r := range rows {
		out[fmt.Sprintf("%s", r[0])] += fmt.Sprintf("%d %s %s\n", r[1:]...)
	}
	return out, err
}
