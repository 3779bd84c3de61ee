// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// Agent is the daemon, as the control socket serves it.
type Agent interface {
	Status(ctx context.Context) health.Status
	Configuration() Configuration
	Tree(ctx context.Context, opts TreeOptions) (Tree, error)
	Plan(ctx context.Context, opts resourcetracker.PlanOptions) (Plan, error)
	// Refresh requests a pass over every node that first compares its tree with Placement. It does
	// not wait.
	Refresh(ctx context.Context)
	// UndoReshape undoes a reshape by its number in the journal.
	UndoReshape(ctx context.Context, id int64) error
	// Disable and Enable disable and enable nodes, and wait some time for Placement to be updated.
	Disable(ctx context.Context, r DisableRequest) (Disabling, error)
	Enable(ctx context.Context, r DisableRequest) (Disabling, error)
	// Nodes lists the nodes that are, or were, reported.
	Nodes(ctx context.Context) (statedir.Nodes, error)
	// RemoveNode deletes a node that no longer exists.
	RemoveNode(ctx context.Context, r RemoveRequest) (Removal, error)
	// GiveNode assigns a node to another driver.
	GiveNode(ctx context.Context, r GiveRequest) (Assignment, error)
	// Audit compares allocations with guests, and deletes orphaned ones on request.
	Audit(ctx context.Context, r audit.Request) (audit.Report, error)
	// HealAllocations creates allocations for guests that have none.
	HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error)
}

// MetricsSource is an Agent with metrics and readiness, which GET /metrics, /healthz and /readyz
// serve, also without the key.
type MetricsSource interface {
	Metrics() http.Handler
	Readiness(ctx context.Context) osapi.Readiness
}

// DriverSource is an Agent with drivers, from whose processes no requests are answered.
type DriverSource interface {
	// DriverOf returns the driver whose process, or a descendant of it, a process is; "" for none.
	DriverOf(pid int) string
}

func handler(agent Agent) http.Handler {
	mux := http.NewServeMux()
	answers := func(pattern string, get func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := get(r)
			answer(w, body, err)
		})
	}
	answers("GET /v1/status", func(r *http.Request) (any, error) { return agent.Status(r.Context()), nil })
	answers("GET /v1/configuration", func(*http.Request) (any, error) { return agent.Configuration(), nil })
	answers("GET /v1/tree", func(r *http.Request) (any, error) {
		return agent.Tree(r.Context(), TreeOptions{Servers: r.URL.Query().Get("servers") == "true"})
	})
	answers("GET /v1/plan", func(r *http.Request) (any, error) {
		return agent.Plan(r.Context(), resourcetracker.PlanOptions{Reshape: r.URL.Query().Get("reshape") == "true"})
	})
	answers("GET /v1/nodes", func(r *http.Request) (any, error) { return agent.Nodes(r.Context()) })
	answers("POST /v1/nodes/{node}/remove", func(r *http.Request) (any, error) {
		dryRun := r.URL.Query().Get("dry_run") == "true"
		return agent.RemoveNode(r.Context(), RemoveRequest{Node: r.PathValue("node"), DryRun: dryRun})
	})
	answers("POST /v1/nodes/{node}/give", func(r *http.Request) (any, error) {
		to, dryRun := r.URL.Query().Get("to"), r.URL.Query().Get("dry_run") == "true"
		return agent.GiveNode(r.Context(), GiveRequest{Node: r.PathValue("node"), To: to, DryRun: dryRun})
	})
	answers("POST /v1/refresh", func(r *http.Request) (any, error) {
		agent.Refresh(r.Context())
		return struct{}{}, nil
	})
	answers("POST /v1/reshapes/{id}/undo", func(r *http.Request) (any, error) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err == nil {
			err = agent.UndoReshape(r.Context(), id)
		}
		return struct{}{}, err
	})
	mux.HandleFunc("POST /v1/disable", handle(agent.Disable))
	mux.HandleFunc("POST /v1/enable", handle(agent.Enable))
	mux.HandleFunc("POST /v1/audit", handle(agent.Audit))
	mux.HandleFunc("POST /v1/allocations/heal", handle(agent.HealAllocations))
	return mux
}

type failure struct {
	Error string `json:"error"`
	// Refused means refused to protect data.
	Refused bool `json:"refused,omitempty"`
}

func answer(w http.ResponseWriter, body any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		var refused *reshape.UndoError
		status := http.StatusServiceUnavailable
		if errors.As(err, &refused) {
			status = http.StatusConflict
		}
		w.WriteHeader(status)
		body = failure{Error: err.Error(), Refused: status == http.StatusConflict}
	}
	encode(w, body)
}

func encode(w http.ResponseWriter, body any) {
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}

// maxRequest limits the body of a request.
const maxRequest = 64 << 10

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
