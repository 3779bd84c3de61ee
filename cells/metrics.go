// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
