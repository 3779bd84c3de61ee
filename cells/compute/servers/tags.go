// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// tagRoutes are the calls about the tags of a server.
func (d *Deps) tagRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/servers/{id}/tags", Handle: d.listTags, Since: api.VTags,
			Rules: []api.Rule{ruleTagsIndex}},
		{Method: "PUT", Path: "/v2.1/servers/{id}/tags", Body: api.Always(tagsBody), Handle: d.replaceTags,
			Since: api.VTags, Rules: []api.Rule{ruleTagsUpdateAll}},
		{Method: "DELETE", Path: "/v2.1/servers/{id}/tags",
			Handle: d.deleteTags, Since: api.VTags, Rules: []api.Rule{ruleTagsDeleteAll}},
		{Method: "GET", Path: "/v2.1/servers/{id}/tags/{tag}", Handle: d.showTag,
			Since: api.VTags, Rules: []api.Rule{ruleTagsShow}},
		{Method: "PUT", Path: "/v2.1/servers/{id}/tags/{tag}", Handle: d.addTag, Since: api.VTags,
			Rules: []api.Rule{ruleTagsUpdate}},
		{Method: "DELETE", Path: "/v2.1/servers/{id}/tags/{tag}", Handle: d.deleteTag,
			Since: api.VTags, Rules: []api.Rule{ruleTagsDelete}},
	}
}

// tagsBody is the body with all tags; that with one is null.
var (
	tagsBody = js.ClosedObject(js.Properties{
		{Name: "tags", Schema: js.Schema{js.Type("array"), js.Items(api.SchemaTag), js.MaxItems(cellwire.MaxTags)}},
	}, "tags")
	nothing = js.Schema{js.Type("null")}
)

// listTags answers GET /servers/{id}/tags.
func (d *Deps) listTags(x *api.Exchange) error {
	_, server, err := d.serverOfPath(x, ruleTagsIndex)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("tags", server.Tags))
}

// showTag answers GET /servers/{id}/tags/{tag}: 204 if the server has it.
func (d *Deps) showTag(x *api.Exchange) error {
	m, server, err := d.serverOfPath(x, ruleTagsShow)
	if err != nil {
		return err
	}
	if tag := x.Param("tag"); !slices.Contains(server.Tags, tag) {
		return osapi.NotFound("Server %s has no tag '%s'", m.InstanceUUID, osapi.Shortened(tag))
	}
	return x.Empty(http.StatusNoContent)
}

// replaceTags answers PUT /servers/{id}/tags: there are no others afterwards.
func (d *Deps) replaceTags(x *api.Exchange) error {
	m, err := d.Servers.MappingOfPath(x, ruleTagsUpdateAll)
	if err != nil {
		return err
	}
	server, err := d.patchServer(x, m,
		cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Replace: true, Add: requestedTags(x.Asked)}})
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("tags", server.Tags))
}

// deleteTags answers DELETE /servers/{id}/tags.
func (d *Deps) deleteTags(x *api.Exchange) error {
	m, err := d.Servers.MappingOfPath(x, ruleTagsDeleteAll)
	if err != nil {
		return err
	}
	if _, err := d.patchServer(x, m, cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Replace: true}}); err != nil {
		return err
	}
	return x.Empty(http.StatusNoContent)
}

// addTag answers PUT /servers/{id}/tags/{tag}: 201 with its location, or 204 if the server has it.
func (d *Deps) addTag(x *api.Exchange) error {
	value, err := x.Decoded()
	if err == nil {
		if wrong := js.Validate(nothing, value); wrong != nil {
			err = osapi.BadRequest("%s", wrong)
		}
	}
	if err != nil {
		return err
	}
	m, server, err := d.serverOfPath(x, ruleTagsUpdate)
	if err != nil {
		return err
	}
	tag := x.Param("tag")
	patch := cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Add: []string{tag}}}
	if err := patch.Check(&server); err != nil {
		return novaError(err, "update tag", m.InstanceUUID)
	}
	if wrong := js.Validate(api.SchemaTag, tag); wrong != nil {
		return osapi.BadRequest(
			"Tag '%s' is invalid. It must be a non empty string without characters '/' and ','. Validation error "+
				"message: %s", osapi.Shortened(tag), wrong)
	}
	if len(server.Tags) >= cellwire.MaxTags {
		return osapi.BadRequest("The number of tags exceeded the per-server limit %d", cellwire.MaxTags)
	}
	if slices.Contains(server.Tags, tag) {
		return x.Empty(http.StatusNoContent)
	}
	if _, err := d.patchServer(x, m, patch); err != nil {
		return err
	}
	x.Header().Set("Location", x.SelfLink("servers", m.InstanceUUID+"/tags/"+tag))
	return x.Empty(http.StatusCreated)
}

// deleteTag answers DELETE /servers/{id}/tags/{tag}.
func (d *Deps) deleteTag(x *api.Exchange) error {
	m, server, err := d.serverOfPath(x, ruleTagsDelete)
	if err != nil {
		return err
	}
	tag := x.Param("tag")
	patch := cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Remove: []string{tag}}}
	if err := patch.Check(&server); err != nil {
		return novaError(err, "delete tag", m.InstanceUUID)
	}
	if !slices.Contains(server.Tags, tag) {
		return osapi.NotFound("Instance %s has no tag '%s'", m.InstanceUUID, osapi.Shortened(tag))
	}
	if _, err := d.patchServer(x, m, patch); err != nil {
		return err
	}
	return x.Empty(http.StatusNoContent)
}
