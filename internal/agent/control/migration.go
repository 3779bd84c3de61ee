// SPDX-License-Identifier: Apache-2.0

package control

// Migration is what `compute-agent placement migrate-compute-inventory` did for a host's nodes.
type Migration struct {
	Database string         `json:"database"`
	Nodes    []MigratedNode `json:"nodes"`
}

// MigratedNode is one node, with what had to be written for it.
type MigratedNode struct {
	NodePlan
	Outcome MigrationOutcome `json:"outcome"`
	// Unfinished says that a reshape was left open by a crash, and is looked into.
	Unfinished bool `json:"unfinished,omitempty"`
	// Changes are what was written, in words.
	Changes []string `json:"changes,omitempty"`
}

// MigrationOutcome is what became of a node.
type MigrationOutcome string

// The outcomes. Refused and failed ones have an Error.
const (
	MigrationNotNeeded MigrationOutcome = "nothing to move"
	MigrationNeeded    MigrationOutcome = "would be moved"
	MigrationDone      MigrationOutcome = "moved"
	MigrationRefused   MigrationOutcome = "refused"
	MigrationFailed    MigrationOutcome = "failed"
)
