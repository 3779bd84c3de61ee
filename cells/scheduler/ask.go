// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
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
	if !s.cells.seen.IsZero() && s.o.Now().Sub(s.cells.seen) < viewAge {
		return s.cells.any
	}
	has, err := s.o.Placement.HasTrait(ctx, resourcerequest.TraitNUMARoot)
	if err != nil {
		return true
	}
	s.cells.seen, s.cells.any = s.o.Now(), has
	return has
}

// ask makes the requests of a stage at the same time, in one tree, or in all ("").
func (b *build) ask(
	ctx context.Context, requests []resourcerequest.Request, tree string,
) (candidates []resourcerequest.Candidate, more bool, err error) {
	answers := make([]struct {
		candidates []resourcerequest.Candidate
		given      int
		err        error
	}, len(requests))
	var wait sync.WaitGroup
	for i, r := range requests {
		r.InTree = tree
		if cells := r.Cells(); cells != "" && !slices.Contains(b.divided, cells) {
			b.divided = append(b.divided, cells)
		}
		wait.Go(func() {
			a := &answers[i]
			a.candidates, a.given, a.err = b.s.o.Placement.given(ctx, r)
		})
	}
	wait.Wait()
	var found [][]resourcerequest.Candidate
	for i, a := range answers {
		r := requests[i]
		if r.NamesPages() && errors.Is(a.err, placementclient.ErrInvalid) {
			a.err = nil // no host has pages of that size, so that there is no such class
		}
		if a.err != nil {
			return nil, false, a.err
		}
		found = append(found, a.candidates)
		more = more || a.given >= r.Limit
	}
	return merge(found, requests[0].Limit), more, nil
}

// merge takes candidates of all lists in turn.
func merge(lists [][]resourcerequest.Candidate, limit int) []resourcerequest.Candidate {
	if len(lists) == 1 {
		return lists[0]
	}
	var out []resourcerequest.Candidate
	for i := 0; len(out) < limit; i++ {
		before := len(out)
		for _, list := range lists {
			if i < len(list) && len(out) < limit {
				out = append(out, list[i])
			}
		}
		if len(out) == before {
			break
		}
	}
	return out
}
