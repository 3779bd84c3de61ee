// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Metrics are those of one service. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	answers  answers
	commits  commits
	searches searches
}

var (
	_ api.Observer    = (*Metrics)(nil)
	_ ledger.Observer = (*Metrics)(nil)
)

// New makes metrics that have counted nothing yet, with those of the Go runtime and of the process.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), answers: newAnswers(), commits: newCommits(), searches: newSearches()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "placement_build_info", Help: "Always 1; the labels say which build serves.",
		ConstLabels: prometheus.Labels{"version": version.Number(), "go": version.Go()},
	})
	build.Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.answers.collectors()...)
	m.registry.MustRegister(m.commits.collectors()...)
	m.registry.MustRegister(m.searches.collectors()...)
	return m
}

// Watch adds what is read only when somebody looks: of the ledger its size, of the API what it works on, of the
// database why writes to it fail. It is called once.
func (m *Metrics) Watch(l *ledger.Ledger, a *api.API, problem func() error) {
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	gauge("placement_http_requests_in_flight", "Requests that are worked on now.", func() float64 { return float64(a.Load().Requests) })
	gauge("placement_http_body_bytes_in_flight", "Memory that the bodies of requests take now, in bytes.", func() float64 { return float64(a.Load().BodyBytes) })
	gauge("placement_database_writable", "1 if the database takes writes as far as is known, 0 if not.", func() float64 {
		if problem() != nil {
			return 0
		}
		return 1
	})
	gauge("placement_writes_waiting", "Writes that wait for their turn now.", func() float64 { return float64(l.Waiting()) })
	gauge("placement_snapshot_version", "Version of the state that this server shows; servers of one database show the same, soon.", func() float64 { return float64(l.Current().Version()) })
	gauge("placement_resource_providers", "Resource providers there are.", func() float64 { return float64(l.Current().ProviderCount()) })
	gauge("placement_consumers", "Consumers that have a record.", func() float64 { return float64(l.Current().ConsumerCount()) })
	gauge("placement_consumers_missing", "Consumers of allocations that have no record; run placement db online-data-migrations when there are any.", func() float64 { return float64(l.Current().MissingConsumers()) })
}

// Handler answers GET /metrics in the formats that Prometheus reads.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
