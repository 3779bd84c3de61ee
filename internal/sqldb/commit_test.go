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
	"testing"
	"testing/fstest"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// seedTotal makes the row of a sum.
const seedTotal = "INSERT $mysql(IGNORE) INTO total VALUES (0, 0) $notmysql(ON CONFLICT DO NOTHING)"

// steps are the files of a schema of one step with statements.
func steps(statements ...string) fstest.MapFS {
	return fstest.MapFS{"sql/0001.sql": {Data: []byte(strings.Join(statements, ";\n") + ";\n")}}
}

// summed is a schema with a sum, and a row for each number that was added to it.
func summed() sqldb.Options {
	return sqldb.Options{Schema: &sqldb.Schema{Steps: steps("CREATE TABLE parts (n BIGINT NOT NULL PRIMARY KEY)",
		"CREATE TABLE total (id INTEGER NOT NULL PRIMARY KEY, n BIGINT NOT NULL)", seedTotal), Table: "steps"}}
}

func openSummed(t testing.TB, name string) *sqldb.DB {
	t.Helper()
	return openWith(t, name, summed())
}

func openWith(t testing.TB, name string, o sqldb.Options) *sqldb.DB {
	t.Helper()
	db := testproc.Try(sqldb.Open(t.Context(), name, o)).Or(t)
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// openAtLast is openSummed of a database whose connections have little time: on a busy machine a
// start may come to nothing.
func openAtLast(t testing.TB, name string) (db *sqldb.DB) {
	t.Helper()
	testproc.Eventually(t, testproc.Patience, "the database is opened", func() (err error) {
		db, err = sqldb.Open(t.Context(), name, summed())
		return err
	})
	t.Cleanup(func() { must(t, db.Close()) })
	return db
}

// add adds a number in a transaction that must not run twice.
func add(ctx context.Context, db *sqldb.DB, n int64) (runs int, err error) {
	err = db.Write(ctx, "adding to", func(tx *sql.Tx) error {
		runs++
		if _, err := tx.ExecContext(ctx, "INSERT INTO parts (n) VALUES (?)", n); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "UPDATE total SET n = n + 1")
		return err
	})
	return runs, err
}

// parts are the numbers that were added. The sum has counted each.
func parts(t *testing.T, db *sqldb.DB) (out []int64) {
	t.Helper()
	must(t, db.Read(t.Context(), "reading", func(tx *sql.Tx) error {
		total, _, err := sqldb.One(t.Context(), tx, sqldb.Value[int], "SELECT n FROM total")
		if err != nil {
			return err
		}
		out, err = sqldb.All(t.Context(), tx, sqldb.Value[int64], "SELECT n FROM parts ORDER BY n")
		if total != len(out) {
			t.Errorf("the sum is %d, and there are %d parts", total, len(out))
		}
		return err
	}))
	return out
}

// TestLostCommit loses the connection around a COMMIT in each way. The caller learns what
// happened, and it happened once, also when others write before it is looked for.
func TestLostCommit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		for _, c := range []struct {
			name   string
			fault  dbservers.Fault
			others int
			runs   int
			err    error
		}{
			{"before the server has it", dbservers.LoseCommit, 0, 2, nil},
			{"before the server has it, beside others", dbservers.LoseCommit, 3, 2, nil},
			{"before the server has it, beside many", dbservers.LoseCommit, 40, 1, engine.ErrOutcomeUnknown},
			{"before the client has the answer", dbservers.LoseAnswer, 0, 1, nil},
			{"before the client has the answer, beside others", dbservers.LoseAnswer, 10, 1, nil},
			{"before the client has the answer, beside many", dbservers.LoseAnswer, 40, 1, engine.ErrOutcomeUnknown},
			{"until the client is back", dbservers.DelayCommit, 0, 1, nil},
			{"after the answer", dbservers.CloseAfter, 0, 1, nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				name := fresh(t)
				direct := openSummed(t, name)
				proxy := dbservers.NewProxy(t, name)
				db := openSummed(t, proxy.DSN)
				next := int64(100)
				proxy.Once(c.fault, func() {
					for range c.others {
						if _, err := add(context.Background(), direct, next); err != nil {
							t.Error(err)
						}
						next++
					}
				})
				runs, err := add(t.Context(), db, 1)
				if runs != c.runs || !errors.Is(err, c.err) {
					t.Errorf("after %d runs: %v, want %d and %v", runs, err, c.runs, c.err)
				}
				proxy.Faults(nil)
				if _, err := add(t.Context(), db, 2); err != nil {
					t.Errorf("the next write: %v", err)
				}
				got := parts(t, direct)
				if slices.Contains(got, 1) != (c.fault != dbservers.LoseCommit || c.err == nil) ||
					!slices.Contains(got, 2) || len(got) < 1+c.others {
					t.Errorf("there are %v", got)
				}
			})
		}
	})
}

// TestSilentServer: a server that does not answer a COMMIT is given up after a while, and what
// happened is found out.
func TestSilentServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := fresh(t)
		direct := openSummed(t, name)
		proxy := dbservers.NewProxy(t, name)
		db := openSummed(t, withOption(proxy.DSN, "read_timeout=3")) // what a busy server answers comes within it
		proxy.Once(dbservers.Silence, nil)
		if runs, err := add(t.Context(), db, 1); runs != 1 || err != nil {
			t.Errorf("after %d runs: %v", runs, err)
		}
		if got := parts(t, direct); len(got) != 1 {
			t.Errorf("there are %v", got)
		}
	})
}

// TestRealCommitThatWaitsForAStandbyIsNotShown: while the standby has no answer, nor has the
// commit. A client that gives up must not make PostgreSQL give up, too: it would show the change,
// which is lost when the standby is promoted.
func TestRealCommitThatWaitsForAStandbyIsNotShown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	p := dbservers.StartPostgreSQLPair(t, dbservers.Options{})
	p.Primary.Database(t, "summed")
	other := openSummed(t, p.DSN("summed"))
	db := openSummed(t, withOption(p.DSN("summed"), "read_timeout=1"))
	_, err := add(t.Context(), other, 1) // which waits for the standby as long as that needs
	must(t, err)
	p.Standby.Pause(t)
	testproc.Try(add(t.Context(), db, 2)).ErrorIs(t, engine.ErrOutcomeUnknown, "without a standby: %v")
	testproc.EqualList(t, parts(t, other), []int64{1}, "the primary shows %v, and the standby has [1]")
	p.Standby.Continue(t)
	p.WaitSynchronous(t)
	_, err = add(t.Context(), other, 3) // this waits for what was under way
	must(t, err)
	p.Primary.Kill(t)
	p.Promote(t)
	testproc.EqualList(t, parts(t, other), []int64{1, 2, 3}, "after the promotion there are %v")
}

// TestRealCommitIsNotAcknowledgedBeforeTheStandbyHasIt: a primary that is killed during such a wait
// shows the change when it is back, which is no proof that the standby has it.
func TestRealCommitIsNotAcknowledgedBeforeTheStandbyHasIt(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	p := dbservers.StartPostgreSQLPair(t, dbservers.Options{})
	p.Primary.Database(t, "summed")
	admin := dbservers.Open(t, p.Primary.AdminDSN("postgres"))
	db := openAtLast(t, withOption(p.DSN("summed"), "read_timeout=3"))
	p.Standby.Pause(t)
	ended := make(chan error, 1)
	go func() {
		_, err := add(context.Background(), db, 1)
		ended <- err
	}()
	testproc.Eventually(t, testproc.Patience, "the commit waits for the standby", func() error {
		var waiting int
		err := admin.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = 'summed' AND wait_event = 'SyncRep'").Scan(&waiting)
		if err == nil && waiting == 0 {
			err = errors.New("it does not")
		}
		return err
	})
	p.Primary.Kill(t)
	p.Primary.Start(t)
	testproc.ErrorIs(t, <-ended, engine.ErrOutcomeUnknown, "without a standby: %v")
	p.Standby.Continue(t)
}

func withOption(dsn, option string) string {
	for _, c := range dsn {
		if c == '?' {
			return dsn + "&" + option
		}
	}
	return dsn + "?" + option
}

// TestStormOfLostCommits: of many writes by several processes, whose connections are cut around
// COMMIT all the time, those that were acknowledged are there, each once.
func TestStormOfLostCommits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const clients, writes = 3, 40
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := fresh(t)
		direct := openSummed(t, name)
		var running sync.WaitGroup
		acked := make([][]int64, clients)
		unknown := make([]int, clients)
		for c := range clients {
			proxy := dbservers.NewProxy(t, name)
			o := summed()
			o.Failover = testproc.Patience // by chance a write has many faults in a row
			db := openWith(t, proxy.DSN, o)
			random := rand.New(rand.NewPCG(1, uint64(c)))
			proxy.Faults(func() dbservers.Fault {
				return []dbservers.Fault{dbservers.None,
					dbservers.LoseCommit, dbservers.LoseAnswer, dbservers.DelayCommit,
					dbservers.CloseAfter}[random.IntN(5)]
			})
			running.Go(func() {
				for i := range writes {
					n := int64(c*writes + i)
					switch _, err := add(t.Context(), db, n); {
					case err == nil:
						acked[c] = append(acked[c], n)
					case errors.Is(err, engine.ErrOutcomeUnknown):
						unknown[c]++
					default:
						t.Errorf("commit %d: got %v", n, err)
					}
				}
			})
		}
		running.Wait()
		got := parts(t, direct)
		for _, n := range slices.Concat(acked...) {
			if !slices.Contains(got, n) {
				t.Errorf("the acknowledged %d is lost", n)
			}
		}
		if sum := fmt.Sprint(unknown); sum != fmt.Sprint(make([]int, clients)) {
			t.Errorf("writes with an unknown outcome, by client: %s", sum)
		}
	})
}
