// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// nestedForest fills an API with the trees of upstream's nested perfload: a root with disk, two
// NUMA nodes with processors and memory, of which the second has CUSTOM_FOO and two FPGAs, the
// first one FPGA and one GPU.
func nestedForest(b *testing.B, h http.Handler, trees int) {
	b.Helper()
	call{method: "PUT", path: "/traits/CUSTOM_FOO", version: "1.39", status: 201}.do(b, h)
	for i := range trees {
		uuid := func(n int) string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", i, n) }
		for n, p := range []struct {
			name        string
			parent      int
			inventories string
			trait       string
		}{
			{"cn", -1, `"DISK_GB":{"total":1999}`, "COMPUTE_VOLUME_MULTI_ATTACH"},
			{"numa0", 0, `"VCPU":{"total":4},"MEMORY_MB":{"total":2048,"min_unit":256,"step_size":256}`,
				"HW_NUMA_ROOT"},
			{"numa1", 0, `"VCPU":{"total":4},"MEMORY_MB":{"total":2048,"min_unit":256,"step_size":256}`, "CUSTOM_FOO"},
			{"fpga0", 1, `"FPGA":{"total":1}`, ""},
			{"pgpu0", 1, `"VGPU":{"total":8}`, ""},
			{"fpga1_0", 2, `"FPGA":{"total":1}`, ""},
			{"fpga1_1", 2, `"FPGA":{"total":1}`, ""},
		} {
			parent := ""
			if p.parent >= 0 {
				parent = `,"parent_provider_uuid":"` + uuid(p.parent) + `"`
			}
			calls(b, h,
				call{method: "POST", path: "/resource_providers", version: "1.39",
					body: fmt.Sprintf(`{"name":"%s-%d","uuid":%q%s}`, p.name, i, uuid(n), parent), status: 200},
				call{method: "PUT", path: "/resource_providers/" + uuid(n) + "/inventories", version: "1.39",
					body: `{"resource_provider_generation":0,"inventories":{` + p.inventories + `}}`, status: 200})
			if p.trait != "" {
				call{method: "PUT", path: "/resource_providers/" + uuid(n) + "/traits", version: "1.39",
					body: `{"resource_provider_generation":1,"traits":["` + p.trait + `"]}`, status: 200}.do(b, h)
			}
		}
	}
}

// nestedQuery is that of upstream's nested perfload. Each tree has two candidates.
const nestedQuery = "/allocation_candidates?resources=DISK_GB:10&required=COMPUTE_VOLUME_MULTI_ATTACH" +
	"&resources_COMPUTE=VCPU:1,MEMORY_MB:256&required_COMPUTE=CUSTOM_FOO&resources_FPGA=FPGA:1&group_policy=none&" +
	"same_subtree=_COMPUTE,_FPGA"

// BenchmarkCandidates is the nested perfload with 1,000 trees of 7 providers, through the whole
// handler.
func BenchmarkCandidates(b *testing.B) {
	h := newAPI(b)
	nestedForest(b, h, 1000)
	for _, c := range []struct {
		name, limit, version string
	}{
		{"limit=10", "&limit=10", "1.39"}, {"limit=100", "&limit=100", "1.39"},
		{"limit=1000", "&limit=1000", "1.39"}, {"all", "", "1.39"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, nestedQuery+c.limit, nil)
			r.Header = http.Header{"X-Auth-Token": {"admin"}, "Openstack-Api-Version": {"placement " + c.version},
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
			length := w.header["Content-Length"]
			if len(length) == 1 {
				b.Logf("%s bytes", length[0])
			}
		})
	}
}
