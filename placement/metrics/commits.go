// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/placement/ledger"
)

// commits count what a ledger does with its store.
type commits struct {
	outcomes *prometheus.CounterVec
	duration prometheus.Histogram
	writes   prometheus.Histogram
	refused  prometheus.Counter
	changes  prometheus.Counter

	followed       *prometheus.CounterVec
	followDuration prometheus.Histogram
	versions       prometheus.Counter
}

func newCommits() commits {
	c := commits{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "placement_commits_total", Help: "Tries to commit to the database, by what became of them: durable; conflict and reload are tried again; failed and unknown are answered with an error.",
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_commit_duration_seconds", Help: "Time that the database took for a commit.", Buckets: latencies,
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
			Name: "placement_follows_total", Help: "Times that this server caught up with others' commits: by reading the changes, or the whole state.",
		}, []string{"read"}),
		followDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "placement_follow_duration_seconds", Help: "Time that catching up with others' commits took.", Buckets: latencies,
		}),
		versions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "placement_followed_versions_total", Help: "Commits of others that this server caught up with.",
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

func (c *commits) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.outcomes, c.duration, c.writes, c.refused, c.changes, c.followed, c.followDuration, c.versions}
}

// Committed implements ledger.Observer.
func (m *Metrics) Committed(commit ledger.Commit) {
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
func (m *Metrics) Followed(f ledger.Follow) {
	c := &m.commits
	c.followed.WithLabelValues(readWord(f.Whole)).Inc()
	c.followDuration.Observe(f.Duration.Seconds())
	if f.Versions > 0 {
		c.versions.Add(float64(f.Versions))
	}
}
