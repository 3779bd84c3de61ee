// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// mariaDB is MariaDB. Its programs are where Debian has them: an ordinary user's PATH does not have
// all of these directories.
type mariaDB struct{}

func (mariaDB) String() string { return "MariaDB" }

const (
	mariadbd  = "/usr/sbin/mariadbd"
	installDB = "/usr/bin/mariadb-install-db"
)

// files are the settings of what works with a server's files.
func (mariaDB) files(i *instance) []string {
	s := []string{"--no-defaults", "--datadir=" + i.data, "--innodb-log-file-size=32M"}
	switch i.safety {
	case fast:
		return append(s, "--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0")
	case killable:
		return append(s, "--innodb-flush-method=nosync", "--innodb-flush-log-at-trx-commit=2")
	case durable:
	}
	return s
}

func (m mariaDB) initialise(ctx context.Context, i *instance) error {
	for _, needed := range [][2]string{
		{mariadbd, "mariadb-server-core"}, {installDB, "mariadb-server-core"},
		{"/usr/bin/my_print_defaults", "mariadb-client-core"},
	} {
		if _, err := os.Stat(needed[0]); err != nil {
			return missing(needed[0], needed[1])
		}
	}
	// One statement in each line.
	users, err := i.write("users.sql", fmt.Sprintf("FLUSH PRIVILEGES;\nCREATE USER '%s'@'%%' IDENTIFIED BY '%s';\n"+
		"GRANT ALL ON *.* TO '%[1]s'@'%%' WITH GRANT OPTION;\n", admin, i.password))
	if err != nil {
		return err
	}
	_, err = run(i.program(ctx, installDB,
		append(m.files(i), "--auth-root-authentication-method=normal", "--skip-test-db", "--extra-file="+users)...))
	return err
}

func (m mariaDB) command(ctx context.Context, i *instance) (*exec.Cmd, error) {
	_, port, err := net.SplitHostPort(i.address)
	args := append(m.files(i), "--bind-address=127.0.0.1", "--port="+port, "--skip-name-resolve",
		"--socket="+filepath.Join(i.dir, "socket"), "--pid-file="+filepath.Join(i.dir, "pid"),
		"--character-set-server=utf8mb4", "--max-connections=1000", "--innodb-buffer-pool-size=128M",
		"--innodb-buffer-pool-load-at-startup=0", "--innodb-buffer-pool-dump-at-shutdown=0")
	for _, s := range i.settings {
		args = append(args, "--"+s)
	}
	return i.program(ctx, mariadbd, args...), err
}

func (mariaDB) open(i *instance, database string) (*sql.DB, error) {
	return openMariaDB(admin, i.password, i.address, database)
}

func (mariaDB) ready(ctx context.Context, db *sql.DB) error { return db.PingContext(ctx) }

func (mariaDB) stopSignal() syscall.Signal { return syscall.SIGTERM }

func (mariaDB) create(database, password string) []string {
	return []string{
		"CREATE DATABASE " + database,
		fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", database, password),
		fmt.Sprintf("GRANT ALL ON %s.* TO %[1]s@'%%'", database),
	}
}

// drop closes the connections first: a transaction that a test left open would block it.
func (mariaDB) drop(database string) []string {
	return []string{"DROP USER " + database, "KILL USER " + database, "DROP DATABASE " + database}
}

func (mariaDB) dsn(user, password, address, database string) string {
	return (&url.URL{Scheme: "mysql", User: url.UserPassword(user, password), Host: address, Path: "/" + database}).
		String()
}

func (mariaDB) columns(database string) string {
	return "SELECT table_name, ordinal_position, column_name, column_type FROM information_schema.columns WHERE " +
		"table_schema = '" + database + "'" +
		" UNION ALL SELECT event_object_table, 0, trigger_name, 'trigger' FROM information_schema.triggers WHERE " +
		"trigger_schema = '" + database + "'"
}

func (mariaDB) disconnect(ctx context.Context, db *sql.DB, database string) error {
	return disconnect(ctx, db, "KILL USER "+database,
		"SELECT COUNT(*) FROM information_schema.processlist WHERE user = '"+database+"'")
}

func (mariaDB) unchecked() string { return "SET foreign_key_checks = 0" }

func (mariaDB) renumber(table string) string { return "ALTER TABLE " + table + " AUTO_INCREMENT = 1" }

func (mariaDB) placeholder(int) string { return "?" }
