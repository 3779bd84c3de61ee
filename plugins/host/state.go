// SPDX-License-Identifier: Apache-2.0

package host

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
	// Discovered: it is configured, and its executable has not been looked at yet.
	Discovered State = "discovered"
	// Verified: the executable is trusted.
	Verified State = "verified"
	// Starting: the process runs, the connection is being made.
	Starting State = "starting"
	// Configured: the driver accepted its configuration.
	Configured State = "configured"
	// Healthy: all is well.
	Healthy State = "healthy"
	// Degraded: the process missed a health check, or the driver says that something keeps it from
	// working, or panics in a call again and again.
	Degraded State = "degraded"
	// Backoff: it failed and is started again soon.
	Backoff State = "backoff"
	// Quarantined: it failed too often and is tried again later.
	Quarantined State = "quarantined"
	// NotInstalled: there is no executable; it is started as soon as there is one.
	NotInstalled State = "not-installed"
	// Incompatible: it speaks another version of the protocol; it is tried again when the
	// executable changes.
	Incompatible State = "incompatible"
	// Refused: the executable is not started, since it is not trusted or the kernel does not
	// execute it; it is tried again when that changes.
	Refused State = "refused"
	// Disabled: the configuration says so.
	Disabled State = "disabled"
	// Stopped: its supervisor has ended, or no call is served any more and the process, if there is
	// one yet, is being ended.
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
	// Restarts counts the processes that were started because there was none any more; the first
	// one does not count.
	Restarts int `json:"restarts"`
	// Replacements counts the processes that took over from one that served, because of a reload:
	// no call was refused.
	Replacements int `json:"replacements"`
	// LastError is what last went wrong, "" if nothing ever did; it stays after the recovery.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// NextAttempt is when a plugin in Backoff or Quarantined is started again.
	NextAttempt time.Time `json:"next_attempt,omitzero"`
	Path        string    `json:"path"`
	// The rest is that of the running, or else of the last process.
	SHA256       string   `json:"sha256,omitempty"`
	Version      string   `json:"version,omitempty"`
	SDK          string   `json:"sdk,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// Warnings came with the last health check, ordered by name. There are none without a process.
	Warnings []Warning `json:"-"`
}

// refusesConfig reports whether the driver refused its configuration.
func refusesConfig(reason error) bool {
	var refused *plugins.ConfigError
	return errors.As(reason, &refused)
}

// meaningOf is meaning, for a reason. Another start does not help a driver that refuses its
// configuration.
func (s State) meaningOf(reason error) string {
	if (s == Backoff || s == Quarantined) && refusesConfig(reason) {
		return "The driver refuses its configuration. Fix the configuration, then reload the agent. What the driver last reported stands."
	}
	return s.meaning()
}

// meaning is the consequence of a state for the operator, in the log.
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
		return "The plugin is degraded. What it last reported stands."
	case Backoff:
		return "The plugin is down. What it last reported stands, and it is started again shortly."
	case Quarantined:
		return "The plugin failed too often and is not started for a while. What it last reported stands. Fix the cause, then reload the agent to try at once."
	case NotInstalled:
		return "The plugin has no executable. What it last reported stands, and it is started as soon as there is one."
	case Incompatible:
		return "The plugin speaks another version of the protocol and is not used. Install a driver made for this agent."
	case Refused:
		return "The plugin's executable is refused and was not started. What the driver last reported stands. It is started when the file changes, or at a reload."
	case Disabled:
		return "The plugin is disabled in the configuration."
	case Stopped:
		return "The plugin is stopped."
	}
	return "The plugin changed its state."
}

// level is that of the log record about a state.
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
