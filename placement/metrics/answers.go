// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
)

// unmatched is the route of requests whose path is none of the API's, or that were refused before it was looked at.
const unmatched = "unmatched"

// latencies are bounds in seconds: a read takes tens of microseconds, a durable write about a millisecond, and what takes
// more than a second is a full disk or a far database.
var latencies = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

// answers count requests.
type answers struct {
	requests  *prometheus.CounterVec
	durations *prometheus.HistogramVec
	conflicts *prometheus.CounterVec
	received  prometheus.Counter
	sent      prometheus.Counter

	// known has the series of each kind of answer that there was, so that counting one looks up no labels.
	known atomic.Pointer[map[kind]series]
	grow  sync.Mutex // held by whoever replaces known
}

// kind is what the series of an answer follow from.
type kind struct {
	route, method string
	status        int
}

type series struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

func newAnswers() answers {
	return answers{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_http_requests_total", Help: "Requests that were answered.",
		}, []string{"route", "method", "status"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "placement_http_request_duration_seconds", Help: "Time from a request's headers to its answer.", Buckets: latencies,
		}, []string{"route", "method"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_conflicts_total", Help: "Requests that were answered with 409, by error code; placement.concurrent_update is a generation that moved.",
		}, []string{"code"}),
		received: prometheus.NewCounter(prometheus.CounterOpts{Name: "placement_http_received_bytes_total", Help: "Bytes of request bodies."}),
		sent:     prometheus.NewCounter(prometheus.CounterOpts{Name: "placement_http_sent_bytes_total", Help: "Bytes of answers' bodies."}),
	}
}

func (c *answers) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.requests, c.durations, c.conflicts, c.received, c.sent}
}

// Answered implements api.Observer. Cost: about 0.2 µs and no allocation.
func (m *Metrics) Answered(a osapi.Answer) {
	c := &m.answers
	s := c.series(kind{a.Route, a.Method, a.Status})
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

func (c *answers) series(k kind) series {
	if known := c.known.Load(); known != nil {
		if s, ok := (*known)[k]; ok {
			return s
		}
	}
	c.grow.Lock()
	defer c.grow.Unlock()
	all := map[kind]series{}
	if known := c.known.Load(); known != nil {
		all = maps.Clone(*known)
	}
	route := k.route
	if route == "" {
		route = unmatched
	}
	s := series{c.requests.WithLabelValues(route, k.method, strconv.Itoa(k.status)), c.durations.WithLabelValues(route, k.method)}
	all[k] = s
	c.known.Store(&all)
	return s
}

// searches count searches for allocation candidates.
type searches struct {
	candidates, steps prometheus.Histogram
}

func newSearches() searches {
	return searches{
		candidates: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_candidates_returned", Help: "Allocation candidates in an answer.", Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000},
		}),
		steps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_candidates_search_steps", Help: "Choices of a provider that a search for candidates tried.", Buckets: prometheus.ExponentialBuckets(1, 10, 8),
		}),
	}
}

func (c *searches) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.candidates, c.steps}
}

// Searched implements api.Observer.
func (m *Metrics) Searched(s api.Search) {
	m.searches.candidates.Observe(float64(s.Candidates))
	m.searches.steps.Observe(float64(s.Steps))
}
