// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// lateReshape is a driver's wish for a reshape when none may take place.
type lateReshape struct {
	needed error
}

func (e *lateReshape) Error() string {
	return "reshapes happen only when the agent starts, so restart the agent; nothing was written: " + e.needed.Error()
}
func (e *lateReshape) Unwrap() error { return e.needed }

// repeatedReshape is a driver's wish for a reshape right after it was made.
type repeatedReshape struct {
	needed error
}

func (e *repeatedReshape) Error() string {
	return "the driver asks for another reshape right after its reshape; this is a defect of the driver, and restarting the agent does not help; " +
		"nothing was written: " + e.needed.Error()
}
func (e *repeatedReshape) Unwrap() error { return e.needed }

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
	t.config.Logger.Info().Str("driver", t.config.Name).Str("node", d.node.Name).AnErr("reason", needed).
		Msg("Inventory in use must move to other resource providers. Reading its allocations, which move with it.")
	if err := t.gather(ctx, &d); err != nil {
		return d, err
	}
	return t.askToReshape(ctx, d, d.base.Clone(), d.before.Clone())
}

// gather reads all allocations.
func (t *Tracker) gather(ctx context.Context, d *draft) error {
	err := t.observe(ctx, StepGather, d.node.Name, func(ctx context.Context) (err error) {
		d.before, err = t.config.Placement.AllocationsForProviderTree(ctx, d.node.UUID)
		return err
	})
	if err != nil {
		return &passError{step: "reading the allocations for a reshape", err: err}
	}
	if d.before == nil {
		// to a driver, none given means that it must not reshape
		d.before = providertree.Allocations{}
	}
	return nil
}

// askToReshape calls the driver with allocations. Tree and allocations are the driver's to keep.
func (t *Tracker) askToReshape(ctx context.Context, d draft, tree *providertree.Tree, given providertree.Allocations) (draft, error) {
	err := t.observe(ctx, StepDriver, d.node.Name, func(ctx context.Context) (err error) {
		d.answer, d.after, err = t.config.Driver.UpdateProviderTree(ctx, tree, d.node.Name, given)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return d, &ReshapeError{
			Problem: "the driver was given all allocations, but asks for a reshape again", Err: err,
			Hint: "this is a defect of the driver: install its former version, and report it to its author",
		}
	case errors.As(err, &failed):
		return d, cannotMove(failed, err).of(d.before, d.base)
	case err != nil:
		return d, &passError{step: "asking the driver for the reshaped provider tree", err: err}
	}
	if d.after == nil {
		d.after = given
	}
	if renamer, ok := t.config.Driver.(plugins.Renamer); ok {
		d.renames = compose(d.renames, renamer.ClassRenames())
	}
	return d, nil
}

// compose returns the renames of one step after another.
func compose(first, second plugins.ClassRenames) plugins.ClassRenames {
	if len(first) == 0 {
		return second
	}
	out := plugins.ClassRenames{}
	for from, to := range first {
		out[from] = second.Present(to)
	}
	for from, to := range second {
		if _, known := out[from]; !known {
			out[from] = to
		}
	}
	maps.DeleteFunc(out, func(from, to string) bool { return from == to })
	return out
}

// check is the guard of a reshape as a whole: the tree, the allocations, and the declared renames.
func (d draft) check() error {
	var violations []plugins.Violation
	for _, v := range providertree.Check(d.base, d.answer, d.node.Name) {
		violations = append(violations, plugins.Violation{Problem: v.Error(), Hint: fixDriver})
	}
	if err := d.renames.Validate(); err != nil {
		violations = append(violations, plugins.Violation{Problem: err.Error(), Hint: fixDriver})
	}
	violations = append(violations, guardReshape(d)...)
	if len(violations) == 0 {
		return nil
	}
	refused := &ReshapeError{
		Problem: "the driver's reshape does not pass the agent's checks", Violations: violations,
		Hint: "`compute-agent plan --reshape` shows what the driver requests. Its former version or configuration still works",
	}
	return refused.of(nil, d.base) // its violations say the amounts themselves
}

// announce says that a reshape is about to be written, and has the journal know whose it is.
func (t *Tracker) announce(d draft, plan reportclient.Plan) {
	if d.before == nil {
		return
	}
	if t.config.Journal != nil {
		t.config.Journal.Label(d.node.UUID, journal.Label{Node: d.node.Name, FromShape: d.record.Shape, ToShape: d.layout, Renames: d.renames})
	}
	for _, op := range plan.Operations {
		if op.Reshape != nil {
			t.config.Logger.Info().Str("driver", t.config.Name).Str("node", d.node.Name).Int("providers", len(op.Reshape.Providers)).Int("consumers", len(op.Reshape.Consumers)).
				Msg("The driver's reshape passed all checks. Writing it to Placement.")
		}
	}
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
			return &ReshapeError{
				Problem: fmt.Sprintf("it is unknown whether reshape %d of this node happened, and its journal entry cannot be compared with Placement", e.ID), Err: e.Err,
				Hint: fmt.Sprintf("look at the node's tree in Placement (`openstack resource provider list --in-tree %s`, and `openstack resource provider show --allocations` for each); "+
					"if it is complete, move %s away: the reshape is then computed again if it is still needed", node.UUID, e.File),
			}
		}
		outcome, err := t.config.Placement.ResolveReshape(ctx, e.Reshape)
		if err != nil {
			return &passError{step: step, err: err}
		}
		if e.Undoes != 0 {
			if err := settleUndo(t.config.Records, e, outcome); err != nil {
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
		t.config.Logger.WithLevel(level).Str("driver", t.config.Name).Str("node", node.Name).Int64("reshape", e.ID).Time("begun", e.Begun).Str("outcome", string(outcome)).Msg(resolved[outcome])
	}
	return nil
}

// resolved says what comparing has told.
var resolved = map[reportclient.ReshapeOutcome]string{
	reportclient.ReshapeHappened: "Resolved a reshape whose answer was lost: it happened.",
	reportclient.ReshapeRefused:  "Resolved a reshape whose answer was lost: it did not happen. It is computed again if it is still needed.",
	reportclient.ReshapeUnknown: "The outcome of a reshape whose answer was lost cannot be determined: Placement has changed too much since. It happened as a whole or " +
		"not at all. The driver decides what is needed now.",
}
