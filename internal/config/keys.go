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
	corsAllowHeaders  = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Identity-Status", "X-Roles", "X-Service-Catalog", "X-User-Id", "X-Tenant-Id", "OpenStack-API-Version"}
	corsExposeHeaders = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Subject-Token", "X-Service-Token", "OpenStack-API-Version"}
)

// sections declares every section but [drivers.NAME], in the order in which
// Defaults writes them.
var sections = slices.Concat(agentSections, cellSections)

// agentSections declares those of the agent and of the bundled Placement.
var agentSections = []section{
	{"agent", "Who and where this agent is.", []key[Config]{
		{"host", restart, "Name of this host and, unless the driver knows better, of its compute node in\nPlacement. Empty means the host name of the machine.",
			text[Config]{at: func(c *Config) *string { return &c.Agent.Host }, words: "a name of 1 to 200 characters without spaces", check: hostName}},
		{"state_dir", restart, "Directory of what the agent must remember: its identity, its records, the bundled\nPlacement's database. Empty means $STATE_DIRECTORY, else /var/lib/compute-agent for\nroot and $XDG_STATE_HOME/compute-agent for others.",
			text[Config]{at: func(c *Config) *string { return &c.Agent.StateDir }, words: "an absolute path", check: absolutePath}},
		{"runtime_dir", restart, "Directory of the control socket and the plugins' sockets. Empty means\n$RUNTIME_DIRECTORY, else /run/compute-agent for root and\n$XDG_RUNTIME_DIR/compute-agent for others.",
			text[Config]{at: func(c *Config) *string { return &c.Agent.RuntimeDir }, words: "an absolute path", check: absolutePath}},
	}},
	{"placement_client", "The Placement service that the agent reports to.", slices.Concat([]key[Config]{
		{"url", restart, "Address of Placement, with its path when it has one. Empty means what Keystone's\ncatalogue says with auth = \"keystone\", and else " + DefaultPlacementURL + ".",
			text[Config]{at: func(c *Config) *string { return &c.PlacementClient.URL }, words: "a URL such as \"https://placement.example:8778\"", check: optionalURL}},
		{"auth", restart, "How the agent proves who it is: \"noauth\" (Placement with auth_strategy = noauth2, for\none machine or a test), \"token\" (the token in token_file) or \"keystone\" (a token that it\ngets from Keystone, and renews).",
			choice[Config]{func(c *Config) *string { return &c.PlacementClient.Auth }, AuthNoauth, []string{AuthNoauth, AuthToken, AuthKeystone}}},
		{"token_file", restart, "File that holds the token, or the bare name of a systemd credential.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementClient.TokenFile }, words: secretWords, check: secretPath}},
		{"ca_file", restart, "File of PEM certificates to trust instead of the system's, or the name of a credential.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementClient.CAFile }, words: secretWords, check: secretPath}},
		{"cert_file", restart, "File of the agent's own TLS certificate, in PEM, or the name of a credential.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementClient.CertFile }, words: secretWords, check: secretPath}},
		{"key_file", restart, "File of the key of cert_file, in PEM, or the name of a credential.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementClient.KeyFile }, words: secretWords, check: secretPath}},
		{"timeout", restart, "How long one request may take, reply included.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.PlacementClient.Timeout }, def: 30 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute}},
		{"connect_timeout", restart, "How long a connection may take to be made, TLS included.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.PlacementClient.ConnectTimeout }, def: 5 * time.Second, min: 100 * time.Millisecond, max: 5 * time.Minute}},
		{"retries", restart, "How often the agent repeats a request that is safe to repeat after a lost connection, a 429, 502, 503 or 504.",
			number[Config]{at: func(c *Config) *int { return &c.PlacementClient.Retries }, def: 3, max: 20}},
		{"use_proxy", restart, "Whether HTTP_PROXY, HTTPS_PROXY and NO_PROXY are heeded. Control planes are seldom\nbehind a proxy, and a stray variable has cut off many an agent.",
			toggle[Config]{func(c *Config) *bool { return &c.PlacementClient.UseProxy }, false}},
	}, clientKeystoneKeys)},
	{"tracker", "When the provider tree is brought up to date.", []key[Config]{
		{"update_resources_interval", live, "Time between two passes, give or take a little jitter.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.UpdateResourcesInterval }, def: time.Minute, min: 100 * time.Millisecond, max: 24 * time.Hour}},
		{"association_refresh", live, "How long the tree as Placement told it is trusted before it is read again, because\nothers may have changed traits, aggregates or sharing providers.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.AssociationRefresh }, def: 5 * time.Minute, min: 100 * time.Millisecond, max: 24 * time.Hour, zero: "never"}},
		{"startup_deadline", restart, "How long the first pass may keep the agent from saying that it is ready. After that it\nis ready and degraded, and goes on trying. Likewise, how long a reload waits for drivers\nto take their new configuration. TimeoutStartSec of the systemd unit must be longer.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.StartupDeadline }, def: time.Minute, min: time.Second, max: time.Hour}},
		{"pass_deadline", live, "How long one pass over one node may take, the driver's answer and all requests together.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.PassDeadline }, def: 2 * time.Minute, min: time.Second, max: time.Hour}},
		{"retry_backoff_min", live, "First pause after a failed pass; it doubles with every further failure.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.RetryBackoffMin }, def: time.Second, min: 10 * time.Millisecond, max: time.Hour}},
		{"retry_backoff_max", live, "Longest pause between failed passes.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Tracker.RetryBackoffMax }, def: 2 * time.Minute, min: 10 * time.Millisecond, max: 24 * time.Hour}},
		{"provider_config_location", live, "Directory of the provider.yaml files (*.yaml, in Nova's format): inventories and traits\nthat you add to resource providers. Empty means provider_config beside this file. A\ndirectory that is not there is no files. They are read again when they change.",
			text[Config]{at: func(c *Config) *string { return &c.Tracker.ProviderConfigLocation }, words: "an absolute path", check: absolutePath}},
	}},
	{"reshape", "The move of inventory that guests use, and of their allocations with it, to other providers.\nIt takes place when the agent starts and a driver needs it.", []key[Config]{
		{"on_failure", live, "What the agent does when a reshape is refused, by its own checks or by Placement: \"exit\"\nends it with exit code 3; \"hold\" keeps it up, degraded, and it writes nothing for that\nnode until `compute-agent refresh` or a reload has it try again. Guests run on either way.",
			choice[Config]{func(c *Config) *string { return &c.Reshape.OnFailure }, OnFailureExit, []string{OnFailureExit, OnFailureHold}}},
	}},
	{"plugins", "Where the drivers' plugins are and how their processes are watched. [drivers.NAME.timeouts] and\n[drivers.NAME.restart] say otherwise for one driver.", []key[Config]{
		{"dir", restart, "Directory of the plugins: compute-driver-NAME for [drivers.NAME]. Unless it is set, a driver that is\nnot there is also looked for beside the agent's own executable.",
			text[Config]{at: func(c *Config) *string { return &c.Plugins.Dir }, def: "/usr/libexec/compute-agent/plugins", words: "an absolute path", check: absolutePathRequired}},
		{"handshake_timeout", live, "How long a plugin may take from its start to its handshake.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.HandshakeTimeout }, def: 30 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute}},
		{"call_timeout", live, "How long a driver may take to answer one call.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.CallTimeout }, def: time.Minute, min: 100 * time.Millisecond, max: time.Hour}},
		{"health_interval", live, "Time between two health checks of a plugin.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.HealthInterval }, def: 10 * time.Second, min: 10 * time.Millisecond, max: time.Hour}},
		{"health_timeout", live, "How long a plugin may take to answer a health check.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.HealthTimeout }, def: 3 * time.Second, min: 10 * time.Millisecond, max: time.Hour}},
		{"health_misses", live, "Health checks missed in a row after which the process is killed and started again.",
			number[Config]{at: func(c *Config) *int { return &c.Plugins.HealthMisses }, def: 3, min: 1, max: 100}},
		{"shutdown_timeout", live, "How long a plugin may take to end by itself before it is killed.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.ShutdownTimeout }, def: 10 * time.Second, min: 10 * time.Millisecond, max: 10 * time.Minute}},
		{"backoff_min", live, "First pause before a crashed plugin is started again; it doubles with every crash.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.BackoffMin }, def: time.Second, min: 10 * time.Millisecond, max: time.Hour}},
		{"backoff_max", live, "Longest pause before a crashed plugin is started again.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.BackoffMax }, def: 2 * time.Minute, min: 10 * time.Millisecond, max: 24 * time.Hour}},
		{"crash_limit", live, "Crashes within crash_window after which a plugin is left alone for the quarantine.",
			number[Config]{at: func(c *Config) *int { return &c.Plugins.CrashLimit }, def: 5, min: 1, max: 1000}},
		{"crash_window", live, "Time over which crashes are counted; a plugin that ran so long has a clean record.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.CrashWindow }, def: 10 * time.Minute, min: time.Second, max: 24 * time.Hour}},
		{"quarantine", live, "How long a plugin that crashes again and again is left alone.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Plugins.Quarantine }, def: 10 * time.Minute, min: time.Second, max: 24 * time.Hour}},
	}},
	{"log", "What the agent writes to standard error.", []key[Config]{
		{"level", live, "The least severe messages to write.",
			choice[Config]{func(c *Config) *string { return &c.Log.Level }, "info", []string{"trace", "debug", "info", "warn", "error"}}},
		{"format", restart, "\"journald\" sends each message with its fields to systemd's journal. \"auto\" does that where\nstandard error is the journal, writes JSON where it is no terminal, and a form for people\non a terminal.",
			choice[Config]{func(c *Config) *string { return &c.Log.Format }, FormatAuto, []string{FormatAuto, FormatJSON, FormatConsole, FormatJournald}}},
	}},
	{"metrics", "Metrics of the agent for Prometheus. They are always on its control socket.", []key[Config]{
		{"listen", restart, "Address to serve /metrics, /healthz and /readyz on as well, by plain HTTP and to whoever\nasks, such as \"127.0.0.1:9177\". Without a host it is 127.0.0.1. Empty means nowhere.",
			text[Config]{at: func(c *Config) *string { return &c.Metrics.Listen }, words: "\"HOST:PORT\" or \":PORT\"", check: listenAddress}},
	}},
	{"tracing", "Traces of passes and requests, for a collector that speaks OTLP over HTTP.", []key[Config]{
		{"endpoint", restart, "Address of the collector, with the path if it is not /v1/traces, such as\n\"http://127.0.0.1:4318\". Empty means no tracing.",
			text[Config]{at: func(c *Config) *string { return &c.Tracing.Endpoint }, words: "a URL", check: optionalURL}},
		{"sample_ratio", restart, "Which part of the passes is traced: 1 is all of them, 0.01 every hundredth.",
			fraction[Config]{at: func(c *Config) *float64 { return &c.Tracing.SampleRatio }, def: 1}},
	}},
	{"placement", "The bundled Placement server, with Placement's own option names.", []key[Config]{
		{"incomplete_consumer_project_id", restart, "Project of consumers made by microversions below 1.8, which carry none.",
			text[Config]{at: func(c *Config) *string { return &c.Placement.IncompleteConsumerProjectID }, def: uuidZero, words: idWords, check: consumerID}},
		{"incomplete_consumer_user_id", restart, "User of consumers made by microversions below 1.8, which carry none.",
			text[Config]{at: func(c *Config) *string { return &c.Placement.IncompleteConsumerUserID }, def: uuidZero, words: idWords, check: consumerID}},
		{"max_allocation_candidates", restart, "Upper bound of the allocation candidates that are made for one request, whatever limit\nit has; -1 is no bound but the server's own.",
			number[Config]{at: func(c *Config) *int { return &c.Placement.MaxAllocationCandidates }, def: 100_000, min: -1, max: math.MaxInt32}},
		{"allocation_candidates_generation_strategy", restart, "Which candidates are made first where there are more than the bound or the limit:\n\"breadth-first\" takes turns between the root providers, \"depth-first\" makes all of\none root before those of the next.",
			choice[Config]{func(c *Config) *string { return &c.Placement.AllocationCandidatesGenerationStrategy }, BreadthFirst, []string{BreadthFirst, DepthFirst}}},
		{"randomize_allocation_candidates", restart, "Whether candidates come in random order, and are a random choice where there are more\nthan the limit.",
			toggle[Config]{func(c *Config) *bool { return &c.Placement.RandomizeAllocationCandidates }, false}},
		{"extensions", restart, "Extensions of GET /allocation_candidates for all clients, from microversion 1.25 on. Others\nhave to ask for them; see docs/placement-extensions.md.",
			list[Config]{at: func(c *Config) *[]string { return &c.Placement.Extensions }, words: "an array of " + listed(wire.Extensions, "and"), check: placementExtension}},
	}},
	{"placement_tls", "TLS of the bundled Placement server. It serves plain HTTP while cert_file is empty. Files that\nchange are read again while it runs.", []key[Config]{
		{"cert_file", restart, "File of the server's certificate and those between it and its CA, in PEM, or the name\nof a credential.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementTLS.CertFile }, words: secretWords, check: secretPath}},
		{"key_file", restart, "File of the key of cert_file, in PEM, or the name of a credential.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementTLS.KeyFile }, words: secretWords, check: secretPath}},
		{"client_ca_file", restart, "File of the PEM certificates of CAs, or the name of a credential. When it is set, clients\nmust show a certificate of one of them, beside what --auth asks of them.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementTLS.ClientCAFile }, words: secretWords, check: secretPath}},
	}},
	{"placement_metrics", "Metrics of the bundled Placement server for Prometheus. They are always on its admin socket.", []key[Config]{
		{"listen", restart, "Address to serve /metrics, /healthz and /readyz on as well, by plain HTTP and to whoever\nasks. Without a host it is 127.0.0.1. Empty means nowhere.",
			text[Config]{at: func(c *Config) *string { return &c.PlacementMetrics.Listen }, words: "\"HOST:PORT\" or \":PORT\"", check: listenAddress}},
	}},
	{"server", "Bounds for the clients of all services of a process: Placement, the compute API, a cell. When there\nis one connection too many, the one that has been idle for longest is closed for it.", []key[Config]{
		{"max_connections", restart, "How many connections there may be. 0 is as many as the limit of open files (LimitNOFILE)\nallows, at most 20000; a greater number than it allows has no effect.",
			number[Config]{at: func(c *Config) *int { return &c.Server.MaxConnections }, max: 1_000_000}},
		{"max_connections_per_address", restart, "How many of them one IP address may have. 0 is a quarter of max_connections. Behind a load\nbalancer or a proxy all clients have its address: set it to the same as max_connections.",
			number[Config]{at: func(c *Config) *int { return &c.Server.MaxConnectionsPerAddress }, max: 1_000_000}},
	}},
	{"keystone", "The Keystone that the bundled Placement server asks about tokens (--auth keystone), and the\nservice user that it asks as, who needs the role service there: with a password, or with an\napplication credential.", []key[Config]{
		{"auth_url", restart, "Address of Keystone.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.AuthURL }, words: "a URL such as \"https://keystone.example:5000/v3\"", check: optionalURL}},
		{"username", restart, "Name of the service user.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.Username }, def: "placement", words: "a name"}},
		{"user_domain_name", restart, "Domain of the service user.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.UserDomainName }, def: "Default", words: "a name"}},
		{"project_name", restart, "Project of the service user.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.ProjectName }, def: "service", words: "a name"}},
		{"project_domain_name", restart, "Domain of that project.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.ProjectDomainName }, def: "Default", words: "a name"}},
		{"password_file", restart, "File of the service user's password, or the name of a credential.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.PasswordFile }, words: secretWords, check: secretPath}},
		{"application_credential_id", restart, "Application credential to use instead of user, project and password.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.ApplicationCredentialID }, words: "an identifier"}},
		{"application_credential_secret_file", restart, "File of its secret, or the name of a credential.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.ApplicationCredentialSecretFile }, words: secretWords, check: secretPath}},
		{"ca_file", restart, "File of PEM certificates to trust instead of the system's, or the name of a credential.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.CAFile }, words: secretWords, check: secretPath}},
		{"www_authenticate_uri", restart, "Address of Keystone that clients are told when their token is refused. Empty means the\none above, which clients may not reach.",
			text[Config]{at: func(c *Config) *string { return &c.Keystone.WWWAuthenticateURI }, words: "a URL", check: optionalURL}},
		{"timeout", restart, "How long Keystone may take to answer.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Keystone.Timeout }, def: 10 * time.Second, min: 100 * time.Millisecond, max: 5 * time.Minute}},
		{"token_cache_time", restart, "How long what Keystone said of a token is believed; a token that is revoked works so long.",
			duration[Config]{at: func(c *Config) *time.Duration { return &c.Keystone.TokenCacheTime }, def: 5 * time.Minute, min: time.Second, max: time.Hour}},
	}},
	{"cors", "Cross-origin requests to the bundled Placement server. Off while allowed_origin is empty.", []key[Config]{
		{"allowed_origin", restart, "Origins whose pages may call Placement.",
			list[Config]{at: func(c *Config) *[]string { return &c.CORS.AllowedOrigin }, words: "an array of origins such as [\"https://dashboard.example\"]", check: origin}},
		{"allow_headers", restart, "Request headers that such pages may send.",
			list[Config]{at: func(c *Config) *[]string { return &c.CORS.AllowHeaders }, def: corsAllowHeaders, words: "an array of header names such as [\"X-Auth-Token\"]", check: headerName}},
		{"allow_methods", restart, "Methods that such pages may use.",
			list[Config]{at: func(c *Config) *[]string { return &c.CORS.AllowMethods }, def: []string{"GET", "PUT", "POST", "DELETE", "PATCH"}, words: "an array of methods such as [\"GET\"], at least one", check: methodName, required: true}},
		{"expose_headers", restart, "Headers of an answer that such pages may read.",
			list[Config]{at: func(c *Config) *[]string { return &c.CORS.ExposeHeaders }, def: corsExposeHeaders, words: "an array of header names such as [\"X-Openstack-Request-Id\"]", check: headerName}},
		{"allow_credentials", restart, "Whether such pages may have cookies and client certificates sent along.",
			toggle[Config]{func(c *Config) *bool { return &c.CORS.AllowCredentials }, true}},
		{"max_age", restart, "How many seconds a browser may remember what it was allowed; 0 says nothing about it.",
			number[Config]{at: func(c *Config) *int { return &c.CORS.MaxAge }, def: 3600, max: 86400}},
	}},
	{"policy", "Who may do what at the bundled Placement server.", []key[Config]{
		{"defaults", restart, "The set of rules: \"secure\" (Placement's own: admin and service, reshaping for service\nonly, usages for readers of the project too), \"legacy\" (the same, and admin may reshape)\nor \"open\" (everybody).",
			choice[Config]{func(c *Config) *string { return &c.Policy.Defaults }, PolicySecure, []string{PolicySecure, PolicyLegacy, PolicyOpen}}},
		{"file", restart, "File of rules that go before them, as Placement's policy.yaml. When it changes it is read\nagain while the server runs. Empty means none.",
			text[Config]{at: func(c *Config) *string { return &c.Policy.File }, words: "an absolute path", check: absolutePath}},
	}},
}
