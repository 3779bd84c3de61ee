// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

// start is when the tests' clock begins.
var start = time.Date(2026, 5, 4, 3, 2, 1, 123456000, time.UTC)

// fatal is what helpers need of a test, of a benchmark and of a property.
type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// database is a store, and the name by which it was opened: of a file, or a DSN with a password.
type database struct {
	*apidb.DB
	name string
}

func open(t fatal, name string, o apidb.Options) database {
	t.Helper()
	s := testproc.Try(apidb.Open(ctx, name, o)).Or(t)
	return database{s, name}
}

// template is what databases begin as.
var template = dbservers.NewTemplate(func(dsn string) (*apidb.DB, error) {
	return apidb.Open(ctx, dsn, apidb.Options{})
})

// testEngine is what a test of the store is run on.
type testEngine struct {
	shared bool
	empty  func(t testing.TB) string // makes the name of a new database
}

// fresh is a new database with a clock that stands still.
func (e testEngine) fresh(t *testing.T) database {
	t.Helper()
	name := e.empty(t)
	must(t, template.Copy(name))
	s := open(t, name, apidb.Options{Now: func() time.Time { return start }})
	t.Cleanup(func() { shut(t, s) })
	return s
}

// processes are stores of as many processes as may use one database: of servers, three, which all
// find it empty.
func (e testEngine) processes(t *testing.T) []database {
	t.Helper()
	name, n := e.empty(t), 1
	if e.shared {
		n = 3
	}
	made := make([]database, n)
	var all sync.WaitGroup
	for i := range made {
		all.Go(func() {
			s, err := apidb.Open(ctx, name, apidb.Options{})
			testproc.NoError(t, err)
			made[i] = database{s, name}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for _, s := range made {
			shut(t, s)
		}
	})
	return made
}

// sampled says whether a property is checked in the round of that number: on servers, in fewer.
func (e testEngine) sampled(round int) bool { return !e.shared || round <= 15 }

// fresh is a new file.
func fresh(t *testing.T) database {
	t.Helper()
	return testEngine{empty: func(t testing.TB) string { return filepath.Join(dbservers.Memory(t), "api.db") }}.fresh(t)
}

func shut(t testing.TB, s database) {
	t.Helper()
	testproc.NoError(t, s.Close())
}

// TestStore runs what holds for all databases on each engine.
func TestStore(t *testing.T) {
	t.Parallel()
	dbservers.Each(t, func(t *testing.T, empty func(t testing.TB) string) {
		e := testEngine{shared: !strings.HasSuffix(t.Name(), "/sqlite"), empty: empty}
		for _, c := range []struct {
			name string
			test func(t *testing.T, e testEngine)
		}{
			{"Cells", testCells}, {"CellIDsAreNotReused", testCellIDsAreNotReused}, {"DeleteCell", testDeleteCell},
			{"DeleteCellNotMigrated", testDeleteCellNotMigrated}, {"Nodes", testNodes},
			{"DatabasesOfCells", testDatabasesOfCells},
			{"OutOfOrderRevisionsAreIgnored", testOutOfOrderRevisionsAreIgnored},
			{"DatabasesOfCellsRefused", testDatabasesOfCellsRefused},
			{"CreateServers", testCreateServers}, {"CreateServersCheck", testCreateServersCheck},
			{"QuotaIsExact", testQuotaIsExact},
			{"LifeOfABuild", testLifeOfABuild}, {"BuiltInCell0", testBuiltInCell0}, {"AbandonBuild", testAbandonBuild},
			{"CountPending", testCountPending},
			{"OneDecision", testOneDecision}, {"NotDeletedByCellAndProject", testNotDeletedByCellAndProject},
			{"Counts", testCounts}, {"Queued", testQueued},
			{"Many", testMany}, {"MappingsAreMerged", testMappingsAreMerged},
			{"Quotas", testQuotas}, {"Flavors", testFlavors},
			{"FlavorChangesAtOnce", testFlavorChangesAtOnce}, {"Upgrade", testUpgrade},
			{"Aggregates", testAggregates}, {"AggregateChangesAtOnce", testAggregateChangesAtOnce},
			{"ServerGroups", testServerGroups}, {"ServerGroupsAtOnce", testServerGroupsAtOnce},
			{"KeyPairs", testKeyPairs}, {"ConsoleTokens", testConsoleTokens},
			{"Enrolments", testEnrolments}, {"EnrolmentsRefused", testEnrolmentsRefused},
			{"EnrolmentsAtOnce", testEnrolmentsAtOnce}, {"Rename", testRename},
			{"HostNamesOverlap", testHostNamesOverlap}, {"OverlappingNamesAtOnce", testOverlappingNamesAtOnce},
		} {
			t.Run(c.name, func(t *testing.T) {
				testproc.Parallel(t, testproc.Heavy)
				c.test(t, e)
			})
		}
	})
}

var must = testproc.Check

// wants compares what a method gave.
func wants[T any](t testing.TB, what string) func(got T, err error) func(want T) {
	t.Helper()
	return func(got T, err error) func(want T) {
		t.Helper()
		must(t, err)
		return func(want T) {
			t.Helper()
			testproc.Samef(t, cmp.Diff(want, got), "%s", what)
		}
	}
}

func wantError(t testing.TB, what string, got, want error) {
	t.Helper()
	testproc.ErrorIs(t, got, want, "%s: got %v", what)
}

// cellUUID is the uuid of a test's cell; the number 0 is cell0.
func cellUUID(n int) string { return fmt.Sprintf("%08d-0000-0000-0000-000000000000", n) }

// withCells makes cell0 and some more.
func withCells(t fatal, s database, n int) {
	t.Helper()
	for i := range n + 1 {
		testproc.Try(s.CreateCell(ctx,
			apidb.Cell{UUID: cellUUID(i), Name: fmt.Sprint("cell", i),
				URL: fmt.Sprintf("http://127.0.0.1:%d", 9000+i)})).Or(t)
	}
}

// server is one of a project, of 2 VCPUs and 512 MiB.
func server(uuid, project string) apidb.RequestSpec {
	flavor := cellwire.Flavor{ID: "f1", Flavor: plugins.Flavor{Name: "small", VCPUs: 2, MemoryMB: 512, RootGB: 1,
		ExtraSpecs: map[string]string{"trait:CUSTOM_A": "required"}}}
	return apidb.RequestSpec{
		Server: cellwire.Server{UUID: uuid, ProjectID: project, UserID: "user", Name: "server " + uuid,
			Flavor: flavor, ImageRef: "image", Zone: "zone", VMState: cellwire.VMBuilding,
			TaskState: cellwire.TaskScheduling},
		ForcedHost: "host", ForcedNode: "node",
	}
}

func at(n apidb.RequestSpec, created time.Time) apidb.RequestSpec {
	n.CreatedAt = created
	return n
}

// placed makes a server that is in a cell.
func placed(t fatal, s database, n apidb.RequestSpec, cell string) {
	t.Helper()
	must(t, s.CreateServers(ctx, []apidb.RequestSpec{n}, nil))
	must(t, s.Place(ctx, n.UUID, cell))
	must(t, s.FinishBuild(ctx, n.UUID))
}

// connect opens a database behind the store's back.
func connect(name string) (*sql.DB, error) {
	if path, is := strings.CutPrefix(name, "sqlite://"); is || !strings.Contains(name, "://") {
		return sql.Open("sqlite", "file:"+path+
			"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)&_pragma=synchronous(OFF)")
	}
	if strings.HasPrefix(name, "postgres://") {
		return sql.Open("pgx", name)
	}
	u, err := url.Parse(name)
	if err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = u.User.Username(), "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	cfg.Passwd, _ = u.User.Password()
	return sql.Open("mysql", cfg.FormatDSN())
}

// direct runs statements behind the store's back.
func direct(name string, statements ...string) (err error) {
	db, err := connect(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			return fmt.Errorf("%.200s: %w", s, err)
		}
	}
	return nil
}

func execute(t testing.TB, name string, statements ...string) {
	t.Helper()
	must(t, direct(name, statements...))
}

// ask returns the rows of a query as text, with a line between the columns.
func ask(t testing.TB, name, query string) (out []string) {
	t.Helper()
	db := testproc.Try(connect(name)).Or(t)
	defer func() { must(t, db.Close()) }()
	rows := testproc.Try(db.Query(query)).Or(t)
	defer func() { _ = rows.Close() }()
	columns := testproc.Try(rows.Columns()).Or(t)
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		must(t, rows.Scan(into...))
		line := make([]string, len(values))
		for i, v := range values {
			line[i] = v.String
		}
		out = append(out, strings.Join(line, "|"))
	}
	must(t, rows.Err())
	return out
}
