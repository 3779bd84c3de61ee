// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"

	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// PlanOptions say how far a dry run goes.
type PlanOptions struct {
	// Reshape lets the driver reshape; gathering its allocations takes requests to Placement.
	// Without it, a node whose driver needs a reshape gets an error.
	Reshape bool
}

// NodePlan is what a pass over one node would do now.
type NodePlan struct {
	Node string
	UUID string
	Plan reportclient.Plan
	// Reshape is what would move, nil if nothing has to. It is also set together with an Err that
	// is about it.
	Reshape *reshape.Preview
	Err     error
}

// Plan computes the next pass over each node without writing anything. It waits for a pass that is
// under way.
func (t *Tracker) Plan(ctx context.Context, opts PlanOptions) ([]NodePlan, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	defer t.end()
	nodes, held, err := t.availableNodes(ctx)
	if err != nil {
		return nil, err
	}
	out := []NodePlan{}
	for _, e := range held {
		out = append(out, NodePlan{Node: e.Node.Name, UUID: e.Node.UUID, Err: e})
	}
	for _, node := range nodes {
		p := NodePlan{Node: node.Name, UUID: node.UUID}
		ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
		var d draft
		d, p.Err = t.compute(ctx, node, t.stateOf(node), opts.Reshape)
		cancel()
		if p.Err == nil {
			p.Plan = t.plan(d)
		}
		if d.After != nil && d.Desired != nil {
			p.Reshape = d.Preview(p.Plan)
		}
		out = append(out, p)
	}
	return out, nil
}
