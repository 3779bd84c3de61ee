// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
)

// cellsSeen is whether any host has NUMA cells as providers, for all servers that are scheduled at
// about the same time.
type cellsSeen struct {
	mu   sync.Mutex
	seen time.Time
	any  bool
}

// anyCells reports whether any host has NUMA cells as providers. Without, one request for
// candidates does. What Placement does not say counts as yes.
func (s *Scheduler) anyCells(ctx context.Context) bool {
	s.cells.mu.Lock()
	defer s.cells.mu.Unlock()
	if !s.cells.seen.IsZero() && s.opts.Now().Sub(s.cells.seen) < viewAge {
		return s.cells.any
	}
	has, err := s.opts.Placement.HasTrait(ctx, resourcerequest.TraitNUMARoot)
	if err != nil {
		return true
	}
	s.cells.seen, s.cells.any = s.opts.Now(), has
	return has
}

// queryCandidates makes the requests of a stage in one tree, or in all (""), and notes which cells
// were asked for.
func (b *build) queryCandidates(
	ctx context.Context, requests []resourcerequest.Request, tree string,
) (candidates []resourcerequest.Candidate, more bool, err error) {
	for i := range requests {
		if cells := requests[i].Cells(); cells != "" && !slices.Contains(b.numaRequests, cells) {
			b.numaRequests = append(b.numaRequests, cells)
		}
	}
	return b.s.opts.Placement.Ask(ctx, requests, tree)
}
