// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"context"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// Lists are the calls that list servers, GET /servers and GET /servers/detail, and all that they
// may touch.
type Lists struct {
	Store ListStore
	// Gatherer asks the cells.
	Gatherer *gather.Gatherer
	// Servers shows servers.
	Servers Servers
	// MaxLimit is how many records a list has at most.
	MaxLimit int
	// ListSkipsDownCells says that lists that cannot have minimal records leave out the servers of
	// cells that are down; otherwise they are refused with 500.
	ListSkipsDownCells bool
	// PerProjectCells asks only the cells that a project has servers in, for lists of members.
	PerProjectCells bool
}

// ListStore is what lists need of the API database.
type ListStore interface {
	Cells(ctx context.Context) ([]apidb.Cell, error)
	ProjectCells(ctx context.Context, projectID string) ([]string, error)
	BuildRequests(ctx context.Context, projectID string, limit int) ([]apidb.BuildRequest, error)
	Mapping(ctx context.Context, uuid string) (apidb.Mapping, error)
	Mappings(ctx context.Context, f apidb.MappingFilter) ([]apidb.Mapping, error)
}

// Routes are the calls.
func (ls *Lists) Routes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers", Query: &serverQuery, Handle: ls.listBrief,
			Rules: append([]api.Rule{ruleServersIndex, ruleServersIndexAll, ruleServersAllFilters}, Rules...)},
		{Method: "GET", Path: "/v2.1/servers/detail", Query: &serverQuery, Handle: ls.listDetail,
			Rules: append([]api.Rule{ruleServersDetail, ruleServersDetailAll, ruleServersAllFilters}, Rules...)},
	}
}
