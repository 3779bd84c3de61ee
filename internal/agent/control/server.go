// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/resourcetracker"
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

	nodesAgent
	auditAgent
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
	handleNodes(mux, agent)
	handleAudit(mux, agent)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) { answer(w, agent.Status(r.Context()), nil) })
	mux.HandleFunc("GET /v1/configuration", func(w http.ResponseWriter, _ *http.Request) { answer(w, agent.Configuration(), nil) })
	mux.HandleFunc("GET /v1/tree", func(w http.ResponseWriter, r *http.Request) {
		tree, err := agent.Tree(r.Context(), TreeOptions{Servers: r.URL.Query().Get("servers") == "true"})
		answer(w, tree, err)
	})
	mux.HandleFunc("GET /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		plan, err := agent.Plan(r.Context(), resourcetracker.PlanOptions{Reshape: r.URL.Query().Get("reshape") == "true"})
		answer(w, plan, err)
	})
	mux.HandleFunc("POST /v1/refresh", func(w http.ResponseWriter, r *http.Request) {
		agent.Refresh(r.Context())
		answer(w, struct{}{}, nil)
	})
	mux.HandleFunc("POST /v1/reshapes/{id}/undo", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err == nil {
			err = agent.UndoReshape(r.Context(), id)
		}
		answer(w, struct{}{}, err)
	})
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
		var refused *resourcetracker.UndoError
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
