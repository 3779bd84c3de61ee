// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"

	"github.com/compute-agent/compute-agent/plugins"
)

// MaxServers is how many servers one request may ask for.
const MaxServers = 1000

// maxID is how long the identifiers of projects and users may be, in bytes: no cell takes longer
// ones, and the server would be tried forever.
const maxID = 255

// CreateRequest is what POST /servers asks for.
type CreateRequest struct {
	// RequestSpec is the template for the specification of each server, without uuid and states.
	apidb.RequestSpec
	// Min and Max bound the number of servers: as many as the quota allows. A Min of 0 is 1, a Max
	// of 0 is Min.
	Min, Max int64
	// AllowCellDown lets a project boot although it has living servers in a cell that is down.
	AllowCellDown bool
}

// Create writes servers to the API database, from where they are scheduled. Several servers
// get a number appended to their names and host names, as in Nova.
//
// Errors: *[resourcerequest.InvalidError], *[quota.ExceededError], [quota.ErrCellDown],
// [quota.ErrGroupFull], [apidb.ErrGroup]; nothing was written then. Cost: a discovery of each cell,
// one transaction, and that of [placementcalls.Client.Check].
func (s *Scheduler) Create(ctx context.Context, r CreateRequest) ([]apidb.RequestSpec, error) {
	r.Min = cmp.Or(r.Min, 1)
	r.Max = cmp.Or(r.Max, r.Min)
	switch {
	case r.ProjectID == "" || r.Flavor.ID == "":
		return nil, &resourcerequest.InvalidError{Message: "A server needs a project and a flavor."}
	case len(r.ProjectID) > maxID || len(r.UserID) > maxID:
		return nil, &resourcerequest.InvalidError{
			Message: fmt.Sprintf("A project_id and a user_id have at most %d bytes.", maxID)}
	case r.Min < 1 || r.Min > r.Max:
		return nil, &resourcerequest.InvalidError{Message: "min_count must be <= max_count"}
	case r.Max > MaxServers:
		return nil, &resourcerequest.InvalidError{Message: fmt.Sprintf("max_count must be at most %d", MaxServers)}
	}
	if err := s.check(ctx, r.Flavor); err != nil {
		return nil, err
	}
	grant, err := s.opts.Quota.Check(ctx, quota.Request{Project: r.ProjectID, Flavor: r.Flavor, Group: r.Group,
		Min: r.Min, Max: r.Max, AllowCellDown: r.AllowCellDown})
	if err != nil {
		return nil, err
	}
	asked := make([]apidb.RequestSpec, grant.Count)
	for i := range asked {
		asked[i] = s.instance(r.RequestSpec, i, len(asked))
	}
	if err := s.opts.Store.CreateServers(ctx, asked, grant.Confirm); err != nil {
		return nil, fmt.Errorf("creating servers: %w", err)
	}
	s.Kick()
	return asked, nil
}

// instance is the server of that index.
func (s *Scheduler) instance(server apidb.RequestSpec, index, of int) apidb.RequestSpec {
	server.UUID = uuid.NewString()
	server.LaunchIndex = index
	switch {
	case server.Hostname == "": // nothing was left of the name
		server.Hostname = "Server-" + server.UUID
	case of > 1:
		server.Hostname = fmt.Sprintf("%s-%d", server.Hostname, index+1)
	}
	if of > 1 {
		server.Name = fmt.Sprintf("%s-%d", server.Name, index+1)
	}
	server.Metadata, server.Tags = maps.Clone(server.Metadata), slices.Clone(server.Tags)
	server.Flavor.ExtraSpecs = maps.Clone(server.Flavor.ExtraSpecs)
	server.Host, server.Node, server.NodeUUID = "", "", ""
	server.VMState, server.TaskState, server.PowerState =
		cellwire.VMBuilding, cellwire.TaskScheduling, plugins.PowerNoState
	server.CreatedAt = s.opts.Now().UTC()
	return server
}

// check refuses a flavor that Placement never serves a request for. What Placement does not say
// now, it says when the server is scheduled.
func (s *Scheduler) check(ctx context.Context, f cellwire.Flavor) error {
	request, err := resourcerequest.New(f, s.opts.Aliases)
	if err == nil {
		err = s.opts.Placement.Check(ctx, request)
	}
	var invalid *resourcerequest.InvalidError
	if errors.As(err, &invalid) {
		return invalid
	}
	return ctx.Err()
}
