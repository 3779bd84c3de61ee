// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// consumerAnswer is all that an answer about a consumer has.
type consumerAnswer struct {
	Allocations        map[string]providerAnswer `json:"allocations"`
	ProjectID          string                    `json:"project_id"`
	UserID             string                    `json:"user_id"`
	ConsumerGeneration *int64                    `json:"consumer_generation"`
	ConsumerType       string                    `json:"consumer_type"`
}

type providerAnswer struct {
	Generation int64                  `json:"generation"`
	Resources  providertree.Resources `json:"resources"`
}

func TestAllocationsByMicroversion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	generation := func(n int64) *int64 { return &n }
	h := newAPI(t, func(c *api.Config) { c.Options = api.Options{IncompleteProjectID: "no-project"} })
	host(t, h)
	calls(t, h, call{method: "PUT", path: "/allocations/" + strings.ToUpper(inst1), version: "1.0", status: 204,
		body: `{"allocations":[{"resource_provider":{"uuid":"` + rp1 + `"},"resources":{"VCPU":1,"MEMORY_MB":64}}]}`})
	held := map[string]providerAnswer{rp1: {Generation: 2,
		Resources: providertree.Resources{"VCPU": 1, "MEMORY_MB": 64}}}
	for version, want := range map[string]consumerAnswer{
		"1.11": {Allocations: held},
		"1.12": {Allocations: held, ProjectID: "no-project", UserID: api.IncompleteID},
		"1.28": {Allocations: held, ProjectID: "no-project", UserID: api.IncompleteID,
			ConsumerGeneration: generation(1)},
		"1.38": {Allocations: held, ProjectID: "no-project", UserID: api.IncompleteID,
			ConsumerGeneration: generation(1), ConsumerType: "unknown"},
	} {
		got := decoded[consumerAnswer](t,
			call{method: "GET", path: "/allocations/" + inst1, version: version, status: 200}.do(t, h))
		testproc.Samef(t, cmp.Diff(want, got), "at %s", version)
	}
	for version, want := range map[string]wire.ProviderAllocations{
		"1.27": {Generation: 2, Allocations: map[string]wire.HeldAllocation{inst1: {Resources: held[rp1].Resources}}},
		"1.28": {Generation: 2,
			Allocations: map[string]wire.HeldAllocation{inst1: {Resources: held[rp1].Resources,
				ConsumerGeneration: generation(1)}}},
	} {
		got := decoded[wire.ProviderAllocations](t,
			call{method: "GET", path: "/resource_providers/" + rp1 + "/allocations",
				version: version, status: 200}.do(t, h))
		testproc.Samef(t, cmp.Diff(want, got), "of the provider at %s", version)
	}
	nothing := decoded[wire.ConsumerAllocations](t,
		call{method: "GET", path: "/allocations/" + inst2, version: "1.39", status: 200}.do(t, h))
	if diff := cmp.Diff(wire.ConsumerAllocations{Allocations: wire.ProviderResources{}}, nothing); diff != "" {
		t.Errorf("of no consumer (-want +got):\n%s", diff)
	}
}

func TestWritingAllocations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	const mine = "/allocations/" + inst1
	w := call{method: "PUT", path: mine, version: "1.39",
		body: instance(rp1, "0", 1), status: 409, code: wire.CodeConcurrentUpdate}.do(t, h)
	if e := errorOf(t, w); !strings.Contains(e.Detail, "consumer generation conflict") {
		t.Errorf("the phrase that clients look for is not in %q", e.Detail)
	}
	calls(t, h,
		call{method: "PUT", path: "/allocations/x", version: "1.39", body: instance(rp1, "null", 1), status: 400},
		call{method: "PUT", path: mine, version: "1.39",
			body: instance(agg1, "null", 1), status: 400, code: wire.CodeUndefined},
		call{method: "PUT", path: mine, version: "1.39",
			body: strings.Replace(instance(rp1, "null", 1), "VCPU", "CUSTOM_NONE", 1), status: 400},
		call{method: "PUT", path: mine, version: "1.39",
			body:   strings.Replace(instance(rp1, "null", 1), "VCPU", "DISK_GB", 1),
			status: 409, code: wire.CodeUndefined},
		call{method: "PUT", path: mine, version: "1.39",
			body:   strings.Replace(instance(rp1, "null", 65), "VCPU", "MEMORY_MB", 1),
			status: 409, code: wire.CodeUndefined},
		call{method: "PUT", path: mine, version: "1.39",
			body: instance(rp1, "null", 9), status: 409, code: wire.CodeUndefined},
		call{method: "PUT", path: mine, version: "1.39",
			body:   strings.Replace(instance(rp1, "null", 1), ":1}", ":99999999999999999999}", 1),
			status: 409, code: wire.CodeUndefined},
		call{method: "PUT", path: mine, version: "1.39",
			body: instance(rp1, "-1", 6), status: 409, code: wire.CodeConcurrentUpdate},
		call{method: "PUT", path: mine, version: "1.39", body: instance(rp1, "null", 6), status: 204},
		call{method: "PUT", path: mine, version: "1.39",
			body: instance(rp1, "null", 6), status: 409, code: wire.CodeConcurrentUpdate},
		call{method: "PUT", path: mine, version: "1.39", body: instance(rp1, "1", 7), status: 204},
		call{method: "POST", path: "/allocations", version: "1.39", body: `{"` + inst2 + `":` +
			instance(rp1, "null", 2) + `}`, status: 409, code: wire.CodeUndefined},
		call{method: "POST", path: "/allocations", version: "1.39", status: 204,
			body: `{"` + inst1 + `":` + instance(rp1, "2", 3) + `,"` + inst2 + `":` + instance(rp1, "null", 5) + `}`},
		call{method: "DELETE", path: "/resource_providers/" + rp1, version: "1.39", status: 409},
		call{method: "PUT", path: mine, version: "1.39", status: 204,
			body: `{"allocations":{},"project_id":"p","user_id":"u","consumer_generation":3,` +
				`"consumer_type":"INSTANCE"}`},
		call{method: "DELETE", path: mine, version: "1.39", status: 404},
		call{method: "DELETE", path: "/allocations/" + inst2, version: "1.39", status: 204},
		call{method: "GET", path: "/resource_providers/" + rp1 + "/usages", version: "1.39", status: 200},
	)
	u := decoded[wire.ProviderUsages](t,
		call{method: "GET", path: "/resource_providers/" + rp1 + "/usages", version: "1.39", status: 200}.do(t, h))
	testproc.Samef(t, cmp.Diff(map[string]int64{"VCPU": 0, "MEMORY_MB": 0}, u.Usages), "left in use")
}

func TestUsages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h,
		call{method: "PUT", path: "/allocations/" + inst1,
			version: "1.39", body: instance(rp1, "null", 2), status: 204},
		call{method: "PUT", path: "/allocations/" + inst2, version: "1.12", status: 204,
			body: `{"allocations":{"` + rp1 +
				`":{"resources":{"VCPU":3,"MEMORY_MB":64}}},"project_id":"proj","user_id":"other"}`},
	)
	plain := decoded[struct{ Usages map[string]int64 }](t,
		call{method: "GET", path: "/usages?project_id=proj", version: "1.37", status: 200}.do(t, h))
	testproc.Samef(t, cmp.Diff(map[string]int64{"VCPU": 5, "MEMORY_MB": 64}, plain.Usages), "before 1.38")
	type usages = map[string]map[string]int64
	for query, want := range map[string]usages{
		"project_id=proj": {"INSTANCE": {"consumer_count": 1, "VCPU": 2},
			"unknown": {"consumer_count": 1, "VCPU": 3, "MEMORY_MB": 64}},
		"project_id=proj&user_id=other":          {"unknown": {"consumer_count": 1, "VCPU": 3, "MEMORY_MB": 64}},
		"project_id=proj&consumer_type=all":      {"all": {"consumer_count": 2, "VCPU": 5, "MEMORY_MB": 64}},
		"project_id=proj&consumer_type=unknown":  {"unknown": {"consumer_count": 1, "VCPU": 3, "MEMORY_MB": 64}},
		"project_id=proj&consumer_type=INSTANCE": {"INSTANCE": {"consumer_count": 1, "VCPU": 2}},
		"project_id=proj&consumer_type=allx":     {},
		"project_id=none&consumer_type=all":      {},
	} {
		got := decoded[wire.TypedUsagesReply](t,
			call{method: "GET", path: "/usages?" + query, version: "1.38", status: 200}.do(t, h))
		testproc.Samef(t, cmp.Diff(want, got.Usages), "%s", query)
	}
	calls(t, h,
		call{method: "GET", path: "/usages", version: "1.38", status: 400},
		call{method: "GET", path: "/usages?project_id=", version: "1.38", status: 400},
		call{method: "GET", path: "/usages?project_id=" + strings.Repeat("a", 256), version: "1.38", status: 400},
		call{method: "GET", path: "/usages?project_id=p&consumer_type=bad", version: "1.38", status: 400},
		call{method: "GET", path: "/usages?project_id=p&consumer_type=INSTANCE", version: "1.37", status: 400},
	)
}

func TestReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h, call{method: "PUT", path: "/allocations/" +
		inst1, version: "1.39", body: instance(rp1, "null", 2), status: 204})
	reshape := func(rp1Generation, consumerGeneration string, vcpu int) string {
		return `{"inventories":{"` + rp1 + `":{"resource_provider_generation":` + rp1Generation +
			`,"inventories":{"MEMORY_MB":{"total":1024}}},"` +
			rp2 + `":{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8}}}},"allocations":{"` + inst1 +
			`":` + instance(rp2, consumerGeneration, vcpu) + `}}`
	}
	calls(t, h,
		call{method: "POST", path: "/reshaper", version: "1.39", body: reshape("1", "1", 2), status: 409,
			code: wire.CodeConcurrentUpdate},
		call{method: "POST", path: "/reshaper", version: "1.39", body: reshape("2", "null", 2), status: 409,
			code: wire.CodeConcurrentUpdate},
		call{method: "POST", path: "/reshaper", version: "1.39", body: reshape("2", "1", 9),
			status: 409, code: wire.CodeUndefined},
		call{method: "POST", path: "/reshaper", version: "1.39",
			body: strings.ReplaceAll(reshape("2", "1", 2), rp2, agg1), status: 400, code: wire.CodeProviderNotFound},
		call{method: "POST", path: "/reshaper",
			version: "1.39", body: strings.Replace(reshape("2", "1", 2), "MEMORY_MB", "CUSTOM_NONE", 1),
			status: 400, code: wire.CodeUndefined},
		call{method: "POST", path: "/reshaper", version: "1.39", status: 409, code: wire.CodeInventoryInUse,
			body: `{"inventories":{"` + rp1 +
				`":{"resource_provider_generation":2,"inventories":{}}},"allocations":{}}`},
		call{method: "POST", path: "/reshaper", version: "1.39", body: reshape("2", "1", 2), status: 204},
	)
	got := decoded[wire.ConsumerAllocations](t,
		call{method: "GET", path: "/allocations/" + inst1, version: "1.39", status: 200}.do(t, h))
	if _, moved := got.Allocations[rp2]; !moved || len(got.Allocations) != 1 || *got.ConsumerGeneration != 2 {
		t.Errorf("the consumer holds %+v", got)
	}
}
