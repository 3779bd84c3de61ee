// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// serverGroupRoutes are the calls about server groups. Servers become members when they are made.
func (d *Deps) serverGroupRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/os-server-groups", Query: &serverGroupQuery, Rule: ruleServerGroupsIndex,
			Handle: d.listServerGroups, Rules: []api.Rule{ruleServerGroupsIndexAll}},
		{Method: "POST", Path: "/v2.1/os-server-groups", Body: serverGroupSchemas, Rule: ruleServerGroupsCreate,
			Handle: d.createServerGroup},
		{Method: "GET", Path: "/v2.1/os-server-groups/{id}", Handle: d.showServerGroup,
			Rules: []api.Rule{ruleServerGroupsShow}},
		{Method: "DELETE", Path: "/v2.1/os-server-groups/{id}", Handle: d.deleteServerGroup,
			Rules: []api.Rule{ruleServerGroupsDelete}},
	}
}

// The policies of server groups.
var (
	ruleServerGroupsIndex    = api.Rule{Name: "os_compute_api:os-server-groups:index", Default: api.Readers}
	ruleServerGroupsIndexAll = api.Rule{Name: "os_compute_api:os-server-groups:index:all_projects", Default: api.Admins}
	ruleServerGroupsShow     = api.Rule{Name: "os_compute_api:os-server-groups:show", Default: api.Readers}
	ruleServerGroupsCreate   = api.Rule{Name: "os_compute_api:os-server-groups:create", Default: api.Members}
	ruleServerGroupsDelete   = api.Rule{Name: "os_compute_api:os-server-groups:delete", Default: api.Members}
)

// The microversions of server groups.
const (
	vGroupOwner  api.Version = 13 // they say whose they are
	vSoftGroups  api.Version = 15 // the soft policies
	vGroupPolicy api.Version = 64 // one policy, with rules
)

// serverGroupSchemas are the bodies of POST /os-server-groups.
var serverGroupSchemas = func() api.SchemaSteps {
	hard := []any{apidb.PolicyAntiAffinity, apidb.PolicyAffinity}
	all := append(hard[:len(hard):len(hard)], apidb.PolicySoftAntiAffinity, apidb.PolicySoftAffinity)
	one := func(policies []any) js.Schema {
		return js.Schema{js.Type("array"), js.Items(js.Schema{js.Type("string"), js.Enum(policies...)}),
			js.UniqueItems(), js.MinItems(1), js.MaxItems(1)}
	}
	return api.Fields{
		{Name: "name", Schema: api.SchemaName},
		{Name: "policies", Until: vSoftGroups - 1, Schema: one(hard)},
		{Name: "policies", Since: vSoftGroups, Until: vGroupPolicy - 1, Schema: one(all)},
		{Name: "policy", Since: vGroupPolicy, Schema: js.Schema{js.Type("string"), js.Enum(all...)}},
		{Name: "rules", Since: vGroupPolicy,
			Schema: js.ClosedObject(js.Properties{{Name: maxPerHost, Schema: api.SchemaCount}})},
	}.Steps(func(_ api.Version, members js.Properties) js.Schema {
		group := js.ClosedObject(members, "name", members[1].Name) // policies or policy
		return js.ClosedObject(js.Properties{{Name: "server_group", Schema: group}}, "server_group")
	})
}()

// maxPerHost is the only rule that there is.
const maxPerHost = "max_server_per_host"

// serverGroupQuery are the parameters of GET /os-server-groups.
var serverGroupQuery = api.Parameters{All: []api.Parameter{
	{Name: "all_projects", Schema: api.SchemaText,
		Text: "Whatever its value: those of all projects, for administrators."},
	{Name: "limit", Schema: api.SchemaAnyNumber, Text: api.TextLimit},
	{Name: "offset", Schema: api.SchemaAnyNumber, Text: "How many are left out at the beginning."},
}}

// serverGroupView is a group as the microversion has it, with the members that are not deleted.
func serverGroupView(x *api.Exchange, g *apidb.ServerGroup) *api.Object {
	o := new(api.Object).Add("id", g.UUID).Add("name", g.Name)
	if x.AtLeast(vGroupPolicy) {
		rules := new(api.Object)
		if g.MaxPerHost > 0 {
			rules.Add(maxPerHost, g.MaxPerHost)
		}
		o.Add("policy", g.Policy).Add("rules", rules)
	} else {
		o.Add("policies", []string{g.Policy}).Add("metadata", new(api.Object))
	}
	o.Add("members", g.Members)
	if x.AtLeast(vGroupOwner) {
		o.Add("project_id", g.ProjectID).Add("user_id", g.UserID)
	}
	return o
}

func oneServerGroup(x *api.Exchange, g *apidb.ServerGroup) error {
	return x.JSON(http.StatusOK, new(api.Object).Add("server_group", serverGroupView(x, g)))
}

func noServerGroup(id string) error {
	return osapi.NotFound("Instance group %s could not be found.", osapi.Shortened(id))
}

// ServerGroup is a group that the caller may know of: its project's, or any for an administrator.
func (d *Deps) ServerGroup(x *api.Exchange, id string) (apidb.ServerGroup, error) {
	g, err := d.Store.ServerGroup(x.Context(), id)
	if errors.Is(err, apidb.ErrNotFound) || err == nil && g.ProjectID != x.Caller.Project && !x.IsAdmin() {
		return apidb.ServerGroup{}, noServerGroup(id)
	}
	return g, err
}

// listServerGroups answers GET /os-server-groups: the project's, or for administrators that ask for
// them those of all projects.
func (d *Deps) listServerGroups(x *api.Exchange) error {
	project := x.Caller.Project
	if x.Params.Has("all_projects") && x.IsAdmin() {
		if err := x.AllowOwn(ruleServerGroupsIndexAll); err != nil {
			return err
		}
		project = ""
	}
	groups, err := d.Store.ServerGroups(x.Context(), project)
	if err != nil {
		return err
	}
	number := func(name string) int {
		n, err := strconv.Atoi(x.Params.Last(name))
		if err != nil { // none, or more than an int
			return len(groups) * min(len(x.Params.Last(name)), 1)
		}
		return n
	}
	groups = groups[min(number("offset"), len(groups)):]
	limit := d.MaxLimit
	if n := number("limit"); n > 0 {
		limit = min(limit, n)
	}
	groups = groups[:min(limit, len(groups))]
	shown := make(api.List, len(groups))
	for i := range groups {
		shown[i] = serverGroupView(x, &groups[i])
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("server_groups", shown))
}

// showServerGroup answers GET /os-server-groups/{id}.
func (d *Deps) showServerGroup(x *api.Exchange) error {
	g, err := d.ServerGroup(x, x.Param("id"))
	if err != nil {
		return err
	}
	if err := x.Allow(ruleServerGroupsShow, g.ProjectID); err != nil {
		return err
	}
	return oneServerGroup(x, &g)
}

// createServerGroup answers POST /os-server-groups, within the quota for them.
func (d *Deps) createServerGroup(x *api.Exchange) error {
	limits, err := d.Quota.Limits(x.Context(), x.Caller.Project)
	if err != nil {
		return err
	}
	asked := api.MemberObject(x.Asked, "server_group")
	g := apidb.ServerGroup{Name: api.MemberString(asked, "name"), ProjectID: x.Caller.Project, UserID: x.Caller.User,
		Policy: api.MemberString(asked, "policy")}
	if policies := api.MemberList(asked, "policies"); len(policies) > 0 {
		g.Policy = js.PythonStr(policies[0])
	}
	if rules := api.MemberObject(asked, "rules"); rules != nil && len(rules.Names()) > 0 {
		if g.Policy != apidb.PolicyAntiAffinity {
			return osapi.BadRequest("Only anti-affinity policy supports rules.")
		}
		if g.MaxPerHost = api.MemberInt(rules, maxPerHost, 0); g.MaxPerHost < 1 { // more than 64 bits
			return osapi.BadRequest("%s is too large.", maxPerHost)
		}
	}
	made, err := d.Store.CreateServerGroup(x.Context(), g, func(has int64) error {
		if most := serverGroups.limit(limits); most >= 0 && has >= most {
			return api.Forbidden("Quota exceeded, too many server groups.")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return oneServerGroup(x, &made)
}

// deleteServerGroup answers DELETE /os-server-groups/{id}. Its members stay where they are.
func (d *Deps) deleteServerGroup(x *api.Exchange) error {
	g, err := d.ServerGroup(x, x.Param("id"))
	if err != nil {
		return err
	}
	if err := x.Allow(ruleServerGroupsDelete, g.ProjectID); err != nil {
		return err
	}
	err = d.Store.DeleteServerGroup(x.Context(), g.UUID)
	if err != nil {
		return api.RefuseIf(err, apidb.ErrNotFound, noServerGroup(g.UUID))
	}
	return x.Empty(http.StatusNoContent)
}
