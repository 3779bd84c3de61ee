// SPDX-License-Identifier: Apache-2.0

package control

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// Configuration is the sources of the agent's configuration: a command that reads the same files,
// variables and flags gets the same configuration.
type Configuration struct {
	// PID is the agent's process id, File its --config; "" means the default file.
	PID  int    `json:"pid"`
	File string `json:"file,omitempty"`
	// Environ are the relevant variables, "NAME=VALUE"; UID and Executable are the agent's.
	Environ    []string `json:"environ"`
	UID        int      `json:"uid"`
	Executable string   `json:"executable,omitempty"`
	// Overrides are keys that flags set.
	Overrides []config.Override `json:"overrides,omitempty"`
	// Drivers are the tables [drivers.NAME.config] of a standalone agent, which adds keys.
	Drivers map[string]json.RawMessage `json:"drivers,omitempty"`
}

// TreeOptions say what a tree is shown with.
type TreeOptions struct {
	// Servers adds the consumers of each provider.
	Servers bool
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
	// Providers are in pre-order; nil if there is an Error.
	Providers []Provider `json:"providers"`
	Error     string     `json:"error,omitempty"`
	// ReadAt is when the providers were read from Placement; zero if there are none.
	ReadAt time.Time `json:"read_at,omitzero"`
	// Stale is why Placement could not be read now: the providers are cached since ReadAt, and
	// usage is unknown.
	Stale string `json:"stale,omitempty"`
	// WithoutAllocations are guests of the node that hold nothing of it, and GuestsError is why its
	// guests are unknown, with `tree --servers`.
	WithoutAllocations []Consumer `json:"guests_without_allocations,omitempty"`
	GuestsError        string     `json:"guests_error,omitempty"`
}

// Unread reports whether Placement could not be read for some node.
func (t Tree) Unread() bool {
	return slices.ContainsFunc(t.Nodes, func(n NodeTree) bool { return n.Stale != "" || n.Error != "" })
}

// Provider is one resource provider.
type Provider struct {
	UUID       string `json:"uuid"`
	Name       string `json:"name"`
	Parent     string `json:"parent_provider_uuid,omitempty"`
	Generation int64  `json:"generation"`
	// ProductName is what the hardware is called, as the driver last reported it; "" if unknown.
	ProductName string      `json:"product_name,omitempty"`
	Inventories []Inventory `json:"inventories"`
	Traits      []string    `json:"traits"`
	Aggregates  []string    `json:"aggregates"`
	// Consumers hold some of the inventories, with `tree --servers`: guests first.
	Consumers []Consumer `json:"consumers,omitempty"`
}

// Consumer is what holds some of a provider.
type Consumer struct {
	UUID string       `json:"consumer_uuid"`
	Kind ConsumerKind `json:"kind"`
	// Name is the server's in the agent's cell, Guest the guest's on the hypervisor; "" if unknown.
	Name  string `json:"name,omitempty"`
	Guest string `json:"guest_name,omitempty"`
	// GuestOf is the node of a guest of this host's other nodes.
	GuestOf string `json:"guest_of,omitempty"`
	// Type is the type of a consumer that is no guest, such as MIGRATION, if Placement has types.
	Type string `json:"consumer_type,omitempty"`
	// Resources are the amounts, by class.
	Resources providertree.Resources `json:"resources,omitempty"`
}

// ConsumerKind is what an agent knows of a consumer.
type ConsumerKind string

// The kinds of consumers.
const (
	KindGuest     ConsumerKind = "guest"               // of this node
	KindElsewhere ConsumerKind = "guest_of_other_node" // of this host: it may be migrating
	KindServer    ConsumerKind = "server"              // of the agent's cell, and not a guest now
	KindOther     ConsumerKind = "other"               // a migration, or another client's
	KindUnchecked ConsumerKind = "unchecked"           // the guests are unknown
)

// Compare orders guests before others, then names, then uuids.
func (c Consumer) Compare(other Consumer) int {
	order := func(c Consumer) int {
		return slices.Index([]ConsumerKind{KindGuest, KindElsewhere, KindServer, KindUnchecked, KindOther}, c.Kind)
	}
	return cmp.Or(cmp.Compare(order(c), order(other)),
		cmp.Compare(c.shown(), other.shown()), cmp.Compare(c.UUID, other.UUID))
}

func (c Consumer) shown() string { return cmp.Or(c.Name, c.Guest) }

// Inventory is one resource class of a provider.
type Inventory struct {
	Class string `json:"resource_class"`
	providertree.Inventory
	Capacity int64 `json:"capacity"`
	// Used is nil if Placement could not be read.
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
	// Reshape is what would move, with `plan --reshape`.
	Reshape *reshape.Preview `json:"reshape,omitempty"`
	Error   string           `json:"error,omitempty"`
	// Refused means that the reshape would be refused, because of Violations.
	Refused    bool     `json:"refused,omitempty"`
	Violations []string `json:"offenders,omitempty"`
	// Warnings are about names that are not standard.
	Warnings []string `json:"warnings,omitempty"`
	// ViolationGroups are the violations grouped by problem, with a hint for each. Hint is for all.
	ViolationGroups []reshape.ViolationGroup `json:"objections,omitempty"`
	Hint            string                   `json:"remedy,omitempty"`
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

// Failed reports whether the plan of some node failed.
func (p PlanView) Failed() bool {
	for _, n := range p.Nodes {
		if n.Error != "" {
			return true
		}
	}
	return false
}

// PlanView is [Plan] as a client decodes it: with operations as text.
type PlanView struct {
	Nodes []struct {
		Node       string `json:"node"`
		UUID       string `json:"uuid"`
		Driver     string `json:"driver"`
		Operations []struct {
			Kind string `json:"operation"`
			Text string `json:"text"`
		} `json:"operations"`
		Reshape    *reshape.Preview `json:"reshape,omitempty"`
		Error      string           `json:"error,omitempty"`
		Refused    bool             `json:"refused,omitempty"`
		Violations []string         `json:"offenders,omitempty"`
		Warnings   []string         `json:"warnings,omitempty"`
		// ViolationGroups: see [NodePlan].
		ViolationGroups []reshape.ViolationGroup `json:"objections,omitempty"`
		Hint            string                   `json:"remedy,omitempty"`
	} `json:"nodes"`
}

// Migration is the result of `compute-agent placement migrate-compute-inventory`.
type Migration struct {
	Database string         `json:"database"`
	Nodes    []MigratedNode `json:"nodes"`
}

// Moved returns the nodes that were written, with how many changes; nil if none was.
func (m Migration) Moved() map[string]int {
	var moved map[string]int
	for _, n := range m.Nodes {
		if n.Outcome == MigrationDone || len(n.Changes) > 0 && n.Outcome == MigrationFailed {
			if moved == nil {
				moved = map[string]int{}
			}
			moved[n.Node] = len(n.Changes)
		}
	}
	return moved
}

// Has reports whether a node has the outcome.
func (m Migration) Has(outcome MigrationOutcome) bool {
	return slices.ContainsFunc(m.Nodes, func(n MigratedNode) bool { return n.Outcome == outcome })
}

// MigratedNode is a node with its plan and outcome.
type MigratedNode struct {
	NodePlan
	Outcome MigrationOutcome `json:"outcome"`
	// Unfinished means that a crash interrupted an earlier reshape, which is checked first.
	Unfinished bool `json:"unfinished,omitempty"`
	// Changes describe what was written.
	Changes []string `json:"changes,omitempty"`
}

// MigrationOutcome is the outcome of a node.
type MigrationOutcome string

// The outcomes. Refused and failed ones have an Error.
const (
	MigrationNotNeeded MigrationOutcome = "nothing to move"
	MigrationNeeded    MigrationOutcome = "would be moved"
	MigrationDone      MigrationOutcome = "moved"
	MigrationRefused   MigrationOutcome = "refused"
	MigrationFailed    MigrationOutcome = "failed"
)
