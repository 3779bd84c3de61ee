// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// draft is what a pass over one node works out, layer upon layer, before anything is written.
type draft struct {
	node plugins.Node
	// known is what Placement says, base what the driver is given of it, answer what the driver
	// makes of that, and desired the desired state: the answer with all other clients' items and
	// the agent's own.
	known, base, answer, desired *providertree.Tree
	// record is what this agent has written to Placement so far (after the merge: with the traits
	// that a reshape moves away from where another client had put them), next what it will have
	// made it say.
	record, next *ownership.Record
	// before and after are the allocations around a reshape; nil in any other pass.
	before, after providertree.Allocations
	renames       plugins.ClassRenames
	// repeated: the last pass that succeeded made a reshape, and the driver's configuration is the
	// same.
	repeated bool
	// shape is the layout version that the tree has afterwards; 0: the driver has no layout
	// versions.
	layout int
	// What the status shows: what the driver must not remove or create, what provider.yaml must not
	// set or has no provider for, and what stays for the guests that use it.
	kept      []ownership.Kept
	refused   []string
	conflicts []string
	draining  []ownership.Draining
	// holders are the consumers of what drains, as far as is known.
	holders map[plugins.Place][]string
	drift   []string
}

// stepDriver is the step that fails most often.
const stepDriver = "asking the driver for the provider tree"

// compute works out what Placement should say of a node: with allocations, if that takes a reshape
// and one is allowed.
func (t *Tracker) compute(ctx context.Context, node plugins.Node, state *nodeState, mayReshape bool) (draft, error) {
	d := draft{node: node, repeated: state.reshaped == t.configured.Load()+1}
	err := t.observe(ctx, StepRead, node.Name, func(ctx context.Context) (err error) {
		d.known, err = t.config.Placement.Tree(ctx, node.UUID, node.Name)
		return err
	})
	if err != nil {
		return d, &passError{step: "reading from Placement", err: err}
	}
	if d.record, err = t.recordOf(ctx, state, d); err != nil {
		return d, err
	}
	d.drift = d.record.Drift(d.known)
	d.base = ownership.Strip(d.known, d.record)
	if d, err = t.ask(ctx, d, mayReshape); err != nil {
		return d, err
	}
	err = t.observe(ctx, StepGuard, node.Name, func(context.Context) error { return d.guardAnswer() })
	if err != nil {
		return d, err
	}
	if d, err = t.merge(ctx, state, d); err != nil {
		return d, err
	}
	if err := t.checkReturned(d); err != nil {
		return d, err
	}
	if d.before != nil {
		err = t.observe(ctx, StepGuard, node.Name, func(context.Context) error { return d.check() })
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// ask gets the driver's answer: in one call, or, if inventory in use must move, in those that move
// it.
func (t *Tracker) ask(ctx context.Context, d draft, mayReshape bool) (draft, error) {
	from, to, err := t.layouts(ctx, d)
	if err != nil {
		return d, err
	}
	d.layout = to
	if from < to && (mayReshape || from > 0 || t.hadLayout(d)) {
		ctx, end := t.config.Observer.Begin(ctx, StepReshape, t.config.Name, d.node.Name)
		d, err := t.chain(ctx, d, from, to, mayReshape)
		end(err)
		return d, err
	}
	err = t.observe(ctx, StepDriver, d.node.Name, func(ctx context.Context) (err error) {
		d.answer, _, err = t.config.Driver.UpdateProviderTree(ctx, d.base.Clone(), d.node.Name, nil)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		needed := err
		ctx, end := t.config.Observer.Begin(ctx, StepReshape, t.config.Name, d.node.Name)
		d, err := t.reshape(ctx, d, needed, mayReshape)
		end(err)
		return d, err
	case errors.As(err, &failed):
		return d, cannotMove(failed, err)
	case err != nil:
		return d, &passError{step: stepDriver, err: err}
	}
	if from < to { // its layout is unknown, and nothing of it moves
		d.layout = 0
	}
	return d, nil
}

// guardAnswer looks at the driver's answer as it came. The answer of a reshape is checked as a
// whole, later.
func (d draft) guardAnswer() error {
	if d.before != nil {
		if d.answer.Exists(d.node.UUID) {
			return nil
		}
		d.desired = d.answer // there is nothing to lay anything upon
		return d.check()
	}
	if err := providertree.Check(d.base, d.answer, d.node.Name).Err(); err != nil {
		return &passError{step: "checking the driver's provider tree", err: err}
	}
	return nil
}
