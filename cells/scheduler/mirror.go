// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
)

// The mirror of host aggregates in Placement, see [placementcalls.Mirror]. A change is written at
// once by the process that was asked for it, and what is left of it after an outage by the rounds
// of the process that schedules.

// mirrorWait is how long a request that changes an aggregate waits for Placement at most.
const mirrorWait = 5 * time.Second

// MirrorHost writes the aggregates of a host to Placement, if it can be done at once; if not, the
// log says so, and a round of [Scheduler.Run] does it. It costs two requests for each node of the
// host.
func (s *Scheduler) MirrorHost(ctx context.Context, host string) {
	// the change is made: a client that goes does not undo it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mirrorWait)
	defer cancel()
	nodes, err := s.opts.Store.Nodes(ctx)
	for _, node := range nodes {
		if node.Host == host {
			err = errors.Join(err, s.mirror.Node(ctx, node))
		}
	}
	if err != nil {
		s.opts.Logger.Warn().Err(err).Str("host", host).
			Msg("Could not write the aggregates of a host to Placement. Servers may be refused there until the next " +
				"round writes them.")
	}
}

// Capacities returns the capacities of compute nodes: see [placementcalls.Client.Capacities].
func (s *Scheduler) Capacities(ctx context.Context, roots []string) ([]placementcalls.Capacity, error) {
	return s.opts.Placement.Capacities(ctx, roots)
}

// mirrorAndLog does one round, and logs the first failure in a row.
func (s *Scheduler) mirrorAndLog(ctx context.Context) {
	switch err := s.mirror.Round(ctx); {
	case ctx.Err() != nil:
	case err == nil && s.mirrorFails.Swap(false):
		s.opts.Logger.Info().Msg("The host aggregates are in Placement again as they should be.")
	case err != nil && !s.mirrorFails.Swap(true):
		s.opts.Logger.Warn().Err(err).
			Msg("Could not compare the host aggregates with those in Placement. Servers may be refused where they " +
				"should fit. Retrying.")
	}
}
