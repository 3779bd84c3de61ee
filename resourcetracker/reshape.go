// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"fmt"

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
	return "a reshape takes place only when the agent starts, so it needs a restart of the agent; nothing was written: " + e.needed.Error()
}
func (e *lateReshape) Unwrap() error { return e.needed }

// reshape is what follows when a driver says that inventory in use must move: all allocations are gathered, the driver is
// asked again with copies of them and of the tree (whatever it did to the first copy is gone), and its answer is checked.
//
// Cost: one GET per provider and one per consumer, see [reportclient.Client.AllocationsForProviderTree].
//
// Source: the specification "Handling Reshaped Provider Trees", section "Resource Tracker _update()".
func (t *Tracker) reshape(ctx context.Context, r reshaping, needed error, allowed bool) (reshaping, error) {
	if !allowed {
		return r, &passError{step: stepDriver, err: &lateReshape{needed}}
	}
	t.config.Logger.Info().Str("driver", t.config.Name).Str("node", r.node.Name).AnErr("reason", needed).
		Msg("Inventory that is in use must move to other resource providers. What is allocated is gathered, to move with it.")
	var err error
	r.before, err = t.config.Placement.AllocationsForProviderTree(ctx, r.node.UUID)
	if err != nil {
		return r, &passError{step: "gathering the allocations for a reshape", err: err}
	}
	if r.before == nil {
		r.before = providertree.Allocations{} // to a driver, none given means that it may not reshape
	}
	given := r.before.Clone()
	r.desired, r.after, err = t.config.Driver.UpdateProviderTree(ctx, r.known.Clone(), r.node.Name, given)
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		return r, &ReshapeError{
			Problem: "the driver was given all allocations, and says again that it needs a reshape", Err: err,
			Remedy: "this is a defect of the driver: go back to its former version, and tell its author",
		}
	case errors.As(err, &failed):
		return r, cannotMove(failed, err)
	case err != nil:
		return r, &passError{step: "asking the driver for the reshaped provider tree", err: err}
	}
	if r.after == nil {
		r.after = given
	}
	if renamer, ok := t.config.Driver.(plugins.Renamer); ok {
		r.renames = renamer.ClassRenames()
	}
	if err := r.check(); err != nil {
		return r, err
	}
	return r, r.decorate()
}

// check is the guard of a reshape as a whole: the tree, the allocations, and the declared renames.
func (r reshaping) check() error {
	var offenders []plugins.Offender
	if err := guard(r.known, r.desired, r.node); err != nil {
		offenders = append(offenders, asOffenders(err)...)
	}
	if err := r.renames.Validate(); err != nil {
		offenders = append(offenders, asOffenders(err)...)
	}
	offenders = append(offenders, guardReshape(r)...)
	if len(offenders) == 0 {
		return nil
	}
	return &ReshapeError{
		Problem: "the driver's reshape does not pass the agent's checks", Offenders: offenders,
		Remedy: "where there is no room, make room: migrate or delete guests, or raise the inventory or its allocation_ratio; everything " +
			"else is a defect of the driver: go back to its former version, and tell its author. `compute-agent plan --reshape` shows what it wants",
	}
}

// asOffenders takes joined errors apart.
func asOffenders(err error) []plugins.Offender {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // the outermost one only
	if !ok {
		return []plugins.Offender{{Problem: err.Error()}}
	}
	var out []plugins.Offender
	for _, e := range joined.Unwrap() {
		out = append(out, plugins.Offender{Problem: e.Error()})
	}
	return out
}

// announce says that a reshape is about to be written, and has the journal know whose it is.
func (t *Tracker) announce(r reshaping, plan reportclient.Plan) {
	if r.before == nil {
		return
	}
	if t.config.Journal != nil {
		t.config.Journal.Label(r.node.UUID, journal.Label{Node: r.node.Name})
	}
	for _, op := range plan.Operations {
		if op.Reshape != nil {
			t.config.Logger.Info().Str("driver", t.config.Name).Str("node", r.node.Name).Int("providers", len(op.Reshape.Providers)).Int("consumers", len(op.Reshape.Consumers)).
				Msg("The driver's reshape passes all checks and is written now.")
		}
	}
}

// resolveJournal finds out, before anything else is done, what became of a reshape that a crash or an outage left without an
// answer: it asks Placement, once, and keeps what it learns.
//
// Cost: nothing when nothing is open.
func (t *Tracker) resolveJournal(ctx context.Context, node plugins.Node) error {
	if t.config.Journal == nil {
		return nil
	}
	const step = "finding out what became of an unfinished reshape"
	open, err := t.config.Journal.Unresolved(node.UUID)
	if err != nil {
		return &passError{step: step, err: err}
	}
	for _, e := range open {
		if e.Err != nil {
			return &ReshapeError{
				Problem: fmt.Sprintf("it is not known whether reshape %d of this node happened, and its journal entry cannot be compared with Placement", e.ID), Err: e.Err,
				Remedy: fmt.Sprintf("look at the node's tree in Placement (`openstack resource provider list --in-tree %s`, and `openstack resource provider show --allocations` for each); "+
					"if it is whole, move %s away: the reshape is then computed anew if it is still needed", node.UUID, e.File),
			}
		}
		outcome, err := t.config.Placement.ResolveReshape(ctx, e.Reshape)
		if err != nil {
			return &passError{step: step, err: err}
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
	reportclient.ReshapeHappened: "A reshape was left without an answer. Placement has been compared: it happened, all of it.",
	reportclient.ReshapeRefused:  "A reshape was left without an answer. Placement has been compared: it did not happen, and is computed anew if it is still needed.",
	reportclient.ReshapeUnknown: "A reshape was left without an answer, and too much has changed in Placement since to tell whether it happened. It happened as a whole or " +
		"not at all; the driver is asked what is needed now.",
}
