// SPDX-License-Identifier: Apache-2.0

package config

import (
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
	Placement        Placement
	PlacementTLS     PlacementTLS
	PlacementMetrics PlacementMetrics
	Keystone         Keystone
	CORS             CORS
	Policy           Policy

	file    string
	files   []string
	sources map[string]Source
}

// Agent is the section [agent]: who and where the agent is.
type Agent struct {
	Host       string
	StateDir   string
	RuntimeDir string
}

// PlacementClient is the section [placement_client]: the Placement service that
// the agent reports to.
type PlacementClient struct {
	URL            string
	Auth           string // AuthNoauth or AuthToken.
	TokenFile      string
	CAFile         string
	CertFile       string
	KeyFile        string
	Timeout        time.Duration
	ConnectTimeout time.Duration
	Retries        int
	UseProxy       bool
}

// Values of PlacementClient.Auth.
const (
	AuthNoauth = "noauth"
	AuthToken  = "token"
)

// Tracker is the section [tracker]: when passes run and how long they may take.
type Tracker struct {
	UpdateResourcesInterval time.Duration
	AssociationRefresh      time.Duration // Zero is never.
	StartupDeadline         time.Duration
	PassDeadline            time.Duration
	RetryBackoffMin         time.Duration
	RetryBackoffMax         time.Duration
}

// Reshape is the section [reshape]: what becomes of a reshape that must not
// happen.
type Reshape struct {
	OnFailure string // OnFailureExit or OnFailureHold.
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
	Format string // FormatAuto, FormatJSON or FormatConsole.
}

// Values of Log.Format. FormatAuto is JSON under systemd's journal and where
// standard error is not a terminal, and the console form otherwise.
const (
	FormatAuto    = "auto"
	FormatJSON    = "json"
	FormatConsole = "console"
)

// UseJSON decides between JSON and the console form. Under systemd both
// INVOCATION_ID and JOURNAL_STREAM are set and the journal wants JSON.
func (l Log) UseJSON(getenv func(string) string, terminal bool) bool {
	switch l.Format {
	case FormatJSON:
		return true
	case FormatConsole:
		return false
	default:
		journal := getenv("INVOCATION_ID") != "" && getenv("JOURNAL_STREAM") != ""
		return journal || !terminal
	}
}

// Placement is the section [placement]: options of the bundled Placement
// server, with the names that OpenStack Placement gives them.
type Placement struct {
	IncompleteConsumerProjectID            string
	IncompleteConsumerUserID               string
	MaxAllocationCandidates                int    // -1 is no bound but the server's own.
	AllocationCandidatesGenerationStrategy string // BreadthFirst or DepthFirst.
	RandomizeAllocationCandidates          bool
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
	File     string // Rules that go before them; empty is none.
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

// File is the main configuration file, whether or not it exists.
func (c *Config) File() string { return c.file }

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
// "drivers.libvirt.config.uri" came from. Keys that nobody set come from the
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
