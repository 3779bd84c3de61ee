// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// grown are the statements of a step, of each kind that steps have.
var grown = []string{
	"CREATE TABLE parts (n BIGINT NOT NULL PRIMARY KEY)",
	"CREATE TABLE total (id INTEGER NOT NULL PRIMARY KEY, n BIGINT NOT NULL)",
	seedTotal,
	"ALTER TABLE parts ADD COLUMN said VARCHAR(20)",
	"CREATE INDEX parts_said ON parts (said)",
	"UPDATE total SET n = 0",
}

// growing is a schema of one step. Before its statement number `asleep` it sleeps, if that is not
// negative.
func growing(asleep int) sqldb.Options {
	all := grown
	if asleep >= 0 {
		all = slices.Insert(slices.Clone(grown), asleep, "$mysql(DO SLEEP(1000)) $postgres(SELECT pg_sleep(1000))")
	}
	return sqldb.Options{Schema: &sqldb.Schema{Steps: steps(all...), Table: "steps"}}
}

// TestDatabasesMigrationIsTakenOver kills a process before each statement of a step. Another one
// that starts then waits until it is sure that no sign of life comes any more, and makes what is
// missing.
func TestDatabasesMigrationIsTakenOver(t *testing.T) {
	t.Parallel()
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		testproc.Parallel(t, testproc.Light)
		var names []string
		for n := range grown {
			name := fresh(t)
			names = append(names, name)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=migrate%d|%s", childEnv, n, name))
			process := testproc.Start(t, "a process that migrates", cmd)
			direct := dbservers.Open(t, name)
			sleeping := map[bool]string{
				true: "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info = 'DO " +
					"SLEEP(1000)'",
				false: "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND query = " +
					"'SELECT pg_sleep(1000)'",
			}[strings.HasPrefix(name, "mysql")]
			testproc.Eventually(t, testproc.Patience, "the process is in the middle of the step", func() error {
				found := 0
				err := direct.QueryRowContext(t.Context(), sleeping).Scan(&found)
				if err == nil && found == 0 {
					err = errors.New("it does not sleep")
				}
				return err
			})
			process.Kill()
		}
		// Two that start at once on each: one runs the step, the other one finds it done.
		var running sync.WaitGroup
		opened, failed := make([][2]*sqldb.DB, len(names)), make([][2]error, len(names))
		for n, name := range names {
			for i := range opened[n] {
				running.Go(func() { opened[n][i], failed[n][i] = sqldb.Open(t.Context(), name, growing(-1)) })
			}
		}
		running.Wait()
		for n, name := range names {
			must(t, errors.Join(failed[n][:]...))
			for i, db := range opened[n] {
				if _, err := add(t.Context(), db, int64(i)); err != nil {
					t.Errorf("killed before statement %d: a write: %v", n, err)
				}
				if _, has := db.Steps(); has != 1 {
					t.Errorf("killed before statement %d: it has had %d steps", n, has)
				}
				must(t, db.Close())
			}
			var left, done int
			direct := dbservers.Open(t, name)
			must(t, direct.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM parts WHERE said IS NULL").Scan(&left))
			must(t, direct.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM steps WHERE done = 1").Scan(&done))
			if left != 2 || done != 2 {
				t.Errorf("killed before statement %d: %d rows, and %d steps are done; want 2 and 2", n, left, done)
			}
		}
	})
}

// TestManyStartAtOnce: processes that open an empty database at the same time make its tables once,
// with what is run once in its life.
func TestManyStartAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := fresh(t)
		o := growing(-1)
		o.Schema.New = func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO parts (n) SELECT n + 100 FROM total")
			return errors.Join(err, secondly(ctx, tx))
		}
		var running sync.WaitGroup
		var failed [5]error
		for i := range failed {
			running.Go(func() {
				db, err := sqldb.Open(t.Context(), name, o)
				if err == nil {
					err = db.Close()
				}
				failed[i] = err
			})
		}
		running.Wait()
		must(t, errors.Join(failed[:]...))
		if got := parts(t, openSummed(t, name)); fmt.Sprint(got) != "[100]" {
			t.Errorf("there are %v", got)
		}
	})
}

// TestTablesThatAnotherProcessEndsAreMade: a process reads how many steps a database has had, and
// before it asks whether its tables are still being made, another one makes the rest of them. It is
// not a database of an older program.
func TestTablesThatAnotherProcessEndsAreMade(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		files := fstest.MapFS{}
		for n := range 3 {
			files[fmt.Sprintf("sql/%04d.sql", n+1)] = &fstest.MapFile{
				Data: fmt.Appendf(nil, "CREATE TABLE t%d (n BIGINT NOT NULL PRIMARY KEY);\n", n)}
		}
		o := sqldb.Options{Schema: &sqldb.Schema{Table: "steps", Steps: files}}
		db := testproc.Try(sqldb.Open(t.Context(), fresh(t), o)).Or(t)
		defer func() { must(t, db.Close()) }()
		done := func(done int) {
			testproc.Try(db.Writer.ExecContext(t.Context(),
				fmt.Sprintf("UPDATE steps SET done = %d WHERE number IN (0, 3)", done))).Or(t)
		}
		for name, c := range map[string]struct {
			meanwhile func()
			had       int
			made      bool
		}{
			"nothing happens":        {func() {}, 2, false},
			"the rest of it is made": {func() { done(1) }, 3, true},
		} {
			done(0)
			q := &interrupted{Querier: db.Writer, before: "number = 0", meanwhile: c.meanwhile}
			had, made, err := sqldb.Progress(t.Context(), o.Schema, db.Dialect, q)
			if err != nil || had != c.had || made != c.made {
				t.Errorf("%s: %d steps, made %t, %v; want %d, %t", name, had, made, err, c.had, c.made)
			}
		}
	})
}

// interrupted lets something else happen before the first query with a text.
type interrupted struct {
	sqldb.Querier
	before    string
	meanwhile func()
	once      sync.Once
}

func (i *interrupted) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if strings.Contains(query, i.before) {
		i.once.Do(i.meanwhile)
	}
	return i.Querier.QueryRowContext(ctx, query, args...)
}

func (i *interrupted) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if strings.Contains(query, i.before) {
		i.once.Do(i.meanwhile)
	}
	return i.Querier.QueryContext(ctx, query, args...)
}

func secondly(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, "UPDATE total SET n = n + 1")
	return err
}
