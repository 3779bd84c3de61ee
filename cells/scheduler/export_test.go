// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
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
