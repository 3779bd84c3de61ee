// SPDX-License-Identifier: Apache-2.0

package serverview

import "github.com/compute-agent/compute-agent/cells/compute/api"

// The microversions that change how servers are shown and listed, beside those of package api.
const (
	vExtendedAttributes api.Version = 3  // all attributes for administrators
	vFilterIPv6         api.Version = 5  // members may filter by ip6
	vLocked             api.Version = 9  // servers say whether they are locked
	vHostStatus         api.Version = 16 // servers say how their host is
	vStatusChecked      api.Version = 38 // an invalid status is rejected
	vFlavorEmbedded     api.Version = 47 // the flavor of a server is shown as it was
	vShowGroups         api.Version = 71 // servers say in which groups they are
)

// The policies of members of servers.
var (
	ruleExtendedAttrs   = api.Rule{Name: "os_compute_api:os-extended-server-attributes", Default: api.Admins}
	ruleShowExtraSpecs  = api.Rule{Name: "os_compute_api:servers:show:flavor-extra-specs", Default: api.Readers}
	ruleShowHostStatus  = api.Rule{Name: "os_compute_api:servers:show:host_status", Default: api.Admins}
	ruleShowHostUnknown = api.Rule{Name: "os_compute_api:servers:show:host_status:unknown-only",
		Default: api.Admins}
)

// Rules are those that decide which members of servers are shown.
var Rules = []api.Rule{ruleExtendedAttrs, ruleShowExtraSpecs, ruleShowHostStatus, ruleShowHostUnknown}

// The policies of lists of servers.
var (
	ruleServersIndex      = api.Rule{Name: "os_compute_api:servers:index", Default: api.Readers}
	ruleServersIndexAll   = api.Rule{Name: "os_compute_api:servers:index:get_all_tenants", Default: api.Admins}
	ruleServersDetail     = api.Rule{Name: "os_compute_api:servers:detail", Default: api.Readers}
	ruleServersDetailAll  = api.Rule{Name: "os_compute_api:servers:detail:get_all_tenants", Default: api.Admins}
	ruleServersAllFilters = api.Rule{Name: "os_compute_api:servers:allow_all_filters", Default: api.Admins}
)
