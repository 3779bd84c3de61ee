// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MySQL is the dialect of MariaDB from 10.6 on, of its Galera clusters, and of MySQL 8.
var MySQL = &Dialect{
	Name: "mysql",
	Upsert: func(key string, columns ...string) string {
		if len(columns) == 0 {
			column, _, _ := strings.Cut(key, ",")
			return " ON DUPLICATE KEY UPDATE " + column + " = " + column
		}
		set := make([]string, len(columns))
		for i, c := range columns {
			set[i] = c + " = VALUES(" + c + ")"
		}
		return " ON DUPLICATE KEY UPDATE " + strings.Join(set, ", ")
	},
	Texts: "SELECT value FROM JSON_TABLE(?, '$[*]' COLUMNS (value VARCHAR(255) CHARACTER SET utf8mb4 COLLATE " +
		"utf8mb4_bin PATH '$')) AS list",
	Numbers:    "SELECT value FROM JSON_TABLE(?, '$[*]' COLUMNS (value BIGINT PATH '$')) AS list",
	TimeColumn: func(column string) string { return column },
	TimeArg:    func(t time.Time) any { return t.UTC().Format(time.DateTime) },
	// Placement's columns have no fractions of seconds there.
	TimeResolution: time.Second,
	MaxParams:      10000,
	Tables:         "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = DATABASE()",
	// A number up to MariaDB 11, a word from 12 on.
	ReadOnly: "CASE WHEN CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') THEN 0 ELSE 1 END",
	Kind:     mysqlKind,
	class:    mysqlClass,
	Servers: &Servers{
		Sessions: "SELECT user, host, '', COALESCE(command, '') FROM information_schema.processlist " +
			"WHERE db = DATABASE() AND id <> CONNECTION_ID() ORDER BY id",
		Facts:   mysqlFacts,
		Guard:   mysqlGuard,
		Unguard: mysqlUnguard,
		Guarded: "SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = DATABASE() AND " +
			"trigger_name LIKE ? AND event_object_table = ?",
		Guards:  3,
		Demotes: true,
		Bump:    mysqlBump,
	},
}

// mysqlClasses are the classes of MySQL's and MariaDB's error messages, by their numbers.
var mysqlClasses = map[uint16]Class{
	1062: Conflict | Duplicate, 1557: Conflict | Duplicate, 1761: Conflict | Duplicate,
	1169: Conflict, 1216: Conflict, 1217: Conflict, 1451: Conflict, 1452: Conflict, 4025: Conflict,
	1264: Mismatch | Unfit, 1366: Mismatch | Unfit, 1406: Mismatch | Unfit,
	1054: Mismatch, 1058: Mismatch, 1064: Mismatch, 1136: Mismatch, 1146: Mismatch, 1364: Mismatch,
	1317: Interrupted, 1969: Interrupted, 3024: Interrupted,
	1020: Retry, 1205: Retry, 1213: Retry, 3572: Retry,
	1050: Exists, 1060: Exists, 1061: Exists, 1359: Exists,
	// A Galera node lost its cluster, which may have the change or not.
	1047: CommitUnknown, 1180: CommitUnknown,
}

func mysqlClass(err error) (c Class) {
	if e := new(mysql.MySQLError); errors.As(err, &e) {
		c = mysqlClasses[e.Number]
	}
	if lostConnection(err) || contextEnded(err) {
		c |= CommitUnknown
	}
	return c
}

func mysqlBump(ctx context.Context, tx *sql.Tx, table, token string, steps int) (beat int64, found bool, err error) {
	result, err := tx.ExecContext(ctx, fmt.Sprintf(
		"UPDATE %s SET beat = LAST_INSERT_ID(beat + 1), token = LEFT(CONCAT(?, token), %d) WHERE number = 0 "+
			"AND needs <= ?", table, TokenSize*KeptTokens), token, steps)
	if err != nil {
		return 0, false, err
	}
	changed, err := result.RowsAffected()
	if err != nil || changed != 1 {
		return 0, false, err
	}
	beat, err = result.LastInsertId()
	return beat, true, err
}

// mysqlIs says that an error has one of the numbers of MySQL's and MariaDB's error messages.
func mysqlIs(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

//nolint:revive,staticcheck // the kind is a result, not a failure
func mysqlKind(err error) (kind error, hint string) {
	switch {
	case mysqlIs(err, 1021, 1114):
		return ErrFull, "make space on the database server"
	case mysqlIs(err, 1290, 1792, 1836), errors.Is(err, ErrReadOnlyServer):
		return ErrReadOnly, "the database server is read-only: it may be a replica, or a primary that was replaced"
	case mysqlIs(err, 1044, 1045, 1142, 1143, 1227, 1370, 1419):
		return ErrDenied, "check the user, the password and what is granted to the user"
	case mysqlIs(err, 1046, 1049): // 1046: it was dropped, and the connection does not know another
		return ErrUnreachable, "create the database on its server first: CREATE DATABASE … CHARACTER SET utf8mb4"
	case mysqlIs(err, 1047, 1180):
		return ErrUnreachable, "the Galera node is not part of the primary component of its cluster"
	case mysqlIs(err, 1034, 1035, 1194, 1195, 1712):
		return ErrCorrupt, "check the tables on the database server"
	case mysqlIs(err, 1026, 1030):
		return ErrIO, "look at the log of the database server"
	case mysqlIs(err, 1020, 1205, 1213, 3572):
		return ErrLocked, "other transactions were in the way"
	case mysqlIs(err, 1040, 1203, 1226):
		return ErrUnreachable,
			"the database server has no more connections for this user; raise max_connections, or the limit of the user"
	case mysqlIs(err, 1129):
		return ErrUnreachable,
			"the database server refuses this machine after many failed attempts; run FLUSH HOSTS on it"
	case mysqlIs(err, 1053, 1135, 1927), lostConnection(err), untrusted(err):
		return ErrUnreachable, unreachable(err)
	}
	return mysqlUnsuitable(err)
}

// mysqlUnsuitable is about servers that cannot be used as they are.
//
//nolint:revive,staticcheck // the kind is a result, not a failure
func mysqlUnsuitable(err error) (kind error, hint string) {
	switch {
	case errors.Is(err, errTooOld):
		return ErrUnsuitable, "it has to be MariaDB 10.6 or MySQL 8.0, or later"
	case errors.Is(err, mysql.ErrPktSync), errors.Is(err, mysql.ErrPktSyncMul), errors.Is(err, mysql.ErrMalformPkt),
		errors.Is(err, mysql.ErrOldProtocol):
		return ErrUnsuitable,
			"what answers at its address is no MariaDB or MySQL that this program knows; check host and port"
	case errors.Is(err, mysql.ErrUnknownPlugin), errors.Is(err, mysql.ErrCleartextPassword),
		errors.Is(err, mysql.ErrOldPassword):
		return ErrUnsuitable,
			"the user logs in by a method that this program does not have; give the user a password: " +
				"mysql_native_password, caching_sha2_password or ed25519"
	case errors.Is(err, mysql.ErrNoTLS):
		return ErrUnsuitable,
			"TLS is asked for, and the database server has none; set it up there, or leave the options of TLS out " +
				"of the address"
	case mysqlIs(err, 1153), errors.Is(err, mysql.ErrPktTooLarge), mysqlIs(err, 1105) &&
		strings.Contains(err.Error(), "max_allowed_packet"):
		return ErrUnsuitable, "raise max_allowed_packet on the database server; 64M is enough"
	case mysqlIs(err, 1665):
		return ErrUnsuitable, "set binlog_format to ROW or MIXED on the database server"
	case mysqlIs(err, 1461):
		return ErrUnsuitable, "raise max_prepared_stmt_count on the database server"
	case mysqlIs(err, 1173, 3750):
		return ErrUnsuitable, "a table has no primary key, and the database server demands one"
	}
	return nil, ""
}

// lostConnection says that the connection broke, so that what the server did with the last
// statement is not known.
func lostConnection(err error) bool {
	var netErr net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.As(err, &netErr) ||
		isEOF(err) || errors.Is(err, errSilent) || mysqlIs(err, 1053, 1152, 1158, 1159, 1160, 1161, 1317, 1927, 4031)
}

// mysqlSession begins each session: what the database's own defaults may be is different
// everywhere.
var mysqlSession = []string{
	// A server can ignore what the driver has asked for (skip-character-set-client-handshake).
	"SET NAMES utf8mb4 COLLATE utf8mb4_bin",
	"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
	// InnoDB: another engine does not undo what a transaction did.
	"SET SESSION autocommit = 1, completion_type = 0, foreign_key_checks = 1, " +
		"unique_checks = 1, default_storage_engine = InnoDB, sql_safe_updates = 0, " +
		"sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_auto_is_null = 0",
	"SET SESSION sql_mode = " +
		"'STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION," +
		"NO_AUTO_VALUE_ON_ZERO'",
	"SET SESSION time_zone = '+00:00'",
	"SET SESSION innodb_lock_wait_timeout = 10",
	"SET " + mysqlOwnSession + " = 1",
}

// mysqlOptional are for engines that have the variable: 1193 is an unknown one. The first has each
// read on a Galera node wait for what the cluster has committed before; the second has a node that
// lost its cluster refuse reads; the third ends a transaction of a process that was stopped, which
// would keep the others from writing. The fourth is for loads, which take long.
var mysqlOptional = []string{
	"SET SESSION wsrep_sync_wait = 7",
	"SET SESSION wsrep_dirty_reads = OFF",
	"SET SESSION idle_write_transaction_timeout = 10",
	"SET SESSION max_statement_time = 0",
}

// mysqlAddress makes the address of MariaDB or MySQL servers.
func mysqlAddress(d *dsn) (Address, error) {
	base := mysql.NewConfig()
	base.User, base.DBName = d.user, d.database
	base.Timeout, base.ReadTimeout, base.WriteTimeout = dialTimeout, answerTimeout, answerTimeout
	base.MaxAllowedPacket = 0 // asks the server
	base.ClientFoundRows, base.InterpolateParams, base.RejectReadOnly = true, true, false
	base.Collation = "utf8mb4_bin"
	base.Logger = silent{}
	switch charset := d.option("charset"); charset {
	case "", "utf8", "utf8mb3", "utf8mb4":
	default:
		return Address{}, fmt.Errorf("the database address %s has the charset %s; it has to be utf8mb4 or utf8",
			d, charset)
	}
	if err := d.mysqlTLS(base); err != nil {
		return Address{}, err
	}
	d.dropHarmless()
	socket := d.option("unix_socket")
	if socket != "" && len(d.hosts) > 0 && d.hosts[0] != "localhost" {
		return Address{}, fmt.Errorf("the database address %s has a host and a unix_socket; leave one out", d)
	}
	for _, option := range []struct {
		name string
		to   *time.Duration
	}{{"connect_timeout", &base.Timeout}, {"read_timeout", &base.ReadTimeout}, {"write_timeout", &base.WriteTimeout}} {
		if err := d.seconds(option.name, option.to); err != nil {
			return Address{}, err
		}
	}
	if err := d.unusedOptionsError(); err != nil {
		return Address{}, err
	}
	places := []string{socket}
	if socket == "" {
		if places = nil; len(d.hosts) == 0 {
			d.hosts = []string{"127.0.0.1"}
		}
		for _, host := range d.hosts {
			if _, _, err := net.SplitHostPort(host); err != nil {
				host = net.JoinHostPort(strings.Trim(host, "[]"), "3306")
			}
			places = append(places, host)
		}
	}
	return Address{Dialect: MySQL, shown: d.String(), Connect: func(patience time.Duration) (driver.Connector, error) {
		c := &mysqlConnector{read: d.secret, patience: patience}
		for _, place := range places {
			one := base.Clone()
			one.Addr = place
			one.ReadTimeout, one.WriteTimeout = max(one.ReadTimeout, patience), max(one.WriteTimeout, patience)
			if one.Net = "tcp"; socket != "" {
				one.Net = "unix"
			}
			c.configs = append(c.configs, one)
		}
		return c, nil
	}}, nil
}

// silent is the driver's log: what it would say is in the errors.
type silent struct{}

func (silent) Print(...any) {}

// mysqlConnector connects to the first server that can be used.
type mysqlConnector struct {
	configs []*mysql.Config
	read    func(context.Context) (string, error)
	// patience is how long a statement may take if that is longer than answerTimeout.
	patience time.Duration
}

// Driver implements [driver.Connector].
func (c *mysqlConnector) Driver() driver.Driver { return mysql.MySQLDriver{} }

// Connect implements [driver.Connector].
func (c *mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	password, err := c.read(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, config := range c.configs {
		one := config.Clone()
		one.Passwd = password
		made, err := connectMySQL(ctx, one, c.patience)
		if err == nil {
			return made, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", config.Addr, err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

var (
	// ErrReadOnlyServer is the error of a server that does not take writes.
	ErrReadOnlyServer = errors.New("the server is read-only")
	errTooOld         = errors.New("the server is too old")
)

func connectMySQL(ctx context.Context, config *mysql.Config, patience time.Duration) (driver.Conn, error) {
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	greeting, cancel := context.WithTimeoutCause(ctx, config.Timeout, errSilent)
	defer cancel()
	raw, err := connector.Connect(greeting)
	if err != nil {
		return nil, statementError(greeting, err)
	}
	c := newConn(raw, MySQL, nil, patience)
	if err := c.beginMySQL(ctx); err != nil {
		_ = c.Close() // the error above is the one that matters
		return nil, err
	}
	return c, nil
}

// beginMySQL sets up the session, and refuses a server that does not take writes.
func (c *conn) beginMySQL(ctx context.Context) error {
	for _, statement := range mysqlSession {
		if _, err := c.ExecContext(ctx, statement, nil); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	for _, statement := range mysqlOptional {
		if _, err := c.ExecContext(ctx, statement, nil); err != nil && !mysqlIs(err, 1193) {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	text, err := c.one(ctx, "SELECT CONCAT("+MySQL.ReadOnly+", ' ', VERSION())")
	if err != nil {
		return err
	}
	readOnly, version, _ := strings.Cut(text, " ")
	if mysqlTooOld(version) {
		return fmt.Errorf("%w: %s", errTooOld, version)
	}
	if readOnly != "0" {
		return ErrReadOnlyServer
	}
	return nil
}

// mysqlTooOld says whether a server has a version that cannot be used, such as 10.5.23-MariaDB-log:
// it lacks JSON_TABLE. One that cannot be read is believed to be new.
func mysqlTooOld(version string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	if strings.Contains(strings.ToLower(version), "mariadb") {
		return major < 10 || major == 10 && minor < 6
	}
	return major < 8
}

// mysqlFacts are queries for names and values.
var mysqlFacts = []string{
	"SELECT 'version', VERSION()",
	"SELECT 'client', SUBSTRING_INDEX(USER(), '@', -1)",
	"SHOW SESSION VARIABLES WHERE variable_name IN ('tx_isolation', 'transaction_isolation', " +
		"'max_allowed_packet', 'innodb_flush_log_at_trx_commit', 'wsrep_on', 'wsrep_sync_wait')",
	"SHOW SESSION STATUS WHERE variable_name IN ('Ssl_version', 'wsrep_local_state_comment', " +
		"'wsrep_cluster_status', 'wsrep_cluster_size')",
}

// mysqlOwnSession is the variable of a session that says that it is this program's.
const mysqlOwnSession = "@compute_agent"

// mysqlChanges: a trigger of MySQL is for one kind of change, and is not in a transaction.
var mysqlChanges = []string{"insert", "update", "delete"}

func mysqlGuard(name, message string, tables []string) (out []string) {
	for _, table := range tables {
		for _, change := range mysqlChanges {
			out = append(out,
				fmt.Sprintf("CREATE TRIGGER %s_%s_%s BEFORE %[3]s ON %[2]s FOR EACH ROW IF %[4]s IS NULL THEN "+
					"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '%[5]s'; END IF", name, table,
					change, mysqlOwnSession, message))
		}
	}
	return out
}

func mysqlUnguard(name string, tables []string) (out []string) {
	for _, table := range tables {
		for _, change := range mysqlChanges {
			out = append(out, fmt.Sprintf("DROP TRIGGER IF EXISTS %s_%s_%s", name, table, change))
		}
	}
	return out
}

// TriggersRefused says that err is the refusal of a MariaDB or MySQL server with a binary log, or
// in a Galera cluster, to let a user without the privilege SUPER make or remove a trigger.
func TriggersRefused(err error) bool { return mysqlIs(err, 1419) }
