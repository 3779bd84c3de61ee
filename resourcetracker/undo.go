// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// Undo is [reshape.Undo] between two passes of this tracker.
func (t *Tracker) Undo(ctx context.Context, history []journal.Entry, id int64) error {
	if err := t.begin(ctx); err != nil {
		return err
	}
	defer t.end()
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	defer t.forgetRecord(root(history, id))
	return reshape.Undo(ctx, t.config.Placement, t.config.Journal, t.config.Records, history, id)
}

// root is the node of a reshape.
func root(history []journal.Entry, id int64) string {
	for _, e := range history {
		if e.ID == id {
			return e.Root
		}
	}
	return ""
}

// forgetRecord has the next pass read the record again.
func (t *Tracker) forgetRecord(root string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range t.nodes {
		if n.UUID == root {
			n.record = nil
		}
	}
}

// Reports reports whether one of the tracker's nodes has the uuid.
func (t *Tracker) Reports(root string) bool {
	for _, n := range t.Status().Nodes {
		if n.UUID == root {
			return true
		}
	}
	return false
}

// resolveJournal finds out, before anything else is done, what became of a reshape that a crash or
// an outage left without an answer: it asks Placement, once, and keeps what it learns.
//
// Cost: nothing when nothing is open.
func (t *Tracker) resolveJournal(ctx context.Context, node plugins.Node) error {
	if t.config.Journal == nil {
		return nil
	}
	const step = "resolving an unfinished reshape"
	open, err := t.config.Journal.Unresolved(node.UUID)
	if err != nil {
		return &passError{step: step, err: err}
	}
	for _, e := range open {
		if e.Err != nil {
			return &reshape.Error{
				Problem: fmt.Sprintf(
					"it is unknown whether reshape %d of this node happened, and its journal entry cannot be "+
						"compared with Placement", e.ID),
				Err: e.Err,
				Hint: fmt.Sprintf(
					"look at the node's tree in Placement (`openstack resource provider list --in-tree %s`, and "+
						"`openstack resource provider show --allocations` for each); "+
						"if it is complete, move %s away: the reshape is then computed again if it is still needed",
					node.UUID, e.File),
			}
		}
		outcome, err := t.config.Placement.ResolveReshape(ctx, e.Reshape)
		if err != nil {
			return &passError{step: step, err: err}
		}
		if e.Undoes != 0 {
			if err := reshape.RecordUndo(t.config.Records, e, outcome); err != nil {
				return &passError{step: step, err: err}
			}
			t.forgetRecord(node.UUID)
		}
		if err := t.config.Journal.Resolve(e, outcome); err != nil {
			return &passError{step: step, err: err}
		}
		level := zerolog.InfoLevel
		if outcome == reportclient.ReshapeUnknown {
			level = zerolog.WarnLevel
		}
		t.config.Logger.WithLevel(level).
			Str("driver", t.config.Name).
			Str("node", node.Name).
			Int64("reshape", e.ID).
			Time("begun", e.Begun).
			Str("outcome", string(outcome)).
			Msg(resolved[outcome])
	}
	return nil
}

// resolved has the log message for each outcome of resolving a reshape.
var resolved = map[reportclient.ReshapeOutcome]string{
	reportclient.ReshapeHappened: "Resolved a reshape whose answer was lost: it happened.",
	reportclient.ReshapeRefused: "Resolved a reshape whose answer was lost: it did not happen. It is computed " +
		"again if it is still needed.",
	reportclient.ReshapeUnknown: "The outcome of a reshape whose answer was lost cannot be determined: Placement " +
		"has changed too much since. It happened as a whole or " +
		"not at all. The driver decides what is needed now.",
}
