// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"database/sql/driver"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// described is what the drivers get of an address: who, where, which database, and how.
func described(t testing.TB, a Address) string {
	t.Helper()
	if a.Path != "" {
		return a.Path
	}
	made := testproc.Try(a.Connect(0)).Or(t)
	if c, is := made.(*mysqlConnector); is {
		password := testproc.Try(c.read(t.Context())).Or(t)
		var hosts []string
		for _, one := range c.configs {
			hosts = append(hosts, one.Net+" "+one.Addr)
		}
		one := c.configs[0]
		text := fmt.Sprintf("%s|%s|%s|%s", one.User, password, strings.Join(hosts, ", "), one.DBName)
		if one.Timeout != dialTimeout || one.ReadTimeout != answerTimeout || one.WriteTimeout != answerTimeout {
			text += fmt.Sprint("|", one.Timeout, one.ReadTimeout, one.WriteTimeout)
		}
		if one.TLS != nil {
			text += fmt.Sprintf("|tls ca=%v own=%d host=%v chain=%v", one.TLS.RootCAs != nil, len(one.TLS.Certificates),
				!one.TLS.InsecureSkipVerify, one.TLS.VerifyConnection != nil)
		}
		return text
	}
	config := postgresConfig(t, made)
	hosts := []string{fmt.Sprintf("%s:%d", config.Host, config.Port)}
	for _, f := range config.Fallbacks {
		// each is tried with TLS and without
		if next := fmt.Sprintf("%s:%d", f.Host, f.Port); next != hosts[len(hosts)-1] {
			hosts = append(hosts, next)
		}
	}
	text := fmt.Sprintf("%s|%s|%s|%s", config.User, config.Password, strings.Join(hosts, ", "), config.Database)
	if config.ConnectTimeout != dialTimeout {
		text += fmt.Sprint("|", config.ConnectTimeout)
	}
	if config.TLSConfig != nil && len(config.Fallbacks) == 0 {
		text += fmt.Sprintf("|tls ca=%v own=%d host=%v chain=%v", config.TLSConfig.RootCAs != nil,
			len(config.TLSConfig.Certificates), !config.TLSConfig.InsecureSkipVerify,
			config.TLSConfig.VerifyPeerCertificate != nil)
	}
	return text
}

// postgresConfig is what a connector to PostgreSQL connects with.
func postgresConfig(t testing.TB, made driver.Connector) *pgx.ConnConfig {
	t.Helper()
	c, is := made.(*postgresConnector)
	if !is {
		t.Fatalf("a connector of the type %T", made)
	}
	return &c.config
}

// authority writes a certificate and its key.
func authority(t testing.TB, dir string) {
	t.Helper()
	key := testproc.Try(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Or(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true}
	made := testproc.Try(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)).Or(t)
	secret := testproc.Try(x509.MarshalPKCS8PrivateKey(key)).Or(t)
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "ca.pem"),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}), 0o600))
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "key.pem"),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "password"), []byte("from the file\n"), 0o600))
}

// TestAddresses: every spelling of an address that operators have in their configurations is used
// as it is meant, or refused with what to do. DIR is a directory with certificates.
func TestAddresses(t *testing.T) {
	dir := t.TempDir()
	authority(t, dir)
	for _, v := range []string{"PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSSLMODE",
		"PGSERVICE", "PGTARGETSESSIONATTRS"} {
		t.Setenv(v, "")
		testproc.Check(t, os.Unsetenv(v))
	}
	t.Setenv("PGPASSFILE", filepath.Join(dir, "none"))
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	const local = "|tcp 127.0.0.1:3306|db"
	for _, c := range []struct{ name, shown, want string }{
		// Who, where and which.
		{"mysql://u:p@db1/nova", "mysql://u@db1/nova", "u|p|tcp db1:3306|nova"},
		{"mysql+pymysql://u:p@db1/nova?charset=utf8", "mysql://u@db1/nova", "u|p|tcp db1:3306|nova"},
		{"mysql+mysqldb://u:p@db1:3307/nova?charset=utf8mb4&binary_prefix=true",
			"mysql://u@db1:3307/nova", "u|p|tcp db1:3307|nova"},
		{"mariadb+mariadbconnector://u:p@db1/nova?charset=utf8mb3&use_unicode=0",
			"mariadb://u@db1/nova", "u|p|tcp db1:3306|nova"},
		{"mysql+pymysql://root:s@127.0.0.1/nova_cell1?charset=utf8&plugin=dbcounter",
			"mysql://root@127.0.0.1/nova_cell1", "root|s|tcp 127.0.0.1:3306|nova_cell1"},
		{"mysql://u@db1:1,db2,db3:3/d", "mysql://u@db1:1,db2,db3:3/d", "u||tcp db1:1, tcp db2:3306, tcp db3:3|d"},
		{"mysql://u:p@/db", "mysql://u@127.0.0.1/db", "u|p" + local},
		{"mysql:///db", "mysql://127.0.0.1/db", "|" + local},
		{"mysql://u:p@[::1]/db", "mysql://u@[::1]/db", "u|p|tcp [::1]:3306|db"},
		{"mysql://u:p@[2001:db8::1]:3307,[::2]/db", "mysql://u@[2001:db8::1]:3307,[::2]/db",
			"u|p|tcp [2001:db8::1]:3307, tcp [::2]:3306|db"},
		{"mysql://u:p@::1/db", "mysql://u@[::1]/db", "u|p|tcp [::1]:3306|db"},
		{"mysql://u:p@/db?unix_socket=/run/mysqld/mysqld.sock", "mysql://u@/db", "u|p|unix /run/mysqld/mysqld.sock|db"},
		{"mysql://u:p@localhost/db?unix_socket=/run/my.sock", "mysql://u@localhost/db", "u|p|unix /run/my.sock|db"},
		{"mysql://u:p@db1/db?unix_socket=/run/my.sock", "", "a host and a unix_socket; leave one out"},
		{"mysql://us%40er:p%40%2F%3A%25%20w@db1/d%C3%A9",
			"mysql://us%40er@db1/d%C3%A9", "us@er|p@/:% w|tcp db1:3306|dé"},
		{"mysql://u:p/a?s=s&w:o#rd@db1/db", "mysql://u@db1/db", "u|p/a?s=s&w:o#rd|tcp db1:3306|db"},
		{"mysql://u:+p+@db1/db", "mysql://u@db1/db", "u|+p+|tcp db1:3306|db"},
		{"postgres://u:p@db1/placement", "postgres://u@db1/placement", "u|p|db1:5432|placement"},
		{"postgresql+psycopg2://u:p@db1:5433/placement?client_encoding=utf8",
			"postgresql://u@db1:5433/placement", "u|p|db1:5433|placement"},
		{"cockroachdb://u:p@db1:26257/d", "cockroachdb://u@db1:26257/d", "u|p|db1:26257|d"},
		{"postgres://u:p@db1,db2:7/d", "postgres://u@db1,db2:7/d", "u|p|db1:5432, db2:7|d"},
		{"postgres://u:p@[::1]:7/d", "postgres://u@[::1]:7/d", "u|p|::1:7|d"},
		{"postgres://u:p@::1/d", "postgres://u@[::1]/d", "u|p|::1:5432|d"},
		{"postgres://u:p@/d?host=/run/postgresql", "postgres://u@/d", "u|p|/run/postgresql:5432|d"},
		{"postgres://u:p@%2Frun%2Fpostgresql/d", "postgres://u@%2Frun%2Fpostgresql/d", "u|p|/run/postgresql:5432|d"},
		{"postgres://us%40er:p%40%2F%3A%25%20w@db1/d%C3%A9?sslmode=disable", "postgres://us%40er@db1/d%C3%A9",
			"us@er|p@/:% w|db1:5432|dé"},
		{"postgres://u:p/a?s=s&w:o#rd@db1/d", "postgres://u@db1/d", "u|p/a?s=s&w:o#rd|db1:5432|d"},
		{"postgres://u:p@db1/d?target_session_attrs=any&application_name=x&plugin=dbcounter",
			"postgres://u@db1/d", "u|p|db1:5432|d"},
		{"mysql://u@db1/d?password_file=DIR/password", "mysql://u@db1/d", "u|from the file|tcp db1:3306|d"},
		{"mysql://u@db1/d?password_file=password", "mysql://u@db1/d", "u|from the file|tcp db1:3306|d"},
		{"sqlite:///var/lib/x%20y.db", "/var/lib/x y.db", "/var/lib/x y.db"},
		{"/var/lib/a@b:c=d.db", "/var/lib/a@b:c=d.db", "/var/lib/a@b:c=d.db"},

		// Times.
		{"mysql://u@db1/d?connect_timeout=60&read_timeout=30&write_timeout=31", "mysql://u@db1/d",
			"u||tcp db1:3306|d|1m0s 30s 31s"},
		{"postgres://u@db1/d?connect_timeout=60&read_timeout=30", "postgres://u@db1/d", "u||db1:5432|d|1m0s"},
		{"mysql://u@db1/d?read_timeout=0", "", "read_timeout=0; it has to be 1 to 3600 seconds"},
		{"mysql://u@db1/d?connect_timeout=1m", "", "it has to be 1 to 3600 seconds"},
		{"postgres://u@db1/d?connect_timeout=soon", "", "connect_timeout"},

		// TLS.
		{"mysql://u@db1/d?ssl_ca=DIR/ca.pem", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=true own=0 host=true chain=false"},
		{"mysql+pymysql://u@db1/d?charset=utf8&ssl_verify_cert=true&ssl_ca=DIR/ca.pem", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=true own=0 host=true chain=false"},
		{"mysql://u@db1/d?ssl_ca=DIR/ca.pem&ssl_cert=DIR/ca.pem&ssl_key=DIR/key.pem", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=true own=1 host=true chain=false"},
		{"mysql://u@db1/d?ssl_ca=DIR/ca.pem&ssl_check_hostname=False", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=true own=0 host=false chain=true"},
		{"mysql://u@db1/d?ssl_ca=DIR/ca.pem&ssl_verify_identity=0", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=true own=0 host=false chain=true"},
		{"mysql://u@db1/d?ssl_verify_cert=true",
			"mysql://u@db1/d", "u||tcp db1:3306|d|tls ca=false own=0 host=true chain=false"},
		{"mysql://u@db1/d?ssl_verify_cert=False",
			"mysql://u@db1/d", "u||tcp db1:3306|d|tls ca=false own=0 host=false chain=false"},
		{"mysql://u@db1/d?ssl_mode=VERIFY_IDENTITY",
			"mysql://u@db1/d", "u||tcp db1:3306|d|tls ca=false own=0 host=true chain=false"},
		{"mysql://u@db1/d?ssl_mode=verify_ca&ssl_ca=DIR/ca.pem", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=true own=0 host=false chain=true"},
		{"mysql://u@db1/d?ssl_mode=REQUIRED&ssl_ca=DIR/ca.pem", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=true own=0 host=false chain=true"},
		{"mysql://u@db1/d?ssl_mode=REQUIRED", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=false own=0 host=false chain=false"},
		{"mysql://u@db1/d?tls=true", "mysql://u@db1/d", "u||tcp db1:3306|d|tls ca=false own=0 host=true chain=false"},
		{"mysql://u@db1/d?tls=skip-verify", "mysql://u@db1/d",
			"u||tcp db1:3306|d|tls ca=false own=0 host=false chain=false"},
		{"mysql://u@db1/d?tls=false", "mysql://u@db1/d", "u||tcp db1:3306|d"},
		{"mysql://u@db1/d?ssl_mode=DISABLED", "mysql://u@db1/d", "u||tcp db1:3306|d"},
		{"mysql://u@db1/d?ssl_disabled=true", "mysql://u@db1/d", "u||tcp db1:3306|d"},
		{"mysql://u@db1/d?ssl_disabled=true&ssl_ca=DIR/ca.pem", "", "has ssl_disabled, and ssl_ca; leave one out"},
		{"mysql://u@db1/d?tls=false&ssl_verify_cert=true", "", "has tls=false, and ssl_verify_cert; leave one out"},
		{"mysql://u@db1/d?ssl_ca=DIR/ca.pem&ssl_verify_cert=false", "",
			"has an ssl_ca, and says that the server's certificate is not verified"},
		{"mysql://u@db1/d?ssl_ca=DIR/ca.pem&tls=skip-verify", "",
			"has an ssl_ca, and says that the server's certificate is not verified"},
		{"mysql://u@db1/d?ssl_cert=DIR/ca.pem", "", "it takes both"},
		{"mysql://u@db1/d?ssl_ca=DIR/nowhere", "", "read the ssl_ca of the database address mysql://u@db1/d"},
		{"mysql://u@db1/d?ssl_ca=DIR/password", "", "has no certificate"},
		{"mysql://u@db1/d?ssl_cert=DIR/ca.pem&ssl_key=DIR/password", "", "read the ssl_cert and ssl_key"},
		{"mysql://u@db1/d?ssl_verify_cert=maybe", "", "ssl_verify_cert=maybe; it has to be true or false"},
		{"mysql://u@db1/d?ssl_mode=PREFERRED", "", "it has to be DISABLED, REQUIRED"},
		{"mysql://u@db1/d?tls=preferred", "", "it has to be true, false or skip-verify"},
		{"mysql://u@db1/d?ssl_capath=/etc/ssl/certs", "", "name a file with ssl_ca"},
		{"mysql://u@db1/d?ssl_cipher=X", "", "ssl_cipher, which is not supported; leave it out"},
		{"postgres://u@db1/d?sslmode=disable", "postgres://u@db1/d", "u||db1:5432|d"},
		{"postgres://u@db1/d?sslmode=require", "postgres://u@db1/d",
			"u||db1:5432|d|tls ca=false own=0 host=false chain=false"},
		{"postgres://u@db1/d?sslmode=verify-ca&sslrootcert=DIR/ca.pem", "postgres://u@db1/d",
			"u||db1:5432|d|tls ca=true own=0 host=false chain=true"},
		{"postgres://u@db1/d?sslmode=verify-full&sslrootcert=DIR/ca.pem&sslcert=DIR/ca.pem&sslkey=DIR/key.pem",
			"postgres://u@db1/d", "u||db1:5432|d|tls ca=true own=1 host=true chain=false"},
		{"postgres://u@db1/d?sslmode=verify-full&sslrootcert=DIR/nowhere", "", "nowhere"},
		{"postgres://u@db1/d?sslmode=on", "", "sslmode"},

		// What cannot be used.
		{"", "", "is not the name of a database file"},
		{"mysql:/u:p@db1/d", "", "not of the form mysql://…"},
		{"mysql+pymysql:u:p@db1/d", "", "not of the form mysql://…"},
		{"postgres:u:p@db1/d", "", "not of the form postgres://…"},
		{"u:p@tcp(db1:3306)/d", "", "a form of the Go driver"},
		{"host=db1 password=p dbname=d", "", "PostgreSQL's keywords"},
		{"oracle://u:p@db1/d", "", `databases of the kind "oracle" are not supported`},
		{"u:p@db1/x://y", "", `databases of the kind "…" are not supported`},
		{"sqlite:///var/x.db?timeout=3", "", "it takes no options"},
		{"mysql://u:p@db1", "", "does not name a database: write mysql://USER@HOST/DATABASE"},
		{"mysql://u:p@db1/", "", "does not name a database"},
		{"mysql://u:p@db1/a/b", "", "does not name a database"},
		{"mysql://u:p@db1/a%2Fb", "", "does not name a database"},
		{"postgres://u:p@db1/%ff", "", "does not name a database"},
		{"mysql://u:p@x@db1/d", "", "more than one @: write each that is in a name, a password or an option as %40"},
		{"mysql://u:p%zz@db1/d", "",
			"the password of the mysql address cannot be read: %XX has to be two hexadecimal digits, and " +
				"% itself is %25"},
		{"mysql://u%z:p@db1/d", "", "the user of the mysql address cannot be read"},
		{"mysql://:p@db1/d", "", "has a password, and no user"},
		{"mysql://u:p@db1:0/d", "", "a host of the mysql address cannot be read"},
		{"mysql://u:p@db1:70000/d", "", "a host of the mysql address cannot be read"},
		{"mysql://u:p@db1:/d", "", "a host of the mysql address cannot be read"},
		{"mysql://u:p@d b1/d", "", "a host of the mysql address cannot be read"},
		{"postgres://u:p@db1#x/d", "", "a host of the postgres address cannot be read"},
		{"mysql://u:p@a:b:c/d", "", "a host of the mysql address cannot be read"},
		{"mysql://u:p@db1/d?charset=latin1", "", "the charset latin1; it has to be utf8mb4 or utf8"},
		{"postgres://u:p@db1/d?client_encoding=latin1", "", "it has to be utf8"},
		{"mysql://u:p@db1/d?charset=utf8&charset=utf8mb4", "", "has the option charset more than once"},
		{"postgresql+psycopg2://u:p@/d?host=a:1&host=b:2", "", "has the option host more than once"},
		{"mysql+pymysql://u:p@db1/d?read_default_file=/etc/my.cnf.d/tripleo.cnf&read_default_group=tripleo", "",
			"has options that are not known: read_default_file, read_default_group; leave them out"},
		{"mysql://u:p@db1/d?init_command=SET", "", "has options that are not known: init_command"},
		{"postgres://u:p@db1/d?sslcrl=/x", "", "has options that are not known: sslcrl"},
		{"postgres://u:p@db1/d?service=x", "", "has options that are not known: service"},
		{"postgres://u:p@db1/d?target_session_attrs=standby", "",
			"only a server that takes writes is used; leave it out"},
		{"postgres://u:p@db1/d?target_session_attrs=prefer-standby", "", "only a server that takes writes is used"},
		{"mysql://u:p@db1/d?x=%zz", "", "the options of the database address mysql://u@db1/d cannot be read"},
		{"mysql://u:p@db1/d?password_file=/x", "", "a password and a password_file; leave one out"},
		{"mysql://u@db1/d?password_file=a/b", "", "neither an absolute path nor the name of a credential"},
	} {
		name, want := strings.ReplaceAll(c.name, "DIR", dir), c.want
		a, err := ParseAddress(name)
		switch {
		case c.shown == "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %s, %v; want an error with %q", c.name, a, err, want)
		case c.shown != "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.shown != "":
			if got := described(t, a); got != want || a.String() != c.shown || Shown(name) != c.shown {
				t.Errorf("%s: %s, shown as %s; want %s and %s", c.name, got, a, want, c.shown)
			}
			if secret := strings.Contains(c.name, ":p") ||
				strings.Contains(c.name, ":s@") || strings.Contains(c.name, ":+p"); secret != a.HasPassword {
				t.Errorf("%s: it says that it has a password: %v", c.name, a.HasPassword)
			}
		}
	}
}

// TestPasswordFiles: an error about one that cannot be read has its path. It is read again for each
// connection.
func TestPasswordFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	file := filepath.Join(t.TempDir(), "password")
	a := testproc.Try(ParseAddress("mysql://u@127.0.0.1:1/d?password_file=" + file)).Or(t)
	made := testproc.Try(a.Connect(0)).Or(t)
	_, err := made.Connect(t.Context())
	if err == nil || !strings.Contains(err.Error(), file) ||
		!strings.Contains(err.Error(), "its password cannot be read") {
		t.Errorf("a password that is not there: %v", err)
	}
	testproc.Check(t, os.WriteFile(file, []byte("secret\n"), 0o600))
	testproc.Equal(t, described(t, a), "u|secret|tcp 127.0.0.1:1|d", "after it was written: %s")
}

// FuzzAddress: whatever an address is, nothing shows its password, and what is accepted is shown as
// an address that is accepted and is shown in the same way.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"", "@", "/", "?", "#", ":", "%", "%41", "%zz", "://", "@@", "/x@h/y", "?a=b@c/d", "[",
		"\x00", "\n", "é", "🙂", ",", "+", "&password_file="} {
		f.Add("mysql", "nova", s, "db1:3306,db2", "/nova", "charset=utf8")
		f.Add("postgresql+psycopg2", s, s, "db1"+s, "/placement"+s, "sslmode="+s)
	}
	f.Add("", "u", "p", "tcp(h)", "/x", "")
	f.Fuzz(func(t *testing.T, scheme, user, middle, hosts, database, options string) {
		// A password with anything in it, as it is and encoded. What a wrong reading leaves of
		// it is recognised.
		const part = "ZqXjWv"
		if scheme == "sqlite" {
			t.Skip("it has no passwords")
		}
		for _, other := range []string{scheme, user, hosts, database, options} {
			if strings.Contains(other, part) {
				t.Skip("it is in something else, too")
			}
		}
		password := part + middle + part
		for _, written := range []string{password, url.QueryEscape(password), url.PathEscape(password),
			url.UserPassword("x", password).String()[2:]} {
			name := scheme + "://" + user + ":" + written + "@" + hosts + database
			if options != "" {
				name += "?" + options
			}
			shown := Shown(name)
			a, err := ParseAddress(name)
			if strings.Contains(shown, part) || err != nil && strings.Contains(err.Error(), part) {
				t.Fatalf("%q is shown as %q, %v", name, shown, err)
			}
			if err != nil || !a.Shared() {
				continue
			}
			if a.String() != shown || !a.HasPassword {
				t.Fatalf("%q: %q and %q, with a password: %v", name, a, shown, a.HasPassword)
			}
			again, err := ParseAddress(shown)
			if err != nil || again.String() != shown || again.HasPassword || again.Dialect != a.Dialect {
				t.Fatalf("%q is shown as %q, which is %q, %v", name, shown, again, err)
			}
		}
	})
}
