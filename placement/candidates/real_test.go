// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	realForests = flag.Int("real.forests", 3, "how many forests TestRealReferenceIsPlacement compares")
	realSeed    = flag.Int("real.seed", 1, "which forests TestRealReferenceIsPlacement compares")
)

// TestRealReferenceIsPlacement: what the exhaustive reference finds is what OpenStack's Placement
// finds, apart from what Placement is known to get wrong; see excused.
func TestRealReferenceIsPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.StartPlacement(t)
	g := ground(t)
	seed := uint64(*realSeed)
	if testproc.Nightly() {
		seed = testproc.Seed(t)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	counts := map[string]int{}
	for range *realForests {
		f := placementtest.Forests().Example(int(random.Int64N(1 << 40)))
		s := plant(t, g, f)
		testproc.Check(t, server.Reset(t.Context()))
		real := &realClient{t: t, url: server.URL}
		real.plant(f)
		for asked := 0; asked < 20; {
			r := placementtest.CandidateRequests(false).Example(int(random.Int64N(1 << 40)))
			// The exceptions depend on the groups, which old versions do not show.
			r.Flat = r.Flat && old(r) && !f.Shares()
			if sumsUp(r) {
				r.GroupPolicy = candidates.None
			}
			want, err := placementtest.AllCandidates(s, r)
			if err == nil && len(want) == 0 && random.IntN(8) > 0 {
				continue
			}
			asked++
			status, got := real.candidates(f, r)
			switch {
			case status == http.StatusInternalServerError && sharingChild(f):
				// It looks for a sharing child among the summaries of trees, and its tree may not
				// be there.
				counts["500 of a sharing child"]++
			case err != nil:
				counts["errors"]++
				if status != http.StatusBadRequest {
					t.Errorf("status %d, want 400 for %v\nforest:\n%srequest: %s", status, err, f, query(r))
				}
			case status != http.StatusOK:
				t.Errorf("status %d\nforest:\n%srequest: %s", status, f, query(r))
			default:
				counts["candidates"] += len(want)
				if r.Flat {
					want = withoutGroups(want)
				}
				missing, excuse := excused(f, r, want, got)
				for _, key := range missing {
					delete(want, key)
				}
				if excuse != "" {
					counts[excuse]++
				}
				if diff := cmp.Diff(want.Keys(), got.Keys()); diff != "" {
					t.Errorf("reference and Placement differ (-reference +Placement):\n%s\nforest:\n%srequest: %s",
						diff, f, query(r))
				}
			}
		}
	}
	t.Log("compared:", counts)
}

// TestRealResourcelessInPlacement: what OpenStack's Placement makes of groups without resources,
// which is what the extension resourceless is for.
func TestRealResourcelessInPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.StartPlacement(t)
	real := &realClient{t: t, url: server.URL}
	f := append(nics(), placementtest.Provider{Name: "other", Traits: []string{nicRoot}})
	f[0].Aggregates = []string{"aggB"}
	for _, name := range []string{nicRoot, net1, net2} {
		real.must(http.MethodPut, "/traits/"+name, nil)
	}
	real.plant(f)
	nic := func(change func(*candidates.Group)) candidates.Request {
		g := asks("_NIC", "", 0)
		change(&g)
		return candidates.Request{Groups: []candidates.Group{requiring(asks("_VIF", vf, 3), net1), g},
			SameSubtree: [][]string{{"_VIF", "_NIC"}}}
	}
	isolated := nic(func(g *candidates.Group) { *g = requiring(*g, net1) })
	isolated.GroupPolicy = candidates.Isolate
	twice := nic(func(g *candidates.Group) { *g = requiring(*g, nicRoot) })
	twice.Groups = append(twice.Groups, requiring(asks("_NIC2", "", 0), nicRoot))
	twice.SameSubtree[0] = append(twice.SameSubtree[0], "_NIC2")
	apart := twice
	apart.GroupPolicy = candidates.Isolate
	whole := candidates.Request{Groups: []candidates.Group{requiring(asks("_VIF", vf, 3), net1),
		requiring(asks("", "", 0), nicRoot)}}
	const served = "pf1_1:SRIOV_NET_VF=3 | _NIC=nic1 _VIF=pf1_1"
	for _, e := range []struct {
		name   string
		r      candidates.Request
		status int
		want   []string
	}{
		{"required", nic(func(g *candidates.Group) { *g = requiring(*g, nicRoot) }), 200, []string{served}},
		{"required, and in_tree of another tree",
			nic(func(g *candidates.Group) { *g = requiring(*g, nicRoot); g.InTree = placementtest.UUID("other") }), 200,
			[]string{served}},
		{"required, and in_tree of nothing",
			nic(func(g *candidates.Group) { *g = requiring(*g, nicRoot); g.InTree = placementtest.UUID("nobody") }),
			200, nil},
		{"member_of only",
			nic(func(g *candidates.Group) { g.MemberOf = [][]string{placementtest.UUIDs([]string{"aggB"})} }), 200,
			[]string{"pf1_1:SRIOV_NET_VF=3 | _NIC=cn _VIF=pf1_1"}},
		{"member_of only to avoid",
			nic(func(g *candidates.Group) { g.NotMemberOf = placementtest.UUIDs([]string{"aggB"}) }), 200, nil},
		{"forbidden only", nic(func(g *candidates.Group) { g.Forbidden = []string{net1} }), 200, nil},
		{"in_tree only", nic(func(g *candidates.Group) { g.InTree = placementtest.UUID("cn") }), 200, nil},
		{"the same provider", nic(func(g *candidates.Group) { *g = requiring(*g, net1) }), 200,
			[]string{"pf1_1:SRIOV_NET_VF=3 | _NIC=pf1_1 _VIF=pf1_1"}},
		{"the same provider, isolated", isolated, 200, nil},
		{"two of them", twice, 200, []string{"pf1_1:SRIOV_NET_VF=3 | _NIC2=nic1 _NIC=nic1 _VIF=pf1_1"}},
		{"two of them, isolated", apart, 200, nil},
		{"without a suffix", whole, 400, nil},
	} {
		status, got := real.candidates(f, &e.r)
		if diff := cmp.Diff(sorted(e.want), append([]string{}, got.Keys()...)); status != e.status || diff != "" {
			t.Errorf("%s: %d, want %d (-want +got):\n%s", e.name, status, e.status, diff)
		}
	}
}

// excused returns the candidates that Placement leaves out though they are some. It keeps only one
// of the ways to serve the unsuffixed group that differ in nothing but the tree that they are for,
// and so finds no suffixed groups in the others.
func excused(
	f placementtest.Forest, r *candidates.Request, want, got placementtest.CandidateSet,
) (missing []string, excuse string) {
	if len(r.Groups) == 1 || r.Flat {
		return nil, ""
	}
	for key := range want {
		if got[key] {
			continue
		}
		_, groups, _ := strings.Cut(key, " | ")
		shared := false
		for group := range strings.FieldsSeq(groups) {
			unsuffixed, ok := strings.CutPrefix(group, "=")
			if !ok {
				continue
			}
			shared = true
			for name := range strings.SplitSeq(unsuffixed, "+") {
				shared = shared && slices.ContainsFunc(f, func(p placementtest.Provider) bool {
					return p.Name == name && slices.Contains(p.Traits, "MISC_SHARES_VIA_AGGREGATE")
				})
			}
		}
		if shared {
			missing, excuse = append(missing, key), "left out for the same sharing providers in another tree"
		}
	}
	return missing, excuse
}

func sharingChild(f placementtest.Forest) bool {
	return slices.ContainsFunc(f, func(p placementtest.Provider) bool {
		return p.Parent != "" && slices.Contains(p.Traits, "MISC_SHARES_VIA_AGGREGATE")
	})
}

// sumsUp says whether the unsuffixed group asks for a class of another group too. Placement then
// adds amounts to objects that it uses again for other candidates, and answers with amounts that
// the request does not have. It does not with group_policy=none.
func sumsUp(r *candidates.Request) bool {
	for _, g := range r.Groups {
		for _, h := range r.Groups {
			if g.Suffix == "" && h.Suffix != "" && slices.ContainsFunc(g.Resources, func(a candidates.Resource) bool {
				return slices.ContainsFunc(h.Resources, func(b candidates.Resource) bool { return a.Class == b.Class })
			}) {
				return true
			}
		}
	}
	return false
}

// old says whether the request can be put to a version that does not know nested providers.
func old(r *candidates.Request) bool {
	for _, g := range r.Groups {
		if len(g.NotMemberOf) > 0 || g.InTree != "" || len(g.Resources) == 0 ||
			slices.ContainsFunc(g.Required, func(set []string) bool { return len(set) > 1 }) {
			return false
		}
	}
	return len(r.SameSubtree)+len(r.Root.Required)+len(r.Root.Forbidden) == 0
}

// withoutGroups takes the groups from the keys: old versions do not show them.
func withoutGroups(s placementtest.CandidateSet) placementtest.CandidateSet {
	out := placementtest.CandidateSet{}
	for key := range s {
		allocations, _, _ := strings.Cut(key, " | ")
		out[allocations] = true
	}
	return out
}

// query writes a request as the query of a URL.
func query(r *candidates.Request) string {
	var list []string
	add := func(key, value string) { list = append(list, key+"="+url.QueryEscape(value)) }
	for _, g := range r.Groups {
		var amounts []string
		for _, res := range g.Resources {
			amounts = append(amounts, fmt.Sprintf("%s:%d", res.Class, res.Amount))
		}
		if len(amounts) > 0 {
			add("resources"+g.Suffix, strings.Join(amounts, ","))
		}
		var single []string
		for _, set := range g.Required {
			if len(set) > 1 {
				add("required"+g.Suffix, "in:"+strings.Join(set, ","))
			} else {
				single = append(single, set...)
			}
		}
		for _, trait := range g.Forbidden {
			single = append(single, "!"+trait)
		}
		if len(single) > 0 {
			add("required"+g.Suffix, strings.Join(single, ","))
		}
		for _, set := range g.MemberOf {
			add("member_of"+g.Suffix, "in:"+strings.Join(set, ","))
		}
		if len(g.NotMemberOf) > 0 {
			add("member_of"+g.Suffix, "!in:"+strings.Join(g.NotMemberOf, ","))
		}
		if g.InTree != "" {
			add("in_tree"+g.Suffix, g.InTree)
		}
	}
	for _, set := range r.SameSubtree {
		add("same_subtree", strings.Join(set, ","))
	}
	root := slices.Clone(r.Root.Required)
	for _, trait := range r.Root.Forbidden {
		root = append(root, "!"+trait)
	}
	if len(root) > 0 {
		add("root_required", strings.Join(root, ","))
	}
	policy := "none"
	if r.GroupPolicy == candidates.Isolate {
		policy = "isolate"
	}
	add("group_policy", policy)
	return strings.Join(list, "&")
}

// realClient talks to OpenStack's Placement.
type realClient struct {
	t   *testing.T
	url string
}

func (c *realClient) do(method, path, version string, body any) (int, []byte) {
	c.t.Helper()
	var reader io.Reader = http.NoBody
	if body != nil {
		b := testproc.Try(json.Marshal(body)).Or(c.t)
		reader = strings.NewReader(string(b))
	}
	req := testproc.Try(http.NewRequestWithContext(c.t.Context(), method, c.url+path, reader)).Or(c.t)
	req.Close = true
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("OpenStack-API-Version", "placement "+version)
	resp := testproc.Try(http.DefaultClient.Do(req)).Or(c.t)
	defer func() { _ = resp.Body.Close() }()
	b := testproc.Try(io.ReadAll(resp.Body)).Or(c.t)
	return resp.StatusCode, b
}

// must is do for what has to work.
func (c *realClient) must(method, path string, body any) {
	c.t.Helper()
	if status, answer := c.do(method, path, "1.39", body); status >= http.StatusMultipleChoices {
		c.t.Fatalf("%s %s: status %d: %s", method, path, status, answer)
	}
}

type object = map[string]any

// plant makes the forest. Generations count what was written before.
func (c *realClient) plant(f placementtest.Forest) {
	for _, p := range f {
		uuid, generation := placementtest.UUID(p.Name), 0
		body := object{"uuid": uuid, "name": p.Name}
		if p.Parent != "" {
			body["parent_provider_uuid"] = placementtest.UUID(p.Parent)
		}
		c.must(http.MethodPost, "/resource_providers", body)
		put := func(what string, body object) {
			body["resource_provider_generation"] = generation
			c.must(http.MethodPut, "/resource_providers/"+uuid+"/"+what, body)
			generation++
		}
		if len(p.Traits) > 0 {
			put("traits", object{"traits": p.Traits})
		}
		if len(p.Aggregates) > 0 {
			put("aggregates", object{"aggregates": placementtest.UUIDs(p.Aggregates)})
		}
		used, ample, all := object{}, object{}, object{}
		for _, i := range p.Inventories {
			if i.Used > 0 {
				used[i.Class], ample[i.Class] = i.Used, object{"total": i.Used}
			}
			row := i.Row()
			all[i.Class] = object{"total": row.Total,
				"reserved": row.Reserved, "min_unit": row.MinUnit, "max_unit": row.MaxUnit,
				"step_size": row.StepSize, "allocation_ratio": row.AllocationRatio}
		}
		if len(used) > 0 {
			put("inventories", object{"inventories": ample})
			c.must(http.MethodPut, "/allocations/"+placementtest.UUID("c"+p.Name), object{
				"allocations": object{uuid: object{"resources": used}}, "consumer_generation": nil,
				"project_id": "project", "user_id": "user", "consumer_type": "INSTANCE",
			})
			generation++
		}
		if len(all) > 0 {
			put("inventories", object{"inventories": all})
		}
	}
}

// candidates asks for candidates and returns their keys, without groups for a flat request.
func (c *realClient) candidates(f placementtest.Forest, r *candidates.Request) (int, placementtest.CandidateSet) {
	version := "1.39"
	if r.Flat {
		version = "1.28"
	}
	status, body := c.do(http.MethodGet, "/allocation_candidates?"+query(r), version, nil)
	if status != http.StatusOK {
		return status, nil
	}
	names := map[string]string{}
	for _, p := range f {
		names[placementtest.UUID(p.Name)] = p.Name
	}
	var answer struct {
		Requests []struct {
			Allocations map[string]struct{ Resources map[string]int64 }
			Mappings    map[string][]string
		} `json:"allocation_requests"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		c.t.Fatalf("decoding candidates: %v: %s", err, body)
	}
	set := placementtest.CandidateSet{}
	for _, req := range answer.Requests {
		var amounts, groups []string
		for uuid, a := range req.Allocations {
			for class, amount := range a.Resources {
				amounts = append(amounts, fmt.Sprintf("%s:%s=%d", names[uuid], class, amount))
			}
		}
		for suffix, providers := range maps.All(req.Mappings) {
			for i := range providers {
				providers[i] = names[providers[i]]
			}
			groups = append(groups, suffix+"="+strings.Join(sorted(providers), "+"))
		}
		key := strings.Join(sorted(amounts), " ")
		if !r.Flat {
			key += " | " + strings.Join(sorted(groups), " ")
		}
		set[key] = true
	}
	return status, set
}
