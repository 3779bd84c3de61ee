// SPDX-License-Identifier: Apache-2.0

package control

// Migration is the result of `compute-agent placement migrate-compute-inventory`.
type Migration struct {
	Database string         `json:"database"`
	Nodes    []MigratedNode `json:"nodes"`
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
