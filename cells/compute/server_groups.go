// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/apidb"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// serverGroupRoutes are the calls about server groups. Servers become members when they are made.
func (a *API) serverGroupRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/os-server-groups", query: &serverGroupQuery, handle: a.listServerGroups, about: &aboutListServerGroups},
		{method: "POST", path: "/v2.1/os-server-groups", body: serverGroupSchemas, handle: a.createServerGroup, about: &aboutCreateServerGroup},
		{method: "GET", path: "/v2.1/os-server-groups/{id}", handle: a.showServerGroup, about: &aboutShowServerGroup},
		{method: "DELETE", path: "/v2.1/os-server-groups/{id}", handle: a.deleteServerGroup, about: &aboutDeleteServerGroup},
	}
}

// The policies of server groups.
var (
	ruleServerGroupsIndex    = Rule{"os_compute_api:os-server-groups:index", readers}
	ruleServerGroupsIndexAll = Rule{"os_compute_api:os-server-groups:index:all_projects", admins}
	ruleServerGroupsShow     = Rule{"os_compute_api:os-server-groups:show", readers}
	ruleServerGroupsCreate   = Rule{"os_compute_api:os-server-groups:create", members}
	ruleServerGroupsDelete   = Rule{"os_compute_api:os-server-groups:delete", members}
)

// The microversions of server groups.
const (
	vGroupOwner  Version = 13 // they say whose they are
	vSoftGroups  Version = 15 // the soft policies
	vGroupPolicy Version = 64 // one policy, with rules
)

// serverGroupSchemas are the bodies of POST /os-server-groups.
var serverGroupSchemas = func() schemaSteps {
	hard := []any{apidb.PolicyAntiAffinity, apidb.PolicyAffinity}
	all := append(hard[:len(hard):len(hard)], apidb.PolicySoftAntiAffinity, apidb.PolicySoftAffinity)
	body := func(p js.Properties, required string) js.Schema {
		p = append(js.Properties{{Name: "name", Schema: schemaName}}, p...)
		return js.ClosedObject(js.Properties{{Name: "server_group", Schema: js.ClosedObject(p, "name", required)}}, "server_group")
	}
	several := func(policies []any) js.Schema {
		return body(js.Properties{{Name: "policies", Schema: js.Schema{
			js.Type("array"), js.Items(js.Schema{js.Type("string"), js.Enum(policies...)}), js.UniqueItems(), js.MinItems(1), js.MaxItems(1),
		}}}, "policies")
	}
	return schemaSteps{
		{vGroupPolicy, body(js.Properties{
			{Name: "policy", Schema: js.Schema{js.Type("string"), js.Enum(all...)}},
			{Name: "rules", Schema: js.ClosedObject(js.Properties{{Name: maxPerHost, Schema: schemaCount}})},
		}, "policy")},
		{vSoftGroups, several(all)},
		{MinVersion, several(hard)},
	}
}()

// maxPerHost is the only rule that there is.
const maxPerHost = "max_server_per_host"

// serverGroupQuery are the parameters of GET /os-server-groups.
var serverGroupQuery = parameters{all: []parameter{
	{name: "all_projects", schema: schemaText, text: "Whatever its value: those of all projects, for administrators."},
	{name: "limit", schema: schemaAnyNumber, text: textLimit},
	{name: "offset", schema: schemaAnyNumber, text: "How many are left out at the beginning."},
}}

// serverGroupView is a group as the microversion has it, with the members that are not deleted.
func serverGroupView(x *exchange, g *apidb.ServerGroup) *object {
	o := new(object).add("id", g.UUID).add("name", g.Name)
	if x.since(vGroupPolicy) {
		rules := new(object)
		if g.MaxPerHost > 0 {
			rules.add(maxPerHost, g.MaxPerHost)
		}
		o.add("policy", g.Policy).add("rules", rules)
	} else {
		o.add("policies", []string{g.Policy}).add("metadata", new(object))
	}
	o.add("members", g.Members)
	if x.since(vGroupOwner) {
		o.add("project_id", g.ProjectID).add("user_id", g.UserID)
	}
	return o
}

func oneServerGroup(x *exchange, g *apidb.ServerGroup) error {
	return x.json(http.StatusOK, new(object).add("server_group", serverGroupView(x, g)))
}

func noServerGroup(id string) error {
	return notFound("Instance group %s could not be found.", shortened(id))
}

// serverGroup is a group that the caller may know of: its project's, or any for an administrator.
func (a *API) serverGroup(x *exchange, id string) (apidb.ServerGroup, error) {
	g, err := a.store.ServerGroup(x.ctx(), id)
	if errors.Is(err, apidb.ErrNotFound) || err == nil && g.ProjectID != x.Who.Project && !x.isAdmin() {
		return apidb.ServerGroup{}, noServerGroup(id)
	}
	return g, err
}

// listServerGroups answers GET /os-server-groups: the project's, or for administrators that ask for
// them those of all projects.
func (a *API) listServerGroups(x *exchange) error {
	params, err := x.checkedQuery()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleServerGroupsIndex); err != nil {
		return err
	}
	project := x.Who.Project
	if params.has("all_projects") && x.isAdmin() {
		if err := x.allowOwn(ruleServerGroupsIndexAll); err != nil {
			return err
		}
		project = ""
	}
	groups, err := a.store.ServerGroups(x.ctx(), project)
	if err != nil {
		return err
	}
	number := func(name string) int {
		n, err := strconv.Atoi(params.last(name))
		if err != nil { // none, or more than an int
			return len(groups) * min(len(params.last(name)), 1)
		}
		return n
	}
	groups = groups[min(number("offset"), len(groups)):]
	limit := a.options.MaxLimit
	if n := number("limit"); n > 0 {
		limit = min(limit, n)
	}
	groups = groups[:min(limit, len(groups))]
	shown := make(list, len(groups))
	for i := range groups {
		shown[i] = serverGroupView(x, &groups[i])
	}
	return x.json(http.StatusOK, new(object).add("server_groups", shown))
}

// showServerGroup answers GET /os-server-groups/{id}.
func (a *API) showServerGroup(x *exchange) error {
	g, err := a.serverGroup(x, x.param("id"))
	if err != nil {
		return err
	}
	if err := x.allow(ruleServerGroupsShow, g.ProjectID); err != nil {
		return err
	}
	return oneServerGroup(x, &g)
}

// createServerGroup answers POST /os-server-groups, within the quota for them.
func (a *API) createServerGroup(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleServerGroupsCreate); err != nil {
		return err
	}
	limits, err := a.quota.Limits(x.ctx(), x.Who.Project)
	if err != nil {
		return err
	}
	asked := memberObject(body, "server_group")
	g := apidb.ServerGroup{Name: memberString(asked, "name"), ProjectID: x.Who.Project, UserID: x.Who.User, Policy: memberString(asked, "policy")}
	if policies := memberList(asked, "policies"); len(policies) > 0 {
		g.Policy = js.PythonStr(policies[0])
	}
	if rules := memberObject(asked, "rules"); rules != nil && len(rules.Names()) > 0 {
		if g.Policy != apidb.PolicyAntiAffinity {
			return badRequest("Only anti-affinity policy supports rules.")
		}
		if g.MaxPerHost = memberInt(rules, maxPerHost, 0); g.MaxPerHost < 1 { // more than 64 bits
			return badRequest("%s is too large.", maxPerHost)
		}
	}
	made, err := a.store.CreateServerGroup(x.ctx(), g, func(has int64) error {
		if most := serverGroups.limit(limits); most >= 0 && has >= most {
			return forbidden("Quota exceeded, too many server groups.")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return oneServerGroup(x, &made)
}

// deleteServerGroup answers DELETE /os-server-groups/{id}. Its members stay where they are.
func (a *API) deleteServerGroup(x *exchange) error {
	g, err := a.serverGroup(x, x.param("id"))
	if err != nil {
		return err
	}
	if err := x.allow(ruleServerGroupsDelete, g.ProjectID); err != nil {
		return err
	}
	err = a.store.DeleteServerGroup(x.ctx(), g.UUID)
	if errors.Is(err, apidb.ErrNotFound) {
		return noServerGroup(g.UUID)
	}
	if err != nil {
		return err
	}
	return x.empty(http.StatusNoContent)
}
