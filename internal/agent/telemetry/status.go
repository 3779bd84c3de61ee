// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
)

// Watch adds the metrics that are read from the agent's status at each scrape. It is called once;
// status must not block.
func (m *Metrics) Watch(status func() health.Status) {
	m.MustRegister(&statusCollector{m: m, status: status})
}

// statusCollector exports the agent's status.
type statusCollector struct {
	m      *Metrics
	status func() health.Status

	mu      sync.Mutex
	retries int64 // as exported last: a counter must not decrease
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("compute_agent_"+name, help, labels, nil)
}

var (
	descAge = desc("last_sync_age_seconds",
		"Time since the last successful pass over a node, computed at each scrape; since the start of the agent if "+
			"there was none.", "driver", "node")
	descNodes  = desc("nodes", "Nodes by state: starting, reporting or degraded.", "driver", "state")
	descPlugin = desc("plugin_state", "1 for the current state of a driver's process, 0 for the others.", "driver",
		"state")
	descRestarts = desc("plugin_restarts_total", "Restarts of a driver's process because it had ended.", "driver")
	descReplaced = desc("plugin_replacements_total",
		"Times that a reload replaced a working process of a driver.", "driver")
	descMemory = desc("plugin_resident_memory_bytes",
		"Resident memory of a driver's process and its children. Absent without a process, as are its processes, "+
			"threads and descriptors. One that grows for days is a bug of the driver.", "driver")
	descProcesses = desc("plugin_processes", "Processes of a driver, including children.", "driver")
	descThreads   = desc("plugin_threads", "Threads of a driver's processes.", "driver")
	descOpenFiles = desc("plugin_open_fds", "Open file descriptors of a driver's processes.", "driver")
	descMissing   = desc("driver_missing_seconds",
		"Time since a driver was first found unavailable after its last answer; 0 while it answers.", "driver")
	descWarnings = desc("driver_warnings",
		"Current warnings of a driver; compute-agent status shows their names and texts.", "driver")
	descDisabled = desc("nodes_disabled",
		"Disabled nodes of a driver, for whatever reason: no new instances are scheduled to them.", "driver")
	descConditions = desc("conditions", "Current health conditions by code; 0 for those that do not hold.", "code",
		"severity")
	descCellUp  = desc("cell_up", "1 if the cell accepted the last heartbeat, 0 if not. Only with a cell.")
	descServers = desc("cell_servers", "Servers of the cell on this host. Only with a cell.")
	descReports = desc("cell_reports_waiting",
		"Reports about servers that the cell has not accepted yet. Only with a cell.")
	descSpawns = desc("spawns_total",
		"Calls of a driver to create a guest, by outcome: succeeded or failed. A failed call is repeated, so "+
			"failures count calls and not servers. Only with a cell.", "outcome")
	descDestroys = desc("destroys_total",
		"Calls of a driver to destroy a guest, by outcome: succeeded or failed. A failed call is repeated. Only "+
			"with a cell.", "outcome")
	descExpiry = desc(
		"certificate_expiry_time_seconds",
		"When the certificate of this host expires, in seconds since the Unix epoch; 0 if it cannot be read. Only "+
			"with a certificate.",
	)
	descRenewals = desc("certificate_renewals_total",
		"Attempts to renew the certificate of this host, by outcome: succeeded or failed. Only with a certificate.",
		"outcome")
	descRetries = desc("placement_request_retries_total", "Attempts of requests to Placement after the first one.")
	descStarted = desc("start_time_seconds", "Start time of the agent in seconds since the Unix epoch.")
)

// pluginStates are all states of a plugin.
var pluginStates = []pluginhost.State{
	pluginhost.Discovered,
	pluginhost.Verified,
	pluginhost.Starting,
	pluginhost.Configured,
	pluginhost.Healthy,
	pluginhost.Degraded,
	pluginhost.Backoff,
	pluginhost.Quarantined,
	pluginhost.NotInstalled,
	pluginhost.Incompatible,
	pluginhost.Refused,
	pluginhost.Disabled,
	pluginhost.Stopped,
}

// Describe implements [prometheus.Collector].
func (sc *statusCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descAge, descNodes, descPlugin, descRestarts, descReplaced, descMemory,
		descProcesses, descThreads, descOpenFiles, descMissing, descWarnings, descDisabled,
		descConditions, descRetries, descStarted,
		descCellUp, descServers, descReports, descSpawns, descDestroys, descExpiry, descRenewals} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (sc *statusCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	started := sc.m.requests.started.Load() // before the attempts, so that a request under way is no retry
	s := sc.status()
	now := sc.m.now()
	gauge(descStarted, float64(s.Started.UnixMilli())/1000)
	count(descRetries, float64(sc.monotonic(s.Placement.Requests-started)))
	if c := s.Cell; c != nil {
		gauge(descCellUp, boolValue(c.Up))
		gauge(descServers, float64(c.Servers))
		gauge(descReports, float64(c.Waiting))
		count(descSpawns, float64(c.Spawns.Succeeded), "succeeded")
		count(descSpawns, float64(c.Spawns.Failed), "failed")
		count(descDestroys, float64(c.Destroys.Succeeded), "succeeded")
		count(descDestroys, float64(c.Destroys.Failed), "failed")
	}
	if id := s.Identity; id != nil {
		expiry := 0.0
		if !id.Expires.IsZero() {
			expiry = float64(id.Expires.Unix())
		}
		gauge(descExpiry, expiry)
		count(descRenewals, float64(id.Renewed), "succeeded")
		count(descRenewals, float64(id.Failed), "failed")
	}
	for _, d := range s.Drivers {
		for _, state := range pluginStates {
			gauge(descPlugin, boolValue(d.Plugin.State == state), d.Name, string(state))
		}
		count(descRestarts, float64(d.Plugin.Restarts), d.Name)
		count(descReplaced, float64(d.Plugin.Replacements), d.Name)
		if u := d.Plugin.Usage; u != nil {
			gauge(descMemory, float64(u.MemoryBytes), d.Name)
			gauge(descProcesses, float64(u.Processes), d.Name)
			gauge(descThreads, float64(u.Threads), d.Name)
			gauge(descOpenFiles, float64(u.OpenFiles), d.Name)
		}
		missing := 0.0
		if !d.MissingSince.IsZero() {
			missing = max(now.Sub(d.MissingSince).Seconds(), 0)
		}
		gauge(descMissing, missing, d.Name)
		gauge(descWarnings, float64(len(d.Warnings)), d.Name)
		sc.nodes(d, s.Started, now, gauge)
	}
	for _, def := range health.Definitions() {
		n := 0
		for _, c := range s.Conditions {
			if c.Code == def.Code {
				n++
			}
		}
		gauge(descConditions, float64(n), string(def.Code), string(def.Severity))
	}
}

// nodes exports the ages and states of a driver's nodes. Nodes beyond the limit share the oldest
// age.
func (sc *statusCollector) nodes(
	d health.Driver, started, now time.Time, gauge func(*prometheus.Desc, float64, ...string),
) {
	ages, order := map[string]float64{}, []string{}
	states := map[string]int{"starting": 0, "reporting": 0, "degraded": 0}
	disabled := 0
	for _, n := range d.Report.Nodes {
		states[string(n.State)]++
		if n.DisabledReason != "" {
			disabled++
		}
		last := n.LastSuccess
		if last.IsZero() {
			last = started
		}
		label := sc.m.nodes.label(n.Name)
		age, known := ages[label]
		if !known {
			order = append(order, label)
		}
		ages[label] = max(age, now.Sub(last).Seconds(), 0)
	}
	gauge(descDisabled, float64(disabled), d.Name)
	for _, label := range order {
		gauge(descAge, ages[label], d.Name, label)
	}
	for state, n := range states {
		gauge(descNodes, float64(n), d.Name, state)
	}
}

// monotonic keeps the count of retries from decreasing.
func (sc *statusCollector) monotonic(now int64) int64 {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.retries = max(sc.retries, now)
	return sc.retries
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
