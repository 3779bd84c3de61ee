// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// watcher is an Observer that keeps lines.
type watcher struct{ lines []string }

func (w *watcher) Answered(a osapi.Answer) {
	w.lines = append(w.lines, fmt.Sprintf("%s %s %d", a.Method, a.Route, a.Status))
}

// TestObserver: one line for each request, of words that no client can make up.
func TestObserver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, w := newCloud(t, Options{}), &watcher{}
	c.api.service.Observer = w
	s := c.has(1, server(1, "a"))
	c.ask(member, "", "/v2.1/servers")
	c.ask(member, "", "/v2.1/servers/"+s.UUID+"?x=1")
	c.ask(member, "", "/v2.1/"+strings.Repeat("a", 32)+"/servers/"+s.UUID) // a project that is not the caller's
	c.ask(member, "", "/v2.1/servers/"+uuid(9))
	c.ask(member, "", "/v2.1/made-up")
	c.ask(member, "", "/v2.1/servers?x="+strings.Repeat("x", 64<<10))
	c.ask("", "", "/v2.1/servers")
	for _, method := range []string{"HEAD", "MAKE-UP"} {
		r := httptest.NewRequest(method, "/v2.1/servers", nil)
		r.Header.Set("X-Auth-Token", "u:p1")
		c.api.ServeHTTP(httptest.NewRecorder(), r)
	}
	c.api.service.Routes = api.NewRoutes(
		[]api.Route{{Method: "GET", Path: "/v2.1/bug", Handle: func(*api.Exchange) error { panic("boom") }}})
	c.ask(member, "", "/v2.1/bug")
	want := []string{
		"GET /v2.1/servers 200",
		"GET /v2.1/servers/{id} 200",
		"GET /v2.1/servers/{id} 400",
		"GET /v2.1/servers/{id} 404",
		"GET  404",
		"GET  414",
		"GET  401",
		"HEAD /v2.1/servers 200",
		"other  405",
		"GET /v2.1/bug 500",
	}
	testproc.Same(t, gocmp.Diff(want, w.lines))
	testproc.Equal(t, c.api.InFlight(), 0, "%d requests are worked on after all of them")
}

// TestRequestLog: a quick read that succeeds is logged at debug, all else at info, and a fault of
// the service is an error with its cause.
func TestRequestLog(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	took := time.Duration(0)
	things := func(status int, err error) func(*api.Exchange) error {
		return func(x *api.Exchange) error {
			c.clock = c.clock.Add(took)
			if err != nil {
				return err
			}
			return x.Empty(status)
		}
	}
	c.api.service.Now = func() time.Time { return c.clock }
	c.api.service.Routes = api.NewRoutes([]api.Route{
		{Method: "GET", Path: "/v2.1/things", Handle: things(200, nil)},
		{Method: "POST", Path: "/v2.1/things", Handle: things(202, nil)},
		{Method: "GET", Path: "/v2.1/forbidden", Handle: things(0, osapi.Errorf(http.StatusForbidden, "no"))},
		{Method: "GET", Path: "/v2.1/broken", Handle: things(0, errors.New("the disk is full"))},
		{Method: "POST", Path: "/", Handle: things(300, nil), Open: true, Unversioned: true},
	})
	for _, tt := range []struct {
		method, path string
		took         time.Duration
		level        string
	}{
		{"GET", "/v2.1/things", 0, "debug"},
		{"HEAD", "/v2.1/things", 0, "debug"},
		{"GET", "/v2.1/things", time.Second, "debug"},
		{"GET", "/v2.1/things", time.Second + 1, "info"},
		{"POST", "/v2.1/things", 0, "info"},
		{"GET", "/v2.1/forbidden", 0, "info"},
		{"GET", "/v2.1/nothing", 0, "info"},
		{"GET", "/v2.1/broken", 0, "error"},
		{"POST", "/", 0, "debug"},
	} {
		c.logged.Reset()
		took = tt.took
		r := httptest.NewRequest(tt.method, tt.path+"?a=b", nil)
		r.Header.Set("X-Auth-Token", "u:p1")
		r.Header.Set("X-OpenStack-Request-ID", "req-00000000-0000-4000-8000-000000000001")
		c.api.ServeHTTP(httptest.NewRecorder(), r)
		var line map[string]any
		if err := json.Unmarshal(c.logged.Bytes(), &line); err != nil {
			t.Fatalf("%s %s: %v\n%s", tt.method, tt.path, err, &c.logged)
		}
		if line["level"] != tt.level {
			t.Errorf("%s %s in %s: %v", tt.method, tt.path, tt.took, line["level"])
		}
		want := []string{"bytes", "duration", "global_request_id", "level", "message", "method", "path", "query",
			"remote", "request_id", "status"}
		if tt.path != "/" {
			want = append(want, "project", "user")
		}
		if tt.path != "/" && tt.path != "/v2.1/nothing" {
			want = append(want, "microversion")
		}
		if tt.level == "error" {
			want = append(want, "cause")
		}
		slices.Sort(want)
		testproc.Samef(t, gocmp.Diff(want, slices.Sorted(maps.Keys(line))), "%s %s: the fields are", tt.method, tt.path)
	}
}

// TestLoggedQuery: a query is logged whole, so that it can be repeated; an unauthenticated client's
// is cut.
func TestLoggedQuery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	query := "name=" + strings.Repeat("n", 1000)
	for who, whole := range map[string]bool{member: true, "": false} {
		c.logged.Reset()
		c.ask(who, "", "/v2.1/servers?"+query)
		if is := strings.Contains(c.logged.String(), query); is != whole {
			t.Errorf("%q: the log says\n%s", who, &c.logged)
		}
	}
}
