// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// server is a database server of this process, whose commits are durable.
type server struct {
	*dbservers.Server
	name  string
	admin *sql.DB // nil unless it counts statements
}

// startMariaDB starts MariaDB with the size of the log that it has by default.
func startMariaDB(ctx context.Context) (*server, error) {
	made, err := dbservers.NewMariaDB(ctx, "innodb-log-file-size=96M")
	if err != nil {
		return nil, err
	}
	s := &server{Server: made, name: "MariaDB"}
	if s.admin, err = made.Admin(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.admin.SetMaxOpenConns(1)
	return s, nil
}

// Close ends the server.
func (s *server) Close() error {
	var err error
	if s.admin != nil {
		err = s.admin.Close()
	}
	return errors.Join(err, s.Server.Close())
}

// cpu is the processor time that the server's processes have used so far.
func (s *server) cpu() (used time.Duration, err error) {
	for range 3 { // a process of PostgreSQL's can end in between
		var pids []int
		if pids, err = s.PIDs(); err == nil {
			if used, err = testproc.CPU(pids...); err == nil {
				break
			}
		}
	}
	return used, err
}

// statements are how many the server was sent so far; 0 if it does not count them.
func (s *server) statements(ctx context.Context) (n int64, err error) {
	if s == nil || s.admin == nil {
		return 0, nil
	}
	var name string
	err = s.admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

// settle waits until the server has done what earlier operations left it to do, such as purging
// deleted rows.
func (s *server) settle(ctx context.Context) error {
	const look = 200 * time.Millisecond
	for range 50 {
		before, err := s.cpu()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(look):
		}
		after, err := s.cpu()
		if err != nil || after-before < look/50 {
			return err
		}
	}
	return nil
}

// ours makes the database of our Placement, and returns its address, whose password is in a file.
func (s *server) ours(ctx context.Context, passwordFile string) (string, error) {
	dsn, err := s.MakeDatabase(ctx, "ours")
	if err != nil {
		return "", err
	}
	return withPasswordFile(dsn, passwordFile)
}

// databases measures ours on SQLite, MariaDB and PostgreSQL, and OpenStack's Placement on the same
// MariaDB server, with the same rows.
func databases(ctx context.Context, s settings) (err error) {
	data := newNested(rand.New(rand.NewPCG(1, 2)), s.trees)
	var ends []func() error
	defer func() {
		for i := range ends {
			err = errors.Join(err, ends[len(ends)-1-i]())
		}
	}()
	source := filepath.Join(s.state, "sqlite")
	first, err := startOurs(ctx, s.binary, source, nil)
	if err != nil {
		return err
	}
	say("loading %d trees of 7", s.trees)
	if err := errors.Join(data.load(ctx, NewClient(first.URL, several)), first.Close()); err != nil {
		return err
	}
	sides := make([]*peer, 4) // OpenStack's on MariaDB, ours on MariaDB, PostgreSQL and SQLite
	for i, start := range []func(context.Context) (*server, error){startMariaDB, startPostgreSQL} {
		on, err := start(ctx)
		if err != nil {
			return err
		}
		ends = append(ends, on.Close)
		say("copying the rows to %s", on.name)
		dir := filepath.Join(s.state, on.name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := copyFile(first.Database, filepath.Join(dir, "placement.db")); err != nil {
			return err
		}
		if i == 0 && s.upstream {
			if sides[0], err = startUpstream(ctx, filepath.Join(s.state, "upstream"), first.Database, on); err != nil {
				return err
			}
			ends = append(ends, sides[0].Close)
		}
		if sides[1+i], err = startOurs(ctx, s.binary, dir, on); err != nil {
			return err
		}
		ends = append(ends, sides[1+i].Close)
	}
	if sides[3], err = startOurs(ctx, s.binary, source, nil); err != nil {
		return err
	}
	ends = append(ends, sides[3].Close)
	for _, ours := range sides[1:] {
		p := pair{ours: ours, theirs: sides[0]}
		if err := p.same(ctx, NestedQuery); err != nil {
			return err
		}
	}
	return s.onDatabases(ctx, data, sides)
}

func startPostgreSQL(ctx context.Context) (*server, error) {
	made, err := dbservers.NewPostgreSQL(ctx)
	return &server{Server: made, name: "PostgreSQL"}, err
}

// copyFile copies a closed SQLite database.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o600)
}

// databaseOperations are what services on several databases are compared by.
func (d *nestedData) databaseOperations() []operation {
	search := claims("", NestedQuery, 100, 100, 8)
	search.name, search.alone = "GET candidates limit=100, claim", true
	claim := d.claimsAlone()
	claim.name = "claim: PUT and DELETE allocations"
	return append([]operation{
		claim, search, d.inventoryWrites(), d.replacements(), d.refreshes(),
		candidates("candidates", NestedQuery, 10, 200, 3),
		candidates("candidates", NestedQuery, 1000, 50, 3),
	}, d.smallReads()[:1]...)
}

// onDatabases measures all operations with one client and with many, on all sides in turn, so that
// other programs on the machine slow all of them.
func (s *settings) onDatabases(ctx context.Context, data *nestedData, sides []*peer) error {
	head := func(what string) []string {
		return []string{
			what, "Placement: service, CPU ms", "MariaDB",
			"statements", "ours on MariaDB: service", "MariaDB", "statements", "CPU ratio",
			"on PostgreSQL: service", "PostgreSQL", "CPU ratio", "on SQLite", "CPU ratio", "Placement: a second",
			"on MariaDB", "on PostgreSQL", "on SQLite", "Placement: refused",
		}
	}
	for _, clients := range []int{1, mostClients} {
		t := table{head: head(fmt.Sprintf("operation, %d clients", clients))}
		ops := data.databaseOperations()
		if clients == 1 {
			t.head[0] = "operation, 1 client"
			for i, guests := range reshaped {
				ops = append(ops, data.reshapes(i, guests))
			}
		}
		for _, op := range ops {
			if s.only != nil && !s.only.MatchString(op.name) {
				continue
			}
			say("%s, %d clients", op.name, clients)
			samples, err := s.inTurns(ctx, sides, op, clients)
			if err != nil {
				return err
			}
			t.add(append([]string{op.name}, databaseCells(samples)...)...)
		}
		t.print()
	}
	return nil
}

// inTurns measures an operation on all sides in turn, rounds times. nil is no side.
func (s *settings) inTurns(ctx context.Context, sides []*peer, op operation, clients int) ([]*sample, error) {
	samples := make([]*sample, len(sides))
	for i := range samples {
		samples[i] = &sample{refused: map[int]int{}}
	}
	for range rounds {
		for i, side := range sides {
			if side == nil {
				continue
			}
			least := op.ours
			if i == 0 {
				least = op.theirs
			}
			if side.server != nil {
				if err := side.server.settle(ctx); err != nil {
					return nil, err
				}
			}
			part, err := measure(ctx, side, op, clients, max(1, least/rounds), s.atLeast/rounds)
			if err != nil {
				return nil, err
			}
			samples[i].join(part)
		}
	}
	return samples, nil
}

// databaseCells are those of a row of the table.
func databaseCells(samples []*sample) []string {
	theirs, onMariaDB, onPostgreSQL, onSQLite := samples[0], samples[1], samples[2], samples[3]
	times := func(ours *sample) string {
		if theirs.cpuEach() == 0 || ours.cpuEach() == 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f", float64(theirs.cpuEach())/float64(ours.cpuEach()))
	}
	each := func(s *sample) []string {
		return []string{ms(s.cpuEach() - s.databaseEach()), ms(s.databaseEach())}
	}
	sent := func(s *sample) string { return fmt.Sprintf("%.1f", float64(s.statements)/float64(max(s.done, 1))) }
	cells := append(each(theirs), sent(theirs))
	cells = append(append(cells, each(onMariaDB)...), sent(onMariaDB), times(onMariaDB))
	cells = append(append(cells, each(onPostgreSQL)...), times(onPostgreSQL), ms(onSQLite.cpuEach()), times(onSQLite))
	for _, s := range samples {
		cells = append(cells, rate(s.rate()))
	}
	return append(cells, errorsOf(theirs))
}
