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
