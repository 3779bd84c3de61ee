// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// scheduleLoop schedules all build requests at each kick, and periodically.
func (s *Scheduler) scheduleLoop(ctx context.Context) {
	w := s.newWorkers()
	defer w.all.Wait()
	s.loop(ctx, s.opts.PollInterval, s.kick, func(ctx context.Context) {
		if err := s.schedule(ctx, w); err != nil && ctx.Err() == nil {
			s.opts.Logger.Error().Err(err).Msg("Cannot read the build requests, so no server is scheduled. Retrying.")
		}
	})
}

// workers bounds the servers that are scheduled or moved at the same time. A server whose last
// request Placement failed, while it answered others, takes a slot of unanswered, so that its
// requests delay no other server. But its claim delays those of its server group, and all servers
// when these fill the slots.
type workers struct {
	slots, unanswered chan struct{}
	all               sync.WaitGroup
}

func (s *Scheduler) newWorkers() *workers {
	return &workers{slots: make(chan struct{}, s.opts.Workers), unanswered: make(chan struct{}, s.opts.Workers)}
}

// task is work on a server, for a worker.
type task struct {
	server, key   string // key is what it is delayed by
	asksPlacement bool
	do            func(afterFailedQuery bool) // see build.run
	since         time.Time                   // when it became due, of one that was unanswered
}

// tryLockDue locks the server of a task, if that is still due: else free is nil.
func (s *Scheduler) tryLockDue(d *backoff, t task) (free func()) {
	if free, _ = s.locks.tryLock(t.server); free == nil {
		return nil
	}
	if due, _ := d.due(t.key, t.asksPlacement, s.opts.Now()); !due { // who had it has put it off
		free()
		return nil
	}
	return free
}

// dispatch has workers do what is due, in the order of the tasks, but for what was unanswered. It
// waits for free workers.
func (s *Scheduler) dispatch(ctx context.Context, w *workers, d *backoff, tasks []task) error {
	for _, t := range tasks {
		if due, since := d.due(t.key, t.asksPlacement, s.opts.Now()); !due || !since.IsZero() {
			continue
		}
		free := s.tryLockDue(d, t)
		if free == nil {
			continue
		}
		select {
		case <-ctx.Done():
			free()
			return ctx.Err()
		case w.slots <- struct{}{}:
			w.run(w.slots, free, func() { t.do(false) })
		}
	}
	return nil
}

// unanswered returns the tasks that got no answer when they were last tried and are due again.
func (s *Scheduler) unanswered(d *backoff, tasks []task) (unanswered []task) {
	for _, t := range tasks {
		var due bool
		if due, t.since = d.due(t.key, t.asksPlacement, s.opts.Now()); due && !t.since.IsZero() {
			unanswered = append(unanswered, t)
		}
	}
	return unanswered
}

// dispatchUnanswered has the workers for what was unanswered do it, what has waited longest first.
// What finds none of them free is left for the next round.
func (s *Scheduler) dispatchUnanswered(w *workers, d *backoff, tasks []task) {
	slices.SortStableFunc(tasks, func(a, b task) int { return a.since.Compare(b.since) })
	for _, t := range tasks {
		free := s.tryLockDue(d, t)
		if free == nil {
			continue
		}
		select {
		case w.unanswered <- struct{}{}:
			w.run(w.unanswered, free, func() { t.do(d.wasQuery(t.key)) })
		default:
			free()
			return
		}
	}
}

// run has a worker, whose slot and server are taken, do something.
func (w *workers) run(slots <-chan struct{}, free, do func()) {
	w.all.Go(func() {
		defer func() { <-slots }()
		defer free()
		do()
	})
}

// schedule gives each build request that is due to a worker, the oldest first. It waits for free
// workers, and not for the last ones to end. It costs one query when there is nothing to do.
func (s *Scheduler) schedule(ctx context.Context, w *workers) error {
	requests, err := s.opts.Store.PendingBuilds(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(requests))
	tasks := make([]task, 0, len(requests))
	view := &view{s: s}
	for _, request := range requests {
		uuid := request.InstanceUUID
		there[uuid] = true
		needsPlacement := request.CellUUID == "" || request.CellUUID == apidb.Cell0UUID
		tasks = append(tasks, task{
			server: uuid, key: uuid, asksPlacement: needsPlacement,
			do: func(afterFailedQuery bool) { s.attempt(ctx, uuid, view, needsPlacement, afterFailedQuery) },
		})
	}
	s.delay.retain(there)
	s.dispatchUnanswered(w, &s.delay, s.unanswered(&s.delay, tasks))
	return s.dispatch(ctx, w, &s.delay, tasks)
}

// attempt schedules one server, or puts it off.
func (s *Scheduler) attempt(ctx context.Context, uuid string, v *view, asksPlacement, afterFailedQuery bool) {
	request, err := s.opts.Store.BuildRequest(ctx, uuid)
	switch {
	case errors.Is(err, apidb.ErrNotFound): // deleted, or done
		err = nil
	case err == nil:
		var span tracing.Span
		ctx, span = s.opts.Tracing.Continue(fromClient(ctx, request.RequestSpec),
			"schedule", request.Traceparent, request.RequestID)
		span.Set(tracing.KeyServer, uuid)
		span.Set(tracing.KeyProjectID, request.ProjectID)
		err = s.build(ctx, request, v, afterFailedQuery)
		span.End(err)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, sqldb.ErrLeaseLost) {
		s.built(PutOff)
	}
	if s.recordAttempt(ctx, attempt{
		delays: &s.delay, server: uuid, key: uuid, ends: request.CellUUID == "",
		again:      "Scheduling the servers in BUILD.",
		unanswered: "The server stays in BUILD. Retrying; after some tries the server is in ERROR.",
		down:       "so new servers stay in BUILD",
		failed:     "Scheduling a server failed. It stays in BUILD. Retrying.",
	}, asksPlacement, err) {
		if err := s.failUnanswered(ctx, request, v, err); err != nil {
			s.log(ctx).Warn().Err(err).Str("server", uuid).Msg("Could not put a server in ERROR. Retrying.")
		}
	}
}

// attempt is one at what is tried until it is done: the build of a server, or a move.
type attempt struct {
	delays      *backoff
	server, key string // key is what it is delayed by
	ends        bool   // it ends if Placement never answers its requests
	// What is logged: again when Placement is back; unanswered, down and failed for what failed.
	again, unanswered, down, failed string
}

// recordAttempt notes how a try ended, and puts the next one off if it failed. It is true if
// Placement has failed its requests so often, while it answered others, that there is to be no
// other.
func (s *Scheduler) recordAttempt(ctx context.Context, t attempt, asksPlacement bool, err error) (over bool) {
	var failed *placementclient.Error
	switch {
	case err == nil:
		if t.delays.recordSuccess(t.key, asksPlacement, s.opts.Placement.Grants()) {
			s.opts.Logger.Info().Msg("Placement is available again. " + t.again)
		}
		return false
	case ctx.Err() != nil, errors.Is(err, sqldb.ErrLeaseLost): // it is another process's
		return false
	case t.ends && (placementclient.Down(err) || errors.Is(err, placementclient.ErrInvalid)) &&
		errors.As(err, &failed) && s.answersOthers(ctx, failed):
		others := true
		if failed.Method != http.MethodGet && placementclient.Down(err) {
			var all bool
			if others, all = t.delays.recordUnwritten(t.key, s.opts.Placement.Grants()); all {
				break
			}
		}
		n, wait := t.delays.recordUnanswered(t.key, others, placementcalls.AsksCandidates(failed), s.opts.Now())
		s.log(ctx).Warn().Err(err).Str("server", t.server).
			Int("tries", n).Str("wait", wait.Round(time.Millisecond).String()).
			Msg("Placement fails a request for a server, and answers others. " + t.unanswered)
		return n >= maxUnanswered
	}
	if placementclient.Down(err) {
		if wait, first := t.delays.recordPlacementFailure(s.opts.Now()); first {
			s.opts.Logger.Error().Err(err).Str("wait", wait.Round(time.Millisecond).String()).
				Msg("Placement is unavailable, " + t.down +
					". Check that it runs and how it is reached ([placement_client]). Retrying.")
		}
		t.delays.recordFailure(t.key, s.opts.Now())
		return false
	}
	wait := t.delays.recordFailure(t.key, s.opts.Now())
	s.log(ctx).Warn().Err(err).Str("server", t.server).Str("wait", wait.Round(time.Millisecond).String()).Msg(t.failed)
	return false
}

// maxUnanswered is how often Placement may fail a request for a server while it answers others.
const maxUnanswered = 10

// answersOthers reports whether Placement, which has failed a request, answers a similar one: then
// it is this request that it cannot answer. Similar is another query for candidates, another one
// about allocations, and so on, because it can fail all of one kind. Nothing is written: see
// [backoff.recordUnwritten].
func (s *Scheduler) answersOthers(ctx context.Context, failed *placementclient.Error) bool {
	if failed.Unsent {
		return false
	}
	var err error
	switch p := s.opts.Placement; {
	case placementcalls.AsksCandidates(failed):
		return p.AnswersCandidates(ctx)
	case strings.HasPrefix(failed.Path, "/allocations"):
		_, err = p.Allocations(ctx, uuid.NewString())
	case strings.HasPrefix(failed.Path, "/resource_providers"):
		_, err = p.Providers(ctx, url.Values{"uuid": {uuid.NewString()}})
	default:
		_, err = p.HasTrait(ctx, resourcerequest.TraitNUMARoot)
	}
	return err == nil
}

// failUnanswered puts a server in error whose requests Placement fails.
func (s *Scheduler) failUnanswered(ctx context.Context, request apidb.BuildRequest, v *view, cause error) error {
	hosts, err := v.hosts(ctx)
	if err != nil {
		return err
	}
	return s.newBuild(request.RequestSpec, v, hosts, nil).fail(ctx, unansweredFault(cause))
}

// unansweredFault is the fault of a server for which Placement failed a request maxUnanswered times
// while it answered those for others.
func unansweredFault(cause error) cellwire.Fault {
	return noHost(fmt.Sprintf(
		"Placement failed a request for this server %d times, while it answered others. The last time: %s",
		maxUnanswered, cause.Error()))
}
