// SPDX-License-Identifier: Apache-2.0

package resourcerequest

import (
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Candidate is one way to serve a request.
type Candidate struct {
	// ConsumerAllocations are what a consumer would hold, as Placement takes it for any consumer:
	// allocations and mappings.
	wire.ConsumerAllocations
	// Root is the root provider of the tree that the candidate takes from; where it takes from
	// several (one shares with the other), the one that is not a sharing provider's alone. "" if
	// that is unknown.
	Root string `json:"-"`
	// FreeMemory is how much memory the tree has left, in MiB, and FreeCPUs how many VCPU and PCPU,
	// before this one.
	FreeMemory, FreeCPUs int64 `json:"-"`
}

// Answer is the body of GET /allocation_candidates.
type Answer struct {
	Requests  []Candidate                `json:"allocation_requests"`
	Summaries map[string]providerSummary `json:"provider_summaries"`
}

// Complete implements what Out of a placementclient.Call describes.
func (a *Answer) Complete() bool { return a.Requests != nil && a.Summaries != nil }

type providerSummary struct {
	Resources map[string]struct {
		Capacity int64 `json:"capacity"`
		Used     int64 `json:"used"`
	} `json:"resources"`
	Traits []string `json:"traits"`
	Root   string   `json:"root_provider_uuid"`
	Parent string   `json:"parent_provider_uuid"`
}

// Candidates returns the candidates of an answer that match the request, in Placement's order;
// where guests should be near a device, all that are near come first. It changes the answer: the
// candidates are in its list.
func (r *Request) Candidates(answer *Answer) []Candidate {
	free := map[string]*Candidate{} // by root: what its tree has left
	for _, s := range answer.Summaries {
		tree := free[s.Root]
		if tree == nil {
			tree = &Candidate{}
			free[s.Root] = tree
		}
		for class, amount := range s.Resources {
			switch class {
			case ClassMemory:
				tree.FreeMemory += amount.Capacity - amount.Used
			case ClassVCPU, ClassPCPU:
				tree.FreeCPUs += amount.Capacity - amount.Used
			}
		}
	}
	for i := range answer.Requests {
		candidate := &answer.Requests[i]
		candidate.Root = rootOf(candidate.Allocations, answer.Summaries)
		if tree := free[candidate.Root]; tree != nil {
			candidate.FreeMemory, candidate.FreeCPUs = tree.FreeMemory, tree.FreeCPUs
		}
	}
	return r.accept(answer.Requests, answer.Summaries)
}

// rootOf is the root of the compute node that a candidate takes from.
func rootOf(allocations wire.ProviderResources, summaries map[string]providerSummary) string {
	var own, shared []string
	for provider := range allocations {
		s, known := summaries[provider]
		switch {
		case !known:
		case slices.Contains(s.Traits, providertree.TraitSharesViaAggregate):
			shared = append(shared, s.Root)
		default:
			own = append(own, s.Root)
		}
	}
	for _, roots := range [][]string{own, shared} {
		slices.SortFunc(roots, strings.Compare)
		if roots = slices.Compact(roots); len(roots) == 1 {
			return roots[0]
		}
		if len(roots) > 1 {
			return ""
		}
	}
	return ""
}

// Chooses reports whether [Request.Candidates] may leave out some of what Placement gives.
func (r *Request) Chooses() bool { return r.onCells.apart || r.onCells.near != anywhere }

// accept are the candidates that are as the request has it. Of each node the better ones are first.
func (r *Request) accept(all []Candidate, summaries map[string]providerSummary) []Candidate {
	form := r.onCells
	if !r.Chooses() {
		return all
	}
	var near, far []Candidate
	for _, c := range all {
		cells := map[string]bool{}
		for i := range form.cells {
			for _, provider := range c.Mappings[cellGroup+strconv.Itoa(i)] {
				cells[provider] = true
			}
		}
		if form.apart && len(cells) < form.cells {
			continue
		}
		switch form.distance(c, cells, summaries) {
		case isNear:
			near = append(near, c)
		case isUnknown:
			if form.near == knownNear {
				near = append(near, c)
			} else if form.near != nearAlways {
				far = append(far, c)
			}
		case isFar:
			if form.near == nearFirst || form.near == anywhere {
				far = append(far, c)
			}
		}
	}
	return append(near, far...)
}

// distance is how near the farthest device of a candidate is.
type distance int

const (
	isNear distance = iota
	isUnknown
	isFar
)

// distance looks at all providers that devices are of.
func (form nestedForm) distance(c Candidate, cells map[string]bool, summaries map[string]providerSummary) distance {
	out := isNear
	for provider, classes := range c.Allocations {
		for class := range classes {
			if form.devices[class] {
				out = max(out, nearnessOf(provider, cells, summaries))
			}
		}
	}
	return out
}

// nearnessOf is how near a provider is to some of a guest's cells: near if it is one, below one or
// above one, far if another cell is above it.
func nearnessOf(provider string, cells map[string]bool, summaries map[string]providerSummary) distance {
	for cell := range cells {
		for at, n := cell, 0; at != "" && n < len(summaries); at, n = summaries[at].Parent, n+1 {
			if at == provider {
				return isNear
			}
		}
	}
	for at, n := provider, 0; at != "" && n < len(summaries); at, n = summaries[at].Parent, n+1 {
		if cells[at] {
			return isNear
		}
		if slices.Contains(summaries[at].Traits, TraitNUMARoot) {
			return isFar
		}
	}
	return isUnknown
}
