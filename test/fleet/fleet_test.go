// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The phases of a run.
const (
	phaseCreate  = "create"
	phaseRestart = "restart"
	phaseSteady  = "steady"
)

// What is distributed over the servers.
const (
	balanceAgents   = "agent"
	balanceRequests = "request"
)

// TestFleet: each agent costs Placement what its life must cost, whether its tree is there when it
// starts or not, and nothing is written that is there already.
func TestFleet(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Heavy)
	f := newFleet(t, *agentCount)
	phases := strings.Split(*phaseList, ",")
	for _, phase := range phases {
		if !slices.Contains([]string{phaseCreate, phaseRestart, phaseSteady}, phase) {
			t.Fatalf("-fleet.phases: %q is not a phase; the phases are %s, %s and %s",
				phase, phaseCreate, phaseRestart, phaseSteady)
		}
	}
	if phases[0] == phaseSteady {
		t.Fatalf("-fleet.phases: the agents start in %s or %s, so one of these comes first", phaseCreate, phaseRestart)
	}
	switch {
	case *balance != balanceAgents && *balance != balanceRequests:
		t.Fatalf("-fleet.balance: %q is neither %s nor %s", *balance, balanceAgents, balanceRequests)
	case *balance == balanceRequests && *serverURLs == "" && *database == "" && *serverCount > 1:
		t.Fatalf("-fleet.balance=%s: servers on SQLite files of their own have agents of their own", balanceRequests)
	}
	t.Log(testproc.Machine())
	if *serverURLs != "" {
		f.servers = given(t)
	} else {
		f.servers = start(t, f, *serverCount, databaseDSN(t), !slices.Contains(phases, phaseCreate))
	}
	f.live(t, phases)
}

// databaseDSN is the DSN of -fleet.database, whose server is started where it names an engine.
func databaseDSN(t *testing.T) string {
	t.Helper()
	switch *database {
	case "mariadb":
		return dbservers.StartMariaDB(t, dbservers.Options{Durable: true}).Database(t, "fleet")
	case "postgresql":
		return dbservers.StartPostgreSQL(t, dbservers.Options{Durable: true}).Database(t, "fleet")
	}
	return *database
}

// TestFleetOnLoadedTrees: the trees that large runs find in the database from the beginning are
// those that the agents report.
func TestFleetOnLoadedTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := newFleet(t, 20)
	f.servers = start(t, f, 1, "", true)
	f.live(t, []string{phaseRestart})
}

// TestFleetOnOneDatabase: two servers share a database. Each request of an agent is sent to the
// other server than the one before, and finds what that one acknowledged.
func TestFleetOnOneDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := newFleet(t, 20)
	f.balance = balanceRequests
	f.servers = start(t, f, 2, dbservers.MariaDB(t), false)
	f.live(t, []string{phaseCreate, phaseRestart, phaseSteady})
}

// newFleet is a fleet without servers yet.
func newFleet(t *testing.T, agents int) *fleet {
	t.Helper()
	options := config.Options{Root: t.TempDir(), Environ: []string{}}
	if *configuration != "" {
		options = config.Options{File: *configuration}
	}
	cfg := testproc.Try(config.Load(options)).Or(t)
	f := &fleet{
		config: cfg, providers: *providerCount, balance: *balance, pace: *pace, workers: *workerCount,
		timings: resourcetracker.Timings{
			Interval: cfg.Tracker.UpdateResourcesInterval, PassDeadline: cfg.Tracker.PassDeadline,
			BackoffMin: cfg.Tracker.RetryBackoffMin, BackoffMax: cfg.Tracker.RetryBackoffMax,
		},
	}
	for i := range agents {
		n := *firstAgent + i
		f.agents = append(f.agents,
			&agent{fleet: f, number: n, random: rand.New(rand.NewPCG(1, uint64(n)))})
	}
	return f
}

// live goes through phases, one after the other.
func (f *fleet) live(t *testing.T, phases []string) {
	t.Helper()
	now, created := dawn, false
	t.Cleanup(func() {
		for _, a := range f.agents {
			if a.http != nil {
				a.CloseIdleConnections()
			}
		}
	})
	for _, phase := range phases {
		long := *steadyTime
		if phase != phaseSteady {
			long, created = *within, phase == phaseCreate
			for _, a := range f.agents {
				check(t, a.start(now.Add(time.Duration(a.random.Float64()*float64(long)))))
				f.idleTimeout = a.http.IdleConnTimeout
				a.http.IdleConnTimeout = 0
			}
		}
		before := f.usage(t)
		s := f.run(t.Context(), now, long)
		now = now.Add(long)
		t.Logf("%s: %d agents with %d providers each, %d servers\n%s",
			phase, len(f.agents), f.providers, len(f.servers.urls), s.report(f, long, before, f.usage(t)))
		f.check(t, phase, s, created, now)
	}
}

// check compares what the agents asked with what they had to.
func (f *fleet) check(t *testing.T, phase string, s *sample, created bool, now time.Time) {
	t.Helper()
	if s.conflicts+s.failed > 0 {
		t.Errorf("%s: %d passes failed: %q", phase, s.conflicts+s.failed, s.why)
	}
	// The version document, the tree; of each provider its inventories, traits and aggregates.
	first, writes := 2+3*f.providers, 0
	if created {
		// The version document, the tree, the name; the trait; each provider, its inventories and
		// its traits.
		writes = 1 + 3*f.providers
		first = 3 + writes
	}
	if phase != phaseCreate {
		writes = 0
	}
	if want := writes * len(f.agents); len(s.writes) != want {
		t.Errorf("%s: %d writes, want %d", phase, len(s.writes), want)
	}
	// The tree is looked at again in the first pass that comes when it is nine to ten tenths of the
	// refresh interval old; passes are an interval apart, and up to a twentieth more.
	interval, refresh := f.timings.Interval, f.config.Tracker.AssociationRefresh
	soonest, latest := refresh*9/10, refresh+interval*21/20
	wrong := 0
	for _, a := range f.agents {
		life := now.Sub(a.started)
		least, most := first+int(life/latest), first+int(life/soonest)
		if a.started.IsZero() || a.requests < least || a.requests > most {
			if wrong++; wrong <= 3 {
				t.Errorf("%s: agent %d, started at %v, made %d requests, want %d to %d",
					phase, a.number, a.started.Sub(dawn), a.requests, least, most)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%s: %d agents did not do what they had to", phase, wrong)
	}
}
