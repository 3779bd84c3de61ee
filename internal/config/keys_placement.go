// SPDX-License-Identifier: Apache-2.0

package config

import (
	"math"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// uuidZero is what Placement records as project and user of consumers that
// were made by microversions that did not carry them.
const uuidZero = "00000000-0000-0000-0000-000000000000"

// Headers that Placement lets pages of other origins send and read by default.
var (
	corsAllowHeaders = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Identity-Status", "X-Roles",
		"X-Service-Catalog", "X-User-Id", "X-Tenant-Id", "OpenStack-API-Version"}
	corsExposeHeaders = []string{"X-Auth-Token", "X-Openstack-Request-Id", "X-Subject-Token",
		"X-Service-Token", "OpenStack-API-Version"}
)

// placementSections declares those of the bundled Placement, and those that it shares with other
// services.
var placementSections = []section{
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
