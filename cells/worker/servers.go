// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// server is one that the cell wants something of. Worker.mu guards it.
type server struct {
	uuid string
	item cellwire.WorkItem // the newest
	// known: the cell lists the server. A server that is not listed any more is kept until its task
	// has ended.
	known bool
	// task: a goroutine works on the server. It is woken when the desired state changes, or when a
	// retry may help.
	task bool
	wake chan struct{}
	// changes counts what may have changed the guest. It shows whether a list is from before a
	// change.
	changes int
	// answered: the outcome of its creation or removal is reported.
	answered bool
	// clearing says that this process has begun to remove the guest of a rebuild.
	clearing bool
	// settled is the want that was last reported as settled, at which revision.
	settled   cellwire.Want
	settledAt int64
	// fault: it cannot be made here. What is left to do is to remove its allocations.
	fault *cellwire.Fault
	// attempted: this process called Spawn, and Spawn did not guarantee that nothing is left of the
	// attempt.
	attempted bool
	// begun is when it was first tried to make it, copied when a part of its disks last arrived.
	begun, copied time.Time
	// reported is the power state last queued for the cell; observed the one that the driver
	// returned last, if any.
	reported plugins.PowerState
	observed *plugins.PowerState
	// missing: the driver does not list its guest, or says that there is none.
	missing bool
	// problem is why it is not in its desired state, and since when.
	problem string
	since   time.Time
}

// needsWork reports whether something is to be done.
func (s *server) needsWork() bool {
	if !s.known {
		return false
	}
	switch s.item.Want {
	case cellwire.WantGone, cellwire.WantDeparting, cellwire.WantArriving, cellwire.WantLeft, cellwire.WantLeaving:
		return !s.answered
	case cellwire.WantPresent:
		return s.item.Server.VMState == cellwire.VMBuilding && !s.answered
	case cellwire.WantRunning, cellwire.WantShutdown, cellwire.WantCleared, cellwire.WantRebuilt:
		return s.settled != s.item.Want || (s.item.Server.TaskState != "" && s.item.Server.Revision > s.settledAt)
	}
	return false
}

// hasPowerState reports whether there is, or was, a guest to have a power state, and no task is at
// it.
func (s *server) hasPowerState() bool { return s.hasGuest() && !s.task }

// hasGuest says whether there is, or was, a guest of a server that is to have one.
func (s *server) hasGuest() bool {
	switch s.item.Want {
	case cellwire.WantPresent, cellwire.WantRunning, cellwire.WantShutdown:
		return s.known && (s.item.Server.VMState != cellwire.VMBuilding || s.answered)
	default: // it has none, or the cell knows it of another host
		return false
	}
}

// setDesired takes over a newer desired state.
func (s *server) setDesired(item cellwire.WorkItem) {
	if !sameWork(s.item, item) {
		s.answered, s.fault, s.settled, s.problem, s.begun, s.copied = false, nil, "", "", time.Time{}, time.Time{}
		s.clearing = false
		if s.task {
			signal(s.wake)
		}
	} else if keepsGuest(item) && migrationOf(s.item).Status != migrationOf(item).Status {
		// The cell asks whether the guest is there.
		s.answered = false
	}
	s.item, s.known = item, true
}

// merge takes over what the cell says is new. It reports whether there was something.
func (w *Worker) merge(ctx context.Context, work cellwire.Work) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if work.Epoch != w.epoch {
		if !work.Complete { // it answers to a question that was not asked
			w.log.Warn().Str("epoch", work.Epoch).
				Msg("The cell sent a part of the desired state where all of it was due. Requesting all of it.")
			w.revision, w.listing = 0, nil
			return false
		}
		if w.epoch != "" {
			w.log.Warn().
				Str("from", w.epoch).
				Str("to", work.Epoch).
				Msg("The cell has another database. Reloading the desired state of this host from it; guests that " +
					"it does not list are kept.")
			w.outbox.clear() // they speak of rows of the other one
			signal(w.heartbeatNow)
		}
		w.epoch = work.Epoch
	}
	if work.Complete {
		w.complete, w.listing = false, map[string]bool{}
	}
	for _, item := range work.Items {
		if s := w.applyItem(item); s != nil {
			w.start(ctx, s)
		}
	}
	w.revision = work.Revision
	if w.listing != nil && !work.More {
		w.forgetUnlisted()
		w.complete, w.listing = true, nil
		w.markChanged("")
	}
	return work.More || len(work.Items) > 0
}

// forgetUnlisted forgets the servers that the cell did not list when it sent all. w.mu is held.
func (w *Worker) forgetUnlisted() {
	for uuid, s := range w.servers {
		if w.listing[uuid] {
			continue
		}
		s.known = false
		if s.task {
			signal(s.wake)
		}
		w.forget(s)
	}
}

// applyItem applies an item of the cell to its server, unless the item is invalid. If the cell
// lists all servers, earlier results count as unreported, except those that still wait in the
// outbox. w.mu is held.
func (w *Worker) applyItem(item cellwire.WorkItem) *server {
	uuid, err := providertree.CanonicalUUID(item.Server.UUID)
	if err != nil {
		w.log.Error().Err(err).Msg("The cell sent a work item with an invalid server uuid. It is ignored.")
		return nil
	}
	s := w.servers[uuid]
	if s == nil {
		s = &server{uuid: uuid, wake: make(chan struct{}, 1)}
		w.servers[uuid] = s
	}
	switch {
	case w.listing != nil && !w.listing[uuid]: // first seen in this listing
		w.listing[uuid] = true
		if !w.outbox.has(uuid) {
			s.answered, s.settled, s.observed = false, "", nil
		}
	case s.known && item.Server.Revision < s.item.Server.Revision:
		return nil // overtaken
	}
	s.setDesired(item)
	if !w.outbox.has(uuid) {
		s.reported = item.Server.PowerState
		if s.observed != nil && s.reported != *s.observed && s.hasPowerState() {
			w.markChanged(item.Server.Node)
		}
	}
	return s
}

// forget drops a server of which nothing is wanted, unless a task is at it. w.mu is held.
func (w *Worker) forget(s *server) {
	if !s.known && !s.task {
		delete(w.servers, s.uuid)
	}
}

// start begins a task for a server that is not as wanted, if none is at it. w.mu is held.
func (w *Worker) start(ctx context.Context, s *server) {
	if s.task || !s.needsWork() || ctx.Err() != nil {
		return
	}
	s.task = true
	w.tasks.Go(func() { w.reconcile(ctx, s) })
}

// reconcile brings one server to its desired state, however long that takes and however often that
// changes meanwhile.
func (w *Worker) reconcile(ctx context.Context, s *server) {
	var failures backoff
	for {
		item, ok := w.next(ctx, s)
		if !ok {
			return
		}
		of := cellwire.WithOrigin(ctx, cellwire.Origin{RequestID: item.RequestID})
		acting, span := w.cfg.Tracing().Continue(plugins.WithRequestID(of, item.RequestID), "bring to "+
			string(item.Want), item.Traceparent, item.RequestID)
		span.Set(tracing.KeyServer, s.uuid)
		span.Set(tracing.KeyHost, w.cfg.Host)
		err := w.reconcileOnce(acting, s, item)
		span.End(err)
		w.recordProblem(of, s, item, err)
		if err == nil {
			failures.reset()
			continue
		}
		maxDelay := retryServer
		if needsOperator(err) {
			maxDelay = retryOperator
			failures.failures = max(failures.failures, 10)
		}
		wait.Until(ctx, failures.next(maxDelay), s.wake)
	}
}

// logOf is the logger for what is done for a request.
func (w *Worker) logOf(ctx context.Context) *zerolog.Logger { return cellwire.LoggerOf(ctx, &w.log) }

// next is the work to do now. If there is none, or ctx has ended, the task ends.
func (w *Worker) next(ctx context.Context, s *server) (cellwire.WorkItem, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.changes++
	if ctx.Err() == nil && s.needsWork() {
		return s.item, true
	}
	s.task = false
	w.forget(s)
	return cellwire.WorkItem{}, false
}

// recordProblem records why a server is not as desired, and logs it when that is new.
func (w *Worker) recordProblem(ctx context.Context, s *server, item cellwire.WorkItem, err error) {
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	w.mu.Lock()
	fresh := text != "" && text != s.problem && s.item.Want == item.Want
	if text != "" && s.problem == "" {
		s.since = time.Now()
	}
	s.problem = text
	w.mu.Unlock()
	if fresh {
		w.logOf(ctx).Warn().Str("instance", s.uuid).Str("want", string(item.Want)).Err(err).
			Msg("A server is not in its desired state yet. Retrying.")
	}
}

// isCurrent reports whether an item is still the desired state.
func (w *Worker) isCurrent(s *server, item cellwire.WorkItem) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.needsWork() && sameWork(s.item, item)
}

// report queues a report about a server, unless its desired state changed.
func (w *Worker) report(s *server, item cellwire.WorkItem, r cellwire.Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !s.known || !sameWork(s.item, item) {
		return
	}
	r.UUID, r.Revision = s.uuid, item.Server.Revision
	switch r.Kind {
	case cellwire.ReportSettled:
		s.settled, s.settledAt = item.Want, item.Server.Revision
	case cellwire.ReportSpawned, cellwire.ReportFailed, cellwire.ReportGone:
		s.answered = true
	case cellwire.ReportDeparted, cellwire.ReportArrived, cellwire.ReportLeft:
		s.answered, r.Migration = true, migrationOf(item).UUID
	case cellwire.ReportPower:
	}
	if r.Kind != cellwire.ReportGone && r.Kind != cellwire.ReportLeft {
		s.reported, s.observed = r.PowerState, &r.PowerState
		s.missing = s.missing && r.PowerState == plugins.PowerNoState
	}
	w.outbox.add(r)
}
