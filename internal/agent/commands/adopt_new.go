// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// planAsNew finds the nodes that Placement should know and does not.
func (ad *adopter) planAsNew(ctx context.Context) error {
	r, ok := ad.state.Record()
	if !ok {
		return &identity.Error{
			Problem: "this agent has never been started on " + ad.cfg.Agent.StateDir,
			Hint:    "start it: a first start reports its node as new, unless that would do harm, and then says so",
		}
	}
	nodes := map[string]string{} // name to uuid
	for id, n := range r.Nodes {
		if ad.every || n.Name == ad.opts.Node {
			nodes[n.Name] = id
		}
	}
	if len(nodes) == 0 {
		nodes[ad.opts.Node] = ad.own
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		id, found, err := ad.placement.FindNamesake(ctx, name)
		switch {
		case err != nil:
			return err
		case found && id != nodes[name]:
			return &identity.Error{
				Problem: fmt.Sprintf(
					"Placement has a resource provider named %q, with uuid %s: the node is not new to it", name, id),
				Hint: fmt.Sprintf("`compute-agent adopt --node %s --uuid %s` takes it over", name, id),
			}
		case found || slices.Contains(r.AsNew, name):
			continue
		}
		ad.names = append(ad.names, name)
		ad.plan.Steps = append(
			ad.plan.Steps,
			fmt.Sprintf(
				"let node %s be created again at the next start: it does not exist in Placement. Allocations of "+
					"guests that run on it are not created; "+
					"`compute-agent allocations heal` does that", name),
		)
	}
	return nil
}

// allowAsNew allows nodes to be created again. It first removes the records of the previous nodes.
func (ad *adopter) allowAsNew() error {
	r, _ := ad.state.Record()
	for id, n := range r.Nodes {
		if !slices.Contains(ad.names, n.Name) {
			continue
		}
		if err := ad.records.Remove(id); err != nil {
			return err
		}
	}
	return ad.state.AllowAsNew(ad.names...)
}
