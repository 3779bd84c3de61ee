// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"math/rand/v2"
	"os/exec"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// galera is a cluster with a node for each server of Placement.
type galera struct{ *dbservers.Cluster }

const placementDB = "placement"

func (g galera) enter(t *testing.T, host int, cmd *exec.Cmd, name, address string) {
	t.Helper()
	g.Enter(t, host, cmd, name, address)
}

func (g galera) database(host int) string { return g.Inside(host, placementDB) }

func (g galera) separate(t *testing.T, host int) {
	t.Helper()
	g.Partition(t, len(g.Nodes)+host)
}

func (g galera) join(t *testing.T) {
	t.Helper()
	g.Heal(t)
}

func (g galera) whole(t *testing.T) {
	t.Helper()
	g.WaitSynced(t)
}

func (g galera) faults(t *testing.T, _ *rand.Rand) (out []fault) {
	for n, node := range g.Nodes {
		out = append(out,
			fault{name: "a node is killed", takes: []string{database}, strike: func() { node.Kill(t) }, heal: func() { node.Start(t) }},
			fault{name: "a node is stopped", takes: []string{database}, strike: func() { node.Pause(t) }, heal: func() {
				node.Continue(t)
				g.whole(t)
			}},
			fault{name: "a node ends", takes: []string{database}, strike: func() { node.Stop(t) }, heal: func() { node.Start(t) }},
			fault{name: "a node is cut off with its server", takes: []string{database, wires}, strike: func() { g.Partition(t, n, len(g.Nodes)+n) }, heal: func() {
				g.Heal(t)
				g.whole(t)
			}},
			fault{name: "a node is cut off from nodes", takes: []string{database, wires}, strike: func() { g.Partition(t, n) }, heal: func() {
				g.Heal(t)
				g.whole(t)
			}},
			fault{name: "the disk of a node is full", takes: []string{database}, strike: func() { node.Fill(t) }, heal: func() {
				// It may have ended, or be about to.
				node.Kill(t)
				node.Free(t)
				node.Start(t)
			}},
			fault{name: "two nodes are stopped", takes: []string{database}, strike: func() {
				node.Pause(t)
				g.Nodes[(n+1)%len(g.Nodes)].Pause(t)
			}, heal: func() {
				node.Continue(t)
				g.Nodes[(n+1)%len(g.Nodes)].Continue(t)
				g.whole(t)
			}},
		)
	}
	return out
}

// TestDatabasesHistoriesGalera: three servers on three nodes of a Galera cluster answer as one
// Placement, whatever of them is killed, stopped, cut off or full.
func TestDatabasesHistoriesGalera(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dice := rand.New(rand.NewPCG(seed(t), 0)) //nolint:gosec // chance, not secrets
	g := galera{dbservers.StartGalera(t, replicaCount, dbservers.Options{
		Networks: true, Hosts: replicaCount, Disk: "600m", Provider: []string{"evs.keepalive_period=PT0.5S", "evs.suspect_timeout=PT2S"},
	})}
	g.Database(t, placementDB)
	newSite(t, g, dice).histories(t)
}

// pair is a PostgreSQL server with its standby.
type pair struct{ *dbservers.Pair }

func (p pair) enter(t *testing.T, host int, cmd *exec.Cmd, name, address string) {
	t.Helper()
	p.Enter(t, host, cmd, name, address)
}

func (p pair) database(int) string { return p.DSN(placementDB) }

func (p pair) separate(t *testing.T, host int) {
	t.Helper()
	p.Partition(t, 2+host)
}

func (p pair) join(t *testing.T) {
	t.Helper()
	p.Heal(t)
}

func (p pair) whole(t *testing.T) {
	t.Helper()
	p.WaitSynchronous(t)
}

func (p pair) faults(t *testing.T, _ *rand.Rand) (out []fault) {
	primary, standby := func() *dbservers.Server { return p.Primary }, func() *dbservers.Server { return p.Standby }
	for n, which := range []func() *dbservers.Server{primary, standby} {
		name := []string{"the primary", "the standby"}[n]
		start := func() {
			testproc.Eventually(t, 2*testproc.Patience, name+" is back", func() error {
				if s := which(); !s.Running() { // after a full disk, it may also end by itself now
					s.Kill(t)
					s.Start(t)
				}
				return p.Synchronous(t.Context())
			})
		}
		out = append(out,
			fault{name: name + " is killed", takes: []string{database}, strike: func() { which().Kill(t) }, heal: start},
			fault{name: name + " ends", takes: []string{database}, strike: func() { which().Stop(t) }, heal: start},
			fault{name: name + " is stopped", takes: []string{database}, strike: func() { which().Pause(t) }, heal: func() {
				which().Continue(t)
				p.whole(t)
			}},
			fault{name: name + " is cut off", takes: []string{database, wires}, strike: func() { p.Partition(t, p.Number(which())) }, heal: func() {
				p.Heal(t)
				p.whole(t)
			}},
			fault{name: "the disk of " + name + " is full", takes: []string{database}, strike: func() { which().Fill(t) }, heal: func() {
				which().Free(t)
				start()
			}},
		)
	}
	// The former primary answers no requests any more when the standby is promoted (fencing).
	promoted := func(name string, end func()) fault {
		return fault{name: name, takes: []string{database}, strike: func() {
			end()
			p.Promote(t)
		}, heal: func() { p.Rejoin(t) }}
	}
	out = append(out,
		promoted("the primary is killed and the standby promoted", func() { p.Primary.Kill(t) }),
		promoted("the primary ends and the standby is promoted", func() { p.Primary.Stop(t) }),
		promoted("the primary is stopped and the standby promoted", func() { p.Primary.Pause(t) }),
	)
	out = append(out, fault{name: "the primary is cut off and the standby promoted", takes: []string{database, wires}, strike: func() {
		p.Partition(t, p.Number(p.Primary))
		p.Promote(t)
	}, heal: func() {
		p.Standby.Kill(t)
		p.Heal(t)
		p.Rejoin(t)
	}})
	return out
}

// TestDatabasesHistoriesPostgreSQL: three servers on PostgreSQL with a standby answer as one
// Placement, whatever of them is killed, stopped, cut off or full, and whichever of the two is the
// primary.
func TestDatabasesHistoriesPostgreSQL(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dice := rand.New(rand.NewPCG(seed(t), 0)) //nolint:gosec // chance, not secrets
	p := pair{dbservers.StartPostgreSQLPair(t, dbservers.Options{
		Networks: true, Hosts: replicaCount, Disk: "600m", Settings: []string{"wal_keep_size=64MB", "max_wal_size=128MB", "min_wal_size=32MB"},
	})}
	p.Primary.Database(t, placementDB)
	newSite(t, p, dice).histories(t)
}
