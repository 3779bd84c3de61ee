// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

// Database is a database of servers that the configuration names.
type Database struct {
	Address string
	Name    string // "placement"
	Of      string // "Placement"
	Key     string // in the configuration
	// Diagnose looks at it.
	Diagnose func(ctx context.Context) (sqldb.Diagnosis, error)
	// Upgrade is the command that makes its tables and brings them up to date.
	Upgrade string
}

// leastPacket is what a commit of many writes may need in one statement.
const leastPacket = 16 << 20

// checkDatabases looks at each database of servers that is configured.
func checkDatabases(ctx context.Context, e *Env) []Result {
	if len(e.Databases) == 0 {
		return pass("none on database servers is configured")
	}
	all := make([][]Result, len(e.Databases))
	done := make(chan int)
	for i, d := range e.Databases {
		go func() {
			all[i] = e.checkDatabase(ctx, d)
			done <- i
		}()
	}
	for range e.Databases {
		<-done
	}
	return slices.Concat(all...)
}

func (e *Env) checkDatabase(ctx context.Context, d Database) []Result {
	c := databaseCheck{env: e, of: d}
	a, err := engine.ParseAddress(d.Address)
	if err == nil && e.foreign(a.PasswordFile) != "" {
		c.add("", Skipped, "root does not follow the symbolic link "+e.foreign(a.PasswordFile)+
			", which another user can have made, to its password", "", "")
		return c.results
	}
	if err == nil && strings.HasPrefix(a.PasswordFile, credentialsDir) {
		if why := e.whyUnreadable(a.PasswordFile); why != "" {
			c.add("", Skipped, "its password is the credential "+a.PasswordFile+", which "+why, "", "")
			return c.results
		}
	}
	found, err := d.Diagnose(ctx)
	if err != nil {
		c.unusable(err)
		return c.results
	}
	c.Diagnosis = found
	c.schema()
	if strings.HasPrefix(found.Address, "postgres") {
		c.postgres()
	} else {
		c.mysql()
	}
	if level := strings.ReplaceAll(strings.ToLower(c.first("transaction_isolation", "tx_isolation")), "-",
		" "); level != "read committed" {
		c.add("isolation", Error,
			fmt.Sprintf("transactions have the isolation %q, although each session sets READ COMMITTED", level),
			"A proxy that shares sessions between clients takes their settings away.",
			"connect to the servers themselves, or let the proxy keep a session for each client")
	}
	if local := []string{"", "localhost", "127.0.0.1", "::1"}; found.Facts["tls"] == "" &&
		!slices.Contains(local, found.Facts["client"]) {
		c.add("tls", Warning, found.Address+" is connected to without TLS",
			"Others on the network can read and change what is in the database.",
			c.edit(map[bool]string{true: "sslmode=verify-full&sslrootcert=FILE",
				false: "ssl_ca=FILE"}[strings.HasPrefix(found.Address, "postgres")]))
	}
	if len(c.results) == 0 {
		tls := found.Facts["tls"]
		if tls == "" {
			tls = "no TLS, on this machine"
		}
		c.add("", OK, fmt.Sprintf("%s: %s, step %d of the schema, writable, %s",
			found.Address, c.server(), found.Steps, tls), "", "")
	}
	return c.results
}

// whyUnreadable is why this command cannot read a credential; "" if it can, or if something else is
// wrong.
func (e *Env) whyUnreadable(credential string) string {
	file, err := os.Open(e.path(credential))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "systemd passes while the unit runs"
	case errors.Is(err, fs.ErrPermission):
		return "cannot be read; run this command as root"
	case err == nil:
		_ = file.Close()
	}
	return ""
}

// databaseCheck collects what is wrong with one database.
type databaseCheck struct {
	sqldb.Diagnosis
	env     *Env
	of      Database
	results []Result
}

func (c *databaseCheck) add(what string, s Severity, found, why, fix string) {
	r := Result{Name: "database." + c.of.Name, Title: "Database of " + c.of.Of, Severity: s,
		Found: found, Why: why, Fix: fix}
	if what != "" {
		r.Name += "." + what
	}
	c.results = append(c.results, r)
}

func (c *databaseCheck) first(names ...string) string {
	for _, name := range names {
		if v, ok := c.Facts[name]; ok {
			return v
		}
	}
	return ""
}

func (c *databaseCheck) edit(option string) string {
	return c.env.command("editor %s", c.env.Config.File()) + "   # add " + option + " to " + c.of.Key
}

func (c *databaseCheck) server() string {
	product := "MySQL "
	switch {
	case strings.HasPrefix(c.Address, "postgres"):
		product = "PostgreSQL "
	case strings.Contains(c.Facts["version"], "MariaDB"):
		product = "MariaDB "
	}
	version, _, _ := strings.Cut(c.Facts["version"], "-")
	version, _, _ = strings.Cut(version, " ")
	return product + version
}

// unusable explains why there is no answer.
func (c *databaseCheck) unusable(err error) {
	why, fix := c.of.Of+" answers all requests with 503.",
		c.env.command("editor %s", c.env.Config.File())+"   # "+c.of.Key
	switch {
	case errors.Is(err, engine.ErrReadOnly):
		fix = "name the server that takes writes in " +
			c.of.Key + ", or make this one take them: SET GLOBAL read_only = OFF"
	case errors.Is(err, engine.ErrDenied):
		fix = "check the user and the password_file of " +
			c.of.Key + ", and what is granted: GRANT ALL ON DATABASE.* TO USER"
	}
	c.add("", Error, err.Error(), why, fix)
}

// schema checks the tables.
func (c *databaseCheck) schema() {
	const why = "The service does not start."
	switch {
	case c.Schema != nil:
		fix := "choose another database in " + c.of.Key
		if c.of.Name == "placement" {
			fix += "; if OpenStack's Placement made this one: compute-agent placement adopt --check"
		}
		c.add("schema", Error, c.Schema.Error(), why, fix)
	case c.Steps > c.Newest:
		c.add("schema", Error,
			fmt.Sprintf("%s has had %d steps of the schema, and this program knows %d", c.Address, c.Steps, c.Newest),
			why, "install the newer version of this program")
	case c.Steps < c.Newest:
		c.add("schema", Warning, fmt.Sprintf("%s has had %d of %d steps of the schema", c.Address, c.Steps, c.Newest),
			"The next start of a service runs the others, if servers of the former version can go on.", c.of.Upgrade)
	case c.Write != nil:
		c.add("write", Error, c.Write.Error(), "Changes are refused.",
			"grant the user all privileges on the database, and look at the log of the database server")
	}
}

// least checks the version of the server.
func (c *databaseCheck) least(major, minor int) {
	var is [2]int
	_, version, _ := strings.Cut(c.server(), " ")
	for i, part := range strings.SplitN(version, ".", 3)[:min(2, strings.Count(version, ".")+1)] {
		digits := part[:len(part)-len(strings.TrimLeft(part, "0123456789"))]
		is[i], _ = strconv.Atoi(digits) // none is too old
	}
	if is[0] < major || is[0] == major && is[1] < minor {
		c.add("version", Error, fmt.Sprintf("%s is %s", c.Address, c.server()),
			fmt.Sprintf("The oldest supported version is %d.%d.", major, minor), "upgrade the database server")
	}
}

func (c *databaseCheck) mysql() {
	if strings.Contains(c.Facts["version"], "MariaDB") {
		c.least(10, 6)
	} else {
		c.least(8, 0)
	}
	if n, err := strconv.Atoi(c.Facts["max_allowed_packet"]); err != nil || n < leastPacket {
		c.add("packet", Warning, fmt.Sprintf("max_allowed_packet is %s", c.Facts["max_allowed_packet"]),
			"A commit of many writes can have a larger statement, and is refused then.",
			fmt.Sprintf("SET GLOBAL max_allowed_packet = %d, and in the server's configuration", leastPacket))
	}
	if c.Facts["wsrep_on"] == "ON" {
		c.galera()
		return
	}
	if flush := c.Facts["innodb_flush_log_at_trx_commit"]; flush != "1" {
		c.add("durable", Warning, "innodb_flush_log_at_trx_commit is "+flush,
			"A power failure of the server loses acknowledged changes.",
			"SET GLOBAL innodb_flush_log_at_trx_commit = 1, and in the server's configuration")
	}
}

func (c *databaseCheck) galera() {
	const look = "SHOW STATUS LIKE 'wsrep%', and the log of the node"
	if state, cluster := c.Facts["wsrep_local_state_comment"],
		c.Facts["wsrep_cluster_status"]; state != "Synced" || cluster != "Primary" {
		c.add("galera", Error, fmt.Sprintf("the Galera node is %q, its part of the cluster is %q", state, cluster),
			"Only a synced node of the primary component answers.", look)
	}
	if wait := c.Facts["wsrep_sync_wait"]; wait != "7" {
		c.add("galera-wait", Error, fmt.Sprintf("wsrep_sync_wait is %s, although each session sets 7", wait),
			"A read can miss what another node has committed.",
			"connect to the nodes themselves, or let the proxy keep a session for each client")
	}
	if size, err := strconv.Atoi(c.Facts["wsrep_cluster_size"]); err != nil || size < 3 {
		c.add("galera-size", Warning, fmt.Sprintf("the Galera cluster has %s nodes", c.Facts["wsrep_cluster_size"]),
			"Of fewer than three nodes none can be lost: the others no longer are the primary component.", look)
	}
}

func (c *databaseCheck) postgres() {
	c.least(13, 0)
	if c.Facts["fsync"] != "on" || c.Facts["synchronous_commit"] == "off" {
		c.add("durable", Warning, fmt.Sprintf("fsync is %s, synchronous_commit is %s",
			c.Facts["fsync"], c.Facts["synchronous_commit"]),
			"A power failure of the server loses acknowledged changes.",
			"set both to on in postgresql.conf, and reload the server")
	}
	if standbys := c.Facts["standbys"]; standbys != "0" &&
		(c.Facts["synchronous_standby_names"] == "" ||
			!slices.Contains([]string{"on", "remote_apply"}, c.Facts["synchronous_commit"])) {
		c.add("standby", Warning, "the server has a standby that commits do not wait for",
			"A failover to the standby loses acknowledged changes.",
			"set synchronous_standby_names, and synchronous_commit to on or remote_apply, in postgresql.conf")
	}
}
