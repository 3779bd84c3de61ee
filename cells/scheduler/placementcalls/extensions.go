// SPDX-License-Identifier: Apache-2.0

package placementcalls

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// Check asks whether this Placement serves requests like r at all. The error is a
// *[resourcerequest.InvalidError] if it does not: the request has several groups and no
// group_policy, and Placement requires one. Any other error says nothing about r.
//
// It makes no request if r needs no extension of Placement, or if the last request that needed it
// was granted it. Otherwise it is [Client.Candidates] for one candidate.
func (c *Client) Check(ctx context.Context, r resourcerequest.Request) error {
	if !r.LacksPolicy() || c.optionalPolicy.Load() {
		return nil
	}
	r.Limit = 1
	return c.candidates(ctx, r, &resourcerequest.Answer{})
}

// candidates is GET /allocation_candidates. Aggregates of the root are asked for with
// root_member_of, or where there is no such extension with member_of, as Nova does.
func (c *Client) candidates(ctx context.Context, r resourcerequest.Request, out *resourcerequest.Answer) error {
	r.RootMemberOf = r.Confined() && c.nextAsksRoots()
	call := &placementclient.Call{Method: http.MethodGet, Path: candidatesPath + "?" + r.Query().Encode(), Out: out}
	if wanted := r.Extensions(); len(wanted) > 0 {
		call.Microversion, call.Extensions = wire.Version(wire.RequestedExtensions).String(), strings.Join(wanted, ", ")
	}
	failed := c.Send(ctx, call)
	if errors.Is(failed, placementclient.ErrTooOld) && call.Extensions != "" {
		// Extensions that are granted to all clients are granted at older microversions, too.
		call.Microversion = Microversion
		failed = c.Send(ctx, call)
	}
	answered := failed == nil || errors.Is(failed, placementclient.ErrInvalid)
	if r.RootMemberOf && answered && !grantsExtension(call.Header, wire.ExtRootMemberOf) {
		c.withoutRoots.Store(rootsRetryAfter)
		*out = resourcerequest.Answer{}
		return c.candidates(ctx, r, out)
	}
	if r.LacksPolicy() && answered {
		granted := grantsExtension(call.Header, wire.ExtGroupPolicy)
		c.optionalPolicy.Store(granted)
		if !granted {
			return r.PolicyRequired()
		}
	}
	if failed != nil {
		return fmt.Errorf("asking for allocation candidates: %w", failed)
	}
	return nil
}

// rootsRetryAfter is how many requests go without root_member_of after one was refused it: then it
// is tried again, because Placement may be another one.
const rootsRetryAfter = 100

// nextAsksRoots says whether the next request is to ask for root_member_of.
func (c *Client) nextAsksRoots() bool {
	for {
		left := c.withoutRoots.Load()
		if left <= 0 {
			return true
		}
		if c.withoutRoots.CompareAndSwap(left, left-1) {
			return false
		}
	}
}

// grantsExtension reports whether the answer is that of a Placement that granted the extension.
// Without the header, it is that of a Placement that has no extensions.
func grantsExtension(answer http.Header, extension string) bool {
	for _, value := range answer[wire.HeaderExtensions] {
		for name := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(name), extension) {
				return true
			}
		}
	}
	return false
}
