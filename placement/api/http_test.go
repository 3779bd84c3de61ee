// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestEndpointsByMicroversion is the matrix of all endpoints: each is there from one microversion
// on, and before answers with the status in absent.
func TestEndpointsByMicroversion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	for _, c := range []struct {
		method, path   string
		since          wire.Feature
		status, absent int // status: with a body that is no good, where one is needed
	}{
		{"GET", "/", wire.Always, 200, 0},
		{"GET", "/resource_providers", wire.Always, 200, 0},
		{"POST", "/resource_providers", wire.Always, 400, 0},
		{"GET", "/resource_providers/" + rp1, wire.Always, 200, 0},
		{"PUT", "/resource_providers/" + rp1, wire.Always, 400, 0},
		{"DELETE", "/resource_providers/unknown", wire.Always, 404, 0},
		{"GET", "/resource_providers/" + rp1 + "/inventories", wire.Always, 200, 0},
		{"PUT", "/resource_providers/" + rp1 + "/inventories", wire.Always, 400, 0},
		{"POST", "/resource_providers/" + rp1 + "/inventories", wire.Always, 400, 0},
		{"DELETE", "/resource_providers/unknown/inventories", wire.DeleteInventories, 404, 405},
		{"GET", "/resource_providers/" + rp1 + "/inventories/VCPU", wire.Always, 200, 0},
		{"PUT", "/resource_providers/" + rp1 + "/inventories/VCPU", wire.Always, 400, 0},
		{"DELETE", "/resource_providers/" + rp1 + "/inventories/DISK_GB", wire.Always, 404, 0},
		{"GET", "/resource_providers/" + rp1 + "/usages", wire.Always, 200, 0},
		{"GET", "/resource_providers/" + rp1 + "/allocations", wire.Always, 200, 0},
		{"GET", "/resource_providers/" + rp1 + "/aggregates", wire.ProviderAggregates, 200, 404},
		{"PUT", "/resource_providers/" + rp1 + "/aggregates", wire.ProviderAggregates, 400, 404},
		{"GET", "/resource_providers/" + rp1 + "/traits", wire.Traits, 200, 404},
		{"PUT", "/resource_providers/" + rp1 + "/traits", wire.Traits, 400, 404},
		{"DELETE", "/resource_providers/" + rp1 + "/traits", wire.Traits, 204, 404},
		{"GET", "/resource_classes", wire.ResourceClasses, 200, 404},
		{"POST", "/resource_classes", wire.ResourceClasses, 400, 404},
		{"GET", "/resource_classes/VCPU", wire.ResourceClasses, 200, 404},
		{"PUT", "/resource_classes/VCPU", wire.ResourceClasses, 400, 404},
		{"DELETE", "/resource_classes/VCPU", wire.ResourceClasses, 400, 404},
		{"GET", "/traits", wire.Traits, 200, 404},
		{"GET", "/traits/HW_CPU_X86_AVX", wire.Traits, 204, 404},
		{"PUT", "/traits/HW_CPU_X86_AVX", wire.Traits, 400, 404},
		{"DELETE", "/traits/HW_CPU_X86_AVX", wire.Traits, 400, 404},
		{"POST", "/allocations", wire.PostAllocations, 400, 404},
		{"GET", "/allocations/" + inst1, wire.Always, 200, 0},
		{"PUT", "/allocations/" + inst1, wire.Always, 400, 0},
		{"DELETE", "/allocations/" + inst1, wire.Always, 404, 0},
		{"GET", "/allocation_candidates?resources=VCPU:1", wire.AllocationCandidates, 200, 404},
		{"GET", "/usages?project_id=p", wire.ProjectUsages, 200, 404},
		{"POST", "/reshaper", wire.ReshaperCall, 400, 404},
	} {
		body := ""
		if c.method == "PUT" || c.method == "POST" {
			body = "{}"
		}
		for v := wire.MinVersion; v <= wire.MaxVersion; v++ {
			want := c.status
			if !v.Has(c.since) {
				want = c.absent
			}
			w := call{method: c.method, path: c.path, version: v.String(), body: body, status: want}.do(t, h)
			checkCommonHeaders(t, w, v, fmt.Sprintf("%s %s at %s", c.method, c.path, v))
		}
	}
}

var requestID = regexp.MustCompile(`^req-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// checkCommonHeaders checks what every answer of a microversion must carry.
func checkCommonHeaders(t *testing.T, w *httptest.ResponseRecorder, v wire.Version, what string) {
	t.Helper()
	h := w.Header()
	testproc.Equal(t, h.Get("OpenStack-API-Version"), "placement "+v.String(), "%s: OpenStack-API-Version is %q", what)
	testproc.Equal(t, h.Get("Vary"), "openstack-api-version", "%s: Vary is %q", what)
	if !requestID.MatchString(h.Get("X-OpenStack-Request-Id")) {
		t.Errorf("%s: the request id is %q", what, h.Get("X-OpenStack-Request-Id"))
	}
	cached := h.Get("Last-Modified") != "" && h.Get("Cache-Control") == "no-cache"
	if want := w.Code == http.StatusOK && v.Has(wire.CacheHeaders); want && !cached {
		t.Errorf("%s: Last-Modified is %q and Cache-Control %q", what, h.Get("Last-Modified"), h.Get("Cache-Control"))
	}
	if !v.Has(wire.CacheHeaders) && (h.Get("Last-Modified") != "" || h.Get("Cache-Control") != "") {
		t.Errorf("%s: there are cache headers before 1.15", what)
	}
	if w.Code >= 400 {
		e := errorOf(t, w)
		if e.RequestID != h.Get("X-OpenStack-Request-Id") || e.Title != http.StatusText(w.Code) || e.Detail == "" {
			t.Errorf("%s: the error is %+v", what, e)
		}
		if (e.Code != "") != v.Has(wire.ErrorCodes) {
			t.Errorf("%s: the code is %q", what, e.Code)
		}
	}
}

func TestMethodsThatAreNotThere(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	for _, c := range []struct{ method, path, version, allow string }{
		{"DELETE", "/", "1.39", "GET"},
		{"HEAD", "/", "1.39", "GET"},
		{"OPTIONS", "/", "1.39", "GET"},
		{"HEAD", "/resource_providers", "1.39", "GET, POST"},
		{"PATCH", "/resource_providers/x", "1.39", "GET, DELETE, PUT"},
		{"GET", "/reshaper", "1.0", "POST"},
		{"DELETE", "/resource_providers/x/inventories", "1.4", "GET, POST, PUT"},
	} {
		w := call{method: c.method, path: c.path, version: c.version, status: 405}.do(t, h)
		testproc.Equal(t, w.Header().Get("Allow"), c.allow, "%s %s: Allow is %q", c.method, c.path)
	}
}

func TestPathsThatAreNotThere(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	for _, path := range []string{
		"/x", "/resource_providers/", "/resource_providers//", "//resource_providers", "/resource_providers/a/",
		"/resource_providers/a/cows",
		"/resource_providers/../traits", "/./traits",
		"/resource_providers/a/inventories/b/c", "/allocation_candidates/x",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = path
		r.Header.Set("X-Auth-Token", "admin")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		testproc.Equal(t, w.Code, 404, "%s: status %d", path)
	}
}

func TestHeadersOfRequests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	for _, c := range []call{
		{method: "GET", path: "/resource_providers", headers: []string{"Accept: text/plain"}, status: 406},
		{method: "GET", path: "/resource_providers", headers: []string{"Accept: application/json;q=0"}, status: 406},
		{method: "GET", path: "/resource_providers", headers: []string{"Accept: text/html, */*;q=0.1"}, status: 200},
		{method: "GET", path: "/resource_providers", headers: []string{"Accept: application/*"}, status: 200},
		{method: "GET", path: "/resource_providers", headers: []string{"Accept: nonsense"}, status: 200},
		// The version goes first.
		{method: "GET", path: "/traits", version: "1.0", headers: []string{"Accept: text/plain"}, status: 404},
		{method: "GET", path: "/resource_providers/x/aggregates", version: "1.0",
			headers: []string{"Accept: text/plain"}, status: 406},
		{method: "POST", path: "/resource_providers",
			body: `{}`, headers: []string{"Content-Type: text/plain"}, status: 415},
		{method: "POST", path: "/resource_providers", body: `{}`, headers: []string{"-Content-Type"}, status: 400},
		{method: "PUT", path: "/resource_providers/x", headers: []string{"-Content-Type"}, status: 415},
		{method: "POST", path: "/resource_providers",
			body: `{"name":"a"}`, headers: []string{"Content-Type: application/json; charset=utf-8"}, status: 201},
		{method: "GET", path: "/", version: "0.9", status: 406},
		{method: "GET", path: "/", version: "1.2.3", status: 400},
		{method: "GET", path: "/x", headers: []string{"-X-Auth-Token"}, status: 401},
		// Who sends it goes first.
		{method: "GET", path: "/x", version: "0.9", headers: []string{"-X-Auth-Token"}, status: 401},
		{method: "GET", path: "/", headers: []string{"-X-Auth-Token"}, status: 200},
	} {
		c.do(t, h)
	}
}

func TestErrorsComeInTheFormThatIsAccepted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	for accept, want := range map[string]string{
		"":                                  "application/json",
		"*/*":                               "application/json",
		"application/json, */*":             "application/json",
		"text/html":                         "text/html; charset=utf-8",
		"text/html, application/json":       "application/json",
		"text/html, application/json;q=0.9": "text/html; charset=utf-8",
		"text/plain":                        "text/plain; charset=utf-8",
		"image/png":                         "text/plain; charset=utf-8",
	} {
		w := call{method: "GET", path: "/<b>", headers: []string{"Accept: " + accept}, status: 404}.do(t, h)
		testproc.Equal(t, w.Header().Get("Content-Type"), want, "Accept %q: the error comes as %q", accept)
		if strings.Contains(w.Body.String(), "<b>") {
			t.Errorf("Accept %q: the error repeats markup: %s", accept, w.Body)
		}
	}
	tooNew := (wire.MaxVersion + 1).String()
	w := call{method: "GET", path: "/", version: tooNew, status: 406}.do(t, h)
	if e := errorOf(t, w); e.MaxVersion != wire.MaxVersion.String() ||
		e.MinVersion != "1.0" || !strings.Contains(e.Detail, "Unacceptable version header: "+tooNew) {
		t.Errorf("the error about the version is %+v", e)
	}
	testproc.Equal(t, w.Header().Get("OpenStack-API-Version"), "", "a version that does not exist is answered with %q")
}

func TestLimits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t, func(c *api.Config) { c.Limits = osapi.Limits{Body: 100, Query: 50} })
	calls(t, h,
		call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":"` +
			strings.Repeat("a", 100) + `"}`, status: 413, code: wire.CodeUndefined},
		call{method: "GET", path: "/resource_providers?name=" + strings.Repeat("a", 50), status: 414},
		call{method: "GET", path: "/resource_providers?" + strings.Repeat("&", 40), status: 200},
	)
	// A body of unknown length is bounded as well.
	r := httptest.NewRequest(http.MethodPost, "/resource_providers",
		struct{ *strings.Reader }{strings.NewReader(`{"name":"` + strings.Repeat("a", 100) + `"}`)})
	r.ContentLength = -1
	r.Header = http.Header{"X-Auth-Token": {"admin"}, "Content-Type": {"application/json"}}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 413 {
		t.Errorf("a long body of unknown length: status %d, want 413", w.Code)
	}
	// So is one that ends early.
	r = httptest.NewRequest(http.MethodPost, "/resource_providers", strings.NewReader(`{`))
	r.ContentLength = 50
	r.Header = http.Header{"X-Auth-Token": {"admin"}, "Content-Type": {"application/json"}}
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 400 {
		t.Errorf("a body that ends early: status %d, want 400", w.Code)
	}
}

// oddLedger does in place of a ledger what a test wants.
type oddLedger struct {
	snapshot func(context.Context) (*ledger.Snapshot, error)
}

func (l oddLedger) Snapshot(ctx context.Context) (*ledger.Snapshot, error) { return l.snapshot(ctx) }
func (l oddLedger) Read(ctx context.Context) (*ledger.Snapshot, time.Duration, error) {
	s, err := l.snapshot(ctx)
	return s, 0, err
}
func (l oddLedger) Update(ctx context.Context, _ func(*ledger.Tx) error) (*ledger.Snapshot, error) {
	return l.snapshot(ctx)
}

func TestTroubleInsideTheServer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		err    error
		status int
		code   wire.ErrorCode
	}{
		"storage":         {errors.New("disk on fire"), 500, wire.CodeUndefined},
		"closing":         {ledger.ErrClosed, 503, wire.CodeUndefined},
		"other servers":   {ledger.ErrBusy, 409, wire.CodeConcurrentUpdate},
		"unknown outcome": {fmt.Errorf("commit: %w", ledger.ErrOutcomeUnknown), 500, wire.CodeUndefined},
		"given up":        {context.Canceled, 503, wire.CodeUndefined},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			h := newAPI(t, func(cfg *api.Config) {
				cfg.Ledger = oddLedger{func(context.Context) (*ledger.Snapshot, error) { return nil, c.err }}
				cfg.Logger = zerolog.New(&log)
			})
			w := call{method: "DELETE", path: "/allocations/" + inst1, version: "1.39",
				status: c.status, code: c.code}.do(t, h)
			if strings.Contains(w.Body.String(), "fire") {
				t.Errorf("the answer shows internals: %s", w.Body)
			}
			if c.status >= 500 && (!strings.Contains(log.String(), c.err.Error()) ||
				!strings.Contains(log.String(), errorOf(t, w).RequestID)) {
				t.Errorf("the log does not tell the cause: %s", log.String())
			}
		})
	}
}

func TestAPanicIsOneAnswerOf500(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var log strings.Builder
	h := newAPI(t, func(cfg *api.Config) {
		cfg.Ledger = oddLedger{func(context.Context) (*ledger.Snapshot, error) { panic("a bug") }}
		cfg.Logger = zerolog.New(&log)
	})
	w := call{method: "GET", path: "/resource_providers",
		version: "1.39", status: 500, code: wire.CodeUndefined}.do(t, h)
	if id := errorOf(t, w).RequestID; !strings.Contains(log.String(), id) || !strings.Contains(log.String(), "a bug") ||
		!strings.Contains(log.String(), "stack") {
		t.Errorf("the log does not tell of the panic: %s", log.String())
	}
	call{method: "GET", path: "/", status: 200}.do(t, h)
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	entered, leave := make(chan struct{}), make(chan struct{})
	empty := openLedger(t)
	h := newAPI(t, func(cfg *api.Config) {
		cfg.Limits.InFlight = 1
		cfg.Ledger = oddLedger{func(ctx context.Context) (*ledger.Snapshot, error) {
			close(entered)
			<-leave
			return empty.Snapshot(ctx)
		}}
	})
	first := make(chan int)
	go func() {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/resource_providers", nil)
		r.Header.Set("X-Auth-Token", "admin")
		h.ServeHTTP(w, r)
		first <- w.Code
	}()
	<-entered
	w := call{method: "GET", path: "/resource_providers", status: 503}.do(t, h)
	if w.Header().Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	call{method: "GET", path: "/healthz", headers: []string{"-X-Auth-Token"}, status: 200}.do(t, h)
	close(leave)
	testproc.Equal(t, <-first, 200, "the request that was let in: status %d")
	call{method: "GET", path: "/", status: 200}.do(t, h)
}

func TestHealth(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	calls(t, h,
		call{method: "GET", path: "/healthz", headers: []string{"-X-Auth-Token"}, status: 200},
		call{method: "HEAD", path: "/readyz", headers: []string{"-X-Auth-Token"}, status: 200},
		call{method: "POST", path: "/readyz", status: 405},
	)
	h = newAPI(t, func(cfg *api.Config) {
		cfg.Ledger = oddLedger{func(context.Context) (*ledger.Snapshot, error) { return nil, errors.New("gone") }}
	})
	calls(t, h, call{method: "GET", path: "/healthz", status: 200}, call{method: "GET", path: "/readyz", status: 503})
}

func TestTheLogTellsOfEachRequest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var log strings.Builder
	h := newAPI(t, func(cfg *api.Config) { cfg.Logger = zerolog.New(&log) })
	const global = "req-4e8e5957-649f-477b-9e5b-f1f75b21c03c"
	w := call{method: "GET", path: "/resource_providers?name=a", version: "1.5",
		headers: []string{"X-Auth-Token: me:mine", "X-Roles: admin", "X-OpenStack-Request-Id: " + global},
		status:  200}.do(t, h)
	id := w.Header().Get("X-OpenStack-Request-Id")
	if id == global {
		t.Error("the id of the caller's own request is given to this one")
	}
	for _, want := range []string{`"request_id":"` + id, `"global_request_id":"` + global, `"user":"me"`,
		`"project":"mine"`, `"status":200`, `"microversion":"1.5"`, `"query":"name=a"`} {
		testproc.Contains(t, log.String(), want, "the log has no %s: %s", want)
	}
	log.Reset()
	long := "name=" + strings.Repeat("a", 1000)
	call{method: "GET", path: "/resource_providers?" + long, status: 200}.do(t, h)
	testproc.Contains(t, log.String(), `"query":"`+long+`"`, "a query of who is known is not logged as a whole: %s")
	log.Reset()
	call{method: "GET", path: "/resource_providers?" + long, headers: []string{"-X-Auth-Token"}, status: 401}.do(t, h)
	if strings.Contains(log.String(), long) {
		t.Errorf("a long query of who is not known is logged as a whole: %s", log.String())
	}
	log.Reset()
	call{method: "GET", path: "/", headers: []string{"X-OpenStack-Request-Id: x\" forged"}, status: 200}.do(t, h)
	if strings.Contains(log.String(), "forged") {
		t.Errorf("an id of no form is logged: %s", log.String())
	}
}
