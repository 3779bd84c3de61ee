// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
)

// GiveNode implements [control.Agent]. It waits for the current pass of the previous driver.
func (a *Agent) GiveNode(ctx context.Context, r control.GiveRequest) (control.Assignment, error) {
	nodes, err := a.Nodes(ctx)
	if err != nil {
		return control.Assignment{}, err
	}
	node, err := nodes.Find(r.Node)
	if err != nil {
		return control.Assignment{}, err
	}
	drivers := a.drivers.active()
	var names []string
	assign := func() error { return a.assign(node, r.To) }
	for _, d := range drivers {
		names = append(names, d.name)
		if d.name == node.Driver && d.name != r.To {
			assign = func() error { return d.tracker.BetweenPasses(ctx, func() error { return a.assign(node, r.To) }) }
		}
	}
	out := newAssignment(node, r.To, names)
	if named, found, known := a.claims.Names(r.To, node.UUID, node.Name); known && len(out.ViolationGroups) == 0 {
		switch {
		case !found:
			out.ViolationGroups = append(out.ViolationGroups, fmt.Sprintf("driver %s does not report this node", r.To))
		case named.UUID != node.UUID:
			out.ViolationGroups = append(out.ViolationGroups,
				fmt.Sprintf("driver %s reports a node %s with another uuid, %s; configure the uuid %s in that driver, "+
					"or remove this node (`compute-agent node remove %s`) and let the driver create its own", r.To,
					named.Name, named.UUID, node.UUID, node.UUID))
		}
	}
	if r.DryRun || len(out.ViolationGroups) > 0 {
		return out, nil
	}
	if err := assign(); err != nil {
		return out, err
	}
	out.Done = true
	for _, d := range drivers {
		if d.name == node.Driver || d.name == r.To {
			d.tracker.Refresh("the node was assigned to another driver")
		}
	}
	return out, nil
}

// newAssignment describes the change, with violations that do not depend on a driver.
func newAssignment(node statedir.Node, to string, drivers []string) control.Assignment {
	out := control.Assignment{Name: node.Name, UUID: node.UUID, From: node.Driver, To: to}
	switch {
	case !slices.Contains(drivers, to):
		out.ViolationGroups = append(out.ViolationGroups,
			fmt.Sprintf("no driver %q is enabled in the configuration; enabled drivers: %q", to, drivers))
	case node.Driver == to:
		out.ViolationGroups = append(out.ViolationGroups, fmt.Sprintf("it already belongs to driver %s", to))
	}
	return out
}

// assign records the new driver of a node.
func (a *Agent) assign(node statedir.Node, to string) error {
	if err := a.state.Identity.Assign(node.UUID, to); err != nil {
		return err
	}
	a.claims.Assign(node.UUID, node.Name, to)
	a.log.Warn().Str("node", node.Name).Str("uuid", node.UUID).Str("from", node.Driver).Str("to", to).
		Msg("An operator assigned the node to another driver. What only the previous driver reported is removed " +
			"when it is no longer allocated.")
	return nil
}

// GiveNodeOffline is GiveNode without a running agent. The caller has locked the state directory.
func GiveNodeOffline(
	_ context.Context, cfg *config.Config, log zerolog.Logger, r control.GiveRequest,
) (control.Assignment, error) {
	a := &Agent{log: log, state: statedir.New(cfg.Agent.StateDir)}
	node, err := a.state.RecordedNode(r.Node)
	if err != nil {
		return control.Assignment{}, err
	}
	out := newAssignment(node, r.To, cfg.EnabledDrivers())
	out.Offline = true
	if r.DryRun || len(out.ViolationGroups) > 0 {
		return out, nil
	}
	if err := a.assign(node, r.To); err != nil {
		return out, err
	}
	out.Done = true
	return out, nil
}
