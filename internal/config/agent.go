// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"time"
)

// Agent is the section [agent]: who and where the agent is.
type Agent struct {
	Host       string
	StateDir   string
	RuntimeDir string
	ShareUser  bool
	MyIP       string // Of this host; empty is the one from which the agent reaches its cell.
}

func (a *Agent) section() section {
	return section{"agent", allServices, "Identity and directories of this agent.", []key{
		{"host", restart, "Name of this host and, unless the driver overrides it, of its compute node in Placement. " +
			"Empty means the host name of the machine.",
			text{at: &a.Host, words: "a name of 1 to 200 characters without spaces", check: hostName}},
		{"state_dir", restart, "Directory of persistent state: identity, records, the bundled Placement's database. " +
			"Empty means $STATE_DIRECTORY, else /var/lib/compute-agent for\nroot and the user whose it is, and " +
			"$XDG_STATE_HOME/compute-agent for others.", pathText(&a.StateDir)},
		{"runtime_dir", restart, "Directory of the control socket, its key, and the plugins' sockets. Empty means\n" +
			"$RUNTIME_DIRECTORY, else /run/compute-agent for root and\nthe user whose it is, and " +
			"$XDG_RUNTIME_DIR/compute-agent for others.", pathText(&a.RuntimeDir)},
		{"share_user", restart, "Whether other agents may run as the same user on this machine. Drivers run as the " +
			"user of\ntheir agent, so those of one agent can read the secrets of the other. Unless all agents of\n" +
			"the user have it, the one that starts later refuses, with exit code 3.", toggle{&a.ShareUser, false}},
		{"my_ip", restart,
			"IP address of this host that the compute API shows (host_ip of os-hypervisors). Empty means the\none " +
				"from which the agent reaches its cell or, if the cell is on this host, that of the default route.",
			text{at: &a.MyIP, words: "an IP address in its canonical form", check: hostIP}},
	}}
}

// ControlSocket is the path of the agent's control socket. Load has checked
// that it fits into a socket address.
func (a Agent) ControlSocket() string { return filepath.Join(a.RuntimeDir, controlSocketName) }

// Tracker is the section [tracker]: when passes run and how long they may take.
type Tracker struct {
	UpdateResourcesInterval time.Duration
	AssociationRefresh      time.Duration // Zero is never.
	StartupDeadline         time.Duration
	PassDeadline            time.Duration
	RetryBackoffMin         time.Duration
	RetryBackoffMax         time.Duration
	ProviderConfigLocation  string // Empty is the default of [Config.ProviderConfigDir].
}

func (t *Tracker) section() section {
	return section{"tracker", []Service{AgentService}, "When the provider tree is updated.", []key{
		{"update_resources_interval", live, "Time between two passes, with some jitter.",
			duration{at: &t.UpdateResourcesInterval, def: time.Minute, min: 100 * time.Millisecond,
				max: 24 * time.Hour}},
		{"association_refresh", live, "How long the cached tree is used before it is read from Placement again, " +
			"because other\nclients may have changed traits, aggregates or sharing providers.",
			duration{at: &t.AssociationRefresh, def: 5 * time.Minute, min: 100 * time.Millisecond, max: 24 * time.Hour,
				zero: "never"}},
		{"startup_deadline", restart, "How long the agent waits for the first pass before it reports that it is " +
			"ready. After\nthat it is ready and degraded, and retries. Also how long a reload waits for drivers to\n" +
			"apply their new configuration. TimeoutStartSec of the systemd unit must be longer.",
			duration{at: &t.StartupDeadline, def: time.Minute, min: time.Second, max: time.Hour}},
		{"pass_deadline", live, "Timeout of a pass over a node, including driver calls and all requests.",
			duration{at: &t.PassDeadline, def: 2 * time.Minute, min: time.Second, max: time.Hour}},
		{"retry_backoff_min", live, "First pause after a failed pass; it doubles with every further failure.",
			duration{at: &t.RetryBackoffMin, def: time.Second, min: 10 * time.Millisecond, max: time.Hour}},
		{"retry_backoff_max", live, "Longest pause between failed passes.",
			duration{at: &t.RetryBackoffMax, def: 2 * time.Minute, min: 10 * time.Millisecond, max: 24 * time.Hour}},
		{"provider_config_location", live, "Directory of the provider.yaml files (*.yaml, in Nova's format): " +
			"inventories and traits\nto add to resource providers. Empty means provider_config next to this file. " +
			"The\ndirectory need not exist. Changed files are reloaded.", pathText(&t.ProviderConfigLocation)},
	}}
}

// ProviderConfigDir is the directory of the provider.yaml files: the one that is named, or
// provider_config beside the main configuration file, as conf.d is. It need not exist.
func (c *Config) ProviderConfigDir() string {
	if dir := c.Tracker.ProviderConfigLocation; dir != "" {
		return dir
	}
	return filepath.Join(filepath.Dir(c.file), "provider_config")
}

// Reshape is the section [reshape]: what becomes of a node whose reshape, or
// whose identity, is refused at start-up.
type Reshape struct {
	OnFailure string // OnFailureHold or OnFailureExit.
}

// Values of Reshape.OnFailure.
const (
	OnFailureExit = "exit"
	OnFailureHold = "hold"
)

func (r *Reshape) section() section {
	return section{"reshape", []Service{AgentService},
		"Reshapes move used inventory and its allocations to other providers. They happen when\nthe agent starts and " +
			"a driver needs one.",
		[]key{
			{"on_failure", live, "What the agent does when a node's reshape, or its identity, is refused at " +
				"start-up, by its own\nchecks or by Placement: \"hold\" continues, degraded, and writes nothing for " +
				"that node until\n`compute-agent refresh` or a reload retries; other nodes are reported. \"exit\" " +
				"stops the agent\nwith exit code 3. Guests keep running in both cases.",
				choice{&r.OnFailure, OnFailureHold, []string{OnFailureHold, OnFailureExit}}},
		}}
}

// Log is the section [log].
type Log struct {
	Level  string
	Format string // FormatAuto, FormatJSON, FormatConsole or FormatJournald.
}

// Values of Log.Format. FormatAuto is one of the others, see Log.Form.
const (
	FormatAuto     = "auto"
	FormatJSON     = "json"
	FormatConsole  = "console"
	FormatJournald = "journald"
)

func (l *Log) section() section {
	return section{"log", allServices, "What a service writes to standard error.", []key{
		{"level", live, "The minimum severity of messages.",
			choice{&l.Level, "info", []string{"trace", "debug", "info", "warn", "error"}}},
		{"format", restart, "\"journald\" sends each message with its fields to systemd's journal. \"auto\" does " +
			"that if standard error is the journal, writes readable lines on a terminal,\nand JSON otherwise.",
			choice{&l.Format, FormatAuto, []string{FormatAuto, FormatJSON, FormatConsole, FormatJournald}}},
	}}
}

// Form resolves FormatAuto: FormatJournald where standard error is the journal,
// FormatConsole on a terminal, and FormatJSON everywhere else.
func (l Log) Form(journal, terminal bool) string {
	switch {
	case l.Format != FormatAuto:
		return l.Format
	case journal:
		return FormatJournald
	case terminal:
		return FormatConsole
	}
	return FormatJSON
}

// Metrics is the section [metrics]: where else than on its control socket the
// agent shows its metrics.
type Metrics struct {
	Listen string // HOST:PORT, empty for nowhere; without HOST loopback.
}

func (m *Metrics) section() section {
	return section{"metrics", []Service{AgentService},
		"Metrics of the agent for Prometheus. They are always on its control socket.",
		[]key{
			{"listen", restart,
				"Address to serve /metrics, /healthz and /readyz on in addition, by plain HTTP without " +
					"authentication, such as \"127.0.0.1:9177\". The default\nhost is 127.0.0.1. Empty means none.",
				listenText(&m.Listen)},
		}}
}

// Tracing is the section [tracing]: who gets traces of passes and requests.
type Tracing struct {
	Endpoint     string  // of an OTLP/HTTP collector; empty means none
	SampleRatio  float64 // From 0 to 1.
	TrustClients bool    // Every authenticated client may decide what is recorded.
}

func (t *Tracing) section() section {
	return section{"tracing", allServices,
		"Traces of passes and requests, for a collector that speaks OTLP over HTTP.",
		[]key{
			{"endpoint", restart, "Address of the collector, with the path if it is not /v1/traces, such as\n" +
				"\"http://127.0.0.1:4318\". Empty means no tracing.", urlText(&t.Endpoint)},
			{"sample_ratio", restart, "Fraction of traces to record of those that begin in this service, with a pass " +
				"or a client's request: 1 is all of them,\n0.01 one in a hundred. In a trace that another service " +
				"began, that one has decided.", fraction{at: &t.SampleRatio, def: 1}},
			{"trust_clients", restart, "Join the traces of all clients that are authenticated, and record what their " +
				"traceparent header says is recorded. Otherwise\nonly services, hosts and administrators decide " +
				"that; the request of another client begins a trace of its own, with a link to the client's.",
				toggle{&t.TrustClients, false}},
		}}
}
