// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/disabled"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// disabledPatience is how long a person waits for Placement to have it that a node is disabled, or enabled.
const disabledPatience = 15 * time.Second

// disabledLook is how often that is looked at meanwhile; it costs no request.
const disabledLook = 25 * time.Millisecond

// whyDisabled says whether, and why, a node is disabled, for trackers.
func (a *Agent) whyDisabled(node plugins.Node) (reason string, isDisabled bool) {
	if a.state.Disabled == nil {
		return "", false
	}
	return a.state.Disabled.Reason(node.Name)
}

// Disable implements [control.Agent]: it keeps the reason, has every tracker make a pass, and waits a while for Placement to
// have it.
func (a *Agent) Disable(ctx context.Context, r control.DisableRequest) (control.Disabling, error) {
	if err := a.knowsNode(r.Node); err != nil {
		return control.Disabling{}, err
	}
	if err := a.state.Disabled.Disable(disabled.Reason{Source: disabled.Operator, Node: r.Node, Reason: r.Reason, By: r.By}); err != nil {
		return control.Disabling{}, err
	}
	onNode(a.log.Warn(), r.Node).Str("reason", r.Reason).Str("by", r.By).Msg("Disabled: nothing new is to be scheduled to " + thisOne(r.Node) + ". Guests that run are not affected.")
	for _, d := range a.active() {
		d.tracker.Refresh("the host was disabled")
	}
	return a.awaitDisabled(ctx, r.Node, nil), nil
}

// Enable implements [control.Agent].
func (a *Agent) Enable(ctx context.Context, r control.DisableRequest) (control.Disabling, error) {
	if err := a.knowsNode(r.Node); err != nil {
		if a.namesReason(r.Node) {
			err = fmt.Errorf("%w; that it is disabled is noted all the same: `compute-agent enable` without --node ends that, for every node", err)
		}
		return control.Disabling{}, err
	}
	left, err := a.state.Disabled.Enable(disabled.Operator, r.Node)
	if err != nil {
		return control.Disabling{}, explainWhole(err, r.Node)
	}
	onNode(a.log.Info(), r.Node).Str("by", r.By).Msg("Enabled: " + thisOne(r.Node) + " can get new guests again.")
	a.enable()
	return a.awaitDisabled(ctx, r.Node, left), nil
}

// enable has the trackers take the trait away from nodes that shall be enabled.
func (a *Agent) enable() {
	for _, d := range a.active() {
		d.tracker.Enable(a.state.Disabled.Enabling)
	}
}

// knowsNode reports a name that no driver has named, which is a typing error.
func (a *Agent) knowsNode(name string) error {
	if name == "" {
		return nil
	}
	var names []string
	for _, d := range a.active() {
		for _, n := range d.tracker.Status().Nodes {
			names = append(names, n.Name)
		}
	}
	if slices.Contains(names, name) {
		return nil
	}
	return fmt.Errorf("no driver names a node %q; the nodes of this host are %q", name, names)
}

// namesReason tells whether a node was disabled by its name, which no driver may name any more, or ever did.
func (a *Agent) namesReason(node string) bool {
	return slices.ContainsFunc(a.state.Disabled.Reasons(""), func(r disabled.Reason) bool { return r.Node == node })
}

// awaitDisabled waits until Placement says of all nodes meant what the reasons say, as far as this agent knows without asking
// it, and returns how far that came.
func (a *Agent) awaitDisabled(ctx context.Context, node string, left []disabled.Reason) control.Disabling {
	ctx, cancel := context.WithTimeout(ctx, disabledPatience)
	defer cancel()
	ticker := time.NewTicker(disabledLook)
	defer ticker.Stop()
	for {
		out := a.disabling(node)
		out.Left = append(out.Left, left...)
		if out.Done() {
			a.settleEnabling()
			return out
		}
		select {
		case <-ctx.Done():
			return out
		case <-ticker.C:
		}
	}
}

// disabling is how the nodes meant stand, "" for all.
func (a *Agent) disabling(node string) control.Disabling {
	out := control.Disabling{Nodes: []control.DisabledNode{}}
	for _, d := range a.active() {
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

// rootOf is what the agent knows of a node's root in Placement, without asking.
func (a *Agent) rootOf(uuid string) (providertree.Provider, bool) {
	tree, _ := a.placement.Known(uuid)
	if tree == nil {
		return providertree.Provider{}, false
	}
	root, ok := tree.Provider(uuid)
	return root, ok && root.Generation != providertree.NoGeneration
}

// disabledReasons are all reasons, for the status. An agent that is still preparing has none to show.
func (a *Agent) disabledReasons() []disabled.Reason {
	if a.state.Disabled == nil {
		return nil
	}
	return a.state.Disabled.Reasons("")
}

// settleEnabling notes that the trait is gone from all nodes that were to be enabled. Until then every start asks for it again:
// the agent may have been told while Placement was away, or while it did not run.
func (a *Agent) settleEnabling() {
	if !a.state.Disabled.EnablingAny() {
		return
	}
	pending, seen := false, false
	for _, d := range a.active() {
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
		a.log.Warn().Err(err).Msg("The state directory is not writable. The agent removes the trait COMPUTE_STATUS_DISABLED again at its next start.")
	}
}

func explainWhole(err error, node string) error {
	if errors.Is(err, disabled.ErrWhole) {
		return fmt.Errorf("%w: `compute-agent enable` without --node enables all of them, and then `compute-agent disable --node` the others; %s stays disabled", err, node)
	}
	return err
}

// DisableOffline keeps a reason where no agent runs. Its next start tells Placement.
func DisableOffline(cfg *config.Config, r control.DisableRequest) error {
	return offlineDisabled(cfg, func(s *disabled.Store) error {
		return s.Disable(disabled.Reason{Source: disabled.Operator, Node: r.Node, Reason: r.Reason, By: r.By})
	})
}

// EnableOffline takes the operator's reasons back where no agent runs, and returns those of others, which stay.
func EnableOffline(cfg *config.Config, r control.DisableRequest) (left []disabled.Reason, err error) {
	err = offlineDisabled(cfg, func(s *disabled.Store) error {
		others, err := s.Enable(disabled.Operator, r.Node)
		left = append(left, others...)
		return explainWhole(err, r.Node)
	})
	return left, err
}

func offlineDisabled(cfg *config.Config, do func(*disabled.Store) error) error {
	unlock, err := statedir.Take(cfg.Agent.StateDir)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := disabled.Open(cfg.Agent.StateDir)
	if err != nil {
		return err
	}
	return do(s)
}

// onNode names the node that an operator named, if any.
func onNode(e *zerolog.Event, node string) *zerolog.Event {
	if node == "" {
		return e
	}
	return e.Str("node", node)
}

// thisOne is what an operator means by a name of a node, or by none.
func thisOne(node string) string {
	if node == "" {
		return "this host"
	}
	return "this node"
}

// logDisabled tells at the start what outlived the last one.
func (a *Agent) logDisabled() {
	for _, r := range a.state.Disabled.Reasons("") {
		if _, ours := disabled.DriverOf(r.Source); ours {
			continue // a condition of its driver says so, and it ends by itself
		}
		if r.Source == cellSource {
			onNode(a.log.Warn(), r.Node).Str("reason", r.Reason).Time("since", r.Since).
				Msg("The cell has disabled this host's service since before this start: nothing new is to be scheduled to this host. `openstack compute service set --enable` ends that.")
			continue
		}
		onNode(a.log.Warn(), r.Node).Str("source", r.Source).Str("reason", r.Reason).Time("since", r.Since).Str("by", r.By).
			Msg("Disabled since before this start: nothing new is to be scheduled to " + thisOne(r.Node) + ". `compute-agent enable` ends that.")
	}
}
