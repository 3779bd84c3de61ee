// SPDX-License-Identifier: Apache-2.0

package health

import (
	"time"

	"github.com/compute-agent/compute-agent/cells/worker"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Status is the status of the agent, which `compute-agent status` shows.
type Status struct {
	// State is the agent's state; Summary describes it, also in systemd's status line.
	State   resourcetracker.State `json:"state"`
	Summary string                `json:"summary"`
	Version string                `json:"version"`
	PID     int                   `json:"pid"`
	Host    string                `json:"host"`
	Started time.Time             `json:"started"`
	// ConfigFiles are the files of the last load, Reloaded is its time; zero: not since the start.
	ConfigFiles []string  `json:"config_files"`
	Reloaded    time.Time `json:"reloaded,omitzero"`
	Placement   Placement `json:"placement"`
	Drivers     []Driver  `json:"drivers"`
	// Conditions are the current conditions, the worst first.
	Conditions []Condition `json:"conditions"`
	// Disabled are the reasons why nodes of this host are disabled.
	Disabled []statedir.Reason `json:"disabled,omitempty"`
	// Cell is nil if no cell is configured.
	Cell *Cell `json:"cell,omitempty"`
	// Identity is nil if this host has no certificate.
	Identity *Identity `json:"identity,omitempty"`
}

// Placement is the Placement service as the agent sees it.
type Placement struct {
	URL string `json:"url"`
	// Bundled means that the service runs in this process (standalone).
	Bundled bool `json:"bundled"`
	// Requests and Writes count requests since the start, including retries.
	Requests int64 `json:"requests"`
	Writes   int64 `json:"writes"`
	// SeveralAgents is what it says, if another agent reports as this host.
	SeveralAgents string `json:"several_agents,omitempty"`
}

// Driver is a virt driver: its process, and its nodes.
type Driver struct {
	Name   string                 `json:"name"`
	Plugin Plugin                 `json:"plugin"`
	Report resourcetracker.Status `json:"report"`
	// Warnings are the driver's warnings, sorted by name.
	Warnings []pluginhost.Warning `json:"warnings,omitempty"`
	// MissingSince is when the driver became unavailable; zero: it is available. At DisablesAt its
	// nodes are disabled; zero: never.
	MissingSince time.Time `json:"missing_since,omitzero"`
	DisablesAt   time.Time `json:"disables_at,omitzero"`
}

// Plugin is the process of a driver.
type Plugin struct {
	pluginhost.Status
	// Error is the current problem of the process; LastError stays after recovery.
	Error string `json:"error,omitempty"`
	// Usage is what the process and its children use; nil without a process.
	Usage *pluginhost.Usage `json:"usage,omitempty"`
}

// NewPlugin converts a plugin's status, without Usage.
func NewPlugin(s pluginhost.Status) Plugin {
	p := Plugin{Status: s}
	switch s.State {
	case pluginhost.Healthy, pluginhost.Stopped, pluginhost.Disabled: // LastError is resolved
	default:
		p.Error = s.LastError
	}
	return p
}

// Cell is the state of this host's cell, as the agent sees it.
type Cell struct {
	URL string `json:"url"`
	worker.Status
}
