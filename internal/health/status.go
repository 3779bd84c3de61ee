// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/disabled"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Status is how the agent is at a moment: the answer of `compute-agent status`.
type Status struct {
	// State is the worst of the drivers' states, State in words is what systemd shows too.
	State   resourcetracker.State `json:"state"`
	Summary string                `json:"summary"`
	Version string                `json:"version"`
	PID     int                   `json:"pid"`
	Host    string                `json:"host"`
	Started time.Time             `json:"started"`
	// ConfigFiles were read at the last (re)load, Reloaded is when; zero: not since the start.
	ConfigFiles []string  `json:"config_files"`
	Reloaded    time.Time `json:"reloaded,omitzero"`
	Placement   Placement `json:"placement"`
	Drivers     []Driver  `json:"drivers"`
	// Conditions are all that is not as usual, the worst first.
	Conditions []Condition `json:"conditions"`
	// Disabled are the reasons why nothing new is scheduled to this host's nodes.
	Disabled []disabled.Reason `json:"disabled,omitempty"`
	// Cell is nil if no cell is configured.
	Cell *Cell `json:"cell,omitempty"`
}

// Placement is the Placement service as the agent sees it.
type Placement struct {
	URL string `json:"url"`
	// Bundled says that the service runs inside this process (standalone).
	Bundled bool `json:"bundled"`
	// Requests and Writes count what was sent since the start, retries included.
	Requests int64 `json:"requests"`
	Writes   int64 `json:"writes"`
}

// Driver is one virt driver: its process, and what becomes of what it says.
type Driver struct {
	Name   string                 `json:"name"`
	Plugin Plugin                 `json:"plugin"`
	Report resourcetracker.Status `json:"report"`
	// Warnings are what the driver warns of while it works, ordered by name: those of its Plugin.
	Warnings []host.Warning `json:"warnings,omitempty"`
	// MissingSince is when the driver was first missed after its last answer about a node; zero: it is there. At DisablesAt its nodes are
	// disabled, unless it is back before; zero: they are not.
	MissingSince time.Time `json:"missing_since,omitzero"`
	DisablesAt   time.Time `json:"disables_at,omitzero"`
}

// Plugin is the process of a driver.
type Plugin struct {
	host.Status
	// Error is what keeps the process from working now; LastError stays after the recovery.
	Error string `json:"error,omitempty"`
	// Usage is what the process and those that it started use now; nil without a process.
	Usage *host.Usage `json:"usage,omitempty"`
}

// NewPlugin is the process of a driver as the plugin host has it, without its Usage.
func NewPlugin(s host.Status) Plugin {
	p := Plugin{Status: s}
	switch s.State {
	case host.Healthy, host.Stopped, host.Disabled: // an error of the past
	default:
		p.Error = s.LastError
	}
	return p
}
