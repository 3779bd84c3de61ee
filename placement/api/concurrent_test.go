// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// exchangeOnce sends a request as the admin at 1.39 and gives the status. It may be called from any
// goroutine.
func exchangeOnce(h http.Handler, method, path, body string) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header = http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.39"},
		"Content-Type": {"application/json"}}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// TestClaimsAtOnceDoNotOverCommit sends 40 claims of one VCPU each, from 8 goroutines, at a host
// that has 8.
func TestClaimsAtOnceDoNotOverCommit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	var wg sync.WaitGroup
	statuses := make(chan int, 40)
	for g := range 8 {
		wg.Go(func() {
			for i := range 5 {
				consumer := fmt.Sprintf("11111111-0000-4000-8000-0000000%02d%03d", g, i)
				statuses <- exchangeOnce(h, "PUT", "/allocations/"+consumer, instance(rp1, "null", 1))
				exchangeOnce(h, "GET", "/resource_providers/"+rp1+"/allocations", "")
			}
		})
	}
	wg.Wait()
	close(statuses)
	count := map[int]int{}
	for s := range statuses {
		count[s]++
	}
	if count[204] != 8 || count[409] != 32 {
		t.Errorf("the answers were %v, want 8 of 204 and 32 of 409", count)
	}
	u := decoded[wire.ProviderUsages](t,
		call{method: "GET", path: "/resource_providers/" + rp1 + "/usages", version: "1.39", status: 200}.do(t, h))
	if u.Usages["VCPU"] != 8 || u.Generation != 1+8 {
		t.Errorf("at last %d VCPU are used, at generation %d", u.Usages["VCPU"], u.Generation)
	}
}

// TestOneOfManyWritersOfAGenerationWins sends the same generation from 8 goroutines.
func TestOneOfManyWritersOfAGenerationWins(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	var wg sync.WaitGroup
	statuses := make(chan int, 8)
	for g := range 8 {
		wg.Go(func() {
			statuses <- exchangeOnce(h, "PUT", "/resource_providers/"+rp1+"/inventories",
				fmt.Sprintf(`{"resource_provider_generation":1,"inventories":{"VCPU":{"total":%d}}}`, g+1))
		})
	}
	wg.Wait()
	close(statuses)
	won := 0
	for s := range statuses {
		if s == 200 {
			won++
		} else if s != 409 {
			t.Errorf("status %d", s)
		}
	}
	testproc.Equal(t, won, 1, "%d writers won")
}

// FuzzRequests sends whole requests of any kind: the server may refuse them, and must neither fail
// nor redirect.
func FuzzRequests(f *testing.F) {
	f.Add("GET", "/resource_providers", "name=a&in_tree="+rp1, "placement 1.39", "application/json", "")
	f.Add("PUT", "/allocations/"+inst1, "", "placement latest", "*/*", instance(rp1, "null", 1))
	f.Add("POST", "/reshaper", "", "placement 1.30", "text/html", `{"inventories":{"`+rp1+
		`":{"resource_provider_generation":1,"inventories":{}}},"allocations":{}}`)
	f.Add("PUT", "/resource_providers/"+rp1+"/inventories/VCPU", "", "", "",
		`{"resource_provider_generation":1,"total":1,"allocation_ratio":1e-300}`)
	f.Add("PUT", "/resource_providers/"+rp1, "", "placement 1.14", "", `{"name":"x","parent_provider_uuid":"`+rp2+`"}`)
	f.Add("DELETE", "/traits/CUSTOM_A", "%zz", "placement 1.6", "q;;=", "")
	f.Add("CONNECT", "//../x/", "", "placement 1.99", "a/b", "")
	f.Add("GET", "/usages", "project_id=a&user_id=%ff;consumer_type=all", "placement 1.38", "", "")
	h := newAPI(f)
	host(f, h)
	f.Fuzz(func(t *testing.T, method, path, query, version, accept, body string) {
		r := httptest.NewRequest(http.MethodGet, "/", strings.NewReader(body))
		r.Method, r.URL.Path, r.URL.RawQuery = method, path, query
		r.Header = http.Header{"X-Auth-Token": {"admin"},
			"Content-Type": {"application/json"}, "Openstack-Api-Version": {version}, "Accept": {accept}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 500 || w.Code >= 300 && w.Code < 400 {
			t.Errorf("%q %q?%q at %q with %q: status %d\n%s", method, path, query, version, body, w.Code, w.Body)
		}
		if strings.HasPrefix(w.Header().Get("Content-Type"), "application/json") && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q %q?%q at %q with %q: the answer is no JSON: %s", method, path, query, version, body, w.Body)
		}
		if w.Code >= 400 && bytes.Count(w.Body.Bytes(), nil) > 16<<10 {
			t.Errorf("the error has %d bytes", w.Body.Len())
		}
	})
}
