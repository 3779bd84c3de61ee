// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
)

// treeCandidates is how many candidates of one node are asked for: more than [hosts.targets] takes.
const treeCandidates = 10

// search asks for candidates on each remaining host by itself, after a query with a limit gave none
// that took the server: a Placement that is shared with thousands of other hosts can give none of
// ours. The order is by chance, but the same for each attempt. So most boots cost one request more,
// and one that no host takes a request for each host.
func (b *build) search(ctx context.Context, requests []resourcerequest.Request) (placed bool, err error) {
	requests = slices.Clone(requests)
	for i := range requests {
		if !requests[i].Chooses() {
			requests[i].Limit = treeCandidates
		}
	}
	if b.stageByNode == nil {
		b.stageByNode = map[string]int{}
	}
	for _, node := range b.hosts.notAsked(b) {
		if b.refusedBy[node.CellUUID] != takes {
			continue
		}
		b.stageByNode[node.UUID] = b.stage
		candidates, _, err := b.queryCandidates(ctx, requests, node.UUID)
		if err != nil {
			return false, err
		}
		if placed, err := b.tryEach(ctx, b.hosts.targets(candidates, b)); placed || err != nil {
			return placed, err
		}
	}
	return false, nil
}

// notAsked are the nodes that could take the server of a build and were not asked for by themselves
// in this stage.
func (h *hosts) notAsked(b *build) []apidb.Node {
	var nodes []apidb.Node
	for _, n := range h.nodes {
		if h.whyUnfit(n, b) == takes && b.stageByNode[n.UUID] < b.stage {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(x, y apidb.Node) int {
		return cmp.Or(cmp.Compare(tieBreak(b.spec.UUID, x.UUID), tieBreak(b.spec.UUID, y.UUID)),
			cmp.Compare(x.UUID, y.UUID))
	})
	return nodes
}

// numaCells is whether any host has NUMA cells as providers, for all servers that are scheduled at
// about the same time.
type numaCells struct {
	mu   sync.Mutex
	seen time.Time
	any  bool
}

// anyNUMACells reports whether any host has NUMA cells as providers. Without, one request for
// candidates does. What Placement does not say counts as yes.
func (s *Scheduler) anyNUMACells(ctx context.Context) bool {
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
