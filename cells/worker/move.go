// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// migrationOf returns the migration of an item, the zero one if it has none.
func migrationOf(item cellwire.WorkItem) cellwire.Migration {
	if item.Migration == nil {
		return cellwire.Migration{}
	}
	return *item.Migration
}

// sameWork reports whether two items want the same, on behalf of the same migration.
func sameWork(a, b cellwire.WorkItem) bool {
	return a.Want == b.Want && migrationOf(a).UUID == migrationOf(b).UUID
}

// keepsGuest says that a host keeps the guest of a server that is on another host and may come
// back: it reports to the cell whether it is there.
func keepsGuest(item cellwire.WorkItem) bool {
	m := migrationOf(item)
	return item.Want == cellwire.WantDeparting && m.SourceKeepsGuest()
}

// nodeRef returns which node of this host an item is about. In a migration, the server's own node
// may be another host's.
func (w *Worker) nodeRef(item cellwire.WorkItem) (uuid, name string) {
	m := migrationOf(item)
	switch {
	case item.Want == cellwire.WantDeparting, item.Want == cellwire.WantLeft,
		item.Want == cellwire.WantGone && m.SourceHost == w.cfg.Host:
		return m.SourceNodeUUID, m.SourceNode
	case item.Want == cellwire.WantArriving, item.Want == cellwire.WantLeaving,
		item.Want == cellwire.WantGone && m.DestHost == w.cfg.Host:
		return m.DestNodeUUID, m.DestNode
	}
	return item.Server.NodeUUID, item.Server.Node
}

// mover is the manager of a node, if it moves guests.
func mover(node Node) (plugins.InstanceMover, error) {
	if m, ok := node.Manager.(plugins.InstanceMover); ok {
		return m, nil
	}
	return nil, fmt.Errorf("%w: it does not move guests", plugins.ErrUnsupported)
}

// migrationFault is the fault of a move, in the words of Nova's for migrations.
func migrationFault(item cellwire.WorkItem, reason, details string) *cellwire.Fault {
	what := "Migration"
	if migrationOf(item).Type == cellwire.MigrationEvacuation {
		what = "Evacuation"
	}
	return &cellwire.Fault{
		Code: 500, Message: truncate(fmt.Sprintf("%s of instance %s failed: %s", what, item.Server.UUID, reason),
			maxFault),
		Details: clipMiddle(details), Created: time.Now().UTC(),
	}
}

// permanentReason returns the reason, for the owner of a server, if an error of a driver does not
// go away; unsupported is the one for a driver that cannot do it.
func permanentReason(err error, unsupported string) (reason string, is bool) {
	var fault *plugins.InstanceFault
	switch {
	case errors.As(err, &fault):
		return fault.Reason, true
	case errors.Is(err, plugins.ErrUnsupported), errors.Is(err, ErrImpossible):
		return unsupported, true
	}
	return "", false
}

// depart shuts a guest down that is to be moved. While this is wanted, nothing starts it: if
// something else does, it is shut down again.
func (w *Worker) depart(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	m, err := mover(node)
	var offer string
	if err == nil {
		offer, err = m.Depart(ctx, node.Name, s.uuid)
	}
	reason, definite := permanentReason(err, "its host cannot move guests")
	missing := errors.Is(err, plugins.ErrInstanceNotFound)
	switch {
	case migrationOf(item).Type != cellwire.MigrationCold:
		// The host was taken for down, and its word is not waited for.
		if err != nil && !missing {
			return fmt.Errorf("shutting down a guest that is being evacuated: %w", err)
		}
		w.markDone(s, item)
		return nil
	case missing:
		if keepsGuest(item) {
			w.logOf(ctx).Error().Str("instance", s.uuid).Str("node", node.Name).Str("host", item.Server.Host).
				Msg("The guest that is kept of a server that was migrated does not exist. The server cannot go " +
					"back: confirm its migration.")
			w.setMissing(s)
		}
		w.report(s, item, cellwire.Report{
			Kind: cellwire.ReportDeparted, PowerState: plugins.PowerNoState,
			Fault: migrationFault(item, "its guest does not exist", err.Error()),
		})
		return nil
	case definite:
		power, lost := powerOf(ctx, node, s.uuid)
		if lost != nil {
			return fmt.Errorf("%w; looking for its power state: %w", err, lost)
		}
		w.logOf(ctx).Warn().Str("instance", s.uuid).
			Str("node", node.Name).Err(err).Msg("A guest cannot be moved. The failure is reported to the cell.")
		w.report(s, item, cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: power,
			Fault: migrationFault(item, reason, err.Error())})
		return nil
	case err != nil:
		return fmt.Errorf("shutting down a guest that is to be moved: %w", err)
	}
	if keepsGuest(item) {
		w.report(s, item, cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: plugins.PowerShutdown})
		return nil
	}
	if migrationOf(item).Status != cellwire.MigrationPre { // it was reported
		w.markDone(s, item)
		return nil
	}
	w.logOf(ctx).Info().Str("instance", s.uuid).Str("node", node.Name).Str("to", migrationOf(item).DestHost).
		Msg("Shut down a guest that is to be moved.")
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportDeparted, PowerState: plugins.PowerShutdown, Offer: offer})
	return nil
}

// markDone notes that what is wanted holds, of which nothing is reported.
func (w *Worker) markDone(s *server, item cellwire.WorkItem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.known && sameWork(s.item, item) {
		s.answered = true
	}
}

// arrive creates the guest of a server that comes from another host, and starts it unless it was
// stopped there; one in error could not be evacuated before. As in build, its allocations are read
// before each attempt.
func (w *Worker) arrive(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	spec, tree, err := w.specFor(ctx, s, item, node)
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		return w.refuse(ctx, s, item, node, permanent.reason, permanent.details)
	case err != nil:
		return err
	}
	m, err := mover(node)
	if err != nil {
		return w.refuse(ctx, s, item, node, "its host cannot move guests", err.Error())
	}
	if !w.isCurrent(s, item) {
		return nil
	}
	w.firstAttempt(s)
	migration := migrationOf(item)
	from := plugins.Arrival{Node: migration.SourceNode,
		Evacuation: migration.Type == cellwire.MigrationEvacuation}
	files := &sourceFiles{worker: w, server: s}
	if !from.Evacuation {
		from.Offer, from.Files = migration.Offer, files
	}
	is, err := m.Arrive(ctx, node.Name, spec, tree, from)
	if err == nil && migration.OldVMState != cellwire.VMStopped {
		if !w.isCurrent(s, item) { // it must not be started here any more
			return nil
		}
		is, err = node.Manager.SetPower(ctx, node.Name, s.uuid, plugins.PowerRunning, false)
	}
	reason, definite := permanentReason(err, "its host cannot create such a guest")
	switch {
	case err == nil:
		w.logOf(ctx).Info().Str("instance", s.uuid).
			Str("node", node.Name).Str("from", migration.SourceHost).Stringer("power", is.Power).
			Msg("A server arrived from another host.")
		w.report(s, item, cellwire.Report{Kind: cellwire.ReportArrived, PowerState: is.Power})
		return nil
	case files.refused != "":
		return w.refuse(ctx, s, item, node, "its disks cannot be copied from its host", files.refused)
	case files.timedOut(w.firstAttempt(s)):
		return w.refuse(ctx, s, item, node, "its disks could not be copied from its host for too long", err.Error())
	case definite:
		if err := w.awaitDeleted(s, node, err); err != nil {
			return err
		}
		return w.refuse(ctx, s, item, node, reason, err.Error())
	}
	return fmt.Errorf("creating a guest that comes from %s: %w", migrationOf(item).SourceHost, err)
}

// refuse removes what is left of a guest that cannot arrive, and reports why. What it shares with
// the source stays, and so do all allocations, with which the cell takes the server back.
func (w *Worker) refuse(
	ctx context.Context, s *server, item cellwire.WorkItem, node Node, reason, details string,
) error {
	if !w.isCurrent(s, item) {
		return nil
	}
	if err := w.remove(ctx, s, node); err != nil {
		return fmt.Errorf("%s; removing what is left of it here: %w", reason, err)
	}
	w.logOf(ctx).Warn().Str("instance", s.uuid).Str("node", node.Name).Str("reason", reason).Str("details", details).
		Msg("A server cannot be moved to this host. Nothing of it is left here, and the failure is reported " +
			"to the cell.")
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportArrived, PowerState: plugins.PowerNoState,
		Fault: migrationFault(item, reason, details)})
	return nil
}

// remove removes the guest of a server that is on another host, but nothing that it shares with it.
func (w *Worker) remove(ctx context.Context, s *server, node Node) error {
	m, err := mover(node)
	if err == nil {
		err = m.Leave(ctx, node.Name, s.uuid)
	}
	var fault *plugins.InstanceFault
	switch {
	case errors.As(err, &fault):
		return fmt.Errorf("%w: a guest with its uuid exists that this agent did not create, so it is not removed: %w",
			errNeedsOperator, err)
	case errors.Is(err, plugins.ErrUnsupported):
		return fmt.Errorf("%w: the driver removes no guests that were moved: %w", errNeedsOperator, err)
	}
	return err
}

// removeDeparted removes the guest of a server that is on another host for good, and then the
// allocations that were kept for the way back, if this is the source.
func (w *Worker) removeDeparted(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	if err := w.remove(ctx, s, node); err != nil {
		return fmt.Errorf("removing the guest of a server that is on another host: %w", err)
	}
	if item.Want == cellwire.WantLeft {
		if err := w.cfg.Allocations.Remove(ctx, migrationOf(item).UUID); err != nil {
			return fmt.Errorf("removing the allocations of its migration: %w", err)
		}
	}
	w.logOf(ctx).Info().Str("instance", s.uuid).
		Str("node", node.Name).Msg("Removed the guest of a server that is on another host.")
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportLeft})
	return nil
}
