// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// deleteRoutes is the call that ends servers; two actions end them as well, or take an end back.
func (a *API) deleteRoutes() []api.Route {
	return []api.Route{
		{Method: "DELETE", Path: "/v2.1/servers/{id}", Handle: a.deleteServer, About: &aboutDeleteServer},
	}
}

// deleteServer answers DELETE /servers/{id}: 204, in whatever state the server is. With a time to
// reclaim deletion is soft. With its cell down it is 500, and queued_for_delete is not
// set.
func (a *API) deleteServer(x *api.Exchange) error {
	m, err := a.mapping(x, x.Param("id"))
	if err != nil {
		return err
	}
	if err := x.Allow(ruleServersDelete, m.ProjectID); err != nil {
		return err
	}
	if err := a.deleteMapped(x, m, a.options.Reclaim > 0); err != nil {
		return err
	}
	return x.Empty(http.StatusNoContent)
}

// deleteMapped deletes the server of a mapping. One that was deleted while it was placed nowhere is
// not there any more.
func (a *API) deleteMapped(x *api.Exchange, m apidb.Mapping, soft bool) error {
	if m.CellUUID == "" && m.Queued() {
		return serverNotFound(m.InstanceUUID)
	}
	return serverFault(a.scheduler.Delete(x.Context(), m, soft), "delete", m.InstanceUUID)
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
		return api.Conflict("Instance %s is in an invalid state for '%s'", uuid, action).Because(err)
	}
	return createFault(err)
}

// forceDeleteServer deletes for good, whatever state the server is in.
func (a *API) forceDeleteServer(x *api.Exchange, m apidb.Mapping, _ *jsonkit.Object) error {
	if err := x.Allow(ruleForceDelete, m.ProjectID); err != nil {
		return err
	}
	if err := a.deleteMapped(x, m, false); err != nil {
		return err
	}
	return x.Empty(http.StatusAccepted)
}

// restoreServer takes back a soft delete.
func (a *API) restoreServer(x *api.Exchange, m apidb.Mapping, _ *jsonkit.Object) error {
	server, err := a.current(x, m, "restore")
	if err != nil {
		return err
	}
	if err := x.Allow(ruleRestore, m.ProjectID); err != nil {
		return err
	}
	for _, state := range []struct{ kind, is, wanted string }{
		{"vm_state", server.VMState, cellwire.VMSoftDeleted},
		{"task_state", server.TaskState, ""},
	} {
		if state.is != state.wanted {
			return api.Conflict("Cannot 'restore' instance %s while it is in %s %s",
				m.InstanceUUID, state.kind, state.is)
		}
	}
	if _, err = a.scheduler.Restore(x.Context(), m); err != nil {
		return serverFault(err, "restore", m.InstanceUUID)
	}
	return x.Empty(http.StatusAccepted)
}
