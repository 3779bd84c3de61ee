// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"cmp"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// outOfRange are columns of inventories with values that the API refuses and that Placement's schema allows: an adopted
// database can have them. Each is that of one host with 8 VCPU; the last hosts are as they should be.
var outOfRange = []string{
	"step_size = 0", "step_size = -2", "step_size = -9223372036854775808",
	"min_unit = 0", "min_unit = -5", "max_unit = 0", "max_unit = -1",
	"total = 0", "total = -8", "reserved = 100", "reserved = -8",
	"allocation_ratio = 0", "allocation_ratio = -1", "allocation_ratio = -9e37", "allocation_ratio = 9e37",
	"step_size = 1", "step_size = 2",
}

func oddHost(n int) string { return fmt.Sprintf("55555555-5555-4555-8555-%012d", n) }

// TestInventoryRowsOutOfRange: rows that no API accepts give the same answers as OpenStack's on the same database, but for
// a step_size of 0: there OpenStack's fails with 500 at the claim that its candidates do not offer, and ours answers 409.
func TestInventoryRowsOutOfRange(t *testing.T) {
	needUpstream(t)
	file := filepath.Join(t.TempDir(), "placement.db")
	var calls []upstreamCall
	for i := range outOfRange {
		calls = append(calls,
			upstreamCall{"POST", "/resource_providers", fmt.Sprintf(`{"uuid":%q,"name":"host%d"}`, oddHost(i), i), "1.39"},
			upstreamCall{"PUT", "/resource_providers/" + oddHost(i) + "/inventories", `{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8}}}`, "1.39"})
	}
	for i, r := range upstream(t, file, calls) {
		if r.Status >= 300 {
			t.Fatalf("%v: %+v", calls[i], r)
		}
	}
	for i, column := range outOfRange {
		execute(t, file, fmt.Sprintf("UPDATE inventories SET %s WHERE resource_provider_id = (SELECT id FROM resource_providers WHERE uuid = '%s')", column, oddHost(i)))
	}
	calls = nil
	for amount := 1; amount <= 9; amount += 2 {
		for _, path := range []string{"/resource_providers?resources=VCPU:%d", "/allocation_candidates?resources=VCPU:%d", "/allocation_candidates?resources_A=VCPU:%d"} {
			calls = append(calls, upstreamCall{"GET", fmt.Sprintf(path, amount), "", "1.39"}, upstreamCall{"GET", fmt.Sprintf(path, amount+1), "", "1.39"})
		}
	}
	for i := range outOfRange {
		for amount := 1; amount <= 2; amount++ {
			claim := fmt.Sprintf(`{"allocations":{%q:{"resources":{"VCPU":%d}}},"project_id":"p","user_id":"u","consumer_generation":null,"consumer_type":"INSTANCE"}`, oddHost(i), amount)
			calls = append(calls, upstreamCall{"PUT", "/allocations/" + guest(10*i+amount), claim, "1.39"})
		}
		calls = append(calls, upstreamCall{"GET", "/resource_providers/" + oddHost(i) + "/usages", "", "1.39"},
			upstreamCall{"GET", "/resource_providers/" + oddHost(i) + "/inventories", "", "1.39"})
	}
	calls = append(calls, upstreamCall{"GET", "/usages?project_id=p", "", "1.39"}, upstreamCall{"GET", "/allocation_candidates?resources=VCPU:1", "", "1.39"})

	theirs, mine := upstream(t, copyFile(t, file), calls), ours(t, file, calls)
	failed := 0
	for i, c := range calls {
		sortLists(theirs[i].Body)
		sortLists(mine[i].Body)
		want := theirs[i]
		if want.Status == http.StatusInternalServerError {
			failed++
			want = reply{Status: http.StatusConflict, Code: "placement.undefined_code"}
		}
		if diff := gocmp.Diff(want, mine[i]); diff != "" {
			t.Errorf("%s %s %s: Placement -, ours +\n%s", c.method, c.path, c.body, diff)
		}
	}
	if failed != 2 {
		t.Errorf("OpenStack's answered 500 to %d requests, want to the 2 claims with a step_size of 0", failed)
	}
	for _, r := range ours(t, file, []upstreamCall{
		{"GET", "/allocation_candidates/explain?resources=VCPU:1&in_tree=" + oddHost(0), "", "1.39"},
		{"GET", "/allocation_candidates/explain?resources=VCPU:1", "", "1.39"},
	}) {
		if r.Status != http.StatusOK {
			t.Errorf("explain: %+v", r)
		}
	}
}

// sortLists sorts the lists of an answer. Their order has no meaning.
func sortLists(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, each := range v {
			sortLists(each)
		}
	case []any:
		for _, each := range v {
			sortLists(each)
		}
		slices.SortFunc(v, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}
