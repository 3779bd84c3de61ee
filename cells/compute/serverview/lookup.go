// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"context"
	"errors"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/providertree"
)

// Servers finds servers and shows them. It is all that finding and showing may touch.
type Servers struct {
	Store Store
	// Gatherer asks the cells.
	Gatherer *gather.Gatherer
	// DefaultZone is the availability zone of hosts that say nothing else.
	DefaultZone string
}

// Store is what finding a server needs of the API database.
type Store interface {
	Cells(ctx context.Context) ([]apidb.Cell, error)
	Mapping(ctx context.Context, uuid string) (apidb.Mapping, error)
	BuildRequest(ctx context.Context, uuid string) (apidb.BuildRequest, error)
	ServerGroupOf(ctx context.Context, serverUUID string) (apidb.ServerGroup, error)
}

// ErrNoServer says that a cell does not know a server.
var ErrNoServer = errors.New("the cell has no such server")

// IsUUID says whether an identifier can be one of a server. Others are not looked for.
func IsUUID(s string) bool {
	canonical, err := providertree.CanonicalUUID(s)
	return err == nil && canonical == s
}

// Mapping returns the mapping of a server that the caller may know of: its project's, or any for an
// administrator. All others are a 404, whether the cell is up or not.
func (s *Servers) Mapping(x *api.Exchange, uuid string) (apidb.Mapping, error) {
	uuid = strings.ToLower(uuid)
	if !IsUUID(uuid) {
		return apidb.Mapping{}, NotFound(uuid)
	}
	m, err := s.Store.Mapping(x.Context(), uuid)
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		return apidb.Mapping{}, NotFound(uuid)
	case err != nil:
		return apidb.Mapping{}, err
	case m.ProjectID != x.Caller.Project && !x.IsAdmin():
		return apidb.Mapping{}, NotFound(uuid)
	}
	return m, nil
}

// MappingOfPath is the mapping of the server of the path, for a caller who passes a rule.
func (s *Servers) MappingOfPath(x *api.Exchange, rule api.Rule) (apidb.Mapping, error) {
	m, err := s.Mapping(x, x.Param("id"))
	if err != nil {
		return m, err
	}
	return m, x.Allow(rule, m.ProjectID)
}

// Action is the Do of an [api.Action] on the server of the path, which the caller may know of.
func (s *Servers) Action(
	do func(x *api.Exchange, m apidb.Mapping, argument *jsonkit.Object) error,
) func(*api.Exchange, *jsonkit.Object) error {
	return func(x *api.Exchange, argument *jsonkit.Object) error {
		m, err := s.Mapping(x, x.Param("id"))
		if err != nil {
			return err
		}
		return do(x, m, argument)
	}
}

// Placed is the cell that a server is in, or the server itself as long as there is a build request.
func (s *Servers) Placed(x *api.Exchange, m apidb.Mapping) (cell apidb.Cell, building *cellwire.Server, err error) {
	request, err := s.Store.BuildRequest(x.Context(), m.InstanceUUID)
	switch {
	case err == nil:
		return apidb.Cell{}, &request.Server, nil
	case !errors.Is(err, apidb.ErrNotFound):
		return apidb.Cell{}, nil, err
	}
	if m.CellUUID == "" { // It may have been placed and released between the two reads.
		if m, err = s.Mapping(x, m.InstanceUUID); err != nil {
			return apidb.Cell{}, nil, err
		}
		if m.CellUUID == "" {
			return apidb.Cell{}, nil, NotFound(m.InstanceUUID)
		}
	}
	cell, err = apidb.CellOf(x.Context(), s.Store, m.CellUUID)
	return cell, nil, err
}

// Read is a server as its cell has it. Errors wrap [ErrNoServer] or [gather.ErrDown].
func (s *Servers) Read(ctx context.Context, cell apidb.Cell, uuid string) (cellwire.Server, error) {
	server, err := gather.One(ctx, s.Gatherer, cell,
		func(ctx context.Context, client *cellclient.Client) (cellwire.Server, error) {
			server, err := client.Server(ctx, uuid)
			if cellclient.IsNotFound(err) {
				return cellwire.Server{}, err
			}
			return server, cellclient.AsFailure(err)
		})
	if cellclient.IsNotFound(err) {
		return cellwire.Server{}, ErrNoServer
	}
	return server, err
}

// Current is the server of a mapping as it is now: from its build request, as long as there is one,
// or from its cell. The action is what an error is about.
func (s *Servers) Current(x *api.Exchange, m apidb.Mapping, action string) (cellwire.Server, error) {
	cell, building, err := s.Placed(x, m)
	switch {
	case err != nil:
		return cellwire.Server{}, err
	case building != nil:
		return *building, nil
	}
	server, err := s.Read(x.Context(), cell, m.InstanceUUID)
	switch {
	case err != nil:
		return cellwire.Server{}, Fault(err, action, m.InstanceUUID)
	case server.Deleted || server.Hidden:
		return cellwire.Server{}, NotFound(m.InstanceUUID)
	}
	return server, nil
}

// NotFound is the 404 for a server that does not exist or that the client must not see.
func NotFound(uuid string) *osapi.Error {
	return osapi.NotFound("Instance %s could not be found.", osapi.Shortened(uuid))
}

// Fault maps the error of a cell or of the API database, in an operation on a server, to an API
// error: a server that is not there to a 404, and a change during the check to a 409. Others stay
// as they are.
func Fault(err error, action, uuid string) error {
	switch {
	case errors.Is(err, apidb.ErrNotFound), errors.Is(err, ErrNoServer), cellclient.IsNotFound(err):
		return NotFound(uuid).Because(err)
	case cellclient.IsConflict(err):
		return api.Conflict("Instance %s is in an invalid state for '%s'", uuid, action).Because(err)
	}
	return err
}
