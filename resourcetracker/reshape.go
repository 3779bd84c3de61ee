// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"reflect"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// reshape is what follows when a driver says that inventory in use must move: all allocations are
// gathered, the driver is asked again with copies of them and of the tree (whatever it did to the
// first copy is gone).
//
// Cost: one GET per provider and one per consumer, see
// [reportclient.Client.AllocationsForProviderTree].
//
// Source: the specification "Handling Reshaped Provider Trees", section "Resource Tracker
// _update()".
func (t *Tracker) reshape(ctx context.Context, d draft, needed error, allowed bool) (draft, error) {
	switch {
	case !allowed && d.repeated:
		return d, &passError{step: stepDriver, err: &repeatedReshape{needed}}
	case !allowed:
		return d, &passError{step: stepDriver, err: &lateReshape{needed}}
	}
	t.config.Logger.Info().Str("driver", t.config.Name).
		Str("node", d.Node.Name).Str("request_id", plugins.RequestID(ctx)).AnErr("reason", needed).
		Msg("Inventory in use must move to other resource providers. Reading its allocations, which move with it.")
	if err := t.gather(ctx, &d); err != nil {
		return d, err
	}
	return t.askToReshape(ctx, d, d.Base.Clone(), d.Before.Clone())
}

// gather reads all allocations.
func (t *Tracker) gather(ctx context.Context, d *draft) error {
	err := t.observe(ctx, StepGather, d.Node.Name, func(ctx context.Context) (err error) {
		d.Before, err = t.config.Placement.AllocationsForProviderTree(ctx, d.Node.UUID)
		return err
	})
	if err != nil {
		return &passError{step: "reading the allocations for a reshape", err: err}
	}
	if d.Before == nil {
		// to a driver, none given means that it must not reshape
		d.Before = providertree.Allocations{}
	}
	return nil
}

// askToReshape calls the driver with allocations. Tree and allocations are the driver's to keep.
func (t *Tracker) askToReshape(
	ctx context.Context, d draft, tree *providertree.Tree, given providertree.Allocations,
) (draft, error) {
	err := t.observe(ctx, StepDriver, d.Node.Name, func(ctx context.Context) (err error) {
		d.Answer, d.After, err = t.config.Driver.UpdateProviderTree(ctx, tree, d.Node.Name, given)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return d, &reshape.Error{
			Problem: "the driver was given all allocations, but asks for a reshape again", Err: err,
			Hint: "this is a defect of the driver: install its former version, and report it to its author",
		}
	case errors.As(err, &failed):
		return d, reshape.CannotMove(failed, err, d.Before, d.Base)
	case err != nil:
		return d, &passError{step: "asking the driver for the reshaped provider tree", err: err}
	}
	if d.After == nil {
		d.After = given
	}
	if renamer, ok := t.config.Driver.(plugins.Renamer); ok {
		d.Renames = reshape.ComposeRenames(d.Renames, renamer.ClassRenames())
	}
	return d, nil
}

// announce says that a reshape is about to be written, has the journal know whose it is, and has
// the guests compared with the allocations afterwards.
func (t *Tracker) announce(ctx context.Context, state *nodeState, d draft, plan reportclient.Plan) {
	if d.Before == nil {
		return
	}
	if t.config.Journal != nil {
		t.config.Journal.SetLabel(d.Node.UUID,
			journal.Label{Node: d.Node.Name, FromLayout: d.record.Layout, ToLayout: d.layout, Renames: d.Renames})
	}
	for _, op := range plan.Operations {
		if op.Reshape != nil {
			t.compareLater(d.Node, state)
			t.config.Logger.Info().
				Str("driver", t.config.Name).
				Str("node", d.Node.Name).
				Str("request_id", plugins.RequestID(ctx)).
				Int("providers", len(op.Reshape.Providers)).
				Int("consumers", len(op.Reshape.Consumers)).
				Msg("The driver's reshape passed all checks. Writing it to Placement.")
		}
	}
}

// listGuests asks the driver where its guests are in the tree that a reshape would make, so that
// what it moves can be compared with that before it is written. A driver that cannot list them now
// is asked again with the next pass; with one that never can, there is nothing to compare.
//
// Cost: a call of the driver, if allocations change.
func (t *Tracker) listGuests(ctx context.Context, d draft) ([]plugins.Guest, error) {
	lister, ok := t.config.Driver.(plugins.GuestLister)
	if !ok || reflect.DeepEqual(d.Before, d.After) {
		return nil, nil
	}
	guests, err := lister.Guests(ctx, d.Desired.Clone(), d.Node.Name)
	switch {
	case errors.Is(err, plugins.ErrUnsupported):
		return nil, nil
	case err != nil:
		return nil, &passError{step: "asking the driver for its guests, to compare the reshape with them", err: err}
	}
	return guests, nil
}
