// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
)

// SetAfter has a function called after each step; an error ends what is being done there, as the
// end of the process would.
func (s *Scheduler) SetAfter(f func(step string) error) { s.after = f }

// Schedule schedules all that is due, and waits until it is done.
func (s *Scheduler) Schedule(ctx context.Context) error {
	w := s.newWorkers()
	defer w.all.Wait()
	return s.schedule(ctx, w)
}

// ScheduleThen schedules all that is due, does something when all workers that are free have their
// servers, and waits until it is done.
func (s *Scheduler) ScheduleThen(ctx context.Context, then func()) error {
	w := s.newWorkers()
	defer w.all.Wait()
	defer then()
	return s.schedule(ctx, w)
}

// MovesThen is the same for migrations.
func (s *Scheduler) MovesThen(ctx context.Context, then func()) error {
	w := s.newWorkers()
	defer w.all.Wait()
	defer then()
	return s.dispatchMigrations(ctx, w)
}

// Reconcile goes round once.
func (s *Scheduler) Reconcile(ctx context.Context) error { return s.reconcile(ctx) }

// Moves looks for migrations once, goes on with them, and waits until that is done.
func (s *Scheduler) Moves(ctx context.Context) error {
	w := s.newWorkers()
	defer w.all.Wait()
	return s.dispatchMigrations(ctx, w)
}

// Mirror goes round once.
func (s *Scheduler) Mirror(ctx context.Context) error { return s.mirror.Round(ctx) }

// MirrorAndLog goes round once and logs what happened.
func (s *Scheduler) MirrorAndLog(ctx context.Context) { s.mirrorAndLog(ctx) }

// DefaultGrace is how long what is half done is left alone.
const DefaultGrace = defaultGrace

// DiscoverAndLog maps new hosts and logs what it found.
func (s *Scheduler) DiscoverAndLog(ctx context.Context) { s.discoverAndLog(ctx) }

// Ask goes through the stages of a flavor as a build does, to the first that finds anything, and
// says which that is, from 1 on.
func Ask(
	ctx context.Context, client *placementcalls.Client, f cellwire.Flavor,
) ([]resourcerequest.Candidate, int, error) {
	r, err := resourcerequest.New(f, nil)
	if err != nil {
		return nil, 0, err
	}
	r.Limit = resourcerequest.DefaultLimit
	b := &build{s: &Scheduler{opts: Options{Placement: client}}}
	for i, requests := range r.Stages(true) {
		if found, _, err := b.queryCandidates(ctx, requests, ""); err != nil || len(found) > 0 {
			return found, i + 1, err
		}
	}
	return nil, 0, nil
}

// Decision makes decisions as builds do, without the databases of the API and of the cells.
type Decision struct {
	s     *Scheduler
	hosts *hosts
}

// NewDecision is for nodes whose services are all up, in one cell.
func NewDecision(client *placementcalls.Client, nodes []apidb.Node) *Decision {
	d := &Decision{
		s: &Scheduler{opts: Options{Placement: client, MaxCandidates: resourcerequest.DefaultLimit, Now: time.Now}},
		hosts: &hosts{cells: map[string]apidb.Cell{},
			nodes: map[string]apidb.Node{}, services: map[hostKey]cellwire.Service{}},
	}
	for _, n := range nodes {
		d.hosts.cells[n.CellUUID], d.hosts.nodes[n.UUID] = apidb.Cell{UUID: n.CellUUID}, n
		d.hosts.services[hostKey{n.CellUUID, n.Host}] = cellwire.Service{Host: n.Host, Up: true}
	}
	return d
}

// Claim finds a host for a server and claims it in Placement. It says at which stage of the
// requests that was, from 1 on; 0: no host takes it, which is found out as far as it takes before
// every host is asked by itself.
func (d *Decision) Claim(ctx context.Context, spec apidb.RequestSpec) (stage int, err error) {
	b := d.s.newBuild(spec, nil, d.hosts, nil)
	stages, err := b.stages(ctx)
	if err != nil {
		return 0, err
	}
	for i, requests := range stages {
		targets, err := b.targets(ctx, requests)
		if err != nil {
			return 0, err
		}
		for _, t := range targets {
			if fits, err := b.allocate(ctx, t); fits || err != nil {
				return i + 1, err
			}
		}
	}
	return 0, nil
}
