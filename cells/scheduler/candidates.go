// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
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

// candidatesAnswer is GET /allocation_candidates.
type candidatesAnswer struct {
	Requests  []Candidate                `json:"allocation_requests"`
	Summaries map[string]providerSummary `json:"provider_summaries"`
}

// Complete implements what [placementclient.Call].Out describes.
func (a *candidatesAnswer) Complete() bool { return a.Requests != nil && a.Summaries != nil }

type providerSummary struct {
	Resources map[string]struct {
		Capacity int64 `json:"capacity"`
		Used     int64 `json:"used"`
	} `json:"resources"`
	Traits []string `json:"traits"`
	Root   string   `json:"root_provider_uuid"`
	Parent string   `json:"parent_provider_uuid"`
}

// sharesTrait marks a provider that gives to other trees.
const sharesTrait = "MISC_SHARES_VIA_AGGREGATE"

// HasTrait reports whether any resource provider has a trait. One GET.
func (c *PlacementClient) HasTrait(ctx context.Context, trait string) (bool, error) {
	var answer struct {
		Traits []string `json:"traits"`
	}
	query := url.Values{"name": {"in:" + trait}, "associated": {"true"}}
	if err := c.Send(ctx, &placementclient.Call{Method: http.MethodGet, Path: "/traits?" +
		query.Encode(), Out: &answer}); err != nil {
		return false, fmt.Errorf("asking whether any resource provider has the trait %s: %w", trait, err)
	}
	return len(answer.Traits) > 0, nil
}

const candidatesPath = "/allocation_candidates"

// answersCandidates says whether Placement answers a request for candidates that asks for little.
// One GET.
func (c *PlacementClient) answersCandidates(ctx context.Context) bool {
	query := url.Values{"resources": {classVCPU + ":1"}, "limit": {"1"}}
	return c.Do(ctx, http.MethodGet, candidatesPath+"?"+query.Encode(), nil, &candidatesAnswer{}) == nil
}

// Candidates asks which ways there are to serve a request, in Placement's order. None is no error.
// One GET; two, if the request needs an extension and Placement does not know the microversion of
// the extensions.
//
// The error is an *[InvalidError] where this Placement does not serve such requests.
func (c *PlacementClient) Candidates(ctx context.Context, r CandidateRequest) ([]Candidate, error) {
	all, _, err := c.given(ctx, r)
	return all, err
}

// given are the candidates for a request, and how many Placement gave.
func (c *PlacementClient) given(ctx context.Context, r CandidateRequest) ([]Candidate, int, error) {
	var answer candidatesAnswer
	if err := c.candidates(ctx, r, &answer); err != nil {
		return nil, 0, err
	}
	free := map[string]*Candidate{} // by root: what its tree has left
	for _, s := range answer.Summaries {
		tree := free[s.Root]
		if tree == nil {
			tree = &Candidate{}
			free[s.Root] = tree
		}
		for class, amount := range s.Resources {
			switch class {
			case classMemory:
				tree.FreeMemory += amount.Capacity - amount.Used
			case classVCPU, classPCPU:
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
	return r.accept(answer.Requests, answer.Summaries), len(answer.Requests), nil
}

// rootOf is the root of the compute node that a candidate takes from.
func rootOf(allocations wire.ProviderResources, summaries map[string]providerSummary) string {
	var own, shared []string
	for provider := range allocations {
		s, known := summaries[provider]
		switch {
		case !known:
		case slices.Contains(s.Traits, sharesTrait):
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
