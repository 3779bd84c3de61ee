// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net"
	"net/netip"
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
	// Dialect is the SQL dialect of the database's engine.
	Dialect *Dialect
	// Path is the file; "" for a database of servers.
	Path string
	// shown is the address without its password.
	shown string
	// HasPassword says that the password is in the address itself.
	HasPassword bool
	// PasswordFile is the file of the password, if the address names one.
	PasswordFile string
	// Connect makes the connector to the servers, which bounds each statement: to answerTimeout, or
	// to patience if that is longer.
	Connect func(patience time.Duration) (driver.Connector, error)
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
func (a Address) Shared() bool { return a.Dialect.Shared() }

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
	return ParseAddressOf(name, os.Getenv("CREDENTIALS_DIRECTORY"))
}

// ParseAddressOf is [ParseAddress] for a process whose credentials of systemd are in a directory.
func ParseAddressOf(name, credentials string) (Address, error) {
	scheme, rest, found := strings.Cut(name, "://")
	if !found {
		if problem := noPath(name); problem != "" {
			return Address{},
				fmt.Errorf(
					"the name of the database is %s; write mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE",
					problem)
		}
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
		if strings.Trim(scheme, schemeLetters) != "" {
			scheme = "…"
		}
		return Address{},
			fmt.Errorf("databases of the kind %q are not supported; write sqlite:///PATH, "+
				"mysql://USER@HOST/DATABASE or postgres://USER@HOST/DATABASE", scheme)
	}
	d, err := parseDSN(base, rest, credentials)
	if err != nil {
		return Address{}, err
	}
	a, err := engine(d)
	a.HasPassword, a.PasswordFile = d.password != "", d.passwordFile
	return a, err
}

// SetPasswordFile is the address with another password_file, if it has one.
func SetPasswordFile(name, path string) string {
	at := strings.Index(name, "@") + 1 // a password may have a question mark, and no option an @
	place, query, _ := strings.Cut(name[at:], "?")
	options := strings.Split(query, "&")
	for i, option := range options {
		if key, _, _ := strings.Cut(option, "="); key == passwordFileOption {
			options[i] = key + "=" + strings.ReplaceAll(url.QueryEscape(path), "%2F", "/")
			return name[:at] + place + "?" + strings.Join(options, "&")
		}
	}
	return name
}

const passwordFileOption = "password_file"

const schemeLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-."

// noPath says what the name of a database is that is likely meant for a database of servers; ""
// for the path of a file.
func noPath(name string) string {
	before, _, _ := strings.Cut(name, ":")
	before, _, _ = strings.Cut(before, "+")
	switch {
	case strings.HasPrefix(name, "/"):
	case engines[before] != nil && strings.Contains(name, ":"):
		return "not of the form " + before + "://…"
	case strings.Contains(name, "@tcp(") || strings.Contains(name, "@unix("):
		return "in a form of the Go driver of MySQL"
	case strings.Contains(name, "password="):
		return "in the form of PostgreSQL's keywords"
	}
	return ""
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

// parseDSN reads what follows the scheme, as SQLAlchemy does: the user ends at the first colon, and
// the password at the first @, so that a password may have any other character as it is. No error
// shows anything of which it is not certain that it is no password.
func parseDSN(scheme, rest, credentials string) (*dsn, error) {
	d := &dsn{scheme: scheme}
	if strings.Count(rest, "@") > 1 {
		return nil, fmt.Errorf(
			"the %s address has more than one @: write each that is in a name, a password or an option as %%40", scheme)
	}
	place := rest
	if user, after, found := strings.Cut(rest, "@"); found &&
		(strings.Contains(user, ":") || !strings.ContainsAny(user, "/?")) {
		name, password, _ := strings.Cut(user, ":")
		if strings.Contains(name, "/") {
			return nil, fmt.Errorf("the user of the %s address cannot be read: write / in it as %%2F", scheme)
		}
		var err error
		if d.user, err = url.PathUnescape(name); err != nil || !utf8.ValidString(d.user) {
			return nil, fmt.Errorf("the user of the %s address cannot be read: %%XX has to be two hexadecimal digits",
				scheme)
		}
		if d.password, err = url.PathUnescape(password); err != nil || strings.ContainsRune(d.password, 0) {
			return nil, fmt.Errorf(
				"the password of the %s address cannot be read: %%XX has to be two hexadecimal digits, and "+
					"%% itself is %%25", scheme)
		}
		if d.user == "" && d.password != "" {
			return nil, fmt.Errorf("the %s address has a password, and no user before it", scheme)
		}
		place = after
	}
	place, query, _ := strings.Cut(place, "?")
	hosts, database, _ := strings.Cut(place, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			continue
		}
		if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
			host = "[" + host + "]"
		}
		if strings.Trim(host, hostLetters) != "" || !portFits(host) {
			return nil, fmt.Errorf(
				"a host of the %s address cannot be read: write HOST or HOST:PORT, several with commas, and an IPv6 "+
					"address in brackets", scheme)
		}
		d.hosts = append(d.hosts, host)
	}
	var err error
	if d.database, err = url.PathUnescape(database); err != nil || d.database == "" ||
		strings.ContainsAny(d.database, "/\x00") || !utf8.ValidString(d.database) {
		return nil, fmt.Errorf("the %s address does not name a database: write %[1]s://USER@HOST/DATABASE", scheme)
	}
	if d.options, err = url.ParseQuery(query); err != nil {
		return nil, fmt.Errorf("the options of the database address %s cannot be read", d)
	}
	for name, values := range d.options {
		if len(values) > 1 {
			return nil, fmt.Errorf("the database address %s has the option %s more than once", d, name)
		}
	}
	if err := d.takePasswordFile(credentials); err != nil {
		return nil, err
	}
	if d.passwordFile != "" && d.password != "" {
		return nil, fmt.Errorf("the database address %s has a password and a password_file; leave one out", d)
	}
	return d, nil
}

const hostLetters = schemeLetters + "_:%[]"

// portFits says that a host has a port that can be, or none.
func portFits(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		return bare != "" && (!strings.Contains(bare, ":") && bare == host || len(bare) == len(host)-2)
	}
	n, err := strconv.Atoi(port)
	return err == nil && n > 0 && n < 1<<16 && name != ""
}

// takePasswordFile takes the option password_file: a path, or the name of a credential of systemd.
func (d *dsn) takePasswordFile(credentials string) error {
	d.passwordFile = d.option(passwordFileOption)
	switch {
	case d.passwordFile == "" || filepath.IsAbs(d.passwordFile):
	case strings.ContainsRune(d.passwordFile, '/'):
		return fmt.Errorf(
			"the database address %s has the password_file %s, which is neither an absolute path nor the name of "+
				"a credential", d, d.passwordFile)
	case credentials == "":
		return fmt.Errorf(
			"the database address %s has the password_file %s, and this process has no credentials: write an "+
				"absolute path, or set LoadCredential= in its unit", d, d.passwordFile)
	default:
		d.passwordFile = filepath.Join(credentials, d.passwordFile)
	}
	return nil
}

// option removes an option and returns its value.
func (d *dsn) option(name string) string {
	value := d.options.Get(name)
	d.options.Del(name)
	return value
}

// unusedOptionsError is the error about options that nothing took.
func (d *dsn) unusedOptionsError() error {
	if len(d.options) == 0 {
		return nil
	}
	names := make([]string, 0, len(d.options))
	for name := range d.options {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("the database address %s has options that are not known: %s; leave them out",
		d, strings.Join(names, ", "))
}

// secret is the password. A file is read for each connection, so that a password can be changed
// while the service runs.
func (d *dsn) secret(context.Context) (string, error) {
	if d.passwordFile == "" {
		return d.password, nil
	}
	text, err := files.ReadSecret(d.passwordFile)
	if err != nil {
		return "", &Error{Kind: ErrDenied, Hint: "its password cannot be read", Err: err}
	}
	return text, nil
}

// dropHarmless takes options of others that need nothing here: how Python sees texts, and a plugin
// of DevStack's that counts statements.
func (d *dsn) dropHarmless() {
	for _, name := range []string{"use_unicode", "binary_prefix", "plugin"} {
		d.option(name)
	}
}

// boolean reads an option that is yes or no, as SQLAlchemy does.
func (d *dsn) boolean(name string) (value, given bool, err error) {
	switch text := d.option(name); strings.ToLower(text) {
	case "":
		return false, false, nil
	case "true", "yes", "on", "y", "t", "1":
		return true, true, nil
	case "false", "no", "off", "n", "f", "0":
		return false, true, nil
	default:
		return false, false, fmt.Errorf("the database address %s has %s=%s; it has to be true or false", d, name, text)
	}
}

// seconds reads an option that is a number of seconds.
func (d *dsn) seconds(name string, into *time.Duration) error {
	text := d.option(name)
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

// PathOf returns the path in a URL of the form sqlite:///PATH, from / on; of sqlite:////PATH, as
// others write it, too.
func PathOf(dsn string) (string, error) {
	rest, ok := strings.CutPrefix(dsn, "sqlite://")
	if !ok || !strings.HasPrefix(rest, "/") {
		return "", fmt.Errorf("%q is not the address of an SQLite database: write sqlite:///PATH", dsn)
	}
	if path, _, ok := strings.Cut(rest, "?"); ok {
		return "", fmt.Errorf(
			"%q with a question mark is not the address of an SQLite database: it takes no options, and a question "+
				"mark in a name is %%3F", "sqlite://"+path)
	}
	path, err := url.PathUnescape(rest)
	if path = filepath.Clean(path); err != nil || strings.ContainsRune(path, 0) || path == "/" {
		return "", fmt.Errorf("%q is not the address of an SQLite database: its path cannot be read", dsn)
	}
	return path, nil
}
