// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
)

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
	query := url.Values{"resources": {resourcerequest.ClassVCPU + ":1"}, "limit": {"1"}}
	return c.Do(ctx, http.MethodGet, candidatesPath+"?"+query.Encode(), nil, &resourcerequest.Answer{}) == nil
}

// Candidates asks which ways there are to serve a request, in Placement's order. None is no error.
// One GET; two, if the request needs an extension and Placement does not know the microversion of
// the extensions.
//
// The error is a *[resourcerequest.InvalidError] where this Placement does not serve such requests.
func (c *PlacementClient) Candidates(
	ctx context.Context, r resourcerequest.Request,
) ([]resourcerequest.Candidate, error) {
	all, _, err := c.given(ctx, r)
	return all, err
}

// given are the candidates for a request, and how many Placement gave.
func (c *PlacementClient) given(
	ctx context.Context, r resourcerequest.Request,
) ([]resourcerequest.Candidate, int, error) {
	var answer resourcerequest.Answer
	if err := c.candidates(ctx, r, &answer); err != nil {
		return nil, 0, err
	}
	return r.Candidates(&answer), len(answer.Requests), nil
}
