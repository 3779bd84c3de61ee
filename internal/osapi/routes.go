// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"net/http"
	"path"
	"slices"
	"strings"
)

// Routes finds the route of a path and a method, with the patterns of [http.ServeMux]:
// {name} is a segment, which the handler gets with PathValue, and {$} the end.
//
// The patterns have no methods, because Placement's and Nova's 405 differ from those of net/http in
// the Allow header; and a path that net/http would clean and redirect is not found, as with them.
type Routes[R any] struct {
	mux   *http.ServeMux
	paths map[string]*pathRoutes[R]
	// HeadIsGet answers HEAD as GET where a path has no route for it.
	HeadIsGet bool
}

// pathRoutes are the routes of one path. It is the handler of the path in the ServeMux.
type pathRoutes[R any] struct {
	path    string
	methods []string
	routes  []R    // by the index in methods
	allow   string // the methods, for the header of a 405
}

// NewRoutes makes an empty set.
func NewRoutes[R any](headIsGet bool) *Routes[R] {
	return &Routes[R]{mux: http.NewServeMux(), paths: map[string]*pathRoutes[R]{}, HeadIsGet: headIsGet}
}

// Add adds a route. It panics on a duplicate.
func (rt *Routes[R]) Add(method, pattern string, route R) {
	p := rt.paths[pattern]
	if p == nil {
		p = &pathRoutes[R]{path: strings.TrimSuffix(pattern, "{$}")}
		rt.paths[pattern] = p
		rt.mux.Handle(pattern, p)
	}
	if slices.Contains(p.methods, method) {
		panic("osapi: two routes " + method + " " + pattern)
	}
	p.methods, p.routes = append(p.methods, method), append(p.routes, route)
	p.allow = strings.Join(p.methods, ", ")
}

// Found is the result for a request: a route, or the Error to answer with.
type Found[R any] struct {
	Route *R
	// Path is the path of the route as it was added; "" for an unknown path.
	Path string
	// Allow lists the methods of the path in the order in which they were added.
	Allow string
	Err   *Error
}

// Find finds the route of a request, and sets the request's path values.
func (rt *Routes[R]) Find(r *http.Request) Found[R] {
	f := finder[R]{}
	if clean(r.URL.Path) {
		rt.mux.ServeHTTP(&f, r)
	}
	if f.found == nil {
		return Found[R]{Err: NoRoute()}
	}
	found := Found[R]{Path: f.found.path, Allow: f.found.allow}
	at := slices.Index(f.found.methods, r.Method)
	if at < 0 && rt.HeadIsGet && r.Method == http.MethodHead {
		at = slices.Index(f.found.methods, http.MethodGet)
	}
	if at < 0 {
		found.Err = NoMethod(r.Method, found.Allow)
		return found
	}
	found.Route = &f.found.routes[at]
	return found
}

// finder is passed to the ServeMux as ResponseWriter, and receives the routes of the path.
type finder[R any] struct {
	found *pathRoutes[R]
}

// ServeHTTP records that the ServeMux chose the path.
func (p *pathRoutes[R]) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if f, ok := w.(*finder[R]); ok {
		f.found = p
	}
}

// Header, Write and WriteHeader drop the ServeMux's answer to an unknown path.
func (f *finder[R]) Header() http.Header         { return http.Header{} }
func (f *finder[R]) Write(b []byte) (int, error) { return len(b), nil }
func (f *finder[R]) WriteHeader(int)             {}

// clean reports whether a path begins with a slash and has no empty, "." or ".." segments.
func clean(p string) bool {
	if p == "" || p[0] != '/' || strings.Contains(p, "//") {
		return false
	}
	return !strings.Contains(p, "/.") || path.Clean(p) == strings.TrimSuffix(p, "/")
}
