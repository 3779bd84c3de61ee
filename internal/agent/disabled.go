// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// disabledTimeout limits how long a command waits for Placement to be updated.
const disabledTimeout = 15 * time.Second

// disabledInterval is the time between checks, which make no requests.
const disabledInterval = 25 * time.Millisecond

// whyDisabled reports whether a node is disabled, and why.
func (a *Agent) whyDisabled(node plugins.Node) (reason string, isDisabled bool) {
	if a.state.Disabled == nil {
		return "", false
	}
	return a.state.Disabled.Reason(node.Name)
}

// Disable implements [control.Agent]: it records the reason, requests a pass from every tracker,
// and waits some time for Placement to be updated.
func (a *Agent) Disable(ctx context.Context, r control.DisableRequest) (control.Disabling, error) {
	if err := a.knowsNode(r.Node); err != nil {
		return control.Disabling{}, err
	}
	if err := a.state.Disabled.Disable(
		statedir.Reason{Source: statedir.Operator, Node: r.Node, Reason: r.Reason, By: r.By}); err != nil {
		return control.Disabling{}, err
	}
	onNode(a.log.Warn(), r.Node).Str("reason", r.Reason).
		Str("by", r.By).
		Msg("Disabled: no new instances are scheduled to " + hostOrNode(r.Node) + ". Running guests are not affected.")
	for _, d := range a.drivers.active() {
		d.tracker.Refresh("the host was disabled")
	}
	return a.awaitDisabled(ctx, r.Node, nil), nil
}

// Enable implements [control.Agent].
func (a *Agent) Enable(ctx context.Context, r control.DisableRequest) (control.Disabling, error) {
	if err := a.knowsNode(r.Node); err != nil {
		if a.namesReason(r.Node) {
			err = fmt.Errorf(
				"%w; a recorded reason disables it: `compute-agent enable` without --node removes all reasons", err)
		}
		return control.Disabling{}, err
	}
	left, err := a.state.Disabled.Enable(statedir.Operator, r.Node)
	if err != nil {
		return control.Disabling{}, err
	}
	onNode(a.log.Info(), r.Node).Str("by", r.By).
		Msg("Enabled: new instances can be scheduled to " + hostOrNode(r.Node) + " again.")
	a.enable()
	return a.awaitDisabled(ctx, r.Node, left), nil
}

// enable makes the trackers remove the trait from nodes to enable.
func (a *Agent) enable() {
	for _, d := range a.drivers.active() {
		d.tracker.Enable(a.state.Disabled.Enabling)
	}
}

// knowsNode returns an error for a node that no driver has reported, such as a typing error.
func (a *Agent) knowsNode(name string) error {
	if name == "" {
		return nil
	}
	var names []string
	for _, d := range a.drivers.active() {
		for _, n := range d.tracker.Status().Nodes {
			names = append(names, n.Name)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("no driver reports a node %q; the nodes of this host are %q", name, names)
}

// namesReason reports whether a reason disables a node by its name.
func (a *Agent) namesReason(node string) bool {
	return slices.ContainsFunc(a.state.Disabled.Reasons(""), func(r statedir.Reason) bool { return r.Node == node })
}

// awaitDisabled waits until the cached trees of a node, or of all, match the reasons, and returns
// the result.
func (a *Agent) awaitDisabled(ctx context.Context, node string, left []statedir.Reason) control.Disabling {
	ctx, cancel := context.WithTimeout(ctx, disabledTimeout)
	defer cancel()
	ticker := time.NewTicker(disabledInterval)
	defer ticker.Stop()
	for {
		out := a.disabling(node)
		out.Left = append(out.Left, left...)
		if out.Done() {
			a.finishEnabling()
			return out
		}
		select {
		case <-ctx.Done():
			return out
		case <-ticker.C:
		}
	}
}

// disabling returns the state of a node, or of all with "".
func (a *Agent) disabling(node string) control.Disabling {
	out := control.Disabling{Nodes: []control.DisabledNode{}}
	for _, d := range a.drivers.active() {
		for _, n := range d.tracker.Status().Nodes {
			if n.State == resourcetracker.Orphaned || (node != "" && n.Name != node) {
				continue
			}
			reason, want := a.state.Disabled.Reason(n.Name)
			view := control.DisabledNode{Node: n.Name, UUID: n.UUID, Disabled: want, Reason: reason}
			if root, known := a.rootOf(n.UUID); known {
				has := root.HasTrait(resourcetracker.TraitStatusDisabled)
				view.InPlacement = &has
			}
			if n.Error != "" {
				view.Error = n.Error
			}
			out.Nodes = append(out.Nodes, view)
		}
	}
	return out
}

// rootOf returns the cached root provider of a node.
func (a *Agent) rootOf(uuid string) (providertree.Provider, bool) {
	tree, _ := a.placement.Known(uuid)
	if tree == nil {
		return providertree.Provider{}, false
	}
	root, ok := tree.Provider(uuid)
	return root, ok && root.Generation != providertree.NoGeneration
}

// disabledReasons returns all reasons for the status, none while the agent is starting.
func (a *Agent) disabledReasons() []statedir.Reason {
	if a.state.Disabled == nil {
		return nil
	}
	return a.state.Disabled.Reasons("")
}

// finishEnabling records that the trait was removed from all nodes to enable. Until then, every
// start of the agent removes it again, because `enable` works without Placement and without a
// running agent.
func (a *Agent) finishEnabling() {
	if !a.state.Disabled.EnablingAny() {
		return
	}
	pending, seen := false, false
	for _, d := range a.drivers.active() {
		for _, n := range d.tracker.Status().Nodes {
			if n.State == resourcetracker.Orphaned {
				continue
			}
			seen = true
			if !a.state.Disabled.Enabling(n.Name) {
				continue
			}
			if _, disabled := a.state.Disabled.Reason(n.Name); disabled {
				continue // another source keeps it
			}
			root, known := a.rootOf(n.UUID)
			pending = pending || !known || n.LastSuccess.IsZero() || root.HasTrait(resourcetracker.TraitStatusDisabled)
		}
	}
	if !seen || pending {
		return
	}
	if err := a.state.Disabled.Enabled(); err != nil {
		a.log.Warn().Err(err).
			Msg("The state directory is not writable. The agent removes the trait COMPUTE_STATUS_DISABLED again at " +
				"its next start.")
	}
}

// onNode adds a node to a log event, unless it is "".
func onNode(e *zerolog.Event, node string) *zerolog.Event {
	if node == "" {
		return e
	}
	return e.Str("node", node)
}

// hostOrNode describes the target of a request: a node, or the host if node is "".
func hostOrNode(node string) string {
	if node == "" {
		return "this host"
	}
	return "this node"
}

// logDisabled logs the recorded reasons at start-up.
func (a *Agent) logDisabled() {
	for _, r := range a.state.Disabled.Reasons("") {
		if _, ours := statedir.DriverOf(r.Source); ours {
			continue // reported as a condition of the driver
		}
		if r.Source == cellSource {
			onNode(a.log.Warn(), r.Node).Str("reason", r.Reason).Time("since", r.Since).
				Msg("The cell has disabled this host's service: no new instances are scheduled to this host. Run " +
					"`openstack compute service set --enable` to enable it.")
			continue
		}
		onNode(a.log.Warn(), r.Node).Str("source", r.Source).Str("reason", r.Reason).
			Time("since", r.Since).Str("by", r.By).
			Msg("An operator has disabled " + hostOrNode(r.Node) +
				": no new instances are scheduled to it. Run `compute-agent enable` to enable it.")
	}
}
