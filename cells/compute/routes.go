// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"strings"
)

// route is one call of the API.
type route struct {
	method string
	// path is as the client sends it, with {name} for a segment that the handler gets by that name, and * as the last segment for any rest (also
	// none), which counts when nothing else does.
	path string
	// handle answers, with one of the exchange's methods, or returns an error to be refused with.
	handle func(*API, *exchange) error

	// since and until bound the microversions that have the call; 0 is no bound. Without it the path is not found.
	since, until Version
	// open calls are for everybody, known or not.
	open bool
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
		serviceRoutes,
		flavorRoutes,
		flavorManageRoutes,
		extraSpecRoutes,
		limitRoutes,
		quotaSetRoutes,
	)
}

// routeTree finds routes by their path, a segment a step.
type routeTree struct {
	literal map[string]*routeTree
	param   *routeTree
	methods map[string]*route
	rest    map[string]*route // of a path that ends with *
}

// found is what a routeTree has for a path.
type found struct {
	route   *route
	params  []string // in the order of the path
	project string   // the segment of a project in the path
	allowed []string // the methods that the path has
}

func newRouteTree(routes []route) *routeTree {
	root := &routeTree{}
	for i := range routes {
		r := &routes[i]
		node := root
		segments := strings.Split(strings.TrimPrefix(r.path, "/"), "/")
		for n, segment := range segments {
			switch {
			case segment == "*" && n == len(segments)-1:
				if node.rest == nil {
					node.rest = map[string]*route{}
				}
				node.rest[r.method] = r
				node = nil
			case strings.HasPrefix(segment, "{"):
				if node.param == nil {
					node.param = &routeTree{}
				}
				node = node.param
			default:
				if node.literal == nil {
					node.literal = map[string]*routeTree{}
				}
				if node.literal[segment] == nil {
					node.literal[segment] = &routeTree{}
				}
				node = node.literal[segment]
			}
		}
		if node == nil {
			continue
		}
		if node.methods == nil {
			node.methods = map[string]*route{}
		}
		if node.methods[r.method] != nil {
			panic("compute: two routes " + r.method + " " + r.path)
		}
		node.methods[r.method] = r
	}
	return root
}

// find finds the route of a path. A HEAD is a GET.
func (t *routeTree) find(method, path string) found {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if len(segments) > maxSegments {
		return found{}
	}
	return t.walk(method, segments, nil)
}

// maxSegments bounds how many segments of a path are looked at.
const maxSegments = 16

func (t *routeTree) walk(method string, segments, params []string) found {
	if len(segments) == 0 {
		return choose(t.methods, method, params)
	}
	best := found{}
	if next := t.literal[segments[0]]; next != nil {
		if best = next.walk(method, segments[1:], params); best.route != nil {
			return best
		}
	}
	if t.param != nil && segments[0] != "" && len(best.allowed) == 0 {
		if best = t.param.walk(method, segments[1:], append(slices.Clip(params), segments[0])); best.route != nil {
			return best
		}
	}
	// What begins as a path of the API and is none of its paths is not found; the rest is for paths that have nothing to do with it.
	if t.rest != nil && len(best.allowed) == 0 && t.literal[segments[0]] == nil {
		return choose(t.rest, method, params)
	}
	return best
}

func choose(methods map[string]*route, method string, params []string) found {
	if method == "HEAD" {
		method = "GET"
	}
	if r := methods[method]; r != nil {
		return found{route: r, params: params}
	}
	f := found{}
	for m := range methods {
		f.allowed = append(f.allowed, m)
	}
	slices.Sort(f.allowed)
	return f
}

// prefix is what the paths of the API begin with.
const prefix = "/v2.1/"

// findBelowProject finds the route of a path that has a project after the version, as clients send it that know the API of before 2.18: one
// of hexadecimal digits and dashes, as Nova has it, or the caller's own whatever its form.
func (t *routeTree) findBelowProject(method, path, own string) found {
	rest, is := strings.CutPrefix(path, prefix)
	project, rest, more := strings.Cut(rest, "/")
	if !is || !more || project == "" || project != own && strings.Trim(project, "0123456789abcdef-") != "" {
		return t.find(method, path)
	}
	f := t.find(method, prefix+rest)
	f.project = project
	return f
}

// param is the value of a segment of the path, by its name in the route.
func (x *exchange) param(name string) string {
	n := 0
	for segment := range strings.SplitSeq(x.route.path, "/") {
		if !strings.HasPrefix(segment, "{") {
			continue
		}
		if segment == "{"+name+"}" {
			return x.params[n]
		}
		n++
	}
	panic("compute: the route " + x.route.path + " has no segment {" + name + "}")
}
