// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Configuration is what the agent's configuration is read from: the same files, variables and flags give the same configuration to a command.
type Configuration struct {
	// PID is the agent's process, File its --config; "" is the default file.
	PID  int    `json:"pid"`
	File string `json:"file,omitempty"`
	// Environ are the variables that the configuration depends on, "NAME=VALUE", UID and Executable the agent's.
	Environ    []string `json:"environ"`
	UID        int      `json:"uid"`
	Executable string   `json:"executable,omitempty"`
	// Overrides are keys that flags set.
	Overrides []Override `json:"overrides,omitempty"`
	// Drivers are the tables [drivers.NAME.config] of a standalone agent, which completes them.
	Drivers map[string]json.RawMessage `json:"drivers,omitempty"`
}

// Override is a key that a flag set.
type Override struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	Flag  string `json:"flag"`
}

// Tree is the answer of `compute-agent tree`.
type Tree struct {
	Nodes []NodeTree `json:"nodes"`
}

// NodeTree is the provider tree of one compute node, as Placement has it.
type NodeTree struct {
	Node   string `json:"node"`
	UUID   string `json:"uuid"`
	Driver string `json:"driver"`
	// Providers are in pre-order. Nil when Error says why there is nothing to show.
	Providers []Provider `json:"providers"`
	Error     string     `json:"error,omitempty"`
	// ReadAt is when the providers were read from Placement; zero if there is nothing to show.
	ReadAt time.Time `json:"read_at,omitzero"`
	// Stale says why Placement could not be read now: the providers are as the agent read them at ReadAt, and what is used is not known.
	Stale string `json:"stale,omitempty"`
}

// Unread reports whether Placement could not be read for some node.
func (t Tree) Unread() bool {
	return slices.ContainsFunc(t.Nodes, func(n NodeTree) bool { return n.Stale != "" || n.Error != "" })
}

// Provider is one resource provider.
type Provider struct {
	UUID        string      `json:"uuid"`
	Name        string      `json:"name"`
	Parent      string      `json:"parent_provider_uuid,omitempty"`
	Generation  int64       `json:"generation"`
	Inventories []Inventory `json:"inventories"`
	Traits      []string    `json:"traits"`
	Aggregates  []string    `json:"aggregates"`
}

// Inventory is one resource class of a provider.
type Inventory struct {
	Class string `json:"resource_class"`
	providertree.Inventory
	Capacity int64 `json:"capacity"`
	// Used is nil when Placement could not be asked.
	Used *int64 `json:"used"`
}

// Plan is the answer of `compute-agent plan`.
type Plan struct {
	Nodes []NodePlan `json:"nodes"`
}

// NodePlan is what the next pass over a node would write.
type NodePlan struct {
	Node       string                   `json:"node"`
	UUID       string                   `json:"uuid"`
	Driver     string                   `json:"driver"`
	Operations []reportclient.Operation `json:"operations"`
	// Reshape is what would move. Only when it was asked for (`plan --reshape`).
	Reshape *resourcetracker.Preview `json:"reshape,omitempty"`
	Error   string                   `json:"error,omitempty"`
	// Refused says that the reshape would be refused, to protect data; Offenders and Remedy are about that.
	Refused   bool     `json:"refused,omitempty"`
	Offenders []string `json:"offenders,omitempty"`
	// Warnings are about what would be written: names that no list of standard ones has.
	Warnings []string `json:"warnings,omitempty"`
	// Objections are the offenders by what is wrong with them, with the remedy for each. Remedy is for all of them.
	Objections []resourcetracker.Objection `json:"objections,omitempty"`
	Remedy     string                      `json:"remedy,omitempty"`
}

// Refused reports whether the reshape of some node would be refused.
func (p PlanView) Refused() bool {
	for _, n := range p.Nodes {
		if n.Refused {
			return true
		}
	}
	return false
}

// Failed reports whether it cannot be told of some node what would be written.
func (p PlanView) Failed() bool {
	for _, n := range p.Nodes {
		if n.Error != "" {
			return true
		}
	}
	return false
}

// PlanView is [NodePlan] as a client reads it back: operations in words, and whole as JSON.
type PlanView struct {
	Nodes []struct {
		Node       string `json:"node"`
		UUID       string `json:"uuid"`
		Driver     string `json:"driver"`
		Operations []struct {
			Kind string `json:"operation"`
			Text string `json:"text"`
		} `json:"operations"`
		Reshape   *resourcetracker.Preview `json:"reshape,omitempty"`
		Error     string                   `json:"error,omitempty"`
		Refused   bool                     `json:"refused,omitempty"`
		Offenders []string                 `json:"offenders,omitempty"`
		Warnings  []string                 `json:"warnings,omitempty"`
		// Objections: see [NodePlan].
		Objections []resourcetracker.Objection `json:"objections,omitempty"`
		Remedy     string                      `json:"remedy,omitempty"`
	} `json:"nodes"`
}
