// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"context"
	"errors"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/gather"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// updateSchemas are the bodies of PUT /servers/{id}.
var updateSchemas = api.Fields{
	{Name: "name", Schema: api.SchemaName},
	{Name: "OS-DCF:diskConfig", Schema: api.SchemaDiskConfig},
	{Name: "accessIPv4", Schema: js.Schema{js.Type("string"), js.Format("ipv4")}},
	{Name: "accessIPv6", Schema: js.Schema{js.Type("string"), js.Format("ipv6")}},
	{Name: "description", Since: api.VDescription, Schema: api.SchemaDescription},
}.Steps(func(_ api.Version, members js.Properties) js.Schema {
	return js.ClosedObject(js.Properties{{Name: "server", Schema: js.ClosedObject(members)}}, "server")
})

// updateServer answers PUT /servers/{id}. The guest keeps the name that it was made with.
func (d *Deps) updateServer(x *api.Exchange) error {
	m, err := d.Servers.Mapping(x, x.Param("id"))
	if err != nil {
		return err
	}
	if err := x.Allow(ruleServersUpdate, m.ProjectID); err != nil {
		return err
	}
	asked := api.MemberObject(x.Asked, "server")
	server, err := d.patchServer(x, m, requestedPatch(asked))
	if err != nil {
		return err
	}
	return d.Servers.Respond(x, http.StatusOK, m, d.Servers.ChangedView(x, m.ProjectID).Whole(&server))
}

// requestedPatch is what a server is to be called.
func requestedPatch(asked *js.Object) cellwire.ServerPatch {
	patch := cellwire.ServerPatch{Name: api.MemberText(asked, "name"),
		DiskConfig: api.MemberText(asked, "OS-DCF:diskConfig")}
	if _, given := asked.Get("description"); given {
		patch.Description = api.MemberText(asked, "description")
		patch.NoDescription = patch.Description == nil
	}
	for name, address := range map[string]**string{"accessIPv4": &patch.AccessIPv4, "accessIPv6": &patch.AccessIPv6} {
		if _, given := asked.Get(name); given {
			*address = new(requestedAddress(asked, name))
		}
	}
	return patch
}

// patchServer has the cell of a server change it. While the server is not in one, it cannot be
// changed: that is a moment, unless no cell has a host for it. Cost: two reads of the API database,
// and one request to one cell.
func (d *Deps) patchServer(x *api.Exchange, m apidb.Mapping, patch cellwire.ServerPatch) (cellwire.Server, error) {
	cell, building, err := d.Servers.Placed(x, m)
	switch {
	case err != nil:
		return cellwire.Server{}, err
	case building != nil:
		if err := patch.Check(building); err != nil {
			return cellwire.Server{}, novaError(err, "update", m.InstanceUUID)
		}
		return cellwire.Server{}, api.Conflict("Instance %s is not ready", m.InstanceUUID)
	}
	server, err := gather.One(x.Context(), d.Gatherer, cell,
		func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
			return c.Patch(ctx, m.InstanceUUID, patch)
		})
	var refusal *cellwire.Error
	if errors.As(err, &refusal) && cellclient.IsOverQuota(err) {
		return server, api.Forbidden("%s", refusal.Message).Because(err)
	}
	return server, novaError(err, "update", m.InstanceUUID)
}
