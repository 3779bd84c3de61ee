// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const placementDB = "placement"

// onGalera is a cluster with a node for each server of Placement.
func onGalera(t *testing.T, g *dbservers.Cluster) testEngine {
	t.Helper()
	whole := func(t testing.TB) { g.WaitSynced(t) }
	cut := func(nodes ...int) step { return func(t testing.TB) { g.Partition(t, nodes...) } }
	e := testEngine{
		enter: g.Enter, database: func(host int) string { return g.Inside(host, placementDB) },
		separate: func(host int) step { return cut(len(g.Nodes) + host) }, join: g.Heal, whole: whole,
	}
	for n, node := range g.Nodes {
		other := g.Nodes[(n+1)%len(g.Nodes)]
		e.faults = append(e.faults,
			fault{"a node is killed", alone, steps{node.Kill}, steps{node.Start}},
			fault{"a node is stopped", alone, steps{node.Pause}, steps{node.Continue, whole}},
			fault{"a node ends", alone, steps{node.Stop}, steps{node.Start}},
			fault{"a node is cut off with its server", wired, steps{cut(n, len(g.Nodes)+n)}, steps{g.Heal, whole}},
			fault{"a node is cut off from nodes", wired, steps{cut(n)}, steps{g.Heal, whole}},
			// It may have ended, or be about to.
			fault{"the disk of a node is full", alone, steps{node.Fill}, steps{node.Kill, node.Free, node.Start}},
			fault{"two nodes are stopped", alone, steps{node.Pause, other.Pause},
				steps{node.Continue, other.Continue, whole}},
		)
	}
	return e
}

// TestDatabasesHistoriesGalera: three servers on three nodes of a Galera cluster answer as one
// Placement, whatever of them is killed, stopped, cut off or full.
func TestDatabasesHistoriesGalera(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	dice := newDice(testproc.Seed(t), 0)
	g := dbservers.StartGalera(t, replicaCount, dbservers.Options{
		Networks: true, Hosts: replicaCount, Disk: "600m",
		Provider: []string{"evs.keepalive_period=PT0.5S", "evs.suspect_timeout=PT2S"},
	})
	g.Database(t, placementDB)
	newSite(t, onGalera(t, g), dice).histories(t)
}

// onPair is a PostgreSQL server with its standby.
func onPair(t *testing.T, p *dbservers.Pair) testEngine {
	t.Helper()
	cut := func(nodes ...int) step { return func(t testing.TB) { p.Partition(t, nodes...) } }
	e := testEngine{
		enter: p.Enter, database: func(int) string { return p.DSN(placementDB) },
		separate: func(host int) step { return cut(2 + host) }, join: p.Heal, whole: p.WaitSynchronous,
	}
	// Which server is the primary changes.
	type action func(*dbservers.Server, testing.TB)
	primary := func(do action) step { return func(t testing.TB) { do(p.Primary, t) } }
	standby := func(do action) step { return func(t testing.TB) { do(p.Standby, t) } }
	kill, end, pause := (*dbservers.Server).Kill, (*dbservers.Server).Stop, (*dbservers.Server).Pause
	isolate := func(s *dbservers.Server, t testing.TB) { p.Partition(t, p.Number(s)) }
	for n, the := range []func(action) step{primary, standby} {
		name := []string{"the primary", "the standby"}[n]
		start := the(func(s *dbservers.Server, t testing.TB) {
			testproc.Eventually(t, 2*testproc.Patience, name+" is back", func() error {
				if !s.Running() { // after a full disk, it may also end by itself now
					s.Kill(t)
					s.Start(t)
				}
				return p.Synchronous(t.Context())
			})
		})
		goOn, free := the((*dbservers.Server).Continue), the((*dbservers.Server).Free)
		e.faults = append(e.faults,
			fault{name + " is killed", alone, steps{the(kill)}, steps{start}},
			fault{name + " ends", alone, steps{the(end)}, steps{start}},
			fault{name + " is stopped", alone, steps{the(pause)}, steps{goOn, p.WaitSynchronous}},
			fault{name + " is cut off", wired, steps{the(isolate)}, steps{p.Heal, p.WaitSynchronous}},
			fault{"the disk of " + name + " is full", alone, steps{the((*dbservers.Server).Fill)}, steps{free, start}},
		)
	}
	// The former primary answers no requests any more when the standby is promoted (fencing).
	e.faults = append(e.faults,
		fault{"the primary is killed and the standby promoted", alone,
			steps{primary(kill), p.Promote}, steps{p.Rejoin}},
		fault{"the primary ends and the standby is promoted", alone, steps{primary(end), p.Promote}, steps{p.Rejoin}},
		fault{"the primary is stopped and the standby promoted", alone,
			steps{primary(pause), p.Promote}, steps{p.Rejoin}},
		fault{
			"the primary is cut off and the standby promoted", wired,
			steps{primary(isolate), p.Promote}, steps{standby(kill), p.Heal, p.Rejoin},
		},
	)
	return e
}

// TestDatabasesHistoriesPostgreSQL: three servers on PostgreSQL with a standby answer as one
// Placement, whatever of them is killed, stopped, cut off or full, and whichever of the two is the
// primary.
func TestDatabasesHistoriesPostgreSQL(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	dice := newDice(testproc.Seed(t), 0)
	p := dbservers.StartPostgreSQLPair(t, dbservers.Options{
		Networks: true, Hosts: replicaCount, Disk: "600m",
		Settings: []string{"wal_keep_size=64MB", "max_wal_size=128MB", "min_wal_size=32MB"},
	})
	p.Primary.Database(t, placementDB)
	newSite(t, onPair(t, p), dice).histories(t)
}
