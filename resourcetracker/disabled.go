// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// writeDisabled writes to Placement only whether a node is disabled, when the pass that would have
// written it has failed: a host whose driver is down, or whose reshape is held, is one that
// operators want to disable.
//
// Cost: no request if Placement says so already.
func (t *Tracker) writeDisabled(ctx context.Context, node plugins.Node, state *nodeState) {
	if t.config.Disabled == nil {
		return
	}
	log := t.config.Logger.With().Str("driver", t.config.Name).Str("node", node.Name).Logger()
	known, err := t.config.Placement.Tree(ctx, node.UUID, node.Name)
	if err != nil || isNew(known, node.UUID) {
		return
	}
	_, want := t.config.Disabled(node)
	if want == known.HasTraits(node.UUID, TraitStatusDisabled) {
		return
	}
	record := state.record
	if record == nil {
		if record, err = t.loadRecord(node); err != nil {
			return // the pass said so
		}
	}
	ours := record.Providers[node.UUID].Traits[TraitStatusDisabled] == ownership.Agent
	if !want && !ours && !state.enabling {
		return
	}
	desired := known.Clone()
	change := desired.AddTraits
	if !want {
		change = desired.RemoveTraits
	}
	if _, err := change(node.UUID, TraitStatusDisabled); err != nil {
		return
	}
	plan := t.config.Placement.Plan(known, desired)
	// A node whose record has no providers is adopted later; until then a trait that we set has no
	// owner, and is removed when the node is enabled.
	if want && record.Providers != nil && record.Driver == t.config.Name {
		err = t.save(state, record.Claim(desired, ownership.Agent, node.UUID, TraitStatusDisabled))
	}
	if err == nil {
		err = t.config.Placement.Apply(ctx, node.UUID, plan)
	}
	if err != nil {
		log.Warn().Err(err).Msg("Failed to write to Placement whether the node is disabled. The next pass tries again.")
		return
	}
	if !want {
		state.enabling = false
	}
	t.noteWrites(ctx, state, plan.Operations)
	t.count(EventWrite, node.Name, len(plan.Operations))
}

// writeDisabledOfAll does so for the nodes that the driver has named before, when it cannot name
// them now.
func (t *Tracker) writeDisabledOfAll(ctx context.Context) {
	if t.config.Disabled == nil {
		return
	}
	enabling := t.takeEnabling()
	t.mu.Lock()
	var states []*nodeState
	for _, name := range slices.Sorted(maps.Keys(t.nodes)) {
		if n := t.nodes[name]; n.State != Orphaned {
			states = append(states, n)
		}
	}
	t.mu.Unlock()
	for _, n := range states {
		for _, selects := range enabling {
			n.enabling = n.enabling || selects(n.Name)
		}
		ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
		t.writeDisabled(ctx, plugins.Node{Name: n.Name, UUID: n.UUID}, n)
		cancel()
	}
}

// aboutDriver reports whether a pass failed for another reason than Placement itself.
func aboutDriver(err error) bool {
	return err != nil && !aboutPlacement(err)
}
