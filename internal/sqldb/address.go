// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/files"
)

// Address is where a database is: a file, or servers that several processes share.
type Address struct {
	// Dialect is that of the database's engine.
	Dialect *Dialect
	// Path is the file; "" for a database of servers.
	Path string
	// shown is the address without its password.
	shown string
	// HasPassword says that the password is in the address itself.
	HasPassword bool
	// connect makes the connector to the servers, which bounds each statement: to answerTimeout, or
	// to patience if that is longer.
	connect func(patience time.Duration) (driver.Connector, error)
}

// String is the address for people: the file, or the DSN without its password.
func (a Address) String() string { return a.shown }

// Shown is the name of a database for people, without a password.
func Shown(name string) string {
	a, err := ParseAddress(name)
	if err != nil {
		return "the database"
	}
	return a.String()
}

// Shared says that several processes can use the database at the same time.
func (a Address) Shared() bool { return a.Dialect.Shared }

// engines are the names of the schemes of DSNs: our own, and those of SQLAlchemy, which may go on
// with + and the name of a driver.
var engines = map[string]func(*dsn) (Address, error){
	"mysql": mysqlAddress, "mariadb": mysqlAddress,
	"postgres": postgresAddress, "postgresql": postgresAddress, "cockroachdb": postgresAddress,
}

// ParseAddress reads the name of a database: the path of a file, sqlite:///PATH,
// mysql://USER:PASSWORD@HOST[:PORT][,HOST…]/DATABASE[?OPTIONS] or postgres://… of the same form,
// and SQLAlchemy's spelling of these (mysql+pymysql://, postgresql+psycopg2://). The option
// password_file has the path of a file with the password, or the name of a credential of systemd.
// No error shows a password.
func ParseAddress(name string) (Address, error) {
	scheme, rest, found := strings.Cut(name, "://")
	if !found {
		path, err := filepath.Abs(name)
		if name == "" || err != nil {
			return Address{}, fmt.Errorf("%q is not the name of a database file", name)
		}
		return Address{Dialect: SQLite, Path: path, shown: path}, nil
	}
	if scheme == "sqlite" {
		path, err := PathOf(name)
		return Address{Dialect: SQLite, Path: path, shown: path}, err
	}
	base, _, _ := strings.Cut(scheme, "+")
	engine := engines[base]
	if engine == nil { // nothing of the rest is shown: it may hold a password
		return Address{}, fmt.Errorf("databases of the kind %q are not supported; write sqlite:///PATH, mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE", scheme)
	}
	d, err := parseDSN(base, rest)
	if err != nil {
		return Address{}, err
	}
	a, err := engine(d)
	a.HasPassword = d.password != ""
	return a, err
}

// dsn is the parts of the address of a database of servers.
type dsn struct {
	scheme, user, password, passwordFile string
	hosts                                []string // HOST or HOST:PORT, in the order in which they are tried
	database                             string
	options                              url.Values // without password_file
}

func (d *dsn) String() string {
	user := ""
	if d.user != "" {
		user = url.User(d.user).String() + "@"
	}
	return d.scheme + "://" + user + strings.Join(d.hosts, ",") + "/" + url.PathEscape(d.database)
}

// parseDSN reads what follows the scheme, as SQLAlchemy does: a password ends at the first @.
func parseDSN(scheme, rest string) (*dsn, error) {
	d := &dsn{scheme: scheme}
	place, query, _ := strings.Cut(rest, "?")
	if user, after, found := strings.Cut(place, "@"); found {
		name, password, _ := strings.Cut(user, ":")
		var err error
		if d.user, err = url.PathUnescape(name); err != nil {
			return nil, fmt.Errorf("the user of the %s address cannot be read: %%XX has to be two hexadecimal digits", scheme)
		}
		if d.password, err = url.PathUnescape(password); err != nil {
			return nil, fmt.Errorf("the password of the %s address cannot be read: %%XX has to be two hexadecimal digits, and %% itself is %%25", scheme)
		}
		place = after
	}
	hosts, database, _ := strings.Cut(place, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if host != "" {
			d.hosts = append(d.hosts, host)
		}
	}
	var err error
	if d.database, err = url.PathUnescape(database); err != nil || d.database == "" || strings.Contains(d.database, "/") || !utf8.ValidString(d.database) {
		return nil, fmt.Errorf("the address %s://…@%s/… does not name a database: write %[1]s://USER@HOST/DATABASE", scheme, hosts)
	}
	if d.options, err = url.ParseQuery(query); err != nil {
		return nil, fmt.Errorf("the options of the database address %s cannot be read", d)
	}
	for name, values := range d.options {
		if len(values) > 1 {
			return nil, fmt.Errorf("the database address %s has the option %s more than once", d, name)
		}
	}
	if err := d.takePasswordFile(); err != nil {
		return nil, err
	}
	if d.passwordFile != "" && d.password != "" {
		return nil, fmt.Errorf("the database address %s has a password and a password_file; leave one out", d)
	}
	return d, nil
}

// takePasswordFile takes the option password_file: a path, or the name of a credential of systemd.
func (d *dsn) takePasswordFile() error {
	d.passwordFile = d.take("password_file")
	switch credentials := os.Getenv("CREDENTIALS_DIRECTORY"); {
	case d.passwordFile == "" || filepath.IsAbs(d.passwordFile):
	case strings.ContainsRune(d.passwordFile, '/'):
		return fmt.Errorf("the database address %s has the password_file %s, which is neither an absolute path nor the name of a credential", d, d.passwordFile)
	case credentials == "":
		return fmt.Errorf(
			"the database address %s has the password_file %s, and this process has no credentials: write an absolute path, or set LoadCredential= in its unit",
			d,
			d.passwordFile,
		)
	default:
		d.passwordFile = filepath.Join(credentials, d.passwordFile)
	}
	return nil
}

// take removes an option and returns its value.
func (d *dsn) take(name string) string {
	value := d.options.Get(name)
	d.options.Del(name)
	return value
}

// leftOver is the error about options that nothing took.
func (d *dsn) leftOver() error {
	if len(d.options) == 0 {
		return nil
	}
	names := make([]string, 0, len(d.options))
	for name := range d.options {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("the database address %s has options that are not known: %s", d, strings.Join(names, ", "))
}

// secret is the password. A file is read for each connection, so that a password can be changed
// while the service runs.
func (d *dsn) secret(context.Context) (string, error) {
	if d.passwordFile == "" {
		return d.password, nil
	}
	text, err := files.ReadSecret(d.passwordFile)
	if err != nil {
		return "", fmt.Errorf("read the password of the database: %w", err)
	}
	return text, nil
}

// seconds reads an option that is a number of seconds.
func (d *dsn) seconds(name string, into *time.Duration) error {
	text := d.take(name)
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 3600 {
		return fmt.Errorf("the database address %s has %s=%s; it has to be 1 to 3600 seconds", d, name, text)
	}
	*into = time.Duration(n) * time.Second
	return nil
}
