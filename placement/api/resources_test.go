// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestProviders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	const node = "/resource_providers/" + rp1
	w := call{method: "POST", path: "/resource_providers",
		version: "1.19", body: `{"name":"node","uuid":"` + rp1 + `"}`, status: 201}.do(t, h)
	if got := w.Header().Get("Location"); got != "http://example.com"+node || w.Body.Len() != 0 {
		t.Errorf("before 1.20: Location %q, body %q", got, w.Body)
	}
	w = call{method: "POST", path: "/resource_providers",
		version: "1.20", body: `{"name":"child","uuid":"` + strings.ToUpper(strings.ReplaceAll(rp2, "-", "")) +
			`","parent_provider_uuid":"` + rp1 + `"}`, status: 200}.do(t, h)
	if p := decoded[wire.ResourceProvider](t, w); p.UUID != rp2 || p.Root != rp1 || *p.Parent != rp1 {
		t.Errorf("from 1.20: %+v", p)
	}
	calls(t, h,
		call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":"node"}`, status: 409,
			code: wire.CodeDuplicateName},
		call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":"x","uuid":"` + rp1 + `"}`,
			status: 409, code: wire.CodeDuplicateName},
		call{method: "POST", path: "/resource_providers", version: "1.39",
			body: `{"name":"x","parent_provider_uuid":"` + agg1 + `"}`, status: 400, code: wire.CodeUndefined},
		call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":"x","uuid":"` + agg1 +
			`","parent_provider_uuid":"` + agg1 + `"}`, status: 400},
		call{method: "POST", path: "/resource_providers", version: "1.39", body: `{"name":""}`, status: 400},
		call{method: "PUT", path: node, version: "1.39",
			body: `{"name":"child"}`, status: 409, code: wire.CodeDuplicateName},
		call{method: "PUT", path: node, version: "1.39",
			body: `{"name":"node","parent_provider_uuid":"` + rp2 + `"}`, status: 400},
		call{method: "PUT", path: "/resource_providers/" + agg1, version: "1.39", body: `{"name":"x"}`, status: 404},
		// What is not there goes first.
		call{method: "PUT", path: "/resource_providers/" + agg1, version: "1.39", body: `{"no":"name"}`, status: 404},
		call{method: "PUT", path: "/resource_providers/" +
			rp2, version: "1.36", body: `{"name":"child","parent_provider_uuid":null}`, status: 400},
		call{method: "PUT", path: "/resource_providers/" + rp2, version: "1.36", body: `{"name":"child"}`, status: 200},
		call{method: "DELETE", path: node, version: "1.39", status: 409, code: wire.CodeCannotDeleteParent},
		call{method: "PUT", path: "/resource_providers/" +
			rp2, version: "1.37", body: `{"name":"child","parent_provider_uuid":null}`, status: 200},
		call{method: "DELETE", path: node, version: "1.39", status: 204},
		call{method: "DELETE", path: node, version: "1.39", status: 404, code: wire.CodeUndefined},
		call{method: "GET", path: node, version: "1.39", status: 404},
	)
	w = call{method: "POST", path: "/resource_providers",
		version: "1.39", body: `{"name":"child"}`, status: 409}.do(t, h)
	if e := errorOf(t, w); !strings.Contains(e.Detail, "Conflicting resource provider name: child already exists") {
		t.Errorf("the phrase that clients look for is not in %q", e.Detail)
	}
	w = call{method: "GET", path: "/resource_providers/" + rp2, version: "1.15", status: 200}.do(t, h)
	testproc.Equal(t, w.Header().Get("Last-Modified"), clock.Format(http.TimeFormat), "Last-Modified is %q")
}

// TestLocation: URLs in answers begin with the endpoint that clients know, whatever the request
// that a proxy sends looks like.
func TestLocation(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for endpoint, base := range map[string]string{
		"":                                "http://example.com",
		"https://cloud.example/placement": "https://cloud.example/placement",
		"https://cloud.example/":          "https://cloud.example",
	} {
		h := newAPI(t, func(c *api.Config) { c.Options.Endpoint = endpoint })
		for _, c := range []struct{ method, path, body, location string }{
			{"POST", "/resource_providers", `{"name":"node","uuid":"` + rp1 + `"}`, "/resource_providers/" + rp1},
			{
				"POST", "/resource_providers/" + rp1 + "/inventories",
				`{"resource_class":"VCPU","total":1,"resource_provider_generation":0}`,
				"/resource_providers/" + rp1 + "/inventories/VCPU",
			},
			{"POST", "/resource_classes", `{"name":"CUSTOM_A"}`, "/resource_classes/CUSTOM_A"},
			{"PUT", "/resource_classes/CUSTOM_B", "", "/resource_classes/CUSTOM_B"},
			{"PUT", "/traits/CUSTOM_A", "", "/traits/CUSTOM_A"},
		} {
			w := call{method: c.method, path: c.path, version: "1.19", body: c.body, status: 201}.do(t, h)
			testproc.Equal(t, w.Header().Get("Location"), base+c.location, "Location: %s")
		}
	}
}

func TestListingProviders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h,
		call{method: "PUT", path: "/traits/CUSTOM_GOLD", version: "1.39", status: 201},
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/traits", version: "1.39",
			body: `{"traits":["CUSTOM_GOLD","HW_CPU_X86_AVX"],"resource_provider_generation":1}`, status: 200},
		call{method: "PUT", path: "/resource_providers/" +
			rp2 + "/aggregates", version: "1.1", body: `["` + agg1 + `"]`, status: 200},
		call{method: "PUT", path: "/allocations/" + inst1,
			version: "1.39", body: instance(rp1, "null", 6), status: 204},
	)
	const both, first, second = "node numa0", "node", "numa0"
	const refused = "400"
	for _, c := range []struct{ query, version, want string }{
		{"", "1.0", both},
		{"name=node", "1.0", first},
		{"name=", "1.0", both},
		{"name=other", "1.0", ""},
		{"uuid=" + rp2, "1.0", second},
		{"uuid=x&uuid=" + rp2, "1.0", second},
		{"uuid=x", "1.0", refused},
		{"uuid=" + rp2 + "&name=node", "1.0", ""},
		{"color=blue", "1.39", refused},
		{"name=%ff", "1.39", refused},
		{"name=no%64e", "1.39", first},
		{"member_of=" + agg1, "1.2", refused},
		{"member_of=" + agg1, "1.3", second},
		{"member_of=in:" + agg1 + "," + agg2, "1.3", second},
		{"member_of=" + agg1 + "," + agg2, "1.3", refused},
		{"member_of=" + agg2, "1.3", ""},
		{"member_of=x", "1.3", refused},
		{"member_of=" + agg1 + "&member_of=" + agg1, "1.23", refused},
		{"member_of=" + agg1 + "&member_of=" + agg2, "1.24", ""},
		{"member_of=!" + agg1, "1.31", refused},
		{"member_of=!" + agg1, "1.32", first},
		{"member_of=!in:" + agg1 + "," + agg2, "1.32", first},
		{"member_of=" + agg1 + "&member_of=!" + agg1, "1.32", ""},
		{"resources=VCPU:1", "1.3", refused},
		{"resources=VCPU:1", "1.4", first},
		{"resources=VCPU:2", "1.4", first},
		{"resources=VCPU:3", "1.4", ""},
		{"resources=VCPU:2,MEMORY_MB:64", "1.4", first},
		{"resources=MEMORY_MB:65", "1.4", ""},
		{"resources=VCPU:0", "1.4", refused},
		{"resources=VCPU:-1", "1.4", refused},
		{"resources=VCPU:x", "1.4", refused},
		{"resources=VCPU", "1.4", refused},
		{"resources=", "1.4", refused},
		{"resources=VCPU:99999999999999999999", "1.4", ""},
		{"resources=CUSTOM_NONE:1", "1.4", refused},
		{"in_tree=" + rp1, "1.13", refused},
		{"in_tree=" + rp1, "1.14", both},
		{"in_tree=" + rp2, "1.14", both},
		{"in_tree=" + agg1, "1.14", ""},
		{"in_tree=" + agg1 + "&resources=CUSTOM_NONE:1", "1.14", ""},
		{"member_of=" + agg2 + "&resources=CUSTOM_NONE:1", "1.14", ""},
		{"in_tree=x", "1.14", refused},
		{"required=CUSTOM_GOLD", "1.17", refused},
		{"required=CUSTOM_GOLD", "1.18", first},
		{"required=CUSTOM_GOLD,HW_CPU_X86_SSE", "1.18", ""},
		{"required=CUSTOM_NONE", "1.18", refused},
		{"required=", "1.18", refused},
		{"required=CUSTOM_GOLD,", "1.18", refused},
		{"required=!CUSTOM_GOLD", "1.21", refused},
		{"required=!CUSTOM_GOLD", "1.22", second},
		{"required=!!CUSTOM_GOLD", "1.22", second},
		{"required=!CUSTOM_NONE", "1.22", refused},
		{"required=HW_CPU_X86_SSE,!CUSTOM_NONE", "1.22", ""},
		{"required=CUSTOM_NONE&required=CUSTOM_GOLD", "1.38", first}, // Only the last one counts.
		{"required=HW_CPU_X86_SSE&required=CUSTOM_GOLD", "1.39", ""},
		{"required=in:HW_CPU_X86_SSE,CUSTOM_GOLD", "1.38", refused},
		{"required=in:HW_CPU_X86_SSE,CUSTOM_GOLD", "1.39", first},
		{"required=in:HW_CPU_X86_SSE,!CUSTOM_GOLD", "1.39", refused},
		{"required=in:HW_CPU_X86_SSE,CUSTOM_GOLD&required=!HW_CPU_X86_AVX", "1.39", ""},
	} {
		if c.want == refused {
			call{method: "GET", path: "/resource_providers?" + c.query, version: c.version, status: 400}.do(t, h)
			continue
		}
		w := call{method: "GET", path: "/resource_providers?" + c.query, version: c.version, status: 200}.do(t, h)
		var names []string
		for _, p := range decoded[wire.ResourceProviders](t, w).ResourceProviders {
			names = append(names, p.Name)
		}
		testproc.Equal(t, strings.Join(names, " "), c.want, "%s at %s gives %q", c.query, c.version)
	}
}

func TestInventories(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	const inventories = "/resource_providers/" + rp1 + "/inventories"
	got := decoded[wire.Inventories](t, call{method: "GET", path: inventories, version: "1.39", status: 200}.do(t, h))
	want := wire.Inventories{Generation: 1,
		Inventories: map[string]wire.Inventory{"VCPU": wire.DefaultInventory(8),
			"MEMORY_MB": wire.DefaultInventory(1024)}}
	memory := want.Inventories["MEMORY_MB"]
	memory.StepSize = 64
	want.Inventories["MEMORY_MB"] = memory
	testproc.Same(t, cmp.Diff(want, got))
	w := call{method: "POST", path: inventories, version: "1.39",
		body: `{"resource_class":"DISK_GB","total":10.0,"resource_provider_generation":77}`, status: 201}.do(t, h)
	if one := decoded[wire.OneInventory](t, w); one.Total != 10 || one.Generation != 2 ||
		w.Header().Get("Location") != "http://example.com"+inventories+"/DISK_GB" {
		t.Errorf("%+v at %s", one, w.Header().Get("Location"))
	}
	calls(t, h,
		// Generation 3.
		call{method: "PUT", path: "/allocations/" + inst1,
			version: "1.39", body: instance(rp1, "null", 2), status: 204},
		call{method: "POST", path: inventories, version: "1.39", body: `{"resource_class":"DISK_GB","total":10}`,
			status: 409, code: wire.CodeConcurrentUpdate},
		call{method: "POST", path: inventories,
			version: "1.39", body: `{"resource_class":"CUSTOM_NONE","total":10}`, status: 400},
		call{method: "POST", path: "/resource_providers/" +
			agg1 + "/inventories", version: "1.39", body: `{"resource_class":"VCPU","total":10}`, status: 404},
		call{method: "PUT", path: inventories, version: "1.39",
			body: `{"resource_provider_generation":2,"inventories":{}}`, status: 409, code: wire.CodeConcurrentUpdate},
		call{method: "PUT", path: inventories, version: "1.39",
			body: `{"resource_provider_generation":3,"inventories":{}}`, status: 409, code: wire.CodeInventoryInUse},
		call{method: "PUT", path: inventories, version: "1.39",
			body: `{"resource_provider_generation":3,"inventories":{"vcpu":{"total":1}}}`, status: 400},
		call{method: "PUT", path: inventories + "/VCPU",
			version: "1.25", body: `{"resource_provider_generation":3,"total":8,"reserved":8}`, status: 400},
		call{method: "PUT", path: inventories + "/VCPU",
			version: "1.26", body: `{"resource_provider_generation":3,"total":8,"reserved":9}`, status: 400},
		// The generation goes first.
		call{method: "PUT", path: inventories + "/VCPU",
			version: "1.26", body: `{"resource_provider_generation":2,"total":8,"reserved":9}`, status: 409, code: ""},
		call{method: "PUT", path: inventories + "/VCPU",
			version: "1.26", body: `{"resource_provider_generation":3,"total":8,"reserved":8}`, status: 200},
		call{method: "PUT", path: inventories + "/PCPU",
			version: "1.39", body: `{"resource_provider_generation":4,"total":8}`, status: 400},
		call{method: "PUT", path: inventories + "/CUSTOM_NONE", version: "1.39",
			body: `{"resource_provider_generation":4,"total":8}`, status: 404},
		call{method: "GET", path: inventories + "/PCPU", version: "1.39", status: 404},
		call{method: "DELETE", path: inventories + "/VCPU",
			version: "1.39", status: 409, code: wire.CodeConcurrentUpdate},
		call{method: "DELETE", path: inventories, version: "1.39", status: 409, code: wire.CodeInventoryInUse},
		call{method: "DELETE", path: inventories + "/DISK_GB", version: "1.39", status: 204},
		call{method: "DELETE", path: inventories + "/DISK_GB", version: "1.39", status: 404},
		call{method: "DELETE", path: "/allocations/" + inst1, version: "1.39", status: 204},
		call{method: "DELETE", path: inventories, version: "1.39", status: 204},
	)
	if left := decoded[wire.Inventories](t,
		call{method: "GET", path: inventories, version: "1.39", status: 200}.do(t, h)); len(left.Inventories) != 0 {
		t.Errorf("left are %v", left.Inventories)
	}
}

func TestAggregatesAndTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	const node = "/resource_providers/" + rp1
	two := int64(2)
	for _, c := range []struct {
		version, body string
		want          wire.AggregateList
	}{
		{"1.1", `["` + agg2 + `","` + agg1 + `"]`, wire.AggregateList{Aggregates: []string{agg2, agg1}}},
		{"1.19", `{"aggregates":["` + agg1 + `"],"resource_provider_generation":1}`,
			wire.AggregateList{Aggregates: []string{agg1}, Generation: &two}},
	} {
		got := decoded[wire.AggregateList](t,
			call{method: "PUT", path: node + "/aggregates", version: c.version, body: c.body, status: 200}.do(t, h))
		testproc.Samef(t, cmp.Diff(c.want, got), "aggregates at %s", c.version)
	}
	calls(t, h,
		call{method: "PUT", path: node + "/aggregates", version: "1.39",
			body: `{"aggregates":[],"resource_provider_generation":1}`, status: 409, code: wire.CodeConcurrentUpdate},
		call{method: "PUT", path: node + "/traits",
			version: "1.39", body: `{"traits":["CUSTOM_NEW"],"resource_provider_generation":2}`, status: 400},
		call{method: "PUT", path: "/traits/CUSTOM_NEW", version: "1.39", status: 201},
		call{method: "PUT", path: "/traits/CUSTOM_NEW", version: "1.39", status: 204},
		call{method: "PUT", path: "/traits/NEW", version: "1.39", status: 400},
		call{method: "PUT", path: node + "/traits",
			version: "1.39", body: `{"traits":["CUSTOM_NEW"],"resource_provider_generation":1}`, status: 409,
			code: wire.CodeConcurrentUpdate},
	)
	got := decoded[wire.ProviderTraits](t,
		call{method: "PUT", path: node + "/traits",
			version: "1.39",
			body:    `{"traits":["HW_CPU_X86_AVX","CUSTOM_NEW","CUSTOM_NEW"],"resource_provider_generation":2}`,
			status:  200}.do(t, h))
	if diff := cmp.Diff(wire.ProviderTraits{Traits: []string{"HW_CPU_X86_AVX", "CUSTOM_NEW"}, Generation: 3},
		got); diff != "" {
		t.Errorf("traits (-want +got):\n%s", diff)
	}
	for query, want := range map[string]string{
		"name=in:CUSTOM_NEW,HW_CPU_X86_AVX,NONE":             "HW_CPU_X86_AVX CUSTOM_NEW",
		"name=startswith:CUSTOM_":                            "CUSTOM_NEW",
		"associated=TRUE":                                    "HW_CPU_X86_AVX CUSTOM_NEW",
		"name=in:CUSTOM_NEW,HW_CPU_X86_SSE&associated=false": "HW_CPU_X86_SSE",
	} {
		list := decoded[wire.TraitList](t,
			call{method: "GET", path: "/traits?" + query, version: "1.39", status: 200}.do(t, h))
		testproc.Equal(t, strings.Join(list.Traits, " "), want, "/traits?%s gives %q", query)
	}
	calls(t, h,
		call{method: "GET", path: "/traits?name=CUSTOM", version: "1.39", status: 400},
		call{method: "GET", path: "/traits?associated=maybe", version: "1.39", status: 400},
		call{method: "GET", path: "/traits?x=y", version: "1.39", status: 400},
		call{method: "DELETE", path: "/traits/CUSTOM_NEW", version: "1.39", status: 409},
		call{method: "DELETE", path: "/traits/HW_CPU_X86_AVX", version: "1.39", status: 400},
		call{method: "DELETE", path: node + "/traits", version: "1.39", status: 204},
		call{method: "DELETE", path: "/traits/CUSTOM_NEW", version: "1.39", status: 204},
		call{method: "GET", path: "/traits/CUSTOM_NEW", version: "1.39", status: 404},
	)
}

func TestResourceClasses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	calls(t, h,
		call{method: "POST", path: "/resource_classes", version: "1.2", body: `{"name":"CUSTOM_A"}`, status: 201},
		call{method: "POST", path: "/resource_classes", version: "1.2", body: `{"name":"CUSTOM_A"}`, status: 409},
		call{method: "PUT", path: "/resource_classes/CUSTOM_B", version: "1.6",
			body: `{"name":"CUSTOM_C"}`, status: 404},
		call{method: "PUT", path: "/resource_classes/VCPU", version: "1.6", body: `{"name":"CUSTOM_C"}`, status: 400},
		call{method: "PUT", path: "/resource_classes/CUSTOM_A", version: "1.6",
			body: `{"name":"CUSTOM_B"}`, status: 200},
		call{method: "PUT", path: "/resource_classes/CUSTOM_C", version: "1.7", status: 201},
		call{method: "PUT", path: "/resource_classes/CUSTOM_C", version: "1.7", body: `nonsense`, status: 204},
		call{method: "PUT", path: "/resource_classes/CUSTOM_B", version: "1.6",
			body: `{"name":"CUSTOM_C"}`, status: 409},
		call{method: "PUT", path: "/resource_classes/CUSTOM_c", version: "1.7", status: 400},
		call{method: "DELETE", path: "/resource_classes/VCPU", version: "1.7", status: 400},
		call{method: "DELETE", path: "/resource_classes/CUSTOM_C", version: "1.7", status: 204},
		call{method: "DELETE", path: "/resource_classes/CUSTOM_C", version: "1.7", status: 404},
	)
	list := decoded[struct {
		Classes []wire.ResourceClass `json:"resource_classes"`
	}](t,
		call{method: "GET", path: "/resource_classes", version: "1.39", status: 200}.do(t, h)).Classes
	if list[0].Name != "VCPU" || list[len(list)-1].Name != "CUSTOM_B" {
		t.Errorf("the classes go from %s to %s", list[0].Name, list[len(list)-1].Name)
	}
}

// TestForbiddenAggregatesOfProviders is the figure of "Support filtering by forbidden aggregate
// membership", for GET /resource_providers: each provider counts by itself, and the aggregates of a
// root do not span its tree.
func TestForbiddenAggregatesOfProviders(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	const agg3 = "aaaaaaaa-0000-4000-8000-000000000003"
	uuids := map[string]string{}
	for n, p := range []struct{ name, parent, aggregate string }{
		{"cn1", "", agg1}, {"numa1_1", "cn1", agg3}, {"numa1_2", "cn1", ""},
		{"cn2", "", agg2}, {"numa2_1", "cn2", ""}, {"numa2_2", "cn2", ""},
		{"ss1", "", agg2}, {"ss2", "", agg3},
	} {
		uuids[p.name] = fmt.Sprintf("00000000-0000-4000-8000-%012d", n)
		body := object{"name": p.name, "uuid": uuids[p.name]}
		if p.parent != "" {
			body["parent_provider_uuid"] = uuids[p.parent]
		}
		calls(t, h, call{method: "POST", path: "/resource_providers", version: "1.39",
			body: text(t, body), status: 200})
		if p.aggregate != "" {
			calls(t, h, call{method: "PUT", path: "/resource_providers/" + uuids[p.name] + "/aggregates",
				version: "1.1", body: `["` + p.aggregate + `"]`, status: 200})
		}
	}
	for query, want := range map[string]string{
		"member_of=!" + agg1:                                        "cn2 numa1_1 numa1_2 numa2_1 numa2_2 ss1 ss2",
		"member_of=!" + agg2:                                        "cn1 numa1_1 numa1_2 numa2_1 numa2_2 ss2",
		"member_of=!" + agg3:                                        "cn1 cn2 numa1_2 numa2_1 numa2_2 ss1",
		"member_of=!in:" + agg1 + "," + agg2:                        "numa1_1 numa1_2 numa2_1 numa2_2 ss2",
		"member_of=!" + agg1 + "&member_of=!" + agg2:                "numa1_1 numa1_2 numa2_1 numa2_2 ss2",
		"member_of=in:" + agg1 + "," + agg2:                         "cn1 cn2 ss1",
		"member_of=in:" + agg1 + "," + agg2 + "&member_of=!" + agg2: "cn1",
		"member_of=" + agg1 + "&member_of=!" + agg1:                 "",
	} {
		got := decoded[wire.ResourceProviders](t,
			call{method: "GET", path: "/resource_providers?" + query, version: "1.32", status: 200}.do(t, h))
		var names []string
		for _, p := range got.ResourceProviders {
			names = append(names, p.Name)
		}
		slices.Sort(names)
		if strings.Join(names, " ") != want {
			t.Errorf("%s: %v, want %s", query, names, want)
		}
	}
	for _, query := range []string{"member_of=in:" + agg1 + ",!" + agg2, "member_of=!!" + agg1, "member_of=!in:!" +
		agg1, "member_of=!", "member_of=!in:"} {
		calls(t, h, call{method: "GET", path: "/resource_providers?" + query, version: "1.32", status: 400})
	}
}
