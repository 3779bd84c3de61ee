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

func (c *ComputeAPI) section() section {
	return section{"compute_api", []Service{ComputeAPIService},
		"The Nova-compatible compute API over cells (`compute-agent cells api`). It reaches Placement as\n" +
			"[placement_client] says.",
		[]key{
			{"listen", restart, "Address of the API.",
				text{at: &c.Listen, def: "127.0.0.1:8774", words: listenWords, check: listenAddress}},
			{"database", restart, "The API database. Empty means compute_api.db in agent.state_dir. Several compute " +
				"APIs can\nshare a database of MariaDB, MySQL or PostgreSQL servers:\n" +
				"mysql://USER@HOST[,HOST...]/DATABASE?password_file=/PATH, or postgres://...",
				databaseText(&c.Database)},
			{"auth", restart, "How requests are authenticated: \"noauth\" (loopback only), \"token\" (token_file) " +
				"or\n\"keystone\" (the service of [keystone]).",
				choice{&c.Auth, AuthNoauth, []string{AuthNoauth, AuthToken, AuthKeystone}}},
			{"token_file", restart, "File of the tokens' digests, as for Placement, or the name of a credential.",
				secretText(&c.TokenFile)},
			{"cert_file", restart, "File of the server's certificate and those between it and its CA, in PEM, or the " +
				"name of\na credential. Empty means plain HTTP.", secretText(&c.CertFile)},
			keyFile("", &c.KeyFile),
			{"client_ca_file", restart, "File of the PEM certificates of CAs, or the name of a credential. If it is " +
				"set, clients must present a certificate of one of them.", secretText(&c.ClientCAFile)},
			metricsListen(&c.MetricsListen),
			{"policy_file", restart, "File of rules, in oslo.policy's YAML, that override the defaults, which are " +
				"Nova's. A\nchanged file is reloaded. Empty means none.", pathText(&c.PolicyFile)},
			{"endpoint", restart,
				"Base URL of links in responses, for a server behind a proxy. Empty means the URL of the\nrequest.",
				urlText(&c.Endpoint)},
			{"serial_console_base_url", restart, "Base URL of serial consoles, for a proxy before /serial-console of " +
				"this API, which serves them.\nEmpty means /serial-console of endpoint, or of the URL of the request.",
				urlText(&c.SerialConsoleBaseURL)},
			{"console_token_ttl", restart,
				"How long the URL of a console can be used. Consoles that are open then stay so.",
				duration{at: &c.ConsoleTokenTTL, def: 10 * time.Minute, min: time.Second, max: 24 * time.Hour}},
			{"cell_token_file", restart, "File that holds the token for the cells, or the name of a credential.",
				secretText(&c.CellTokenFile)},
			{"cell_ca_file", restart,
				"File of PEM certificates to trust at cells instead of the system's, or the name of a\ncredential.",
				secretText(&c.CellCAFile)},
			{"cell_cert_file", restart,
				"File of the certificate to show to cells, in PEM, or the name of a credential.",
				secretText(&c.CellCertFile)},
			keyFile("cell_", &c.CellKeyFile),
			{"cell_timeout", restart,
				"Timeout of a request to a cell. In the response, a cell that takes longer counts as down.",
				duration{at: &c.CellTimeout, def: 10 * time.Second, min: 50 * time.Millisecond, max: 10 * time.Minute}},
			{"cell_ping_interval", restart, "How often each cell is pinged in the background.",
				duration{at: &c.CellPingInterval, def: time.Second, min: 50 * time.Millisecond, max: time.Minute,
					zero: "never: each request waits cell_timeout for a cell that hangs"}},
			{"cell_down_time", restart,
				"How long after its last answer a cell counts as down if it does not answer pings either:\nrequests " +
					"to it end, and others are not sent until it answers a ping. At least twice\ncell_ping_interval.",
				duration{at: &c.CellDownTime, def: 2 * time.Second, min: 100 * time.Millisecond,
					max: 10 * time.Minute}},
			{"max_limit", restart, "Maximum number of records in a response. A cell returns at most 10,000 at once.",
				number{at: &c.MaxLimit, def: 1000, min: 1, max: 10_000}},
			{"list_records_by_skipping_down_cells", restart, "Whether lists skip cells that are down if minimal " +
				"records are not possible. Otherwise\nsuch a list fails with status 500.",
				toggle{&c.ListRecordsBySkippingDownCells, true}},
			{"instance_list_per_project_cells", restart,
				"Whether lists of a project only query cells with servers of the project.",
				toggle{&c.InstanceListPerProjectCells, false}},
			{"reclaim_instance_interval", restart,
				"How long deleted servers can be restored before they are deleted for good.",
				span(&c.ReclaimInstanceInterval, time.Second, 365*24*time.Hour, "they are deleted at once")},
			{"resize_confirm_window", restart, "How long after a migration a server is confirmed on its new host, " +
				"unless a client does so, or\nreverts it, before.",
				span(&c.ResizeConfirmWindow, time.Second, 365*24*time.Hour, "never")},
			{"discover_hosts_interval", restart,
				"How often cells are asked for hosts that are not mapped yet: enrolled ones, those of cells with\n" +
					"auth = \"noauth\", and those of discover_hosts_pattern are mapped.",
				duration{at: &c.DiscoverHostsInterval, def: 30 * time.Second, min: 100 * time.Millisecond,
					max: 24 * time.Hour, zero: "never; `compute-agent cells manage discover-hosts` does it"}},
			{"discover_hosts_pattern", restart, "Shell patterns (*, ?, [a-z]) of the names of hosts that are mapped " +
				"although no person enrolled\nthem. They get no servers with user data.",
				list{at: &c.DiscoverHostsPattern, words: "an array of patterns", check: hostPattern}},
			{"default_availability_zone", restart,
				"The availability zone of hosts that are in no aggregate with another one.",
				text{at: &c.DefaultAvailabilityZone, def: "nova", words: "a name", check: zoneName}},
			{"pci_alias", restart,
				"Names for PCI devices in the extra spec pci_passthrough:alias of flavors, as Nova's [pci] alias:\n" +
					"JSON objects with name, and resource_class or vendor_id and product_id; also traits.",
				list{at: &c.PCIAlias, words: "an array of JSON objects in quotes", check: pciAlias}},
			{"internal_service_availability_zone", restart, "An availability zone that lists for users do not have.",
				text{at: &c.InternalServiceZone, def: "internal", words: "a name", check: zoneName}},
			{"default_schedule_zone", restart,
				"The availability zone of servers for which none is requested. Empty means any.",
				text{at: &c.DefaultScheduleZone, words: "a name", check: zoneName}},
		}}
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

func (q *Quota) section() section {
	return section{"quota", []Service{ComputeAPIService},
		"Limits of projects that have none of their own (os-quota-sets); -1 is no limit.",
		[]key{
			{"instances", restart, "Servers.", quota(&q.Instances, 10)},
			{"cores", restart, "Virtual CPUs.", quota(&q.Cores, 20)},
			{"ram", restart, "Memory, in MiB.", quota(&q.RAM, 50*1024)},
			{"metadata_items", restart, "Metadata items of a server.", quota(&q.MetadataItems, 128)},
			{"key_pairs", restart, "Key pairs of a user.", quota(&q.KeyPairs, 100)},
			{"server_groups", restart, "Server groups of a project.", quota(&q.ServerGroups, 10)},
			{"server_group_members", restart, "Servers of a user in a server group.", quota(&q.ServerGroupMembers, 10)},
			{"count_usage_from_placement", restart,
				"Whether cores and memory in use are what Placement has, and servers what the API database\nhas: no " +
					"cell is queried then, and a cell that is down does not prevent the creation of\nservers.",
				toggle{&q.CountUsageFromPlacement, false}},
			{"recheck_quota", restart, "Whether quotas are checked again after a server has its resources, so that " +
				"concurrent\nrequests do not exceed them together.", toggle{&q.RecheckQuota, true}},
		}}
}

func quota(at *int, def int) number { return number{at: at, def: def, min: -1, max: 1<<31 - 1} }

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

func (s *Scheduler) section() section {
	return section{"scheduler", []Service{ComputeAPIService},
		"How hosts are chosen for servers of the compute API, and what host aggregates (os-aggregates) restrict.",
		[]key{
			{"max_placement_results", restart, "How many allocation candidates are asked of Placement at a time. " +
				"Fewer make a decision cheaper;\nhosts are then chosen from fewer.",
				number{at: &s.MaxPlacementResults, def: 1000, min: 1, max: 10_000}},
			{"max_attempts", restart, "On how many hosts of a cell a server is built, one after the other, when each " +
				"says that it\ncannot, before it is in ERROR.",
				number{at: &s.MaxAttempts, def: 3, min: 1, max: 100}},
			{"limit_tenants_to_placement_aggregate", restart, "Whether servers of a project go only to hosts of the " +
				"aggregates whose metadata\nfilter_tenant_id, or a name that begins so, is the project.",
				toggle{&s.LimitTenants, false}},
			{"placement_aggregate_required_for_tenants", restart, "With limit_tenants_to_placement_aggregate: " +
				"whether projects without such an aggregate get no\nhost. Otherwise all hosts are theirs.",
				toggle{&s.RequireTenants, false}},
			{"query_placement_for_availability_zone", restart,
				"Whether Placement is asked for hosts of the requested availability zone only. Otherwise it is\n" +
					"asked for all, and the scheduler chooses those of the zone.", toggle{&s.ZonesFromPlacement, true}},
			{"enable_isolated_aggregate_filtering", restart, "Whether hosts of aggregates with the metadata " +
				"trait:TRAIT = required take only servers whose\nflavor requires that trait.",
				toggle{&s.IsolateAggregates, false}},
			{"required_member_prefix", restart,
				"What extra specs of flavors begin with that name host aggregates, such as [\"reservation:\"]: " +
					"servers go\nonly to hosts of an aggregate whose metadata has the name of the extra spec.",
				list{at: &s.RequiredMemberPrefix, words: "an array of prefixes with colons", check: memberPrefix}},
			{"default_forbidden_member_prefix", restart, "What metadata of host aggregates begins with whose hosts " +
				"take only servers with an extra spec that\nbegins so as well, such as [\"reservation:\"].",
				list{at: &s.DefaultForbiddenMemberPrefix, words: "an array of prefixes with colons",
					check: memberPrefix}},
		}}
}
