// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// apiMetrics are the metrics of one compute API. It is safe for concurrent use.
type apiMetrics struct {
	osapi.MetricsPage
	*osapi.AnswerMetrics
	now         func() time.Time
	builds      *prometheus.CounterVec
	corrections *prometheus.CounterVec
	refusals    *prometheus.CounterVec
}

var (
	_ osapi.Observer     = (*apiMetrics)(nil)
	_ scheduler.Observer = (*apiMetrics)(nil)
	_ enrolment.Observer = (*apiMetrics)(nil)
)

// newAPIMetrics makes metrics that have counted nothing yet. now is the clock; nil: the real one.
func newAPIMetrics(now func() time.Time) *apiMetrics {
	if now == nil {
		now = time.Now
	}
	page := osapi.NewMetricsPage(prefixAPI, "serves")
	m := &apiMetrics{
		MetricsPage: page, AnswerMetrics: osapi.NewAnswerMetrics(page,
			osapi.AnswerMetricsOptions{Prefix: prefixAPI, Buckets: latencies}), now: now,
		builds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefixAPI + "builds_total",
			Help: "Attempts to build a server, by how they ended: placed, unplaced (in error, in cell0), abandoned " +
				"(deleted meanwhile) or put_off (a dependency failed; tried again).",
		}, []string{"outcome"}),
		corrections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefixAPI + "corrections_total",
			Help: "What the reconciler found half done and finished: hidden rows of a cell that were released or " +
				"discarded, allocations of deleted servers (unfreed), a claim without a build, queued_for_delete " +
				"that differed from the cell, and expired soft deletes (reclaimed).",
		}, []string{"kind"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefixAPI + "enrolment_refusals_total",
			Help: "Requests that the enrolment service refused, by the code of the reason: key_unknown means that " +
				"two machines have the identity of one host.",
		}, []string{"route", "code"}),
	}
	// What never happened is shown as 0, so that a rate can be taken from the start.
	for _, o := range scheduler.Outcomes() {
		m.builds.WithLabelValues(string(o))
	}
	for _, c := range scheduler.Corrections() {
		m.corrections.WithLabelValues(string(c))
	}
	for _, route := range []string{"/v1/renew", "/v1/confirm"} {
		m.refusals.WithLabelValues(route, string(enrolment.CodeKeyUnknown))
	}
	m.MustRegister(m.builds, m.corrections, m.refusals)
	return m
}

// Built implements scheduler.Observer.
func (m *apiMetrics) Built(o scheduler.Outcome) { m.builds.WithLabelValues(string(o)).Inc() }

// EnrolmentRefused implements enrolment.Observer.
func (m *apiMetrics) EnrolmentRefused(route, code string) {
	m.refusals.WithLabelValues(route, code).Inc()
}

// Corrected implements scheduler.Observer.
func (m *apiMetrics) Corrected(c scheduler.Correction) {
	m.corrections.WithLabelValues(string(c)).Inc()
}

// apiMetricSources are where an API is looked at. None may be nil.
type apiMetricSources struct {
	// Cells returns the cells of the API database, States those that were asked, as they were
	// found.
	Cells  func(context.Context) ([]apidb.Cell, error)
	States func() []gather.CellState
	// Databases are what is known of the databases of cells, by the uuids of cells.
	Databases func(context.Context) (map[string]apidb.CellDatabase, error)
	// Pending are the servers that are not built to the end, and the claims that are open.
	Pending func(context.Context) (builds, claims int64, err error)
	// Writable is whether writes to the API database work, as far as is known.
	Writable   func() bool
	InFlight   func() int64
	Scheduling func() bool
}

// Watch adds the metrics that are read at each scrape. It is called once.
func (m *apiMetrics) Watch(s apiMetricSources) {
	m.MustRegister(&apiCollector{now: m.now, from: s})
}

// apiCollector is a collector of how an API is.
type apiCollector struct {
	now  func() time.Time
	from apiMetricSources

	mu    sync.Mutex
	cells []apidb.Cell // as last read
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	descInFlight = desc(prefixAPI+"http_requests_in_flight",
		"Requests in progress; beyond 1000 they are refused with 503.")
	descScheduling = desc(prefixAPI+"scheduling",
		"1 in the process that schedules and reconciles, 0 in others; one process of a database does.")
	descAPIDatabase = desc(prefixAPI+"database_up", "1 if the API database could be read for this page, 0 if not.")
	descAPIWritable = desc(
		prefixAPI+"database_writable",
		"1 if the API database accepts writes as far as is known. 0 after a failed write until one succeeds, which "+
			"is tested every second, and while the file is missing from its path.",
	)
	descBuilds = desc(prefixAPI+"build_requests",
		"Servers that are not placed and passed to their host yet, in the API database; processes of one database "+
			"show the same.")
	descClaims = desc(prefixAPI+"claims_open",
		"Allocations that may be in Placement and that no cell accounts for yet, in the API database.")
	descCellUp = desc(prefixAPI+"cell_up",
		"1 if the cell answers the requests and pings of this process, 0 if it is down. Not before the first one.",
		"cell")
	descCellDisabled = desc(prefixAPI+"cell_disabled",
		"1 if an administrator disabled the cell for new servers, 0 if not.", "cell")
	descCellSuspect = desc(prefixAPI+"cell_database_suspect",
		"1 if the cell has another database than before, or an older copy of it, and no operator has accepted that "+
			"yet; 0 if not. Processes of one database show the same.", "cell")
	descCellSince    = desc(prefixAPI+"cell_state_seconds", "Time since the cell went up or down.", "cell")
	descCellRequests = desc(prefixAPI+"cell_requests_total",
		"Requests to the cell, by how they ended: answered, timed_out, failed, or circuit_open: not sent, because "+
			"the cell does not answer pings.", "cell", "outcome")
	descCellPings = desc(prefixAPI+"cell_pings_total",
		"Pings of the cell, by how they ended: answered, timed_out or failed.", "cell", "outcome")
	descCellPingTime = desc(prefixAPI+"cell_ping_seconds",
		"How long the last ping took that the cell answered. Not before that.", "cell")
)

// Describe implements prometheus.Collector.
func (a *apiCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descInFlight, descScheduling, descAPIDatabase, descAPIWritable, descBuilds,
		descClaims, descCellUp, descCellDisabled, descCellSuspect, descCellSince, descCellRequests,
		descCellPings, descCellPingTime} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (a *apiCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsReadTimeout)
	defer cancel()
	e := emitter(out)
	e.gauge(descInFlight, float64(a.from.InFlight()))
	e.gauge(descScheduling, oneIf(a.from.Scheduling()))
	e.gauge(descAPIWritable, oneIf(a.from.Writable()))
	builds, claims, err := a.from.Pending(ctx)
	if err == nil {
		e.gauge(descBuilds, float64(builds))
		e.gauge(descClaims, float64(claims))
	}
	cells, errCells := a.known(ctx)
	databases, errDatabases := a.from.Databases(ctx)
	e.gauge(descAPIDatabase, oneIf(err == nil && errCells == nil && errDatabases == nil))
	states := map[string]gather.CellState{}
	for _, s := range a.from.States() {
		states[s.Cell.UUID] = s
	}
	for _, c := range cells {
		e.gauge(descCellDisabled, oneIf(c.Disabled), c.Name)
		if errDatabases == nil {
			e.gauge(descCellSuspect, oneIf(databases[c.UUID].Suspect != nil), c.Name)
		}
		s := states[c.UUID]
		if s.State != 0 {
			e.gauge(descCellUp, oneIf(s.State == gather.OK), c.Name)
			e.gauge(descCellSince, max(a.now().Sub(s.Since).Seconds(), 0), c.Name)
		}
		e.outcomes(descCellRequests, s.Requests, c.Name)
		e.count(descCellRequests, s.NotSent, c.Name, "circuit_open")
		e.outcomes(descCellPings, s.Pings, c.Name)
		if s.Pings.Answered > 0 {
			e.gauge(descCellPingTime, s.PingTime.Seconds(), c.Name)
		}
	}
}

// outcomes shows the counts of a cell.
func (e emitter) outcomes(d *prometheus.Desc, n gather.Counts, cell string) {
	e.count(d, n.Answered, cell, "answered")
	e.count(d, n.TimedOut, cell, "timed_out")
	e.count(d, n.Failed, cell, "failed")
}

// known are the cells of the API database, as they were before if it cannot be read. Their names
// differ.
func (a *apiCollector) known(ctx context.Context) ([]apidb.Cell, error) {
	cells, err := a.from.Cells(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.cells = cells
	}
	return a.cells, err
}
