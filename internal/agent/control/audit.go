// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// auditAgent is what the daemon lets be asked of it about allocations.
type auditAgent interface {
	// Audit compares, and deletes if that was asked for.
	Audit(ctx context.Context, r audit.Request) (audit.Report, error)
	// HealAllocations compares, and makes allocations for guests that have none.
	HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error)
}

func handleAudit(mux *http.ServeMux, agent auditAgent) {
	mux.HandleFunc("POST /v1/audit", asked(agent.Audit))
	mux.HandleFunc("POST /v1/allocations/heal", asked(agent.HealAllocations))
}

// asked decodes a request and answers it.
func asked[In, Out any](do func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request In
		if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request); err != nil {
			answer(w, nil, fmt.Errorf("the request cannot be read: %w", err))
			return
		}
		out, err := do(r.Context(), request)
		answer(w, out, err)
	}
}

// Audit has the agent compare allocations with guests.
func (c *Client) Audit(ctx context.Context, r audit.Request) (audit.Report, error) {
	return post[audit.Report](ctx, c, "audit", r)
}

// HealAllocations has the agent make allocations for guests that have none.
func (c *Client) HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error) {
	return post[audit.Report](ctx, c, "allocations/heal", r)
}
