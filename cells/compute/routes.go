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
	handle func(*API, *exchange) error

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

// allRoutes are all calls of the API. Each file that has handlers has a list of its routes.
func allRoutes() []route {
	return slices.Concat(
		serverReadRoutes,
		versionRoutes,
		createRoutes,
		deleteRoutes,
		actionRoutes,
		serverUpdateRoutes,
		metadataRoutes,
		tagRoutes,
		instanceActionRoutes,
		hypervisorRoutes,
		serviceRoutes,
		flavorRoutes,
		flavorManageRoutes,
		extraSpecRoutes,
		limitRoutes,
		quotaSetRoutes,
		aggregateRoutes,
		zoneRoutes,
		serverGroupRoutes,
		migrationRoutes,
		keyPairRoutes,
		remoteConsoleRoutes,
	)
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
	return x.api.routes.Find(x.path)
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
