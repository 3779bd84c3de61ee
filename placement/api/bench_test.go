// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The benchmarks go through the whole handler, with a recorder in place of a socket and a store
// that keeps nothing. The host has 3 inventories, 40 traits, 3 aggregates and 6 children, as a
// compute node with NUMA nodes and devices has.

func benchHost(b *testing.B) http.Handler {
	b.Helper()
	h := newAPI(b)
	host(b, h)
	var traits []string
	for i := range 40 {
		name := fmt.Sprintf("CUSTOM_TRAIT_%02d", i)
		traits = append(traits, `"`+name+`"`)
		call{method: "PUT", path: "/traits/" + name, version: "1.39", status: 201}.do(b, h)
	}
	calls(b, h,
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/traits", version: "1.39",
			body: `{"resource_provider_generation":1,"traits":[` + strings.Join(traits, ",") + `]}`, status: 200},
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/aggregates", version: "1.18", body: `["` + agg1 +
			`","` + agg2 + `","` + rp2 + `"]`, status: 200},
		call{method: "POST", path: "/resource_providers/" +
			rp1 + "/inventories", version: "1.39", body: `{"resource_class":"DISK_GB","total":1000}`, status: 201},
	)
	for i := range 5 {
		call{method: "POST", path: "/resource_providers", version: "1.39",
			body: fmt.Sprintf(`{"name":"child%d","parent_provider_uuid":%q}`, i, rp1), status: 200}.do(b, h)
	}
	return h
}

// discard is a ResponseWriter that keeps only the status.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(status int)      { d.status = status }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }

func benchGet(b *testing.B, path string) {
	h := benchHost(b)
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header = http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.39"},
		"Accept": {"application/json"}}
	w := &discard{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		clear(w.header)
		h.ServeHTTP(w, r)
	}
	if w.status != http.StatusOK {
		b.Fatalf("status %d", w.status)
	}
}

func BenchmarkGetInventories(b *testing.B) {
	benchGet(b, "/resource_providers/"+rp1+"/inventories")
}

func BenchmarkGetTraits(b *testing.B) { benchGet(b, "/resource_providers/"+rp1+"/traits") }

func BenchmarkGetAggregates(b *testing.B) {
	benchGet(b, "/resource_providers/"+rp1+"/aggregates")
}

func BenchmarkGetProvidersInTree(b *testing.B) { benchGet(b, "/resource_providers?in_tree="+rp2) }

func BenchmarkPutInventories(b *testing.B) {
	h := newAPI(b)
	host(b, h)
	w := &discard{header: http.Header{}}
	header := http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.39"},
		"Content-Type": {"application/json"}}
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		clear(w.header)
		r := httptest.NewRequest(http.MethodPut, "/resource_providers/"+rp1+"/inventories",
			strings.NewReader(fmt.Sprintf(
				`{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":%d,"max_unit":8},`+
					`"MEMORY_MB":{"total":1024,"reserved":64,"step_size":64},"DISK_GB":{"total":1000}}}`, i, 8+i%2)))
		r.Header = header
		if h.ServeHTTP(w, r); w.status != http.StatusOK {
			b.Fatalf("status %d", w.status)
		}
	}
}

func BenchmarkPutAllocations(b *testing.B) {
	h := newAPI(b)
	host(b, h)
	w := &discard{header: http.Header{}}
	header := http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement 1.39"},
		"Content-Type": {"application/json"}}
	generation := "null"
	b.ReportAllocs()
	for i := 1; b.Loop(); i++ {
		clear(w.header)
		r := httptest.NewRequest(http.MethodPut,
			"/allocations/"+inst1, strings.NewReader(instance(rp1, generation, 1+i%4)))
		r.Header = header
		if h.ServeHTTP(w, r); w.status != http.StatusNoContent {
			b.Fatalf("status %d", w.status)
		}
		generation = fmt.Sprint(i)
	}
}
