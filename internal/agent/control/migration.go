// SPDX-License-Identifier: Apache-2.0

package control

import "slices"

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
