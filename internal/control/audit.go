// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// AuditRequest asks what does not fit together between the allocations in Placement and the guests that the drivers list.
type AuditRequest struct {
	// Node is the name of the node that is reported; "": all.
	Node string `json:"node,omitempty"`
	// Heal has orphaned allocations deleted for which there is proof; DryRun says only which those are.
	Heal   bool `json:"heal,omitempty"`
	DryRun bool `json:"dry_run,omitempty"`
	// MinAge is how old an orphaned allocation must be, and how long its guest must have gone.
	MinAge time.Duration `json:"min_age_ns"`
	// Consumers are those of which a person says that they were guests and are no more.
	Consumers []string `json:"consumers,omitempty"`
}

// HealRequest asks for allocations for the guests that have none.
type HealRequest struct {
	Node   string `json:"node,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	// IncompleteProject and IncompleteUser stand for the owner of a guest of whom the driver does not know one.
	IncompleteProject string `json:"incomplete_project,omitempty"`
	IncompleteUser    string `json:"incomplete_user,omitempty"`
}

// auditAgent is what the daemon lets be asked of it about allocations.
type auditAgent interface {
	// Audit compares, and deletes if that was asked for.
	Audit(ctx context.Context, r AuditRequest) (audit.Report, error)
	// HealAllocations compares, and makes allocations for guests that have none.
	HealAllocations(ctx context.Context, r HealRequest) (audit.Report, error)
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
func (c *Client) Audit(ctx context.Context, r AuditRequest) (audit.Report, error) {
	return post[audit.Report](ctx, c, "audit", r)
}

// HealAllocations has the agent make allocations for guests that have none.
func (c *Client) HealAllocations(ctx context.Context, r HealRequest) (audit.Report, error) {
	return post[audit.Report](ctx, c, "allocations/heal", r)
}
