// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// UndoError says that a reshape cannot be taken back. Nothing was written.
type UndoError struct {
	ID int64
	// Reason is why not, Hint what can be done instead, or "".
	Reason, Hint string
	Err          error
}

func (e *UndoError) Error() string {
	s := fmt.Sprintf("reshape %d was not undone, nothing was written: %s", e.ID, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += "; what to do: " + e.Hint
	}
	return s
}

func (e *UndoError) Unwrap() error { return e.Err }

// Reshaper is what undoing a reshape needs of a [reportclient.Client], which has the same journal
// as its ReshapeLog.
type Reshaper interface {
	Apply(ctx context.Context, root string, plan reportclient.Plan) error
	CompareReshape(ctx context.Context, r *reportclient.Reshape) (reportclient.ReshapeOutcome, error)
	Usages(ctx context.Context, provider string) (providertree.Resources, error)
}

// Undo undoes a reshape: it posts the inverse, with the generations that held right after the
// reshape. So it succeeds only if no client has written to any of its providers and consumers
// since, and then restores exactly their former inventories and allocations. It is journalled as a
// reshape of its own, and updates the record of the node. Traits and aggregates are not restored; a
// pass of the driver's former version sets them. No pass over the node may run meanwhile.
//
// Errors: [*UndoError] if the reshape cannot be undone; others if Placement does not answer.
//
// Cost: what comparing costs, one GET for each provider, and one POST.
func Undo(
	ctx context.Context, placement Reshaper, j *journal.Journal, records *ownership.Store,
	history []journal.Entry, id int64,
) error {
	entry, err := undoable(history, id)
	if err != nil {
		return err
	}
	outcome, err := placement.CompareReshape(ctx, entry.Reshape)
	if err != nil {
		return fmt.Errorf("comparing reshape %d with Placement: %w", id, err)
	}
	const instead = "move back what the reshape moved by hand, or with a driver that reshapes in the other " +
		"direction; `compute-agent reshape show ID` lists it"
	switch outcome {
	case reportclient.ReshapeHappened:
	case reportclient.ReshapeRefused:
		return &UndoError{ID: id,
			Reason: "Placement already has the state from before the reshape: there is nothing to undo"}
	default:
		return &UndoError{ID: id, Reason: "inventories or allocations that it moved have changed since", Hint: instead}
	}
	if gone, err := missing(ctx, placement, entry.Reshape); err != nil {
		return fmt.Errorf("looking for the resource providers of reshape %d: %w", id, err)
	} else if len(gone) > 0 {
		return &UndoError{
			ID: id, Reason: "Placement no longer has all of its resource providers, so nothing can be moved " +
				"back to them: " + strings.Join(gone, ", "),
			Hint: "give the driver its former configuration or version and restart the agent: it creates them, and " +
				"moves the allocations there",
		}
	}
	j.SetLabel(entry.Root, journal.Label{Node: entry.Node,
		Undoes: id, FromLayout: entry.ToLayout, ToLayout: entry.FromLayout})
	defer j.SetLabel(entry.Root, journal.Label{Node: entry.Node})
	inverse := entry.Reshape.Inverse()
	// before, so that a crash or a lost answer leaves no layout version that the tree may not have
	version, err := setLayout(records, entry.Root, entry.FromLayout)
	if err != nil {
		return &UndoError{ID: id, Reason: "the node's record in the state directory cannot be changed", Err: err}
	}
	err = placement.Apply(ctx, entry.Root, inverse.Plan())
	if err == nil {
		return restore(records,
			journal.Entry{Root: entry.Root, Undoes: id, ToLayout: entry.FromLayout, Reshape: inverse})
	}
	if open, openErr := j.Unresolved(entry.Root); openErr != nil || len(open) > 0 {
		return fmt.Errorf("undoing reshape %d: the outcome is not known yet, the next pass determines it: %w",
			id, errors.Join(err, openErr))
	}
	// if that fails, the next start makes steps that change nothing
	_, layoutErr := setLayout(records, entry.Root, version)
	err = errors.Join(err, layoutErr)
	switch {
	case errors.Is(err, reportclient.ErrConflict):
		return &UndoError{ID: id,
			Reason: "another client has written to its resource providers or consumers since (the generations differ)",
			Hint:   instead, Err: err}
	case errors.Is(err, reportclient.ErrReshapeRefused):
		return &UndoError{ID: id, Reason: "Placement refuses it", Hint: instead, Err: err}
	}
	return fmt.Errorf("undoing reshape %d: %w", id, err)
}

// missing are the names of the providers of a reshape that are not in Placement: a pass has removed
// them since, being empty.
func missing(ctx context.Context, placement Reshaper, r *reportclient.Reshape) ([]string, error) {
	var out []string
	for _, p := range r.Providers {
		if _, err := placement.Usages(ctx, p.UUID); errors.Is(err, reportclient.ErrNotFound) {
			out = append(out, p.Name)
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// setLayout changes the layout version that is recorded of a node, and returns the one before.
// Without a record there is nothing to change.
func setLayout(records *ownership.Store, root string, version int) (former int, err error) {
	if records == nil {
		return 0, nil
	}
	record, err := records.Load(root)
	if err != nil || record == nil {
		return 0, err
	}
	former, record.Layout = record.Layout, version
	return former, records.Save(record)
}

// RecordUndo updates the record of a node after an undo without an answer, by its outcome.
func RecordUndo(records *ownership.Store, undo journal.Entry, outcome reportclient.ReshapeOutcome) error {
	switch outcome {
	case reportclient.ReshapeHappened:
		return restore(records, undo)
	case reportclient.ReshapeRefused:
		_, err := setLayout(records, undo.Root, undo.FromLayout)
		return err
	}
	return nil // the lower layout version stays
}

// restore updates the record of a node after an undo that happened: the inventories that came back
// are the driver's again, and the providers that the reshape made stay ours, so that the older
// driver can remove them. What was another client's before and after the reshape stays so.
func restore(records *ownership.Store, undo journal.Entry) error {
	if records == nil {
		return nil
	}
	record, err := records.Load(undo.Root)
	if err == nil && record != nil {
		record.Layout = undo.ToLayout
		for _, p := range undo.Reshape.Providers {
			ours, known := record.Providers[p.UUID]
			if !known {
				continue
			}
			former := ours.Inventories
			ours.Inventories = make(map[string]ownership.OwnedInventory, len(p.After))
			for class, inventory := range p.After {
				owned, still := former[class]
				if _, stayed := p.Before[class]; stayed && !still {
					continue // it is another client's
				}
				if !still {
					owned.Owner = ownership.Driver
				}
				owned.Inventory = inventory
				ours.Inventories[class] = owned
			}
			record.Providers[p.UUID] = ours
		}
		err = records.Save(record)
	}
	if err != nil {
		return fmt.Errorf(
			"reshape %d was undone, but the node's record in the state directory could not be updated: %w", undo.Undoes,
			err)
	}
	return nil
}

// undoable returns the entry of the reshape, or an error if it did not happen, its outcome is
// unknown, or it was undone already.
func undoable(history []journal.Entry, id int64) (journal.Entry, error) {
	var entry journal.Entry
	for _, e := range history {
		if e.ID == id {
			entry = e
		}
	}
	switch {
	case entry.ID == 0:
		return entry, fmt.Errorf("%w: %d", journal.ErrUnknownEntry, id)
	case entry.Err != nil:
		return entry, &UndoError{ID: id, Reason: "its journal entry is damaged", Err: entry.Err}
	case entry.Outcome.DidNotHappen():
		return entry, &UndoError{ID: id, Reason: "it did not happen"}
	case entry.Open():
		return entry, &UndoError{
			ID:     id,
			Reason: "it is unknown whether it happened",
			Hint: "start the agent, or run `compute-agent refresh` if it is running: it compares with Placement " +
				"and records the outcome",
		}
	}
	for _, e := range history {
		if e.Undoes == id && e.Outcome == reportclient.ReshapeHappened {
			return entry, &UndoError{ID: id, Reason: fmt.Sprintf("it was already undone, by reshape %d", e.ID)}
		}
	}
	return entry, nil
}
