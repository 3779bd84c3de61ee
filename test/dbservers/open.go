// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// Open connects to the database of a DSN, or to an SQLite file, with nothing of ours in between.
// The connections are closed when the test has ended.
func Open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	name, source := "sqlite", strings.TrimPrefix(dsn, "sqlite://")
	switch u, err := url.Parse(dsn); {
	case err != nil:
		t.Fatalf("a DSN cannot be read: %v", err)
	case u.Scheme == "mysql":
		cfg := mysql.NewConfig()
		cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		cfg.Passwd, _ = u.User.Password()
		cfg.Logger = &mysql.NopLogger{}
		name, source = "mysql", cfg.FormatDSN()
	case u.Scheme == "postgres":
		name, source = "pgx", dsn
	}
	db, err := sql.Open(name, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Execute runs statements on the database of a DSN, or on an SQLite file.
func Execute(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	db := Open(t, dsn)
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}
