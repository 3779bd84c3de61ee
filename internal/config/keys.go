// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"
)

// key declares one key of a section that is decoded into a T.
type key[T any] struct {
	name string
	live bool // SIGHUP applies a change; otherwise the agent must be restarted.
	doc  string
	field[T]
}

// section declares one table of the file.
type section struct {
	name string
	doc  string
	keys []key[Config]
}

const (
	live    = true
	restart = false
)

// sections declares every section but [drivers.NAME], in the order in which
// Defaults writes them.
var sections = slices.Concat(agentSections, placementSections, cellSections, enrolmentSections)

// agentSections declares those of the agent.
var agentSections = []section{
	{
		"agent",
		"Identity and directories of this agent.",
		[]key[Config]{
			{"host", restart,
				"Name of this host and, unless the driver overrides it, of its compute node in Placement. Empty " +
					"means the host name of the machine.",
				text[Config]{at: func(c *Config) *string { return &c.Agent.Host },
					words: "a name of 1 to 200 characters without spaces", check: hostName}},
			{
				"state_dir",
				restart,
				"Directory of persistent state: identity, records, the bundled Placement's database. Empty means " +
					"$STATE_DIRECTORY, else /var/lib/compute-agent for\nroot and the user whose it is, and " +
					"$XDG_STATE_HOME/compute-agent for others.",
				text[Config]{at: func(c *Config) *string { return &c.Agent.StateDir },
					words: "an absolute path", check: absolutePath},
			},
			{
				"runtime_dir",
				restart,
				"Directory of the control socket, its key, and the plugins' sockets. Empty means\n" +
					"$RUNTIME_DIRECTORY, else /run/compute-agent for root and\nthe user whose it is, and " +
					"$XDG_RUNTIME_DIR/compute-agent for others.",
				text[Config]{at: func(c *Config) *string { return &c.Agent.RuntimeDir },
					words: "an absolute path", check: absolutePath},
			},
			{
				"share_user",
				restart,
				"Whether other agents may run as the same user on this machine. Drivers run as the user of\ntheir " +
					"agent, so those of one agent can read the secrets of the other. Unless all agents of\nthe user " +
					"have it, the one that starts later refuses, with exit code 3.",
				toggle[Config]{func(c *Config) *bool { return &c.Agent.ShareUser }, false},
			},
			{
				"my_ip",
				restart,
				"IP address of this host that the compute API shows (host_ip of os-hypervisors). Empty means the\n" +
					"one from which the agent reaches its cell or, if the cell is on this host, that of the " +
					"default route.",
				text[Config]{at: func(c *Config) *string { return &c.Agent.MyIP },
					words: "an IP address in its canonical form", check: optionalIP},
			},
		},
	},
	{"placement_client", "The Placement service that the agent reports to and that the compute API asks.",
		slices.Concat([]key[Config]{
			{"url", restart,
				"URL of Placement, including its path. Empty means the endpoint in Keystone's\ncatalog with auth = " +
					"\"keystone\", else " + DefaultPlacementURL + ".",
				text[Config]{at: func(c *Config) *string { return &c.PlacementClient.URL },
					words: "a URL such as \"https://placement.example:8778\"", check: optionalURL}},
			{
				"auth",
				restart,
				"How the agent authenticates: \"noauth\" (Placement with auth_strategy = noauth2, for one\nmachine " +
					"or a test), \"token\" (the token in token_file), \"keystone\" (a token from\nKeystone, renewed " +
					"as needed) or \"certificate\" (the host's certificate in cert_file, for a\nbundled Placement " +
					"with placement_tls.host_ca_file; no token is sent).",
				choice[Config]{func(c *Config) *string { return &c.PlacementClient.Auth }, AuthNoauth,
					[]string{AuthNoauth, AuthToken, AuthKeystone, AuthCertificate}},
			},
			{"token_file", restart, "File that holds the token, or the bare name of a systemd credential.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementClient.TokenFile },
					words: secretWords, check: secretPath}},
			{"ca_file", restart,
				"File of PEM certificates to trust instead of the system's, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementClient.CAFile },
					words: secretWords, check: secretPath}},
			{"cert_file", restart, "File of the agent's own TLS certificate, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementClient.CertFile },
					words: secretWords, check: secretPath}},
			{"key_file", restart, "File of the key of cert_file, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementClient.KeyFile },
					words: secretWords, check: secretPath}},
			{"timeout", restart, "Timeout of a request, including the response.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.PlacementClient.Timeout },
					def: 30 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute}},
			{
				"connect_timeout",
				restart,
				"Timeout of a connection attempt, including TLS.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.PlacementClient.ConnectTimeout },
					def: 5 * time.Second,
					min: 100 * time.Millisecond,
					max: 5 * time.Minute,
				},
			},
			{"retries", restart,
				"Maximum number of retries of a request that is safe to repeat, after a lost connection or\nstatus " +
					"429, 502, 503 or 504.",
				number[Config]{at: func(c *Config) *int { return &c.PlacementClient.Retries }, def: 3, max: 20}},
			{"use_proxy", restart,
				"Whether to use HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Control planes are rarely behind a\nproxy.",
				toggle[Config]{func(c *Config) *bool { return &c.PlacementClient.UseProxy }, false}},
		}, clientKeystoneKeys)},
	{
		"tracker",
		"When the provider tree is updated.",
		[]key[Config]{
			{
				"update_resources_interval",
				live,
				"Time between two passes, with some jitter.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.Tracker.UpdateResourcesInterval },
					def: time.Minute,
					min: 100 * time.Millisecond,
					max: 24 * time.Hour,
				},
			},
			{
				"association_refresh",
				live,
				"How long the cached tree is used before it is read from Placement again, because other\nclients " +
					"may have changed traits, aggregates or sharing providers.",
				duration[Config]{
					at:   func(c *Config) *time.Duration { return &c.Tracker.AssociationRefresh },
					def:  5 * time.Minute,
					min:  100 * time.Millisecond,
					max:  24 * time.Hour,
					zero: "never",
				},
			},
			{
				"startup_deadline",
				restart,
				"How long the agent waits for the first pass before it reports that it is ready. After\nthat it is " +
					"ready and degraded, and retries. Also how long a reload waits for drivers to\napply their new " +
					"configuration. TimeoutStartSec of the systemd unit must be longer.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.StartupDeadline },
					def: time.Minute, min: time.Second, max: time.Hour},
			},
			{"pass_deadline", live, "Timeout of a pass over a node, including driver calls and all requests.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.PassDeadline },
					def: 2 * time.Minute, min: time.Second, max: time.Hour}},
			{"retry_backoff_min", live, "First pause after a failed pass; it doubles with every further failure.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.RetryBackoffMin },
					def: time.Second, min: 10 * time.Millisecond, max: time.Hour}},
			{"retry_backoff_max", live, "Longest pause between failed passes.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.RetryBackoffMax },
					def: 2 * time.Minute, min: 10 * time.Millisecond, max: 24 * time.Hour}},
			{
				"provider_config_location",
				live,
				"Directory of the provider.yaml files (*.yaml, in Nova's format): inventories and traits\nto add to " +
					"resource providers. Empty means provider_config next to this file. The\ndirectory need not " +
					"exist. Changed files are reloaded.",
				text[Config]{at: func(c *Config) *string { return &c.Tracker.ProviderConfigLocation },
					words: "an absolute path", check: absolutePath},
			},
		},
	},
	{
		"reshape",
		"Reshapes move used inventory and its allocations to other providers. They happen when\nthe agent starts " +
			"and a driver needs one.",
		[]key[Config]{
			{
				"on_failure",
				live,
				"What the agent does when a node's reshape, or its identity, is refused at start-up, by its own\n" +
					"checks or by Placement: \"hold\" continues, degraded, and writes nothing for that node until\n" +
					"`compute-agent refresh` or a reload retries; other nodes are reported. \"exit\" stops the " +
					"agent\nwith exit code 3. Guests keep running in both cases.",
				choice[Config]{func(c *Config) *string { return &c.Reshape.OnFailure }, OnFailureHold,
					[]string{OnFailureHold, OnFailureExit}},
			},
		},
	},
	{
		"plugins",
		"Where the drivers' plugins are and how their processes are watched. [drivers.NAME.timeouts] and\n" +
			"[drivers.NAME.restart] override it for one driver.",
		[]key[Config]{
			{
				"dir",
				restart,
				"Directory of the plugins: compute-driver-NAME for [drivers.NAME]. Unless it is set, drivers are " +
					"also searched next to the agent's own executable.",
				text[Config]{
					at:    func(c *Config) *string { return &c.Plugins.Dir },
					def:   "/usr/libexec/compute-agent/plugins",
					words: "an absolute path",
					check: absolutePathRequired,
				},
			},
			{
				"handshake_timeout",
				live,
				"Timeout from the start of a plugin to its handshake.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.Plugins.HandshakeTimeout },
					def: 30 * time.Second,
					min: 100 * time.Millisecond,
					max: 10 * time.Minute,
				},
			},
			{"call_timeout", live, "Timeout of a driver call.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.CallTimeout }, def: time.Minute,
					min: 100 * time.Millisecond, max: time.Hour}},
			{"health_interval", live, "Time between two health checks of a plugin.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.HealthInterval },
					def: 10 * time.Second, min: 10 * time.Millisecond, max: time.Hour}},
			{"health_timeout", live, "Timeout of a health check.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.HealthTimeout },
					def: 3 * time.Second, min: 10 * time.Millisecond, max: time.Hour}},
			{"health_misses", live, "Number of consecutive failed health checks after which the process is restarted.",
				number[Config]{at: func(c *Config) *int { return &c.Plugins.HealthMisses }, def: 3, min: 1, max: 100}},
			{
				"shutdown_timeout",
				live,
				"How long a plugin may take to stop before it is killed.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.Plugins.ShutdownTimeout },
					def: 10 * time.Second,
					min: 10 * time.Millisecond,
					max: 10 * time.Minute,
				},
			},
			{"backoff_min", live, "First delay before a crashed plugin is restarted; it doubles with every crash.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.BackoffMin }, def: time.Second,
					min: 10 * time.Millisecond, max: time.Hour}},
			{"backoff_max", live, "Maximum delay before a crashed plugin is restarted.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.BackoffMax },
					def: 2 * time.Minute, min: 10 * time.Millisecond, max: 24 * time.Hour}},
			{"crash_limit", live, "Number of crashes within crash_window after which a plugin is quarantined.",
				number[Config]{at: func(c *Config) *int { return &c.Plugins.CrashLimit }, def: 5, min: 1, max: 1000}},
			{"crash_window", live,
				"Time window in which crashes are counted; a plugin that runs that long resets the count.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.CrashWindow },
					def: 10 * time.Minute, min: time.Second, max: 24 * time.Hour}},
			{"quarantine", live, "How long a plugin is quarantined.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.Quarantine },
					def: 10 * time.Minute, min: time.Second, max: 24 * time.Hour}},
		},
	},
	{
		"log",
		"What a service writes to standard error.",
		[]key[Config]{
			{"level", live, "The minimum severity of messages.",
				choice[Config]{func(c *Config) *string { return &c.Log.Level },
					"info", []string{"trace", "debug", "info", "warn", "error"}}},
			{
				"format",
				restart,
				"\"journald\" sends each message with its fields to systemd's journal. \"auto\" does that if " +
					"standard error is the journal, writes readable lines on a terminal,\nand JSON otherwise.",
				choice[Config]{func(c *Config) *string { return &c.Log.Format }, FormatAuto,
					[]string{FormatAuto, FormatJSON, FormatConsole, FormatJournald}},
			},
		},
	},
	{
		"metrics",
		"Metrics of the agent for Prometheus. They are always on its control socket.",
		[]key[Config]{
			{
				"listen",
				restart,
				"Address to serve /metrics, /healthz and /readyz on in addition, by plain HTTP without " +
					"authentication, such as \"127.0.0.1:9177\". The default\nhost is 127.0.0.1. Empty means none.",
				text[Config]{at: func(c *Config) *string { return &c.Metrics.Listen },
					words: "\"HOST:PORT\" or \":PORT\"", check: listenAddress},
			},
		},
	},
	{"tracing", "Traces of passes and requests, for a collector that speaks OTLP over HTTP.", []key[Config]{
		{"endpoint", restart,
			"Address of the collector, with the path if it is not /v1/traces, such as\n\"http://127.0.0.1:4318\". " +
				"Empty means no tracing.",
			text[Config]{at: func(c *Config) *string { return &c.Tracing.Endpoint },
				words: "a URL", check: optionalURL}},
		{"sample_ratio", restart,
			"Fraction of traces to record of those that begin in this " +
				"service, with a pass or a client's request: 1 is all of them,\n" +
				"0.01 one in a hundred. In a trace that another service began, that one has decided.",
			fraction[Config]{at: func(c *Config) *float64 { return &c.Tracing.SampleRatio }, def: 1}},
		{"trust_clients", restart,
			"Join the traces of all clients that are authenticated, and record " +
				"what their traceparent header says is recorded. Otherwise\n" +
				"only services, hosts and administrators decide that; the request of another client begins " +
				"a trace of " +
				"its own, with a link to the client's.",
			toggle[Config]{func(c *Config) *bool { return &c.Tracing.TrustClients }, false}},
	}},
}
