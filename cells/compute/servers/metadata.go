// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// metadataRoutes are the calls about the metadata of a server.
func (d *Deps) metadataRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers/{id}/metadata", Handle: d.listMetadata,
			Rules: []api.Rule{ruleMetadataIndex}},
		{Method: "POST", Path: "/v2.1/servers/{id}/metadata", Body: api.Always(metadataBody),
			Handle: d.addMetadata, Rules: []api.Rule{ruleMetadataCreate}},
		{Method: "PUT", Path: "/v2.1/servers/{id}/metadata", Body: api.Always(metadataBody), Handle: d.replaceMetadata,
			Rules: []api.Rule{ruleMetadataUpdateAll}},
		{Method: "GET", Path: "/v2.1/servers/{id}/metadata/{key}", Handle: d.showMetadata,
			Rules: []api.Rule{ruleMetadataShow}},
		{Method: "PUT", Path: "/v2.1/servers/{id}/metadata/{key}", Body: api.Always(metaBody),
			Handle: d.setMetadata, Rules: []api.Rule{ruleMetadataUpdate}},
		{Method: "DELETE", Path: "/v2.1/servers/{id}/metadata/{key}", Handle: d.deleteMetadata,
			Rules: []api.Rule{ruleMetadataDelete}},
	}
}

// The bodies with all items, and with one.
var (
	metadataBody = js.ClosedObject(js.Properties{{Name: "metadata", Schema: api.SchemaMetadata}}, "metadata")
	metaBody     = js.ClosedObject(js.Properties{
		{Name: "meta", Schema: append(api.SchemaMetadata[:len(api.SchemaMetadata):len(api.SchemaMetadata)],
			js.MinProperties(1), js.MaxProperties(1))},
	}, "meta")
)

// serverOfPath is the server of the path, for a caller who passes a rule.
func (d *Deps) serverOfPath(x *api.Exchange, rule api.Rule) (apidb.Mapping, cellwire.Server, error) {
	m, err := d.Servers.MappingOfPath(x, rule)
	if err != nil {
		return m, cellwire.Server{}, err
	}
	server, err := d.Servers.Current(x, m, "show")
	return m, server, err
}

// listMetadata answers GET /servers/{id}/metadata.
func (d *Deps) listMetadata(x *api.Exchange) error {
	_, server, err := d.serverOfPath(x, ruleMetadataIndex)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("metadata", server.Metadata))
}

// showMetadata answers GET /servers/{id}/metadata/{key}.
func (d *Deps) showMetadata(x *api.Exchange) error {
	_, server, err := d.serverOfPath(x, ruleMetadataShow)
	if err != nil {
		return err
	}
	key := x.Param("key")
	value, has := server.Metadata[key]
	if !has {
		return osapi.NotFound("Metadata item was not found")
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("meta", map[string]string{key: value}))
}

// addMetadata answers POST /servers/{id}/metadata: items that are there stay, or get another value.
func (d *Deps) addMetadata(x *api.Exchange) error {
	return d.putMetadata(x, ruleMetadataCreate, false)
}

// replaceMetadata answers PUT /servers/{id}/metadata: there are no other items afterwards.
func (d *Deps) replaceMetadata(x *api.Exchange) error {
	return d.putMetadata(x, ruleMetadataUpdateAll, true)
}

func (d *Deps) putMetadata(x *api.Exchange, rule api.Rule, replace bool) error {
	m, err := d.Servers.MappingOfPath(x, rule)
	if err != nil {
		return err
	}
	server, err := d.patchMetadata(x, m,
		cellwire.MetadataPatch{Replace: replace, Set: memberTexts(x.Asked, "metadata")})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("metadata", server.Metadata))
}

// setMetadata answers PUT /servers/{id}/metadata/{key}.
func (d *Deps) setMetadata(x *api.Exchange) error {
	m, err := d.Servers.MappingOfPath(x, ruleMetadataUpdate)
	if err != nil {
		return err
	}
	item := memberTexts(x.Asked, "meta")
	if _, has := item[x.Param("key")]; !has {
		return osapi.BadRequest("Request body and URI mismatch")
	}
	if _, err := d.patchMetadata(x, m, cellwire.MetadataPatch{Set: item}); err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("meta", item))
}

// deleteMetadata answers DELETE /servers/{id}/metadata/{key}.
func (d *Deps) deleteMetadata(x *api.Exchange) error {
	m, server, err := d.serverOfPath(x, ruleMetadataDelete)
	if err != nil {
		return err
	}
	key := x.Param("key")
	if _, has := server.Metadata[key]; !has {
		return osapi.NotFound("Metadata item was not found")
	}
	if _, err := d.patchMetadata(x, m, cellwire.MetadataPatch{Remove: []string{key}}); err != nil {
		return err
	}
	return x.Empty(http.StatusNoContent)
}

// patchMetadata changes the metadata of a server, within the quota of the caller's project.
func (d *Deps) patchMetadata(x *api.Exchange, m apidb.Mapping, patch cellwire.MetadataPatch) (cellwire.Server, error) {
	if len(patch.Set) > 0 {
		most, err := d.Tenant.MetadataLimit(x.Context(), x.Caller.Project)
		if err != nil {
			return cellwire.Server{}, err
		}
		patch.Most = max(most, 0)
	}
	return d.patchServer(x, m, cellwire.ServerPatch{Metadata: &patch})
}
