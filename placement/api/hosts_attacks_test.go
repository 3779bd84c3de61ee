// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestANameIsNotEnoughForAHost: the host h3 has no tree of the host h3.site2, whose name is that of
// h3 with a domain, if its certificate says which compute nodes it has. Without nodes the name
// decides.
func TestANameIsNotEnoughForAHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const theirs, below, own = "90000000-0000-4000-8000-000000000001", "90000000-0000-4000-8000-000000000002",
		"90000000-0000-4000-8000-000000000003"
	for as, want := range map[string]struct{ own, others int }{"h3": {200, 200}, "h3 with nodes": {200, 403}} {
		h, l := hostsWorld(t)
		calls(t, h,
			call{method: "POST", path: "/resource_providers", body: `{"name":"h3.site2","uuid":"` + theirs + `"}`,
				version: "1.39", status: 200},
			call{method: "POST", path: "/resource_providers", body: `{"name":"h3.site2_a","uuid":"` + below +
				`","parent_provider_uuid":"` + theirs + `"}`, version: "1.39", status: 200},
			call{method: "PUT", path: "/resource_providers/" + theirs + "/aggregates",
				body: `{"resource_provider_generation":0,"aggregates":["` + agg2 + `"]}`, version: "1.39", status: 200},
			call{method: "POST", path: "/resource_providers", body: `{"name":"h3","uuid":"` + own + `"}`,
				version: "1.39", status: 200},
		)
		for uuid, status := range map[string]int{theirs: want.others, below: want.others,
			share2: want.others, own: want.own} {
			call{method: "GET", path: "/resource_providers/" + uuid, status: status}.as(as).do(t, h)
		}
		for uuid, status := range map[string]int{theirs: want.others, below: want.others, own: want.own} {
			p, _ := l.Current().Provider(uuid)
			body := fmt.Sprintf(`{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":1}}}`, p.Generation)
			call{method: "PUT", path: "/resource_providers/" + uuid + "/inventories", body: body,
				status: status}.as(as).do(t, h)
		}
	}
}

// TestAHostLearnsNothingByNaming: the answer about another host's provider is the same whatever it
// has left, which classes it has, and whatever its generation is; and that about a consumer of
// others whatever it holds.
func TestAHostLearnsNothingByNaming(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, _ := hostsWorld(t)
	same := func(what string, asked []call) {
		t.Helper()
		first := ""
		for _, c := range asked {
			c.status = 403
			detail := errorOf(t, c.as("h1").do(t, h)).Detail
			if first == "" {
				first = detail
			}
			if detail != first {
				t.Errorf("%s tells of others: %q, and %q of %s", what, first, detail, c.body)
			}
		}
	}
	var put, post, reshapes, theirs []call
	for _, part := range []string{
		allocated(root2, "VCPU", 1), allocated(root2, "VCPU", 95), allocated(root2, "VCPU", 96),
		allocated(root2, "VCPU", 9999),
		allocated(root2, "MEMORY_MB", 1), allocated(root2, "PGPU", 1), allocated(root2, "CUSTOM_NO", 1),
	} {
		put = append(put, call{method: "PUT", path: "/allocations/" + onNone, body: holding(part, "null")},
			call{method: "PUT", path: "/allocations/" + onHost1, body: holding(part, "1")})
		post = append(post,
			call{method: "POST", path: "/allocations", body: `{"` + onNone + `":` + holding(part, "null") + `}`})
		theirs = append(theirs, call{method: "PUT", path: "/allocations/" + onHost2, body: holding(part, "1")})
	}
	for generation := range 9 {
		for _, class := range []string{"VCPU", "MEMORY_MB", "CUSTOM_NO"} {
			body := fmt.Sprintf(
				`{"inventories":{%q:{"resource_provider_generation":%d,"inventories":{%q:{"total":1}}}},`+
					`"allocations":{}}`, root2, generation, class)
			reshapes = append(reshapes, call{method: "POST", path: "/reshaper", body: body})
		}
	}
	same("PUT /allocations", put)
	same("POST /allocations", post)
	same("POST /reshaper", reshapes)
	same("PUT /allocations of another host's consumer", theirs)
}

// TestAListTellsAHostNothingOfOthers: an unknown name is an error, whatever other providers have.
func TestAListTellsAHostNothingOfOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, _ := hostsWorld(t)
	for _, condition := range []string{"required=COMPUTE_NODE", "required=HW_CPU_X86_AVX", "member_of=" +
		agg2, "member_of=" + nowhere} {
		call{method: "GET", path: "/resource_providers?uuid=" + root1 + "&" + condition + "&resources=CUSTOM_NO:1",
			status: 400}.as("h1").do(t, h)
	}
}
