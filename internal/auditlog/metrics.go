// SPDX-License-Identifier: Apache-2.0

package auditlog

import "github.com/prometheus/client_golang/prometheus"

// Metrics count the records of a log.
type Metrics struct{ records *prometheus.CounterVec }

func newMetrics() *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "compute_agent_audit_records_total",
		Help: "Records of the audit log, by destination (file, journal, or the queue before them) and outcome: " +
			"written or lost. Only with an audit log.",
	}, []string{"destination", "outcome"})}
	for _, destination := range []string{"file", "journal", "queue"} {
		m.records.WithLabelValues(destination, "lost")
		if destination != "queue" {
			m.records.WithLabelValues(destination, "written")
		}
	}
	return m
}

func (m *Metrics) count(destination string, written bool, n int) {
	outcome := "lost"
	if written {
		outcome = "written"
	}
	m.records.WithLabelValues(destination, outcome).Add(float64(n))
}

// Collector is what Prometheus collects of a log; nil of none.
func (l *Log) Collector() prometheus.Collector {
	if l == nil {
		return nil
	}
	return l.metrics.records
}
