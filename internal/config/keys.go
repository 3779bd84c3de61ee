// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
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
	// uuidZero is what Placement records as project and user of consumers that
	// were made by microversions that did not carry them.
	uuidZero = "00000000-0000-0000-0000-000000000000"

	live    = true
	restart = false
)

// Headers that Placement lets pages of other origins send and read by default.
var (
	corsAllowHeaders = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Identity-Status", "X-Roles",
		"X-Service-Catalog", "X-User-Id", "X-Tenant-Id", "OpenStack-API-Version"}
	corsExposeHeaders = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Subject-Token",
		"X-Service-Token", "OpenStack-API-Version"}
)

// sections declares every section but [drivers.NAME], in the order in which
// Defaults writes them.
var sections = slices.Concat(agentSections, cellSections, enrolmentSections)

// agentSections declares those of the agent and of the bundled Placement.
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
			"Fraction of traces to record of those that begin in this service, with a pass or a client's request: 1 " +
				"is all of them,\n" +
				"0.01 one in a hundred. In a trace that another service began, that one has decided.",
			fraction[Config]{at: func(c *Config) *float64 { return &c.Tracing.SampleRatio }, def: 1}},
		{"trust_clients", restart,
			"Join the traces of all clients that are authenticated, and record what their traceparent header says " +
				"is recorded. Otherwise\n" +
				"only services, hosts and administrators decide that; the request of another client begins a trace " +
				"of its own, with a link to the client's.",
			toggle[Config]{func(c *Config) *bool { return &c.Tracing.TrustClients }, false}},
	}},
	{
		"placement",
		"The bundled Placement server, with Placement's own option names.",
		[]key[Config]{
			{"database", restart,
				"The database. Several servers can share one on MariaDB, MySQL or PostgreSQL. Empty means " +
					"placement.db in agent.state_dir.",
				text[Config]{at: func(c *Config) *string { return &c.Placement.Database },
					words: databaseWords, check: databaseDSN}},
			{
				"stale_reads",
				restart,
				"How old an answer to a GET may be while the database cannot be reached. It has the header " +
					"Placement-Stale-Seconds then. Otherwise, and for\nall writes, the answer is 503. It has no " +
					"effect on SQLite.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Placement.StaleReads },
					min: time.Second, max: time.Hour, zero: "no stale answers"},
			},
			{
				"endpoint",
				restart,
				"Base URL of the URLs in responses, for a server behind a proxy that has another address or path, " +
					"or ends TLS. Empty means the\nURL of the request.",
				text[Config]{at: func(c *Config) *string { return &c.Placement.Endpoint },
					words: "a URL", check: optionalURL},
			},
			{"incomplete_consumer_project_id", restart,
				"Project of consumers made by microversions below 1.8, which carry none.",
				text[Config]{at: func(c *Config) *string { return &c.Placement.IncompleteConsumerProjectID },
					def: uuidZero, words: idWords, check: consumerID}},
			{"incomplete_consumer_user_id", restart,
				"User of consumers made by microversions below 1.8, which carry none.",
				text[Config]{at: func(c *Config) *string { return &c.Placement.IncompleteConsumerUserID },
					def: uuidZero, words: idWords, check: consumerID}},
			{"max_allocation_candidates", restart,
				"Maximum number of allocation candidates for one request, whatever its limit; -1 means\nthe " +
					"server's own maximum.",
				number[Config]{at: func(c *Config) *int { return &c.Placement.MaxAllocationCandidates }, def: 100_000,
					min: -1, max: math.MaxInt32}},
			{
				"allocation_candidates_generation_strategy",
				restart,
				"Which candidates come first if there are more than the limit: \"breadth-first\" alternates\n" +
					"between root providers, \"depth-first\" returns all of one root before those of the next.",
				choice[Config]{func(c *Config) *string { return &c.Placement.AllocationCandidatesGenerationStrategy },
					BreadthFirst, []string{BreadthFirst, DepthFirst}},
			},
			{"randomize_allocation_candidates", restart,
				"Whether candidates are in random order, and a random selection if there are more than\nthe limit.",
				toggle[Config]{func(c *Config) *bool { return &c.Placement.RandomizeAllocationCandidates }, false}},
			{
				"extensions",
				restart,
				"Extensions of GET /allocation_candidates for all clients, from microversion 1.25 on. Other " +
					"extensions must be requested; see docs/placement-extensions.md.",
				list[Config]{
					at:    func(c *Config) *[]string { return &c.Placement.Extensions },
					words: "an array of " + listed(wire.Extensions[:], "and"),
					check: placementExtension,
				},
			},
			{
				"host_capacity_factor",
				restart,
				"How many times as much of each resource class a host may report, with its own credential, as it " +
					"reported when it came or as\nan operator has stated (cells manage admit-host); 0: any amount " +
					"of any class, and any traits. See docs/identity.md.",
				number[Config]{at: func(c *Config) *int { return &c.Placement.HostCapacityFactor }, def: 2, min: 0,
					max: 1000},
			},
			{
				"host_admission_window",
				restart,
				"How long after its first report all that a host reports is admitted.",
				duration[Config]{
					at: func(c *Config) *time.Duration { return &c.Placement.HostAdmissionWindow }, def: time.Hour,
					min: time.Minute, max: 30 * 24 * time.Hour,
					zero: "a host reports what an operator has stated",
				},
			},
			{
				"host_class_renames",
				restart,
				"Resource classes of hosts that have another name now, as \"VCPU=PCPU\": with its own credential, a " +
					"host may give allocations the\nother name in a reshape, in either direction, and amounts of " +
					"both count as those of one. See docs/identity.md.",
				list[Config]{at: func(c *Config) *[]string { return &c.Placement.HostClassRenames },
					words: classRenameWords, check: classRename},
			},
		},
	},
	{
		"placement_tls",
		"TLS of the bundled Placement server. It serves plain HTTP while cert_file is empty. Files that\nchange are " +
			"read again while it runs.",
		[]key[Config]{
			{"cert_file", restart,
				"File of the server's certificate and those between it and its CA, in PEM, or the name\nof a " +
					"credential.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementTLS.CertFile },
					words: secretWords, check: secretPath}},
			{"key_file", restart, "File of the key of cert_file, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementTLS.KeyFile },
					words: secretWords, check: secretPath}},
			{
				"client_ca_file",
				restart,
				"File of the PEM certificates of CAs, or the name of a credential. If it is set, clients must " +
					"present a certificate of one of them, in addition to --auth.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementTLS.ClientCAFile },
					words: secretWords, check: secretPath},
			},
			{
				"host_ca_file",
				restart,
				"File of the PEM certificates of the CAs of hosts, or the name of a credential. If it is set, a " +
					"client without a token that presents a certificate of one of them is the host that the " +
					"certificate names, whatever --auth is; see docs/identity.md.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementTLS.HostCAFile },
					words: secretWords, check: secretPath},
			},
		},
	},
	{
		"deny_list",
		"Hosts that Placement, the compute API and cells refuse, whatever they show; see docs/identity.md.",
		[]key[Config]{
			{
				"file",
				restart,
				"File of the hosts, as `compute-agent ca revoke` writes it. A changed file is reloaded. Empty means " +
					"none, or with url\ndenied_hosts in agent.state_dir.",
				text[Config]{at: func(c *Config) *string { return &c.DenyList.File },
					words: "an absolute path", check: absolutePath},
			},
			{
				"url",
				restart,
				"URL of the enrolment service ([enrolment] of the compute API) whose list is copied to file every " +
					"15 s. While it cannot be\nreached, the last copy stays in effect, for max_age. For Placement " +
					"and cells; empty means that file is an operator's.",
				text[Config]{at: func(c *Config) *string { return &c.DenyList.URL }, words: "a URL", check: secureURL},
			},
			{"ca_file", restart,
				"File of PEM certificates to trust at url instead of the system's. A changed file is reloaded.",
				text[Config]{at: func(c *Config) *string { return &c.DenyList.CAFile },
					words: "an absolute path", check: absolutePath}},
			{
				"max_age",
				restart,
				"How old the list may be. While it is older, all hosts are refused. With url, its age is the time " +
					"since it was fetched, also before\na restart; without, that since its date, which " +
					"`compute-agent ca deny-list --renew` sets.",
				duration[Config]{
					at: func(c *Config) *time.Duration { return &c.DenyList.MaxAge }, min: time.Minute,
					max:  10 * 365 * 24 * time.Hour,
					zero: "a day with url, and any age without",
				},
			},
		},
	},
	{
		"placement_metrics",
		"Metrics of the bundled Placement server for Prometheus. They are always on its admin socket.",
		[]key[Config]{
			{
				"listen",
				restart,
				"Address to serve /metrics, /healthz and /readyz on in addition, by plain HTTP without " +
					"authentication. The default host is 127.0.0.1. Empty\nmeans none.",
				text[Config]{at: func(c *Config) *string { return &c.PlacementMetrics.Listen },
					words: "\"HOST:PORT\" or \":PORT\"", check: listenAddress},
			},
		},
	},
	{
		"server",
		"Limits for clients of all services of a process: Placement, the compute API, a cell. At\nthe limit, the " +
			"connection that has been idle longest is closed.",
		[]key[Config]{
			{
				"max_connections",
				restart,
				"Maximum number of connections. 0 means as many as the limit of open files (LimitNOFILE)\nallows, " +
					"at most 20000; a higher number than it allows has no effect.",
				number[Config]{at: func(c *Config) *int { return &c.Server.MaxConnections }, max: 1_000_000},
			},
			{
				"max_connections_per_address",
				restart,
				"Maximum number of connections per IP address. 0 means a quarter of max_connections.\nIt does not " +
					"hold for trusted_proxies. Behind another load balancer, all clients have its\naddress: set it " +
					"to the value of max_connections.",
				number[Config]{at: func(c *Config) *int { return &c.Server.MaxConnectionsPerAddress }, max: 1_000_000},
			},
			{
				"trusted_proxies",
				restart,
				"Addresses and networks of load balancers and proxies that set X-Forwarded-For. For their requests, " +
					"logs, audit\nrecords and bounds per address have the last address of the header that is " +
					"not of these.",
				list[Config]{
					at:    func(c *Config) *[]string { return &c.Server.TrustedProxies },
					words: "an array of addresses and networks such as [\"192.0.2.10\", \"10.1.0.0/16\"]",
					check: proxyNetwork,
				},
			},
			{
				"shutdown_delay",
				restart,
				"How long Placement still answers requests after it received the signal to stop, while /readyz " +
					"answers\n503, so that load balancers send requests elsewhere. Set it to two or three intervals " +
					"of their health checks.",
				duration[Config]{
					at:   func(c *Config) *time.Duration { return &c.Server.ShutdownDelay },
					min:  100 * time.Millisecond,
					max:  15 * time.Second,
					zero: "it stops at once",
				},
			},
		},
	},
	{
		"keystone",
		"The Keystone that validates tokens for the bundled Placement server (--auth keystone) and the\ncompute API " +
			"(auth = \"keystone\"), and the service user for that, which needs the role service: with a password, " +
			"or with an\napplication credential.",
		[]key[Config]{
			{"auth_url", restart, "Address of Keystone.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.AuthURL },
					words: "a URL such as \"https://keystone.example:5000/v3\"", check: optionalURL}},
			{"username", restart, "Name of the service user.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.Username },
					def: "placement", words: "a name"}},
			{"user_domain_name", restart, "Domain of the service user.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.UserDomainName },
					def: "Default", words: "a name"}},
			{"project_name", restart, "Project of the service user.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.ProjectName },
					def: "service", words: "a name"}},
			{"project_domain_name", restart, "Domain of that project.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.ProjectDomainName },
					def: "Default", words: "a name"}},
			{"password_file", restart, "File of the service user's password, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.PasswordFile },
					words: secretWords, check: secretPath}},
			{"application_credential_id", restart,
				"Application credential to use instead of user, project and password.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.ApplicationCredentialID },
					words: "an identifier"}},
			{"application_credential_secret_file", restart, "File of its secret, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.ApplicationCredentialSecretFile },
					words: secretWords, check: secretPath}},
			{"ca_file", restart,
				"File of PEM certificates to trust instead of the system's, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.CAFile },
					words: secretWords, check: secretPath}},
			{"www_authenticate_uri", restart,
				"URL of Keystone in responses to clients whose token is rejected. Empty means auth_url,\nwhich " +
					"clients may be unable to reach.",
				text[Config]{at: func(c *Config) *string { return &c.Keystone.WWWAuthenticateURI },
					words: "a URL", check: optionalURL}},
			{"timeout", restart, "Timeout of requests to Keystone.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Keystone.Timeout },
					def: 10 * time.Second, min: 100 * time.Millisecond, max: 5 * time.Minute}},
			{"token_cache_time", restart, "How long a validated token is cached; a revoked token works until then.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Keystone.TokenCacheTime },
					def: 5 * time.Minute, min: time.Second, max: time.Hour}},
		},
	},
	{
		"cors",
		"Cross-origin requests to the bundled Placement server. Off while allowed_origin is empty.",
		[]key[Config]{
			{"allowed_origin", restart, "Origins whose pages may call Placement.",
				list[Config]{at: func(c *Config) *[]string { return &c.CORS.AllowedOrigin },
					words: "an array of origins such as [\"https://dashboard.example\"]", check: origin}},
			{
				"allow_headers",
				restart,
				"Request headers that such pages may send.",
				list[Config]{
					at:    func(c *Config) *[]string { return &c.CORS.AllowHeaders },
					def:   corsAllowHeaders,
					words: "an array of header names such as [\"X-Auth-Token\"]",
					check: headerName,
				},
			},
			{
				"allow_methods",
				restart,
				"Methods that such pages may use.",
				list[Config]{
					at:       func(c *Config) *[]string { return &c.CORS.AllowMethods },
					def:      []string{"GET", "PUT", "POST", "DELETE", "PATCH"},
					words:    "an array of methods such as [\"GET\"], at least one",
					check:    methodName,
					required: true,
				},
			},
			{
				"expose_headers",
				restart,
				"Response headers that such pages may read.",
				list[Config]{
					at:    func(c *Config) *[]string { return &c.CORS.ExposeHeaders },
					def:   corsExposeHeaders,
					words: "an array of header names such as [\"X-Openstack-Request-Id\"]",
					check: headerName,
				},
			},
			{"allow_credentials", restart, "Whether such pages may send cookies and client certificates.",
				toggle[Config]{func(c *Config) *bool { return &c.CORS.AllowCredentials }, true}},
			{"max_age", restart, "How many seconds a browser may cache the permission; 0 omits the header.",
				number[Config]{at: func(c *Config) *int { return &c.CORS.MaxAge }, def: 3600, max: 86400}},
		},
	},
	auditSection,
	{
		"policy",
		"Access policy of the bundled Placement server.",
		[]key[Config]{
			{
				"defaults",
				restart,
				"The set of rules: \"secure\" (Placement's own: admin and service, reshaping for service\nonly, " +
					"usages for readers of the project too), \"legacy\" (the same, and admin may reshape) or " +
					"\"open\"\n(all users).",
				choice[Config]{func(c *Config) *string { return &c.Policy.Defaults }, PolicySecure,
					[]string{PolicySecure, PolicyLegacy, PolicyOpen}},
			},
			{"file", restart,
				"File of rules that override them, like Placement's policy.yaml. A changed file is\nreloaded. Empty " +
					"means none.",
				text[Config]{at: func(c *Config) *string { return &c.Policy.File },
					words: "an absolute path", check: absolutePath}},
		},
	},
}
