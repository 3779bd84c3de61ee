// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRoutes: as Placement and Nova answer, and not as net/http does: no path is cleaned, nothing
// is redirected, and Allow has the methods of the API alone.
func TestRoutes(t *testing.T) {
	build := func(headIsGet bool) *Routes[string] {
		routes := NewRoutes[string](headIsGet)
		for _, r := range [][2]string{
			{"GET", "/{$}"}, {"GET", "/v2.1"}, {"GET", "/v2.1/{$}"}, {"GET", "/things"}, {"POST", "/things"},
			{"PUT", "/things/{id}"}, {"GET", "/things/{id}"}, {"GET", "/things/all"},
			{"DELETE", "/things/{id}/parts/{part}"},
		} {
			routes.Add(r[0], r[1], r[0]+" "+r[1])
		}
		return routes
	}
	plain, heads := build(false), build(true)
	for _, c := range []struct {
		method, path string
		heads        bool
		want, shown  string // of the route
		status       int
		allow        string
	}{
		{method: "GET", path: "/", want: "GET /{$}", shown: "/"},
		{method: "GET", path: "/v2.1", want: "GET /v2.1", shown: "/v2.1"},
		{method: "GET", path: "/v2.1/", want: "GET /v2.1/{$}", shown: "/v2.1/"},
		{method: "GET", path: "/things", want: "GET /things", shown: "/things"},
		{method: "PUT", path: "/things/a", want: "PUT /things/{id}", shown: "/things/{id}"},
		{method: "GET", path: "/things/all", want: "GET /things/all", shown: "/things/all"},
		{method: "DELETE", path: "/things/a/parts/b", want: "DELETE /things/{id}/parts/{part}",
			shown: "/things/{id}/parts/{part}"},
		{method: "GET", path: "/things/.a", want: "GET /things/{id}", shown: "/things/{id}"},
		{method: "GET", path: "/things/", status: 404},
		{method: "GET", path: "//", status: 404},
		{method: "GET", path: "//things", status: 404},
		{method: "GET", path: "/things//parts/b", status: 404},
		{method: "GET", path: "/things/./all", status: 404},
		{method: "GET", path: "/x/../things", status: 404},
		{method: "GET", path: "/things/..", status: 404},
		{method: "GET", path: "/v2.1/x", status: 404},
		{method: "GET", path: "", status: 404},
		{method: "OPTIONS", path: "*", status: 404},
		{method: "CONNECT", path: "//things", status: 404},
		{method: "CONNECT", path: "/things", status: 405, allow: "GET, POST", shown: "/things"},
		{method: "PATCH", path: "/things/a", status: 405, allow: "PUT, GET", shown: "/things/{id}"},
		{method: "PUT", path: "/things/all", status: 405, allow: "GET", shown: "/things/all"},
		{method: "HEAD", path: "/things", status: 405, allow: "GET, POST", shown: "/things"},
		{method: "HEAD", path: "/things", heads: true, want: "GET /things", shown: "/things"},
		{method: "HEAD", path: "/things/a/parts/b", heads: true, status: 405, allow: "DELETE",
			shown: "/things/{id}/parts/{part}"},
	} {
		routes := plain
		if c.heads {
			routes = heads
		}
		r := &http.Request{Method: c.method, URL: &url.URL{Path: c.path}, RequestURI: c.path, Host: "h"}
		found := routes.Find(r)
		testproc.Equal(t, found.Path, c.shown, "%s %s: path %q", c.method, c.path)
		if c.status != 0 {
			if found.Err == nil || found.Err.Status != c.status || found.Err.Allow != c.allow {
				t.Errorf("%s %s: %+v, want %d with Allow: %s", c.method, c.path, found.Err, c.status, c.allow)
			}
			continue
		}
		if found.Err != nil || *found.Route != c.want {
			t.Errorf("%s %s: %+v", c.method, c.path, found)
		}
		if c.want == "DELETE /things/{id}/parts/{part}" && (r.PathValue("id") != "a" || r.PathValue("part") != "b") {
			t.Errorf("%s %s: path values %q, %q", c.method, c.path, r.PathValue("id"), r.PathValue("part"))
		}
	}
}
