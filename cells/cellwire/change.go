// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"context"
	"time"

	"github.com/compute-agent/compute-agent/internal/agentruns"
)

// DeleteKind is how a server is to be deleted.
type DeleteKind string

// The kinds.
const (
	// DeleteNormal deletes the server. If its host is up, the host removes the guest (task_state
	// deleting), and its report deletes the row. Otherwise the row is deleted at once, and the host
	// cleans up when it is back.
	DeleteNormal DeleteKind = "normal"
	// DeleteSoft shuts the guest down and keeps all of it until it is restored or reclaimed.
	DeleteSoft DeleteKind = "soft"
	// DeleteReclaim is DeleteNormal of a softly deleted server. It is refused (conflict) if the
	// server is not softly deleted any more, because it was restored.
	DeleteReclaim DeleteKind = "reclaim"
)

// DeleteRequest asks a cell to delete a server, whatever state it is in. Repeating it changes
// nothing.
type DeleteRequest struct {
	Kind DeleteKind `json:"kind"`
}

// DeleteAnswer is the state of the server after a DeleteRequest.
type DeleteAnswer struct {
	Server Server `json:"server"`
	// Local says that the row was deleted without the host. The caller then removes the
	// allocations, and reports that (…/freed).
	Local bool `json:"local,omitempty"`
}

// Unfinished is what the compute API must finish.
type Unfinished struct {
	// Epoch and Revision are those of CellInfo at the time of the answer: the caller trusts the
	// answer as much as this database. They are zero in answers of older cells.
	Epoch    string `json:"epoch,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// Hidden are servers that were inserted some time ago and not released yet.
	Hidden []UnfinishedServer `json:"hidden,omitempty"`
	// Unfreed are servers that the cell deleted, whose allocations the compute API has to remove.
	Unfreed []UnfinishedServer `json:"unfreed,omitempty"`
	// Reclaimable are servers that were softly deleted before the time in the request.
	Reclaimable []UnfinishedServer `json:"reclaimable,omitempty"`
}

// UnfinishedServer is one of them.
type UnfinishedServer struct {
	UUID      string    `json:"uuid"`
	ProjectID string    `json:"project_id"`
	Since     time.Time `json:"since"`
}

// CellInfo is who a cell is.
type CellInfo struct {
	Name string `json:"name"`
	// Epoch identifies the database. Revisions of databases with different epochs cannot be
	// compared.
	Epoch string `json:"epoch"`
	// Revision is the revision of the last change. It is stored in the database and never
	// decreases: within an epoch, a lower revision than before means that the database is an older
	// copy.
	Revision int64 `json:"revision,omitempty"`
	// Term is the highest in a HeaderTerm; 0 in answers of older cells.
	Term    int64     `json:"term,omitempty"`
	Version string    `json:"version"`
	Now     time.Time `json:"now"`
}

// HeaderCell is the request header that names the addressed cell, escaped like a path segment.
const HeaderCell = "X-Compute-Agent-Cell"

// Discovery is all that a boot asks of a cell.
type Discovery struct {
	Usage    Usage         `json:"usage"`
	Services []Service     `json:"services"` // of hosts
	Nodes    []ComputeNode `json:"nodes"`
}

// OnlyUsage is the value of the query's "only" that leaves hosts out of a discovery: what counts
// for quotas is a few bytes, and hosts may be thousands.
const OnlyUsage = "usage"

// Usage is what a project has in a cell: servers that are neither deleted nor softly deleted nor
// hidden.
type Usage struct {
	Instances int64 `json:"instances"`
	Cores     int64 `json:"cores"`
	RAM       int64 `json:"ram"` // MiB
}

// Service is a service of a host, as it was reported last.
type Service struct {
	UUID           string     `json:"uuid"`
	ID             int64      `json:"id"`
	Host           string     `json:"host"`
	Binary         string     `json:"binary"`
	Disabled       bool       `json:"disabled"`
	DisabledReason string     `json:"disabled_reason,omitempty"`
	ForcedDown     bool       `json:"forced_down"`
	Up             bool       `json:"up"` // it showed life within the time, and is not forced down; by the cell's clock
	LastSeenUp     *time.Time `json:"last_seen_up,omitempty"`
	UpdatedAt      *time.Time `json:"updated_at,omitempty"`
	Version        string     `json:"version,omitempty"`
	// Auth is how the hosts of the cell show who they are, where all services are listed; "": the
	// cell is of an older version.
	Auth HostAuth `json:"auth,omitempty"`
	// Contested are the uuids of its nodes that get no new servers, because it is not certain whose
	// they are.
	Contested []string `json:"contested,omitempty"`
	// SeveralAgents says that several agents report as the host, and Agents which, where all
	// services are listed.
	SeveralAgents bool                `json:"twice,omitempty"`
	Agents        []agentruns.Process `json:"agents,omitempty"`
	// Turn is the number of the answer to a report, see HostState.
	Turn int64 `json:"-"`
	// UpdatedAt is the time of the last change of the service, heartbeats included.
}

// ServicePatch changes a service; nil changes nothing.
type ServicePatch struct {
	Disabled       *bool   `json:"disabled,omitempty"`
	DisabledReason *string `json:"disabled_reason,omitempty"` // "" removes it
	ForcedDown     *bool   `json:"forced_down,omitempty"`
}

// ComputeNode is a node of a host: a root provider.
type ComputeNode struct {
	UUID   string `json:"uuid"`
	Host   string `json:"host"`
	Name   string `json:"hypervisor_hostname"`
	Mapped bool   `json:"mapped"`
	// Servers is how many servers it has that are not deleted, where that was asked for.
	Servers int64 `json:"servers,omitempty"`
	// Abilities are what its host reported that it can do with servers on the node.
	Abilities []string `json:"abilities,omitempty"`
	// Details are what its host reported of it last.
	Details NodeDetails `json:"details,omitzero"`
	// Auth is how the host showed who it is when it reported the node; "": the cell, or its report,
	// is of an older version.
	Auth HostAuth `json:"auth,omitempty"`
	// Named says that the certificate of the host names the node.
	Named bool `json:"named,omitempty"`
	// Claims are other hosts that report the node too.
	Claims []NodeClaim `json:"claims,omitempty"`
	// Problem is why the compute API does not use the node, as it said so last.
	Problem string `json:"problem,omitempty"`
	// Agents are the processes that report as its host. It is empty unless there are several.
	Agents []agentruns.Process `json:"agents,omitempty"`
}

// MappedRequest says that compute nodes are in the API database.
type MappedRequest struct {
	UUIDs []string `json:"uuids"`
}

// HeaderTerm is the header with the term of the process of the compute API that sends a change: a
// whole number that grows with each takeover. A cell refuses ([CodeOutdated]) a change with a lower
// term than an earlier one. Without the header, the compute API is a single process or of an older
// version.
const HeaderTerm = "X-Compute-Agent-Term"

type termKey struct{}

// WithTerm returns a context for changes with a term; 0: without one.
func WithTerm(ctx context.Context, term int64) context.Context {
	return context.WithValue(ctx, termKey{}, term)
}

// TermOf returns the term of a context; 0: it has no term.
func TermOf(ctx context.Context) int64 {
	term, _ := ctx.Value(termKey{}).(int64)
	return term
}
