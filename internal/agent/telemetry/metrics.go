// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Metrics holds the metrics of one agent. It is safe for concurrent use.
type Metrics struct {
	osapi.MetricsPage
	now      func() time.Time
	passes   passes
	reshapes reshapes
	requests *requests
	nodes    *names
}

var _ resourcetracker.Observer = (*Metrics)(nil)

// NewMetrics returns metrics with zero counts, including those of the Go runtime and the process.
// now is the clock; nil means the real one.
func NewMetrics(now func() time.Time) *Metrics {
	if now == nil {
		now = time.Now
	}
	m := &Metrics{
		MetricsPage: osapi.NewMetricsPage("compute_agent_", "runs"), now: now, passes: newPasses(),
		reshapes: newReshapes(), requests: newRequests(),
		nodes: &names{limit: maxNodes},
	}
	m.MustRegister(m.passes.collectors()...)
	m.MustRegister(m.reshapes.collectors()...)
	m.MustRegister(m.requests.collectors()...)
	return m
}

// other is the label value that names beyond a limit share.
const other = "other"

// maxNodes limits the nodes with series of their own. A bare metal driver may have hundreds.
const maxNodes = 500

// names limits the values of a label: the first ones have their own, the rest share one.
type names struct {
	limit int
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
	if len(n.known) >= n.limit {
		return other
	}
	if n.known == nil {
		n.known = map[string]bool{}
	}
	n.known[name] = true
	return name
}

// The outcomes.
const (
	succeeded = "succeeded"
	failed    = "failed"
)

// outcome is the label value for an error.
func outcome(err error) string {
	if err != nil {
		return failed
	}
	return succeeded
}

// durations are histogram buckets in seconds, from a cached read to a driver call near its timeout.
var durations = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
