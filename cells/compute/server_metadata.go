// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// metadataRoutes are the calls about the metadata of a server.
func (a *API) metadataRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/servers/{id}/metadata", handle: a.listMetadata, about: &aboutListMetadata},
		{method: "POST", path: "/v2.1/servers/{id}/metadata", body: once(metadataBody), handle: a.addMetadata, about: &aboutAddMetadata},
		{method: "PUT", path: "/v2.1/servers/{id}/metadata", body: once(metadataBody), handle: a.replaceMetadata, about: &aboutReplaceMetadata},
		{method: "GET", path: "/v2.1/servers/{id}/metadata/{key}", handle: a.showMetadata, about: &aboutShowMetadata},
		{method: "PUT", path: "/v2.1/servers/{id}/metadata/{key}", body: once(metaBody), handle: a.setMetadata, about: &aboutSetMetadata},
		{method: "DELETE", path: "/v2.1/servers/{id}/metadata/{key}", handle: a.deleteMetadata, about: &aboutDeleteMetadata},
	}
}

// The bodies with all items, and with one.
var (
	metadataBody = js.ClosedObject(js.Properties{{Name: "metadata", Schema: schemaMetadata}}, "metadata")
	metaBody     = js.ClosedObject(js.Properties{
		{Name: "meta", Schema: append(schemaMetadata[:len(schemaMetadata):len(schemaMetadata)], js.MinProperties(1), js.MaxProperties(1))},
	}, "meta")
)

// serverOfPath is the server of the path, for a caller who passes a rule.
func (a *API) serverOfPath(x *exchange, rule Rule) (apidb.Mapping, cellwire.Server, error) {
	m, err := a.mappingOfPath(x, rule)
	if err != nil {
		return m, cellwire.Server{}, err
	}
	server, err := a.current(x, m, "show")
	return m, server, err
}

// mappingOfPath is the mapping of the server of the path, for a caller who passes a rule.
func (a *API) mappingOfPath(x *exchange, rule Rule) (apidb.Mapping, error) {
	m, err := a.mapping(x, x.param("id"))
	if err != nil {
		return m, err
	}
	return m, x.allow(rule, m.ProjectID)
}

// listMetadata answers GET /servers/{id}/metadata.
func (a *API) listMetadata(x *exchange) error {
	_, server, err := a.serverOfPath(x, ruleMetadataIndex)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("metadata", server.Metadata))
}

// showMetadata answers GET /servers/{id}/metadata/{key}.
func (a *API) showMetadata(x *exchange) error {
	_, server, err := a.serverOfPath(x, ruleMetadataShow)
	if err != nil {
		return err
	}
	key := x.param("key")
	value, has := server.Metadata[key]
	if !has {
		return notFound("Metadata item was not found")
	}
	return x.json(http.StatusOK, new(object).add("meta", map[string]string{key: value}))
}

// addMetadata answers POST /servers/{id}/metadata: items that are there stay, or get another value.
func (a *API) addMetadata(x *exchange) error {
	return a.putMetadata(x, ruleMetadataCreate, false)
}

// replaceMetadata answers PUT /servers/{id}/metadata: there are no other items afterwards.
func (a *API) replaceMetadata(x *exchange) error {
	return a.putMetadata(x, ruleMetadataUpdateAll, true)
}

func (a *API) putMetadata(x *exchange, rule Rule, replace bool) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	m, err := a.mappingOfPath(x, rule)
	if err != nil {
		return err
	}
	server, err := a.patchMetadata(x, m, cellwire.MetadataPatch{Replace: replace, Set: memberTexts(memberObject(body, "metadata"))})
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("metadata", server.Metadata))
}

// setMetadata answers PUT /servers/{id}/metadata/{key}.
func (a *API) setMetadata(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	m, err := a.mappingOfPath(x, ruleMetadataUpdate)
	if err != nil {
		return err
	}
	item := memberTexts(memberObject(body, "meta"))
	if _, has := item[x.param("key")]; !has {
		return badRequest("Request body and URI mismatch")
	}
	if _, err := a.patchMetadata(x, m, cellwire.MetadataPatch{Set: item}); err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("meta", item))
}

// deleteMetadata answers DELETE /servers/{id}/metadata/{key}.
func (a *API) deleteMetadata(x *exchange) error {
	m, server, err := a.serverOfPath(x, ruleMetadataDelete)
	if err != nil {
		return err
	}
	key := x.param("key")
	if _, has := server.Metadata[key]; !has {
		return notFound("Metadata item was not found")
	}
	if _, err := a.patchMetadata(x, m, cellwire.MetadataPatch{Remove: []string{key}}); err != nil {
		return err
	}
	return x.empty(http.StatusNoContent)
}

// patchMetadata changes the metadata of a server, within the quota of the caller's project.
func (a *API) patchMetadata(x *exchange, m apidb.Mapping, patch cellwire.MetadataPatch) (cellwire.Server, error) {
	if len(patch.Set) > 0 {
		limits, err := a.quota.Limits(x.ctx(), x.Who.Project)
		if err != nil {
			return cellwire.Server{}, err
		}
		patch.Most = max(metadataItems.limit(limits), 0)
	}
	return a.patchServer(x, m, cellwire.ServerPatch{Metadata: &patch})
}

// memberTexts are the members of an object that are all strings.
func memberTexts(o *js.Object) map[string]string {
	texts := make(map[string]string, len(o.Names()))
	for _, name := range o.Names() {
		texts[name] = memberString(o, name)
	}
	return texts
}
