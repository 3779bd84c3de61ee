// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// metrics are the metrics of one service. They are safe for concurrent use.
type metrics struct {
	osapi.MetricsPage
	answers  *osapi.AnswerMetrics
	requests requestMetrics
	commits  commitMetrics
	searches searchMetrics
}

var (
	_ api.Observer        = (*metrics)(nil)
	_ transactor.Observer = (*metrics)(nil)
)

// newMetrics makes metrics that have counted nothing yet, with those of the Go runtime and of the
// process.
func newMetrics() *metrics {
	page := osapi.NewMetricsPage("placement_", "serves")
	m := &metrics{
		MetricsPage: page, answers: osapi.NewAnswerMetrics(
			page, osapi.AnswerMetricsOptions{Prefix: "placement_", Buckets: latencyBuckets}),
		requests: newRequestMetrics(), commits: newCommitMetrics(), searches: newSearchMetrics(),
	}
	m.MustRegister(m.requests.collectors()...)
	m.MustRegister(m.commits.collectors()...)
	m.MustRegister(m.searches.collectors()...)
	return m
}

// watch adds the metrics that are read at each scrape: of the ledger its size, of the API its
// requests in progress, of the database whether writes work. It is called once.
func (m *metrics) watch(l *transactor.Ledger, a *api.API, problem func() error) {
	gauge := func(name, help string, read func() float64) {
		m.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	gauge("placement_http_requests_in_flight",
		"Requests in progress.", func() float64 { return float64(a.Load().Requests) })
	gauge("placement_http_body_bytes_in_flight", "Memory of the bodies of requests in progress, in bytes.",
		func() float64 { return float64(a.Load().BodyBytes) })
	gauge("placement_database_writable",
		"1 if the database accepts writes as far as is known. 0 after a failed write until one succeeds, which is "+
			"tested every second, and while the file is missing from its path.",
		func() float64 {
			if problem() != nil {
				return 0
			}
			return 1
		})
	gauge("placement_writes_waiting", "Writes in the queue.", func() float64 { return float64(l.Waiting()) })
	gauge("placement_snapshot_version",
		"Version of the state in memory; servers of one database converge to the same version.",
		func() float64 { return float64(l.Current().Version()) })
	gauge("placement_snapshot_age_seconds",
		"Time since the state in memory was known to be the newest. Requests read the version of the database, so "+
			"it grows without them; 0 on SQLite.", func() float64 { return l.Age().Seconds() })
	gauge("placement_hosts_of_several_agents",
		"Hosts as which several agents report that are alive, as far as this server was asked by them: two machines "+
			"have one identity.", func() float64 { return float64(a.HostsOfSeveralAgents()) })
	gauge("placement_resource_providers", "Number of resource providers.",
		func() float64 { return float64(l.Current().ProviderCount()) })
	gauge("placement_consumers", "Consumers that have a record.",
		func() float64 { return float64(l.Current().ConsumerCount()) })
	gauge("placement_consumers_missing",
		"Consumers of allocations without a record; run placement db online-data-migrations if there are any.",
		func() float64 { return float64(l.Current().MissingConsumers()) })
}

// latencyBuckets are bounds in seconds: a read takes tens of microseconds, a durable write about a
// millisecond, and what takes more than a second is a full disk or a far database.
var latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

// requestMetrics count what Placement's answers have beside those of any service.
type requestMetrics struct {
	conflicts    *prometheus.CounterVec
	received     prometheus.Counter
	sent         prometheus.Counter
	stale        prometheus.Counter
	limited      prometheus.Counter
	overCapacity prometheus.Counter
}

func newRequestMetrics() requestMetrics {
	c := requestMetrics{
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_conflicts_total",
			Help: "Requests that were answered with 409, by error code. placement.concurrent_update is a generation " +
				"that changed: a few are usual, many mean that clients write the same provider at once.",
		}, []string{"code"}),
		received: prometheus.NewCounter(
			prometheus.CounterOpts{Name: "placement_http_received_bytes_total", Help: "Bytes of request bodies."}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "placement_http_sent_bytes_total",
			Help: "Bytes of answers' bodies."}),
		stale: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_stale_reads_total",
			Help: "Reads that were answered from the state in memory while the database could not be reached, see " +
				"[placement] stale_reads.",
		}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_host_writes_limited_total",
			Help: "Writes of hosts that were refused with 429, because the host wrote too much; the log " +
				"names the host.",
		}),
	}
	c.overCapacity = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "placement_host_over_capacity_total",
		Help: "Writes of hosts that were refused because the host reports more than it is admitted to; the log " +
			"names the host.",
	})
	c.conflicts.WithLabelValues(string(wire.CodeConcurrentUpdate)) // shown as 0 before the first one
	return c
}

func (r *requestMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.conflicts, r.received, r.sent, r.stale, r.limited, r.overCapacity}
}

// Answered implements api.Observer. Cost: about 0.2 µs and no allocation.
func (m *metrics) Answered(a osapi.Answer) {
	m.answers.Answered(a)
	c := &m.requests
	if a.Received > 0 {
		c.received.Add(float64(a.Received))
	}
	if a.Sent > 0 {
		c.sent.Add(float64(a.Sent))
	}
	if a.Status == http.StatusConflict {
		c.conflicts.WithLabelValues(a.Code).Inc()
	}
	if a.Code == string(wire.CodeHostCapacity) {
		c.overCapacity.Inc()
	}
}

// ReadStale implements api.Observer.
func (m *metrics) ReadStale(time.Duration) { m.requests.stale.Inc() }

// HostLimited implements api.Observer.
func (m *metrics) HostLimited() { m.requests.limited.Inc() }

// searchMetrics count searches for allocation candidates.
type searchMetrics struct {
	candidates, steps prometheus.Histogram
}

func newSearchMetrics() searchMetrics {
	return searchMetrics{
		candidates: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_candidates_returned", Help: "Allocation candidates in an answer.",
			Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000},
		}),
		steps: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "placement_candidates_search_steps",
			Help:    "Choices of a provider that a search for candidates tried.",
			Buckets: prometheus.ExponentialBuckets(1, 10, 8),
		}),
	}
}

func (s *searchMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{s.candidates, s.steps}
}

// Searched implements api.Observer.
func (m *metrics) Searched(s api.Search) {
	m.searches.candidates.Observe(float64(s.Candidates))
	m.searches.steps.Observe(float64(s.Steps))
}

// commitMetrics count what a ledger does with its store.
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
			Name: "placement_commits_total",
			Help: "Attempts to commit to the database, by outcome: durable; conflict and reload (another server " +
				"committed first) are retried; failed and unknown are answered with an error.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_commit_duration_seconds",
			Help: "Time that the database took for a commit.", Buckets: latencyBuckets,
		}),
		writes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_commit_writes", Help: "Writes that shared a commit.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 9),
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_writes_refused_total",
			Help: "Writes that were refused by Placement's rules while others of their batch were committed.",
		}),
		changes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_committed_changes_total", Help: "Changes of rows that were committed.",
		}),
		followed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_follows_total",
			Help: "Refreshes with the commits of other servers, by what was read: the changes, or the whole state, " +
				"which is rare.",
		}, []string{"read"}),
		followDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_follow_duration_seconds",
			Help: "Time that a refresh with the commits of other servers took.", Buckets: latencyBuckets,
		}),
		versions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_followed_versions_total", Help: "Commits of other servers that this server has read.",
		}),
	}
	// What never happened is shown as 0, so that a rate can be taken from the start.
	for o := transactor.Durable; o <= transactor.Unknown; o++ {
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
	return []prometheus.Collector{c.outcomes, c.duration,
		c.writes, c.refused, c.changes, c.followed, c.followDuration, c.versions}
}

// Committed implements transactor.Observer.
func (m *metrics) Committed(commit transactor.Commit) {
	c := &m.commits
	c.outcomes.WithLabelValues(commit.Outcome.String()).Inc()
	c.duration.Observe(commit.Duration.Seconds())
	if commit.Outcome == transactor.Durable {
		c.writes.Observe(float64(commit.Writes))
		c.changes.Add(float64(commit.Changes))
		c.refused.Add(float64(commit.Refused))
	}
}

// Followed implements transactor.Observer.
func (m *metrics) Followed(f transactor.Follow) {
	c := &m.commits
	c.followed.WithLabelValues(readWord(f.Whole)).Inc()
	c.followDuration.Observe(f.Duration.Seconds())
	if f.Versions > 0 {
		c.versions.Add(float64(f.Versions))
	}
}
