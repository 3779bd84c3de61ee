// SPDX-License-Identifier: Apache-2.0

package config

import "time"

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

func (c *CellClient) section() section {
	return section{"cell_client", []Service{AgentService},
		"The cell of this host, which tells the agent which guests to create and destroy, and\nreceives their states.",
		[]key{
			{"url", restart, "Address of the cell, unix:///PATH on the same machine; of several processes of the " +
				"cell,\nall addresses, separated by commas. Empty means none: the agent only reports to Placement, " +
				"and does not manage guests.",
				text{at: &c.URL, words: "a URL such as \"https://cell1.example:8780\", or several", check: cellURLs}},
			tokenFile(&c.TokenFile),
			caFile(&c.CAFile),
			{"cert_file", restart, "File of the agent's own TLS certificate, in PEM, or the name of a credential. " +
				"Its name is\nthe host's.", secretText(&c.CertFile)},
			keyFile("", &c.KeyFile),
			{"timeout", restart, "Timeout of a request, in addition to the time that the cell may wait for work.",
				duration{at: &c.Timeout, def: 10 * time.Second, min: 100 * time.Millisecond, max: 10 * time.Minute}},
			{"instance_build_timeout", restart, "After how long a server whose guest the driver tries to make, " +
				"without saying that it cannot, is in\nERROR: what is left of the guest is removed first.",
				duration{at: &c.BuildTimeout, def: time.Hour, min: time.Second, max: 7 * 24 * time.Hour,
					zero: "it stays in BUILD"}},
		}}
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

func (c *Cell) section() section {
	return section{"cell", []Service{CellService}, "The process of one cell (`compute-agent cells serve`).", []key{
		{"listen", restart,
			"Address of the cell, for the compute API and the agents of its hosts: HOST:PORT, or\nunix:///PATH.",
			text{at: &c.Listen, def: "127.0.0.1:8780", words: "\"HOST:PORT\" or \"unix:///PATH\"", check: cellListen}},
		{"database", restart, "The cell's database. Several processes of a cell can share one on MariaDB, MySQL or\n" +
			"PostgreSQL. Empty means cell.db in agent.state_dir.", databaseText(&c.Database)},
		{"auth", restart, "How clients authenticate: \"noauth\" (trusted; loopback and unix sockets only),\n\"peer\" " +
			"(unix sockets only: api_users and agent_users, the users of this machine that may\nconnect), \"token\" " +
			"(token_file: the role compute-api for the compute API, the role agent\nwith the host's name as user for " +
			"an agent) or \"mtls\" (the name in their certificates).",
			choice{&c.Auth, AuthNoauth, []string{AuthNoauth, AuthPeer, AuthToken, AuthMTLS}}},
		{"token_file", restart, "File of the tokens' digests: lines of SHA256 ROLE USER; or the name of a credential.",
			secretText(&c.TokenFile)},
		{"cert_file", restart, "File of the cell's certificate and those between it and its CA, in PEM, or the name " +
			"of a\ncredential. Empty means plain HTTP.", secretText(&c.CertFile)},
		keyFile("", &c.KeyFile),
		{"peer_ca_file", restart, "File of the PEM certificates of CAs that clients' certificates must be signed by, " +
			"or the\nname of a credential.", secretText(&c.PeerCAFile)},
		{"api_names", restart, "Names in certificates (CN or DNS name) that are the compute API's, with auth = " +
			"\"mtls\".\nAll other names are hosts.",
			list{at: &c.APINames, def: []string{"compute-api"}, words: "an array of names"}},
		{"api_users", restart, "Users of this machine that are the compute API, with auth = \"peer\": names or uids.",
			list{at: &c.APIUsers, def: []string{"compute-agent-cells-api", "root"}, words: "an array of users"}},
		{"agent_users", restart, "Users of this machine that are its agent, with auth = \"peer\": names or uids. " +
			"They are\nthe agent of the host agent.host, and of no other.",
			list{at: &c.AgentUsers, def: []string{"compute-agent"}, words: "an array of users"}},
		metricsListen(&c.MetricsListen),
		{"report_interval", restart, "How often agents send heartbeats.",
			duration{at: &c.ReportInterval, def: 10 * time.Second, min: 100 * time.Millisecond, max: time.Hour}},
		{"service_down_time", restart, "How long after the last heartbeat a host counts as down: no servers are " +
			"scheduled there,\nand its servers are deleted without it.",
			duration{at: &c.ServiceDownTime, def: time.Minute, min: 200 * time.Millisecond, max: 24 * time.Hour}},
		{"max_nodes_per_host", restart, "Maximum number of compute nodes of a host; others that it reports are " +
			"refused. Nodes that its\ncertificate names do not count.",
			number{at: &c.MaxNodesPerHost, def: 16, min: 1, max: 1000}},
		{"forget_nodes_after", restart, "How long after its host stopped to report it a compute node without servers " +
			"is forgotten, so\nthat another host can have it.",
			duration{at: &c.ForgetNodesAfter, def: 24 * time.Hour, min: time.Minute, max: 365 * 24 * time.Hour}},
	}}
}
