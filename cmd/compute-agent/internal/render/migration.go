// SPDX-License-Identifier: Apache-2.0

package render

import (
	"io"

	"github.com/compute-agent/compute-agent/internal/agent/control"
)

// Migration prints the result of `placement migrate-compute-inventory`.
func Migration(w io.Writer, m control.Migration) error {
	p := &printer{w: w}
	for _, n := range m.Nodes {
		id := n.Node
		if n.UUID != "" {
			id += " (" + n.UUID + ")"
		}
		switch n.Outcome {
		case control.MigrationNotNeeded:
			p.line("%s: nothing needs to move, nothing is written", id)
		case control.MigrationNeeded:
			p.line("%s: would be moved, with %s:", id, count(int64(len(n.Operations)), "write"))
			for i, op := range n.Operations {
				p.line("%4d. %s", i+1, op)
			}
			if n.Reshape != nil {
				p.preview(n.Reshape)
			}
			if n.Unfinished {
				p.line("  an earlier, unfinished reshape is checked first")
			}
		case control.MigrationDone:
			p.line("%s: moved, with %s:", id, count(int64(len(n.Changes)), "write"))
			for i, change := range n.Changes {
				p.line("%4d. %s", i+1, change)
			}
		case control.MigrationRefused:
			p.line("%s: nothing was moved", id)
			p.refusal("  ", n.Error, groups(n.ViolationGroups, n.Violations), n.Hint)
		default:
			p.line("%s: failed: %s", id, n.Error)
		}
	}
	return p.err
}
