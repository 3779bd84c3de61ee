// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Nodes prints the nodes that are or were reported.
func Nodes(w io.Writer, nodes statedir.Nodes) error {
	p := newPrinter(w)
	if len(nodes.Nodes) == 0 {
		p.line("No compute nodes: none has been reported yet.")
		return p.err
	}
	rows := [][]string{{"name", "uuid", "driver", "state", "reported since"}}
	for _, n := range nodes.Nodes {
		since := "never"
		if !n.Since.IsZero() {
			since = n.Since.UTC().Format(time.DateOnly)
		}
		rows = append(rows, []string{n.Name, n.UUID, cmp.Or(n.Driver, nothing), cmp.Or(n.State, "unknown"), since})
	}
	p.columns("", rows)
	for _, n := range nodes.Nodes {
		if n.Error != "" {
			p.line("%s: %s", p.styled(bold, n.Name), p.styled(bad, n.Error))
		}
	}
	return p.err
}

// Removal prints the result of removing a node.
func Removal(w io.Writer, r control.Removal) error {
	p := newPrinter(w)
	node := fmt.Sprintf("node %s (%s)", r.Name, r.UUID)
	switch {
	case len(r.ViolationGroups) > 0:
		p.line("%s was not removed, and nothing was written:", node)
		for _, o := range r.ViolationGroups {
			p.line("  - %s", o)
		}
		return p.err
	case r.ReportedBy != "" && r.Removed:
		p.line("This agent has forgotten %s. Host %s reports it, and its resource providers stay in Placement.",
			node, r.ReportedBy)
		return p.err
	case r.ReportedBy != "":
		p.line("Host %s reports %s now. Its resource providers stay in Placement, and this agent can forget the node.",
			r.ReportedBy, node)
		return p.err
	case r.NotNamed && r.Removed:
		p.line("This agent has forgotten %s: its certificate is for other nodes; nothing is deleted in Placement.",
			node)
		return p.err
	case r.NotNamed:
		p.line("This agent can forget %s: its certificate is for other nodes; nothing is deleted in Placement.", node)
		return p.err
	case r.Removed:
		p.line("Removed %s with %s:", node, textutil.Count(len(r.Providers), "resource provider"))
	case len(r.Providers) == 0:
		p.line("%s is no longer in Placement. Its record can be removed.", node)
	default:
		p.line("%s can be removed, with %s:", node, textutil.Count(len(r.Providers), "resource provider"))
	}
	for i, rp := range r.Providers {
		p.line("%4d. delete resource provider %s (%s)", i+1, rp.Name, rp.UUID)
	}
	if r.Unchecked && !r.Removed {
		p.line("No cell says whether another host reports the node now. " +
			"If one does, do not remove it: that host would lose it until its agent makes it again.")
	}
	return p.err
}

// Assignment prints the result of assigning a node to a driver.
func Assignment(w io.Writer, a control.Assignment) error {
	p := newPrinter(w)
	node := fmt.Sprintf("node %s (%s)", a.Name, a.UUID)
	from := "no driver"
	if a.From != "" {
		from = "driver " + a.From
	}
	switch {
	case len(a.ViolationGroups) > 0:
		p.line("%s was not assigned to driver %s, and nothing was changed:", node, a.To)
		for _, o := range a.ViolationGroups {
			p.line("  - %s", o)
		}
		return p.err
	case a.Done && a.Offline:
		p.line("%s belongs to driver %s from the next start of the agent; it belonged to %s.", node, a.To, from)
	case a.Done:
		p.line("%s now belongs to driver %s; it belonged to %s.", node, a.To, from)
	default:
		p.line("%s belongs to %s and can be assigned to driver %s.", node, from, a.To)
	}
	if a.From != "" {
		p.line("What only driver %s reported is removed from Placement; inventory that is allocated stays, closed "+
			"for new instances, until it is free.", a.From)
	}
	return p.err
}

// Adoption prints what Placement has, and the steps of an adoption.
func Adoption(w io.Writer, a control.Adoption) error {
	const maxServers = 10 // that are named
	p := newPrinter(w)
	if len(a.Providers) > 0 {
		p.line("Placement has:")
		rows := [][]string{{"resource provider", "uuid", "inventories", "consumers"}}
		depth := map[string]int{}
		for _, rp := range a.Providers {
			depth[rp.UUID] = depth[rp.Parent] + 1
			name := strings.Repeat("  ", depth[rp.UUID]-1) + rp.Name
			if rp.NewName != "" {
				name += " → " + rp.NewName
			}
			totals := make([]string, 0, len(rp.Inventories))
			for _, class := range slices.Sorted(maps.Keys(rp.Inventories)) {
				totals = append(totals, fmt.Sprintf("%s %d", class, rp.Inventories[class]))
			}
			if len(totals) == 0 {
				totals = []string{nothing}
			}
			rows = append(rows, []string{name, rp.UUID, strings.Join(totals, ", "), fmt.Sprint(rp.Consumers)})
		}
		p.columns("  ", rows)
	}
	if n := len(a.Servers); n > 0 {
		p.line("Servers that the cell has on this host: %d, %s", n, strings.Join(a.Servers[:min(n, maxServers)], ", ")+
			map[bool]string{true: ", …"}[n > maxServers])
	}
	if a.ServersUnknown != "" {
		p.line("It is not known which servers the cell has on this host: %s", a.ServersUnknown)
	}
	if a.WithServers != "" {
		p.line("The command is refused without --with-servers %s.", a.WithServers)
	}
	if len(a.Steps) == 0 {
		p.line("Nothing to do for node %s.", a.Node)
		return p.err
	}
	header := "Steps:"
	if a.Done {
		header = "Done:"
	}
	p.line("%s", header)
	for i, s := range a.Steps {
		p.line("%4d. %s", i+1, s)
	}
	if len(a.Unknown) > 0 {
		p.line("An earlier version of the agent adopted this node without a snapshot. These items may have existed " +
			"before, so they stay:")
		for _, s := range a.Unknown {
			p.line("  - %s", s)
		}
	}
	return p.err
}

// Disabling prints the result of disabling or enabling nodes.
func Disabling(w io.Writer, d control.Disabling, enable bool) error {
	p := newPrinter(w)
	state := "disabled"
	if enable {
		state = "enabled"
	}
	if d.Offline {
		p.line("Recorded: %s. No agent runs; its next start updates Placement.", state)
	}
	for _, n := range d.Nodes {
		state := "disabled: " + n.Reason
		if !n.Disabled {
			state = "enabled"
		}
		switch {
		case n.InPlacement != nil && *n.InPlacement == n.Disabled:
			p.line("node %s (%s): %s; Placement is up to date.", n.Node, n.UUID, state)
		case n.Error != "":
			p.line("node %s (%s): %s; Placement is not updated yet: %s", n.Node, n.UUID, state, n.Error)
		default:
			p.line("node %s (%s): %s; Placement is not updated yet, the agent retries.", n.Node, n.UUID, state)
		}
	}
	if len(d.Nodes) == 0 && !d.Offline {
		p.line("Recorded. No driver has reported a node yet; Placement is updated when one does.")
	}
	p.reasons("still disabled by ", d.Left)
	return p.err
}

// reasons prints the reasons why nodes are disabled.
func (p *printer) reasons(lead string, reasons []statedir.Reason) {
	for _, r := range reasons {
		where, by := "every node", ""
		if r.Node != "" {
			where = "node " + r.Node
		}
		if r.By != "" {
			by = ", by " + r.By
		}
		p.line("%s%s (%s, since %s%s): %s", lead, r.Source,
			where, r.Since.UTC().Format("2006-01-02 15:04:05Z"), by, r.Reason)
	}
}

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
