// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
)

// limitRoutes has the call about limits.
func (d *Deps) limitRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/limits", Query: &limitsQuery, Handle: d.showLimits, About: &aboutShowLimits},
	}
}

// The policies of limits.
var (
	ruleLimits      = api.Rule{Name: "os_compute_api:limits", Default: api.AnyUser}
	ruleLimitsOther = api.Rule{Name: "os_compute_api:limits:other_project", Default: api.Admins}
)

// limitsQuery are the parameters of GET /limits.
var limitsQuery = api.Parameters{All: []api.Parameter{{Name: "tenant_id", Schema: api.SchemaText, Text: "The project whose limits are meant, for administrators."}}}

// showLimits answers GET /limits: what the project may have, and what it has. The usage is exact
// also while cells are down, where Nova's leaves out what is in them. Cost: a question to all
// cells, and when one is down a count in the API database.
func (d *Deps) showLimits(x *api.Exchange) error {
	params, err := x.CheckedQuery()
	if err != nil {
		return err
	}
	if err := x.AllowOwn(ruleLimits); err != nil {
		return err
	}
	project := x.Who.Project
	if params.Has("tenant_id") {
		project = params.Last("tenant_id")
		if err := x.AllowOwn(ruleLimitsOther); err != nil {
			return err
		}
	}
	limits, usage, err := d.limitsAndUsage(x.Context(), project)
	if err != nil {
		return err
	}
	absolute := new(api.Object)
	for i := range quotaResources {
		r := &quotaResources[i]
		for _, name := range r.max {
			if r.shown(x.Version) && (name != maxImageMeta || x.Version < vNoImageMeta) {
				absolute.Add(name, r.limit(limits))
			}
		}
	}
	for i := range quotaResources {
		if r := &quotaResources[i]; r.used != "" && r.shown(x.Version) {
			absolute.Add(r.used, r.inUse(usage))
		}
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("limits", new(api.Object).Add("rate", api.List{}).Add("absolute", absolute)))
}
