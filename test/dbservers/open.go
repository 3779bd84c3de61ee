// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
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
		testproc.Checkf(t, bad, "a DSN cannot be read")
		password, _ := u.User.Password()
		db, err = openMariaDB(u.User.Username(), password, u.Host, strings.TrimPrefix(u.Path, "/"))
	case "postgres": // it may name several servers
		db, err = sql.Open("pgx", dsn)
	case "sqlite":
		db, err = sql.Open("sqlite", rest)
	default:
		db, err = sql.Open("sqlite", dsn)
	}
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.NoError(t, db.Close()) })
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

// WithPasswordFile moves the password of a DSN into a file, which lives as long as the test, as
// commands and configurations want it. A DSN without a password stays as it is.
func WithPasswordFile(t testing.TB, dsn string) string {
	t.Helper()
	parts := dsnParts.FindStringSubmatch(dsn) // url.Parse takes no list of hosts
	if parts == nil {
		return dsn
	}
	scheme, user, password, database, options := parts[1], parts[2], parts[3], parts[4], parts[5]
	password = testproc.Try(url.PathUnescape(password)).Or(t)
	file := filepath.Join(t.TempDir(), "password")
	testproc.Check(t, os.WriteFile(file, []byte(password), 0o600))
	option := "?"
	if options != "" {
		option = "&"
	}
	return scheme + user + "@" + database + options + option + "password_file=" + url.QueryEscape(file)
}

// dsnParts are the scheme, the user, the password, hosts and database, and the options of a DSN.
var dsnParts = regexp.MustCompile(`^(\w+://)([^:@]+):([^@]+)@([^?]+)(.*)$`)

// Execute runs statements on the database of a DSN, or on an SQLite file.
func Execute(t testing.TB, dsn string, statements ...string) {
	t.Helper()
	db := Open(t, dsn)
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	testproc.NoError(t, db.Close())
}
