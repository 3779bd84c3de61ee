// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// DefaultFile is the configuration file that is read when none is named. It may
// be absent; a file that is named must exist.
const DefaultFile = "/etc/compute-agent/compute-agent.toml"

// Config is the whole configuration, every default filled in. It is not
// changed after Load; a reload makes a new one.
type Config struct {
	Agent            Agent
	PlacementClient  PlacementClient
	Tracker          Tracker
	Reshape          Reshape
	Plugins          Plugins
	Drivers          map[string]*Driver
	Log              Log
	Metrics          Metrics
	Tracing          Tracing
	Placement        Placement
	PlacementTLS     PlacementTLS
	PlacementMetrics PlacementMetrics
	Server           Server
	Keystone         Keystone
	CORS             CORS
	Audit            Audit
	Policy           Policy
	DenyList         DenyList
	CellClient       CellClient
	Cell             Cell
	ComputeAPI       ComputeAPI
	Quota            Quota
	Scheduler        Scheduler
	Enrolment        Enrolment
	EnrolmentClient  EnrolmentClient

	file    string
	files   []string
	sources map[string]Source
	named   []NamedFile

	unusedCredentials []NamedFile
	pluginDirs        []string
}

// Agent is the section [agent]: who and where the agent is.
type Agent struct {
	Host       string
	StateDir   string
	RuntimeDir string
	ShareUser  bool
	MyIP       string // Of this host; empty is the one from which the agent reaches its cell.
}

// PlacementClient is the section [placement_client]: the Placement service that
// the agent reports to.
type PlacementClient struct {
	URL            string // Empty only with AuthKeystone: the catalogue says it.
	Auth           string // AuthNoauth, AuthToken, AuthKeystone or AuthCertificate.
	TokenFile      string
	CAFile         string
	CertFile       string
	KeyFile        string
	Timeout        time.Duration
	ConnectTimeout time.Duration
	Retries        int
	UseProxy       bool
	Keystone       ClientKeystone
}

// Values of PlacementClient.Auth.
const (
	AuthNoauth   = "noauth"
	AuthToken    = "token"
	AuthKeystone = "keystone"
	// AuthCertificate sends no token: the certificate of the connection says which host it is.
	AuthCertificate = "certificate"
)

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

// Plugins is the section [plugins]: where plugins are and how their processes
// are watched.
type Plugins struct {
	Dir              string
	HandshakeTimeout time.Duration
	CallTimeout      time.Duration
	HealthInterval   time.Duration
	HealthTimeout    time.Duration
	HealthMisses     int
	ShutdownTimeout  time.Duration
	BackoffMin       time.Duration
	BackoffMax       time.Duration
	CrashLimit       int
	CrashWindow      time.Duration
	Quarantine       time.Duration
}

// Driver is one section [drivers.NAME].
type Driver struct {
	Enabled bool
	Path    string // Absolute; never empty after Load.
	SHA256  string // 64 lower-case hexadecimal digits, or empty.
	Args    []string
	Env     map[string]string
	Config  map[string]any // As TOML decodes it; the driver knows its keys.

	Sandbox    string   // SandboxLandlock, SandboxRequired or SandboxNone.
	ReadPaths  []string // Absolute; what the sandbox opens in addition.
	WritePaths []string
	AllowChmod bool // The sandbox lets it change modes, owners and extended attributes.
	// UnavailableGrace is how long the driver may not answer until its nodes
	// are disabled; zero: they never are.
	UnavailableGrace time.Duration
	Timeouts         DriverTimeouts
	Restart          DriverRestart
}

// Values of Driver.Sandbox.
const (
	SandboxLandlock = "landlock"
	SandboxRequired = "required"
	SandboxNone     = "none"
)

// DriverTimeouts is the table [drivers.NAME.timeouts]: how long this driver may
// take. Zero is as [plugins] says.
type DriverTimeouts struct {
	Start     time.Duration
	Configure time.Duration
	Nodes     time.Duration
	Update    time.Duration
	Health    time.Duration
	Stop      time.Duration
	Instance  time.Duration // Zero is the supervisor's default.
}

// DriverRestart is the table [drivers.NAME.restart]: when this driver's process
// is checked, given up and started again. Zero is as [plugins] says.
type DriverRestart struct {
	HealthInterval time.Duration
	HealthMisses   int
	BackoffMin     time.Duration
	BackoffMax     time.Duration
	CrashLimit     int
	CrashWindow    time.Duration
	Quarantine     time.Duration
}

// Process is how the process of a driver is watched: what its own tables say,
// and what [plugins] says of the rest.
func (c *Config) Process(driver string) (DriverTimeouts, DriverRestart) {
	p, d := c.Plugins, Driver{}
	if own := c.Drivers[driver]; own != nil {
		d = *own
	}
	t, r := d.Timeouts, d.Restart
	return DriverTimeouts{
			Start: cmp.Or(t.Start, p.HandshakeTimeout), Configure: cmp.Or(t.Configure, p.CallTimeout),
			Nodes:  cmp.Or(t.Nodes, p.CallTimeout),
			Update: cmp.Or(t.Update, p.CallTimeout), Health: cmp.Or(t.Health, p.HealthTimeout),
			Stop: cmp.Or(t.Stop, p.ShutdownTimeout), Instance: t.Instance,
		}, DriverRestart{
			HealthInterval: cmp.Or(r.HealthInterval, p.HealthInterval),
			HealthMisses:   cmp.Or(r.HealthMisses, p.HealthMisses),
			BackoffMin:     cmp.Or(r.BackoffMin, p.BackoffMin), BackoffMax: cmp.Or(r.BackoffMax, p.BackoffMax),
			CrashLimit:  cmp.Or(r.CrashLimit, p.CrashLimit),
			CrashWindow: cmp.Or(r.CrashWindow, p.CrashWindow), Quarantine: cmp.Or(r.Quarantine, p.Quarantine),
		}
}

// ConfigJSON is the table [drivers.NAME.config] as the JSON object that the
// driver receives; keys are sorted, and no table is the object {}.
func (d *Driver) ConfigJSON() (json.RawMessage, error) {
	if d.Config == nil {
		return json.RawMessage("{}"), nil
	}
	b, err := json.Marshal(d.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration of the driver as JSON: %w", err)
	}
	return b, nil
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

// Tracing is the section [tracing]: who gets traces of passes and requests.
type Tracing struct {
	Endpoint     string  // of an OTLP/HTTP collector; empty means none
	SampleRatio  float64 // From 0 to 1.
	TrustClients bool    // Every authenticated client may decide what is recorded.
}

// Placement is the section [placement]: options of the bundled Placement
// server, with the names that OpenStack Placement gives them.
type Placement struct {
	Database                               string // A DSN; empty is placement.db below agent.state_dir.
	IncompleteConsumerProjectID            string
	IncompleteConsumerUserID               string
	MaxAllocationCandidates                int    // -1 is no bound but the server's own.
	AllocationCandidatesGenerationStrategy string // BreadthFirst or DepthFirst.
	RandomizeAllocationCandidates          bool
	Extensions                             []string      // Of placement/api, for all clients.
	StaleReads                             time.Duration // 0: no stale answers.
	Endpoint                               string        // What URLs begin with; empty is what the request says.
	HostCapacityFactor                     int           // 0: no bound.
	HostAdmissionWindow                    time.Duration // 0: hosts report what an operator has stated.
	HostClassRenames                       []string      // OLD=NEW each.
}

// Values of Placement.AllocationCandidatesGenerationStrategy.
const (
	BreadthFirst = "breadth-first"
	DepthFirst   = "depth-first"
)

// PlacementTLS is the section [placement_tls]: how the bundled Placement server
// is reached by TLS. It serves plain HTTP while CertFile is empty.
type PlacementTLS struct {
	CertFile     string
	KeyFile      string
	ClientCAFile string // Not empty: clients must show a certificate of these.
	HostCAFile   string // Not empty: a certificate of these says which host a client is.
}

// DenyList is the section [deny_list]: which hosts Placement, the compute API and cells refuse.
type DenyList struct {
	File   string        // Empty: none.
	URL    string        // Of the enrolment service that File is kept like; empty: File is an operator's.
	CAFile string        // The CAs to trust at URL instead of the system's.
	MaxAge time.Duration // Zero: defaultDenyListAge with URL, otherwise any; see AgeLimit.
}

// defaultDenyListAge is about as long as hosts have certificates while they cannot renew them.
const defaultDenyListAge = 24 * time.Hour

// AgeLimit is how old the list may be for hosts to be let in; zero: as old as it is.
func (d DenyList) AgeLimit() time.Duration {
	if d.MaxAge == 0 && d.URL != "" {
		return defaultDenyListAge
	}
	return d.MaxAge
}

// Server is the section [server]: bounds for the clients of all services of a
// process.
type Server struct {
	MaxConnections           int           // Zero is derived from the limit of open files.
	MaxConnectionsPerAddress int           // Zero is a quarter of them.
	TrustedProxies           []string      // Addresses and networks of proxies whose X-Forwarded-For counts.
	ShutdownDelay            time.Duration // Zero: none.
}

// PlacementMetrics is the section [placement_metrics]: where else than on its
// admin socket the bundled Placement server shows its metrics.
type PlacementMetrics struct {
	Listen string // HOST:PORT, empty for nowhere; without HOST loopback.
}

// Keystone is the section [keystone]: where the bundled Placement server asks
// about tokens, with --auth keystone, and as whom.
type Keystone struct {
	AuthURL                         string
	Username                        string
	UserDomainName                  string
	ProjectName                     string
	ProjectDomainName               string
	PasswordFile                    string
	ApplicationCredentialID         string
	ApplicationCredentialSecretFile string
	CAFile                          string
	WWWAuthenticateURI              string // Empty is AuthURL.
	Timeout                         time.Duration
	TokenCacheTime                  time.Duration
}

// CORS is the section [cors] of the bundled Placement server.
type CORS struct {
	AllowedOrigin    []string
	AllowHeaders     []string
	AllowMethods     []string
	ExposeHeaders    []string
	AllowCredentials bool
	MaxAge           int // Seconds; zero is not to say any.
}

// Policy is the section [policy] of the bundled Placement server.
type Policy struct {
	Defaults string // PolicySecure, PolicyLegacy or PolicyOpen.
	File     string // rules that override them; empty means none
}

// Values of Policy.Defaults.
const (
	PolicySecure = "secure"
	PolicyLegacy = "legacy"
	PolicyOpen   = "open"
)

// ControlSocket is the path of the agent's control socket. Load has checked
// that it fits into a socket address.
func (a Agent) ControlSocket() string { return filepath.Join(a.RuntimeDir, controlSocketName) }

// ProviderConfigDir is the directory of the provider.yaml files: the one that is named, or
// provider_config beside the main configuration file, as conf.d is. It need not exist.
func (c *Config) ProviderConfigDir() string {
	if dir := c.Tracker.ProviderConfigLocation; dir != "" {
		return dir
	}
	return filepath.Join(filepath.Dir(c.file), "provider_config")
}

// File is the main configuration file, whether or not it exists.
func (c *Config) File() string { return c.file }

// UnusedCredentials are the keys that name a credential in sections that are not used
// ([Options.Uses]).
func (c *Config) UnusedCredentials() (keys []string) {
	for _, file := range c.unusedCredentials {
		keys = append(keys, file.Key)
	}
	return keys
}

// PluginDirsOf are the directories in which the executable of a driver was looked for, the first
// one first; none if its path says where it is.
func (c *Config) PluginDirsOf(driver string) []string {
	if k := c.sources[driverPath(driver, "path")].Kind; k != "" && k != FromDefault {
		return nil
	}
	return c.PluginDirs()
}

// PluginDirs are the directories in which the executables of drivers without a path are looked for,
// the first one first.
func (c *Config) PluginDirs() []string { return slices.Clone(c.pluginDirs) }

// Files are the files that were read, in the order in which they were applied.
func (c *Config) Files() []string { return slices.Clone(c.files) }

// EnabledDrivers are the names of the drivers to run, sorted.
func (c *Config) EnabledDrivers() []string {
	names := make([]string, 0, len(c.Drivers))
	for _, name := range sortedKeys(c.Drivers) {
		if c.Drivers[name].Enabled {
			names = append(names, name)
		}
	}
	return names
}

// Source tells where the value of a key such as "tracker.pass_deadline" or
// "drivers.libvirt.config.uri" came from. Keys that are not set come from the
// defaults; ok is false for a key that does not exist.
func (c *Config) Source(key string) (s Source, ok bool) {
	if s, ok = c.sources[key]; ok {
		return s, true
	}
	for _, e := range c.Entries() {
		if e.Key == key {
			return e.Source, true
		}
	}
	return Source{}, false
}
