// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// loadJournal reads the journal of reshapes. Damaged finished entries are only reported.
func (a *Agent) loadJournal() {
	damaged, err := a.state.Journal.Load()
	a.conditions.problems.set(func(p *health.Problems) {
		p.Journal, p.DamagedEntries = errorText(err), nil
		for _, e := range damaged {
			p.DamagedEntries = append(p.DamagedEntries, fmt.Sprintf("reshape %d: %s", e.ID, e.File))
		}
	})
	if err != nil {
		a.log.Warn().Err(err).
			Msg("The journal of reshapes cannot be read. No pass is made until it can; `compute-agent doctor` " +
				"checks the state directory.")
	}
	for _, e := range damaged {
		a.log.Warn().Int64("reshape", e.ID).Str("file", e.File).Err(e.Err).
			Msg("An entry of the journal of reshapes is damaged. That reshape is complete, but can no longer be " +
				"shown or undone. Nothing else depends on the entry.")
	}
}

// Refresh implements [control.Agent]. The passes compare each tree with Placement first.
func (a *Agent) Refresh(context.Context) {
	a.placement.Recheck()
	for _, d := range a.drivers.active() {
		d.tracker.Refresh("requested by an operator")
	}
}

// UndoReshape implements [control.Agent]. No pass of the node's tracker runs meanwhile.
func (a *Agent) UndoReshape(ctx context.Context, id int64) error {
	history, err := journal.Read(a.opts.Config.Agent.StateDir)
	if err != nil {
		return err
	}
	a.log.Info().Int64("reshape", id).Msg("An operator requests to undo a reshape.")
	undo := func() error {
		return reshape.Undo(ctx, a.placement, a.state.Journal, a.state.Records, history, id)
	}
	for _, e := range history {
		if e.ID != id {
			continue
		}
		for _, d := range a.drivers.active() {
			if d.tracker.Reports(e.Root) {
				undo = func() error {
					defer d.tracker.Refresh("a reshape was undone") // so that the status is current
					return d.tracker.Undo(ctx, history, id)
				}
			}
		}
	}
	if err := undo(); err != nil {
		return err
	}
	a.log.Warn().
		Int64("reshape", id).
		Msg("A reshape was undone. If the driver still needs it, the next start of the agent makes it again: " +
			"restore the driver's previous version or configuration first.")
	return nil
}
