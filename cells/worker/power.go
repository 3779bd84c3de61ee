// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/plugins"
)

// powerTasks are the tasks that a power action or a rebuild begins, and that in which a server is
// back from a migration, with what their failure is called. A soft delete and its restoration are
// repeated until they succeed; a power action is its owner's to repeat.
var powerTasks = map[string]string{
	cellwire.TaskPoweringOn:        "Start",
	cellwire.TaskPoweringOff:       "Stop",
	cellwire.TaskRebooting:         "Reboot",
	cellwire.TaskRebootStarted:     "Reboot",
	cellwire.TaskRebootingHard:     "Reboot",
	cellwire.TaskRebootStartedHard: "Reboot",
	cellwire.TaskRebuilding:        "Rebuild",
	cellwire.TaskRebuildSpawning:   "Rebuild",
	cellwire.TaskResizeReverting:   "Revert of the migration",
}

// setPower starts or stops the guest of a server.
func (w *Worker) setPower(
	ctx context.Context, s *server, item cellwire.WorkItem, node Node, to plugins.PowerState,
) error {
	task := item.Server.TaskState
	is, err := node.Manager.SetPower(ctx, node.Name, s.uuid, to, task == cellwire.TaskRebootingHard)
	if errors.Is(err, plugins.ErrInstanceNotFound) &&
		(task == cellwire.TaskRebootingHard || task == cellwire.TaskRebootStartedHard) {
		permanent, failed := w.restore(ctx, s, item, node)
		switch {
		case failed != nil:
			return failed
		case permanent != nil:
			w.setMissing(s)
			return w.failPower(ctx, s, item, plugins.PowerNoState, "its guest does not exist: "+
				permanent.reason, permanent.details)
		case !w.isCurrent(s, item):
			return nil
		}
		is, err = node.Manager.SetPower(ctx, node.Name, s.uuid, to, false)
	}
	var fault *plugins.InstanceFault
	switch {
	case errors.Is(err, plugins.ErrInstanceNotFound):
		// There is nothing to start or stop, and waiting brings nothing back: the owner sees that,
		// and can go on from there.
		w.logOf(ctx).Error().
			Str("instance", s.uuid).
			Str("node", node.Name).
			Stringer("power", to).
			Msg("The guest of a server does not exist. Its power state is reported as NOSTATE; a hard reboot of the " +
				"server makes it again over its disks.")
		w.setMissing(s)
		is.Power = plugins.PowerNoState
		if powerTasks[task] != "" {
			return w.failPower(ctx, s, item, is.Power, "its guest does not exist", err.Error())
		}
	case errors.As(err, &fault) && powerTasks[task] != "":
		power, missing := powerOf(ctx, node, s.uuid)
		if missing != nil {
			return fmt.Errorf("%w; looking for its power state: %w", err, missing)
		}
		return w.failPower(ctx, s, item, power, fault.Reason, err.Error())
	case errors.As(err, &fault):
		return fmt.Errorf("%w: bringing the guest to %s: %w", errNeedsOperator, to, err)
	case err != nil:
		return fmt.Errorf("bringing the guest to %s: %w", to, err)
	}
	if err == nil && task != "" {
		w.logOf(ctx).Info().Str("instance", s.uuid).Str("node", node.Name).Str("task", task).
			Stringer("power", is.Power).Msg("Changed the power state of a guest.")
	}
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportSettled, PowerState: is.Power})
	if task == cellwire.TaskRebooting || task == cellwire.TaskRebootingHard {
		return w.startAgain(ctx, s, item, node)
	}
	return nil
}

// restore makes the guest of a server again over its disks, in a hard reboot that found none. The
// first result says why that cannot be.
func (w *Worker) restore(ctx context.Context, s *server, item cellwire.WorkItem, node Node) (*permanentError, error) {
	const unable = "the driver of its host cannot make it again over its disks"
	restorer, can := node.Manager.(plugins.InstanceRestorer)
	if !can {
		return &permanentError{unable, "the driver has no ability " + plugins.AbilityRestore}, nil
	}
	spec, tree, err := w.specFor(ctx, s, item, node)
	var permanent *permanentError
	switch {
	case errors.As(err, &permanent):
		return permanent, nil
	case err != nil:
		return nil, err
	case !w.isCurrent(s, item):
		return nil, nil // the caller looks, too
	}
	if several := w.severalAgents(); several != "" { // the guest may run on the other machine, over the same disks
		return nil, fmt.Errorf("its guest is not made again as long as %s: stop the agent on the copy", several)
	}
	w.firstAttempt(s)
	_, err = restorer.Restore(ctx, node.Name, spec, tree)
	if err == nil {
		w.logOf(ctx).Warn().Str("instance", s.uuid).
			Str("node", node.Name).Msg("Made the guest of a server again over its disks: it did not exist.")
		return nil, nil
	}
	reason, definite := permanentReason(err, unable)
	if !definite {
		return nil, fmt.Errorf("making the guest again over its disks: %w", err)
	}
	if err := w.awaitDeleted(s, node, err); err != nil {
		return nil, err
	}
	return &permanentError{reason, err.Error()}, nil
}

// setMissing notes that a server has no guest.
func (w *Worker) setMissing(s *server) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.missing = true
}

// failPower reports that one of powerTasks failed for good.
func (w *Worker) failPower(
	ctx context.Context, s *server, item cellwire.WorkItem, power plugins.PowerState, reason, details string,
) error {
	fault := cellwire.Fault{
		Code: 500, Message: truncate(fmt.Sprintf("%s of instance %s failed: %s",
			powerTasks[item.Server.TaskState], s.uuid, reason), maxFault),
		Details: clipMiddle(details), Created: time.Now().UTC(),
	}
	w.logOf(ctx).Warn().Str("instance", s.uuid).Str("task", item.Server.TaskState).Str("reason", reason).
		Str("details", fault.Details).
		Msg("An action on a server failed. The failure is reported to the cell; it is not repeated.")
	w.report(s, item, cellwire.Report{Kind: cellwire.ReportSettled, PowerState: power, Fault: &fault})
	return nil
}

// startAgain starts a guest that is off in the middle of a reboot if the cell, which may be down,
// does not ask for it in time. The cell stores how far the reboot is, and asks at once, also after
// a restart of the agent. If the agent is restarted while the cell is down, the guest is rebooted
// again.
func (w *Worker) startAgain(ctx context.Context, s *server, item cellwire.WorkItem, node Node) error {
	var failures backoff
	for rest := rebootTimeout; w.waitsFor(s, item); {
		began := time.Now()
		if !wait.Until(ctx, rest, s.wake) {
			return nil // the agent stops; it continues after its restart
		}
		if rest -= time.Since(began); rest > 0 {
			continue // something else woke it
		}
		_, err := node.Manager.SetPower(ctx, node.Name, s.uuid, plugins.PowerRunning, false)
		if err != nil {
			w.recordProblem(ctx, s, item,
				fmt.Errorf("starting the guest again in a reboot, as the cell does not answer: %w", err))
			rest = failures.next(retryServer)
			continue
		}
		w.logOf(ctx).Warn().Str("instance", s.uuid).
			Msg("A guest was started again in the middle of its reboot, because the cell did not answer in time. " +
				"The reboot is completed when the cell answers.")
		w.mu.Lock()
		s.settledAt = max(s.settledAt, s.item.Server.Revision)
		w.mu.Unlock()
		return nil
	}
	return nil
}

// waitsFor reports whether the desired state of a server is still the one that was settled.
func (w *Worker) waitsFor(s *server, item cellwire.WorkItem) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.known && s.item.Want == item.Want
}
