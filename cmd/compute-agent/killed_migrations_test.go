// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"modernc.org/sqlite"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// killedAt is the moment at which killedMain ends itself: "row N" or "COMMIT N".
const killedAt = "MIGRATION_TEST_KILLED_AT"

// killedMain is compute-agent, which is killed before it writes the Nth row to an SQLite file, or
// before its Nth COMMIT.
func killedMain() {
	what, text, _ := strings.Cut(os.Getenv(killedAt), " ")
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	var rows, commits atomic.Int64
	count := func(n *atomic.Int64, is string) {
		if n.Add(1) == at && is == what {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	sqlite.RegisterConnectionHook(func(c sqlite.ExecQuerierContext, _ string) error {
		hooks := c.(sqlite.HookRegisterer)
		hooks.RegisterPreUpdateHook(func(sqlite.SQLitePreUpdateData) { count(&rows, "row") })
		hooks.RegisterCommitHook(func() int32 { count(&commits, "COMMIT"); return 0 })
		return nil
	})
	main()
}

const (
	// oldRows is how many rows an online migration finds, and aBatch how many one transaction of it
	// changes.
	oldRows = 1100
	aBatch  = 1000
)

// oldRow is the uuid of an old row.
func oldRow(i int) string { return fmt.Sprintf("99999999-0000-4000-9000-%012d", i) }

// onlineMigration is a command `db online-data-migrations`.
type onlineMigration struct {
	args []string
	// fill makes the old rows in an empty database, with one that is migrated; again makes those
	// old again that the command migrated.
	fill  func(t *testing.T, database string)
	again []string
	// rows reads what the command changes, and what it must not change.
	rows string
	// done counts the rows that are migrated.
	done string
	// resumes says that the command finds out what became of a COMMIT without an answer.
	resumes bool
}

var onlineMigrations = map[string]onlineMigration{
	"placement": {
		args: []string{"placement"},
		fill: fillConsumers,
		again: []string{
			"DELETE FROM consumers WHERE uuid <> '" + oldRow(oldRows) + "'",
			"DELETE FROM projects WHERE external_id LIKE '0000%'", "DELETE FROM users WHERE external_id LIKE '0000%'",
		},
		rows: "SELECT a.consumer_id, a.used, c.uuid, c.generation, p.external_id, u.external_id FROM allocations a " +
			"LEFT JOIN consumers c ON c.uuid = a.consumer_id LEFT JOIN projects p ON p.id = c.project_id LEFT JOIN " +
			"users u ON u.id = c.user_id",
		done:    "SELECT COUNT(*) FROM consumers WHERE uuid <> '" + oldRow(oldRows) + "'",
		resumes: true,
	},
	"API": {
		args: []string{"cells", "manage"},
		fill: fillMappings,
		again: []string{"UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid <> '" +
			oldRow(oldRows) + "'"},
		rows: "SELECT instance_uuid, cell_id, project_id, queued_for_delete FROM instance_mappings",
		done: "SELECT COUNT(*) FROM instance_mappings WHERE queued_for_delete IS NOT NULL AND instance_uuid <> '" +
			oldRow(oldRows) + "'",
	},
}

// fillConsumers makes consumers, and takes the records of all but one away, as in a database that
// an old Placement wrote.
func fillConsumers(t *testing.T, database string) {
	t.Helper()
	direct, err := placement.NewDirect(t.Context(), placement.Config{Database: database, Logger: zerolog.Nop()})
	check(t, err)
	ask := func(method, path string, body any) {
		t.Helper()
		testproc.Send(t, &http.Client{Transport: direct},
			method, "http://placement"+path, "placement 1.39", body).Good(t)
	}
	type m = map[string]any
	ask("POST", "/resource_providers", m{"uuid": cn1, "name": "cn1"})
	ask("PUT", "/resource_providers/"+cn1+"/inventories",
		m{"resource_provider_generation": 0, "inventories": m{"VCPU": m{"total": 10 * oldRows}}})
	consumers := m{}
	for i := range oldRows + 1 {
		consumers[oldRow(i)] = m{"consumer_generation": nil, "project_id": "p", "user_id": "u",
			"consumer_type": "INSTANCE", "allocations": m{cn1: m{"resources": m{"VCPU": i%7 + 1}}}}
	}
	ask("POST", "/allocations", consumers)
	check(t, direct.Close())
}

// fillMappings makes mappings of servers in a cell that answers, and takes what the migration finds
// out away from all but one.
func fillMappings(t *testing.T, database string) {
	t.Helper()
	cell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked cellwire.StatesRequest
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || r.URL.Path != "/v1/servers/states" {
			http.NotFound(w, r)
			return
		}
		answer := cellwire.StatesAnswer{States: []cellwire.ServerState{}}
		for _, uuid := range asked.UUIDs {
			answer.States = append(answer.States,
				cellwire.ServerState{UUID: uuid, VMState: cellwire.VMActive, Deleted: strings.HasSuffix(uuid, "7")})
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(cell.Close)
	out, code := runs(t, nil, "cells", "manage", "create", "--name", "cell1", "--url", cell.URL,
		"--config", emptyConfig(t), "--database", dbservers.WithPasswordFile(t, database))
	if code != 0 {
		t.Fatalf("creating a cell: %d\n%s", code, out)
	}
	var id int64
	db := dbservers.Open(t, database)
	check(t, errors.Join(db.QueryRowContext(t.Context(), "SELECT id FROM cell_mappings WHERE name = 'cell1'").Scan(&id),
		db.Close()))
	var rows []string
	for i := range oldRows + 1 {
		rows = append(rows, fmt.Sprintf("('%s', %d, 'p', 'u', 0, 1)", oldRow(i), id))
	}
	dbservers.Execute(t, database,
		"INSERT INTO instance_mappings (instance_uuid, cell_id, project_id, user_id, queued_for_delete, "+
			"created_at) VALUES "+strings.Join(rows, ", "))
}

func emptyConfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "empty.toml")
	check(t, os.WriteFile(file, nil, 0o600))
	return file
}

// startsOwn starts this program with a variable in its environment; then it is compute-agent.
func startsOwn(t *testing.T, variables []string, args ...string) *testproc.Process {
	t.Helper()
	name := "compute-agent"
	if len(variables) > 0 {
		name = "compute-agent-killed"
	}
	program := testproc.Try(exec.LookPath(name)).Or(t)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), variables...)
	p := testproc.Start(t, name, cmd)
	p.KilledBy(t)
	return p
}

// runs is startsOwn, to the end; the exit code is -1 of a process that was killed.
func runs(t *testing.T, variables []string, args ...string) (out string, code int) {
	t.Helper()
	p := startsOwn(t, variables, args...)
	code = p.Exit(t)
	return strings.Join(p.Lines(), "\n"), code
}

// migratedRow is the row of the table that the commands print.
var migratedRow = regexp.MustCompile(`(?m)^\| \w+ \| +(\d+) +\| +(\d+) +\|$`)

// killedMigration is an online migration of one database, which is killed again and again.
type killedMigration struct {
	onlineMigration
	plain string // the database, with nothing in between
	args  []string
	proxy *dbservers.Proxy // nil for SQLite
	long  bool
	want  []string // the rows when all is done
	kills int
	left  map[int]int // how often a kill left so many rows
	// commits is how many COMMITs a server gets.
	commits int
}

func newKilledMigration(t *testing.T, m onlineMigration, plain string) *killedMigration {
	t.Helper()
	k := &killedMigration{onlineMigration: m, plain: plain, long: dbservers.Long(t), left: map[int]int{}}
	database := plain
	if !strings.HasPrefix(plain, "sqlite:") {
		k.proxy = dbservers.NewProxy(t, plain)
		database = k.proxy.DSN
	}
	m.fill(t, plain)
	k.args = append(slices.Clone(m.args), "db", "online-data-migrations", "--config", emptyConfig(t),
		"--database", dbservers.WithPasswordFile(t, database))
	k.makeOld(t)
	k.completes(t, "at first", oldRows)
	k.want = k.read(t)
	k.makeOld(t)
	return k
}

// makeOld has the rows as they were before the migration.
func (k *killedMigration) makeOld(t *testing.T) {
	t.Helper()
	dbservers.Execute(t, k.plain, k.again...)
}

// open opens the database for a while: of a file, nothing else may keep it open.
func (k *killedMigration) open(t *testing.T) *sql.DB {
	t.Helper()
	db := dbservers.Open(t, k.plain)
	db.SetMaxOpenConns(1)
	return db
}

// count is the number in the one row of a query.
func (k *killedMigration) count(t *testing.T, query string) (n int) {
	t.Helper()
	db := k.open(t)
	check(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	check(t, db.Close())
	return n
}

func (k *killedMigration) read(t *testing.T) (out []string) {
	t.Helper()
	db := k.open(t)
	rows := testproc.Try(db.QueryContext(t.Context(), k.rows)).Or(t)
	columns := testproc.Try(rows.Columns()).Or(t)
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		check(t, rows.Scan(into...))
		out = append(out, fmt.Sprint(values))
	}
	check(t, errors.Join(rows.Err(), rows.Close(), db.Close()))
	slices.Sort(out)
	return out
}

// alone waits until the sessions of a process that was killed have ended, and with them what they
// had begun.
func (k *killedMigration) alone(t *testing.T) {
	t.Helper()
	query := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
	switch {
	case k.proxy == nil:
		return
	case strings.HasPrefix(k.plain, "postgres:"):
		query = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> " +
			"pg_backend_pid() AND backend_type = 'client backend'"
	}
	testproc.Eventually(t, testproc.Patience, "no other session uses the database", func() error {
		if n := k.count(t, query); n > 0 {
			return fmt.Errorf("%d do", n)
		}
		return nil
	})
}

// completes runs the command to its end: it migrates what is left, says so, and nothing is left.
func (k *killedMigration) completes(t *testing.T, when string, left int) {
	t.Helper()
	all := []int{left, 0}
	if !k.long && k.want != nil {
		all = all[:1]
	}
	for _, n := range all {
		out, code := runs(t, nil, k.args...)
		if said := migratedRow.FindStringSubmatch(out); code != 0 || said == nil ||
			said[1] != strconv.Itoa(n) || said[2] != strconv.Itoa(n) {
			t.Fatalf("%s: it ended with %d, and should find and migrate %d:\n%s", when, code, n, out)
		}
		if done := k.count(t, k.done); done != oldRows {
			t.Fatalf("%s: %d rows are migrated of %d", when, done, oldRows)
		}
	}
}

// killed looks at what a process left that was killed, and runs the command again.
func (k *killedMigration) killed(t *testing.T, when, out string) {
	t.Helper()
	k.kills++
	k.alone(t)
	done := k.count(t, k.done)
	k.left[oldRows-done]++
	if done != 0 && done != aBatch && done != oldRows {
		t.Errorf("killed %s: it left %d rows, which are no whole transactions", when, oldRows-done)
	}
	if said := migratedRow.FindStringSubmatch(out); said != nil && said[2] != strconv.Itoa(done) {
		t.Errorf("killed %s: it says that it migrated %s rows, and these are %d", when, said[2], done)
	}
	k.completes(t, "killed "+when, oldRows-done)
	if diff := cmp.Diff(k.want, k.read(t)); diff != "" {
		t.Fatalf("killed %s, and run again:\n%s", when, diff)
	}
	k.makeOld(t)
}

// atRow kills it at rows and COMMITs that it writes to a file.
func (k *killedMigration) atRow(t *testing.T) {
	t.Helper()
	at := func(what string, n int) bool {
		t.Helper()
		when := fmt.Sprintf("%s %d", what, n)
		out, code := runs(t, []string{killedAt + "=" + when}, k.args...)
		if code == 0 {
			k.makeOld(t)
			return false
		}
		if code != -1 {
			t.Fatalf("at %s it ended with %d:\n%s", when, code, out)
		}
		k.killed(t, "at "+when, out)
		return true
	}
	first, stride := aBatch/2, aBatch
	if k.long {
		first, stride = 1, 50
	}
	for n := 1; at("COMMIT", n); n++ { // of the last one, all is left that its transaction would change
	}
	for n := first; at("row", n); n += stride {
	}
}

// watched runs the command while the proxy sees what it sends, and returns its output and its exit
// code.
func (k *killedMigration) watched(t *testing.T, see func(p *testproc.Process, request []byte)) (string, int) {
	t.Helper()
	started := make(chan struct{})
	var p *testproc.Process
	k.proxy.Watch(func(request []byte) {
		<-started
		see(p, request)
	})
	p = startsOwn(t, nil, k.args...)
	close(started)
	code := p.Exit(t)
	k.proxy.Watch(nil)
	return strings.Join(p.Lines(), "\n"), code
}

// atRequest kills it at requests to the server, which still gets that one.
func (k *killedMigration) atRequest(t *testing.T) {
	t.Helper()
	var mu sync.Mutex
	var all, commits []int64
	k.watched(t, func(_ *testproc.Process, request []byte) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, int64(len(all)+1))
		if bytes.Contains(bytes.ToUpper(request), []byte("COMMIT")) {
			commits = append(commits, int64(len(all)))
		}
	})
	k.alone(t)
	k.makeOld(t)
	k.commits = len(commits)
	at := all
	if !k.long { // once while it reads, and at the COMMIT of each of the two transactions
		at = append([]int64{all[len(all)/2]}, commits[k.commits-2:]...)
	}
	for _, at := range at {
		var n atomic.Int64
		when := fmt.Sprintf("at request %d of %d", at, len(all))
		out, code := k.watched(t, func(p *testproc.Process, _ []byte) {
			if n.Add(1) == at {
				p.Kill()
			}
		})
		if code == -1 {
			k.killed(t, when, out)
		} else { // it did with fewer requests than the first time
			k.alone(t)
			k.makeOld(t)
		}
	}
	t.Logf("%d requests with %d COMMITs", len(all), len(commits))
}

// lost loses COMMITs, and answers to them: the command itself goes on, or says what it did.
func (k *killedMigration) lost(t *testing.T) {
	t.Helper()
	faults, first := map[string]dbservers.Fault{"without an answer": dbservers.LoseAnswer}, k.commits-1
	if k.long {
		faults["lost"], faults["delayed"], first = dbservers.LoseCommit, dbservers.DelayCommit, 1
	}
	for name, fault := range faults {
		for at := int64(first); ; at++ {
			var n atomic.Int64
			k.proxy.Faults(func() dbservers.Fault {
				if n.Add(1) == at {
					return fault
				}
				return dbservers.None
			})
			out, code := runs(t, nil, k.args...)
			k.proxy.Faults(nil)
			k.alone(t)
			when := fmt.Sprintf("COMMIT %d %s", at, name)
			done := k.count(t, k.done)
			said := migratedRow.FindStringSubmatch(out)
			switch {
			case code == 0:
				if said == nil || said[1] != strconv.Itoa(oldRows) ||
					said[2] != strconv.Itoa(oldRows) || done != oldRows {
					t.Errorf("%s: %d rows are migrated, and it says\n%s", when, done, out)
				}
			case k.resumes || code != cli.ExitMigrationFailed:
				t.Errorf("%s: it ended with %d:\n%s", when, code, out)
			case said != nil:
				if count, err := strconv.Atoi(said[2]); err != nil || count > done {
					t.Errorf("%s: %d rows are migrated, and it says\n%s", when, done, out)
				}
			}
			k.completes(t, when, oldRows-done)
			if diff := cmp.Diff(k.want, k.read(t)); diff != "" {
				t.Fatalf("%s:\n%s", when, diff)
			}
			k.makeOld(t)
			if n.Load() < at || !k.long {
				break
			}
		}
	}
}

// TestDatabasesKilledOnlineMigrations: wherever `db online-data-migrations` of Placement and of the
// compute API is killed, it leaves whole transactions, and run again it does the rest and no more.
// What it prints is what it did.
func TestDatabasesKilledOnlineMigrations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, m := range onlineMigrations {
		t.Run(name, func(t *testing.T) {
			dbservers.Each(t, func(t *testing.T, fresh func(testing.TB) string) {
				k := newKilledMigration(t, m, fresh(t))
				if k.proxy == nil {
					k.atRow(t)
				} else {
					k.atRequest(t)
					k.lost(t)
				}
				reached := k.left[oldRows] > 0 && k.left[oldRows-aBatch] > 0
				switch {
				case k.proxy == nil:
				case k.long:
					reached = reached && k.left[0] > 0
				default: // it is chance whether a server still takes the COMMIT of a client that ends
					reached = len(k.left) > 1
				}
				if !reached {
					t.Errorf("the kills did not reach all moments: %v", k.left)
				}
				t.Logf("%d kills, which left so many rows so often: %v", k.kills, k.left)
			})
		})
	}
}
