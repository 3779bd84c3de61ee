// SPDX-License-Identifier: Apache-2.0

package compute

import "net/http"

// limitRoutes has the call about limits.
func (a *API) limitRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/limits", query: &limitsQuery, handle: a.showLimits, about: &aboutShowLimits},
	}
}

// The policies of limits.
var (
	ruleLimits      = Rule{"os_compute_api:limits", anyUser}
	ruleLimitsOther = Rule{"os_compute_api:limits:other_project", admins}
)

// limitsQuery are the parameters of GET /limits.
var limitsQuery = parameters{all: []parameter{{name: "tenant_id", schema: schemaText, text: "The project whose limits are meant, for administrators."}}}

// showLimits answers GET /limits: what the project may have, and what it has. The usage is exact
// also while cells are down, where Nova's leaves out what is in them. Cost: a question to all
// cells, and when one is down a count in the API database.
func (a *API) showLimits(x *exchange) error {
	params, err := x.checkedQuery()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleLimits); err != nil {
		return err
	}
	project := x.Who.Project
	if params.has("tenant_id") {
		project = params.last("tenant_id")
		if err := x.allowOwn(ruleLimitsOther); err != nil {
			return err
		}
	}
	limits, usage, err := a.limitsAndUsage(x.ctx(), project)
	if err != nil {
		return err
	}
	absolute := new(object)
	for i := range quotaResources {
		r := &quotaResources[i]
		for _, name := range r.max {
			if r.shown(x.version) && (name != maxImageMeta || x.version < vNoImageMeta) {
				absolute.add(name, r.limit(limits))
			}
		}
	}
	for i := range quotaResources {
		if r := &quotaResources[i]; r.used != "" && r.shown(x.version) {
			absolute.add(r.used, r.inUse(usage))
		}
	}
	return x.json(http.StatusOK, new(object).add("limits", new(object).add("rate", list{}).add("absolute", absolute)))
}
