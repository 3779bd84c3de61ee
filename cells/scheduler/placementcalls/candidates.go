// SPDX-License-Identifier: Apache-2.0

package placementcalls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// HasTrait reports whether any resource provider has a trait. One GET.
func (c *Client) HasTrait(ctx context.Context, trait string) (bool, error) {
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

// AnswersCandidates reports whether Placement answers a request for candidates that asks for
// little. One GET.
func (c *Client) AnswersCandidates(ctx context.Context) bool {
	query := url.Values{"resources": {resourcerequest.ClassVCPU + ":1"}, "limit": {"1"}}
	return c.Do(ctx, http.MethodGet, candidatesPath+"?"+query.Encode(), nil, &resourcerequest.Answer{}) == nil
}

// Candidates asks which ways there are to serve a request, in Placement's order. None is no error.
// One GET; two, if the request needs an extension and Placement does not know the microversion of
// the extensions.
//
// The error is a *[resourcerequest.InvalidError] where this Placement does not serve such requests.
func (c *Client) Candidates(ctx context.Context, r resourcerequest.Request) ([]resourcerequest.Candidate, error) {
	all, _, err := c.queryCandidates(ctx, r)
	return all, err
}

// queryCandidates returns the candidates for a request, and how many Placement returned.
func (c *Client) queryCandidates(
	ctx context.Context, r resourcerequest.Request,
) ([]resourcerequest.Candidate, int, error) {
	var answer resourcerequest.Answer
	if err := c.candidates(ctx, r, &answer); err != nil {
		return nil, 0, err
	}
	return r.Candidates(&answer), len(answer.Requests), nil
}

// AsksCandidates reports whether a request that failed was one for candidates.
func AsksCandidates(failed *placementclient.Error) bool {
	return strings.HasPrefix(failed.Path, candidatesPath+"?")
}

// Ask makes the requests of a stage, at least one, at the same time, in one tree, or in all (""):
// see [resourcerequest.Request.Stages]. The candidates are those of all requests in turn, at most
// the limit of the first; more says that Placement may have others.
func (c *Client) Ask(
	ctx context.Context, requests []resourcerequest.Request, tree string,
) (candidates []resourcerequest.Candidate, more bool, err error) {
	answers := make([]struct {
		candidates []resourcerequest.Candidate
		returned   int
		err        error
	}, len(requests))
	var wait sync.WaitGroup
	for i, r := range requests {
		r.InTree = tree
		wait.Go(func() {
			a := &answers[i]
			a.candidates, a.returned, a.err = c.queryCandidates(ctx, r)
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
		more = more || a.returned >= r.MaxCandidates()
	}
	return merge(found, requests[0].MaxCandidates()), more, nil
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
