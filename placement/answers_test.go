// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// detailOf is the text of an error's answer, "" when it is no error.
func detailOf(a answer) string {
	object, _ := a.body.(map[string]any)
	list, _ := object["errors"].([]any)
	if len(list) == 0 {
		return ""
	}
	e, _ := list[0].(map[string]any)
	detail, _ := e["detail"].(string)
	return detail
}

// TestRealConsumerGenerationConflictNamesGenerations: the 409 has the words of OpenStack's, which
// clients search for.
func TestRealConsumerGenerationConflictNamesGenerations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.NeedPlacement(t)
	withGeneration := func(generation string) string {
		return `{"allocations":{"` + theHost +
			`":{"resources":{"VCPU":1}}},"project_id":"p","user_id":"u","consumer_type":"INSTANCE",` +
			`"consumer_generation":` + generation + `}`
	}
	calls := []upstreamCall{
		{"POST", "/resource_providers", `{"uuid":"` + theHost + `","name":"host"}`, "1.39"},
		{"PUT", "/resource_providers/" + theHost + "/inventories",
			`{"resource_provider_generation":0,"inventories":{"VCPU":{"total":64}}}`, "1.39"},
		{"PUT", "/allocations/" + guest(1), withGeneration("null"), "1.39"},
	}
	made := len(calls)
	for _, of := range [][2]string{{guest(1), "null"}, {guest(1), "0"}, {guest(1), "7"}, {guest(1), "-1"},
		{guest(2), "0"}, {guest(2), "-1"}, {guest(2), "12"}} {
		calls = append(calls, upstreamCall{"PUT", "/allocations/" + of[0], withGeneration(of[1]), "1.39"},
			upstreamCall{"POST", "/allocations", `{"` + of[0] + `":` + withGeneration(of[1]) + `}`, "1.39"},
			upstreamCall{"POST", "/reshaper", `{"inventories":{"` + theHost +
				`":{"resource_provider_generation":2,"inventories":{"VCPU":{"total":64}}}},"allocations":{"` + of[0] +
				`":` + withGeneration(of[1]) + `}}`, "1.39"})
	}
	dir := t.TempDir()
	theirs, mine := upstreamAnswers(t, filepath.Join(dir, "theirs.db"), calls),
		ourAnswers(t, filepath.Join(dir, "ours.db"), calls)
	phrase := regexp.MustCompile(`consumer generation conflict - expected \S+ but got [^ .,]+`)
	for i := made; i < len(calls); i++ {
		want, got := phrase.FindString(detailOf(theirs[i])), phrase.FindString(detailOf(mine[i]))
		if want == "" || got != want || mine[i].status != 409 {
			t.Errorf("%s %s %s: status %d and %q, Placement has %q", calls[i].method, calls[i].path, calls[i].body,
				mine[i].status, detailOf(mine[i]), detailOf(theirs[i]))
		}
	}
}

// orderedTraits are requests that give a host traits, and those that show them.
func orderedTraits() (rp string, setUp, look []upstreamCall) {
	rp = "/resource_providers/" + theHost
	setUp = []upstreamCall{
		{"POST", "/resource_providers", `{"uuid":"` + theHost + `","name":"host"}`, "1.39"},
		{"PUT", rp + "/inventories", `{"resource_provider_generation":0,"inventories":{"VCPU":{"total":64}}}`, "1.39"},
		{"PUT", "/traits/CUSTOM_Z", "", "1.39"}, {"PUT", "/traits/CUSTOM_B", "", "1.39"},
		{"PUT", "/traits/CUSTOM_A", "", "1.39"},
		{"PUT", "/traits/CUSTOM_UNUSED", "", "1.39"},
		{"PUT", rp + "/traits",
			`{"resource_provider_generation":1,"traits":["HW_CPU_X86_AVX","CUSTOM_A","CUSTOM_B","CUSTOM_Z",` +
				`"COMPUTE_NODE","STORAGE_DISK_SSD"]}`, "1.39"},
	}
	look = []upstreamCall{
		{"GET", "/allocation_candidates?resources=VCPU:1", "", "1.39"},
		{"GET", "/allocation_candidates?resources=VCPU:1", "", "1.17"},
		{"GET", rp + "/traits", "", "1.39"},
		{"GET", "/traits", "", "1.39"},
		{"GET", "/traits?name=startswith:CUSTOM_", "", "1.39"},
		{"GET", "/traits?associated=true", "", "1.39"},
	}
	return rp, setUp, look
}

// TestRealTraitsComeInOrderOfIDs: in all answers with traits, on a database whose standard traits
// OpenStack's numbered.
func TestRealTraitsComeInOrderOfIDs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.NeedPlacement(t)
	file := filepath.Join(t.TempDir(), "placement.db")
	_, setUp, look := orderedTraits()
	expectAll(t, setUp, upstream(t, file, setUp))
	theirs, mine := upstream(t, file, look), ours(t, file, look)
	// Ours adds the standard traits of later releases of os-traits; they have the largest IDs.
	all := mine[3].Body.(map[string]any)
	all["traits"] = all["traits"].([]any)[:len(theirs[3].Body.(map[string]any)["traits"].([]any))]
	testproc.Samef(t, cmp.Diff(theirs, mine), "on a database of OpenStack's: Placement -, ours +")
}

// TestTraitsComeInOrderOfIDs: what this Placement numbers itself, before and after it has read the
// rows again.
func TestTraitsComeInOrderOfIDs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	own := filepath.Join(t.TempDir(), "own.db")
	rp, setUp, look := orderedTraits()
	change := upstreamCall{"PUT", rp + "/traits",
		`{"resource_provider_generation":1,"traits":["CUSTOM_A","HW_CPU_X86_AVX","CUSTOM_B","CUSTOM_Z"]}`, "1.39"}
	want := []any{"HW_CPU_X86_AVX", "CUSTOM_Z", "CUSTOM_B", "CUSTOM_A"}
	for name, replies := range map[string][]reply{
		"as written": ours(t, own, append(append(setUp[:len(setUp)-1:len(setUp)-1], change), look...))[len(setUp):],
		"as loaded":  ours(t, own, look),
	} {
		summary := replies[0].Body.(map[string]any)["provider_summaries"].(map[string]any)[theHost].(map[string]any)
		testproc.Samef(t, cmp.Diff(want, summary["traits"]), "%s, in summaries", name)
		testproc.Samef(t, cmp.Diff(want, replies[2].Body.(map[string]any)["traits"]), "%s, of the provider", name)
		if diff := cmp.Diff([]any{"CUSTOM_Z", "CUSTOM_B", "CUSTOM_A", "CUSTOM_UNUSED"},
			replies[4].Body.(map[string]any)["traits"]); diff != "" {
			t.Errorf("%s, of all: %s", name, diff)
		}
	}
}
