// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// Audit prints differences between allocations and guests, and what was done about orphaned
// allocations.
func Audit(w io.Writer, r audit.Report) error {
	p := newPrinter(w)
	for _, n := range r.Nodes {
		p.auditHead(n)
		for _, o := range n.Orphans {
			p.orphan(o)
		}
		for _, g := range n.Unaccounted {
			p.unaccounted(g)
		}
		for _, o := range n.Overcommitted {
			p.line("  %s: %s on %s: %d allocated, capacity %d (total %d, reserved %d, allocation_ratio %s)",
				p.styled(notice, "over-committed"), o.Class,
				o.Name, o.Used, o.Capacity, o.Total, o.Reserved, strconv.FormatFloat(o.AllocationRatio, 'g', -1, 64))
		}
	}
	p.auditRefused(r)
	return p.err
}

func (p *printer) auditHead(n audit.Node) {
	id := named(n.Node, n.UUID)
	switch found := len(n.Orphans) + len(n.Unaccounted) + len(n.Overcommitted); {
	case n.Error != "":
		p.line("%s: %s: %s", p.styled(bold, id), p.styled(bad, "cannot compare"), n.Error)
	case found == 0:
		p.line("%s: %s and %s, %s", p.styled(bold, id), textutil.Count(n.Guests, "guest"),
			textutil.Count(n.Consumers, "consumer"), p.styled(good, "nothing to report"))
	default:
		p.line("%s: %s and %s, %s", p.styled(bold, id),
			textutil.Count(n.Guests, "guest"), textutil.Count(n.Consumers, "consumer"),
			p.styled(notice, textutil.Count(found, "finding")))
	}
}

func (p *printer) auditRefused(r audit.Report) {
	if r.Refused != "" {
		p.line("%s: %s", p.styled(fatal, "refused"), r.Refused)
	}
}

func (p *printer) orphan(o audit.Orphan) {
	p.line("  %s: consumer %s is not a guest and holds %s", p.styled(notice, "orphaned"), o.Consumer,
		formatAmounts(o.Here))
	if len(o.Elsewhere) > 0 {
		p.line("    elsewhere  %s", formatAmounts(o.Elsewhere))
	}
	age := "unknown"
	if !o.Written.IsZero() {
		age = fmt.Sprintf("%s (%s ago)", when(o.Written), o.Age.Round(time.Second))
	}
	p.line("    written    %s, for project %s, user %s", age, o.ProjectID, o.UserID)
	switch {
	case o.Seen == nil:
		p.line("    as guest   never seen here")
	case o.Seen.Gone.IsZero():
		p.line("    as guest   first seen here %s, disappeared just now", when(o.Seen.First))
	default:
		p.line("    as guest   first seen here %s, disappeared %s", when(o.Seen.First), when(o.Seen.Gone))
	}
	p.done(o.Done, o.Problem, o.Kept, "deleted", "--heal deletes it")
	if !o.Done.Fixed() {
		p.line("    inspect    %s", o.Look)
	}
}

func (p *printer) unaccounted(g audit.Guest) {
	name := named(g.UUID, g.Name)
	switch {
	case len(g.Differences) > 0:
		p.line("  %s: guest %s", p.styled(notice, "differs"), name)
		for _, d := range g.Differences {
			p.line("    %s on %s: the driver says %d, Placement says %d",
				d.Class, cmp.Or(d.Name, d.Provider), d.Driver, d.Placement)
		}
	case len(g.Elsewhere) > 0:
		p.line("  %s: guest %s holds nothing here", p.styled(notice, "unaccounted"), name)
		p.line("    elsewhere  %s", formatAmounts(g.Elsewhere))
	default:
		p.line("  %s: guest %s holds nothing", p.styled(notice, "unaccounted"), name)
	}
	if g.Has != nil && len(g.Differences) == 0 {
		p.line("    has        %s", formatAmounts(g.Has))
	}
	p.done(g.Done, g.Problem, g.Kept, "repaired", "`compute-agent allocations heal` creates its allocations")
}

// done prints the outcome of a finding, or its fix.
func (p *printer) done(outcome audit.Outcome, problem, kept, verb, fix string) {
	switch {
	case outcome == audit.Failed:
		p.line("    failed     %s", p.styled(bad, problem))
	case outcome != "":
		p.line("    %s", p.styled(good, string(outcome)))
	case kept != "":
		p.line("    not %s: %s", verb, kept)
	default:
		p.line("    fix        %s", fix)
	}
}

// Healed prints what was done for guests without allocations.
func Healed(w io.Writer, r audit.Report) error {
	p := newPrinter(w)
	rows := [][]string{{"node", "guest", "name", "allocations", "outcome"}}
	for _, n := range r.Nodes {
		if n.Error != "" {
			p.line("%s: %s: %s", p.styled(bold, n.Node), p.styled(bad, "cannot compare"), n.Error)
		}
		for _, g := range n.Unaccounted {
			if len(g.Differences) > 0 {
				continue
			}
			outcome := string(g.Done)
			switch {
			case g.Done == audit.Failed:
				outcome += ": " + g.Problem
			case g.Done == "" && g.Kept != "":
				outcome = "skipped: " + g.Kept
			case g.Done == "":
				outcome = "skipped"
			}
			rows = append(rows, []string{n.Node, g.UUID, g.Name, formatAmounts(g.Has), outcome})
		}
	}
	if len(rows) > 1 {
		p.columns("", rows)
	} else if r.Refused == "" {
		p.line("Every guest has allocations; there is nothing to create.")
	}
	p.auditRefused(r)
	return p.err
}

// formatAmounts lists amounts.
func formatAmounts(shares []audit.Share) string {
	if len(shares) == 0 {
		return nothing
	}
	out := make([]string, 0, len(shares))
	for _, s := range shares {
		out = append(out, fmt.Sprintf("%s %d on %s", s.Class, s.Amount, cmp.Or(s.Name, s.Provider)))
	}
	return strings.Join(out, ", ")
}
