// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// Check asks whether this Placement serves requests like r at all. The error is an *[InvalidError]
// if it does not: the request has several groups and no group_policy, and Placement requires one.
// Any other error says nothing about r.
//
// It makes no request if r needs no extension of Placement, or if the last request that needed it
// was granted it. Otherwise it is [Client.Candidates] for one candidate.
func (c *Client) Check(ctx context.Context, r Request) error {
	if !r.lacksPolicy() || c.optionalPolicy.Load() {
		return nil
	}
	r.Limit = 1
	return c.candidates(ctx, r, &candidatesAnswer{})
}

// candidates is GET /allocation_candidates.
func (c *Client) candidates(ctx context.Context, r Request, out *candidatesAnswer) error {
	q := &call{method: http.MethodGet, path: "/allocation_candidates", query: r.Query(), out: out, version: Microversion}
	if r.lacksPolicy() {
		q.version, q.extension = wire.MaxVersion.String(), wire.ExtGroupPolicy
	}
	failed := c.carry(ctx, q)
	if failed != nil && failed.Status == http.StatusNotAcceptable && q.extension != "" {
		// Extensions that are granted to all clients are granted at older microversions, too.
		q.version = Microversion
		failed = c.carry(ctx, q)
	}
	if r.lacksPolicy() && (failed == nil || errors.Is(failed, ErrInvalid)) {
		granted := q.grants(wire.ExtGroupPolicy)
		c.optionalPolicy.Store(granted)
		if !granted {
			return r.policyRequired()
		}
	}
	if failed != nil {
		return fmt.Errorf("asking for allocation candidates: %w", failed)
	}
	return nil
}

// grants reports whether the answer is that of a Placement that granted the extension. Without the
// header, it is that of a Placement that has no extensions.
func (q *call) grants(extension string) bool {
	for _, value := range q.granted {
		for name := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(name), extension) {
				return true
			}
		}
	}
	return false
}
