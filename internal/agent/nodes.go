// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
)

// Nodes implements [control.Agent].
func (a *Agent) Nodes(context.Context) (statedir.Nodes, error) {
	out, err := a.state.Nodes()
	if err != nil {
		return out, err
	}
	states := map[string]statedir.Node{}
	pending := map[string]string{} // drivers that have not listed their nodes yet, and why
	var held []resourcetracker.Contested
	for _, d := range a.drivers.active() {
		status := d.tracker.Status()
		held = append(held, status.Contested...)
		if len(status.Nodes)+len(status.Contested) == 0 {
			pending[d.name] = status.Error
		}
		for _, n := range status.Nodes {
			if n.State == resourcetracker.Orphaned {
				continue
			}
			states[n.UUID] = statedir.Node{Name: n.Name,
				UUID: n.UUID, Driver: d.name, State: string(n.State), Error: n.Error}
		}
	}
	for i, n := range out.Nodes {
		now, named := states[n.UUID]
		why, unknown := pending[n.Driver]
		switch {
		case named:
			now.Since, now.Created = n.Since, n.Created
			out.Nodes[i] = now
			delete(states, n.UUID)
		case unknown:
			out.Nodes[i].Error = strings.TrimSuffix("driver "+n.Driver+" has not listed its nodes yet: "+why, ": ")
		default:
			out.Nodes[i].State = statedir.StateOrphaned
		}
	}
	out.Nodes = slices.AppendSeq(out.Nodes, maps.Values(states))
	for _, c := range held {
		i := slices.IndexFunc(out.Nodes, func(n statedir.Node) bool { return n.UUID == c.UUID })
		if i < 0 {
			out.Nodes = append(out.Nodes,
				statedir.Node{Name: c.Name, UUID: c.UUID, Driver: c.Owner, State: statedir.StateHeld, Error: c.Error})
			continue
		}
		n := &out.Nodes[i]
		if n.State == "" || n.State == statedir.StateOrphaned { // its owner does not report it
			n.State = statedir.StateHeld
		}
		if n.Error == "" {
			n.Error = c.Error
		}
	}
	out.Sort()
	return out, nil
}

// NodesOffline lists the recorded nodes without a running agent, so without their states.
func NodesOffline(cfg *config.Config) (statedir.Nodes, error) {
	state := statedir.New(cfg.Agent.StateDir)
	var err error
	if state.Identity, err = identity.Open(state.Dir); err != nil {
		return statedir.Nodes{}, err
	}
	return state.Nodes()
}

// RemoveNode implements [control.Agent]. A node that a driver reports is never removed.
func (a *Agent) RemoveNode(ctx context.Context, r control.RemoveRequest) (control.Removal, error) {
	nodes, err := a.Nodes(ctx)
	if err != nil {
		return control.Removal{}, err
	}
	node, err := nodes.Find(r.Node)
	if err != nil {
		return control.Removal{}, err
	}
	var groups []string
	switch {
	case node.State == "":
		groups = append(groups, node.Error)
	case node.State == statedir.StateHeld && node.Driver == "":
		groups = append(groups,
			"several drivers report this node; assign it to one of them with `compute-agent node give`")
	case node.State == statedir.StateHeld: // its owner does not report it; the other driver creates it again
	case node.State != statedir.StateOrphaned:
		groups = append(groups, fmt.Sprintf("driver %s reports this node, and would create it again", node.Driver))
	}
	if !r.DryRun && len(groups) == 0 {
		a.log.Warn().Str("node", node.Name).Str("uuid", node.UUID).
			Msg("An operator asked to delete this node from Placement, because it was removed permanently.")
	}
	out, err := a.removal(ctx, node, r.DryRun, groups)
	if out.Removed {
		for _, d := range a.drivers.active() {
			d.tracker.Refresh("a node was removed")
		}
	}
	return out, err
}

// removal checks a node, and removes it if there are no violations.
func (a *Agent) removal(
	ctx context.Context, node statedir.Node, dryRun bool, groups []string,
) (control.Removal, error) {
	out := control.Removal{Name: node.Name, UUID: node.UUID, ViolationGroups: groups,
		Providers: []control.RemovedProvider{}}
	record, err := a.state.Records.Load(node.UUID)
	if err != nil {
		return out, err
	}
	if record == nil { // without a record, nothing counts as this agent's
		record = &ownership.Record{Root: node.UUID, Node: node.Name, Driver: node.Driver}
	}
	other, known, err := a.reportedBy(ctx, node.UUID)
	out.ReportedBy, out.Unchecked, out.NotNamed = other, !known, errors.Is(err, resourcetracker.ErrNotNamed)
	if other != "" || out.NotNamed {
		return a.leaveNode(out, dryRun)
	}
	if err != nil {
		out.ViolationGroups = append(out.ViolationGroups, err.Error())
	}
	check, err := ownership.CheckRemoval(ctx, a.placement, record)
	if err != nil {
		return out, err
	}
	for _, b := range check.Blockers {
		out.ViolationGroups = append(out.ViolationGroups, b.String())
	}
	found := access.ServersOf(ctx, a.settings.current().CellClient, a.log, a.settings.current().Agent.Host, "")
	if found.Unknown != "" {
		out.ViolationGroups = append(out.ViolationGroups,
			"it is not known which servers the cell has on it: "+found.Unknown+
				"; if the cell is gone for good, take [cell_client] out of the configuration")
	}
	for _, server := range found.OnNode(node.UUID) {
		out.ViolationGroups = append(out.ViolationGroups, "the cell has the server "+server+" on it")
	}
	for _, p := range check.Providers {
		out.Providers = append(out.Providers, control.RemovedProvider{UUID: p.UUID, Name: p.Name})
	}
	if dryRun || len(out.ViolationGroups) > 0 {
		return out, nil
	}
	_, err = ownership.RemoveNode(ctx, a.placement, record, a.state.Records, nil)
	var refused *ownership.RefusedError
	switch {
	case errors.As(err, &refused): // something changed since the check
		for _, b := range refused.Blockers {
			out.ViolationGroups = append(out.ViolationGroups, b.String())
		}
		return out, nil
	case err != nil:
		return out, err
	}
	out.Removed = true
	a.log.Info().Str("node", node.Name).Str("uuid", node.UUID).Int("providers", len(out.Providers)).
		Msg("The node was deleted from Placement.")
	return out, a.forgetNode(node.UUID)
}

// leaveNode forgets a node that another host reports now, or that this host's certificate does not
// name. What Placement has of it is another host's.
func (a *Agent) leaveNode(out control.Removal, dryRun bool) (control.Removal, error) {
	if dryRun || len(out.ViolationGroups) > 0 {
		return out, nil
	}
	a.placement.Forget(out.UUID)
	if err := a.state.Records.Remove(out.UUID); err != nil {
		return out, err
	}
	out.Removed = true
	a.log.Info().Str("node", out.Name).Str("uuid", out.UUID).Str("reported_by", out.ReportedBy).
		Bool("not_named", out.NotNamed).
		Msg("Forgot the node, which is not this host's any more. Its resource providers stay in Placement.")
	return out, a.forgetNode(out.UUID)
}

// RemoveNodeOffline is RemoveNode without a running agent. The caller has locked the state
// directory.
func RemoveNodeOffline(
	ctx context.Context, cfg *config.Config, log zerolog.Logger, r control.RemoveRequest,
) (control.Removal, error) {
	a, err := New(Options{Config: cfg, Logger: log})
	if err != nil {
		return control.Removal{}, err
	}
	defer a.placement.CloseIdle()
	node, err := a.state.RecordedNode(r.Node)
	if err != nil {
		return control.Removal{}, err
	}
	return a.removal(ctx, node, r.DryRun, nil)
}

// forgetNode removes the records of a node that was removed from Placement.
func (a *Agent) forgetNode(root string) error {
	a.claims.Forget(root)
	if a.state.Identity == nil {
		return nil
	}
	return a.state.Identity.ForgetNode(root)
}
