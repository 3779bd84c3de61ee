// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// A rebuild is Destroy and then Spawn. The cell is where the half is kept: only in the first one is
// a guest removed, and the second one is wanted when that has been reported. So a process that
// continues after a crash goes on to the new guest and never removes it.

// abilities returns the abilities of a node: those of its driver, and those that this worker gives
// to every driver.
func abilities(ofDriver []string) []string {
	all := append(slices.Clone(ofDriver), plugins.AbilityRebuild)
	slices.Sort(all)
	return slices.Compact(all)
}

// clear removes the guest of a server that is rebuilt, if the new one can be made as far as the
// driver can tell. Its allocations stay. A guest that this agent did not create stays, too, and
// ends the rebuild.
func (w *Worker) clear(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	refused, err := w.checkRebuild(ctx, s, item, node)
	switch {
	case err != nil:
		return err
	case refused != nil:
		return w.failRebuild(ctx, s, item, node, refused.reason, refused.details)
	case !w.isCurrent(s, item):
		return nil
	}
	w.setClearing(s)
	err = node.Manager.Destroy(ctx, node.Name, s.uuid)
	w.count(func(c *Counts) { c.Destroys.count(err) })
	var fault *plugins.InstanceFault
	switch {
	case errors.As(err, &fault):
		return w.failRebuild(ctx, s, item, node, fault.Reason, err.Error())
	case err != nil:
		return fmt.Errorf("removing the guest, to rebuild it: %w", err)
	}
	w.logOf(ctx).Info().Str("instance", s.uuid).
		Str("node", node.Name).Msg("Removed the guest of a server that is rebuilt.")
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportSettled, PowerState: plugins.PowerNoState})
	return nil
}

// checkRebuild says why the new guest cannot be made, nil if nothing is known. It does not ask when
// there is no guest to be kept, or when this process has begun to remove it: it is not the whole
// guest any more.
func (w *Worker) checkRebuild(
	ctx context.Context, s *server, item cellwire.WorkItem, node Node,
) (*permanentError, error) {
	checker, can := node.Manager.(plugins.SpawnChecker)
	if !can || w.clearing(s) {
		return nil, nil // nothing is known
	}
	guest, err := find(ctx, node, s.uuid)
	switch {
	case err != nil && !errors.Is(err, plugins.ErrUnsupported):
		return nil, fmt.Errorf("looking for the guest, to rebuild it: %w", err)
	case guest == nil:
		return nil, nil
	}
	spec, tree, err := w.specFor(ctx, s, item, node)
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		return permanent, nil
	case err != nil:
		return nil, err
	}
	err = checker.CheckSpawn(ctx, node.Name, spec, tree)
	var fault *plugins.InstanceFault
	switch {
	case err == nil, errors.Is(err, plugins.ErrUnsupported): // of a driver that cannot check
		return nil, nil
	case errors.As(err, &fault):
		return &permanentError{fault.Reason, err.Error()}, nil
	case errors.Is(err, ErrImpossible):
		return &permanentError{"its host cannot create such a server", err.Error()}, nil
	}
	return nil, fmt.Errorf("checking whether the guest can be made again, before it is removed: %w", err)
}

func (w *Worker) clearing(s *server) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.clearing
}

func (w *Worker) setClearing(s *server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.clearing = true
}

// rebuild makes the guest of a server again, when the former one is removed.
func (w *Worker) rebuild(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	spec, tree, err := w.specFor(ctx, s, item, node)
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		return w.failRebuild(ctx, s, item, node, permanent.reason, permanent.details)
	case err != nil:
		return err
	}
	if !w.isCurrent(s, item) {
		return nil
	}
	w.firstAttempt(s)
	is, err := node.Manager.Spawn(ctx, node.Name, spec, tree)
	w.count(func(c *Counts) { c.Spawns.count(err) })
	var fault *plugins.InstanceFault
	switch {
	case err == nil:
		w.logOf(ctx).Info().Str("instance", s.uuid).Str("node", node.Name).Str("image", spec.Image).
			Stringer("power", is.Power).Msg("Rebuilt the guest of a server.")
		w.report(s, item, cellwire.Report{Kind: cellwire.ReportSettled, PowerState: is.Power})
		return nil
	case errors.As(err, &fault):
		if err := w.awaitDeleted(s, node, fault); err != nil {
			return err
		}
		return w.failRebuild(ctx, s, item, node, fault.Reason, err.Error())
	case errors.Is(err, plugins.ErrUnsupported):
		w.recheckNode(node) // the node must not be reported to the cell
		return w.failRebuild(ctx, s, item, node, "its host cannot create guests", err.Error())
	case errors.Is(err, ErrImpossible):
		return w.failRebuild(ctx, s, item, node, "its host cannot create such a server", err.Error())
	}
	return fmt.Errorf("making the guest again: %w", err)
}

// failRebuild reports that a rebuild failed for good, and how the guest is, if there is one. The
// allocations stay: they are the server's, whose owner can rebuild it from another image or delete
// it.
func (w *Worker) failRebuild(
	ctx context.Context, s *server, item cellwire.WorkItem, node Node, reason, details string,
) error {
	power, err := powerOf(ctx, node, s.uuid)
	if err != nil && !errors.Is(err, plugins.ErrUnsupported) {
		return fmt.Errorf("%s; looking for its power state: %w", reason, err)
	}
	return w.failPower(ctx, s, item, power, reason, details)
}
