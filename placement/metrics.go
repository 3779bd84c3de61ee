// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// Metrics are those of one service. It is safe for concurrent use.
type metrics struct {
	registry *prometheus.Registry
	requests requestMetrics
	commits  commitMetrics
	searches searchMetrics
}

var (
	_ api.Observer    = (*metrics)(nil)
	_ ledger.Observer = (*metrics)(nil)
)

// New makes metrics that have counted nothing yet, with those of the Go runtime and of the process.
func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), requests: newRequestMetrics(), commits: newCommitMetrics(), searches: newSearchMetrics()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "placement_build_info", Help: "Always 1; the labels say which build serves.",
		ConstLabels: prometheus.Labels{"version": version.Number(), "go": version.Go()},
	})
	build.Set(1)
	m.registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.registry.MustRegister(m.requests.collectors()...)
	m.registry.MustRegister(m.commits.collectors()...)
	m.registry.MustRegister(m.searches.collectors()...)
	return m
}

// watch adds the metrics that are read at each scrape: of the ledger its size, of the API its
// requests in progress, of the database whether writes work. It is called once.
func (m *metrics) watch(l *ledger.Ledger, a *api.API, problem func() error) {
	gauge := func(name, help string, read func() float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	gauge("placement_http_requests_in_flight", "Requests in progress.", func() float64 { return float64(a.Load().Requests) })
	gauge("placement_http_body_bytes_in_flight", "Memory of the bodies of requests in progress, in bytes.", func() float64 { return float64(a.Load().BodyBytes) })
	gauge("placement_database_writable", "1 if no problem with writes to the database is known, 0 otherwise.", func() float64 {
		if problem() != nil {
			return 0
		}
		return 1
	})
	gauge("placement_writes_waiting", "Writes in the queue.", func() float64 { return float64(l.Waiting()) })
	gauge("placement_snapshot_version", "Version of the state in memory; servers of one database converge to the same version.", func() float64 { return float64(l.Current().Version()) })
	gauge("placement_resource_providers", "Number of resource providers.", func() float64 { return float64(l.Current().ProviderCount()) })
	gauge("placement_consumers", "Consumers that have a record.", func() float64 { return float64(l.Current().ConsumerCount()) })
	gauge("placement_consumers_missing", "Consumers of allocations without a record; run placement db online-data-migrations if there are any.", func() float64 { return float64(l.Current().MissingConsumers()) })
}

// handler answers GET /metrics in the formats that Prometheus reads.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// unmatchedRoute is the route of requests whose path does not belong to the API, or that were
// refused before it was looked at.
const unmatchedRoute = "unmatched"

// latencyBuckets are bounds in seconds: a read takes tens of microseconds, a durable write about a
// millisecond, and what takes more than a second is a full disk or a far database.
var latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

// answers count requests.
type requestMetrics struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	conflicts *prometheus.CounterVec
	received  prometheus.Counter
	sent      prometheus.Counter

	// known has the series of each requestLabels of answer that there was, so that counting one
	// looks up no labels.
	known atomic.Pointer[map[requestLabels]requestSeries]
	grow  sync.Mutex // held while known is replaced
}

// requestLabels is what the series of an answer follow from.
type requestLabels struct {
	route, method string
	status        int
}

type requestSeries struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

func newRequestMetrics() requestMetrics {
	return requestMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_http_requests_total", Help: "Requests that were answered.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "placement_http_request_duration_seconds", Help: "Time from a request's headers to its answer.", Buckets: latencyBuckets,
		}, []string{"route", "method"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_conflicts_total", Help: "Requests that were answered with 409, by error code; placement.concurrent_update is a generation that moved.",
		}, []string{"code"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: "placement_http_received_bytes_total", Help: "Bytes of request bodies."}),
		sent:     prometheus.NewCounter(prometheus.CounterOpts{Name: "placement_http_sent_bytes_total", Help: "Bytes of answers' bodies."}),
	}
}

func (c *requestMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.durations, c.conflicts, c.received, c.sent}
}

// Answered implements api.Observer. Cost: about 0.2 µs and no allocation.
func (m *metrics) Answered(a osapi.Answer) {
	c := &m.requests
	s := c.series(requestLabels{a.Route, a.Method, a.Status})
	s.requests.Inc()
	s.duration.Observe(a.Duration.Seconds())
	if a.Received > 0 {
		c.received.Add(float64(a.Received))
	}
	if a.Sent > 0 {
		c.sent.Add(float64(a.Sent))
	}
	if a.Status == http.StatusConflict {
		c.conflicts.WithLabelValues(a.Code).Inc()
	}
}

func (c *requestMetrics) series(k requestLabels) requestSeries {
	if known := c.known.Load(); known != nil {
		if s, ok := (*known)[k]; ok {
			return s
		}
	}
	c.grow.Lock()
	defer c.grow.Unlock()
	all := map[requestLabels]requestSeries{}
	if known := c.known.Load(); known != nil {
		all = maps.Clone(*known)
	}
	route := k.route
	if route == "" {
		route = unmatchedRoute
	}
	s := requestSeries{c.requests.WithLabelValues(route, k.method, strconv.Itoa(k.status)), c.durations.WithLabelValues(route, k.method)}
	all[k] = s
	c.known.Store(&all)
	return s
}

// searches count searches for allocation candidates.
type searchMetrics struct {
	candidates, steps prometheus.Histogram
}

func newSearchMetrics() searchMetrics {
	return searchMetrics{
		candidates: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_candidates_returned", Help: "Allocation candidates in an answer.", Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000},
		}),
		steps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_candidates_search_steps", Help: "Choices of a provider that a search for candidates tried.", Buckets: prometheus.ExponentialBuckets(1, 10, 8),
		}),
	}
}

func (c *searchMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.candidates, c.steps}
}

// Searched implements api.Observer.
func (m *metrics) Searched(s api.Search) {
	m.searches.candidates.Observe(float64(s.Candidates))
	m.searches.steps.Observe(float64(s.Steps))
}

// commits count what a ledger does with its store.
type commitMetrics struct {
	outcomes *prometheus.CounterVec
	duration prometheus.Histogram
	writes   prometheus.Histogram
	refused  prometheus.Counter
	changes  prometheus.Counter

	followed       *prometheus.CounterVec
	followDuration prometheus.Histogram
	versions       prometheus.Counter
}

func newCommitMetrics() commitMetrics {
	c := commitMetrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_commits_total", Help: "Attempts to commit to the database, by outcome: durable; conflict and reload are retried; failed and unknown are answered with an error.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_commit_duration_seconds", Help: "Time that the database took for a commit.", Buckets: latencyBuckets,
		}),
		writes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_commit_writes", Help: "Writes that shared a commit.", Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_writes_refused_total", Help: "Writes that were refused by Placement's rules while others of their batch were committed.",
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_committed_changes_total", Help: "Changes of rows that were committed.",
		}),
		followed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_follows_total", Help: "Refreshes with the commits of other servers, by what was read: the changes or the whole state.",
		}, []string{"read"}),
		followDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_follow_duration_seconds", Help: "Time that a refresh with the commits of other servers took.", Buckets: latencyBuckets,
		}),
		versions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_followed_versions_total", Help: "Commits of other servers that this server has read.",
		}),
	}
	// What never happened is shown as 0, so that a rate can be taken from the start.
	for o := ledger.Durable; o <= ledger.Unknown; o++ {
		c.outcomes.WithLabelValues(o.String())
	}
	for _, whole := range []bool{false, true} {
		c.followed.WithLabelValues(readWord(whole))
	}
	return c
}

func readWord(whole bool) string {
	if whole {
		return "whole"
	}
	return "changes"
}

func (c *commitMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.outcomes, c.duration, c.writes, c.refused, c.changes, c.followed, c.followDuration, c.versions}
}

// Committed implements ledger.Observer.
func (m *metrics) Committed(commit ledger.Commit) {
	c := &m.commits
	c.outcomes.WithLabelValues(commit.Outcome.String()).Inc()
	c.duration.Observe(commit.Duration.Seconds())
	if commit.Outcome == ledger.Durable {
		c.writes.Observe(float64(commit.Writes))
		c.changes.Add(float64(commit.Changes))
		c.refused.Add(float64(commit.Refused))
	}
}

// Followed implements ledger.Observer.
func (m *metrics) Followed(f ledger.Follow) {
	c := &m.commits
	c.followed.WithLabelValues(readWord(f.Whole)).Inc()
	c.followDuration.Observe(f.Duration.Seconds())
	if f.Versions > 0 {
		c.versions.Add(float64(f.Versions))
	}
}
