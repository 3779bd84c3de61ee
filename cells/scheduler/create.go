// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"

	"github.com/compute-agent/compute-agent/plugins"
)

// MaxServers is how many servers one request may ask for.
const MaxServers = 1000

// maxID is how long the identifiers of projects and users may be, in bytes: no cell takes longer
// ones, and the server would be tried forever.
const maxID = 255

// CreateRequest is what POST /servers asks for.
type CreateRequest struct {
	// Server is what each server is going to be: a template, without uuid, states and place. Its
	// Zone is the one asked for.
	Server cellwire.Server
	// Min and Max are how many: Max if the quota allows it, and not less than Min. 0 is 1, and Min.
	Min, Max int
	// Host and Node are forced; "": any.
	Host, Node string
}

// Create writes servers to the API database, from where they are scheduled. Several servers
// get a number appended to their names and host names, as in Nova.
//
// With allowCellDown a project may boot although it has living servers in a cell that is down.
//
// Errors: *[InvalidError], *QuotaExceededError, [ErrCellDown]; nothing was written then. Cost: a
// discovery of each cell, one transaction, and that of [PlacementClient.Check].
func (s *Scheduler) Create(ctx context.Context, r CreateRequest, allowCellDown bool) ([]cellwire.Server, error) {
	least := max(r.Min, 1)
	most := r.Max
	if most == 0 {
		most = least
	}
	switch {
	case r.Server.ProjectID == "" || r.Server.Flavor.ID == "":
		return nil, &InvalidError{"A server needs a project and a flavor."}
	case len(r.Server.ProjectID) > maxID || len(r.Server.UserID) > maxID:
		return nil, &InvalidError{fmt.Sprintf("A project_id and a user_id have at most %d bytes.", maxID)}
	case r.Min < 0 || r.Max < 0 || least > most:
		return nil, &InvalidError{"min_count must be <= max_count"}
	case most > MaxServers:
		return nil, &InvalidError{fmt.Sprintf("max_count must be at most %d", MaxServers)}
	}
	if err := s.check(ctx, r.Server.Flavor); err != nil {
		return nil, err
	}
	grant, err := s.o.Quota.Check(ctx, QuotaRequest{
		Project: r.Server.ProjectID, Flavor: r.Server.Flavor, Min: int64(least), Max: int64(most), AllowCellDown: allowCellDown,
	})
	if err != nil {
		return nil, err
	}
	asked := make([]apidb.NewServer, grant.Count)
	servers := make([]cellwire.Server, grant.Count)
	for i := range servers {
		servers[i] = s.instance(r, i, len(servers))
		asked[i] = apidb.NewServer{Server: servers[i], Host: r.Host, Node: r.Node}
	}
	if err := s.o.Store.CreateServers(ctx, asked, grant.Confirm); err != nil {
		return nil, fmt.Errorf("creating servers: %w", err)
	}
	s.Kick()
	return servers, nil
}

// instance is the server of that index.
func (s *Scheduler) instance(r CreateRequest, index, of int) cellwire.Server {
	server := r.Server
	server.UUID = uuid.NewString()
	server.LaunchIndex = index
	if of > 1 {
		server.Name = fmt.Sprintf("%s-%d", server.Name, index+1)
		if server.Hostname != "" {
			server.Hostname = fmt.Sprintf("%s-%d", server.Hostname, index+1)
		}
	}
	server.Metadata, server.Tags = maps.Clone(server.Metadata), slices.Clone(server.Tags)
	server.Flavor.ExtraSpecs = maps.Clone(server.Flavor.ExtraSpecs)
	server.Host, server.Node, server.NodeUUID = "", "", ""
	server.VMState, server.TaskState, server.PowerState = cellwire.VMBuilding, cellwire.TaskScheduling, plugins.PowerNoState
	server.CreatedAt = s.o.Now().UTC()
	return server
}

// check refuses a flavor that Placement never serves a request for. What Placement does not say
// now, it says when the server is scheduled.
func (s *Scheduler) check(ctx context.Context, f cellwire.Flavor) error {
	request, err := NewCandidateRequest(f)
	if err == nil {
		err = s.o.Placement.Check(ctx, request)
	}
	var invalid *InvalidError
	if errors.As(err, &invalid) {
		return invalid
	}
	return ctx.Err()
}
