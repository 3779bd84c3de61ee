// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Metrics are those of one agent. It is safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	now      func() time.Time
	passes   passes
	reshapes reshapes
	requests *requests
	nodes    *names
}

var _ resourcetracker.Observer = (*Metrics)(nil)

// New makes metrics that have counted nothing yet, with those of the Go runtime and of the process. now is the clock; nil: the
// real one.
func New(now func() time.Time) *Metrics {
	if now == nil {
		now = time.Now
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(), now: now, passes: newPasses(), reshapes: newReshapes(), requests: newRequests(),
		nodes: &names{most: maxNodes},
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "compute_agent_build_info", Help: "Always 1; the labels say which build runs.",
		ConstLabels: prometheus.Labels{"version": version.Number(), "go": version.Go()},
	})
	build.Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.passes.collectors()...)
	m.registry.MustRegister(m.reshapes.collectors()...)
	m.registry.MustRegister(m.requests.collectors()...)
	return m
}

// Handler answers GET /metrics in the formats that Prometheus reads.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// other is what stands for all names beyond a bound.
const other = "other"

// maxNodes is how many nodes have series of their own. A host has one; a driver of bare metal may have hundreds.
const maxNodes = 500

// names bound the values of a label: the first so many have their own.
type names struct {
	most  int
	mu    sync.Mutex
	known map[string]bool
}

// label returns the name, or "other".
func (n *names) label(name string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known[name] {
		return name
	}
	if len(n.known) >= n.most {
		return other
	}
	if n.known == nil {
		n.known = map[string]bool{}
	}
	n.known[name] = true
	return name
}

// outcome is the label of how something ended.
func outcome(err error) string {
	if err != nil {
		return "failed"
	}
	return "succeeded"
}

// durations are bounds in seconds, from a look at what is remembered to a driver that is about to be given up.
var durations = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
