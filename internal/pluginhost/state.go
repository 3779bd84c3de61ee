// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
)

// State is where a plugin is in its life.
type State string

// The states of a plugin. Calls are served in Healthy and Degraded only.
const (
	// Discovered: it is configured, and its executable has not been checked yet.
	Discovered State = "discovered"
	// Verified: the executable is trusted.
	Verified State = "verified"
	// Starting: the process runs, and the connection is being made.
	Starting State = "starting"
	// Configured: the driver accepted its configuration.
	Configured State = "configured"
	// Healthy: it serves calls, and its last health check succeeded.
	Healthy State = "healthy"
	// Degraded: the process missed a health check, or the driver reports a problem, or a call
	// panics repeatedly.
	Degraded State = "degraded"
	// Backoff: it failed and is restarted soon.
	Backoff State = "backoff"
	// Quarantined: it failed too often and is restarted later.
	Quarantined State = "quarantined"
	// NotInstalled: there is no executable; it is started when there is one.
	NotInstalled State = "not-installed"
	// Incompatible: it speaks another version of the protocol; it is tried again when the
	// executable changes.
	Incompatible State = "incompatible"
	// Refused: the executable is not started, because it is not trusted or the kernel cannot
	// execute it; it is tried again when that changes.
	Refused State = "refused"
	// Disabled: it is disabled in the configuration.
	Disabled State = "disabled"
	// Stopped: its supervisor has ended, or it serves no calls and its process is being stopped.
	Stopped State = "stopped"
)

// serving reports whether calls are possible.
func (s State) serving() bool { return s == Healthy || s == Degraded }

// Status is the state of a plugin at a moment.
type Status struct {
	Name  string    `json:"name"`
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// PID is 0 while there is no process, or only one that is being killed.
	PID int `json:"pid,omitempty"`
	// Restarts counts the processes that were started after another one ended; the first one does
	// not count.
	Restarts int `json:"restarts"`
	// Replacements counts the processes that took over from a running one at a reload, without a
	// rejected call.
	Replacements int `json:"replacements"`
	// LastError is the last error, or ""; it stays after a recovery.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// NextAttempt is when a plugin in Backoff or Quarantined is started again.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	Path        string    `json:"path"`
	// The rest describes the running process, or the last one.
	SHA256       string   `json:"sha256,omitempty"`
	Sandbox      string   `json:"sandbox,omitempty"`
	SandboxLacks []string `json:"sandbox_lacks,omitempty"` // see [launch.Kernel.Lacks]
	Version      string   `json:"version,omitempty"`
	SDK          string   `json:"sdk,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// Warnings came with the last health check, ordered by name. There are none without a process.
	Warnings []Warning `json:"-"`
}

// refusesConfig reports whether the driver rejected its configuration.
func refusesConfig(reason error) bool {
	var refused *plugins.ConfigError
	return errors.As(reason, &refused)
}

// meaningOf is meaning for a reason: a restart does not help a driver that rejects its
// configuration.
func (s State) meaningOf(reason error) string {
	if (s == Backoff || s == Quarantined) && refusesConfig(reason) {
		return "The driver rejects its configuration. Fix the configuration, then reload the agent." + keeps
	}
	return s.meaning()
}

// keeps is the consequence of a driver that does not serve calls.
const keeps = " Placement keeps what the driver last reported."

// meaning is the log message of a state.
func (s State) meaning() string {
	switch s {
	case Discovered:
		return "The plugin is configured."
	case Verified:
		return "The plugin's executable passed the checks of owner, mode and digest."
	case Starting:
		return "The plugin's process is starting."
	case Configured:
		return "The plugin accepted its configuration."
	case Healthy:
		return "The plugin is healthy."
	case Degraded:
		return "The plugin is degraded." + keeps
	case Backoff:
		return "The plugin is down and is restarted shortly." + keeps
	case Quarantined:
		return "The plugin failed too often and is not restarted for now. Fix the cause, then reload the agent to " +
			"restart it at once." + keeps
	case NotInstalled:
		return "The plugin has no executable and is started when there is one." + keeps
	case Incompatible:
		return "The plugin speaks another version of the protocol and is not used. Install a driver made for " +
			"this agent."
	case Refused:
		return "The plugin's executable was refused and is not started. It is tried again when the file changes, or " +
			"at a reload." + keeps
	case Disabled:
		return "The plugin is disabled in the configuration."
	case Stopped:
		return "The plugin is stopped."
	}
	return "The plugin changed its state."
}

// level returns the level of a state's log line.
func (s State) level() zerolog.Level {
	switch s {
	case Healthy, Stopped, Disabled:
		return zerolog.InfoLevel
	case Degraded, Backoff:
		return zerolog.WarnLevel
	case Quarantined, NotInstalled, Incompatible, Refused:
		return zerolog.ErrorLevel
	case Discovered, Verified, Starting, Configured:
	}
	return zerolog.DebugLevel
}
