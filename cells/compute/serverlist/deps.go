// SPDX-License-Identifier: Apache-2.0

package serverlist

import (
	"context"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// Deps are all that the calls of this package may touch.
type Deps struct {
	Store Store
	// Gatherer asks the cells.
	Gatherer *gather.Gatherer
	// Servers shows servers.
	Servers serverview.Servers
	// MaxLimit is how many records a list has at most.
	MaxLimit int
	// ListSkipsDownCells says that lists that cannot have minimal records leave out the servers of
	// cells that are down; otherwise they are refused with 500.
	ListSkipsDownCells bool
	// PerProjectCells asks only the cells that a project has servers in, for lists of members.
	PerProjectCells bool
}

// Store is what the calls need of the API database.
type Store interface {
	Cells(ctx context.Context) ([]apidb.Cell, error)
	ProjectCells(ctx context.Context, projectID string) ([]string, error)
	BuildRequests(ctx context.Context, projectID string, limit int) ([]apidb.BuildRequest, error)
	Mapping(ctx context.Context, uuid string) (apidb.Mapping, error)
	Mappings(ctx context.Context, f apidb.MappingFilter) ([]apidb.Mapping, error)
}

// Routes are the calls of this package.
func (d *Deps) Routes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers", Query: &serverQuery, Handle: d.listBrief, About: &aboutListBrief},
		{Method: "GET", Path: "/v2.1/servers/detail",
			Query: &serverQuery, Handle: d.listDetail, About: &aboutListDetail},
	}
}
