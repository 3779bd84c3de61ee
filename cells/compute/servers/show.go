// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// showServer answers GET /servers/{id}. A server that is not released in a cell yet is shown from
// its build request. From 2.69 on a server of a cell that is down is shown as far as the API
// database knows it. Cost: up to three reads of the API database, and one request to one cell.
func (d *Deps) showServer(x *api.Exchange) error {
	m, err := d.Servers.Mapping(x, x.Param("id"))
	if err != nil {
		return err
	}
	body, err := d.shown(x, m)
	if err != nil {
		return err
	}
	return d.Servers.Respond(x, http.StatusOK, m, body)
}

// shown is the server of a mapping, for a caller who may know of it.
func (d *Deps) shown(x *api.Exchange, m apidb.Mapping) (*api.Object, error) {
	cell, building, err := d.Servers.Placed(x, m)
	switch {
	case err != nil:
		return nil, err
	case building != nil:
		if err := x.Allow(ruleServersShow, m.ProjectID); err != nil {
			return nil, err
		}
		return d.Servers.View(x, m.ProjectID).Whole(building), nil
	}
	server, err := d.Servers.Read(x.Context(), cell, m.InstanceUUID)
	switch {
	case errors.Is(err, serverview.ErrNoServer):
		if !m.Queued() {
			d.logLost(x, cell, m.InstanceUUID)
		}
		return nil, serverview.NotFound(m.InstanceUUID)
	case errors.Is(err, gather.ErrDown) && x.AtLeast(api.VDownCells):
		return d.shownUnknown(x, m)
	case err != nil:
		return nil, err
	case server.Deleted || server.Hidden:
		return nil, serverview.NotFound(m.InstanceUUID)
	}
	if err := x.Allow(ruleServersShow, m.ProjectID); err != nil {
		return nil, err
	}
	return d.Servers.View(x, m.ProjectID).Whole(&server), nil
}

// logLost logs that a cell does not have a living server that is mapped to it. Its owner gets
// Nova's 404, and an operator has to know. At most once a minute per cell.
func (d *Deps) logLost(x *api.Exchange, cell apidb.Cell, uuid string) {
	if !d.Lost.Allow(cell.UUID) {
		return
	}
	x.Service.Logger.Warn().Str("request_id", x.ID).Str("server", uuid).Str("cell", cell.Name).
		Msg("A server is mapped to a cell that does not have it. The request was answered with 404, but the guest " +
			"may still run. The database of the cell may be new or an " +
			"older copy: `compute-agent cells manage list` shows whether it is and what to do. Logged at most once " +
			"a minute per cell.")
}

// shownUnknown is the minimal record of a server. Without a request specification there is nothing
// to show, as in Nova.
func (d *Deps) shownUnknown(x *api.Exchange, m apidb.Mapping) (*api.Object, error) {
	if m.Queued() {
		return nil, serverview.NotFound(m.InstanceUUID)
	}
	spec, err := d.Store.RequestSpec(x.Context(), m.InstanceUUID)
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		return nil, serverview.NotFound(m.InstanceUUID)
	case err != nil:
		return nil, err
	}
	if err := x.Allow(ruleServersShow, m.ProjectID); err != nil {
		return nil, err
	}
	return d.Servers.View(x, m.ProjectID).UnknownWhole(&m, &spec), nil
}
