// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// scheduleLoop schedules all build requests at each kick, and periodically.
func (s *Scheduler) scheduleLoop(ctx context.Context) {
	w := s.newWorkers()
	defer w.all.Wait()
	s.every(ctx, s.o.PollInterval, s.kick, func(ctx context.Context) {
		if err := s.schedule(ctx, w); err != nil && ctx.Err() == nil {
			s.o.Logger.Error().Err(err).Msg("Cannot read the build requests, so no server is scheduled. Retrying.")
		}
	})
}

// workers are those who schedule one server each.
type workers struct {
	slots chan struct{}
	all   sync.WaitGroup
}

func (s *Scheduler) newWorkers() *workers { return &workers{slots: make(chan struct{}, s.o.Workers)} }

// schedule gives each build request that is due to a worker, the oldest first. It waits for free
// workers, and not for the last ones to end. It costs one query when there is nothing to do.
func (s *Scheduler) schedule(ctx context.Context, w *workers) error {
	requests, err := s.o.Store.PendingBuilds(ctx)
	if err != nil {
		return err
	}
	s.delay.keep(requests)
	view := &view{s: s}
	for _, request := range requests {
		uuid := request.InstanceUUID
		needsPlacement := request.CellUUID == "" || request.CellUUID == apidb.Cell0UUID
		if !s.delay.due(uuid, needsPlacement, s.o.Now()) {
			continue
		}
		free, _ := s.locks.tryLock(uuid)
		if free == nil {
			continue
		}
		select {
		case <-ctx.Done():
			free()
			return ctx.Err()
		case w.slots <- struct{}{}:
		}
		w.all.Go(func() {
			defer func() { <-w.slots }()
			defer free()
			s.attempt(ctx, uuid, view, needsPlacement)
		})
	}
	return nil
}

// attempt schedules one server, or puts it off.
func (s *Scheduler) attempt(ctx context.Context, uuid string, v *view, asksPlacement bool) {
	request, err := s.o.Store.BuildRequest(ctx, uuid)
	switch {
	case errors.Is(err, apidb.ErrNotFound): // deleted, or done
		err = nil
	case err == nil:
		var span tracing.Span
		ctx, span = s.o.Tracing.Continue(fromClient(ctx, request.RequestSpec), "schedule", request.Traceparent, request.RequestID)
		span.Set(tracing.KeyServer, uuid)
		span.Set(tracing.KeyProjectID, request.ProjectID)
		err = s.build(ctx, request, v)
		span.End(err)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, sqldb.ErrLeaseLost) {
		s.built(PutOff)
	}
	switch {
	case err == nil:
		if s.delay.succeeded(uuid, asksPlacement) {
			s.o.Logger.Info().Msg("Placement is available again. Scheduling the servers in BUILD.")
		}
	case ctx.Err() != nil, errors.Is(err, sqldb.ErrLeaseLost): // it is another process's
	case placementclient.Down(err) && request.CellUUID == "" && s.answersOthers(ctx, err):
		tries, wait := s.delay.unanswered(uuid, s.o.Now())
		s.log(ctx).Warn().Err(err).Str("server", uuid).Int("tries", tries).
			Str("wait", wait.Round(time.Millisecond).String()).
			Msg("Placement fails a request for a server, and answers others. The server stays in BUILD. Retrying; after some tries the server is in ERROR.")
		if tries >= mostUnanswered {
			if err := s.unanswerable(ctx, request, v, err); err != nil {
				s.log(ctx).Warn().Err(err).Str("server", uuid).Msg("Could not put a server in ERROR. Retrying.")
			}
		}
	case placementclient.Down(err):
		if wait, first := s.delay.placementFailed(s.o.Now()); first {
			s.o.Logger.Error().Err(err).Str("wait", wait.Round(time.Millisecond).String()).
				Msg("Placement is unavailable, so new servers stay in BUILD. Check that it runs and how it is reached ([placement_client]). Retrying.")
		}
		s.delay.failed(uuid, s.o.Now())
	default:
		wait := s.delay.failed(uuid, s.o.Now())
		s.log(ctx).Warn().Err(err).Str("server", uuid).Str("wait", wait.Round(time.Millisecond).String()).Msg("Scheduling a server failed. It stays in BUILD. Retrying.")
	}
}

// mostUnanswered is how often Placement may fail a request for a server while it answers others.
const mostUnanswered = 10

// answersOthers says whether Placement, which has failed a request in a way that looks like an
// outage, answers another one: then it is that request which it does not answer.
func (s *Scheduler) answersOthers(ctx context.Context, err error) bool {
	var failed *placementclient.Error
	if !errors.As(err, &failed) || failed.Unsent || errors.Is(err, placementclient.ErrRefused) {
		return false
	}
	_, err = s.o.Placement.HasTrait(ctx, TraitNUMARoot)
	return err == nil
}

// unanswerable puts a server in error whose requests Placement fails.
func (s *Scheduler) unanswerable(ctx context.Context, request apidb.BuildRequest, v *view, cause error) error {
	hosts, err := v.hosts(ctx)
	if err != nil {
		return err
	}
	why := fmt.Sprintf(
		"Placement failed a request for this server %d times, while it answered others. The last time: %s",
		mostUnanswered,
		cause.Error(),
	)
	return s.newBuild(request.RequestSpec, v, hosts, nil).fail(ctx, noHost(why))
}

// The times to wait after a failure, doubled each time.
const (
	firstDelay = time.Second
	mostDelay  = 30 * time.Second
)

// delays says what is not to be tried yet.
type delays struct {
	mu        sync.Mutex
	servers   map[string]*delay
	placement delay
}

type delay struct {
	wait  time.Duration
	until time.Time
	tries int // of a server that Placement has failed while it answered others
}

// more doubles the wait, with up to a quarter less by chance, so that not all come back at once.
func (d *delay) more(now time.Time) time.Duration {
	d.wait = min(max(2*d.wait, firstDelay), mostDelay)
	wait := d.wait - rand.N(d.wait/4)
	d.until = now.Add(wait)
	return wait
}

func (d *delays) due(uuid string, needsPlacement bool, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if needsPlacement && now.Before(d.placement.until) {
		return false
	}
	own := d.servers[uuid]
	return own == nil || !now.Before(own.until)
}

func (d *delays) failed(uuid string, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.servers[uuid] == nil {
		d.servers[uuid] = &delay{}
	}
	return d.servers[uuid].more(now)
}

// unanswered puts off a server alone, whose request Placement failed while it answered others.
func (d *delays) unanswered(uuid string, now time.Time) (tries int, wait time.Duration) {
	wait = d.failed(uuid, now)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers[uuid].tries++
	return d.servers[uuid].tries, wait
}

// succeeded ends the wait for a server, and for Placement if that was asked; back says that it was
// waited for.
func (d *delays) succeeded(uuid string, asksPlacement bool) (back bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.servers, uuid)
	if !asksPlacement {
		return false
	}
	back = d.placement.wait > 0
	d.placement = delay{}
	return back
}

// placementFailed puts off all that needs Placement; first says that it was not put off before.
func (d *delays) placementFailed(now time.Time) (wait time.Duration, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first = d.placement.wait == 0
	if !now.Before(d.placement.until) { // several workers find out at once
		d.placement.more(now)
	}
	return d.placement.until.Sub(now), first
}

// keep forgets all servers but these.
func (d *delays) keep(requests []apidb.PendingBuild) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.servers) == 0 {
		return
	}
	there := make(map[string]bool, len(requests))
	for _, r := range requests {
		there[r.InstanceUUID] = true
	}
	for uuid := range d.servers {
		if !there[uuid] {
			delete(d.servers, uuid)
		}
	}
}
