// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// releases are the steps of the schema of three releases: the second one adds a column, and takes
// away one that it does not use; the third one adds another column.
var releases = map[string]string{
	"processes": "CREATE TABLE processes (token VARCHAR(36) NOT NULL PRIMARY KEY, name VARCHAR(255) NOT NULL, beat " +
		"BIGINT NOT NULL, alone SMALLINT NOT NULL, knows INTEGER NOT NULL)",

	"1":          "CREATE TABLE t (n BIGINT NOT NULL PRIMARY KEY, old BIGINT)",
	"2 expand":   "ALTER TABLE t ADD COLUMN new BIGINT",
	"3 contract": "-- contract\nALTER TABLE t DROP COLUMN old",
	"4 expand":   "ALTER TABLE t ADD COLUMN newer BIGINT",
}

// release is a program that knows steps of a schema.
func release(steps ...string) sqldb.Options {
	files, processes := fstest.MapFS{}, ""
	if steps[0] == "processes" {
		processes = "processes"
	}
	for i, step := range steps {
		files[fmt.Sprintf("sql/%04d.sql", i+1)] = &fstest.MapFile{Data: []byte(releases[step] + ";\n")}
	}
	return sqldb.Options{Schema: &sqldb.Schema{Steps: files, Table: "steps", Processes: processes}}
}

// TestReleasesOnOneDatabase: which program may start on the database that another one left or
// uses, and what that does to the other one's writes. It is the same for all databases of servers.
func TestReleasesOnOneDatabase(t *testing.T) {
	t.Parallel()
	first, second := release("1"), release("1", "2 expand", "3 contract")
	third := release("1", "2 expand", "3 contract", "4 expand")
	command := func(o sqldb.Options) sqldb.Options { o.Steps = o.Schema.Newest(); return o }
	strict := func(o sqldb.Options) sqldb.Options {
		s := *o.Schema
		s.OlderHint = "upgrade it"
		o.Schema = &s
		return o
	}
	const newer, contract = "a newer program", "ends the use by older programs"
	cases := []struct {
		name        string
		was, starts sqldb.Options
		has         int    // steps afterwards
		refused     string // why the second one is
		fenced      bool   // the first one cannot write any more
	}{
		{"a newer one beside an older one", first, second, 2, "", false},
		{"an older one beside a newer one", release("1", "2 expand"), first, 2, "", false},
		{"a newer one whose new database is whole", second, second, 3, "", false},
		{"the command that takes away", first, command(second), 3, "", true},
		{"an older one after that", second, first, 3, newer, false},
		{"an older command after that", second, command(first), 3, newer, false},
		{"an older command beside a newer one", release("1", "2 expand"), command(first), 2, newer, false},
		{"one that skips the step that takes away", first, third, 1, contract, false},
		{"one that skips it, by command", first, command(third), 4, "", true},
		{"one that adds after it", second, third, 4, "", false},
		{"one that wants to be upgraded by command", first, strict(second), 1, "upgrade it", false},
		{"one that lacks only what takes away", release("1", "2 expand"), strict(second), 2, "", false},
	}
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				name := fresh(t)
				was := testproc.Try(sqldb.Open(t.Context(), name, c.was)).Or(t)
				defer func() { must(t, was.Close()) }()
				starts, err := sqldb.Open(t.Context(), name, c.starts)
				switch {
				case c.refused != "" &&
					(!errors.Is(err, engine.ErrSchema) || !strings.Contains(err.Error(), c.refused)):
					t.Errorf("it starts with %v, want %q", err, c.refused)
				case c.refused == "" && err != nil:
					t.Errorf("it does not start: %v", err)
				case err == nil:
					if _, has := starts.Steps(); has != c.has {
						t.Errorf("it has %d steps, want %d", has, c.has)
					}
					testproc.NoErrorf(t, write(t.Context(), starts, 1), "it cannot write")
					must(t, starts.Close())
				}
				if has, err := sqldb.Version(t.Context(), name, c.was); err != nil || has != c.has {
					t.Errorf("the database has %d steps, %v; want %d", has, err, c.has)
				}
				if err := write(t.Context(), was, 2); errors.Is(err, engine.ErrSchema) != c.fenced || !c.fenced &&
					err != nil {
					t.Errorf("what the first one writes: %v, want it refused: %t", err, c.fenced)
				}
			})
		}
	})
}

func write(ctx context.Context, db *sqldb.DB, n int) error {
	return db.Write(ctx, "adding to", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO t (n) VALUES (?)", n)
		return err
	})
}

// TestTheSchemaOfAUser: on PostgreSQL a database has several schemas, and the names of some have
// capitals. Tables are looked for in that of the user alone.
func TestTheSchemaOfAUser(t *testing.T) {
	t.Parallel()
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		testproc.Parallel(t, testproc.Light)
		if dbservers.Engine(t) != "postgresql" {
			t.Skip("It is about PostgreSQL.")
		}
		ownSchema(t, fresh(t))
	})
}

func ownSchema(t *testing.T, dsn string) {
	t.Helper()
	dbservers.Execute(t, dsn, `CREATE SCHEMA "Own"`, "CREATE TABLE other (x INTEGER)")
	own := dsn + "&search_path=%22Own%22"
	db := testproc.Try(sqldb.Open(t.Context(), own, release("processes", "1"))).Or(t)
	must(t, write(t.Context(), db, 1))
	must(t, db.Close())
	must(t, sqldb.Administer(t.Context(), own, "guarding", release("1"),
		func(ctx context.Context, d *engine.Dialect, db *sql.DB) error {
			if has, err := sqldb.HasTable(ctx, d, db, "other"); err != nil || has {
				t.Errorf("it has another schema's table: %v, %v", has, err)
			}
			if name, err := sqldb.SomeTable(ctx, d, db); err != nil || name != "processes" {
				t.Errorf("one of its tables is %q, %v", name, err)
			}
			must(t, sqldb.Guard(ctx, d, db, "guard", "not here", []string{"t"}))
			whole, some, err := sqldb.Guarded(ctx, d, db, "guard", []string{"t"})
			if whole != 1 || len(some) != 1 {
				t.Errorf("%d tables are guarded, some of %v", whole, some)
			}
			return err
		}))
}

// TestContractBesideOlder: a step after which older programs cannot use the database is not run
// beside one that lives, which the refusal names, also not beside one that came while the step was
// claimed. After a refusal older ones go on; a claim that was left behind keeps them from starting.
func TestContractBesideOlder(t *testing.T) {
	t.Parallel()
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		testproc.Parallel(t, testproc.Light)
		name, fenced := fresh(t), 0
		older, newer := release("processes", "1", "2 expand"), release("processes", "1", "2 expand", "3 contract")
		newer.Schema.Fence = func(context.Context, *sql.Tx, int) error { fenced++; return nil }
		refused := func(when, by string) {
			t.Helper()
			_, _, err := sqldb.Migrate(t.Context(), name, 0, newer)
			if !errors.Is(err, engine.ErrInUse) || !strings.Contains(err.Error(), by+" has it open") ||
				!strings.Contains(err.Error(), "step 4") || fenced != 0 {
				t.Errorf("%s: %v, with %d fences", when, err, fenced)
			}
		}
		was := testproc.Try(sqldb.Open(t.Context(), name, older)).Or(t)
		beside, err := sqldb.Open(t.Context(), name, newer) // which is not older
		must(t, err)
		refused("beside one that lives", sqldb.ThisProcess())
		must(t, write(t.Context(), was, 1))
		must(t, was.Close())
		stop := comesLate(t, name)
		refused("beside one that came late", "ctl9, process 9")
		stop()
		was = testproc.Try(sqldb.Open(t.Context(), name, older)).Or(t)
		must(t, write(t.Context(), was, 2))
		must(t, was.Close())

		cut := errors.New("the power was cut")
		newer.Schema.Fence = func(context.Context, *sql.Tx, int) error { return cut }
		if _, _, err := sqldb.Migrate(t.Context(), name, 0, newer); !errors.Is(err, cut) {
			t.Errorf("Migrate: got %v, want the failure of Fence", err)
		}
		if _, err := sqldb.Open(t.Context(), name, older); !errors.Is(err, engine.ErrSchema) {
			t.Errorf("an older program starts after a step that was cut off: %v", err)
		}
		must(t, write(t.Context(), beside, 3))
		must(t, beside.Close())
	})
}

// comesLate has the row of an older process, which shows signs of life, appear when step 4 is
// claimed, until stop.
func comesLate(t *testing.T, name string) (stop func()) {
	t.Helper()
	const row = "INSERT INTO processes VALUES ('late', 'ctl9, process 9', 1, 0, 3);"
	trigger := []string{"CREATE TRIGGER late AFTER INSERT ON steps FOR EACH ROW IF NEW.number = 4 THEN " + row +
		" END IF"}
	drop := []string{"DROP TRIGGER late"}
	if strings.HasPrefix(name, "postgres") {
		trigger = []string{
			"CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.number = 4 THEN " + row +
				" END IF; RETURN NULL; END $$",
			"CREATE TRIGGER late AFTER INSERT ON steps FOR EACH ROW EXECUTE FUNCTION late()",
		}
		drop[0] += " ON steps"
	}
	dbservers.Execute(t, name, trigger...)
	ctx, cancel := context.WithCancel(t.Context())
	var living sync.WaitGroup
	db := dbservers.Open(t, name)
	living.Go(func() {
		for ctx.Err() == nil {
			// until the context ends
			_, _ = db.ExecContext(ctx, "UPDATE processes SET beat = beat + 1 WHERE token = 'late'")
			sqldb.Pause(ctx, 10)
		}
	})
	return func() {
		cancel()
		living.Wait()
		dbservers.Execute(t, name, append(drop, "DELETE FROM processes WHERE token = 'late'")...)
	}
}

// TestContractAfterKill: an older process that was killed holds a step up until it is known that it
// shows no sign of life, and its row is removed.
func TestContractAfterKill(t *testing.T) {
	t.Parallel()
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		testproc.Parallel(t, testproc.Light)
		name := fresh(t)
		was := testproc.Try(sqldb.Open(t.Context(), name, release("processes", "1"))).Or(t)
		must(t, was.Close())
		dbservers.Execute(t, name, "INSERT INTO processes VALUES ('killed', 'ctl9, process 9', 77, 0, 2)")
		o := release("processes", "1", "2 expand", "3 contract")
		if had, has, err := sqldb.Migrate(t.Context(), name, 0, o); had != 2 || has != 4 || err != nil {
			t.Errorf("from %d to %d, %v", had, has, err)
		}
		db := dbservers.Open(t, name)
		names, err := o.Schema.ProcessNames(t.Context(), db)
		if err != nil || len(names) != 0 {
			t.Errorf("there are %q, %v", names, err)
		}
	})
}

// TestBackupBeforeContract: a program that has not taken away yet what it does not use can back the
// database up; an older one, which does not know what was added, does not leave that out.
func TestBackupBeforeContract(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := fresh(t)
		first, second := release("1"), release("1", "2 expand", "3 contract")
		for _, o := range []sqldb.Options{first, second} {
			db := testproc.Try(sqldb.Open(t.Context(), name, o)).Or(t)
			must(t, db.Close())
		}
		file := filepath.Join(t.TempDir(), "backup")
		must(t, backup.Create(t.Context(), name, second, file))
		if err := backup.Create(t.Context(), name, first, file+"2"); !errors.Is(err, engine.ErrSchema) {
			t.Errorf("the older program's backup: %v", err)
		}
	})
}
