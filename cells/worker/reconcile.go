// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// errNeedsOperator marks failures that an operator has to resolve.
var errNeedsOperator = errors.New("an operator has to resolve this")

func needsOperator(err error) bool { return errors.Is(err, errNeedsOperator) }

// errNodeAway says that this host does not have the node of a server at present.
var errNodeAway = errors.New("no driver has the node of the server")

// reconcileOnce brings a server to a desired state. It returns nil when that state is reached and
// reported, or is not the desired one any more.
func (w *Worker) reconcileOnce(ctx context.Context, s *server, item cellwire.WorkItem) error {
	slots, known := w.slots[item.Want]
	if !known {
		return fmt.Errorf("%w: the cell requests %q, which this agent does not support", errNeedsOperator, item.Want)
	}
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	if !w.isCurrent(s, item) {
		return nil
	}
	node, err := w.lookupNode(w.nodeRef(item))
	if err != nil {
		return err
	}
	switch item.Want {
	case cellwire.WantPresent:
		return w.build(ctx, s, item, node)
	case cellwire.WantGone:
		return w.destroy(ctx, s, item, node)
	case cellwire.WantCleared:
		return w.clear(ctx, s, item, node)
	case cellwire.WantRebuilt:
		return w.rebuild(ctx, s, item, node)
	case cellwire.WantRunning:
		return w.setPower(ctx, s, item, node, plugins.PowerRunning)
	case cellwire.WantShutdown:
		return w.setPower(ctx, s, item, node, plugins.PowerShutdown)
	case cellwire.WantDeparting:
		return w.depart(ctx, s, item, node)
	case cellwire.WantArriving:
		return w.arrive(ctx, s, item, node)
	case cellwire.WantLeft, cellwire.WantLeaving:
		return w.removeDeparted(ctx, s, item, node)
	}
	return nil
}

// lookupNode returns the node with this uuid and name, or an error that wraps errNodeAway.
func (w *Worker) lookupNode(uuid, name string) (Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes { // a few at most
		if n.matches(uuid, name) {
			return n.Node, nil
		}
	}
	for _, n := range w.held {
		if n.matches(uuid, name) || n.Name == name {
			return Node{}, fmt.Errorf("%w: node %s is held: %s", errNodeAway, n.Name, n.Held)
		}
	}
	return Node{}, fmt.Errorf("%w: %s (%s)", errNodeAway, name, uuid)
}

// destroy removes the guest of a server, and then its allocations.
func (w *Worker) destroy(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	err := node.Manager.Destroy(ctx, node.Name, s.uuid)
	w.count(func(c *Counts) { c.Destroys.count(err) })
	var fault *plugins.InstanceFault
	switch {
	case errors.As(err, &fault):
		if err := w.unmanagedGuest(ctx, s, item, fault); err != nil {
			return err
		}
	case errors.Is(err, plugins.ErrUnsupported) && item.Server.LaunchedAt == nil && !w.attempted(s):
		// It was never made, for the same reason.
	case err != nil:
		return fmt.Errorf("destroying the guest: %w", err)
	}
	// After it has left for another host, its allocations are there, and stay.
	if m := migrationOf(item); m.UUID == "" || m.SourceHost != w.cfg.Host || item.Server.Host == w.cfg.Host {
		if err := w.cfg.Allocations.Remove(ctx, s.uuid); err != nil {
			return fmt.Errorf("removing its allocations: %w", err)
		}
	}
	if m := migrationOf(item); m.UUID != "" {
		if err := w.cfg.Allocations.Remove(ctx, m.UUID); err != nil {
			return fmt.Errorf("removing the allocations of its migration: %w", err)
		}
	}
	w.logOf(ctx).Info().Str("instance", s.uuid).Str("node", node.Name).Msg("Removed a server and its allocations.")
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportGone})
	return nil
}

// unmanagedGuest handles a deleted server if the agent did not create the guest with its uuid. The
// guest is left alone. If the server was never active, it cannot be that guest: its allocations are
// removed. Otherwise the guest is most likely the server without its mark and uses the allocations:
// while there are any, they stay, and the server is not reported as removed.
func (w *Worker) unmanagedGuest(
	ctx context.Context, s *server, item cellwire.WorkItem, fault *plugins.InstanceFault,
) error {
	if item.Server.LaunchedAt != nil {
		granted, err := w.cfg.Allocations.Granted(ctx, s.uuid)
		if err != nil {
			return fmt.Errorf("reading its allocations: %w", err)
		}
		if len(granted) > 0 {
			return fmt.Errorf(
				"%w: a guest with its uuid exists that this agent did not create, so "+
					"it is not removed, and its allocations stay: %w; if it is not needed, "+
					"remove it with the hypervisor's own tools, and the server is deleted",
				errNeedsOperator, fault)
		}
	}
	w.logOf(ctx).Error().Str("instance", s.uuid).Err(fault).
		Msg("Removed a server, but a guest with its uuid exists that this agent did not create. The guest is left " +
			"alone and has no allocations: check what it is.")
	return nil
}
