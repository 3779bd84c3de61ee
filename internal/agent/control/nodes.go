// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/audit"
)

// DisableRequest requests to disable or enable one node or all.
type DisableRequest struct {
	// Node is the name of the node; "": all.
	Node string `json:"node,omitempty"`
	// Reason is only for `disable`.
	Reason string `json:"reason,omitempty"`
	// By is the user who requests it.
	By string `json:"by,omitempty"`
}

// Check validates what flags say. enable is for a request to enable nodes.
func (r DisableRequest) Check(enable bool) error {
	if r.Node != "" {
		if err := providertree.ValidateProviderName(r.Node); err != nil {
			return fmt.Errorf("the node: %w", err)
		}
	}
	if enable {
		return nil
	}
	if r.Reason == "" {
		return errors.New("--reason TEXT is required")
	}
	if err := statedir.CheckReason(r.Reason); err != nil {
		return fmt.Errorf("--reason: %w", err)
	}
	return nil
}

// Disabling is the result of disabling or enabling nodes.
type Disabling struct {
	Nodes []DisabledNode `json:"nodes"`
	// Left are the reasons of other sources, which stay.
	Left []statedir.Reason `json:"left,omitempty"`
	// Offline: no agent runs, so its next start updates Placement.
	Offline bool `json:"offline,omitempty"`
}

// Done reports whether Placement is up to date for every node.
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
	// InPlacement is whether its root has COMPUTE_STATUS_DISABLED in Placement; nil: unknown.
	InPlacement *bool `json:"in_placement"`
	// Error is why Placement is not updated, or "".
	Error string `json:"error,omitempty"`
}

// GiveRequest requests to assign a node to another driver.
type GiveRequest struct {
	// Node is its name or its uuid, To the name of the driver.
	Node   string
	To     string
	DryRun bool
}

// Assignment is the result of a [GiveRequest].
type Assignment struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// From is the previous driver, "" for none.
	From string `json:"from"`
	To   string `json:"to"`
	// ViolationGroups are why it was not done.
	ViolationGroups []string `json:"objections,omitempty"`
	// Done means done, not only checked.
	Done bool `json:"given"`
	// Offline: no agent runs, so it takes effect at its next start.
	Offline bool `json:"offline,omitempty"`
}

// RemoveRequest requests to delete a node that no longer exists from Placement.
type RemoveRequest struct {
	// Node is its name or its uuid.
	Node   string
	DryRun bool
}

// Removal is the result of a [RemoveRequest].
type Removal struct {
	Name string `json:"name"`
	UUID string `json:"uuid"`
	// Providers are the resource providers that were deleted, or would be, in that order.
	Providers []RemovedProvider `json:"providers"`
	// ViolationGroups are why it was not done.
	ViolationGroups []string `json:"objections,omitempty"`
	// Removed means done, not only checked.
	Removed bool `json:"removed"`
	// ReportedBy is another host that reports the node now, "" for none. Then nothing is deleted in
	// Placement: this agent forgets the node.
	ReportedBy string `json:"reported_by,omitempty"`
	// NotNamed means that the certificate of this host is for other nodes: as with ReportedBy, the
	// agent only forgets the node.
	NotNamed bool `json:"not_named,omitempty"`
	// Unchecked means that it is not known whether another host reports the node.
	Unchecked bool `json:"unchecked,omitempty"`
}

// RemovedProvider is one resource provider of a node that is removed.
type RemovedProvider struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
}

// Adoption is the plan and result of `compute-agent adopt`.
type Adoption struct {
	// Node is the name of the node, UUID its new identity, Before the previous one, "" for none.
	Node   string `json:"node"`
	UUID   string `json:"uuid,omitempty"`
	Before string `json:"uuid_before,omitempty"`
	// Providers are what Placement has, in pre-order.
	Providers []AdoptedProvider `json:"providers"`
	// Steps are done in order; none: nothing to do.
	Steps []string `json:"steps"`
	// Servers are the uuids of those that the cell has on this host; none without a cell.
	Servers []string `json:"servers,omitempty"`
	// ServersUnknown is why it is not known which those are. WithServers is what the flag of this
	// name has to say, for the plan to be carried out; "": nothing.
	ServersUnknown string `json:"servers_unknown,omitempty"`
	WithServers    string `json:"with_servers,omitempty"`
	// Unknown are items that a node may have had before it was adopted, so they stay.
	Unknown []string `json:"unknown,omitempty"`
	// Done means done, not only planned.
	Done bool `json:"done"`
}

// AdoptedProvider is a resource provider of an adoption.
type AdoptedProvider struct {
	UUID   string `json:"uuid"`
	Name   string `json:"name"`
	Parent string `json:"parent_provider_uuid,omitempty"`
	// NewName is its new name, or "".
	NewName string `json:"new_name,omitempty"`
	// Inventories are totals by resource class.
	Inventories map[string]int64 `json:"inventories"`
	Traits      []string         `json:"traits"`
	// Consumers counts consumers with allocations.
	Consumers int `json:"consumers"`
}

// Disable disables nodes.
func (c *Client) Disable(ctx context.Context, r DisableRequest) (Disabling, error) {
	return post[Disabling](ctx, c, "disable", r)
}

// Enable enables nodes.
func (c *Client) Enable(ctx context.Context, r DisableRequest) (Disabling, error) {
	return post[Disabling](ctx, c, "enable", r)
}

// Nodes returns the nodes that the agent reports or has reported.
func (c *Client) Nodes(ctx context.Context) (statedir.Nodes, error) {
	return get[statedir.Nodes](ctx, c, "nodes")
}

// RemoveNode deletes a node that no longer exists from Placement.
func (c *Client) RemoveNode(ctx context.Context, r RemoveRequest) (Removal, error) {
	return post[Removal](ctx, c, fmt.Sprintf("nodes/%s/remove?dry_run=%t", url.PathEscape(r.Node), r.DryRun), nil)
}

// GiveNode assigns a node to another driver.
func (c *Client) GiveNode(ctx context.Context, r GiveRequest) (Assignment, error) {
	return post[Assignment](ctx, c, fmt.Sprintf("nodes/%s/give?to=%s&dry_run=%t",
		url.PathEscape(r.Node), url.QueryEscape(r.To), r.DryRun), nil)
}

// Audit compares allocations with guests.
func (c *Client) Audit(ctx context.Context, r audit.Request) (audit.Report, error) {
	return post[audit.Report](ctx, c, "audit", r)
}

// HealAllocations creates allocations for guests that have none.
func (c *Client) HealAllocations(ctx context.Context, r audit.HealRequest) (audit.Report, error) {
	return post[audit.Report](ctx, c, "allocations/heal", r)
}

func post[T any](ctx context.Context, c *Client, what string, request any) (out T, err error) {
	body, err := json.Marshal(request)
	if err != nil {
		return out, err
	}
	answer, err := c.send(ctx, http.MethodPost, what, body)
	if err != nil {
		return out, err
	}
	return Decode[T](answer)
}
