// SPDX-License-Identifier: Apache-2.0

package cloudaudit

import "context"

// FindingKind is a kind of what does not fit together.
type FindingKind string

// The kinds.
const (
	// FindingServerLost is a server that its cell does not know.
	FindingServerLost FindingKind = "server-lost"
	// FindingServerUnmapped is a server of a cell that is not mapped to that cell.
	FindingServerUnmapped FindingKind = "server-unmapped"
	// FindingDeletionDiffers is a server that is deleted for the API database alone, or for its
	// cell alone.
	FindingDeletionDiffers FindingKind = "deletion-differs"
	// FindingNoAllocations is a server on a host that holds nothing in Placement.
	FindingNoAllocations FindingKind = "server-without-allocations"
	// FindingElsewhere is a server that holds something on a host where it is not.
	FindingElsewhere FindingKind = "allocations-elsewhere"
	// FindingDeletedHolds is a deleted server, or one without a host, that holds something.
	FindingDeletedHolds FindingKind = "allocations-of-deleted-server"
	// FindingEndedHolds is a migration that is over and holds something.
	FindingEndedHolds FindingKind = "allocations-of-ended-migration"
	// FindingNoConsumer is a consumer that is no server and no migration of any cell.
	FindingNoConsumer FindingKind = "allocations-without-consumer"
	// FindingGuestMissing is a server whose guest its host does not have.
	FindingGuestMissing FindingKind = "guest-missing"
	// FindingUnknownGuests are guests that an agent made, and that no server is about.
	FindingUnknownGuests FindingKind = "guests-without-server"
	// FindingNodeUnmapped is a node that its host reports and that is not mapped.
	FindingNodeUnmapped FindingKind = "node-unmapped"
	// FindingNodeMissing is a mapped node that its cell does not know.
	FindingNodeMissing FindingKind = "node-not-reported"
	// FindingNoProvider is a node without a resource provider.
	FindingNoProvider FindingKind = "node-without-provider"
	// FindingNoHost is a resource provider of a node of no host, or that no node of a host shares.
	FindingNoHost FindingKind = "provider-without-host"
)

// manual is why an audit with repair leaves a kind to an operator; "": it repairs it.
var manual = map[FindingKind]string{
	FindingServerLost:      "either database may be the older copy, and a person knows which",
	FindingServerUnmapped:  "either database may be the older copy, and a person knows which",
	FindingDeletionDiffers: "",
	FindingNoAllocations:   "only the driver of the host knows which of its devices and NUMA cells the guest uses",
	FindingElsewhere:       "only the driver of the other host knows whether the guest is there",
	FindingDeletedHolds:    "",
	FindingEndedHolds:      "",
	FindingNoConsumer:      "it may be another service's",
	FindingGuestMissing:    "what removed the guest, and whether its disks are still there, is not known",
	FindingUnknownGuests:   "a guest may have the only disks of a server",
	FindingNodeUnmapped:    "",
	FindingNodeMissing:     "whether the node is gone for good, a person knows",
	FindingNoProvider:      "only the agent of the host knows what the node has",
	FindingNoHost:          "it may be of an agent without a cell, of Nova, or of another service",
}

// Finding is one thing that does not fit together. What it is not about is empty.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	Cell     string      `json:"cell,omitempty"` // name
	Host     string      `json:"host,omitempty"`
	Provider string      `json:"provider,omitempty"` // uuid of the root: of a node
	Server   string      `json:"server,omitempty"`   // uuid
	Consumer string      `json:"consumer,omitempty"` // uuid, if it is not a server
	// Text says what it is, and Hint what an operator does about it.
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
	// Manual says why an audit with repair leaves it to an operator; "": it repairs it.
	Manual string `json:"manual,omitempty"`
	// Repaired says what was done about it; "": nothing. Problem says why that failed.
	Repaired string `json:"repaired,omitempty"`
	Problem  string `json:"problem,omitempty"`

	repair func(context.Context) (done string, err error) // nil: Manual says why
}

// Repairable reports whether an audit with repair does something about it.
func (f *Finding) Repairable() bool { return f.repair != nil }

// Unchecked is a service whose part of an audit is missing.
type Unchecked struct {
	Cell string `json:"cell,omitempty"` // name; "": it is Placement
	Why  string `json:"why"`
	// Leaves says what is not known without it.
	Leaves string `json:"leaves"`
	// Partly says that it stopped answering meanwhile: what was found before is in the report.
	Partly bool `json:"partly,omitempty"`
}

// String is the name of the service.
func (u Unchecked) String() string {
	if u.Cell == "" {
		return "Placement"
	}
	return "Cell " + u.Cell
}

// What is not known without a service.
const (
	leavesCell = "its servers, nodes and guests; and in all of Placement allocations-without-consumer and " +
		"provider-without-host, because a consumer or provider may be one of this cell"
	leavesPlacement = "all findings about allocations and resource providers: server-without-allocations, " +
		"allocations-elsewhere, allocations-of-deleted-server, " +
		"allocations-of-ended-migration, allocations-without-consumer, node-without-provider and provider-without-host"
)

// Report is what an audit found.
type Report struct {
	// Cells, Nodes, Servers, Providers and Consumers are how many were compared.
	Cells     int `json:"cells"`
	Nodes     int `json:"nodes"`
	Servers   int `json:"servers"`
	Providers int `json:"providers"`
	Consumers int `json:"consumers"`
	// HostsDown are hosts that are not up: their guests are not compared.
	HostsDown []string    `json:"hosts_down"`
	Unchecked []Unchecked `json:"unchecked"`
	Findings  []Finding   `json:"findings"`
}

// Complete reports whether all services and hosts could be asked.
func (r Report) Complete() bool { return len(r.Unchecked)+len(r.HostsDown) == 0 }

// Clean reports whether nothing that was found is left.
func (r Report) Clean() bool {
	for i := range r.Findings {
		if r.Findings[i].Repaired == "" {
			return false
		}
	}
	return true
}
