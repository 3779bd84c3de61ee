// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// tagRoutes are the calls about the tags of a server.
func (a *API) tagRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/servers/{id}/tags", handle: a.listTags, since: vTags, about: &aboutListTags},
		{method: "PUT", path: "/v2.1/servers/{id}/tags", body: once(tagsBody), handle: a.replaceTags, since: vTags, about: &aboutReplaceTags},
		{method: "DELETE", path: "/v2.1/servers/{id}/tags", handle: a.deleteTags, since: vTags, about: &aboutDeleteTags},
		{method: "GET", path: "/v2.1/servers/{id}/tags/{tag}", handle: a.showTag, since: vTags, about: &aboutShowTag},
		{method: "PUT", path: "/v2.1/servers/{id}/tags/{tag}", handle: a.addTag, since: vTags, about: &aboutAddTag},
		{method: "DELETE", path: "/v2.1/servers/{id}/tags/{tag}", handle: a.deleteTag, since: vTags, about: &aboutDeleteTag},
	}
}

// tagsBody is the body with all tags; that with one is null.
var (
	tagsBody = js.ClosedObject(js.Properties{
		{Name: "tags", Schema: js.Schema{js.Type("array"), js.Items(schemaTag), js.MaxItems(cellwire.MaxTags)}},
	}, "tags")
	nothing = js.Schema{js.Type("null")}
)

// listTags answers GET /servers/{id}/tags.
func (a *API) listTags(x *exchange) error {
	_, server, err := a.serverOfPath(x, ruleTagsIndex)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("tags", server.Tags))
}

// showTag answers GET /servers/{id}/tags/{tag}: 204 if the server has it.
func (a *API) showTag(x *exchange) error {
	m, server, err := a.serverOfPath(x, ruleTagsShow)
	if err != nil {
		return err
	}
	if tag := x.param("tag"); !slices.Contains(server.Tags, tag) {
		return notFound("Server %s has no tag '%s'", m.InstanceUUID, shortened(tag))
	}
	return x.empty(http.StatusNoContent)
}

// replaceTags answers PUT /servers/{id}/tags: there are no others afterwards.
func (a *API) replaceTags(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	m, err := a.mappingOfPath(x, ruleTagsUpdateAll)
	if err != nil {
		return err
	}
	server, err := a.patchServer(x, m, cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Replace: true, Add: requestedTags(body)}})
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("tags", server.Tags))
}

// deleteTags answers DELETE /servers/{id}/tags.
func (a *API) deleteTags(x *exchange) error {
	m, err := a.mappingOfPath(x, ruleTagsDeleteAll)
	if err != nil {
		return err
	}
	if _, err := a.patchServer(x, m, cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Replace: true}}); err != nil {
		return err
	}
	return x.empty(http.StatusNoContent)
}

// addTag answers PUT /servers/{id}/tags/{tag}: 201 with its location, or 204 if the server has it.
func (a *API) addTag(x *exchange) error {
	value, err := x.decoded()
	if err == nil {
		if wrong := js.Validate(nothing, value); wrong != nil {
			err = badRequest("%s", wrong)
		}
	}
	if err != nil {
		return err
	}
	m, server, err := a.serverOfPath(x, ruleTagsUpdate)
	if err != nil {
		return err
	}
	tag := x.param("tag")
	patch := cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Add: []string{tag}}}
	if err := patch.Check(&server); err != nil {
		return inNovasWords(err, "update tag", m.InstanceUUID)
	}
	if wrong := js.Validate(schemaTag, tag); wrong != nil {
		return badRequest("Tag '%s' is invalid. It must be a non empty string without characters '/' and ','. Validation error message: %s", shortened(tag), wrong)
	}
	if len(server.Tags) >= cellwire.MaxTags {
		return badRequest("The number of tags exceeded the per-server limit %d", cellwire.MaxTags)
	}
	if slices.Contains(server.Tags, tag) {
		return x.empty(http.StatusNoContent)
	}
	if _, err := a.patchServer(x, m, patch); err != nil {
		return err
	}
	x.header().Set("Location", x.selfLink("servers", m.InstanceUUID+"/tags/"+tag))
	return x.empty(http.StatusCreated)
}

// deleteTag answers DELETE /servers/{id}/tags/{tag}.
func (a *API) deleteTag(x *exchange) error {
	m, server, err := a.serverOfPath(x, ruleTagsDelete)
	if err != nil {
		return err
	}
	tag := x.param("tag")
	patch := cellwire.ServerPatch{Tags: &cellwire.TagsPatch{Remove: []string{tag}}}
	if err := patch.Check(&server); err != nil {
		return inNovasWords(err, "delete tag", m.InstanceUUID)
	}
	if !slices.Contains(server.Tags, tag) {
		return notFound("Instance %s has no tag '%s'", m.InstanceUUID, shortened(tag))
	}
	if _, err := a.patchServer(x, m, patch); err != nil {
		return err
	}
	return x.empty(http.StatusNoContent)
}
