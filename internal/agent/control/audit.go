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

// auditAgent is the part of [Agent] for allocations.
type auditAgent interface {
	// Audit compares allocations with guests, and deletes orphaned ones on request.
	Audit(ctx context.Context, r audit.Request) (audit.Report, error)
	// HealAllocations creates allocations for guests that have none.
	HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error)
}

func handleAudit(mux *http.ServeMux, agent auditAgent) {
	mux.HandleFunc("POST /v1/audit", handle(agent.Audit))
	mux.HandleFunc("POST /v1/allocations/heal", handle(agent.HealAllocations))
}

// handle decodes a request and answers it.
func handle[In, Out any](do func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var request In
		if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request); err != nil {
			answer(w, nil, fmt.Errorf("decoding the request: %w", err))
			return
		}
		out, err := do(r.Context(), request)
		answer(w, out, err)
	}
}

// Audit compares allocations with guests.
func (c *Client) Audit(ctx context.Context, r audit.Request) (audit.Report, error) {
	return post[audit.Report](ctx, c, "audit", r)
}

// HealAllocations creates allocations for guests that have none.
func (c *Client) HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error) {
	return post[audit.Report](ctx, c, "allocations/heal", r)
}
