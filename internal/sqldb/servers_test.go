// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// signed makes an authority, and a certificate of it for 127.0.0.1 with its key.
func signed(t testing.TB) (ca, certificate, secret string) {
	t.Helper()
	block := func(kind string, bytes []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}))
	}
	root := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	above := &x509.Certificate{SerialNumber: big.NewInt(1),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	made := testproc.Try(x509.CreateCertificate(rand.Reader, above, above, root.Public(), root)).Or(t)
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	below := &x509.Certificate{SerialNumber: big.NewInt(2),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	leaf := testproc.Try(x509.CreateCertificate(rand.Reader, below, above, key.Public(), root)).Or(t)
	text := testproc.Try(x509.MarshalPKCS8PrivateKey(key)).Or(t)
	return block("CERTIFICATE", made), block("CERTIFICATE", leaf), block("PRIVATE KEY", text)
}

// adverse are servers whose own settings are as different as an operator can have them, with TLS.
func adverse(t *testing.T, f func(t *testing.T, s *dbservers.Server, ca string)) {
	ca, certificate, secret := signed(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(file, []byte(ca), 0o600))
	files := map[string]string{"certificate.pem": certificate, "key.pem": secret}
	dbservers.EachServer(t, func(t *testing.T, _ func(testing.TB) string) {
		testproc.Parallel(t, testproc.Light)
		if dbservers.Engine(t) == "postgresql" {
			f(t, dbservers.StartPostgreSQL(t, dbservers.Options{Files: files, Settings: []string{
				"ssl=on", "ssl_cert_file=FILES/certificate.pem", "ssl_key_file=FILES/key.pem",
				"statement_timeout=30s", "default_transaction_isolation=serializable", "timezone=Asia/Kolkata",
				"standard_conforming_strings=off",
				"datestyle=SQL, DMY", "bytea_output=escape",
				"idle_in_transaction_session_timeout=30s", "lock_timeout=1ms",
			}}), file)
			return
		}
		f(t, dbservers.StartMariaDB(t, dbservers.Options{Files: files, Settings: []string{
			"ssl-cert=FILES/certificate.pem", "ssl-key=FILES/key.pem",
			"sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,NO_ENGINE_SUBSTITUTION",
			"autocommit=0", "completion-type=CHAIN",
			"default-storage-engine=MyISAM", "innodb-force-primary-key=ON", "character-set-server=latin1",
			"skip-character-set-client-handshake",
			"default-time-zone=+05:30", "sql-safe-updates=1",
			"transaction-isolation=SERIALIZABLE", "max-statement-time=30",
			"max-allowed-packet=2M",
		}}), file)
	})
}

// strange are texts that a wrong quoting or a wrong character set changes.
var strange = []string{"", `'`, `"`, `\`, `\'`, `'; DROP TABLE parts; --`, "a?b", "$1", "%s", "`", "\x01\n\r\t",
	"Zürich", "🙂", "日本", " padded ", strings.Repeat("é", 200)}

// TestRealServersWithOtherSettings: what a server's own settings are makes no difference, and TLS
// is verified.
func TestRealServersWithOtherSettings(t *testing.T) {
	t.Parallel()
	adverse(t, func(t *testing.T, s *dbservers.Server, ca string) {
		name := s.Database(t, "words")
		if strings.HasPrefix(name, "mysql") {
			dbservers.Execute(t, s.AdminDSN("mysql"), "SET GLOBAL sql_select_limit = 7",
				"SET GLOBAL foreign_key_checks = 0", "SET GLOBAL unique_checks = 0", "SET GLOBAL sql_auto_is_null = 1")
		}
		db := openSummed(t, name)
		texts := "CREATE TABLE texts (n BIGINT NOT NULL PRIMARY KEY, text VARCHAR(255) NOT NULL)"
		if db.Dialect == engine.MySQL {
			texts += " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
		}
		must(t, db.Write(t.Context(), "changing", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), texts)
			return err
		}))
		must(t, db.Write(t.Context(), "writing", func(tx *sql.Tx) error {
			for n, text := range strange {
				if _, err := tx.ExecContext(t.Context(),
					"INSERT INTO texts (n, text) VALUES (?, ?)", n, text); err != nil {
					return fmt.Errorf("%q: %w", text, err)
				}
			}
			return nil
		}))
		undone := errors.New("of the test")
		if err := db.Write(t.Context(), "writing", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "DELETE FROM texts")
			return errors.Join(undone, err)
		}); !errors.Is(err, undone) {
			t.Errorf("an error of the function: %v", err)
		}
		// Another process sees all that was committed, and no other writer was in the way.
		other := openSummed(t, name)
		must(t, other.Read(t.Context(), "reading", func(tx *sql.Tx) error {
			got, err := sqldb.All(t.Context(), tx, sqldb.Value[string], "SELECT text FROM texts ORDER BY n")
			if err == nil && fmt.Sprintf("%q", got) != fmt.Sprintf("%q", strange) {
				t.Errorf("there are %q", got)
			}
			for n, text := range strange {
				found, _, bad := sqldb.One(t.Context(), tx,
					sqldb.Value[int], "SELECT COUNT(*) FROM texts WHERE n = ? AND text = ?", n, text)
				if err = errors.Join(err, bad); found != 1 {
					t.Errorf("%q is found %d times", text, found)
				}
			}
			if beat, _, err := sqldb.One(t.Context(), tx,
				sqldb.Value[int], "SELECT beat FROM steps WHERE number = 0"); err != nil || beat != 2 {
				t.Errorf("%d writes are in the row that all change, want 2: %v", beat, err)
			}
			return err
		}))
		must(t, db.Repeatable(t.Context(), db.Writer, "deleting from", "DELETE FROM texts"))
		if n, _, err := sqldb.One(t.Context(), other.Reader, sqldb.Value[int],
			"SELECT COUNT(*) FROM texts"); err != nil || n != 0 {
			t.Errorf("after a statement outside of a transaction: %d, %v", n, err)
		}

		_, otherCA, _ := signed(t)
		wrong := filepath.Join(t.TempDir(), "wrong.pem")
		must(t, os.WriteFile(wrong, []byte(otherCA), 0o600))
		byName := strings.Replace(name, "@127.0.0.1", "@localhost", 1)
		verified, chain, encrypted := "ssl_ca=", "ssl_check_hostname=false&ssl_ca=",
			"SELECT VARIABLE_VALUE FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME = 'SSL_CIPHER'"
		if db.Dialect == engine.PostgreSQL {
			name, byName = strings.TrimSuffix(name, "?sslmode=disable"), strings.TrimSuffix(byName, "?sslmode=disable")
			verified, chain, encrypted = "sslmode=verify-full&sslrootcert=", "sslmode=verify-ca&sslrootcert=",
				"SELECT COALESCE(cipher, '') FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
		}
		for what, c := range map[string]struct {
			name string
			good bool
		}{
			"the right authority":        {name + "?" + verified + ca, true},
			"another authority":          {name + "?" + verified + wrong, false},
			"another name":               {byName + "?" + verified + ca, false},
			"another name, allowed":      {byName + "?" + chain + ca, true},
			"another name and authority": {byName + "?" + chain + wrong, false},
			"the authorities of the system": {name + "?" +
				strings.NewReplacer("ssl_ca=", "tls=true", "&sslrootcert=", "").Replace(verified), false},
		} {
			db, err := sqldb.Open(t.Context(), c.name, summed())
			if !c.good {
				if err == nil ||
					!strings.Contains(err.Error(), "the certificate of the database server is not accepted") ||
					!errors.Is(err, engine.ErrUnreachable) {
					t.Errorf("%s: %v", what, err)
				}
				continue
			}
			must(t, err)
			for _, pool := range []*sql.DB{db.Reader, db.Writer} {
				if cipher, _, err := sqldb.One(t.Context(), pool, sqldb.Value[string], encrypted); err != nil ||
					cipher == "" {
					t.Errorf("%s: not encrypted: %q, %v", what, cipher, err)
				}
			}
			must(t, db.Close())
		}
		refusals(t, s, name)
	})
}

// refusals: what a server refuses is an error with its kind and what to do.
func refusals(t *testing.T, s *dbservers.Server, name string) {
	t.Helper()
	admin := dbservers.Open(t,
		s.AdminDSN(map[bool]string{true: "mysql", false: "postgres"}[strings.HasPrefix(name, "mysql")]))
	execute := func(statements ...string) {
		t.Helper()
		for _, text := range statements {
			if _, err := admin.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	empty := s.Database(t, "nothing")
	if strings.HasPrefix(name, "mysql") {
		execute("SET SESSION autocommit = 1",
			"REVOKE ALL ON nothing.* FROM nothing@'%'", "GRANT SELECT ON nothing.* TO nothing@'%'")
	} else {
		execute("ALTER DATABASE nothing OWNER TO admin", "REVOKE ALL ON DATABASE nothing FROM nothing")
	}
	_, err := sqldb.Open(t.Context(), empty, summed())
	is(t, "a user who may not make tables", err, engine.ErrDenied, "what is granted to the user")

	limited := s.Database(t, "limited")
	if strings.HasPrefix(name, "mysql") {
		execute("GRANT USAGE ON *.* TO limited@'%' WITH MAX_USER_CONNECTIONS 1")
	} else {
		execute("ALTER ROLE limited CONNECTION LIMIT 1")
	}
	held := dbservers.Open(t, limited)
	conn := testproc.Try(held.Conn(t.Context())).Or(t)
	_, err = sqldb.Open(t.Context(), limited, summed())
	is(t, "too many connections", err, engine.ErrUnreachable, "raise max_connections")
	must(t, conn.Close())

	if !strings.HasPrefix(name, "mysql") {
		return
	}
	db := openSummed(t, name)
	err = db.Write(t.Context(), "writing", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO texts (n, text) VALUES (1, ?)", strings.Repeat("x", 3<<20))
		return err
	})
	is(t, "a statement that is too large", err, engine.ErrUnsuitable, "raise max_allowed_packet")
	if _, err := add(t.Context(), db, 77); err != nil {
		t.Errorf("the write after it: %v", err)
	}
	must(t, db.Close())
	// A connection that the server has closed meanwhile (wait_timeout) is replaced.
	var last int64
	must(t, admin.QueryRowContext(t.Context(), "SELECT MAX(id) FROM information_schema.processlist").Scan(&last))
	execute("SET GLOBAL wait_timeout = 1")
	db = openAtLast(t, name)
	if _, err := sqldb.All(t.Context(), db.Reader, sqldb.Value[int64], "SELECT n FROM parts"); err != nil {
		t.Error(err)
	}
	execute("SET GLOBAL wait_timeout = 28800")
	testproc.Eventually(t, testproc.Patience, "the server closes idle connections", func() error {
		n := 0
		if err := admin.QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'words' AND id > ?",
			last).Scan(&n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%d are open", n)
		}
		return nil
	})
	if runs, err := add(t.Context(), db, 78); err != nil || runs != 1 {
		t.Errorf("a write after its connection was closed: %d runs, %v", runs, err)
	}

	// A server that becomes read-only is not used, and used again.
	execute("SET GLOBAL read_only = ON")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = add(ctx, db, 79)
	testproc.ErrorIs(t, err, context.Canceled, "a write of a caller that has gone: %v")
	is(t, "a read", db.Read(t.Context(), "reading", func(*sql.Tx) error { return nil }), engine.ErrReadOnly,
		"the database server is read-only")
	_, err = sqldb.Open(t.Context(), name, summed())
	is(t, "a server that is read-only", err, engine.ErrReadOnly, "the database server is read-only")
	written := make(chan error, 1)
	go func() {
		_, err := add(t.Context(), db, 80)
		written <- err
	}()
	execute("SET GLOBAL read_only = OFF")
	testproc.NoErrorf(t, <-written, "a write that waited")
}

// is checks an error: its kind, that it says what to do, and shows no password.
func is(t *testing.T, what string, err, kind error, says string) {
	t.Helper()
	var e *engine.Error
	if !errors.As(err, &e) || !errors.Is(err, kind) || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v (%v); want %v, and %q", what, err, kindOf(err), kind, says)
	}
	if e != nil && (e.Op == "" || e.Database == "" || strings.Contains(err.Error(), "wrongSecret")) {
		t.Errorf("%s: %q while %q: %v", what, e.Database, e.Op, err)
	}
}

func kindOf(err error) error {
	var e *engine.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return nil
}

// answering is a server of another kind: it greets each client, or is silent, and returns its
// address.
func answering(t *testing.T, greeting string, silent bool) string {
	t.Helper()
	l := testproc.Try((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	ended := make(chan struct{})
	t.Cleanup(func() {
		must(t, l.Close())
		<-ended
	})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, greeting)
			if silent {
				_, _ = io.Copy(io.Discard, c) // until the client gives up
			}
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

// TestServersThatCannotBeUsed: whatever is at the address, the error has its kind and says what to
// do, with the address and without the password.
func TestServersThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := fresh(t)
		before, rest, _ := strings.Cut(name, "://")
		user, rest, _ := strings.Cut(rest, ":")
		password, rest, _ := strings.Cut(rest, "@")
		host, rest, _ := strings.Cut(rest, "/")
		_, options, _ := strings.Cut(rest, "?")
		made := func(password, host, database, option string) string {
			return before + "://" + user + ":" + password +
				"@" + host + "/" + database + "?" + strings.Trim(options+"&"+option, "&")
		}
		tls := map[string]string{"mysql": "tls=true", "postgres": ""}[before]
		for what, c := range map[string]struct {
			name string
			kind error
			says string
		}{
			"a wrong password": {made("wrongSecret", host, user, ""), engine.ErrDenied,
				"check the user, the password"},
			"an unknown database": {made(password, host, "wrong", ""),
				map[string]error{"mysql": engine.ErrDenied, "postgres": engine.ErrUnreachable}[before], ""},
			"an unknown host": {made("wrongSecret", "nowhere.invalid", user, ""),
				engine.ErrUnreachable, "nowhere.invalid"},
			"a port that is closed": {made("wrongSecret", "127.0.0.1:1", user, ""), engine.ErrUnreachable,
				"nothing listens at its address"},
			"a server of SSH": {made("wrongSecret", answering(t, "SSH-2.0-OpenSSH_9.2\r\n", false), user,
				""), nil, ""},
			"a server that closes": {made("wrongSecret", answering(t, "", false), user, ""),
				engine.ErrUnreachable, "does not answer"},
			"a server that is silent": {made("wrongSecret", answering(t, "", true), user, "connect_timeout=1"),
				engine.ErrUnreachable, "does not answer"},
			"a server that is not MySQL": {made("wrongSecret", answering(t, "\x05\x00\x00\x07hello", true), user,
				"connect_timeout=1"),
				map[string]error{"mysql": engine.ErrUnsuitable, "postgres": engine.ErrUnreachable}[before], ""},
			"one of many connections": {made(
				"wrongSecret", answering(t, "\x17\x00\x00\x00\xff\x10\x04Too many connections", true), user,
				"connect_timeout=1"), engine.ErrUnreachable,
				map[string]string{"mysql": "raise max_connections"}[before]},
			"a server without TLS": {strings.Replace(made(password, host, user, tls), "sslmode=disable",
				"sslmode=require", 1),
				map[string]error{"mysql": engine.ErrUnsuitable, "postgres": engine.ErrUnreachable}[before],
				"TLS is asked for, and the database server has none"},
		} {
			t.Run(what, func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				_, err := sqldb.Open(t.Context(), c.name, summed())
				if c.kind == nil { // a packet that can be read as a long one of MySQL, or as a refusal
					c.kind = kindOf(err)
				}
				is(t, what, err, c.kind, c.says)
				if err != nil && !strings.Contains(err.Error(), engine.Shown(c.name)) {
					t.Errorf("the address %s is not in %v", engine.Shown(c.name), err)
				}
				if reason := engine.Reason(err); strings.Contains(reason, "disk") || strings.Contains(reason, "files") {
					t.Errorf("%v is, for clients: %s", err, reason)
				}
			})
		}
		// Those are passed over where another host can be used.
		good := openSummed(t,
			made(password,
				strings.Join([]string{answering(t, "", true), "127.0.0.1:1", answering(t, "SSH-2.0-x\r\n", false),
					host}, ","), user, "connect_timeout=1"))
		if _, err := add(t.Context(), good, 1); err != nil {
			t.Errorf("a write at the last host: %v", err)
		}
	})
}

// TestDatabasesServersThatDoNotSuit: what a server is, or how it is set up, is in the error, with
// what to do.
func TestDatabasesServersThatDoNotSuit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if !dbservers.Long(t) {
		t.Skip("make test-databases runs this")
	}
	open := func(name string) error {
		db, err := sqldb.Open(t.Context(), name, summed())
		if err == nil {
			err = db.Close()
		}
		return err
	}
	mariaDB := func(settings ...string) string {
		return dbservers.StartMariaDB(t, dbservers.Options{Settings: settings}).Database(t, "words")
	}
	is(t, "an old MariaDB", open(mariaDB("version=10.5.23-MariaDB")), engine.ErrUnsuitable,
		"it has to be MariaDB 10.6 or MySQL 8.0, or later): ")
	is(t, "an old MySQL", open(mariaDB("version=5.7.44-log")), engine.ErrUnsuitable, "5.7.44-log")
	is(t, "statements in the binary log", open(mariaDB("log-bin=binlog", "binlog-format=STATEMENT")),
		engine.ErrUnsuitable, "set binlog_format to ROW or MIXED")
	is(t, "a server that is read-only", open(mariaDB("read-only=ON")), engine.ErrReadOnly,
		"the database server is read-only")
	must(t, open(mariaDB("version=8.0.36")))

	full := openSummed(t, mariaDB("innodb-file-per-table=OFF", "innodb-data-file-path=ibdata1:12M:autoextend:max:14M"))
	n := int64(0)
	var err error
	for err == nil && n < 1<<20 {
		err = full.Write(t.Context(), "adding to", func(tx *sql.Tx) error {
			for range 1000 {
				if n++; err == nil {
					_, err = tx.ExecContext(t.Context(), "INSERT INTO parts (n) VALUES (?)", n)
				}
			}
			return err
		})
	}
	is(t, "a server without space", err, engine.ErrFull, "make space on the database server")
	testproc.Equal(t, engine.Reason(err), "no space is left on its disk", "for clients it is: %s")

	pair := dbservers.StartPostgreSQLPair(t, dbservers.Options{})
	pair.Primary.Database(t, "words")
	must(t, open(pair.DSN("words")))
	is(t, "a standby", open(pair.Standby.DSN("words")), engine.ErrReadOnly, "it may be a standby")
	// The standby becomes the primary while a pool of connections has both of them.
	db := openSummed(t, pair.DSN("words"))
	if _, err := add(t.Context(), db, 1); err != nil {
		t.Errorf("a write: %v", err)
	}
	pair.Primary.Kill(t)
	pair.Promote(t)
	if _, err := add(t.Context(), db, 2); err != nil {
		t.Errorf("a write after the failover: %v", err)
	}
	if got := parts(t, db); len(got) != 2 {
		t.Errorf("there are %v", got)
	}
}
