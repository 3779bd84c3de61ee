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

	"github.com/compute-agent/compute-agent/test/testproc"
)

// outOfRange are columns of inventories with values that the API refuses and that Placement's
// schema allows: an adopted database can have them. Each is that of one host with 8 VCPU; the last
// hosts are as they should be.
var outOfRange = []string{
	"step_size = 0", "step_size = -2", "step_size = -9223372036854775808",
	"min_unit = 0", "min_unit = -5", "max_unit = 0", "max_unit = -1",
	"total = 0", "total = -8", "reserved = 100", "reserved = -8",
	"allocation_ratio = 0", "allocation_ratio = -1", "allocation_ratio = -9e37", "allocation_ratio = 9e37",
	"step_size = 1", "step_size = 2",
}

func oddHost(n int) string { return fmt.Sprintf("55555555-5555-4555-8555-%012d", n) }

// TestRealInventoryRowsOutOfRange: rows that no API accepts give the same answers as OpenStack's on
// the same database, but for a step_size of 0: there OpenStack's fails with 500 at the claim that
// its candidates do not offer, and ours answers 409.
func TestRealInventoryRowsOutOfRange(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.NeedPlacement(t)
	file := filepath.Join(t.TempDir(), "placement.db")
	var calls []upstreamCall
	for i := range outOfRange {
		calls = append(calls,
			upstreamCall{"POST", "/resource_providers", fmt.Sprintf(`{"uuid":%q,"name":"host%d"}`, oddHost(i), i),
				"1.39"},
			upstreamCall{"PUT", "/resource_providers/" + oddHost(i) + "/inventories",
				`{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8}}}`, "1.39"})
	}
	for i, r := range upstream(t, file, calls) {
		if r.Status >= 300 {
			t.Fatalf("%v is answered with %+v, want a success", calls[i], r)
		}
	}
	for i, column := range outOfRange {
		execute(t, file,
			fmt.Sprintf(
				"UPDATE inventories SET %s WHERE resource_provider_id = (SELECT id FROM resource_providers WHERE "+
					"uuid = '%s')", column, oddHost(i)))
	}
	calls = nil
	for amount := 1; amount <= 9; amount += 2 {
		for _, path := range []string{"/resource_providers?resources=VCPU:%d",
			"/allocation_candidates?resources=VCPU:%d", "/allocation_candidates?resources_A=VCPU:%d"} {
			calls = append(calls, upstreamCall{"GET", fmt.Sprintf(path, amount), "", "1.39"},
				upstreamCall{"GET", fmt.Sprintf(path, amount+1), "", "1.39"})
		}
	}
	for i := range outOfRange {
		for amount := 1; amount <= 2; amount++ {
			claim := fmt.Sprintf(
				`{"allocations":{%q:{"resources":{"VCPU":%d}}},"project_id":"p","user_id":"u",`+
					`"consumer_generation":null,"consumer_type":"INSTANCE"}`, oddHost(i), amount)
			calls = append(calls, upstreamCall{"PUT", "/allocations/" + guest(10*i+amount), claim, "1.39"})
		}
		calls = append(calls, upstreamCall{"GET", "/resource_providers/" + oddHost(i) + "/usages", "", "1.39"},
			upstreamCall{"GET", "/resource_providers/" + oddHost(i) + "/inventories", "", "1.39"})
	}
	calls = append(calls, upstreamCall{"GET", "/usages?project_id=p", "", "1.39"},
		upstreamCall{"GET", "/allocation_candidates?resources=VCPU:1", "", "1.39"})

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
		testproc.Samef(t, gocmp.Diff(want, mine[i]), "%s %s %s: Placement -, ours +", c.method, c.path, c.body)
	}
	testproc.Equal(t, failed, 2, "OpenStack's answered 500 to %d requests")
	for _, r := range ours(t, file, []upstreamCall{
		{"GET", "/allocation_candidates/explain?resources=VCPU:1&in_tree=" + oddHost(0), "", "1.39"},
		{"GET", "/allocation_candidates/explain?resources=VCPU:1", "", "1.39"},
	}) {
		if r.Status != http.StatusOK {
			t.Errorf("explain: %+v", r)
		}
	}
}

// TestInventoryRowsOutOfRangeAgree: what fits such a row is the same wherever it is asked, and
// nowhere an error.
func TestInventoryRowsOutOfRangeAgree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	file := filepath.Join(t.TempDir(), "placement.db")
	var calls []upstreamCall
	add := func(method, version, body, path string, args ...any) {
		calls = append(calls, upstreamCall{method, fmt.Sprintf(path, args...), body, version})
	}
	for i := range outOfRange {
		add("POST", "1.39", fmt.Sprintf(`{"uuid":%q,"name":"host%d"}`, oddHost(i), i), "/resource_providers")
		add("PUT", "1.39", `{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8}}}`,
			"/resource_providers/%s/inventories", oddHost(i))
	}
	for i, r := range ours(t, file, calls) {
		if r.Status >= 300 {
			t.Fatalf("%v is answered with %+v, want a success", calls[i], r)
		}
	}
	fits := map[string]func(amount int) bool{ // those of outOfRange of which anything fits
		"step_size = -2":          func(n int) bool { return n%2 == 0 && n <= 8 },
		"step_size = 2":           func(n int) bool { return n%2 == 0 && n <= 8 },
		"allocation_ratio = 9e37": func(int) bool { return true },
	}
	for _, column := range []string{"min_unit = 0", "min_unit = -5", "step_size = 1"} {
		fits[column] = func(n int) bool { return n <= 8 }
	}
	fits["reserved = -8"] = func(n int) bool { return n <= 16 }
	for i, column := range outOfRange {
		execute(t, file,
			fmt.Sprintf(
				"UPDATE inventories SET %s WHERE resource_provider_id = (SELECT id FROM resource_providers WHERE "+
					"uuid = '%s')", column, oddHost(i)))
	}
	calls = nil
	const most, paths = 9, 6
	for i := range outOfRange {
		for amount := 1; amount <= most; amount++ {
			held := fmt.Sprintf(`{"allocations":{%q:{"resources":{"VCPU":%d}}},"project_id":"p","user_id":"u"}`,
				oddHost(i), amount)
			add("GET", "1.39", "", "/resource_providers?uuid=%s&resources=VCPU:%d", oddHost(i), amount)
			add("GET", "1.39", "", "/allocation_candidates?in_tree=%s&resources=VCPU:%d", oddHost(i), amount)
			add("GET", "1.39", "", "/allocation_candidates?in_tree_A=%s&resources_A=VCPU:%d", oddHost(i), amount)
			add("GET", "1.39", "", "/allocation_candidates/explain?in_tree=%s&resources=VCPU:%d", oddHost(i), amount)
			add("PUT", "1.12", held, "/allocations/%s", guest(1))
			add("POST", "1.13", fmt.Sprintf(`{%q:%s}`, guest(1), held), "/allocations")
			add("DELETE", "1.39", "", "/allocations/%s", guest(1)) // 404 where nothing was allocated
		}
	}
	count := func(r reply, list string) int {
		body, _ := r.Body.(map[string]any)
		switch is := body[list].(type) {
		case []any:
			return len(is)
		case float64:
			return int(is)
		}
		return -1
	}
	replies := ours(t, file, calls)
	for i, column := range outOfRange {
		for amount := 1; amount <= most; amount++ {
			r := replies[(i*most+amount-1)*(paths+1):]
			found, status := 0, http.StatusConflict
			if f := fits[column]; f != nil && f(amount) {
				found, status = 1, http.StatusNoContent
			}
			got := []int{count(r[0], "resource_providers"), count(r[1], "allocation_requests"),
				count(r[2], "allocation_requests"), count(r[3], "candidates"), r[4].Status, r[5].Status}
			if want := []int{found, found, found, found, status, status}; !slices.Equal(got, want) {
				t.Errorf(
					"%d VCPU where %s: providers, candidates, candidates of a group, explained, PUT, POST are "+
						"%v, want %v", amount, column, got, want)
			}
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
