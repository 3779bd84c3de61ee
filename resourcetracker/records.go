// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// recordOf returns what this agent has written to Placement for a node: from memory, or from the
// state directory. At the first contact with a node that Placement has already, it asks the driver
// for the tree of an empty node: what the driver reports there is its own, the rest is another
// client's. After a change of the driver, see takeOverRecord.
//
// Cost: no request; one or two calls of the driver at the first contact, in each pass until one
// gets as far as writing.
func (t *Tracker) recordOf(ctx context.Context, state *nodeState, d draft) (*ownership.Record, error) {
	if state.record != nil {
		return state.record, nil
	}
	record, err := t.loadRecord(d.Node)
	if err != nil {
		return nil, err
	}
	if record.Providers == nil || record.Driver != t.config.Name {
		bare, err := t.bareAnswer(ctx, d)
		if err != nil {
			return nil, err
		}
		denied, err := t.deniedTraits(ctx, d, bare)
		if err != nil {
			return nil, err
		}
		former := record
		if record.Providers == nil && !isNew(d.Known, d.Node.UUID) {
			state.adopted, state.adoptedSaved = ownership.NewAdopted(d.Known, d.Node.UUID), false
		}
		adopted := ownership.Adopt(d.Known, bare, d.Node.UUID, d.Node.Name, t.config.Name, denied)
		adopted.Layout, adopted.Created = t.traits().InTree(d.Known, d.Node.UUID), former.Created
		// The record is forgotten if nothing comes of the pass: the next one may find another tree.
		if former.Providers == nil {
			return adopted, nil
		}
		return t.takeOverRecord(ctx, d, adopted, former, bare)
	}
	state.record, state.saved = record, false
	return record, nil
}

// takeOverRecord returns the record for a node that another driver of this agent had. What this one
// does not report is hidden from it and removed, unless it asks for a reshape when it is shown
// everything.
//
// Cost: one call of the driver.
func (t *Tracker) takeOverRecord(
	ctx context.Context, d draft, adopted, former *ownership.Record, bare *providertree.Tree,
) (*ownership.Record, error) {
	all := adopted.Inherit(former, d.Known, nil)
	err := t.observe(ctx, StepDriver, d.Node.Name, func(ctx context.Context) error {
		_, _, err := t.config.Driver.UpdateProviderTree(ctx, ownership.Strip(d.Known, all), d.Node.Name, nil)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded), errors.As(err, &failed):
		return all, nil
	case err != nil:
		return nil, &passError{step: stepDriver, err: err}
	}
	return adopted.Inherit(former, d.Known, bare), nil
}

// loadRecord never returns nil beside a nil error; a node without a record has one without
// providers.
func (t *Tracker) loadRecord(node plugins.Node) (*ownership.Record, error) {
	none := &ownership.Record{Root: node.UUID, Node: node.Name, Driver: t.config.Name}
	if t.config.Records == nil {
		return none, nil
	}
	record, err := t.config.Records.Load(node.UUID)
	switch {
	case err != nil:
		return nil, &passError{step: "reading what this agent has written before", err: err}
	case record == nil:
		return none, nil
	}
	return record, nil
}

// bareAnswer is what the driver says of the node if Placement has nothing of it but the root.
func (t *Tracker) bareAnswer(ctx context.Context, d draft) (*providertree.Tree, error) {
	bare := &providertree.Tree{}
	if err := bare.AddRoot(d.Node.UUID, d.Node.Name); err != nil {
		return nil, err
	}
	if isNew(d.Known, d.Node.UUID) {
		return bare, nil
	}
	return t.driverAnswer(ctx, d, bare)
}

// deniedTraits are the standard traits of an adopted root that the driver says the host does not
// have. Only the agent that made the tree before, Nova mostly, can have set them; so they are the
// driver's, to remove.
func (t *Tracker) deniedTraits(ctx context.Context, d draft, bare *providertree.Tree) ([]string, error) {
	undecided := ownership.Undecided(d.Known, bare, d.Node.UUID, TraitComputeNode, TraitOwnerNova, TraitStatusDisabled)
	if len(undecided) == 0 {
		return nil, nil
	}
	empty := &providertree.Tree{}
	if err := empty.AddRoot(d.Node.UUID, d.Node.Name); err != nil {
		return nil, err
	}
	probe, err := ownership.Probe(empty, d.Node.UUID, undecided)
	if err != nil {
		return nil, err
	}
	answer, err := t.driverAnswer(ctx, d, probe)
	if err != nil {
		return nil, err
	}
	return ownership.Denied(answer, d.Node.UUID, undecided), nil
}

// driverAnswer is the driver's answer about a node of which Placement would have the root alone;
// bare itself if the driver asks for a reshape.
func (t *Tracker) driverAnswer(ctx context.Context, d draft, bare *providertree.Tree) (*providertree.Tree, error) {
	var answer *providertree.Tree
	err := t.observe(ctx, StepDriver, d.Node.Name, func(ctx context.Context) (err error) {
		answer, _, err = t.config.Driver.UpdateProviderTree(ctx, bare.Clone(), d.Node.Name, nil)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded), errors.As(err, &failed):
		return bare, nil // it says so again when it is asked about the real tree
	case err != nil:
		return nil, &passError{step: stepDriver, err: err}
	}
	if err := providertree.Check(bare, answer, d.Node.Name).Err(); err != nil {
		return nil, &passError{step: "checking the driver's provider tree for an empty node", err: err}
	}
	return answer, nil
}

// saveIntended saves, before anything is written, what will be ours in addition: after a crash half
// way nothing of it is attributed to another client. A pass that writes nothing touches no file.
func (t *Tracker) saveIntended(state *nodeState, d draft, plan reportclient.Plan) error {
	if plan.Empty() {
		return nil
	}
	if err := t.keepAdopted(state, d); err != nil {
		return err
	}
	return t.save(state, d.record.Union(d.next))
}

// keepAdopted keeps what an adopted node was before this agent's first write, and what the writes
// to come change of it, so that the node can be given back exactly ([ownership.GiveBack]).
func (t *Tracker) keepAdopted(state *nodeState, d draft) error {
	if t.config.Records == nil {
		return nil
	}
	if !state.adoptedSaved {
		switch stored, err := t.config.Records.LoadAdopted(d.Node.UUID); {
		case err != nil:
			return &passError{step: "reading what this node was before it was adopted", err: err}
		case stored != nil: // the record was lost, or the agent has restarted
			state.adopted, state.adoptedSaved = stored, true
		case state.adopted == nil:
			state.adoptedSaved = true // the node was not adopted, or by an earlier version
		}
	}
	if state.adopted == nil {
		return nil
	}
	noted := state.adopted.WithChanges(d.Known, d.Desired)
	if noted == state.adopted && state.adoptedSaved {
		return nil
	}
	if err := t.config.Records.SaveAdopted(noted); err != nil {
		return &passError{step: "keeping what this node was before it was adopted", err: err}
	}
	state.adopted, state.adoptedSaved = noted, true
	return nil
}

// saveWritten saves what is ours now that all is written. Writing may have shown what Placement
// cannot store.
func (t *Tracker) saveWritten(state *nodeState, d draft) error {
	if !state.adoptedSaved {
		if err := t.keepAdopted(state, d); err != nil {
			return err
		}
	}
	return t.save(state, t.storable(d).next)
}

func (t *Tracker) save(state *nodeState, record *ownership.Record) error {
	if state.saved && record.Equal(state.record) {
		return nil
	}
	if t.config.Records != nil {
		if err := t.config.Records.Save(record); err != nil {
			return &passError{step: "keeping what is this agent's in Placement",
				err: fmt.Errorf("the state directory cannot be written: %w", err)}
		}
	}
	state.record, state.saved = record, true
	return nil
}
