// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestModellingGuide: docs/modelling.md has the candidates that its example gives, each block of
// them after its request.
func TestModellingGuide(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	page := testproc.Try(os.ReadFile("../../docs/modelling.md")).Or(t)
	h := newAPI(t)
	names := guideHosts(t, h)
	var got, want []string
	var request string
	answer := func() {
		if request != "" {
			path, extensions, _ := strings.Cut(request, "\n")
			got = append(got, "GET /allocation_candidates?"+path)
			got = append(got, guideAnswer(t, h, path, extensions, names)...)
		}
		request = ""
	}
	for line := range strings.Lines(string(page)) {
		line, indented := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		query, asked := strings.CutPrefix(line, "GET /allocation_candidates?")
		switch {
		case !indented:
			answer()
		case asked:
			answer()
			request, want = query, append(want, line)
		case request == "":
		case strings.HasPrefix(line, "    &"):
			more := strings.TrimSpace(line)
			request += more
			want[len(want)-1] += more
		case strings.HasPrefix(line, "Placement-Extensions: "):
			request += "\n" + strings.TrimPrefix(line, "Placement-Extensions: ")
		default:
			want = append(want, line)
		}
	}
	answer()
	if len(want) < 50 {
		t.Fatalf("the page has only %d lines of requests and candidates", len(want))
	}
	testproc.Samef(t, cmp.Diff(want, got), "docs/modelling.md (-) and the answers (+)")
}

// guideAnswer is the candidates as the page writes them.
func guideAnswer(t *testing.T, h *api.API, query, extensions string, names map[string]string) []string {
	t.Helper()
	request := call{method: "GET", path: "/allocation_candidates?" + query, version: "1.39", status: 200}
	if extensions != "" {
		request.headers = []string{"Placement-Extensions: " + extensions}
	}
	var answer struct {
		Requests []struct {
			Allocations map[string]struct{ Resources providertree.Resources }
		} `json:"allocation_requests"`
	}
	testproc.Check(t, json.Unmarshal(request.do(t, h).Body.Bytes(), &answer))
	lines := make([]string, 0, len(answer.Requests))
	for _, candidate := range answer.Requests {
		var parts []string
		for provider, held := range candidate.Allocations {
			var amounts []string
			for _, class := range slices.Sorted(maps.Keys(held.Resources)) {
				amounts = append(amounts, fmt.Sprintf("%s %d", class, held.Resources[class]))
			}
			parts = append(parts, names[provider]+": "+strings.Join(amounts, ", "))
		}
		slices.Sort(parts)
		lines = append(lines, strings.Join(parts, "; "))
	}
	slices.Sort(lines)
	for i, line := range lines {
		lines[i] = fmt.Sprintf("%d  %s", i+1, line)
	}
	if len(lines) == 0 {
		return []string{"none"}
	}
	return lines
}

// guideHosts makes the example of the page, and returns the names of its providers by uuid.
func guideHosts(t *testing.T, h *api.API) map[string]string {
	t.Helper()
	type offers = map[string]int64
	names, uuids := map[string]string{}, map[string]string{}
	add := func(name, parent string, offered offers, traits, aggregates []string) {
		uuid := fmt.Sprintf("%08x-0000-4000-8000-000000000000", len(names)+1)
		names[uuid], uuids[name] = name, uuid
		body, inventories := object{"name": name, "uuid": uuid}, object{}
		if parent != "" {
			body["parent_provider_uuid"] = uuids[parent]
		}
		for class, total := range offered {
			inventories[class] = object{"total": total}
		}
		for _, trait := range traits {
			if strings.HasPrefix(trait, "CUSTOM_") {
				call{method: "PUT", path: "/traits/" + trait, version: "1.39"}.send(h)
			}
		}
		path := "/resource_providers/" + uuid
		calls(t, h,
			call{method: "POST", path: "/resource_providers", version: "1.39", body: text(t, body), status: 200},
			call{method: "PUT", path: path + "/inventories", version: "1.39",
				body: text(t, offering(0, inventories)), status: 200},
			call{method: "PUT", path: path + "/aggregates", version: "1.1", body: text(t, aggregates), status: 200},
			call{method: "PUT", path: path + "/traits",
				version: "1.39", body: text(t, object{"resource_provider_generation": 1, "traits": traits}),
				status: 200},
		)
	}
	none := []string{}
	for _, host := range []string{"cn1", "cn2"} {
		traits, aggregates := []string{"COMPUTE_NODE"}, []string{agg2}
		if host == "cn1" {
			traits, aggregates = append(traits, "COMPUTE_VOLUME_MULTI_ATTACH"), append(aggregates, agg1)
		}
		add(host, "", nil, traits, aggregates)
		for cell, gpu := range []struct {
			address, kind string
			total         int64
		}{{"05", "CUSTOM_NVIDIA_222", 4}, {"82", "CUSTOM_NVIDIA_231", 2}} {
			numa := fmt.Sprintf("%s_numa_%d", host, cell)
			add(numa, host, offers{"VCPU": 8, "MEMORY_MB": 16384}, []string{"HW_NUMA_ROOT", "HW_CPU_X86_AVX2"}, none)
			add(host+"_pci_0000_"+gpu.address+"_00_0", numa, offers{"VGPU": gpu.total}, []string{gpu.kind}, none)
		}
		add(host+"_nic", host+"_numa_0", nil, []string{"CUSTOM_NIC"}, none)
		for port, network := range []string{"CUSTOM_PHYSNET_RED", "CUSTOM_PHYSNET_BLUE"} {
			add(fmt.Sprintf("%s_0000:06:00.%d", host, port), host+"_nic",
				offers{"SRIOV_NET_VF": 4}, []string{network}, none)
		}
	}
	add("nfs", "", offers{"DISK_GB": 1000}, []string{"MISC_SHARES_VIA_AGGREGATE"}, []string{agg2})
	return names
}
