// SPDX-License-Identifier: Apache-2.0

package dbservers_test

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	_ "modernc.org/sqlite"
)

// open connects to the database of a DSN.
func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	u, err := url.Parse(dsn)
	testproc.Check(t, err)
	var db *sql.DB
	switch u.Scheme {
	case "sqlite":
		db, err = sql.Open("sqlite", u.Path)
	case "mysql":
		cfg := mysql.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		cfg.Passwd, _ = u.User.Password()
		cfg.Logger = &mysql.NopLogger{}
		db, err = sql.Open("mysql", cfg.FormatDSN())
	default:
		db, err = sql.Open("pgx", dsn)
	}
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.Check(t, db.Close()) })
	return db
}

func exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func text(t testing.TB, db *sql.DB, query string) string {
	t.Helper()
	var out string
	if err := db.QueryRowContext(t.Context(), query).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

func TestEachDatabaseIsEmptyAndApart(t *testing.T) {
	dbservers.Each(t, func(t *testing.T, fresh func(t testing.TB) string) {
		one, other := open(t, fresh(t)), open(t, fresh(t))
		for i, db := range []*sql.DB{one, other} {
			exec(t, db, "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)")
			exec(t, db, []string{"INSERT INTO words VALUES ('çá🙂')", "INSERT INTO words VALUES ('other')"}[i])
		}
		if got := text(t, one, "SELECT word FROM words"); got != "çá🙂" {
			t.Errorf("got %q", got)
		}
		if got := text(t, other, "SELECT word FROM words"); got != "other" {
			t.Errorf("got %q", got)
		}
	})
}

// TestADatabaseGoesWithItsTest leaves a transaction open, which must not keep the database.
func TestADatabaseGoesWithItsTest(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) string{"mariadb": dbservers.MariaDB, "postgresql": dbservers.PostgreSQL} {
		t.Run(name, func(t *testing.T) {
			var gone *sql.DB
			t.Run("inner", func(inner *testing.T) {
				gone = open(t, fresh(inner))
				exec(t, gone, "CREATE TABLE words (word VARCHAR(20) PRIMARY KEY)")
				tx, err := gone.BeginTx(t.Context(), nil)
				testproc.Check(t, err)
				_, err = tx.ExecContext(t.Context(), "INSERT INTO words VALUES ('left')")
				testproc.Check(t, err)
			})
			if gone == nil {
				return // it has failed
			}
			if err := gone.PingContext(t.Context()); err == nil {
				t.Error("the database of a test that has ended can be used")
			}
		})
	}
}
