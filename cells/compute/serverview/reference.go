// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The microversions that change how servers are shown, beside those of package api.
const (
	vExtendedAttributes api.Version = 3  // all attributes for administrators
	vLocked             api.Version = 9  // servers say whether they are locked
	vHostStatus         api.Version = 16 // servers say how their host is
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

// What the reference says of calls that find a server, or show some.
var (
	// Rules are those that decide which members of servers are shown.
	Rules = []api.RuleUse{
		{Rule: ruleExtendedAttrs, When: "for the members OS-EXT-SRV-ATTR"},
		{Rule: ruleShowExtraSpecs, When: "for flavor.extra_specs"},
		{Rule: ruleShowHostStatus, When: "for host_status"},
		{Rule: ruleShowHostUnknown, When: "for a host_status of UNKNOWN"},
	}

	// NoServer is the error of [Servers.Mapping], and DownCell that of reads whose cell does not
	// answer.
	NoServer = api.Failure(http.StatusNotFound, "There is no such server, or it is another project's.")
	DownCell = api.Failure(http.StatusInternalServerError, "The cell of the server is not responding.")
	lostCell = api.Failure(http.StatusInternalServerError,
		"The cell of the server is not responding: whether it was done is not known.")
	notNow = api.Failure(http.StatusConflict,
		"The state of the server does not allow it, or it is not in a cell yet.")

	// Reading are the errors of calls that read a server, and Changing of those that change one.
	Reading  = []apidoc.Failure{NoServer, DownCell}
	Changing = []apidoc.Failure{NoServer, notNow, lostCell}
)
