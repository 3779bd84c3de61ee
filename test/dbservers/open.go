// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Open connects to the database of a DSN, or to an SQLite file, with nothing of ours in between.
// The connections are closed when the test has ended.
func Open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	scheme, rest, _ := strings.Cut(dsn, "://")
	var db *sql.DB
	var err error
	switch scheme {
	case "mysql":
		u, bad := url.Parse(dsn)
		if bad != nil {
			t.Fatalf("a DSN cannot be read: %v", bad)
		}
		password, _ := u.User.Password()
		db, err = openMariaDB(u.User.Username(), password, u.Host, strings.TrimPrefix(u.Path, "/"))
	case "postgres": // it may name several servers
		db, err = sql.Open("pgx", dsn)
	case "sqlite":
		db, err = sql.Open("sqlite", rest)
	default:
		db, err = sql.Open("sqlite", dsn)
	}
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

// openMariaDB connects to a database of a MariaDB server. The driver says nothing: that a server is
// down is for the tests to say.
func openMariaDB(user, password, address, database string) (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName = user, password, "tcp", address, database
	cfg.Logger = &mysql.NopLogger{}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}

// WithPasswordFile moves the password of a DSN into a file, as commands and configurations want it.
func WithPasswordFile(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	testproc.Check(t, err)
	password, has := u.User.Password()
	if !has {
		return dsn
	}
	file := filepath.Join(t.TempDir(), "password")
	testproc.Check(t, os.WriteFile(file, []byte(password), 0o600))
	u.User = url.User(u.User.Username())
	options := u.Query()
	options.Set("password_file", file)
	u.RawQuery = options.Encode()
	return u.String()
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

// PasswordInFile moves the password of a DSN into a file, as the configuration and the flags of the
// commands want it.
func PasswordInFile(t testing.TB, dsn string) string {
	t.Helper()
	at, err := url.Parse(dsn)
	testproc.Check(t, err)
	password, has := at.User.Password()
	if !has {
		return dsn
	}
	file := filepath.Join(t.TempDir(), "password")
	testproc.Check(t, os.WriteFile(file, []byte(password), 0o600))
	at.User = url.User(at.User.Username())
	options := at.Query()
	options.Set("password_file", file)
	at.RawQuery = options.Encode()
	return at.String()
}
