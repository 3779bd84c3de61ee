// SPDX-License-Identifier: Apache-2.0

package placementcalls_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// BenchmarkCandidates reads the answer that a boot gets in a cloud of 1,000 hosts.
func BenchmarkCandidates(b *testing.B) {
	var requests, summaries []string
	for n := range resourcerequest.DefaultLimit {
		requests = append(requests,
			fmt.Sprintf(
				`{"allocations":{"%s":{"resources":{"DISK_GB":1,"MEMORY_MB":512,"VCPU":1}}},"mappings":{"":["%[1]s"]}}`,
				providerUUID(n)))
		summaries = append(summaries,
			fmt.Sprintf(
				`"%s":{"resources":{"DISK_GB":{"capacity":100,"used":0},"MEMORY_MB":{"capacity":4096,"used":512},`+
					`"VCPU":{"capacity":64,"used":1}},`+
					`"traits":["COMPUTE_NODE","HW_CPU_X86_AVX"],"parent_provider_uuid":null,`+
					`"root_provider_uuid":"%[1]s"}`, providerUUID(n)))
	}
	body := `{"allocation_requests":[` + strings.Join(requests, ",") + `],"provider_summaries":{` +
		strings.Join(summaries, ",") + `}}`
	c := newClient(b,
		roundTripFunc(func(*http.Request) (*http.Response, error) { return placementReply(http.StatusOK, body), nil }))
	request, err := resourcerequest.New(
		cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1}}, nil)
	testproc.Check(b, err)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		candidates, err := c.Candidates(b.Context(), request)
		if err != nil || len(candidates) != resourcerequest.DefaultLimit {
			b.Fatal(len(candidates), err)
		}
	}
}
