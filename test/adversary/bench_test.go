// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// cost is how long requests took.
type cost []time.Duration

func (c cost) report(b *testing.B) {
	slices.Sort(c)
	b.ReportMetric(float64(c[len(c)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(c[len(c)*99/100].Microseconds()), "p99-µs")
}

// holders are three that may write the victim's inventories.
func holders(s *site) map[string]identity {
	all := map[string]identity{}
	for _, i := range s.identities() {
		switch i.name {
		case "host":
			all["certificate"] = i
		case "token of the host":
			all["host-token"] = i
		case "service":
			all["service-token"] = i
		}
	}
	return all
}

// BenchmarkWrite is the write of an inventory on a connection that is open.
func BenchmarkWrite(b *testing.B) {
	s := newSite(b)
	for name, i := range holders(s) {
		b.Run(name, func(b *testing.B) {
			p, c, took := s.servePlacement(b), s.client(i), cost{}
			generation := 2
			for b.Loop() {
				if generation > 5000 { // a host does not write without end
					b.StopTimer()
					p, generation = s.servePlacement(b), 2
					b.StartTimer()
				}
				body := object{"resource_provider_generation": generation, "inventories": object{"VCPU": object{"total": 10 + generation%7}}}
				begun := time.Now()
				got, text := send(b, c, p.url, i, asked{
					method: http.MethodPut, path: victimProvider + "/inventories", body: body, headers: map[string]string{"OpenStack-API-Version": microversion},
				})
				took = append(took, time.Since(begun))
				if got != answered || text[0] != '2' {
					b.Fatal(got, text)
				}
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
	for name, i := range holders(s) {
		b.Run(name, func(b *testing.B) {
			p := s.servePlacement(b)
			clients := make([]*http.Client, agents)
			for n := range clients {
				clients[n] = s.client(i)
			}
			took := make(cost, 0, agents)
			for b.Loop() {
				var mu sync.Mutex
				var group sync.WaitGroup
				slots := make(chan struct{}, 100)
				for _, c := range clients {
					c.CloseIdleConnections()
					slots <- struct{}{}
					group.Go(func() {
						defer func() { <-slots }()
						begun := time.Now()
						got, text := send(b, c, p.url, i, asked{method: http.MethodGet, path: "/resource_providers?in_tree=" + victimNode, headers: map[string]string{"OpenStack-API-Version": microversion}})
						mu.Lock()
						defer mu.Unlock()
						took = append(took, time.Since(begun))
						if got != answered || text[0] != '2' {
							b.Error(got, text)
						}
					})
				}
				group.Wait()
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
	for name, i := range holders(s) {
		c := s.client(i)
		r := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/", http.NoBody)).Or(t)
		answer := testproc.Try(c.Do(r)).Or(t)
		check(t, answer.Body.Close())
		if answer.TLS.Version != tls.VersionTLS13 {
			t.Error(fmt.Errorf("%s: TLS %x", name, answer.TLS.Version))
		}
	}
}
