// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The microversions of lists of servers, beside those of package api.
const (
	vFilterIPv6    api.Version = 5  // members may filter by ip6
	vStatusChecked api.Version = 38 // an invalid status is rejected
)

// The policies of lists of servers.
var (
	ruleServersIndex      = api.Rule{Name: "os_compute_api:servers:index", Default: api.Readers}
	ruleServersIndexAll   = api.Rule{Name: "os_compute_api:servers:index:get_all_tenants", Default: api.Admins}
	ruleServersDetail     = api.Rule{Name: "os_compute_api:servers:detail", Default: api.Readers}
	ruleServersDetailAll  = api.Rule{Name: "os_compute_api:servers:detail:get_all_tenants", Default: api.Admins}
	ruleServersAllFilters = api.Rule{Name: "os_compute_api:servers:allow_all_filters", Default: api.Admins}
)

const noteMinimal = "From 2.69 on, a server whose cell does not respond has a minimal record: `status` is `UNKNOWN`, " +
	"and of the members below only `id`, `status` and `links` are there, with details also `tenant_id` and " +
	"`created`. Such records come first, and only without filters, pages and sorting (`all_tenants`, " +
	"`project_id`, `tenant_id` and `deleted` are allowed). Otherwise servers of these cells are left out, or the " +
	"list is refused with 500, as the configuration says ([cells.md](cells.md#when-a-cell-is-down))."

// What the reference says about lists of servers.
var (
	aboutListBrief  = aboutList("Lists servers", ruleServersIndex, ruleServersIndexAll, briefListAnswer)
	aboutListDetail = aboutList("Lists servers with details",
		ruleServersDetail, ruleServersDetailAll, detailListAnswer)
)

func aboutList(summary string, own, all api.Rule, answer func(api.Version) jsonkit.Schema) api.About {
	rules := []api.RuleUse{{Rule: own, When: ""}, {Rule: all, When: "with all_tenants"},
		{Rule: ruleServersAllFilters, When: "for all filters"}}
	return api.About{
		Summary: summary, Notes: []string{noteMinimal}, Rules: append(rules, Rules...),
		Answers: api.OK("The servers, the newest first unless something else is asked for.", api.ByVersion(answer)),
		Failures: []apidoc.Failure{api.Failure(http.StatusBadRequest,
			"The marker is no server of the list, or a filter is refused.")},
	}
}
