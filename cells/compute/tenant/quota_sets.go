// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// quotaSetRoutes are the calls about the quotas of projects. Any project name is accepted: its
// existence is not checked. There are no quotas of single users; asked for those of one, the answer
// has the project's limits, which are what counts for each of its users, and what the user has.
func (d *Deps) quotaSetRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-quota-sets/{id}",
			Query: &quotaQuery, Handle: d.showQuotas, Rules: []api.Rule{ruleQuotaShow}},
		{Method: "GET", Path: "/v2.1/os-quota-sets/{id}/detail", Query: &quotaQuery, Handle: d.showQuotasDetail,
			Rules: []api.Rule{ruleQuotaDetail}},
		{Method: "GET", Path: "/v2.1/os-quota-sets/{id}/defaults", Query: &quotaQuery, Handle: d.showQuotaDefaults,
			Rules: []api.Rule{ruleQuotaDefaults}},
		{Method: "PUT", Path: "/v2.1/os-quota-sets/{id}",
			Query: &quotaQuery, Body: quotaSets, Handle: d.updateQuotas, Rules: []api.Rule{ruleQuotaUpdate}},
		{Method: "DELETE", Path: "/v2.1/os-quota-sets/{id}", Query: &quotaQuery,
			Handle: d.deleteQuotas, Rules: []api.Rule{ruleQuotaDelete}},
	}
}

// The policies of quotas.
var (
	ruleQuotaShow     = api.Rule{Name: "os_compute_api:os-quota-sets:show", Default: api.Readers}
	ruleQuotaDefaults = api.Rule{Name: "os_compute_api:os-quota-sets:defaults", Default: api.AnyUser}
	ruleQuotaDetail   = api.Rule{Name: "os_compute_api:os-quota-sets:detail", Default: api.Readers}
	ruleQuotaUpdate   = api.Rule{Name: "os_compute_api:os-quota-sets:update", Default: api.Admins}
	ruleQuotaDelete   = api.Rule{Name: "os_compute_api:os-quota-sets:delete", Default: api.Admins}
)

// quotaQuery are the parameters of all of them.
var quotaQuery = api.Parameters{All: []api.Parameter{
	{
		Name:   "user_id",
		Schema: api.SchemaText,
		Text: "A user of the project. Quotas of users are those of their project: reads show the project's " +
			"limits, and with `/detail` what the user has of them; PUT is refused (400), and DELETE changes nothing.",
	},
}}

// quotaSets are the bodies of PUT /os-quota-sets/{id}.
var quotaSets = func() api.SchemaSteps {
	limit := js.Schema{js.Type("integer", "string"), js.Pattern("^-?[0-9]+$"), js.Minimum(-1), js.Maximum(api.MaxInt)}
	names := []string{
		"instances", "cores", "ram", "floating_ips", "fixed_ips", "metadata_items", "key_pairs",
		"security_groups", "security_group_rules",
		"injected_files", "injected_file_content_bytes",
		"injected_file_path_bytes", "server_groups", "server_group_members", "networks",
	}
	var all api.Fields
	for _, name := range names {
		until := vNoNetworkQuotas - 1 // of "networks", which is no resource here
		if i := slices.IndexFunc(quotaResources, func(r quotaResource) bool { return r.name == name }); i >= 0 {
			until = quotaResources[i].until
		}
		all = append(all, api.Field{Name: name, Until: until, Schema: limit})
	}
	all = append(all, api.Field{Name: "force", Schema: api.SchemaBoolean})
	return all.Steps(func(_ api.Version, members js.Properties) js.Schema {
		return js.ClosedObject(js.Properties{{Name: "quota_set", Schema: js.ClosedObject(members)}}, "quota_set")
	})
}()

// quotaView writes the resources that the microversion has into a quota set, by their names.
func quotaView(x *api.Exchange, set *api.Object, value func(*quotaResource) any) *api.Object {
	for i := range sortedResources {
		if r := &sortedResources[i]; r.existsAt(x.Version) {
			set.Add(r.name, value(r))
		}
	}
	return new(api.Object).Add("quota_set", set)
}

var sortedResources = slices.SortedFunc(slices.Values(quotaResources),
	func(a, b quotaResource) int { return strings.Compare(a.name, b.name) })

// showQuotas answers GET /os-quota-sets/{id}.
func (d *Deps) showQuotas(x *api.Exchange) error {
	project, err := quotaProject(x, ruleQuotaShow)
	if err != nil {
		return err
	}
	limits, err := d.Quota.Limits(x.Context(), project)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, quotaView(x, new(api.Object).Add("id", project),
		func(r *quotaResource) any { return r.limit(limits) }))
}

// quotaProject is the project of the path, if the caller passes a rule for it.
func quotaProject(x *api.Exchange, rule api.Rule) (string, error) {
	project := x.Param("id")
	return project, x.Allow(rule, project)
}

// showQuotasDetail answers GET /os-quota-sets/{id}/detail: also what is used. Nothing is ever
// reserved.
func (d *Deps) showQuotasDetail(x *api.Exchange) error {
	project, err := quotaProject(x, ruleQuotaDetail)
	if err != nil {
		return err
	}
	limits, usage, err := d.limitsAndUsage(x.Context(), project, x.Params.Last("user_id"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, quotaView(x, new(api.Object).Add("id", project), func(r *quotaResource) any {
		return new(api.Object).Add("limit", r.limit(limits)).Add("in_use", r.inUse(usage)).Add("reserved", 0)
	}))
}

// showQuotaDefaults answers GET /os-quota-sets/{id}/defaults.
func (d *Deps) showQuotaDefaults(x *api.Exchange) error {
	project, err := quotaProject(x, ruleQuotaDefaults)
	if err != nil {
		return err
	}
	limits := d.Quota.Defaults()
	return x.JSON(http.StatusOK, quotaView(x, new(api.Object).Add("id", project),
		func(r *quotaResource) any { return r.limit(limits) }))
}

// updateQuotas answers PUT /os-quota-sets/{id}. A limit is not set below what the project has,
// unless it is forced.
func (d *Deps) updateQuotas(x *api.Exchange) error {
	project, err := quotaProject(x, ruleQuotaUpdate)
	if err != nil {
		return err
	}
	if x.Params.Has("user_id") {
		return osapi.BadRequest("user_id: this service has no quotas of single users; set those of the project.")
	}
	asked := api.MemberObject(x.Asked, "quota_set")
	if _, has := asked.Get("networks"); has {
		return osapi.BadRequest("The networks quota has been removed")
	}
	wanted, err := d.wantedQuotas(x, project, asked)
	if err != nil {
		return err
	}
	if len(wanted) > 0 {
		if err := d.Store.SetQuotas(x.Context(), project, wanted); err != nil {
			return err
		}
	}
	limits, err := d.Quota.Limits(x.Context(), project)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, quotaView(x, new(api.Object), func(r *quotaResource) any { return r.limit(limits) }))
}

// wantedQuotas are the limits that a body sets; all of them are checked before any is set.
func (d *Deps) wantedQuotas(x *api.Exchange, project string, asked *js.Object) (apidb.QuotaSet, error) {
	wanted := apidb.QuotaSet{}
	for _, name := range asked.Names() {
		if name != "force" {
			wanted[name] = api.MemberInt(asked, name, 0)
		}
	}
	if len(wanted) == 0 || api.MemberBool(asked, "force", false) {
		return wanted, nil
	}
	usage, err := d.quotaUsage(x.Context(), project, "")
	if err != nil {
		return nil, err
	}
	for _, name := range asked.Names() {
		for i := range quotaResources {
			if r := &quotaResources[i]; r.name == name && wanted[name] >= 0 && wanted[name] < r.inUse(usage) {
				return nil,
					osapi.BadRequest(
						"Quota limit %d for %s must be greater than or equal to already used and reserved %d.",
						wanted[name], name, r.inUse(usage))
			}
		}
	}
	return wanted, nil
}

// deleteQuotas answers DELETE /os-quota-sets/{id}: from now on the defaults count. Of one user
// there is nothing to delete.
func (d *Deps) deleteQuotas(x *api.Exchange) error {
	project, err := quotaProject(x, ruleQuotaDelete)
	if err != nil {
		return err
	}
	if !x.Params.Has("user_id") {
		if err := d.Store.DeleteQuotas(x.Context(), project); err != nil {
			return err
		}
	}
	return x.Empty(http.StatusAccepted)
}
