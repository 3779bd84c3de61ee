// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// cellMetrics are the metrics of one cell. It is safe for concurrent use.
type cellMetrics struct {
	osapi.MetricsPage
	answers  *osapi.AnswerMetrics
	now      func() time.Time
	reports  *prometheus.CounterVec
	writes   *prometheus.HistogramVec
	failures prometheus.Counter
	refused  *prometheus.CounterVec
	limited  prometheus.Counter
}

var _ cell.Observer = (*cellMetrics)(nil)

// newCellMetrics makes metrics that have counted nothing yet. now is the clock; nil: the real one.
func newCellMetrics(now func() time.Time) *cellMetrics {
	if now == nil {
		now = time.Now
	}
	page := osapi.NewMetricsPage(prefixCell, "serves")
	m := &cellMetrics{
		MetricsPage: page, now: now,
		answers: osapi.NewAnswerMetrics(page, osapi.AnswerMetricsOptions{
			Prefix:  prefixCell,
			Help:    "Time from a request's headers to its answer; requests that wait for work are not among them.",
			Buckets: latencies, Untimed: cell.WorkRoute,
		}),
		reports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefixCell + "reports_total",
			Help: "What hosts reported about servers, by kind, and whether it was taken or refused.",
		}, []string{"kind", "outcome"}),
		writes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefixCell + "database_write_duration_seconds",
			Help: "Time that writes to the cell's database took, including the wait for other writes. All except " +
				"most heartbeats wait for the disk.",
			Buckets: latencies,
		}, []string{"operation"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefixCell + "database_write_failures_total",
			Help: "Writes that failed because the cell's database could not be used.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefixCell + "nodes_refused_total",
			Help: "Nodes in reports of hosts that the cell did not take for the host, by why; each report " +
				"counts again.",
		}, []string{"reason"}),
		limited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefixCell + "host_requests_limited_total",
			Help: "Requests of hosts that were refused with 429, because the host sent too many.",
		}),
	}
	for _, code := range []cellwire.NodeProblemCode{cellwire.NodeElsewhere,
		cellwire.NodeNotInCertificate, cellwire.NodeTooMany} {
		m.refused.WithLabelValues(string(code))
	}
	// What never happened is shown as 0, so that a rate can be taken from the start.
	for _, kind := range append(cell.ReportKinds(), cell.UnknownKind) {
		m.reports.WithLabelValues(string(kind), "refused")
		if kind != cell.UnknownKind { // none is taken
			m.reports.WithLabelValues(string(kind), "taken")
		}
	}
	for _, o := range storeWrites {
		m.writes.WithLabelValues(o)
	}
	m.MustRegister(m.reports, m.writes, m.failures, m.refused, m.limited)
	return m
}

// Answered implements cell.Observer.
func (m *cellMetrics) Answered(a osapi.Answer) {
	if a.Route == "" {
		a.Method = osapi.OtherMethod
	}
	m.answers.Answered(a)
}

// Reported implements cell.Observer.
func (m *cellMetrics) Reported(kind cellwire.ReportKind, taken bool) {
	outcome := "refused"
	if taken {
		outcome = "taken"
	}
	m.reports.WithLabelValues(string(kind), outcome).Inc()
}

// NodeRefused implements cell.Observer.
func (m *cellMetrics) NodeRefused(why cellwire.NodeProblemCode) {
	m.refused.WithLabelValues(string(why)).Inc()
}

// Limited implements cell.Observer.
func (m *cellMetrics) Limited() { m.limited.Inc() }

// cellMetricSources are where a cell is looked at. None may be nil.
type cellMetricSources struct {
	// Check reports whether the cell can answer requests.
	Check func(context.Context) error
	// Hosts are the services of all hosts, as of now.
	Hosts func(context.Context) ([]cellwire.Service, error)
	// Servers counts living servers by vm_state.
	Servers func(context.Context) (map[string]int64, error)
	// Nodes counts compute nodes.
	Nodes func(context.Context) (celldb.NodeCounts, error)
	// Writable is whether writes to the database work, as far as is known.
	Writable func() bool
	// Waiting is how many agents wait for work.
	Waiting func() int
}

// Watch adds the metrics that are read at each scrape. It is called once.
func (m *cellMetrics) Watch(s cellMetricSources) {
	m.MustRegister(&cellCollector{now: m.now, from: s})
}

// serverCountMaxAge is how long a count of servers is good enough: it reads each of them.
const serverCountMaxAge = 15 * time.Second

// cellCollector is a collector of how a cell is.
type cellCollector struct {
	now  func() time.Time
	from cellMetricSources

	mu      sync.Mutex
	counted time.Time
	servers map[string]int64
}

var (
	descCellDatabase = desc(prefixCell+"database_up",
		"1 if the cell's database is whole and could be read for this page, 0 if not: then the cell refuses "+
			"every request.")
	descCellWritable = desc(
		prefixCell+"database_writable",
		"1 if the cell's database accepts writes as far as is known. 0 after a failed write until one succeeds, "+
			"which is tested every second, and while the file is missing from its path.",
	)
	descHosts = desc(prefixCell+"hosts", "Hosts, by whether they are up or down, and whether they are disabled.",
		"state", "disabled")
	descSeveral = desc(prefixCell+"hosts_of_several_agents",
		"Hosts as which several agents report at the same time. They get no new servers.")
	descInstances = desc(prefixCell+"instances",
		"Servers of the cell that are not deleted, by vm_state; softly deleted ones are included. Counted at most "+
			"every 15 s.", "vm_state")
	descNodes = desc(prefixCell+"nodes",
		"Compute nodes: present (reported by their hosts), absent (not any more), contested (other hosts report "+
			"them too), unused (the compute API does not use them).", "state")
	descWaiting = desc(prefixCell+"long_polls",
		"Requests of agents that wait for work now: one for each host whose agent is connected.")
)

// other stands for all that has no series of its own.
const other = "other"

// vmStates are the vm_states of servers, which have a series each.
var vmStates = []string{cellwire.VMBuilding, cellwire.VMActive, cellwire.VMStopped,
	cellwire.VMError, cellwire.VMSoftDeleted}

// Describe implements prometheus.Collector.
func (c *cellCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descCellDatabase,
		descCellWritable, descHosts, descSeveral, descInstances, descNodes, descWaiting} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c *cellCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), metricsReadTimeout)
	defer cancel()
	e := emitter(out)
	e.gauge(descWaiting, float64(c.from.Waiting()))
	e.gauge(descCellWritable, oneIf(c.from.Writable()))
	hosts, err := c.from.Hosts(ctx)
	if err == nil {
		c.showHosts(e, hosts)
	}
	errCheck := c.from.Check(ctx)
	servers, errServers := c.count(ctx)
	if errServers == nil {
		for _, state := range slices.Sorted(maps.Keys(servers)) {
			e.gauge(descInstances, float64(servers[state]), state)
		}
	}
	if nodes, err := c.from.Nodes(ctx); err == nil {
		for state, n := range map[string]int64{"present": nodes.Present, "absent": nodes.Absent,
			"contested": nodes.Claimed, "unused": nodes.Unused} {
			e.gauge(descNodes, float64(n), state)
		}
	}
	e.gauge(descCellDatabase, oneIf(err == nil && errServers == nil && errCheck == nil))
}

func (c *cellCollector) showHosts(e emitter, hosts []cellwire.Service) {
	var n [2][2]int
	several := 0
	for _, h := range hosts {
		several += int(oneIf(h.SeveralAgents))
		n[int(oneIf(h.Up))][int(oneIf(h.Disabled))]++
	}
	e.gauge(descSeveral, float64(several))
	for up, state := range []string{"down", "up"} {
		for disabled, text := range []string{"false", "true"} {
			e.gauge(descHosts, float64(n[up][disabled]), state, text)
		}
	}
}

// count counts the servers, or gives what was counted a moment ago.
func (c *cellCollector) count(ctx context.Context) (map[string]int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := c.now().Sub(c.counted); c.servers != nil && age >= 0 && age < serverCountMaxAge {
		return c.servers, nil
	}
	counted, err := c.from.Servers(ctx)
	if err != nil {
		return nil, err
	}
	servers := make(map[string]int64, len(vmStates))
	for _, state := range vmStates {
		servers[state] = 0
	}
	for state, n := range counted {
		if !slices.Contains(vmStates, state) {
			state = other
		}
		servers[state] += n
	}
	c.servers, c.counted = servers, c.now()
	return servers, nil
}
