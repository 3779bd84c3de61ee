// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealStaleReads: a server that loses its database shows what it knows, says how old that is,
// and stops when it is older than the configuration allows. Without the option, and in process, it
// stops at once.
func TestRealStaleReads(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		proxy := dbservers.NewProxy(t, fresh(t))
		began := time.Now()
		var passed time.Duration
		start := func(stale time.Duration) http.Handler {
			cfg := config(t)
			cfg.Database, cfg.StaleReads = proxy.DSN, stale
			cfg.Now = func() time.Time { return began.Add(passed) }
			server := testproc.Try(placement.New(t.Context(), cfg)).Or(t)
			t.Cleanup(func() { _ = server.Close() }) // it cannot say goodbye to its database
			return server.Handler()
		}
		lenient, strict := start(5*time.Second), start(0)
		cfg := config(t)
		cfg.Database, cfg.StaleReads = proxy.DSN, time.Hour
		direct := testproc.Try(placement.NewDirect(t.Context(), cfg)).Or(t)
		t.Cleanup(func() { _ = direct.Close() })
		ask := func(h http.Handler, method, path, body string, status int, stale string) {
			t.Helper()
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header.Set("X-Auth-Token", "admin")
			r.Header.Set("OpenStack-API-Version", "placement 1.39")
			if body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if got := w.Header().Get("Placement-Stale-Seconds"); w.Code != status || got != stale ||
				(status == 503) != (w.Header().Get("Retry-After") != "") {
				t.Errorf("%s %s: %d, stale %q, want %d, %q; %v %s",
					method, path, w.Code, got, status, stale, w.Header(), w.Body)
			}
		}
		ask(strict, "POST", "/resource_providers", `{"name":"n","uuid":"`+theHost+`"}`, 200, "")
		passed = time.Minute
		ask(lenient, "GET", "/resource_providers/"+theHost, "", 200, "")
		proxy.Close()
		passed += 3 * time.Second
		ask(lenient, "GET", "/resource_providers/"+theHost, "", 200, "3")
		ask(lenient, "POST", "/resource_providers", `{"name":"m"}`, 503, "")
		ask(strict, "GET", "/resource_providers/"+theHost, "", 503, "")
		r := testproc.Try(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://placement/traits", nil)).Or(t)
		r.Header.Set("OpenStack-API-Version", "placement 1.39")
		w := testproc.Try(direct.RoundTrip(r)).Or(t)
		if _ = w.Body.Close(); w.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("in process: %d", w.StatusCode)
		}
		passed += 2 * time.Second
		ask(lenient, "GET", "/resource_providers/"+theHost, "", 503, "")
	})
}
