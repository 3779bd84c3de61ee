// SPDX-License-Identifier: Apache-2.0

package render

import (
	"io"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Migration prints the result of `placement migrate-compute-inventory`.
func Migration(w io.Writer, m control.Migration) error {
	p := newPrinter(w)
	for _, n := range m.Nodes {
		id := named(n.Node, n.UUID)
		switch n.Outcome {
		case control.MigrationNotNeeded:
			p.line("%s: %s", id, p.styled(good, "nothing needs to move, nothing is written"))
		case control.MigrationNeeded:
			p.line("%s: would be moved, with %s:", id, textutil.Count(len(n.Operations), "write"))
			for i, op := range n.Operations {
				p.line("%4d. %s", i+1, p.styled(changeStyle(op.String()), op.String()))
			}
			if n.Reshape != nil {
				p.preview(n.Reshape, false)
			}
			if n.Unfinished {
				p.line("  an earlier, unfinished reshape is checked first")
			}
		case control.MigrationDone:
			p.line("%s: %s, with %s:", id, p.styled(good, "moved"), textutil.Count(len(n.Changes), "write"))
			for i, change := range n.Changes {
				p.line("%4d. %s", i+1, change)
			}
		case control.MigrationRefused:
			p.line("%s: %s", id, p.styled(bad, "nothing was moved"))
			p.refusal("  ", n.Error, groups(n.ViolationGroups, n.Violations), n.Hint)
		default:
			p.line("%s: %s: %s", id, p.styled(fatal, "failed"), n.Error)
		}
	}
	return p.err
}
