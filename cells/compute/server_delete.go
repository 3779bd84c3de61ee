// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// deleteRoutes are the calls that end servers, and the one that takes an end back.
var deleteRoutes = []route{
	{method: "DELETE", path: "/v2.1/servers/{id}", handle: (*API).deleteServer},
	{method: "POST", path: "/v2.1/servers/{id}/action", handle: (*API).serverAction},
}

// deleteServer answers DELETE /servers/{id}: 204, in whatever state the server is. With a time to
// reclaim deletion is soft. With its cell down it is 500, and queued_for_delete is not
// set.
func (a *API) deleteServer(x *exchange) error {
	m, err := x.mapping(x.param("id"))
	if err != nil {
		return err
	}
	if err := x.allow(ruleServersDelete, m.ProjectID); err != nil {
		return err
	}
	if err := x.deleteMapped(m, a.options.Reclaim > 0); err != nil {
		return err
	}
	return x.empty(http.StatusNoContent)
}

// deleteMapped deletes the server of a mapping. One that was deleted while it was placed nowhere is
// not there any more.
func (x *exchange) deleteMapped(m apidb.Mapping, soft bool) error {
	if m.CellUUID == "" && m.Queued() {
		return serverNotFound(m.InstanceUUID)
	}
	return serverFault(x.api.scheduler.Delete(x.ctx(), m, soft), "delete", m.InstanceUUID)
}

// serverFault maps the error of an operation on a server to an API error. A change during the check
// is a conflict.
func serverFault(err error, action, uuid string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, apidb.ErrNotFound), errors.Is(err, errNoServer), cellclient.IsNotFound(err):
		return serverNotFound(uuid).Because(err)
	case cellclient.IsConflict(err):
		return conflict("Instance %s is in an invalid state for '%s'", uuid, action).Because(err)
	}
	return createFault(err)
}

// actions are those of POST /servers/{id}/action.
var actions = map[string]func(*API, *exchange, apidb.Mapping) error{
	"restore":     (*API).restoreServer,
	"forceDelete": (*API).forceDeleteServer,
}

// serverAction answers POST /servers/{id}/action. The body is an object whose only member names the
// action; these two take no arguments.
func (a *API) serverAction(x *exchange) error {
	value, err := x.decoded()
	if err != nil {
		return err
	}
	body, is := value.(*jsonkit.Object)
	if !is || len(body.Names()) != 1 {
		return badRequest("Malformed request body")
	}
	name := body.Names()[0]
	act := actions[name]
	if act == nil {
		return badRequest("There is no such action: %s", shortened(name))
	}
	m, err := x.mapping(x.param("id"))
	if err != nil {
		return err
	}
	if err := act(a, x, m); err != nil {
		return err
	}
	return x.empty(http.StatusAccepted)
}

// forceDeleteServer deletes for good, whatever state the server is in.
func (a *API) forceDeleteServer(x *exchange, m apidb.Mapping) error {
	if err := x.allow(ruleForceDelete, m.ProjectID); err != nil {
		return err
	}
	return x.deleteMapped(m, false)
}

// restoreServer takes back a soft delete.
func (a *API) restoreServer(x *exchange, m apidb.Mapping) error {
	server, err := x.current(m)
	if err != nil {
		return err
	}
	if err := x.allow(ruleRestore, m.ProjectID); err != nil {
		return err
	}
	for _, state := range []struct{ kind, is, wanted string }{
		{"vm_state", server.VMState, cellwire.VMSoftDeleted},
		{"task_state", server.TaskState, ""},
	} {
		if state.is != state.wanted {
			return conflict("Cannot 'restore' instance %s while it is in %s %s", m.InstanceUUID, state.kind, state.is)
		}
	}
	_, err = a.scheduler.Restore(x.ctx(), m)
	return serverFault(err, "restore", m.InstanceUUID)
}

// current is the server of a mapping as it is now: from its build request, as long as there is one,
// or from its cell.
func (x *exchange) current(m apidb.Mapping) (cellwire.Server, error) {
	building, err := x.api.store.BuildRequest(x.ctx(), m.InstanceUUID)
	switch {
	case err == nil:
		return building.Server, nil
	case !errors.Is(err, apidb.ErrNotFound):
		return cellwire.Server{}, err
	}
	if m.CellUUID == "" { // It may have been placed and released between the two reads.
		if m, err = x.mapping(m.InstanceUUID); err != nil {
			return cellwire.Server{}, err
		}
		if m.CellUUID == "" {
			return cellwire.Server{}, serverNotFound(m.InstanceUUID)
		}
	}
	cell, err := x.api.cell(x, m.CellUUID)
	if err != nil {
		return cellwire.Server{}, err
	}
	server, err := x.api.cells.show(x.ctx(), cell, m.InstanceUUID)
	switch {
	case err != nil:
		return cellwire.Server{}, serverFault(err, "restore", m.InstanceUUID)
	case server.Deleted || server.Hidden:
		return cellwire.Server{}, serverNotFound(m.InstanceUUID)
	}
	return server, nil
}
