// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// healer fixes findings of one kind.
type healer struct {
	dryRun bool
	// due are the findings of a node that can be fixed.
	due           func(*Node) []finding
	planned, done Outcome
}

// finding is one finding that can be fixed.
type finding struct {
	consumer string // for the log
	outcome  *Outcome
	problem  *string
	// still says whether, by a list of guests from just now, it is what it was.
	still func(now discovery) error
	fix   func(ctx context.Context) error
}

// heal fixes what can be fixed, one finding after the other. Before each write every driver is
// asked again, to notice a guest that has come or gone since the comparison; the write has the
// consumer's generation of the comparison.
//
// If this may be another machine than the one that saw these guests, or if a driver does not
// answer, nothing more is written, and the report says so.
func (a Auditor) heal(ctx context.Context, s discovery, report *Report, h healer) {
	if a.Discrepancy != "" {
		report.Refused = "nothing is written: " +
			a.Discrepancy + " Start the agent here first: it continues with a warning."
		return
	}
	if s.serversUnknown != "" {
		report.Refused = "nothing is written, because it is not known which servers live here and which move: " +
			s.serversUnknown
		return
	}
	if len(s.unanswered) == 0 {
		for _, n := range report.Nodes {
			if n.Error != "" {
				s.unanswered = append(s.unanswered, "node "+n.Node+": "+n.Error)
			}
		}
	}
	if len(s.unanswered) > 0 {
		report.Refused = "nothing is written, because not every driver answered: " + strings.Join(s.unanswered, "; ")
		return
	}
	for i := range report.Nodes {
		n := &report.Nodes[i]
		for _, f := range h.due(n) {
			if h.dryRun {
				*f.outcome = h.planned
				continue
			}
			now := a.discovery(ctx)
			if len(now.unanswered) > 0 {
				report.Refused = "nothing more is written, because not every driver answered: " +
					strings.Join(now.unanswered, "; ")
				return
			}
			if now.serversUnknown != "" {
				report.Refused =
					"nothing more is written, because it is not known which servers live here and which move: " +
						now.serversUnknown
				return
			}
			err := now.checkUnmoved(s, f.consumer)
			if err == nil {
				err = f.still(now)
			}
			if err == nil {
				err = f.fix(ctx)
			}
			if err != nil {
				*f.outcome, *f.problem = Failed, err.Error()
				a.Logger.Warn().Str("node", n.Node).Str("consumer", f.consumer).Err(err).
					Msg("Failed to heal the allocations, or the outcome is not known; run an audit.")
				continue
			}
			*f.outcome = h.done
			a.Logger.Warn().Str("node", n.Node).Str("consumer", f.consumer).Str("allocations", string(h.done)).
				Msg("Healed allocations for an operator.")
		}
	}
}

// checkUnmoved returns an error for a consumer of which the cell says something else by now.
func (d discovery) checkUnmoved(before discovery, consumer string) error {
	if d.servers[consumer] != before.servers[consumer] || moving(d.servers)[consumer] {
		return errors.New("its server has begun to move, or is being deleted, meanwhile")
	}
	return nil
}

// orphans are the orphaned allocations of a node for which there is proof.
func orphans(n *Node, placement Placement) []finding {
	var out []finding
	for i := range n.Orphans {
		o := &n.Orphans[i]
		if o.Kept != "" {
			continue
		}
		out = append(out, finding{
			consumer: o.Consumer, outcome: &o.Done, problem: &o.Problem,
			still: func(now discovery) error {
				if node, listed := now.guests()[o.Consumer]; listed {
					return fmt.Errorf("it is now a guest of %s", node)
				}
				return nil
			},
			fix: func(ctx context.Context) error {
				_, err := placement.DeleteOurPart(ctx, o.Held(), n.Providers)
				return err
			},
		})
	}
	return out
}

// missing are the guests of a node that hold nothing and can be given something.
func missing(n *Node, placement Placement) []finding {
	var out []finding
	for i := range n.Unaccounted {
		g := &n.Unaccounted[i]
		if g.Kept != "" {
			continue
		}
		out = append(out, finding{
			consumer: g.UUID, outcome: &g.Done, problem: &g.Problem,
			still: func(now discovery) error { return g.CheckUnchanged(now.guestOn(n.UUID, g.UUID)) },
			fix:   func(ctx context.Context) error { return placement.CreateAllocations(ctx, g.DesiredAllocations()) },
		})
	}
	return out
}

// guestOn is a guest as the driver lists it on a node, nil if it does not.
func (d discovery) guestOn(root, guest string) *plugins.Guest {
	for _, n := range d.nodes {
		if n.node.UUID != root {
			continue
		}
		for i := range n.guests {
			if n.guests[i].UUID == guest {
				return &n.guests[i]
			}
		}
	}
	return nil
}
