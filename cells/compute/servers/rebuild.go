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
	"github.com/compute-agent/compute-agent/cells/scheduler/cellmappings"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// The microversions of a rebuild.
const (
	vRebuildKey      api.Version = 54 // key_name
	vRebuildUserData api.Version = 57 // user_data
)

// rebuildSchemas are the arguments of a rebuild.
var rebuildSchemas = api.Fields{
	{Name: "name", Schema: api.SchemaName},
	{Name: "imageRef", Schema: api.SchemaUUID},
	{Name: "adminPass", Schema: api.SchemaText},
	{Name: "metadata", Schema: api.SchemaMetadata},
	{Name: "preserve_ephemeral", Schema: api.SchemaBoolean},
	{Name: "OS-DCF:diskConfig", Schema: api.SchemaDiskConfig},
	{Name: "accessIPv4", Schema: js.Schema{js.Type("string"), js.Format("ipv4")}},
	{Name: "accessIPv6", Schema: js.Schema{js.Type("string"), js.Format("ipv6")}},
	{Name: "personality", Until: api.VNoInjectedFiles - 1, Schema: schemaPersonality},
	{Name: "description", Since: api.VDescription, Schema: api.SchemaDescription},
	{Name: "key_name", Since: vRebuildKey, Schema: js.Schema{js.AnyOf(api.SchemaName, js.Schema{js.Type("null")})}},
	{Name: "user_data", Since: vRebuildUserData,
		Schema: js.Schema{js.Type("string", "null"), js.Format("base64"), js.MaxLength(65535)}},
	{Name: certificates, Since: api.VTrustedCerts, Schema: schemaTrustedCerts},
}.Steps(func(_ api.Version, members js.Properties) js.Schema { return js.ClosedObject(members, "imageRef") })

// rebuildServer has the guest of a server made again from an image, on its host: 202 with the
// server when its cell has it. Its host does it when it is up. New user data is refused for a host
// that no person enrolled. Cost: what is named is looked up, and that of a power action.
func (d *Deps) rebuildServer(x *api.Exchange, m apidb.Mapping, asked *js.Object) error {
	if err := x.Allow(ruleServersRebuild, m.ProjectID); err != nil {
		return err
	}
	request, err := d.requestedRebuild(x, asked)
	if err != nil {
		return err
	}
	cell, building, err := d.Servers.Placed(x, m)
	var server cellwire.Server
	switch {
	case err != nil:
		return err
	case building != nil:
		err = request.Check(building)
	default:
		if request.UserData != nil && *request.UserData != "" {
			if request.Host, err = d.Scheduler.UserDataHost(x.Context(), cell, m.InstanceUUID); err != nil {
				break
			}
		}
		server, err = gather.One(x.Context(), d.Gatherer, cell,
			func(ctx context.Context, c *cellclient.Client) (cellwire.Server, error) {
				return c.Rebuild(ctx, m.InstanceUUID, request)
			})
	}
	switch {
	case errors.Is(err, cellmappings.ErrNotEnrolled):
		return api.Conflict("Instance %s is on a host that no administrator has enrolled, which gets no user data. "+
			"Rebuild it without user_data, or ask an administrator to enrol its host.", m.InstanceUUID).Because(err)
	case err != nil:
		return novaError(err, "rebuild", m.InstanceUUID)
	}
	body := d.Servers.ChangedView(x, m.ProjectID).Whole(&server)
	if x.AtLeast(vRebuildKey) {
		body.Add("key_name", api.OrNull(server.KeyName))
	}
	if x.AtLeast(vRebuildUserData) {
		body.Add("user_data", api.OrNull(server.UserData))
	}
	password := api.MemberString(asked, "adminPass")
	if password == "" {
		password = newPassword()
	}
	x.Header().Set("Location", x.SelfLink("servers", server.UUID))
	return d.Servers.Respond(x, http.StatusAccepted, m, body.Add("adminPass", password))
}

// requestedRebuild is what a rebuild asks for. What this service has not is refused: nothing is
// destroyed for a guest that is not what was asked for.
func (d *Deps) requestedRebuild(x *api.Exchange, asked *js.Object) (request cellwire.RebuildRequest, err error) {
	switch {
	case api.MemberBool(asked, "preserve_ephemeral", false):
		return request, osapi.BadRequest(
			"preserve_ephemeral: this service cannot keep the ephemeral disk of a server that is rebuilt.")
	case len(api.MemberList(asked, "personality")) > 0:
		return request, osapi.BadRequest("personality: this service does not inject files; use user_data instead.")
	case len(api.MemberList(asked, certificates)) > 0:
		return request, osapi.BadRequest(
			"trusted_image_certificates: this service does not validate the signatures of images.")
	}
	request.ImageRef = api.MemberString(asked, "imageRef")
	request.Patch = requestedPatch(asked)
	if given := memberTexts(asked, "metadata"); given != nil {
		metadata, err := d.requestedMetadata(x, given)
		if err != nil {
			return request, err
		}
		request.Patch.Metadata = &cellwire.MetadataPatch{Replace: true, Set: metadata}
	}
	if _, given := asked.Get("key_name"); given {
		key, err := d.requestedKey(x, api.MemberString(asked, "key_name"))
		if err != nil {
			return request, err
		}
		request.Key = &cellwire.ServerKey{Name: key.Name, Data: key.PublicKey}
	}
	if _, given := asked.Get("user_data"); given {
		request.UserData = new(api.MemberString(asked, "user_data"))
	}
	return request, nil
}
