// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// Traits that the agent itself gives to the root of every compute node. Nova's scheduler looks for
// both.
const (
	TraitComputeNode = providertree.TraitComputeNode
	TraitOwnerNova   = "OWNER_NOVA"
)

// TraitStatusDisabled keeps a scheduler from choosing a node for something new.
const TraitStatusDisabled = providertree.TraitStatusDisabled

// conflictTries is how often a pass is tried when another client writes to the same providers:
// Nova's number.
const conflictTries = 4

// passError says at which step of a pass something went wrong.
type passError struct {
	step string
	err  error
}

func (e *passError) Error() string { return e.step + ": " + e.err.Error() }
func (e *passError) Unwrap() error { return e.err }

// identify checks the nodes that a driver names and gives the host's identity to the one without a
// uuid.
func (t *Tracker) identify(nodes []plugins.Node) ([]plugins.Node, error) {
	if len(nodes) == 0 {
		return nil, errors.New(
			"the list is empty; a driver that does not know its nodes yet must answer that it is not ready")
	}
	names, uuids := map[string]bool{}, map[string]bool{}
	out := make([]plugins.Node, 0, len(nodes))
	for _, n := range nodes {
		if n.UUID == "" {
			n.UUID = t.config.Identity
		}
		uuid, err := providertree.CanonicalUUID(n.UUID)
		if err == nil {
			err = providertree.ValidateProviderName(n.Name)
		}
		if err == nil && (names[n.Name] || uuids[uuid]) {
			err = fmt.Errorf(
				"node %q (%s) is named twice, or two nodes have one uuid; a driver with several nodes must give "+
					"each its own name and uuid", n.Name, uuid)
		}
		if err != nil {
			return nil, err
		}
		n.UUID = uuid
		names[n.Name], uuids[uuid] = true, true
		out = append(out, n)
	}
	return out, nil
}

// pass writes to Placement what the driver reports for one node.
//
// The pass has the id of a request, under which the agent, the driver and Placement log what they
// do for it.
//
// Cost: no request when nothing changed and the cached tree is recent, see package reportclient.
func (t *Tracker) pass(ctx context.Context, node plugins.Node, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	ctx = plugins.WithRequestID(ctx, "req-"+uuid.NewString())
	return t.observe(ctx, StepPass, node.Name, func(ctx context.Context) error { return t.tryPass(ctx, node, reason) })
}

// tryPass makes a pass, and retries it when another client has written to the same providers.
func (t *Tracker) tryPass(ctx context.Context, node plugins.Node, reason string) error {
	state := t.stateOf(node)
	begin := time.Now()
	var err error
	for try := 1; ; try++ {
		var done []reportclient.Operation
		done, err = t.passOnce(ctx, node, state)
		t.noteWrites(ctx, state, done)
		if err == nil || len(done) > 0 {
			t.noteFlaps(state, done)
		}
		t.count(EventWrite, node.Name, len(done))
		if errors.Is(err, reportclient.ErrConflict) {
			t.count(EventConflict, node.Name, 1)
		}
		if err == nil {
			t.noteSuccess(state, len(done), reason, time.Since(begin))
			return nil
		}
		if try == conflictTries || !errors.Is(err, reportclient.ErrConflict) ||
			errors.Is(err, reportclient.ErrUnavailable) {
			break
		}
		t.config.Logger.Info().Str("driver", t.config.Name).Str("node", node.Name).
			Str("request_id", plugins.RequestID(ctx)).Int("try", try).Err(err).
			Msg("Conflict: another client wrote to this node's resource providers. Reading them again and " +
				"retrying the pass.")
		if !wait.For(ctx, conflictWait.Delay(try, t.rand())) {
			break
		}
	}
	if aboutDriver(err) && (!state.startup || !isFatal(err) || t.holdsRefused()) {
		t.writeDisabled(ctx, node, state)
	}
	switch {
	case !state.startup || !isFatal(err):
	case t.holdsRefused():
		t.noteHeld(state, err)
		return nil // it is tried again on request
	default:
		t.noteFatal(state, err)
		return &FatalError{Node: node.Name, Err: err, Protects: true}
	}
	t.noteFailure(state, err)
	return err
}

func (t *Tracker) holdsRefused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hold
}

// conflictWait is the wait before another try of a pass.
var conflictWait = wait.Backoff{Min: 250 * time.Millisecond, Max: time.Second, Jitter: 0.5}

// passOnce returns what was written, also beside an error.
func (t *Tracker) passOnce(ctx context.Context, node plugins.Node, state *nodeState) ([]reportclient.Operation, error) {
	if err := t.resolveJournal(ctx, node); err != nil {
		return nil, err
	}
	d, err := t.compute(ctx, node, state, state.startup)
	if err != nil {
		return nil, err
	}
	t.noteDraft(state, d)
	plan := t.plan(d)
	t.announce(ctx, state, d, plan)
	if err := t.saveIntended(state, d, plan); err != nil {
		return nil, err
	}
	plan.Progress = func(done int) { t.noteWriting(state, done, len(plan.Operations)) }
	t.noteWriting(state, 0, len(plan.Operations))
	err = t.observe(ctx, StepApply, node.Name,
		func(ctx context.Context) error { return t.config.Placement.Apply(ctx, node.UUID, plan) })
	t.noteWriting(state, 0, 0)
	if err != nil {
		if errors.Is(err, reportclient.ErrInventoryInUse) || errors.Is(err, reportclient.ErrProviderInUse) {
			state.used = nil
		}
		return written(plan, err), refusedBy(err)
	}
	state.reshaped = 0
	if d.Before != nil {
		state.reshaped = t.configured.Load() + 1
	}
	return plan.Operations, t.saveWritten(state, d)
}

// plan is pure.
func (t *Tracker) plan(d draft) reportclient.Plan {
	if d.Before == nil {
		return t.config.Placement.Plan(d.Known, d.Desired)
	}
	return t.config.Placement.PlanReshape(d.Known, d.Desired, d.Before, d.After)
}

// written returns the operations of a plan that happened although others failed.
func written(plan reportclient.Plan, err error) []reportclient.Operation {
	var failed *reportclient.ApplyError
	if !errors.As(err, &failed) || failed.Done == 0 {
		return nil
	}
	type key struct {
		kind         reportclient.Kind
		uuid, symbol string
	}
	missing := map[key]bool{}
	for _, f := range failed.Failed {
		missing[key{f.Operation.Kind, f.Operation.UUID, f.Operation.Symbol}] = true
	}
	var done []reportclient.Operation
	for _, op := range plan.Operations {
		if !missing[key{op.Kind, op.UUID, op.Symbol}] {
			done = append(done, op)
		}
	}
	return done
}

// isFatal reports errors with which the agent must not go on at start-up: it would write to another
// node's providers, or report less than guests use.
func isFatal(err error) bool {
	var refused *reshape.Error
	return errors.Is(err, reportclient.ErrIdentity) || errors.As(err, &refused)
}

// draft is what a pass over one node works out, layer upon layer, before anything is written.
type draft struct {
	reshape.Draft
	// record is what this agent has written to Placement so far (after the merge: with the traits
	// that a reshape moves away from where another client had put them), next what it will have
	// made it say.
	record, next *ownership.Record
	// repeated: the last pass that succeeded made a reshape, and the driver's configuration is the
	// same.
	repeated bool
	// layout is the layout version that the tree has afterwards; 0: the driver has no layout
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
	d := draft{Draft: reshape.Draft{Node: node}, repeated: state.reshaped == t.configured.Load()+1}
	err := t.observe(ctx, StepRead, node.Name, func(ctx context.Context) (err error) {
		d.Known, err = t.config.Placement.Tree(ctx, node.UUID, node.Name)
		return err
	})
	if err != nil {
		return d, &passError{step: "reading from Placement", err: err}
	}
	if d.record, err = t.recordOf(ctx, state, d); err != nil {
		return d, err
	}
	d.drift = d.record.Drift(d.Known)
	d.Base = ownership.Strip(d.Known, d.record)
	if d, err = t.askDriver(ctx, d, mayReshape); err != nil {
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
	if d.Before != nil {
		if d.Guests, err = t.listGuests(ctx, d); err != nil {
			return d, err
		}
		err = t.observe(ctx, StepGuard, node.Name, func(context.Context) error { return d.Check() })
		if err != nil {
			return d, err
		}
	}
	return d, nil
}

// askDriver gets the driver's answer: in one call, or, if inventory in use must move, in those that
// move it.
func (t *Tracker) askDriver(ctx context.Context, d draft, mayReshape bool) (draft, error) {
	from, to, err := t.layouts(ctx, d)
	if err != nil {
		return d, err
	}
	d.layout = to
	if from < to && (mayReshape || from > 0 || t.hadLayout(d)) {
		ctx, end := t.config.Observer.Begin(ctx, StepReshape, t.config.Name, d.Node.Name)
		d, err := t.migrateLayouts(ctx, d, from, to, mayReshape)
		end(err)
		return d, err
	}
	err = t.observe(ctx, StepDriver, d.Node.Name, func(ctx context.Context) (err error) {
		d.Answer, _, err = t.config.Driver.UpdateProviderTree(ctx, d.Base.Clone(), d.Node.Name, nil)
		return err
	})
	var failed *plugins.ReshapeFailed
	switch {
	case errors.Is(err, plugins.ErrReshapeNeeded):
		needed := err
		ctx, end := t.config.Observer.Begin(ctx, StepReshape, t.config.Name, d.Node.Name)
		d, err := t.reshape(ctx, d, needed, mayReshape)
		end(err)
		return d, err
	case errors.As(err, &failed):
		return d, reshape.CannotMove(failed, err, nil)
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
	if d.Before != nil {
		if d.Answer.Exists(d.Node.UUID) {
			return nil
		}
		d.Desired = d.Answer // there is nothing to lay anything upon
		return d.Check()
	}
	if err := providertree.Check(d.Base, d.Answer, d.Node.Name).Err(); err != nil {
		return &passError{step: "checking the driver's provider tree", err: err}
	}
	return nil
}

// accepted is what Placement took of what was written: standard traits that it turned out not to
// know were left out, which the client has said.
func (t *Tracker) accepted(done []reportclient.Operation) []reportclient.Operation {
	out := make([]reportclient.Operation, 0, len(done))
	for _, op := range done {
		if op.Kind == reportclient.SetTraits {
			var before []string
			if op.Before != nil {
				before = op.Before.Traits
			}
			if op.Traits = possibleTraits(t.config.Placement, op.UUID,
				op.Provider, before, op.Traits); slices.Equal(op.Traits, before) {
				continue
			}
		}
		out = append(out, op)
	}
	return out
}

// possibleTraits is [Placement.Storable] for the traits of one provider.
func possibleTraits(placement Placement, uuid, name string, before, after []string) []string {
	with := func(traits []string) *providertree.Tree {
		tree := &providertree.Tree{}
		if tree.AddRoot(uuid, name) != nil {
			return nil
		}
		if _, err := tree.SetTraits(uuid, traits); err != nil {
			return nil
		}
		return tree
	}
	known, desired := with(before), with(after)
	if known == nil || desired == nil { // it came from a tree, so this does not happen
		return after
	}
	p, _ := placement.Storable(known, desired).Provider(uuid)
	return p.Traits
}
