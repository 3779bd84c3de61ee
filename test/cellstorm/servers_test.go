// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"math/rand/v2"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
)

// servers are the database servers of a world.
type servers struct {
	// database makes an empty database and returns its DSN.
	database func(t testing.TB, name string) string
	// processes is how many of what has its database there: cells by name, and "api".
	processes map[string]int

	// A storm disturbs the server, and the connections to it.
	server *dbservers.Server
	proxy  *dbservers.Proxy
}

// stormServers starts a server that loses nothing when it is killed. The API database is there, and
// those of two cells, of which one has two processes.
func stormServers(t *testing.T, start func(testing.TB, dbservers.Options) *dbservers.Server) *servers {
	t.Helper()
	s := &servers{server: start(t, dbservers.Options{Durable: true})}
	s.processes = map[string]int{"api": *stormAPIs, "cell2": 1, "cell3": 2}
	s.database = s.server.Database
	s.proxy = dbservers.NewProxy(t, s.database(t, "first"))
	return s
}

// through is how processes reach a database: through what the test disturbs, with the password in a
// file.
func (s *servers) through(t testing.TB, dsn string) string {
	t.Helper()
	if s.proxy != nil {
		dsn = s.proxy.Through(t, dsn)
	}
	return dbservers.WithPasswordFile(t, dsn)
}

// faultyCommits is that one of so many commits has a fault while connections are disturbed.
const faultyCommits = 6

// victims are the server, which ends at once or in order, and the connections.
func (s *servers) victims(t *testing.T, r *rand.Rand) []victim {
	t.Helper()
	ends := []func(testing.TB){s.server.Kill, s.server.Stop}
	return []victim{
		{
			"the database server",
			func() func() {
				ends[0](t)
				ends[0], ends[1] = ends[1], ends[0]
				return func() { s.server.Start(t) }
			},
			func() func() { s.server.Pause(t); return func() { s.server.Continue(t) } },
		},
		{
			"connections to the database server",
			func() func() { s.proxy.Cut(); return func() {} },
			func() func() {
				s.proxy.Faults(func() dbservers.Fault {
					if r.IntN(faultyCommits) > 0 {
						return dbservers.None
					}
					return dbservers.LoseCommit + dbservers.Fault(r.IntN(int(dbservers.Silence)))
				})
				return func() { s.proxy.Faults(nil) }
			},
		},
	}
}
