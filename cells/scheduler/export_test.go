// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"

	"github.com/compute-agent/compute-agent/cells/cellwire"
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

// Reconcile goes round once.
func (s *Scheduler) Reconcile(ctx context.Context) error { return s.reconcile(ctx) }

// Mirror goes round once.
func (s *Scheduler) Mirror(ctx context.Context) error { return s.mirror(ctx) }

// MirrorAndLog goes round once and logs what happened.
func (s *Scheduler) MirrorAndLog(ctx context.Context) { s.mirrorAndLog(ctx) }

// DefaultGrace is how long what is half done is left alone.
const DefaultGrace = defaultGrace

// ComparePage is how many mappings of a cell are compared in one round.
const ComparePage = comparePage

// DiscoverAndLog maps new hosts and logs what it found.
func (s *Scheduler) DiscoverAndLog(ctx context.Context) { s.discoverAndLog(ctx) }

// Ask goes through the stages of a flavor as a build does, to the first that finds anything, and
// says which that is, from 1 on.
func Ask(ctx context.Context, client *PlacementClient, f cellwire.Flavor) ([]Candidate, int, error) {
	r, err := NewCandidateRequest(f)
	if err != nil {
		return nil, 0, err
	}
	r.Limit = DefaultCandidateLimit
	b := &build{s: &Scheduler{o: Options{Placement: client}}}
	for i, requests := range r.Stages(true) {
		if found, _, err := b.ask(ctx, requests, ""); err != nil || len(found) > 0 {
			return found, i + 1, err
		}
	}
	return nil, 0, nil
}
