// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	accounts = 6
	balance  = 1000
)

// bank is a schema of accounts, between which all writers move money.
func bank() sqldb.Options {
	// How long a cluster takes to go on without a node depends on what else the machine does.
	return sqldb.Options{Failover: testproc.Patience, Schema: &sqldb.Schema{
		Table: "steps",
		Steps: steps("CREATE TABLE accounts (id INTEGER NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
			"CREATE TABLE moves (writer INTEGER NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (writer, number))",
			"CREATE TABLE signs (id INTEGER NOT NULL PRIMARY KEY, n BIGINT NOT NULL)", leaseTable),
		New: func(ctx context.Context, tx *sql.Tx) error {
			for id := range accounts {
				if _, err := tx.ExecContext(ctx,
					"INSERT INTO accounts (id, n) VALUES (?, ?)", id, balance); err != nil {
					return err
				}
			}
			return nil
		},
	}}
}

// move moves money, and writes down that it did.
func move(ctx context.Context, db *sqldb.DB, random *rand.Rand, writer, number int) error {
	from, to, n := random.IntN(accounts), random.IntN(accounts), random.IntN(50)
	return db.Write(ctx, "moving in", func(tx *sql.Tx) error {
		for id, by := range map[int]int{from: -n, to: n} {
			if from == to {
				break
			}
			had, _, err := sqldb.One(ctx, tx, sqldb.Value[int], "SELECT n FROM accounts WHERE id = ?", id)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE accounts SET n = ? WHERE id = ?", had+by, id); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO moves (writer, number) VALUES (?, ?)", writer, number)
		return err
	})
}

// startAtOnce has three processes open an empty database at the same time, each first at another
// node.
func startAtOnce(t *testing.T, c *dbservers.Cluster, database string) (dbs [3]*sqldb.DB) {
	t.Helper()
	name := c.Database(t, database)[0]
	var hosts []string
	for _, s := range c.Nodes {
		hosts = append(hosts, s.Address())
	}
	var opening sync.WaitGroup
	for w := range dbs {
		order := slices.Concat(hosts[w:], hosts[:w])
		opening.Go(func() {
			var err error
			if dbs[w], err = sqldb.Open(t.Context(),
				strings.Replace(name, hosts[0], strings.Join(order, ","), 1), bank()); err != nil {
				t.Errorf("process %d starts: %v", w, err)
			}
		})
	}
	opening.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return dbs
}

// TestDatabasesThreeWritersOnGalera: three processes that start at once on an empty database, each
// at another node of a Galera cluster, move money all the time, while a node is killed and comes
// back. None sees an error, every move that was acknowledged was made, once, the sum stays, and one
// at a time holds the lease.
func TestDatabasesThreeWritersOnGalera(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	c := dbservers.StartGalera(t, 3,
		dbservers.Options{Provider: []string{"evs.keepalive_period=PT0.5S", "evs.suspect_timeout=PT2S"}})
	for n := range 5 {
		for _, db := range startAtOnce(t, c, fmt.Sprint("empty", n)) {
			must(t, db.Close())
		}
	}
	dbs := startAtOnce(t, c, "words")

	var active, most atomic.Int32
	var leases, writers sync.WaitGroup
	ended := make(chan struct{})
	held, cancel := context.WithCancel(t.Context())
	for w, db := range dbs {
		lease := db.NewLease(sqldb.LeaseOptions{Table: "leases", Name: "work", Holder: fmt.Sprint(w),
			Beat: 200 * time.Millisecond, Silent: 100, Logger: zerolog.Nop()})
		leases.Go(func() {
			lease.Run(held, func(ctx context.Context) {
				most.Store(max(most.Load(), active.Add(1)))
				<-ctx.Done()
				active.Add(-1)
			})
		})
	}
	var made, signs [3]atomic.Int64
	for w, db := range dbs {
		signsOn := testproc.Try(db.Connect()).Or(t)
		for part := range 2 { // two at a time in each process
			random := rand.New(rand.NewPCG(uint64(w), uint64(part)))
			writers.Go(func() {
				for number := part; ; number += 2 {
					select {
					case <-ended:
						return
					default:
					}
					if err := move(t.Context(), db, random, w, number); err != nil {
						t.Errorf("writer %d, move %d: %v", w, number, err)
						return
					}
					made[w].Add(1)
				}
			})
		}
		writers.Go(func() {
			for n := int64(1); ; n++ {
				select {
				case <-ended:
					return
				default:
				}
				if err := db.Repeatable(t.Context(), signsOn, "signing in", "INSERT INTO signs (id, n) VALUES (?, ?)"+
					db.Dialect.Upsert("id", "n"), w, n); err != nil {
					t.Errorf("process %d, sign %d: %v", w, n, err)
					return
				}
				signs[w].Store(n)
			}
		})
	}
	end := sync.OnceFunc(func() {
		close(ended)
		writers.Wait()
		cancel()
		leases.Wait()
	})
	defer end()
	progress := func(what string) {
		t.Helper()
		var were [3]int64
		for w := range made {
			were[w] = made[w].Load()
		}
		testproc.Eventually(t, testproc.Patience, what, func() error {
			for w := range made {
				if n := made[w].Load(); n < were[w]+20 {
					return fmt.Errorf("process %d has made %d moves", w, n-were[w])
				}
			}
			return nil
		})
	}
	progress("all nodes are written to")
	c.Nodes[1].Kill(t)
	progress("a node was killed")
	c.Nodes[1].Start(t)
	c.WaitSynced(t)
	progress("it is back")
	c.Nodes[2].Stop(t)
	progress("a node was stopped in order")
	c.Nodes[2].Start(t)
	c.WaitSynced(t)
	progress("it is back, too")
	end()

	for w, db := range dbs {
		must(t, db.Read(t.Context(), "reading", func(tx *sql.Tx) error {
			sum, _, err := sqldb.One(t.Context(), tx, sqldb.Value[int], "SELECT SUM(n) FROM accounts")
			if err != nil || sum != accounts*balance {
				t.Errorf("node %d has the sum %d, want %d, %v", w, sum, accounts*balance, err)
			}
			for of := range made {
				n, _, bad := sqldb.One(t.Context(), tx,
					sqldb.Value[int64], "SELECT COUNT(*) FROM moves WHERE writer = ?", of)
				sign, _, worse := sqldb.One(t.Context(), tx, sqldb.Value[int64], "SELECT n FROM signs WHERE id = ?", of)
				if err = errors.Join(err, bad, worse); n != made[of].Load() || sign != signs[of].Load() {
					t.Errorf("node %d has %d moves of writer %d and its sign %d; it made %d and %d",
						w, n, of, sign, made[of].Load(), signs[of].Load())
				}
			}
			return err
		}))
		must(t, db.Close())
	}
	testproc.Equal(t, most.Load(), 1, "%d processes held the lease at a time")
	t.Logf("moves: %d, %d and %d", made[0].Load(), made[1].Load(), made[2].Load())
}
