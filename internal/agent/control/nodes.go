// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/disabled"
)

// DisableRequest asks that nothing new be scheduled to one node or all, or that this end.
type DisableRequest struct {
	// Node is the name of the node; "": all.
	Node string `json:"node,omitempty"`
	// Reason is asked for by `disable` only.
	Reason string `json:"reason,omitempty"`
	// By is the person who asks.
	By string `json:"by,omitempty"`
}

// Disabling is how far disabling or enabling has come.
type Disabling struct {
	Nodes []DisabledNode `json:"nodes"`
	// Left are the reasons of others, which stay.
	Left []disabled.Reason `json:"left,omitempty"`
	// Offline: no agent runs, so Placement is told at its next start.
	Offline bool `json:"offline,omitempty"`
}

// Done reports whether Placement has it for every node.
func (d Disabling) Done() bool {
	for _, n := range d.Nodes {
		if n.InPlacement == nil || *n.InPlacement != n.Disabled {
			return false
		}
	}
	return len(d.Nodes) > 0
}

// DisabledNode is one node that was disabled or enabled.
type DisabledNode struct {
	Node     string `json:"node"`
	UUID     string `json:"uuid"`
	Disabled bool   `json:"disabled"`
	Reason   string `json:"reason,omitempty"`
	// InPlacement is whether its root has COMPUTE_STATUS_DISABLED in Placement; nil: not known.
	InPlacement *bool `json:"in_placement"`
	// Error is what keeps Placement from being told, if anything.
	Error string `json:"error,omitempty"`
}

// Nodes is the answer of `compute-agent node list`.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// Node is a compute node that this agent reports, or has reported.
type Node struct {
	Name   string `json:"name"`
	UUID   string `json:"uuid"`
	Driver string `json:"driver"`
	// State is that of the report, "orphaned" for one that no driver names any more, "" if no agent runs that could tell.
	State string `json:"state,omitempty"`
	// Since is when it was first known to be in Placement; zero: not yet.
	Since time.Time `json:"reported_since,omitzero"`
	// Created says that this agent made the node's root provider.
	Created bool   `json:"created"`
	Error   string `json:"error,omitempty"`
}

// StateOrphaned is the state of a node that was reported and that no driver names any more.
const StateOrphaned = "orphaned"

// StateHeld is the state of a node that a driver names and has not: its owner does not name it, or it has none.
const StateHeld = "held"

// GiveRequest asks that a node belong to another driver from now on.
type GiveRequest struct {
	// Node is its name or its uuid, To the name of the driver.
	Node   string
	To     string
	DryRun bool
}

// Gift is what became of a [GiveRequest].
type Gift struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// From is the driver that had it, "" for none.
	From string `json:"from"`
	To   string `json:"to"`
	// Objections are all that stands against it. Then nothing was written.
	Objections []string `json:"objections,omitempty"`
	// Given says that it was done, and not only looked at.
	Given bool `json:"given"`
	// Offline: no agent runs, so the drivers change places at its next start.
	Offline bool `json:"offline,omitempty"`
}

// RemoveRequest asks that a node that is there no more be deleted from Placement.
type RemoveRequest struct {
	// Node is its name or its uuid.
	Node   string
	DryRun bool
}

// Removal is what became of a [RemoveRequest].
type Removal struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// Providers are those that are deleted, or would be, in that order.
	Providers []RemovedProvider `json:"providers"`
	// Objections are all that stands against it. Then nothing was written.
	Objections []string `json:"objections,omitempty"`
	// Removed says that it was done, and not only looked at.
	Removed bool `json:"removed"`
}

// RemovedProvider is one resource provider of a node that is removed.
type RemovedProvider struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
}

// Adoption is what `compute-agent adopt` found, and what it does or would do.
type Adoption struct {
	// Node is the name of the node, UUID the identity that it has afterwards, Before the one that it had, "" for none.
	Node   string `json:"node"`
	UUID   string `json:"uuid,omitempty"`
	Before string `json:"uuid_before,omitempty"`
	// Providers are what Placement has, in pre-order.
	Providers []AdoptedProvider `json:"providers"`
	// Steps say what is done, in order; none: nothing is left to do.
	Steps []string `json:"steps"`
	// Unknown is what a node that is given back may have had before it was adopted, or not: it stays.
	Unknown []string `json:"unknown,omitempty"`
	// Done says that it was done, and not only looked at.
	Done bool `json:"done"`
}

// AdoptedProvider is one resource provider that an adoption is about.
type AdoptedProvider struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Parent string `json:"parent_provider_uuid,omitempty"`
	// NewName is what it is renamed to, or "".
	NewName string `json:"new_name,omitempty"`
	// Inventories are totals by resource class.
	Inventories map[string]int64 `json:"inventories"`
	Traits      []string         `json:"traits"`
	// Consumers is how many hold something of it.
	Consumers int `json:"consumers"`
}

// nodesAgent is what the daemon lets be asked of it about its nodes.
type nodesAgent interface {
	// Disable has nothing new scheduled to nodes; Enable ends that. Both wait a while for Placement to have it.
	Disable(ctx context.Context, r DisableRequest) (Disabling, error)
	Enable(ctx context.Context, r DisableRequest) (Disabling, error)
	// Nodes lists the nodes that are, or were, reported.
	Nodes(ctx context.Context) (Nodes, error)
	// RemoveNode deletes one that is there no more.
	RemoveNode(ctx context.Context, r RemoveRequest) (Removal, error)
	// GiveNode makes one another driver's.
	GiveNode(ctx context.Context, r GiveRequest) (Gift, error)
}

// maxRequest bounds the body of a request.
const maxRequest = 64 << 10

func handleNodes(mux *http.ServeMux, agent nodesAgent) {
	change := func(do func(context.Context, DisableRequest) (Disabling, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var request DisableRequest
			if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request); err != nil {
				answer(w, nil, fmt.Errorf("the request cannot be read: %w", err))
				return
			}
			out, err := do(r.Context(), request)
			answer(w, out, err)
		}
	}
	mux.HandleFunc("POST /v1/disable", change(agent.Disable))
	mux.HandleFunc("POST /v1/enable", change(agent.Enable))
	mux.HandleFunc("GET /v1/nodes", func(w http.ResponseWriter, r *http.Request) {
		nodes, err := agent.Nodes(r.Context())
		answer(w, nodes, err)
	})
	mux.HandleFunc("POST /v1/nodes/{node}/remove", func(w http.ResponseWriter, r *http.Request) {
		out, err := agent.RemoveNode(r.Context(), RemoveRequest{Node: r.PathValue("node"), DryRun: r.URL.Query().Get("dry_run") == "true"})
		answer(w, out, err)
	})
	mux.HandleFunc("POST /v1/nodes/{node}/give", func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		out, err := agent.GiveNode(r.Context(), GiveRequest{Node: r.PathValue("node"), To: query.Get("to"), DryRun: query.Get("dry_run") == "true"})
		answer(w, out, err)
	})
}

// Disable has the agent keep anything new from its nodes.
func (c *Client) Disable(ctx context.Context, r DisableRequest) (Disabling, error) {
	return post[Disabling](ctx, c, "disable", r)
}

// Enable ends what Disable began.
func (c *Client) Enable(ctx context.Context, r DisableRequest) (Disabling, error) {
	return post[Disabling](ctx, c, "enable", r)
}

// Nodes asks for the nodes that the agent reports, or has reported.
func (c *Client) Nodes(ctx context.Context) (Nodes, error) { return get[Nodes](ctx, c, "nodes") }

// RemoveNode has the agent delete a node from Placement that is there no more.
func (c *Client) RemoveNode(ctx context.Context, r RemoveRequest) (Removal, error) {
	return post[Removal](ctx, c, fmt.Sprintf("nodes/%s/remove?dry_run=%t", url.PathEscape(r.Node), r.DryRun), nil)
}

// GiveNode has the agent make a node another driver's.
func (c *Client) GiveNode(ctx context.Context, r GiveRequest) (Gift, error) {
	return post[Gift](ctx, c, fmt.Sprintf("nodes/%s/give?to=%s&dry_run=%t", url.PathEscape(r.Node), url.QueryEscape(r.To), r.DryRun), nil)
}

func post[T any](ctx context.Context, c *Client, what string, request any) (T, error) {
	var out T
	body, err := json.Marshal(request)
	if err != nil {
		return out, err
	}
	answer, err := c.send(ctx, http.MethodPost, what, body)
	if err != nil {
		return out, err
	}
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf("the agent's answer cannot be read; is it of another version than this command? %w", err)
	}
	return out, nil
}
