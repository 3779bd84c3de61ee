// SPDX-License-Identifier: Apache-2.0

package config

import "time"

// ComputeAPI is the section [compute_api]: the Nova-compatible API over cells.
type ComputeAPI struct {
	Listen       string // HOST:PORT.
	Database     string // A DSN; empty is compute_api.db below agent.state_dir.
	Auth         string // AuthNoauth, AuthToken or AuthKeystone ([keystone]).
	TokenFile    string
	CertFile     string // Empty is plain HTTP.
	KeyFile      string
	ClientCAFile string
	PolicyFile   string
	Endpoint     string // What links begin with; empty is what the request says.

	SerialConsoleBaseURL string        // Empty is a path of the API itself.
	ConsoleTokenTTL      time.Duration // How long the URL of a console can be used.

	MetricsListen string // HOST:PORT, or :PORT of loopback; empty is nowhere but the admin socket.

	// How it proves to a cell who it is, and which authorities it trusts there.
	CellTokenFile string
	CellCAFile    string
	CellCertFile  string
	CellKeyFile   string

	CellTimeout      time.Duration
	CellPingInterval time.Duration // Zero: each request waits for a cell that hangs.
	CellDownTime     time.Duration

	MaxLimit                       int
	ListRecordsBySkippingDownCells bool
	InstanceListPerProjectCells    bool
	ReclaimInstanceInterval        time.Duration // Zero: servers are deleted at once.
	ResizeConfirmWindow            time.Duration // Zero: their owners confirm migrations.
	DiscoverHostsPattern           []string      // Shell patterns of the names of hosts.
	DiscoverHostsInterval          time.Duration // Zero: only `cells manage discover-hosts`.
	DefaultAvailabilityZone        string
	PCIAlias                       []string // Nova's [pci] alias, a JSON object each.
	InternalServiceZone            string
	DefaultScheduleZone            string // Empty: any.
}

// Quota is the section [quota]: limits of projects for which none are set, with Nova's names; -1 is
// no limit.
type Quota struct {
	Instances               int
	Cores                   int
	RAM                     int // MiB.
	MetadataItems           int
	KeyPairs                int
	ServerGroups            int
	ServerGroupMembers      int
	CountUsageFromPlacement bool
	RecheckQuota            bool
}

// Scheduler is the section [scheduler]: how host aggregates restrict servers, with Nova's names.
type Scheduler struct {
	MaxPlacementResults int // Candidates per request to Placement.
	// MaxAttempts is on how many hosts a server is built when each says that it cannot.
	MaxAttempts int

	LimitTenants       bool
	RequireTenants     bool
	ZonesFromPlacement bool
	IsolateAggregates  bool

	RequiredMemberPrefix         []string // Of extra specs that name aggregates by their metadata.
	DefaultForbiddenMemberPrefix []string // Of metadata of aggregates that others keep out of.
}

// Cell is the section [cell]: the process of one cell.
type Cell struct {
	Database        string // A DSN; empty is cell.db below agent.state_dir.
	Listen          string // HOST:PORT or unix:///PATH.
	Auth            string // AuthNoauth, AuthPeer, AuthToken or AuthMTLS.
	TokenFile       string
	CertFile        string
	KeyFile         string
	PeerCAFile      string
	APINames        []string // Names in certificates of the compute API, with AuthMTLS.
	APIUsers        []string // Users of this machine that are the compute API, with AuthPeer.
	AgentUsers      []string // Users of this machine that are the agent of agent.host, with AuthPeer.
	MetricsListen   string   // HOST:PORT, or :PORT of loopback; empty is nowhere but the admin socket.
	ReportInterval  time.Duration
	ServiceDownTime time.Duration
	// MaxNodesPerHost does not count nodes that the certificate of their host names.
	MaxNodesPerHost  int
	ForgetNodesAfter time.Duration
}

// AuthMTLS is the value of Cell.Auth that knows clients by their certificates, AuthPeer the one
// that knows them by the user of their process.
const (
	AuthMTLS = "mtls"
	AuthPeer = "peer"
)

// CellClient is the section [cell_client]: the cell that this agent's host belongs to.
type CellClient struct {
	URL       string // Empty: none, and the agent makes no guests.
	TokenFile string
	CAFile    string
	CertFile  string
	KeyFile   string
	Timeout   time.Duration
	// BuildTimeout is after how long a server that its driver cannot make is in error; 0: never.
	BuildTimeout time.Duration
}

// cellSections declares the sections of cells.
var cellSections = []section{
	{
		"cell_client",
		"The cell of this host, which tells the agent which guests to create and destroy, and\nreceives their states.",
		[]key[Config]{
			{
				"url",
				restart,
				"Address of the cell, unix:///PATH on the same machine; of several processes of the cell,\nall " +
					"addresses, separated by commas. Empty means none: the agent only reports to Placement, and " +
					"does not manage guests.",
				text[Config]{at: func(c *Config) *string { return &c.CellClient.URL },
					words: "a URL such as \"https://cell1.example:8780\", or several", check: cellURLs},
			},
			{"token_file", restart, "File that holds the token, or the bare name of a systemd credential.",
				text[Config]{at: func(c *Config) *string { return &c.CellClient.TokenFile },
					words: secretWords, check: secretPath}},
			{"ca_file", restart,
				"File of PEM certificates to trust instead of the system's, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.CellClient.CAFile },
					words: secretWords, check: secretPath}},
			{"cert_file", restart,
				"File of the agent's own TLS certificate, in PEM, or the name of a credential. Its name is\n" +
					"the host's.",
				text[Config]{at: func(c *Config) *string { return &c.CellClient.CertFile },
					words: secretWords, check: secretPath}},
			{"key_file", restart, "File of the key of cert_file, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.CellClient.KeyFile },
					words: secretWords, check: secretPath}},
			{"timeout", restart, "Timeout of a request, in addition to the time that the cell may wait for work.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.CellClient.Timeout },
					def: 10 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute}},
			{
				"instance_build_timeout",
				restart,
				"After how long a server whose guest the driver tries to make, without saying that it cannot, is " +
					"in\nERROR: what is left of the guest is removed first.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.CellClient.BuildTimeout },
					def: time.Hour, min: time.Second, max: 7 * 24 * time.Hour, zero: "it stays in BUILD",
				},
			},
		},
	},
	{
		"cell",
		"The process of one cell (`compute-agent cells serve`).",
		[]key[Config]{
			{"listen", restart,
				"Address of the cell, for the compute API and the agents of its hosts: HOST:PORT, or\nunix:///PATH.",
				text[Config]{at: func(c *Config) *string { return &c.Cell.Listen }, def: "127.0.0.1:8780",
					words: "\"HOST:PORT\" or \"unix:///PATH\"", check: cellListen}},
			{
				"database",
				restart,
				"The cell's database. Several processes of a cell can share one on MariaDB, MySQL or\nPostgreSQL. " +
					"Empty means cell.db in agent.state_dir.",
				text[Config]{at: func(c *Config) *string { return &c.Cell.Database },
					words: databaseWords, check: databaseDSN},
			},
			{
				"auth",
				restart,
				"How clients authenticate: \"noauth\" (trusted; loopback and unix sockets only),\n\"peer\" (unix " +
					"sockets only: api_users and agent_users, the users of this machine that may\nconnect), " +
					"\"token\" (token_file: the role compute-api for the compute API, the role agent\nwith the " +
					"host's name as user for an agent) or \"mtls\" (the name in their certificates).",
				choice[Config]{func(c *Config) *string { return &c.Cell.Auth }, AuthNoauth,
					[]string{AuthNoauth, AuthPeer, AuthToken, AuthMTLS}},
			},
			{"token_file", restart,
				"File of the tokens' digests: lines of SHA256 ROLE USER; or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.Cell.TokenFile },
					words: secretWords, check: secretPath}},
			{"cert_file", restart,
				"File of the cell's certificate and those between it and its CA, in PEM, or the name of a\n" +
					"credential. Empty means plain HTTP.",
				text[Config]{at: func(c *Config) *string { return &c.Cell.CertFile },
					words: secretWords, check: secretPath}},
			{"key_file", restart, "File of the key of cert_file, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.Cell.KeyFile },
					words: secretWords, check: secretPath}},
			{"peer_ca_file", restart,
				"File of the PEM certificates of CAs that clients' certificates must be signed by, or the\nname of " +
					"a credential.",
				text[Config]{at: func(c *Config) *string { return &c.Cell.PeerCAFile },
					words: secretWords, check: secretPath}},
			{"api_names", restart,
				"Names in certificates (CN or DNS name) that are the compute API's, with auth = \"mtls\".\nAll " +
					"other names are hosts.",
				list[Config]{at: func(c *Config) *[]string { return &c.Cell.APINames }, def: []string{"compute-api"},
					words: "an array of names"}},
			{"api_users", restart,
				"Users of this machine that are the compute API, with auth = \"peer\": names or uids.",
				list[Config]{at: func(c *Config) *[]string { return &c.Cell.APIUsers },
					def: []string{"compute-agent-cells-api", "root"}, words: "an array of users"}},
			{"agent_users", restart,
				"Users of this machine that are its agent, with auth = \"peer\": names or uids. They are\nthe agent " +
					"of the host agent.host, and of no other.",
				list[Config]{at: func(c *Config) *[]string { return &c.Cell.AgentUsers },
					def: []string{"compute-agent"}, words: "an array of users"}},
			{
				"metrics_listen",
				restart,
				"Address to serve /metrics, /healthz and /readyz on in addition to the admin socket, by plain HTTP " +
					"without authentication. The default host\nis 127.0.0.1. Empty means none.",
				text[Config]{at: func(c *Config) *string { return &c.Cell.MetricsListen },
					words: "\"HOST:PORT\" or \":PORT\"", check: listenAddress},
			},
			{"report_interval", restart, "How often agents send heartbeats.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Cell.ReportInterval },
					def: 10 * time.Second, min: 100 * time.Millisecond, max: time.Hour}},
			{"service_down_time", restart,
				"How long after the last heartbeat a host counts as down: no servers are scheduled there,\nand its " +
					"servers are deleted without it.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Cell.ServiceDownTime },
					def: time.Minute, min: 200 * time.Millisecond, max: 24 * time.Hour}},
			{"max_nodes_per_host", restart,
				"Maximum number of compute nodes of a host; others that it reports are refused. Nodes that its\n" +
					"certificate names do not count.",
				number[Config]{at: func(c *Config) *int { return &c.Cell.MaxNodesPerHost },
					def: 16, min: 1, max: 1000}},
			{"forget_nodes_after", restart,
				"How long after its host stopped to report it a compute node without servers is forgotten, so\nthat " +
					"another host can have it.",
				duration[Config]{at: func(c *Config) *time.Duration { return &c.Cell.ForgetNodesAfter },
					def: 24 * time.Hour, min: time.Minute, max: 365 * 24 * time.Hour}},
		},
	},
	{
		"compute_api",
		"The Nova-compatible compute API over cells (`compute-agent cells api`). It reaches Placement as\n" +
			"[placement_client] says.",
		[]key[Config]{
			{"listen", restart, "Address of the API.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.Listen }, def: "127.0.0.1:8774",
					words: "\"HOST:PORT\" or \":PORT\"", check: listenAddress}},
			{
				"database",
				restart,
				"The API database. Empty means compute_api.db in agent.state_dir. Several compute APIs can\nshare a " +
					"database of MariaDB, MySQL or PostgreSQL servers:\n" +
					"mysql://USER@HOST[,HOST...]/DATABASE?password_file=/PATH, or postgres://...",
				text[Config]{
					at:    func(c *Config) *string { return &c.ComputeAPI.Database },
					words: databaseWords,
					check: databaseDSN,
				},
			},
			{"auth", restart,
				"How requests are authenticated: \"noauth\" (loopback only), \"token\" (token_file) or\n" +
					"\"keystone\" (the service of [keystone]).",
				choice[Config]{func(c *Config) *string { return &c.ComputeAPI.Auth }, AuthNoauth,
					[]string{AuthNoauth, AuthToken, AuthKeystone}}},
			{"token_file", restart, "File of the tokens' digests, as for Placement, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.TokenFile },
					words: secretWords, check: secretPath}},
			{"cert_file", restart,
				"File of the server's certificate and those between it and its CA, in PEM, or the name of\na " +
					"credential. Empty means plain HTTP.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.CertFile },
					words: secretWords, check: secretPath}},
			{"key_file", restart, "File of the key of cert_file, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.KeyFile },
					words: secretWords, check: secretPath}},
			{"client_ca_file", restart,
				"File of the PEM certificates of CAs, or the name of a credential. If it is set, clients must " +
					"present a certificate of one of them.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.ClientCAFile },
					words: secretWords, check: secretPath}},
			{
				"metrics_listen",
				restart,
				"Address to serve /metrics, /healthz and /readyz on in addition to the admin socket, by plain HTTP " +
					"without authentication. The default host\nis 127.0.0.1. Empty means none.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.MetricsListen },
					words: "\"HOST:PORT\" or \":PORT\"", check: listenAddress},
			},
			{"policy_file", restart,
				"File of rules, in oslo.policy's YAML, that override the defaults, which are Nova's. A\nchanged " +
					"file is reloaded. Empty means none.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.PolicyFile },
					words: "an absolute path", check: absolutePath}},
			{"endpoint", restart,
				"Base URL of links in responses, for a server behind a proxy. Empty means the URL of the\nrequest.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.Endpoint },
					words: "a URL", check: optionalURL}},
			{
				"serial_console_base_url",
				restart,
				"Base URL of serial consoles, for a proxy before /serial-console of this API, which serves them.\n" +
					"Empty means /serial-console of endpoint, or of the URL of the request.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.SerialConsoleBaseURL },
					words: "a URL", check: optionalURL},
			},
			{
				"console_token_ttl",
				restart,
				"How long the URL of a console can be used. Consoles that are open then stay so.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.ComputeAPI.ConsoleTokenTTL },
					def: 10 * time.Minute,
					min: time.Second,
					max: 24 * time.Hour,
				},
			},
			{"cell_token_file", restart, "File that holds the token for the cells, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.CellTokenFile },
					words: secretWords, check: secretPath}},
			{"cell_ca_file", restart,
				"File of PEM certificates to trust at cells instead of the system's, or the name of a\ncredential.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.CellCAFile },
					words: secretWords, check: secretPath}},
			{"cell_cert_file", restart,
				"File of the certificate to show to cells, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.CellCertFile },
					words: secretWords, check: secretPath}},
			{"cell_key_file", restart, "File of the key of cell_cert_file, in PEM, or the name of a credential.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.CellKeyFile },
					words: secretWords, check: secretPath}},
			{
				"cell_timeout",
				restart,
				"Timeout of a request to a cell. In the response, a cell that takes longer counts as down.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.ComputeAPI.CellTimeout },
					def: 10 * time.Second,
					min: 50 * time.Millisecond,
					max: 10 * time.Minute,
				},
			},
			{
				"cell_ping_interval",
				restart,
				"How often each cell is pinged in the background.",
				duration[Config]{
					at:   func(c *Config) *time.Duration { return &c.ComputeAPI.CellPingInterval },
					def:  time.Second,
					min:  50 * time.Millisecond,
					max:  time.Minute,
					zero: "never: each request waits cell_timeout for a cell that hangs",
				},
			},
			{
				"cell_down_time",
				restart,
				"How long after its last answer a cell counts as down if it does not answer pings either:\nrequests " +
					"to it end, and others are not sent until it answers a ping. At least twice\ncell_ping_interval.",
				duration[Config]{
					at:  func(c *Config) *time.Duration { return &c.ComputeAPI.CellDownTime },
					def: 2 * time.Second,
					min: 100 * time.Millisecond,
					max: 10 * time.Minute,
				},
			},
			{"max_limit", restart, "Maximum number of records in a response. A cell returns at most 10,000 at once.",
				number[Config]{at: func(c *Config) *int { return &c.ComputeAPI.MaxLimit },
					def: 1000, min: 1, max: 10_000}},
			{
				"list_records_by_skipping_down_cells",
				restart,
				"Whether lists skip cells that are down if minimal records are not possible. Otherwise\nsuch a list " +
					"fails with status 500.",
				toggle[Config]{func(c *Config) *bool { return &c.ComputeAPI.ListRecordsBySkippingDownCells }, true},
			},
			{"instance_list_per_project_cells", restart,
				"Whether lists of a project only query cells with servers of the project.",
				toggle[Config]{func(c *Config) *bool { return &c.ComputeAPI.InstanceListPerProjectCells }, false}},
			{
				"reclaim_instance_interval",
				restart,
				"How long deleted servers can be restored before they are deleted for good.",
				duration[Config]{
					at:   func(c *Config) *time.Duration { return &c.ComputeAPI.ReclaimInstanceInterval },
					min:  time.Second,
					max:  365 * 24 * time.Hour,
					zero: "they are deleted at once",
				},
			},
			{
				"resize_confirm_window",
				restart,
				"How long after a migration a server is confirmed on its new host, unless a client does so, or\n" +
					"reverts it, before.",
				duration[Config]{
					at:   func(c *Config) *time.Duration { return &c.ComputeAPI.ResizeConfirmWindow },
					min:  time.Second,
					max:  365 * 24 * time.Hour,
					zero: "never",
				},
			},
			{
				"discover_hosts_interval",
				restart,
				"How often cells are asked for hosts that are not mapped yet: enrolled ones, those of cells with\n" +
					"auth = \"noauth\", and those of discover_hosts_pattern are mapped.",
				duration[Config]{
					at:   func(c *Config) *time.Duration { return &c.ComputeAPI.DiscoverHostsInterval },
					def:  30 * time.Second,
					min:  100 * time.Millisecond,
					max:  24 * time.Hour,
					zero: "never; `compute-agent cells manage discover-hosts` does it",
				},
			},
			{
				"discover_hosts_pattern",
				restart,
				"Shell patterns (*, ?, [a-z]) of the names of hosts that are mapped although no person enrolled\n" +
					"them. They get no servers with user data.",
				list[Config]{at: func(c *Config) *[]string { return &c.ComputeAPI.DiscoverHostsPattern },
					words: "an array of patterns", check: hostPattern},
			},
			{"default_availability_zone", restart,
				"The availability zone of hosts that are in no aggregate with another one.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.DefaultAvailabilityZone }, def: "nova",
					words: "a name", check: zoneName}},
			{
				"pci_alias",
				restart,
				"Names for PCI devices in the extra spec pci_passthrough:alias of flavors, as Nova's [pci] alias:\n" +
					"JSON objects with name, and resource_class or vendor_id and product_id; also traits.",
				list[Config]{at: func(c *Config) *[]string { return &c.ComputeAPI.PCIAlias },
					words: "an array of JSON objects in quotes", check: pciAlias},
			},
			{"internal_service_availability_zone", restart, "An availability zone that lists for users do not have.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.InternalServiceZone }, def: "internal",
					words: "a name", check: zoneName}},
			{"default_schedule_zone", restart,
				"The availability zone of servers for which none is requested. Empty means any.",
				text[Config]{at: func(c *Config) *string { return &c.ComputeAPI.DefaultScheduleZone },
					words: "a name", check: optionalZone}},
		},
	},
	{
		"quota",
		"Limits of projects that have none of their own (os-quota-sets); -1 is no limit.",
		[]key[Config]{
			{"instances", restart, "Servers.", quotaOf(func(c *Config) *int { return &c.Quota.Instances }, 10)},
			{"cores", restart, "Virtual CPUs.", quotaOf(func(c *Config) *int { return &c.Quota.Cores }, 20)},
			{"ram", restart, "Memory, in MiB.", quotaOf(func(c *Config) *int { return &c.Quota.RAM }, 50*1024)},
			{"metadata_items", restart, "Metadata items of a server.",
				quotaOf(func(c *Config) *int { return &c.Quota.MetadataItems }, 128)},
			{"key_pairs", restart,
				"Key pairs of a user.", quotaOf(func(c *Config) *int { return &c.Quota.KeyPairs }, 100)},
			{"server_groups", restart, "Server groups of a project.",
				quotaOf(func(c *Config) *int { return &c.Quota.ServerGroups }, 10)},
			{"server_group_members", restart, "Servers of a user in a server group.",
				quotaOf(func(c *Config) *int { return &c.Quota.ServerGroupMembers }, 10)},
			{
				"count_usage_from_placement",
				restart,
				"Whether cores and memory in use are what Placement has, and servers what the API database\nhas: no " +
					"cell is queried then, and a cell that is down does not prevent the creation of\nservers.",
				toggle[Config]{func(c *Config) *bool { return &c.Quota.CountUsageFromPlacement }, false},
			},
			{"recheck_quota", restart,
				"Whether quotas are checked again after a server has its resources, so that concurrent\nrequests do " +
					"not exceed them together.",
				toggle[Config]{func(c *Config) *bool { return &c.Quota.RecheckQuota }, true}},
		},
	},
	{
		"scheduler",
		"How hosts are chosen for servers of the compute API, and what host aggregates (os-aggregates) restrict.",
		[]key[Config]{
			{"max_placement_results", restart,
				"How many allocation candidates are asked of Placement at a time. Fewer make a decision cheaper;\n" +
					"hosts are then chosen from fewer.",
				number[Config]{at: func(c *Config) *int { return &c.Scheduler.MaxPlacementResults },
					def: 1000, min: 1, max: 10_000}},
			{"max_attempts", restart,
				"On how many hosts of a cell a server is built, one after the other, when each says that it\n" +
					"cannot, before it is in ERROR.",
				number[Config]{at: func(c *Config) *int { return &c.Scheduler.MaxAttempts }, def: 3, min: 1, max: 100}},
			{
				"limit_tenants_to_placement_aggregate",
				restart,
				"Whether servers of a project go only to hosts of the aggregates whose metadata\nfilter_tenant_id, " +
					"or a name that begins so, is the project.",
				toggle[Config]{func(c *Config) *bool { return &c.Scheduler.LimitTenants }, false},
			},
			{
				"placement_aggregate_required_for_tenants",
				restart,
				"With limit_tenants_to_placement_aggregate: whether projects without such an aggregate get no\n" +
					"host. Otherwise all hosts are theirs.",
				toggle[Config]{func(c *Config) *bool { return &c.Scheduler.RequireTenants }, false},
			},
			{
				"query_placement_for_availability_zone",
				restart,
				"Whether Placement is asked for hosts of the requested availability zone only. Otherwise it is\n" +
					"asked for all, and the scheduler chooses those of the zone.",
				toggle[Config]{func(c *Config) *bool { return &c.Scheduler.ZonesFromPlacement }, true},
			},
			{
				"enable_isolated_aggregate_filtering",
				restart,
				"Whether hosts of aggregates with the metadata trait:TRAIT = required take only servers whose\n" +
					"flavor requires that trait.",
				toggle[Config]{func(c *Config) *bool { return &c.Scheduler.IsolateAggregates }, false},
			},
			{
				"required_member_prefix",
				restart,
				"What extra specs of flavors begin with that name host aggregates, such as [\"reservation:\"]: " +
					"servers go\nonly to hosts of an aggregate whose metadata has the name of the extra spec.",
				list[Config]{at: func(c *Config) *[]string { return &c.Scheduler.RequiredMemberPrefix },
					words: "an array of prefixes with colons", check: memberPrefix},
			},
			{
				"default_forbidden_member_prefix",
				restart,
				"What metadata of host aggregates begins with whose hosts take only servers with an extra spec " +
					"that\nbegins so as well, such as [\"reservation:\"].",
				list[Config]{at: func(c *Config) *[]string { return &c.Scheduler.DefaultForbiddenMemberPrefix },
					words: "an array of prefixes with colons", check: memberPrefix},
			},
		},
	},
}

func quotaOf(at func(*Config) *int, def int) number[Config] {
	return number[Config]{at: at, def: def, min: -1, max: 1<<31 - 1}
}
