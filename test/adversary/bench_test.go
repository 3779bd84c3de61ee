// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"crypto/tls"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// cost is how long requests took.
type cost []time.Duration

func (c cost) report(b *testing.B) {
	slices.Sort(c)
	b.ReportMetric(float64(c[len(c)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(c[len(c)*99/100].Microseconds()), "p99-µs")
}

// holders are three that may write the victim's inventories, by the names of their identities.
var holders = map[string]string{"certificate": "host", "host-token": "token of the host", "service-token": "service"}

// BenchmarkWrite is the write of an inventory on a connection that is open.
func BenchmarkWrite(b *testing.B) {
	s := newSite(b)
	for name, holder := range holders {
		b.Run(name, func(b *testing.B) {
			i := s.as(holder)
			p, c, took := s.servePlacement(b), s.client(i), cost{}
			generation := 2
			for b.Loop() {
				if generation > 5000 { // a host does not write without end
					b.StopTimer()
					p, generation = s.servePlacement(b), 2
					b.StartTimer()
				}
				begun := time.Now()
				succeed(b, c, p.url, i, offers(victimProvider, generation, object{"total": 10 + generation%7}))
				took = append(took, time.Since(begun))
				generation++
			}
			took.report(b)
		})
	}
}

// agents is how many restart at once.
const agents = 1000

// BenchmarkRestart is the restart of 1,000 agents: each makes a connection of its own and reads its
// tree, as many at once as there are in a second of jitter.
func BenchmarkRestart(b *testing.B) {
	s := newSite(b)
	for name, holder := range holders {
		b.Run(name, func(b *testing.B) {
			i, p := s.as(holder), s.servePlacement(b)
			clients := make([]*http.Client, agents)
			for n := range clients {
				clients[n] = s.client(i)
			}
			took := make(cost, 0, agents)
			for b.Loop() {
				var mu sync.Mutex
				var group errgroup.Group
				group.SetLimit(100)
				for _, c := range clients {
					c.CloseIdleConnections()
					group.Go(func() error {
						begun := time.Now()
						_, answer := send(b, c, p.url, i, get("/resource_providers?in_tree="+victimNode))
						mu.Lock()
						defer mu.Unlock()
						took = append(took, time.Since(begun))
						testproc.Equal(b, answer.Code, http.StatusOK, "reading the tree: %d")
						return nil
					})
				}
				check(b, group.Wait())
			}
			b.ReportMetric(float64(agents*b.N)/b.Elapsed().Seconds(), "handshakes/s")
			took.report(b)
		})
	}
}

// TestClientsOfBenchmarks: each agent has a connection of its own, of TLS 1.3.
func TestClientsOfBenchmarks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	p := s.servePlacement(t)
	for name, holder := range holders {
		r := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/", http.NoBody)).Or(t)
		answer := testproc.Try(s.client(s.as(holder)).Do(r)).Or(t)
		check(t, answer.Body.Close())
		testproc.Equal(t, answer.TLS.Version, tls.VersionTLS13, "%s: TLS %x", name)
	}
}
