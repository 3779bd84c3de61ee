// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// usedHost is host where rp1 has a trait, and an instance holds 2 VCPU of it.
func usedHost(t testing.TB, h http.Handler) {
	t.Helper()
	host(t, h)
	calls(t, h,
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/traits", version: "1.39",
			body: `{"resource_provider_generation":1,"traits":["HW_CPU_X86_AVX"]}`, status: 200},
		call{method: "PUT", path: "/allocations/" + inst1,
			version: "1.39", body: instance(rp1, "null", 2), status: 204},
	)
}

// TestCandidatesBody is the whole answer of one request, byte for byte, where a microversion
// changed it.
func TestCandidatesBody(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	usedHost(t, h)
	const (
		list = `{"allocation_requests":[{"allocations":[{"resource_provider":{"uuid":"` + rp1 +
			`"},"resources":{"VCPU":1}}]}],`
		byUUID = `{"allocation_requests":[{"allocations":{"` + rp1 + `":{"resources":{"VCPU":1}}}}],`
		mapped = `{"allocation_requests":[{"allocations":{"` + rp1 +
			`":{"resources":{"VCPU":1}}},"mappings":{"":["` + rp1 + `"]}}],`
		vcpuOnly = `"provider_summaries":{"` + rp1 + `":{"resources":{"VCPU":{"capacity":8,"used":2}}`
		both     = `"provider_summaries":{"` + rp1 +
			`":{"resources":{"VCPU":{"capacity":8,"used":2},"MEMORY_MB":{"capacity":1024,"used":0}}`
		traits = `,"traits":["HW_CPU_X86_AVX"]`
		tree   = `,"parent_provider_uuid":null,"root_provider_uuid":"` + rp1 + `"},` +
			`"` + rp2 + `":{"resources":{},"traits":[],"parent_provider_uuid":"` + rp1 +
			`","root_provider_uuid":"` + rp1 + `"}}}`
	)
	for _, c := range []struct {
		from, to wire.Version
		want     string
	}{
		{10, 11, list + vcpuOnly + `}}}`},
		{12, 16, byUUID + vcpuOnly + `}}}`},
		{17, 26, byUUID + vcpuOnly + traits + `}}}`},
		{27, 28, byUUID + both + traits + `}}}`},
		{29, 33, byUUID + both + traits + tree},
		{34, wire.MaxVersion, mapped + both + traits + tree},
	} {
		for v := c.from; v <= c.to; v++ {
			for range 2 { // Made, and made of what was kept.
				w := call{method: "GET", path: "/allocation_candidates?resources=VCPU:1",
					version: v.String(), status: 200}.do(t, h)
				testproc.Samef(t, cmp.Diff(c.want, w.Body.String()), "at %s", v)
				checkCommonHeaders(t, w, v, "candidates at "+v.String())
				if got, want := w.Header().Get("Last-Modified"),
					clock.Format(http.TimeFormat); v.Has(wire.CacheHeaders) && got != want {
					t.Errorf("at %s: Last-Modified is %q, want %q", v, got, want)
				}
			}
		}
	}
	for v, want := range map[string]string{
		"1.10":                   `{"allocation_requests":[],"provider_summaries":{}}`,
		wire.MaxVersion.String(): `{"allocation_requests":[],"provider_summaries":{}}`,
	} {
		w := call{method: "GET", path: "/allocation_candidates?resources=VCPU:7", version: v, status: 200}.do(t, h)
		if w.Body.String() != want {
			t.Errorf("no candidates at %s: %s", v, w.Body)
		}
	}
}

// TestCandidatesBodyOfGroups is an answer with several providers and groups, one of them without
// resources: allocations of a provider are together, and each group is mapped.
func TestCandidatesBodyOfGroups(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h,
		call{method: "PUT", path: "/resource_providers/" + rp2 + "/inventories", version: "1.39",
			body: `{"resource_provider_generation":0,"inventories":{"VGPU":{"total":2,"reserved":1,` +
				`"allocation_ratio":2.5}}}`, status: 200},
		call{method: "PUT", path: "/resource_providers/" + rp1 + "/traits", version: "1.39",
			body: `{"resource_provider_generation":1,"traits":["HW_NUMA_ROOT"]}`, status: 200},
	)
	w := call{method: "GET", version: "1.39", status: 200,
		path: "/allocation_candidates?resources=VCPU:1,MEMORY_MB:64&resources_GPU=VGPU:1&required_NUMA=HW_NUMA_ROOT&" +
			"same_subtree=_GPU,_NUMA&group_policy=none"}.do(t, h)
	want := `{"allocation_requests":[{"allocations":{"` + rp1 + `":{"resources":{"VCPU":1,"MEMORY_MB":64}},"` + rp2 +
		`":{"resources":{"VGPU":1}}},` +
		`"mappings":{"":["` + rp1 + `"],"_GPU":["` + rp2 + `"],"_NUMA":["` + rp1 + `"]}}],` +
		`"provider_summaries":{"` + rp1 +
		`":{"resources":{"VCPU":{"capacity":8,"used":0},"MEMORY_MB":{"capacity":1024,"used":0}},` +
		`"traits":["HW_NUMA_ROOT"],` +
		`"parent_provider_uuid":null,"root_provider_uuid":"` + rp1 + `"},` +
		`"` + rp2 + `":{"resources":{"VGPU":{"capacity":2,"used":0}},"traits":[],"parent_provider_uuid":"` + rp1 +
		`","root_provider_uuid":"` + rp1 + `"}}}`
	testproc.Same(t, cmp.Diff(want, w.Body.String()))
	// Before 1.29, what takes of two providers of a tree is no candidate.
	w = call{method: "GET", path: "/allocation_candidates?resources=VCPU:1,VGPU:1",
		version: "1.28", status: 200}.do(t, h)
	if want := `{"allocation_requests":[],"provider_summaries":{}}`; w.Body.String() != want {
		t.Errorf("at 1.28: %s", w.Body)
	}
}

// TestCandidatesShowEachChange shows that what is kept of a tree never outlives a change in it.
func TestCandidatesShowEachChange(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	show := func() string {
		return call{method: "GET", path: "/allocation_candidates?resources=VCPU:1", version: "1.39",
			status: 200}.do(t, h).Body.String()
	}
	for _, c := range []struct {
		change call
		shows  string
	}{
		{call{method: "PUT", path: "/allocations/" + inst1, body: instance(rp1, "null", 3), status: 204},
			`"VCPU":{"capacity":8,"used":3}`},
		{call{method: "DELETE", path: "/allocations/" + inst1, status: 204}, `"VCPU":{"capacity":8,"used":0}`},
		{call{method: "PUT", path: "/resource_providers/" + rp1 + "/inventories/VCPU",
			body: `{"resource_provider_generation":2,"total":16}`, status: 200}, `"VCPU":{"capacity":16,"used":0}`},
		{call{method: "PUT", path: "/resource_providers/" +
			rp2 + "/traits", body: `{"resource_provider_generation":0,"traits":["HW_NUMA_ROOT"]}`, status: 200},
			`"traits":["HW_NUMA_ROOT"]`},
	} {
		before := show()
		c.change.version = "1.39"
		c.change.do(t, h)
		after := show()
		if before == after || !strings.Contains(after, c.shows) {
			t.Errorf("after %s %s the answer is %s, without %s", c.change.method, c.change.path, after, c.shows)
		}
	}
}

func TestCandidatesRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h,
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1", version: "1.9",
			headers: []string{"Accept: text/plain"}, status: 404},
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1", version: "1.10",
			headers: []string{"Accept: text/plain"}, status: 406},
		call{method: "POST", path: "/allocation_candidates?resources=VCPU:1", version: "1.39", status: 405},
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1", version: "1.39",
			headers: []string{"X-Auth-Token: user:project"}, status: 403},
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1", version: "1.39",
			headers: []string{"-X-Auth-Token"}, status: 401},
		call{method: "GET", path: "/allocation_candidates?resources=CUSTOM_COW:1", version: "1.39",
			status: 400, code: wire.CodeUndefined},
		call{method: "GET", path: "/allocation_candidates?resources=:1", version: "1.39",
			status: 400, code: wire.CodeUndefined},
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1&required=CUSTOM_COW", version: "1.39",
			status: 400, code: wire.CodeUndefined},
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1&root_required=!CUSTOM_COW", version: "1.39",
			status: 400, code: wire.CodeUndefined},
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1&root_required=A&root_required=A",
			version: "1.39", status: 400, code: wire.CodeDuplicateQueryKey},
		call{method: "GET", path: "/allocation_candidates",
			version: "1.39", status: 400, code: wire.CodeMissingQueryValue},
		// No such provider.
		call{method: "GET", path: "/allocation_candidates?resources=VCPU:1&in_tree=" + agg1,
			version: "1.39", status: 200},
	)
}

// TestCandidatesExtensions is when the extensions are there, and what the headers of the answer say
// of it.
func TestCandidatesExtensions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h, call{method: "PUT", path: "/resource_providers/" + rp1 + "/aggregates", version: "1.39",
		body: `{"resource_provider_generation":1,"aggregates":["` + agg1 + `"]}`, status: 200})
	const (
		inRoot  = "/allocation_candidates?resources=VCPU:1&root_member_of="
		two     = "/allocation_candidates?resources1=VCPU:1&resources2=MEMORY_MB:64"
		alone   = two + "&isolate=1"
		version = "openstack-api-version"

		condition = "/allocation_candidates?resources1=VCPU:1&required="
		avoiding  = "/allocation_candidates?resources1=VCPU:1&required2=!HW_CPU_X86_AVX&same_subtree=1,2&" +
			"group_policy=none"
	)
	for _, c := range []struct {
		path, version, sends string
		status               int
		granted, vary        string
		candidates           int
	}{
		{inRoot + agg1, "1.39", "root_member_of", 200, "root_member_of", version + ", placement-extensions", 1},
		{inRoot + "!" + agg1, "1.39", "root_member_of", 200, "root_member_of", version + ", placement-extensions", 0},
		{inRoot + agg2, "1.39", "root_member_of", 200, "root_member_of", version + ", placement-extensions", 0},
		{inRoot + "in:" + agg1 + "," + agg2, "1.39", "isolate, cows,Root_Member_Of", 200,
			"root_member_of, isolate", version + ", placement-extensions", 1},
		{inRoot + agg1, "1.39", "isolate", 400, "isolate", version + ", placement-extensions", 0},
		{inRoot + agg1, "1.39", "", 400, "", version, 0},
		{inRoot + agg1, "1.38", "root_member_of", 400, "", version, 0},
		{two, "1.39", "", 400, "", version, 0},
		{two, "1.39", "group_policy", 200, "group_policy", version + ", placement-extensions", 1},
		{two + "&group_policy=isolate", "1.39", "group_policy", 200,
			"group_policy", version + ", placement-extensions", 0},
		{alone, "1.39", "isolate", 200, "isolate", version + ", placement-extensions", 0},
		{"/allocation_candidates?resources=VCPU:1&resources1=MEMORY_MB:64&isolate=1", "1.39", "isolate", 200,
			"isolate", version + ", placement-extensions", 0},
		{alone, "1.39", "group_policy", 400, "group_policy", version + ", placement-extensions", 0},
		{alone + "&group_policy=none", "1.39", "isolate", 400, "isolate", version + ", placement-extensions", 0},
		{condition + "!HW_CPU_X86_AVX", "1.39", "", 400, "", version, 0},
		{condition + "!HW_CPU_X86_AVX", "1.39", "resourceless", 200,
			"resourceless", version + ", placement-extensions", 1},
		{condition + "HW_CPU_X86_AVX", "1.39", "resourceless", 200,
			"resourceless", version + ", placement-extensions", 0},
		{condition + "HW_CPU_X86_AVX", "1.38", "resourceless", 400, "", version, 0},
		{avoiding, "1.39", "", 200, "", version, 0},
		{avoiding, "1.39", "resourceless", 200, "resourceless", version + ", placement-extensions", 2},
		{"/allocation_candidates?resources=VCPU:1", "1.39", "cows", 200, "", version + ", placement-extensions", 1},
	} {
		var headers []string
		if c.sends != "" {
			headers = []string{"Placement-Extensions: " + c.sends}
		}
		w := call{method: "GET", path: c.path, version: c.version, headers: headers, status: c.status}.do(t, h)
		if got := w.Header().Get("Placement-Extensions"); got != c.granted {
			t.Errorf("%s at %s with %q: granted are %q, want %q", c.path, c.version, c.sends, got, c.granted)
		}
		if got := strings.Join(w.Header().Values("Vary"), ", "); got != c.vary {
			t.Errorf("%s at %s with %q: Vary is %q, want %q", c.path, c.version, c.sends, got, c.vary)
		}
		if c.status == 200 {
			if got := len(candidatesOf(t, w.Body.Bytes())); got != c.candidates {
				t.Errorf("%s with %q: %d candidates, want %d", c.path, c.sends, got, c.candidates)
			}
		}
	}
}

// candidatesOf are the providers of each candidate, the first of them first.
func candidatesOf(t testing.TB, body []byte) (roots []string) {
	t.Helper()
	var answer struct {
		Requests []struct {
			Allocations map[string]json.RawMessage `json:"allocations"`
		} `json:"allocation_requests"`
		Summaries map[string]struct {
			Root string `json:"root_provider_uuid"`
		} `json:"provider_summaries"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatalf("decoding candidates: %v: %s", err, body)
	}
	for _, r := range answer.Requests {
		for uuid := range r.Allocations {
			p, ok := answer.Summaries[uuid]
			if !ok {
				t.Errorf("%s is in a candidate and not in the summaries", uuid)
			}
			roots = append(roots, p.Root)
			break
		}
	}
	return roots
}

// counted is an Observer that keeps the searches.
type counted struct{ searches []api.Search }

func (c *counted) Answered(osapi.Answer)   {}
func (c *counted) Searched(s api.Search)   { c.searches = append(c.searches, s) }
func (c *counted) ReadStale(time.Duration) {}

// HostLimited counts nothing.
func (*counted) HostLimited() {}

// TestCandidatesOptions is what the server's options and the client's limit do: three hosts with
// four places each.
func TestCandidatesOptions(t *testing.T) {
	dbservers.AboutNoDatabase(t)
	testproc.Parallel(t, testproc.Light)
	const nodes, places = 3, 4
	forest := func(o api.Options, seen *counted) http.Handler {
		h := newAPI(t, func(c *api.Config) { c.Options, c.Observer = o, seen })
		for i := range nodes {
			root := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
			calls(t, h, call{method: "POST", path: "/resource_providers", version: "1.39",
				body: fmt.Sprintf(`{"name":"n%d","uuid":%q}`, i, root), status: 200})
			for j := range places {
				child := fmt.Sprintf("00000000-0000-4000-8001-%012d", places*i+j)
				calls(t, h,
					call{method: "POST", path: "/resource_providers", version: "1.39",
						body:   fmt.Sprintf(`{"name":"n%d.%d","uuid":%q,"parent_provider_uuid":%q}`, i, j, child, root),
						status: 200},
					call{method: "PUT", path: "/resource_providers/" + child + "/inventories", version: "1.39",
						body: `{"resource_provider_generation":0,"inventories":{"VGPU":{"total":1}}}`, status: 200})
			}
		}
		return h
	}
	for _, c := range []struct {
		what       string
		options    api.Options
		limit      string
		candidates int
		roots      int
	}{
		{"all", api.Options{}, "", 12, 3},
		{"the client's limit", api.Options{}, "&limit=3", 3, 3},
		{"depth first", api.Options{DepthFirst: true}, "&limit=3", 3, 1},
		{"the server's limit", api.Options{MaxCandidates: 2}, "", 2, 2},
		{"the server's limit is smaller", api.Options{MaxCandidates: 2}, "&limit=3", 2, 2},
		{"the client's limit is smaller", api.Options{MaxCandidates: 5}, "&limit=3", 3, 3},
		{"no limit of the server", api.Options{MaxCandidates: -1}, "&limit=99999999999999999999", 12, 3},
	} {
		seen := &counted{}
		h := forest(c.options, seen)
		w := call{method: "GET", path: "/allocation_candidates?resources=VGPU:1" + c.limit,
			version: "1.39", status: 200}.do(t, h)
		list := candidatesOf(t, w.Body.Bytes())
		roots := map[string]bool{}
		for _, root := range list {
			roots[root] = true
		}
		if len(list) != c.candidates || len(roots) != c.roots {
			t.Errorf("%s: %d candidates of %d roots, want %d of %d",
				c.what, len(list), len(roots), c.candidates, c.roots)
		}
		if got := strings.Count(w.Body.String(), "parent_provider_uuid"); got != c.roots*(places+1) {
			t.Errorf("%s: %d summaries for %d trees", c.what, got, c.roots)
		}
		if len(seen.searches) != 1 || seen.searches[0].Candidates != c.candidates {
			t.Errorf("%s: the observer has seen %+v", c.what, seen.searches)
		}
	}
	// Before 1.29, the summaries have the other providers of the same host, since other candidates
	// take of them, and not its root.
	w := call{method: "GET", path: "/allocation_candidates?resources=VGPU:1&limit=1", version: "1.28",
		status: 200}.do(t, forest(api.Options{}, &counted{}))
	flat := decoded[struct {
		Requests  []any          `json:"allocation_requests"`
		Summaries map[string]any `json:"provider_summaries"`
	}](t, w)
	if len(flat.Requests) != 1 || len(flat.Summaries) != places {
		t.Errorf("at 1.28: %d candidates and %d summaries, want 1 and %d: %s",
			len(flat.Requests), len(flat.Summaries), places, w.Body)
	}
	h := forest(api.Options{Randomize: true}, &counted{})
	orders := map[string]bool{}
	for range 64 {
		w := call{method: "GET", path: "/allocation_candidates?resources=VGPU:1&limit=4",
			version: "1.39", status: 200}.do(t, h)
		testproc.Equal(t, len(candidatesOf(t, w.Body.Bytes())), 4, "at random: %d candidates")
		orders[w.Body.String()] = true
	}
	if len(orders) == 1 {
		t.Error("64 answers at random are all the same")
	}
}

// TestCandidatesOfSeveralTrees: the summaries have each tree that gives anything once, whole, and
// no other.
func TestCandidatesOfSeveralTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	const shared, other = "cccccccc-0000-4000-8000-000000000001", "cccccccc-0000-4000-8000-000000000002"
	calls(t, h,
		call{method: "POST", path: "/resource_providers",
			version: "1.39", body: `{"name":"pool","uuid":"` + shared + `"}`, status: 200},
		call{method: "POST", path: "/resource_providers",
			version: "1.39", body: `{"name":"other","uuid":"` + other + `"}`, status: 200},
		call{method: "PUT", path: "/resource_providers/" + shared + "/inventories", version: "1.39",
			body: `{"resource_provider_generation":0,"inventories":{"DISK_GB":{"total":100}}}`, status: 200},
		call{method: "PUT", path: "/resource_providers/" + shared + "/traits", version: "1.39",
			body: `{"resource_provider_generation":1,"traits":["MISC_SHARES_VIA_AGGREGATE"]}`, status: 200},
	)
	for _, uuid := range []string{rp1, shared} {
		call{method: "PUT", path: "/resource_providers/" +
			uuid + "/aggregates", version: "1.18", body: `["` + agg1 + `"]`, status: 200}.do(t, h)
	}
	for _, c := range []struct {
		version string
		told    []string
	}{{"1.28", []string{rp1, shared}}, {"1.39", []string{rp1, rp2, shared}}} {
		w := call{method: "GET", path: "/allocation_candidates?resources=VCPU:1,DISK_GB:1",
			version: c.version, status: 200}.do(t, h)
		got := decoded[struct {
			Requests  []any          `json:"allocation_requests"`
			Summaries map[string]any `json:"provider_summaries"`
		}](t, w)
		for _, uuid := range c.told {
			if strings.Count(w.Body.String(), `"`+uuid+`":{"resources":{"`)+
				strings.Count(w.Body.String(), `"`+uuid+`":{"resources":{}`) == 0 {
				t.Errorf("at %s %s is not told of: %s", c.version, uuid, w.Body)
			}
		}
		if len(got.Requests) != 1 || len(got.Summaries) != len(c.told) {
			t.Errorf("at %s: %s", c.version, w.Body)
		}
	}
}
