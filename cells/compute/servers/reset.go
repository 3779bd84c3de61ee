// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// How an administrator ends what waits for a host that never comes back: a task with os-resetState,
// a migration with DELETE /servers/{id}/migrations/{migration}. The server is kept.

// resetSchema is the argument of os-resetState.
var resetSchema = js.ClosedObject(js.Properties{
	{Name: "state", Schema: js.Schema{js.Type("string"), js.Enum(cellwire.VMActive, cellwire.VMError)}},
}, "state")

// resetServer says in which state a server is, without a task. Nothing is done to its guest. Cost:
// two reads of the API database, and one request to one cell, which also checks the state.
func (d *Deps) resetServer(x *api.Exchange, m apidb.Mapping, argument *js.Object) error {
	if err := x.Allow(ruleResetState, m.ProjectID); err != nil {
		return err
	}
	request := cellwire.ResetRequest{VMState: api.MemberString(argument, "state")}
	cell, building, err := d.Servers.Placed(x, m)
	switch {
	case err != nil:
		return err
	case building != nil:
		err = request.Check(building)
	default:
		_, err = gather.One(x.Context(), d.Gatherer, cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
				return c.Reset(ctx, m.InstanceUUID, request)
			})
	}
	if err != nil {
		return novaError(err, "os-resetState", m.InstanceUUID)
	}
	return x.Empty(http.StatusAccepted)
}

// abortMigration answers DELETE /servers/{id}/migrations/{migration}. Nova aborts live migrations;
// here one ends that has no destination yet, or waits for a host that is down, and no other. Cost:
// two reads of the API database, and two requests to one cell.
func (d *Deps) abortMigration(x *api.Exchange) error {
	m, err := d.Servers.MappingOfPath(x, ruleServerMigrationAbort)
	if err != nil {
		return err
	}
	id, err := strconv.ParseInt(x.Param("migration"), 10, 64)
	if err == nil && m.CellUUID != "" {
		err = d.Scheduler.Abort(x.Context(), m, id)
	} else {
		err = scheduler.ErrNoMigration
	}
	switch {
	case errors.Is(err, scheduler.ErrNoMigration), cellclient.IsNotFound(err):
		return osapi.NotFound("Migration %s is not found for instance %s.",
			osapi.Shortened(x.Param("migration")), m.InstanceUUID)
	case err != nil:
		return novaError(err, "abort the migration of", m.InstanceUUID)
	}
	return x.Empty(http.StatusAccepted)
}
