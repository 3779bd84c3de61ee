// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// groups are the headings of calls, by the beginnings of their paths after the version.
var groups = [...]struct{ prefix, name string }{
	{"", "Versions"},
	{"servers/{id}/metadata", "Metadata of servers"},
	{"servers/{id}/tags", "Tags of servers"},
	{"servers/{id}/os-instance-actions", "History of servers"},
	{"servers/{id}/migrations", "Migrations"},
	{"servers/{id}/remote-consoles", "Consoles"},
	{"servers/{id}/action", "Actions on servers"},
	{"servers", "Servers"},
	{"flavors/{id}/os-extra_specs", "Extra specs of flavors"},
	{"flavors", "Flavors"},
	{"os-keypairs", "Key pairs"},
	{"os-server-groups", "Server groups"},
	{"limits", "Limits and quotas"},
	{"os-quota-sets", "Limits and quotas"},
	{"os-availability-zone", "Availability zones"},
	{"os-aggregates", "Host aggregates"},
	{"os-services", "Services"},
	{"os-hypervisors", "Hypervisors"},
	{"os-migrations", "Migrations"},
}

// groupOrder is the order of the groups in the reference.
var groupOrder = []string{
	"Versions", "Servers", "Actions on servers", "Metadata of servers", "Tags of servers",
	"History of servers", "Consoles", "Migrations",
	"Flavors", "Extra specs of flavors", "Key pairs", "Server groups", "Limits and quotas", "Availability zones",
	"Host aggregates", "Services", "Hypervisors",
}

func groupOf(path string) string {
	rest := strings.TrimPrefix(path, api.Prefix)
	if path == "/" || path+"/" == api.Prefix {
		rest = ""
	}
	for _, g := range groups {
		if rest == g.prefix || g.prefix != "" && strings.HasPrefix(rest, g.prefix) {
			return g.name
		}
	}
	panic("compute: the path " + path + " is in no group of the reference")
}

// commonFailures are the errors that every call can have.
var commonFailures = []apidoc.Failure{
	failure(http.StatusBadRequest,
		"The microversion, the query or the body is malformed, or does not fit what this page says."),
	failure(http.StatusUnauthorized, "The token is missing or unknown."),
	failure(http.StatusForbidden, "The policy does not allow it, or the token is that of a host."),
	failure(http.StatusNotFound, "There is no such path, or not at this microversion."),
	failure(http.StatusMethodNotAllowed, "The path has no such method; Allow has those that it has."),
	failure(http.StatusNotAcceptable, "There is no such microversion."),
	failure(http.StatusRequestTimeout, "The request did not arrive in time."),
	failure(http.StatusRequestEntityTooLarge, "The body is larger than 112 KiB."),
	failure(http.StatusRequestURITooLong, "The query is longer than 64 KiB."),
	failure(http.StatusUnsupportedMediaType, "The body is not declared as application/json."),
	failure(
		http.StatusInternalServerError,
		"The server failed, or a cell that is needed does not respond: whether a change was made may not be known, "+
			"so read before you repeat it.",
	),
	failure(http.StatusServiceUnavailable,
		"The database, Placement or the identity service cannot be used now, or the server has too many requests: "+
			"send it again later."),
}

// Reference describes the API, for its reference and its OpenAPI document.
func Reference() *apidoc.API {
	a := &apidoc.API{
		Title: "Compute API", About: aboutAPI, More: differences(), Service: api.ServiceType,
		Major: 2, Min: int(api.MinVersion), Max: int(api.MaxVersion), History: steps(),
		Error: always(faultSchema), Failures: commonFailures,
		Keys: map[string]string{anyKey: "key", api.MetadataKeys: "key"},
	}
	for _, r := range new(API).allRoutes() {
		a.Calls = append(a.Calls, callsOf(&r)...)
	}
	for i := range a.Calls {
		a.Calls[i].Group = groupOf(a.Calls[i].Path)
	}
	slices.SortStableFunc(a.Calls, func(c, d apidoc.Call) int {
		return cmp.Compare(slices.Index(groupOrder, c.Group), slices.Index(groupOrder, d.Group))
	})
	return a
}
