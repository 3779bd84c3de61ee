// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib" // also the driver "pgx"
)

// postgreSQL is PostgreSQL, the newest version that is installed.
type postgreSQL struct{}

func (postgreSQL) String() string { return "PostgreSQL" }

// programs returns the directory of PostgreSQL's programs, /usr/lib/postgresql/VERSION/bin.
func (postgreSQL) programs() (string, error) {
	const pattern = "/usr/lib/postgresql/*/bin/initdb"
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	newest, dir := 0, ""
	for _, path := range found {
		bin := filepath.Dir(path)
		if version, err := strconv.Atoi(filepath.Base(filepath.Dir(bin))); err == nil && version > newest {
			newest, dir = version, bin
		}
	}
	if dir == "" {
		return "", missing(pattern, "postgresql")
	}
	return dir, nil
}

func (p postgreSQL) initialise(ctx context.Context, i *instance) error {
	bin, err := p.programs()
	if err != nil {
		return err
	}
	password, err := i.write("password", i.password)
	if err != nil {
		return err
	}
	_, err = run(i.program(ctx, filepath.Join(bin, "initdb"), "--pgdata="+i.data, "--no-sync",
		"--encoding=UTF8", "--locale=C",
		"--username="+admin, "--auth=scram-sha-256", "--pwfile="+password))
	if err != nil || i.network == nil {
		return err
	}
	const anywhere = "host all all samenet scram-sha-256\nhost replication all samenet scram-sha-256\n"
	return os.WriteFile(filepath.Join(i.data, "pg_hba.conf"), []byte(anywhere), 0o600)
}

func (p postgreSQL) command(ctx context.Context, i *instance) (*exec.Cmd, error) {
	bin, err := p.programs()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(i.address)
	settings := []string{
		"listen_addresses=" + host, "port=" + port, "unix_socket_directories=", "max_connections=1000",
		"timezone=UTC", "log_timezone=UTC",
		"dynamic_shared_memory_type=mmap", // files in the directory: a killed server leaves nothing elsewhere
	}
	switch i.safety {
	case fast:
		settings = append(settings, "fsync=off", "full_page_writes=off", "autovacuum=off", "jit=off")
	case killable:
		settings = append(settings, "fsync=off")
	case durable:
	}
	var text strings.Builder
	for _, s := range append(settings, i.settings...) { // the last one counts
		name, value, _ := strings.Cut(s, "=")
		fmt.Fprintf(&text, "%s = '%s'\n", name, strings.ReplaceAll(value, "'", "''"))
	}
	file, bad := i.write("postgresql.conf", text.String())
	cmd := i.program(ctx, filepath.Join(bin, "postgres"), "-D", i.data, "-c", "config_file="+file)
	if i.network != nil {
		i.enter(cmd)
	}
	return cmd, errors.Join(err, bad)
}

func (p postgreSQL) open(i *instance, database string) (*sql.DB, error) {
	return i.network.openPostgreSQL(p.dsn(admin, i.password, i.address, cmp.Or(database, "postgres")))
}

// openPostgreSQL connects to a database from inside of a network, nil for that of the tests.
func (n *network) openPostgreSQL(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	if n != nil {
		config.DialFunc = n.dial
	}
	return stdlib.OpenDB(*config), nil
}

func (postgreSQL) ready(ctx context.Context, db *sql.DB) error { return db.PingContext(ctx) }

func (postgreSQL) stopSignal() syscall.Signal { return syscall.SIGINT }

func (p postgreSQL) create(database, password string) []string {
	create, _ := p.copied("template1", database, password)
	return create
}

// copied copies files: what writes a template's pages to the log instead, as the server does by
// itself, takes twice as long.
func (postgreSQL) copied(original, database, password string) (create []string, own string) {
	return []string{
		fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", database, password),
		fmt.Sprintf("CREATE DATABASE %s OWNER %[1]s TEMPLATE %s STRATEGY file_copy", database, original),
	}, fmt.Sprintf("REASSIGN OWNED BY %s TO %s", original, database)
}

func (postgreSQL) drop(database string) []string {
	return []string{"DROP DATABASE " + database + " WITH (FORCE)", "DROP ROLE " + database}
}

func (postgreSQL) dsn(user, password, address, database string) string {
	return (&url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: address, Path: "/" + database,
		RawQuery: "sslmode=disable"}).String()
}

func (postgreSQL) columns(string) string {
	return `SELECT c.relname, a.attnum, a.attname, a.atttypid::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
		UNION ALL SELECT c.relname, 0, t.tgname, 'trigger' FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal`
}

func (postgreSQL) disconnect(ctx context.Context, db *sql.DB, database string) error {
	// Those of the test's user: a connection of the administrator may be kept. The view
	// pg_stat_activity has the names of users and databases, and takes ten times as long.
	others := " FROM pg_stat_get_activity(NULL) WHERE usesysid <> CAST(CAST(current_user AS regrole) AS oid) AND " +
		"datid = (SELECT oid FROM pg_database WHERE datname = '" + database + "')"
	return disconnect(ctx, db, "SELECT pg_terminate_backend(pid)"+others, "SELECT COUNT(*)"+others)
}

func (postgreSQL) unchecked() string { return "SET session_replication_role = replica" }

func (postgreSQL) renumber(table string) string {
	return "SELECT setval(d.objid::regclass, 1, false) FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND " +
		"s.relkind = 'S' WHERE d.refobjid = '" +
		table + "'::regclass"
}

func (postgreSQL) placeholder(n int) string { return fmt.Sprintf("$%d", n) }
