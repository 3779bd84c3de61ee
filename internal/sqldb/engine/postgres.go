// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// PostgreSQL is the dialect of PostgreSQL from 13 on, and of what speaks like it.
var PostgreSQL = &Dialect{
	Name:           "postgres",
	Upsert:         onConflict,
	Texts:          "SELECT jsonb_array_elements_text(CAST(? AS jsonb))",
	Numbers:        "SELECT CAST(jsonb_array_elements_text(CAST(? AS jsonb)) AS bigint)",
	returning:      " RETURNING id",
	TimeColumn:     func(column string) string { return column },
	TimeArg:        func(t time.Time) any { return t.UTC() },
	TimeResolution: time.Microsecond,
	MaxParams:      10000,
	Tables: "SELECT CAST(relname AS text) AS name FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'f') AND " +
		"relnamespace = " + postgresSchema + postgresVisible,
	ReadOnly:    "CASE WHEN pg_is_in_recovery() THEN 1 ELSE 0 END",
	Unconfirmed: true,
	Kind:        postgresKind,
	class:       postgresClass,
	Servers: &Servers{
		Sessions: "SELECT COALESCE(usename, ''), COALESCE(host(client_addr) || ':' || client_port, 'its own " +
			"machine'), COALESCE(application_name, ''), COALESCE(state, '') " +
			"FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type " +
			"= 'client backend' ORDER BY pid",
		Facts:   postgresFacts,
		Guard:   postgresGuard,
		Unguard: postgresUnguard,
		Guarded: "SELECT COUNT(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = " +
			postgresSchema + " AND t.tgname LIKE ? AND c.relname = ?",
		Guards: 1,
		Bump:   postgresBump,
	},
}

// postgresSchema is the schema of the tables, as the catalog has it. The views of
// information_schema say the same, and take several times as long as all else of a start.
const postgresSchema = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"

// postgresVisible is what information_schema shows of a schema: where the user has any right.
const postgresVisible = " AND (pg_has_role(relowner, 'USAGE') OR has_table_privilege(oid, 'SELECT, INSERT, UPDATE, " +
	"DELETE, TRUNCATE, REFERENCES, TRIGGER') " +
	"OR has_any_column_privilege(oid, 'SELECT, INSERT, UPDATE, REFERENCES'))"

// postgresClasses are the classes of PostgreSQL's errors, by their states or by what these begin
// with.
var postgresClasses = map[string]Class{
	"22": Mismatch | Unfit, "23": Conflict, "23505": Conflict | Duplicate,
	"42": Mismatch, "42501": 0, "42P07": Mismatch | Exists, "42701": Mismatch | Exists, "42710": Mismatch | Exists,
	"57014": Interrupted, "40001": Retry, "40P01": Retry, "55P03": Retry, "40003": Retry | CommitUnknown,
}

func postgresClass(err error) Class {
	state := sqlState(err)
	c, known := postgresClasses[state]
	if !known {
		c = postgresClasses[state[:min(len(state), 2)]]
	}
	if isConcurrentCreate(err) {
		c |= Exists
	}
	if strings.HasPrefix(state, "57P") || lostPostgres(err) || contextEnded(err) {
		c |= CommitUnknown
	}
	return c
}

func postgresBump(ctx context.Context, tx *sql.Tx, table, token string, steps int) (beat int64, found bool, err error) {
	err = tx.QueryRowContext(ctx, fmt.Sprintf(
		"UPDATE %s SET beat = beat + 1, token = LEFT(CAST(? AS varchar) || token, %d) WHERE number = 0 AND needs <= "+
			"? RETURNING beat", table, TokenSize*KeptTokens), token, steps).Scan(&beat)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return beat, err == nil, err
}

// isConcurrentCreate reports whether two sessions made a table of the same name at the same moment:
// the second one finds it in the catalog only.
func isConcurrentCreate(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "23505" && strings.HasPrefix(e.ConstraintName, "pg_")
}

// sqlState is the five characters of an error of the server, "" for other errors.
func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

//nolint:revive,staticcheck // the kind is a result, not a failure
func postgresKind(err error) (kind error, hint string) {
	state := sqlState(err)
	switch {
	case state == "53100":
		return ErrFull, "make space on the database server"
	case state == "25006", errors.Is(err, pgconn.ErrReadOnlyConnection):
		return ErrReadOnly, "the database server is read-only: it may be a standby"
	case strings.HasPrefix(state, "28"), state == "42501":
		return ErrDenied, "check the user, the password and what is granted to the user"
	case state == "3D000":
		return ErrUnreachable, "create the database on its server first"
	case strings.HasPrefix(state, "XX"):
		return ErrCorrupt, "look at the log of the database server"
	case strings.HasPrefix(state, "58"):
		return ErrIO, "look at the log of the database server"
	case state == "40001", state == "40P01", state == "55P03", state == "40003":
		return ErrLocked, "other transactions were in the way"
	case state == "53300":
		return ErrUnreachable,
			"the database server has no more connections for this user; raise max_connections, or the limit of the user"
	case state == "08P01" && strings.Contains(err.Error(), "startup parameter"):
		return ErrUnsuitable,
			"connect to PostgreSQL itself: sessions through PgBouncer do not keep what this program sets in them"
	case strings.HasPrefix(state, "53"), strings.HasPrefix(state, "57P"), strings.HasPrefix(state, "08"),
		state == "25P03", state == "25P04", lostPostgres(err):
		return ErrUnreachable, unreachable(err)
	case errors.Is(err, errTooOld):
		return ErrUnsuitable, "it has to be PostgreSQL 13 or later"
	}
	return nil, ""
}

// lostPostgres says that the connection broke, or that none could be made.
func lostPostgres(err error) bool {
	var connecting *pgconn.ConnectError
	var netErr net.Error
	return errors.As(err, &connecting) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, pgconn.ErrConnClosed) ||
		errors.As(err, &netErr) || isEOF(err) ||
		strings.HasPrefix(sqlState(err), "08") || sqlState(err) == "25P03" ||
		sqlState(err) == "25P04" || errors.Is(err, errSilent)
}

// postgresAddress makes the address of PostgreSQL servers.
func postgresAddress(d *dsn) (Address, error) {
	shown := d.String()
	if encoding := d.option("client_encoding"); encoding != "" &&
		!strings.EqualFold(strings.ReplaceAll(encoding, "-", ""), "utf8") {
		return Address{}, fmt.Errorf("the database address %s has the client_encoding %s; it has to be utf8",
			d, encoding)
	}
	known := map[string]bool{"host": true, "port": true, "sslmode": true, "sslrootcert": true, "sslcert": true,
		"sslkey": true, "sslsni": true,
		"connect_timeout": true, "target_session_attrs": true, "application_name": true,
		"default_query_exec_mode": true, "search_path": true,
		"options": true, "channel_binding": true, "krbsrvname": true, "krbspn": true}
	query := url.Values{}
	for name := range known {
		if value := d.option(name); value != "" {
			query.Set(name, value)
		}
	}
	switch wanted := query.Get("target_session_attrs"); wanted {
	case "", "any", "read-write", "primary":
	default:
		return Address{},
			fmt.Errorf("the database address %s has target_session_attrs=%s, and only a server that takes writes is "+
				"used; leave it out", d, wanted)
	}
	d.dropHarmless()
	timeout := answerTimeout
	if err := d.seconds("read_timeout", &timeout); err != nil {
		return Address{}, err
	}
	if err := d.unusedOptionsError(); err != nil {
		return Address{}, err
	}
	if query.Get("application_name") == "" {
		query.Set("application_name", "compute-agent")
	}
	// A standby is behind, however little: its rows are never read.
	query.Set("target_session_attrs", "read-write")
	address := "postgres://"
	if d.user != "" {
		address += url.UserPassword(d.user, d.password).String() + "@"
	}
	address += strings.Join(d.hosts, ",") + "/" + url.PathEscape(d.database) + "?" + query.Encode()
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return Address{}, fmt.Errorf("the database address %s cannot be used: %w",
			shown, withoutPassword(err, address, d.password))
	}
	if query.Get("connect_timeout") == "" {
		config.ConnectTimeout = dialTimeout
	}
	for name, value := range map[string]string{
		"default_transaction_isolation": "read committed", "timezone": "UTC", "lock_timeout": "10s",
		postgresOwnSession: "1", "standard_conforming_strings": "on",
		"statement_timeout": "0", // loads take long
		// A transaction of a process that was stopped would keep the others from writing.
		"idle_in_transaction_session_timeout": "10s",
	} {
		config.RuntimeParams[name] = value
	}
	return Address{Dialect: PostgreSQL, shown: shown, Connect: func(patience time.Duration) (driver.Connector, error) {
		config := config.Copy()
		dial := config.DialFunc
		config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if network == (notCancelled{}).Network() {
				return nil, errors.New(address)
			}
			made, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &boundedConn{Conn: made, timeout: max(timeout, patience)}, nil
		}
		return &postgresConnector{*config, d, patience}, nil
	}}, nil
}

// withoutPassword is an error of the driver that may show the address.
func withoutPassword(err error, address, password string) error {
	var bad *pgconn.ParseConfigError
	text := err.Error()
	if errors.As(err, &bad) {
		_, text, _ = strings.Cut(text, "`: ") // that is after the address
	}
	if strings.Contains(text, address) || password != "" &&
		(strings.Contains(text, password) || strings.Contains(text, url.QueryEscape(password))) {
		return errors.New("it cannot be read")
	}
	return errors.New(text)
}

type postgresConnector struct {
	config pgx.ConnConfig
	d      *dsn
	// patience is how long a statement may take if that is longer than answerTimeout.
	patience time.Duration
}

// Driver implements [driver.Connector].
func (c *postgresConnector) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// Connect implements [driver.Connector].
func (c *postgresConnector) Connect(ctx context.Context) (driver.Conn, error) {
	config := c.config
	if c.d.passwordFile != "" {
		var err error
		if config.Password, err = c.d.secret(ctx); err != nil {
			return nil, err
		}
	}
	raw, err := stdlib.GetConnector(config).Connect(ctx)
	if err != nil {
		return nil, err
	}
	made := newConn(raw, PostgreSQL, numbered, c.patience)
	if driver, ok := raw.(*stdlib.Conn); ok {
		of := driver.Conn().PgConn()
		if version := of.ParameterStatus("server_version"); postgresTooOld(version) {
			_ = raw.Close() // the error below is the one that matters
			return nil, fmt.Errorf("%w: %s", errTooOld, version)
		}
		made.socket = socketOf(of.Conn())
	}
	return made, nil
}

// socketOf returns the connection that carries another one, with TLS or without.
func socketOf(c net.Conn) *boundedConn {
	if layer, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = layer.NetConn()
	}
	socket, _ := c.(*boundedConn)
	return socket
}

// postgresTooOld says whether a server has a version that cannot be used, such as 12.17 (Debian
// 12.17-1). YugabyteDB says 11.2-YB-2.20.1.0, and has what is needed.
func postgresTooOld(version string) bool {
	var major int
	n, _ := fmt.Sscanf(version, "%d", &major)
	return n == 1 && major < 13 && !strings.Contains(version, "YB")
}

// numbered writes $1, $2… for the question marks of a statement that are not in quotes.
func numbered(query string) string {
	if !strings.ContainsRune(query, '?') {
		return query
	}
	var b strings.Builder
	b.Grow(len(query) + 32)
	n, quote := 0, byte(0)
	for i := range len(query) {
		c := query[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '?':
			n++
			fmt.Fprintf(&b, "$%d", n)
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

// postgresFacts are queries for names and values.
var postgresFacts = []string{
	"SELECT 'version', current_setting('server_version')",
	"SELECT 'client', COALESCE(host(inet_client_addr()), '')",
	"SELECT 'tls', COALESCE((SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()), '')",
	"SELECT 'standbys', CAST((SELECT COUNT(*) FROM pg_stat_replication) AS text)",
	"SELECT name, setting FROM pg_settings WHERE name IN ('transaction_isolation', 'fsync', " +
		"'synchronous_commit', 'synchronous_standby_names')",
}

// postgresOwnSession is the variable of a session that says that it is this program's.
const postgresOwnSession = "compute_agent.session"

func postgresGuard(name, message string, tables []string) []string {
	out := []string{fmt.Sprintf("CREATE OR REPLACE FUNCTION %s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "+
		"IF COALESCE(current_setting('%s', true), '') = '' THEN RAISE EXCEPTION '%s'; END IF; RETURN NULL; END $$",
		name, postgresOwnSession, message)}
	for _, table := range tables {
		out = append(out,
			fmt.Sprintf(
				"CREATE TRIGGER %s BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s FOR EACH STATEMENT EXECUTE "+
					"FUNCTION %[1]s()", name, table))
	}
	return out
}

func postgresUnguard(name string, tables []string) (out []string) {
	for _, table := range tables {
		out = append(out, fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", name, table))
	}
	return append(out, fmt.Sprintf("DROP FUNCTION IF EXISTS %s()", name))
}
