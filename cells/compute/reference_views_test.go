// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// What the reference says of calls that find a server, or show some.
var (
	// viewRules are when the rules decide that say which members of servers are shown.
	viewRules = map[string]string{
		"os_compute_api:os-extended-server-attributes":         "for the members OS-EXT-SRV-ATTR",
		"os_compute_api:servers:show:flavor-extra-specs":       "for flavor.extra_specs",
		"os_compute_api:servers:show:host_status":              "for host_status",
		"os_compute_api:servers:show:host_status:unknown-only": "for a host_status of UNKNOWN",
	}

	// noServer is the error where there is no such server, and downCell that of reads whose cell
	// does not answer.
	noServer = failure(http.StatusNotFound, "There is no such server, or it is another project's.")
	downCell = failure(http.StatusInternalServerError, "The cell of the server is not responding.")
	lostCell = failure(http.StatusInternalServerError,
		"The cell of the server is not responding: whether it was done is not known.")
	notNow = failure(http.StatusConflict,
		"The state of the server does not allow it, or it is not in a cell yet.")

	// reading are the errors of calls that read a server, and changing of those that change one.
	reading  = []apidoc.Failure{noServer, downCell}
	changing = []apidoc.Failure{noServer, notNow, lostCell}
)

const noteMinimal = "From 2.69 on, a server whose cell does not respond has a minimal record: `status` is `UNKNOWN`, " +
	"and of the members below only `id`, `status` and `links` are there, with details also `tenant_id` and " +
	"`created`. Such records come first, and only without filters, pages and sorting (`all_tenants`, " +
	"`project_id`, `tenant_id` and `deleted` are allowed). Otherwise servers of these cells are left out, or the " +
	"list is refused with 500, as the configuration says ([cells.md](cells.md#when-a-cell-is-down))."

// What the reference says about lists of servers.
var (
	aboutListBrief  = aboutList("Lists servers", "servers:index:get_all_tenants", briefListAnswer)
	aboutListDetail = aboutList("Lists servers with details", "servers:detail:get_all_tenants", detailListAnswer)
)

func aboutList(summary, all string, answer func(api.Version) js.Schema) about {
	when := maps.Clone(viewRules)
	when["os_compute_api:"+all] = "with all_tenants"
	when["os_compute_api:servers:allow_all_filters"] = "for all filters"
	return about{
		summary: summary, notes: []string{noteMinimal}, when: when,
		answers: ok("The servers, the newest first unless something else is asked for.", byVersion(answer)),
		failures: []apidoc.Failure{failure(http.StatusBadRequest,
			"The marker is no server of the list, or a filter is refused.")},
	}
}
