// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// Traits that the agent itself gives to the root of every compute node. Nova's scheduler looks for both.
const (
	TraitComputeNode = "COMPUTE_NODE"
	TraitOwnerNova   = "OWNER_NOVA"
)

// conflictTries is how often a pass starts anew when somebody else writes to the same providers: Nova's number.
const conflictTries = 4

// passError says at which step of a pass something went wrong.
type passError struct {
	step string
	err  error
}

func (e *passError) Error() string { return e.step + ": " + e.err.Error() }
func (e *passError) Unwrap() error { return e.err }

// identify checks the nodes that a driver names and gives the host's identity to the one without a uuid.
func (t *Tracker) identify(nodes []plugins.Node) ([]plugins.Node, error) {
	if len(nodes) == 0 {
		return nil, &passError{step: "asking the driver for its nodes", err: errors.New("it has none; a driver that cannot tell yet must say that it is not ready")}
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
			err = fmt.Errorf("node %q (%s) is named twice, or two nodes have one uuid; a driver with several nodes must give each its own", n.Name, uuid)
		}
		if err != nil {
			return nil, &passError{step: "asking the driver for its nodes", err: err}
		}
		n.UUID = uuid
		if t.config.Claim != nil {
			if err := t.config.Claim(n); err != nil {
				return nil, &passError{step: "asking the driver for its nodes", err: err}
			}
		}
		names[n.Name], uuids[uuid] = true, true
		out = append(out, n)
	}
	return out, nil
}

// pass makes Placement say what the driver says of one node.
//
// Cost: no request when nothing changed and the tree is fresh, see package reportclient.
func (t *Tracker) pass(ctx context.Context, node plugins.Node, reason string, startup bool) error {
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	state := t.state(node)
	begin := time.Now()
	var err error
	for try := 1; ; try++ {
		var done []reportclient.Operation
		done, err = t.passOnce(ctx, node)
		t.noteWrites(state, done)
		if err == nil {
			t.noteSuccess(state, len(done), reason, time.Since(begin))
			return nil
		}
		if try == conflictTries || !errors.Is(err, reportclient.ErrConflict) || errors.Is(err, reportclient.ErrUnavailable) {
			break
		}
		t.config.Logger.Info().Str("driver", t.config.Name).Str("node", node.Name).Int("try", try).Err(err).
			Msg("Somebody else wrote to this node's resource providers meanwhile. They are read again and the pass is computed anew.")
		if !sleep(ctx, time.Duration((0.5+t.rand()/2)*float64(conflictWait<<(try-1)))) {
			break
		}
	}
	if startup && isFatal(err) {
		err = &FatalError{Node: node.Name, Err: err, Protects: true}
	}
	t.noteFailure(state, err)
	return err
}

// conflictWait is the longest wait before the second try of a pass; it doubles from try to try.
const conflictWait = 250 * time.Millisecond

// passOnce returns what was written, also beside an error.
func (t *Tracker) passOnce(ctx context.Context, node plugins.Node) ([]reportclient.Operation, error) {
	known, desired, err := t.compute(ctx, node)
	if err != nil {
		return nil, err
	}
	plan := t.config.Placement.Plan(known, desired)
	if err := t.config.Placement.Apply(ctx, node.UUID, plan); err != nil {
		return written(plan, err), &passError{step: "writing to Placement", err: err}
	}
	return plan.Operations, nil
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

// compute returns what Placement says of a node, and what it should say.
func (t *Tracker) compute(ctx context.Context, node plugins.Node) (known, desired *providertree.Tree, err error) {
	known, err = t.config.Placement.Tree(ctx, node.UUID, node.Name)
	if err != nil {
		return nil, nil, &passError{step: "reading from Placement", err: err}
	}
	desired, _, err = t.config.Driver.UpdateProviderTree(ctx, known.Clone(), node.Name, nil)
	if err != nil {
		return nil, nil, &passError{step: "asking the driver for the provider tree", err: err}
	}
	if err := guard(known, desired, node); err != nil {
		return nil, nil, &passError{step: "checking the driver's provider tree", err: err}
	}
	if _, err := desired.AddTraits(node.UUID, TraitComputeNode, TraitOwnerNova); err != nil {
		return nil, nil, err
	}
	return known, desired, nil
}

// isFatal tells errors with which the agent must not go on at start-up: it would write to another node's providers, or
// report less than guests use.
func isFatal(err error) bool {
	var failed *plugins.ReshapeFailed
	return errors.Is(err, reportclient.ErrIdentity) || errors.Is(err, plugins.ErrReshapeNeeded) || errors.As(err, &failed)
}

// sleep waits, and reports whether it waited to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// NodePlan is what a pass over one node would do now.
type NodePlan struct {
	Node string            `json:"node"`
	UUID string            `json:"uuid"`
	Plan reportclient.Plan `json:"plan"`
	Err  error             `json:"-"`
}

// Plan computes the next pass over each node without writing anything. It waits for a pass that is under way.
func (t *Tracker) Plan(ctx context.Context) ([]NodePlan, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	defer t.end()
	nodes, err := t.availableNodes(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]NodePlan, 0, len(nodes))
	for _, node := range nodes {
		p := NodePlan{Node: node.Name, UUID: node.UUID}
		ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
		known, desired, err := t.compute(ctx, node)
		cancel()
		if err != nil {
			p.Err = err
		} else {
			p.Plan = t.config.Placement.Plan(known, desired)
		}
		out = append(out, p)
	}
	return out, nil
}
