// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// route is one call of the API.
type route struct {
	method string
	// path is as the client sends it, with {name} for a segment that the handler gets by that name,
	// and otherPath for all paths that begin with no version.
	path string
	// handle answers, with one of the exchange's methods, or returns an error to be refused with.
	// A route with actions has none.
	handle func(*exchange) error
	// actions are those that the body can ask for, by the name of its only member.
	actions map[string]action

	// since and until bound the microversions that have the call; 0 is no bound. Without it the
	// path is not found.
	since, until Version
	// open calls are for everybody, known or not.
	open bool
	// query are the parameters and body is what the body has to be, as the handler reads them.
	query *parameters
	body  schemaSteps
	// about is what the reference says of the call; without it the call is not in it.
	about *about

	// unversioned calls do not read a microversion and do not show one.
	unversioned bool
}

// newRoutes makes what finds a route; a 405 lists methods in the order of the alphabet.
func newRoutes(all []route) *osapi.Routes[route] {
	found := osapi.NewRoutes[route](true)
	for _, r := range slices.SortedStableFunc(slices.Values(all), func(a, b route) int { return cmp.Compare(a.method, b.method) }) {
		path := r.path
		if strings.HasSuffix(path, "/") {
			path += "{$}"
		}
		found.Add(r.method, path, r)
	}
	return found
}

const (
	// prefix is what the paths of the API begin with.
	prefix = "/v2.1/"
	// otherPath stands for all paths that begin with no version.
	otherPath = "/*"
)

// find finds the route of a path, which is split as Nova does it: after what is quoted in it was
// undone.
func (x *exchange) find(path string) osapi.Found[route] {
	if first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); first != "" && "/"+first+"/" != prefix {
		path = otherPath
	}
	x.path = &http.Request{Method: x.R.Method, URL: &url.URL{Path: path}}
	return x.service.routes.Find(x.path)
}

// belowProject finds the project that stands after the version in the path, as clients send it that
// know the API of before 2.18: one of hexadecimal digits and dashes, as Nova has it, or the
// caller's own whatever its form. It returns the path without the project.
func belowProject(path, own string) (project, without string, is bool) {
	rest, is := strings.CutPrefix(path, prefix)
	project, rest, more := strings.Cut(rest, "/")
	if !is || !more || project == "" || project != own && strings.Trim(project, "0123456789abcdef-") != "" {
		return "", path, false
	}
	return project, prefix + rest, true
}

// resolve finds the route of the request. The order of the checks is Nova's: who, route,
// microversion, project of the path.
func (x *exchange) resolve() error {
	found := x.find(x.R.URL.Path)
	if found.Route == nil || !found.Route.open {
		if err := x.identify(); err != nil {
			return err
		}
	}
	if found.Route == nil {
		// The project in a path is one by its form, or because it is the caller's own.
		if project, path, is := belowProject(x.R.URL.Path, x.Who.Project); is {
			x.pathProject, found = project, x.find(path)
		}
	}
	if found.Err != nil {
		return absent(x.R.URL.Path, found.Err)
	}
	route := found.Route
	x.route = route
	x.Route, x.Routine = route.path, x.Routine || route.open
	if !route.unversioned {
		if err := x.negotiate(); err != nil {
			return err
		}
	}
	switch {
	case x.pathProject != "" && x.pathProject != x.Who.Project:
		return badRequest("Malformed request URL: URL's project_id '%s' doesn't match Context's project_id '%s'", x.pathProject, x.Who.Project)
	case route.since > 0 && !x.since(route.since), route.until > 0 && x.version > route.until:
		return osapi.NoRoute()
	}
	return nil
}

// reading says whether the method changes nothing.
func (x *exchange) reading() bool {
	return x.R.Method == http.MethodGet || x.R.Method == http.MethodHead
}

// handle answers the request with what its route has for it.
func (x *exchange) handle() error {
	if x.route.actions != nil {
		return x.act()
	}
	return x.route.handle(x)
}

// novaOnly are the first parts of paths that Nova has, or had, and this service has not.
var novaOnly = []string{
	"extensions", "images", "os-agents", "os-cells", "os-floating-ips", "os-fixed-ips", "os-hosts", "os-networks", "os-security-groups",
	"os-server-external-events", "os-simple-tenant-usage", "os-snapshots", "os-tenant-networks", "os-volumes",
}

// absent is the error for an unknown path. It names what a client of Nova may have meant.
func absent(path string, err *osapi.Error) error {
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case err.Status != http.StatusNotFound || !slices.Contains(novaOnly, part):
		case part == "os-hosts":
			return osapi.NotFound("This service has no os-hosts: `openstack compute service list` and `openstack hypervisor list` show the hosts.")
		default:
			return osapi.NotFound("This service has no %s; docs/cells.md lists the calls that it has.", part)
		}
	}
	return err
}
