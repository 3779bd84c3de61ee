// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestExplain: the call explains what the same query finds, at any microversion that has it.
func TestExplain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := newAPI(t)
	host(t, a)
	for _, version := range []string{"1.10", "1.39"} {
		w := call{method: http.MethodGet, path: "/allocation_candidates/explain?resources=VCPU:9", version: version,
			status: http.StatusOK}.do(t, a)
		want := candidates.Explanation{
			Verdict: "No candidates. Nothing serves the unsuffixed group (VCPU:9): of 1 provider that meets all " +
				"before, none has 9 VCPU free (the largest free amount of the others is 8).",
			Groups: []candidates.GroupExplanation{{Resources: map[string]int64{"VCPU": 9},
				Steps: []candidates.ProviderStep{
					{Kind: candidates.StepInventory, Condition: "has an inventory of VCPU",
						Removed: 1, Providers: 1, Trees: 1},
					{Kind: candidates.StepUnits, Condition: "gives 9 VCPU in one piece", Providers: 1, Trees: 1},
					{Kind: candidates.StepFree, Condition: "has 9 VCPU free", Removed: 1,
						Note: "the largest free amount of the others is 8"},
				}}},
			Trees: []candidates.TreeStep{
				{Kind: candidates.StepAll, Condition: "all trees", Trees: 1},
				{Kind: candidates.StepGroup, Condition: "the unsuffixed group (VCPU:9) has a provider", Removed: 1},
			},
		}
		testproc.Samef(t, cmp.Diff(want, decoded[candidates.Explanation](t, w)), "at %s", version)
	}
	calls(t, a,
		call{method: http.MethodPut, path: "/resource_providers/" + rp2 + "/traits", version: "1.39",
			body: `{"resource_provider_generation":0,"traits":["HW_NUMA_ROOT"]}`, status: http.StatusOK},
		call{method: http.MethodPut, path: "/resource_providers/" + rp2 + "/inventories", version: "1.39",
			body: `{"resource_provider_generation":1,"inventories":{"VCPU":{"total":2}}}`, status: http.StatusOK})
	w := call{method: http.MethodGet, path: "/allocation_candidates/explain?resources=VCPU:9", version: "1.39",
		status: http.StatusOK}.do(t, a)
	if got := decoded[candidates.Explanation](t, w).Hosts; len(got) != 1 || len(got[0].Cells) != 1 {
		t.Errorf("of a host with a cell: %+v", got)
	}
	w = call{method: http.MethodGet, path: "/allocation_candidates/explain?resources=VCPU:1&required=CUSTOM_NOWHERE",
		version: "1.39", status: http.StatusOK}.do(t, a)
	if got := decoded[candidates.Explanation](t, w).
		Verdict; !strings.HasPrefix(got, "There is no trait CUSTOM_NOWHERE") {
		t.Errorf("of a trait that does not exist: %s", got)
	}
	// Each class is explained with each of the traits.
	var classes, traits []string
	for i := range 1000 {
		classes, traits = append(classes, fmt.Sprintf("C%d:1", i)), append(traits, fmt.Sprintf("!T%d", i))
	}
	long := "/allocation_candidates/explain?resources=" +
		strings.Join(classes, ",") + "&required=" + strings.Join(traits, ",")
	calls(t, a,
		call{method: http.MethodGet, path: long, version: "1.39", status: http.StatusBadRequest},
		call{method: http.MethodGet, path: "/allocation_candidates/explain?resources=VCPU:1", version: "1.9",
			status: http.StatusNotFound},
		call{method: http.MethodGet, path: "/allocation_candidates/explain", version: "1.39",
			status: http.StatusBadRequest, code: wire.CodeMissingQueryValue},
		call{method: http.MethodGet, path: "/allocation_candidates/explain?resources=VCPU:1&root_member_of=" + agg1,
			version: "1.39", status: http.StatusBadRequest},
		call{method: http.MethodGet, path: "/allocation_candidates/explain?resources=VCPU:1&root_member_of=" + agg1,
			version: "1.39",
			headers: []string{"Placement-Extensions: root_member_of"}, status: http.StatusOK},
		call{method: http.MethodGet, path: "/allocation_candidates/explain?resources=VCPU:1", version: "1.39",
			headers: []string{"X-Auth-Token: u:p"}, status: http.StatusForbidden},
	)
}

// TestExplainNamesWhatIsMissing: a request that is refused or finds nothing for the way it is
// written is explained as that.
func TestExplainNamesWhatIsMissing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a, granting := newAPI(t), newAPI(t, func(c *api.Config) { c.Options.Extensions = []string{"group_policy"} })
	host(t, a)
	host(t, granting)
	const twoGroups = "?resources_A=VCPU:1&resources_B=VCPU:1"
	resourceless := []string{"Placement-Extensions: resourceless"}
	const setting = `[placement] extensions = ["group_policy"]`
	for name, c := range map[string]struct {
		h            *api.API
		query, wants string
		headers      []string
	}{
		"two groups": {a, twoGroups, setting, nil},
		"two groups, and extensions": {a, twoGroups,
			setting, []string{"Placement-Extensions: root_member_of, group_policy, isolate"}},
		"a group that only forbids": {a, "?resources=VCPU:1&required_X=!HW_CPU_X86_AVX&same_subtree=_X",
			"only forbids", nil},
		"a group with only a tree": {a, "?resources=VCPU:1&in_tree_X=" +
			rp1 + "&same_subtree=_X", "only has in_tree", nil},
		"a group that only forbids, and extensions": {a, "?resources=VCPU:1&required_X=!HW_CPU_X86_AVX&same_subtree=_X",
			`get no candidates. Set [placement] extensions = ["resourceless"] in the configuration of the server ` +
				`for them. With the extension: 2 candidates `, resourceless},
		"a tree that does not count, and extensions": {a, "?resources=VCPU:1&required_X=!HW_CPU_X86_AVX&member_of_X=" +
			agg1 + "&in_tree_X=" + rp1 + "&same_subtree=_X",
			"Group _X has no resources, and an in_tree", resourceless},
		"conditions, and extensions": {a, "?resources_A=VCPU:1&required=!HW_CPU_X86_AVX", "get 400", resourceless},
	} {
		w := call{method: http.MethodGet, path: "/allocation_candidates/explain" + c.query, version: "1.39",
			headers: c.headers, status: http.StatusOK}.do(t, c.h)
		testproc.Contains(t, decoded[candidates.Explanation](t, w).Verdict, c.wants, "%s: %s", name)
	}
	for query, h := range map[string]*api.API{twoGroups: granting, twoGroups + "&group_policy=none": a} {
		w := call{method: http.MethodGet, path: "/allocation_candidates/explain" + query, version: "1.39",
			status: http.StatusOK}.do(t, h)
		if got := decoded[candidates.Explanation](t, w).Verdict; strings.Contains(got, setting) {
			t.Errorf("%s: %s", query, got)
		}
	}
	// The extensions of the operator are for all clients that know suffixed groups, and the answer
	// lists them.
	for _, version := range []string{"1.25", "1.36", "1.39"} {
		path := "/allocation_candidates?resources1=VCPU:1&resources2=VCPU:1"
		if got := (call{method: http.MethodGet, path: path, version: version, status: http.StatusOK}).do(t, granting).
			Header().Get("Placement-Extensions"); got != "group_policy" {
			t.Errorf("at %s the answer has the extensions %q", version, got)
		}
		if got := (call{method: http.MethodGet, path: path, version: version, status: http.StatusBadRequest}).do(t, a).
			Header().Get("Placement-Extensions"); got != "" {
			t.Errorf("at %s the answer of a server without extensions has %q", version, got)
		}
	}
	call{method: http.MethodGet, path: "/allocation_candidates?resources=VCPU:1&root_member_of=" + agg1,
		version: "1.39", status: http.StatusBadRequest}.do(t, granting)
}
