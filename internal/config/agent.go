// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"time"
)

// Agent is the section [agent]: who and where the agent is.
type Agent struct {
	Host       string
	StateDir   string
	RuntimeDir string
	ShareUser  bool
	MyIP       string // Of this host; empty is the one from which the agent reaches its cell.
}

// ControlSocket is the path of the agent's control socket. Load has checked
// that it fits into a socket address.
func (a Agent) ControlSocket() string { return filepath.Join(a.RuntimeDir, controlSocketName) }

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

// ProviderConfigDir is the directory of the provider.yaml files: the one that is named, or
// provider_config beside the main configuration file, as conf.d is. It need not exist.
func (c *Config) ProviderConfigDir() string {
	if dir := c.Tracker.ProviderConfigLocation; dir != "" {
		return dir
	}
	return filepath.Join(filepath.Dir(c.file), "provider_config")
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
