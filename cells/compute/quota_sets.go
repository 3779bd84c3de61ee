// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// quotaSetRoutes are the calls about the quotas of projects. Any project name is accepted: its
// existence is not checked. There are no quotas of single users; asked for those of one, the answer
// has the project's, which are what counts for each of its users.
func (a *API) quotaSetRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/os-quota-sets/{id}", query: &quotaQuery, handle: a.showQuotas, about: &aboutShowQuotas},
		{method: "GET", path: "/v2.1/os-quota-sets/{id}/detail", query: &quotaQuery, handle: a.showQuotasDetail, about: &aboutShowQuotasDetail},
		{method: "GET", path: "/v2.1/os-quota-sets/{id}/defaults", query: &quotaQuery, handle: a.showQuotaDefaults, about: &aboutShowQuotaDefaults},
		{method: "PUT", path: "/v2.1/os-quota-sets/{id}", query: &quotaQuery, body: quotaSets, handle: a.updateQuotas, about: &aboutUpdateQuotas},
		{method: "DELETE", path: "/v2.1/os-quota-sets/{id}", query: &quotaQuery, handle: a.deleteQuotas, about: &aboutDeleteQuotas},
	}
}

// The policies of quotas.
var (
	ruleQuotaShow     = Rule{"os_compute_api:os-quota-sets:show", readers}
	ruleQuotaDefaults = Rule{"os_compute_api:os-quota-sets:defaults", anyUser}
	ruleQuotaDetail   = Rule{"os_compute_api:os-quota-sets:detail", readers}
	ruleQuotaUpdate   = Rule{"os_compute_api:os-quota-sets:update", admins}
	ruleQuotaDelete   = Rule{"os_compute_api:os-quota-sets:delete", admins}
)

// quotaQuery are the parameters of all of them.
var quotaQuery = parameters{all: []parameter{{name: "user_id", schema: schemaText,
	text: "A user of the project. Quotas of users are those of their project: reads show these, PUT is refused (400), and DELETE changes nothing."}}}

// quotaSets are the bodies of PUT /os-quota-sets/{id}.
var quotaSets = func() schemaSteps {
	limit := js.Schema{js.Type("integer", "string"), js.Pattern("^-?[0-9]+$"), js.Minimum(-1), js.Maximum(maxInt)}
	names := []string{
		"instances", "cores", "ram", "floating_ips", "fixed_ips", "metadata_items", "key_pairs", "security_groups", "security_group_rules",
		"injected_files", "injected_file_content_bytes", "injected_file_path_bytes", "server_groups", "server_group_members", "networks",
	}
	var all js.Properties
	for _, name := range names {
		all = append(all, js.Property{Name: name, Schema: limit})
	}
	all = append(all, js.Property{Name: "force", Schema: schemaBoolean})
	later := all.Without("fixed_ips", "floating_ips", "security_groups", "security_group_rules", "networks")
	last := later.Without("injected_files", "injected_file_content_bytes", "injected_file_path_bytes")
	body := func(p js.Properties) js.Schema {
		return js.ClosedObject(js.Properties{{Name: "quota_set", Schema: js.ClosedObject(p)}}, "quota_set")
	}
	return schemaSteps{{vNoInjectedFiles, body(last)}, {vNoNetworkQuotas, body(later)}, {MinVersion, body(all)}}
}()

// quotaView writes the resources that the microversion has into a quota set, by their names.
func quotaView(x *exchange, set *object, value func(*quotaResource) any) *object {
	for i := range sortedResources {
		if r := &sortedResources[i]; r.shown(x.version) {
			set.add(r.name, value(r))
		}
	}
	return new(object).add("quota_set", set)
}

var sortedResources = slices.SortedFunc(slices.Values(quotaResources), func(a, b quotaResource) int { return strings.Compare(a.name, b.name) })

// showQuotas answers GET /os-quota-sets/{id}.
func (a *API) showQuotas(x *exchange) error {
	project, err := quotaProject(x, ruleQuotaShow)
	if err != nil {
		return err
	}
	limits, err := a.quota.Limits(x.ctx(), project)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, quotaView(x, new(object).add("id", project), func(r *quotaResource) any { return r.limit(limits) }))
}

// quotaProject is the project of the path, if the caller passes a rule for it.
func quotaProject(x *exchange, rule Rule) (string, error) {
	if _, err := x.checkedQuery(); err != nil {
		return "", err
	}
	project := x.param("id")
	return project, x.allow(rule, project)
}

// showQuotasDetail answers GET /os-quota-sets/{id}/detail: also what is used. Nothing is ever
// reserved.
func (a *API) showQuotasDetail(x *exchange) error {
	project, err := quotaProject(x, ruleQuotaDetail)
	if err != nil {
		return err
	}
	limits, usage, err := a.limitsAndUsage(x.ctx(), project)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, quotaView(x, new(object).add("id", project), func(r *quotaResource) any {
		return new(object).add("limit", r.limit(limits)).add("in_use", r.inUse(usage)).add("reserved", 0)
	}))
}

// showQuotaDefaults answers GET /os-quota-sets/{id}/defaults.
func (a *API) showQuotaDefaults(x *exchange) error {
	project, err := quotaProject(x, ruleQuotaDefaults)
	if err != nil {
		return err
	}
	limits := a.quota.Defaults()
	return x.json(http.StatusOK, quotaView(x, new(object).add("id", project), func(r *quotaResource) any { return r.limit(limits) }))
}

// updateQuotas answers PUT /os-quota-sets/{id}. A limit is not set below what the project has,
// unless it is forced.
func (a *API) updateQuotas(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	project, err := quotaProject(x, ruleQuotaUpdate)
	if err != nil {
		return err
	}
	if params, _ := x.readQuery(); params.has("user_id") {
		return badRequest("user_id: this service has no quotas of single users; set those of the project.")
	}
	asked := memberObject(body, "quota_set")
	if _, has := asked.Get("networks"); has {
		return badRequest("The networks quota has been removed")
	}
	wanted, err := a.wantedQuotas(x, project, asked)
	if err != nil {
		return err
	}
	if len(wanted) > 0 {
		if err := a.store.SetQuotas(x.ctx(), project, wanted); err != nil {
			return err
		}
	}
	limits, err := a.quota.Limits(x.ctx(), project)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, quotaView(x, new(object), func(r *quotaResource) any { return r.limit(limits) }))
}

// wantedQuotas are the limits that a body sets; all of them are checked before any is set.
func (a *API) wantedQuotas(x *exchange, project string, asked *js.Object) (apidb.QuotaSet, error) {
	wanted := apidb.QuotaSet{}
	for _, name := range asked.Names() {
		if name != "force" {
			wanted[name] = memberInt(asked, name, 0)
		}
	}
	if len(wanted) == 0 || memberBool(asked, "force", false) {
		return wanted, nil
	}
	usage, err := a.quotaUsage(x.ctx(), project)
	if err != nil {
		return nil, err
	}
	for _, name := range asked.Names() {
		for i := range quotaResources {
			if r := &quotaResources[i]; r.name == name && wanted[name] >= 0 && wanted[name] < r.inUse(usage) {
				return nil, badRequest("Quota limit %d for %s must be greater than or equal to already used and reserved %d.", wanted[name], name, r.inUse(usage))
			}
		}
	}
	return wanted, nil
}

// deleteQuotas answers DELETE /os-quota-sets/{id}: from now on the defaults count. Of one user
// there is nothing to delete.
func (a *API) deleteQuotas(x *exchange) error {
	project, err := quotaProject(x, ruleQuotaDelete)
	if err != nil {
		return err
	}
	if params, _ := x.readQuery(); !params.has("user_id") {
		if err := a.store.DeleteQuotas(x.ctx(), project); err != nil {
			return err
		}
	}
	return x.empty(http.StatusAccepted)
}
