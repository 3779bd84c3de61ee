// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/compute-agent/compute-agent/internal/version"
)

// What the names of metrics begin with.
const (
	prefixAPI  = "compute_agent_api_"
	prefixCell = "compute_agent_cell_"
)

// metricsReadTimeout bounds the database reads of a scrape.
const metricsReadTimeout = 5 * time.Second

// latencies are bounds in seconds: a read of a database takes some hundred microseconds, a durable
// write milliseconds, and what asks a cell that hangs takes its timeout.
var latencies = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// metricsPage is what Prometheus reads of one process.
type metricsPage struct{ registry *prometheus.Registry }

// newMetricsPage has the build, the Go runtime and the process.
func newMetricsPage(prefix, what string) metricsPage {
	p := metricsPage{prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: prefix + "build_info", Help: "Always 1; the labels say which build " + what + ".",
		ConstLabels: prometheus.Labels{"version": version.Number(), "go": version.Go()},
	})
	build.Set(1)
	p.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return p
}

// Handler answers GET /metrics in the formats that Prometheus reads.
func (p metricsPage) Handler() http.Handler {
	return promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// unmatched is the route of requests with an unknown path, or rejected before routing.
const unmatched = "unmatched"

// answerMetrics count requests.
type answerMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

func newAnswerMetrics(prefix, durations string) answerMetrics {
	return answerMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "http_requests_total", Help: "Requests that were answered.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "http_request_duration_seconds", Help: durations, Buckets: latencies,
		}, []string{"route", "method"}),
	}
}

func (a answerMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{a.requests, a.durations}
}

func (a answerMetrics) count(route, method string, status int) {
	a.requests.WithLabelValues(route, method, strconv.Itoa(status)).Inc()
}

func (a answerMetrics) time(route, method string, took time.Duration) {
	a.durations.WithLabelValues(route, method).Observe(took.Seconds())
}

// oneIf is 1 for yes.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// emitter gives what was read to Prometheus.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) count(d *prometheus.Desc, v uint64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}
