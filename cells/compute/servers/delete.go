// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// deleteServer answers DELETE /servers/{id}: 204, in whatever state the server is. With a time to
// reclaim deletion is soft. With its cell down it is 500, and queued_for_delete is not
// set.
func (d *Deps) deleteServer(x *api.Exchange) error {
	m, err := d.Servers.Mapping(x, x.Param("id"))
	if err != nil {
		return err
	}
	if err := x.Allow(ruleServersDelete, m.ProjectID); err != nil {
		return err
	}
	if err := d.deleteMapped(x, m, d.Reclaim > 0); err != nil {
		return err
	}
	return x.Empty(http.StatusNoContent)
}

// deleteMapped deletes the server of a mapping. One that was deleted while it was placed nowhere is
// not there any more.
func (d *Deps) deleteMapped(x *api.Exchange, m apidb.Mapping, soft bool) error {
	if m.CellUUID == "" && m.Queued() {
		return serverview.NotFound(m.InstanceUUID)
	}
	return serverFault(d.Scheduler.Delete(x.Context(), m, soft), "delete", m.InstanceUUID)
}

// serverFault maps the error of an operation on a server to an API error: what
// [serverview.Fault] does not map, may be of the scheduler.
func serverFault(err error, action, uuid string) error {
	err = serverview.Fault(err, action, uuid)
	if mapped := (*osapi.Error)(nil); errors.As(err, &mapped) {
		return err
	}
	return createFault(err)
}

// forceDeleteServer deletes for good, whatever state the server is in.
func (d *Deps) forceDeleteServer(x *api.Exchange, m apidb.Mapping, _ *jsonkit.Object) error {
	if err := x.Allow(ruleForceDelete, m.ProjectID); err != nil {
		return err
	}
	if err := d.deleteMapped(x, m, false); err != nil {
		return err
	}
	return x.Empty(http.StatusAccepted)
}

// restoreServer takes back a soft delete.
func (d *Deps) restoreServer(x *api.Exchange, m apidb.Mapping, _ *jsonkit.Object) error {
	server, err := d.Servers.Current(x, m, "restore")
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
	if _, err = d.Scheduler.Restore(x.Context(), m); err != nil {
		return serverFault(err, "restore", m.InstanceUUID)
	}
	return x.Empty(http.StatusAccepted)
}
