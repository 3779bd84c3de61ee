// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	galeraFacts = map[string]string{
		"version": "10.11.6-MariaDB-log", "client": "192.0.2.7", "tls": "TLSv1.3", "tx_isolation": "READ-COMMITTED",
		"max_allowed_packet":             "16777216",
		"innodb_flush_log_at_trx_commit": "0", "wsrep_on": "ON", "wsrep_sync_wait": "7",
		"wsrep_local_state_comment": "Synced",
		"wsrep_cluster_status":      "Primary", "wsrep_cluster_size": "3",
	}
	mysqlServerFacts = map[string]string{
		"version": "8.0.36", "client": "localhost", "tls": "", "transaction_isolation": "READ-COMMITTED",
		"max_allowed_packet": "67108864", "innodb_flush_log_at_trx_commit": "1",
	}
	postgresServerFacts = map[string]string{
		"version": "15.6 (Debian 15.6-0+deb12u1)", "client": "", "tls": "", "transaction_isolation": "read committed",
		"fsync": "on", "synchronous_commit": "on", "synchronous_standby_names": "", "standbys": "0",
	}
)

// TestDatabaseWithACredential: a password that systemd passes to a unit that does not run, or that
// this user may not read, leaves the database unjudged.
func TestDatabaseWithACredential(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const credential = credentialsDir + "compute-agent-cell@cell1.service/password"
	f := healthy(t)
	asked := 0
	e := &Env{Root: f.root, Stat: f.stat, Config: &config.Config{}}
	e.Databases = []Database{{
		Address: engine.SetPasswordFile("mysql://cell@db/cell1?password_file=x", credential),
		Name:    "cell.cell1", Of: "the cell cell1",
		Diagnose: func(context.Context) (sqldb.Diagnosis, error) {
			asked++
			return sqldb.Diagnosis{}, &engine.Error{Kind: engine.ErrDenied}
		},
	}}
	judge := func(severity Severity, found string) {
		t.Helper()
		got := checkDatabases(t.Context(), e)
		if len(got) != 1 || got[0].Severity != severity || !strings.Contains(got[0].Found, found) {
			t.Errorf("checkDatabases: got %+v, want %v with %q", got, severity, found)
		}
	}
	judge(Skipped, credential+", which systemd passes while the unit runs")
	f.write(credential, "secret\n", 0o600)
	if os.Geteuid() != 0 {
		f.chmod(credential, 0)
		judge(Skipped, "run this command as root")
		f.chmod(credential, 0o600)
	}
	if asked != 0 {
		t.Errorf("without the password the database was asked %d times", asked)
	}
	judge(Error, "denied")
}

// TestDatabases: every row has one thing wrong, which has one result with a fix.
func TestDatabases(t *testing.T) {
	type diagnosis = sqldb.Diagnosis
	set := func(values ...string) func(*diagnosis) {
		return func(d *diagnosis) {
			for i := 0; i < len(values); i += 2 {
				d.Facts[values[i]] = values[i+1]
			}
		}
	}
	for name, tc := range map[string]struct {
		facts    map[string]string
		set      func(*diagnosis)
		err      error
		check    string
		severity Severity
		found    string
	}{
		"Galera": {galeraFacts, nil, nil, "", OK, "MariaDB 10.11.6, step 2 of the schema, writable, TLSv1.3"},
		"MySQL": {mysqlServerFacts, nil, nil, "", OK,
			"MySQL 8.0.36, step 2 of the schema, writable, no TLS, on this machine"},
		"PostgreSQL": {postgresServerFacts, nil, nil, "", OK, "PostgreSQL 15.6, step 2"},

		"unreachable": {galeraFacts, nil, &engine.Error{Kind: engine.ErrUnreachable},
			"", Error, "cannot be opened"},
		"read-only": {galeraFacts, nil, &engine.Error{Kind: engine.ErrReadOnly},
			"", Error, "cannot be written"},
		"denied": {galeraFacts, nil, &engine.Error{Kind: engine.ErrDenied}, "", Error, "denied"},
		"not ours": {galeraFacts,
			func(d *diagnosis) { d.Schema = errors.New("other tables") }, nil, "schema", Error, "other tables"},
		"older": {galeraFacts,
			func(d *diagnosis) { d.Steps = 1 }, nil, "schema", Warning, "1 of 2 steps"},
		"newer": {galeraFacts, func(d *diagnosis) { d.Steps = 3 }, nil, "schema", Error, "3 steps"},
		"not writable": {galeraFacts,
			func(d *diagnosis) { d.Write = errors.New("not granted") }, nil, "write", Error, "not granted"},
		"old MariaDB": {galeraFacts, set("version", "10.5.23-MariaDB"), nil,
			"version", Error, "MariaDB 10.5.23"},
		"old MySQL": {mysqlServerFacts, set("version", "5.7.44"), nil, "version", Error, "MySQL 5.7.44"},
		"old PostgreSQL": {postgresServerFacts,
			set("version", "12.18"), nil, "version", Error, "PostgreSQL 12.18"},
		"a beta version": {postgresServerFacts, set("version", "17beta1"), nil, "", OK, "PostgreSQL 17beta1"},
		"isolation": {galeraFacts, set("tx_isolation", "REPEATABLE-READ"), nil,
			"isolation", Error, "repeatable read"},
		"no TLS":        {galeraFacts, set("tls", ""), nil, "tls", Warning, "without TLS"},
		"small packets": {galeraFacts, set("max_allowed_packet", "1048576"), nil, "packet", Warning, "1048576"},
		"MySQL flushes late": {mysqlServerFacts, set("innodb_flush_log_at_trx_commit", "2"),
			nil, "durable", Warning, "is 2"},
		"a donor": {galeraFacts, set("wsrep_local_state_comment", "Donor/Desynced"),
			nil, "galera", Error, "Donor"},
		"no primary component": {galeraFacts, set("wsrep_cluster_status", "non-Primary"), nil,
			"galera", Error, "non-Primary"},
		"reads do not wait": {galeraFacts, set("wsrep_sync_wait", "0"), nil, "galera-wait", Error, "is 0"},
		"two nodes":         {galeraFacts, set("wsrep_cluster_size", "2"), nil, "galera-size", Warning, "2 nodes"},
		"fsync":             {postgresServerFacts, set("fsync", "off"), nil, "durable", Warning, "fsync is off"},
		"asynchronous commits": {postgresServerFacts, set("synchronous_commit", "off"), nil, "durable", Warning,
			"synchronous_commit is off"},
		"asynchronous standby": {postgresServerFacts, set("standbys", "1"), nil, "standby", Warning, "do not wait"},
		"waited for by name": {postgresServerFacts,
			set("standbys", "1", "synchronous_standby_names", "*"), nil, "", OK, "writable"},
		"waited for too short": {postgresServerFacts,
			set("standbys", "1", "synchronous_standby_names", "*", "synchronous_commit", "local"), nil,
			"standby", Warning, "do not wait"},
	} {
		t.Run(name, func(t *testing.T) {
			d := diagnosis{Address: "mysql://p@db/placement", Facts: maps.Clone(tc.facts), Steps: 2, Newest: 2}
			if tc.facts["fsync"] != "" {
				d.Address = "postgres://p@db/placement"
			}
			if tc.set != nil {
				tc.set(&d)
			}
			f := healthy(t)
			f.env.Databases = []Database{{
				Name: "placement", Of: "Placement",
				Key: "placement.database", Upgrade: "compute-agent placement db upgrade",
				Diagnose: func(context.Context) (sqldb.Diagnosis, error) { return d, tc.err },
			}}
			want := "database.placement"
			if tc.check != "" {
				want += "." + tc.check
			}
			var got []string
			for _, r := range f.examine() {
				if !strings.HasPrefix(r.Name, "database") {
					continue
				}
				got = append(got, r.Name)
				if r.Severity != tc.severity || !strings.Contains(r.Found, tc.found) ||
					(r.Severity == OK) != (r.Fix == "") ||
					(r.Fix == "") != (r.Why == "") || r.Title != "Database of Placement" {
					t.Errorf("the result: got %+v, want %v with %q, and a fix if it is not OK",
						r, tc.severity, tc.found)
				}
			}
			testproc.Same(t, cmp.Diff([]string{want}, got))
		})
	}
}
