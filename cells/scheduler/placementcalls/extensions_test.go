// SPDX-License-Identifier: Apache-2.0

package placementcalls_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// groupedRequest is a request with two groups that have suffixes, and without group_policy unless
// specs have one.
func groupedRequest(t *testing.T, specs map[string]string) resourcerequest.Request {
	t.Helper()
	all := map[string]string{"resources1:VCPU": "1", "resources2:MEMORY_MB": "512"}
	maps.Copy(all, specs)
	r, err := resourcerequest.New(
		cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1, ExtraSpecs: all}}, nil)
	check(t, err)
	return r
}

func isPolicyRefusal(err error) bool {
	var unfit *resourcerequest.InvalidError
	return errors.As(err, &unfit) &&
		unfit.Message ==
			"The flavor has 2 groups of 'resources' extra specs, and needs the extra spec 'group_policy' then: "+
				"isolate or none."
}

// asked is what a request for candidates asks for: the microversion, and the extensions.
func asked(r *http.Request) string {
	return r.Header.Get("OpenStack-API-Version") + " " + r.Header.Get("Placement-Extensions")
}

// The bodies that a Placement answers with.
const (
	oneCandidate = `{"allocation_requests":[{"allocations":{"00000000-0000-4000-8000-000000000001":{"resources":` +
		`{"VCPU":1}}},` +
		`"mappings":{"1":["00000000-0000-4000-8000-000000000001"]}}],"provider_summaries":{}}`
	noPolicy = `{"errors":[{"status":400,"code":"placement.query.missing_value",` +
		`"detail":"The \"group_policy\" parameter is required when specifying more than one \"resources{N}\" ` +
		`parameter."}]}`
	tooNew = `{"errors":[{"status":406,"detail":"Unacceptable version header: ` +
		`1.39","max_version":"1.38","min_version":"1.0"}]}`
)

const (
	withExtension = "placement 1.39 group_policy"
	without       = "placement 1.38 "
)

// TestGroupPolicyExtension: what is asked of which Placement, and what becomes of a request with
// several groups and no group_policy.
func TestGroupPolicyExtension(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type handler = func(*http.Request) *http.Response
	says := func(status int, body string, granted ...string) handler {
		return func(*http.Request) *http.Response {
			resp := placementReply(status, body)
			if len(granted) > 0 {
				resp.Header["Placement-Extensions"] = granted
			}
			return resp
		}
	}
	until138 := func(answer handler) handler {
		return func(r *http.Request) *http.Response {
			if r.Header.Get("OpenStack-API-Version") != "placement 1.38" {
				return placementReply(406, tooNew)
			}
			return answer(r)
		}
	}
	const older = without + "group_policy" // the extension, at the older microversion
	for name, c := range map[string]struct {
		answer handler
		asked  []string // by one request for candidates
		served bool
		err    error // nil, and not served: it is refused for want of group_policy
	}{
		"grants it": {answer: says(200, oneCandidate, "group_policy"), asked: []string{withExtension}, served: true},
		"grants it with others": {
			answer: says(200, oneCandidate, "isolate", "root_member_of,GROUP_POLICY"),
			asked:  []string{withExtension}, served: true,
		},
		"grants another":          {answer: says(400, noPolicy, "isolate"), asked: []string{withExtension}},
		"has no extensions":       {answer: says(400, noPolicy), asked: []string{withExtension}},
		"answers without a grant": {answer: says(200, oneCandidate), asked: []string{withExtension}},
		"is older":                {answer: until138(says(400, noPolicy)), asked: []string{withExtension, older}},
		"is older, and grants it to all": {
			answer: until138(says(200, oneCandidate, "group_policy")),
			asked:  []string{withExtension, older}, served: true,
		},
		"is too old": {answer: says(406, tooNew), asked: []string{withExtension, older},
			err: placementclient.ErrTooOld},
		"is down":       {answer: says(503, ""), asked: []string{withExtension}, err: placementclient.ErrUnavailable},
		"denies access": {answer: says(403, ""), asked: []string{withExtension}, err: placementclient.ErrRefused},
		"grants it, and does not know a class": {
			answer: says(400, `{"errors":[{"detail":"no such class"}]}`, "group_policy"),
			asked:  []string{withExtension}, err: placementclient.ErrInvalid,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			client := newClient(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
				got = append(got, asked(r))
				return c.answer(r), nil
			}))
			for range 2 {
				got = nil
				candidates, err := client.Candidates(t.Context(), groupedRequest(t, nil))
				switch {
				case c.served && (err != nil || len(candidates) != 1):
					t.Errorf("%+v, %v", candidates, err)
				case c.err != nil && !errors.Is(err, c.err):
					t.Errorf("%v, want %v", err, c.err)
				case !c.served && c.err == nil && !isPolicyRefusal(err):
					t.Errorf("%v", err)
				}
				testproc.Samef(t, cmp.Diff(c.asked, got), "asked")
			}
			// What needs no extension asks for none, and never for a newer microversion.
			got = nil
			for _, r := range []resourcerequest.Request{
				smallRequest(t), groupedRequest(t, map[string]string{"group_policy": "isolate"}),
				groupedRequest(t, map[string]string{"resources2:MEMORY_MB": "0"}),
			} {
				check(t, client.Check(t.Context(), r))
				_, _ = client.Candidates(t.Context(), r)
			}
			testproc.Samef(t, cmp.Diff([]string{without, without, without}, got), "without need")
		})
	}
}

// TestCheck: a grant is remembered until it is refused, and a refusal is not.
func TestCheck(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c := newRig(t)
	s.node(1, nodeResources())
	bundled := s.handler
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Header.Del("Placement-Extensions")
		bundled.ServeHTTP(w, r)
	})
	step := func(what string, handler http.Handler, refused bool, cost int, ask func() error) {
		t.Helper()
		s.handler, s.routes = handler, nil
		if err := ask(); refused != isPolicyRefusal(err) || !refused && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if requests := len(s.routes); requests != cost {
			t.Errorf("%s: %d requests, want %d", what, requests, cost)
		}
	}
	check := func() error { return c.Check(t.Context(), groupedRequest(t, nil)) }
	candidates := func() error {
		found, err := c.Candidates(t.Context(), groupedRequest(t, nil))
		if err == nil && (len(found) != 1 || found[0].Root != providerUUID(1)) {
			t.Errorf("%+v", found)
		}
		return err
	}
	step("none", plain, true, 1, check)
	step("none again", plain, true, 1, check)
	step("now there is", bundled, false, 1, check)
	step("it is remembered", bundled, false, 0, check)
	step("and used", bundled, false, 1, candidates)
	step("it is gone, not known yet", plain, false, 0, check)
	step("it is gone", plain, true, 1, candidates)
	step("it is gone, known", plain, true, 1, check)
}

// TestRootMemberOf: aggregates are asked for with the extension where there is one, with member_of
// where not, and a Placement without it is asked again after a while.
func TestRootMemberOf(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a, b, x := providerUUID(51), providerUUID(52), providerUUID(53)
	form := func(r *http.Request) string {
		q := r.URL.Query()
		return asked(r) + " roots " + strings.Join(q["root_member_of"], " ") + " members " +
			strings.Join(q["member_of"], " ")
	}
	request := smallRequest(t)
	request.OneOf, request.NoneOf = [][]string{{a, b}, {b}}, []string{x}
	values := "in:" + a + "," + b + " in:" + b + " !in:" + x
	const rooted = "placement 1.39 root_member_of"
	var got []string
	granted, status := "", 200
	client := newClient(t, roundTripFunc(func(r *http.Request) (*http.Response, error) {
		got = append(got, form(r))
		resp := placementReply(status, oneCandidate)
		switch {
		case granted != "":
			resp.Header["Placement-Extensions"] = []string{granted}
		case status == 200 && r.Header.Get("OpenStack-API-Version") != "placement 1.38":
			resp = placementReply(406, tooNew)
		case r.URL.Query().Has("root_member_of"):
			resp = placementReply(400, `{"errors":[{"status":400,"detail":"Additional properties are not allowed"}]}`)
		}
		return resp, nil
	}))
	ask := func(what string, r resourcerequest.Request, kind error, want ...string) {
		t.Helper()
		got = nil
		testproc.Try(client.Candidates(t.Context(), r)).ErrorIs(t, kind, "%s: %v", what)
		testproc.Samef(t, cmp.Diff(want, got), "%s", what)
	}
	plain := without + " roots  members " + values
	granted = "root_member_of"
	ask("granted", request, nil, rooted+" roots "+values+" members ")
	ask("no aggregates", smallRequest(t), nil, without+" roots  members ")
	status = 503
	ask("down", request, placementclient.ErrUnavailable, rooted+" roots "+values+" members ")
	granted, status = "", 200
	refused := []string{rooted + " roots " + values + " members ",
		without + "root_member_of roots " + values + " members ", plain}
	ask("there is none", request, nil, refused...)
	for range 99 {
		ask("that is remembered", request, nil, plain)
	}
	ask("and tried again", request, nil, refused...)
	granted = "root_member_of"
	ask("remembered again", request, nil, plain)
	for range 98 {
		_, _ = client.Candidates(t.Context(), request)
	}
	ask("another Placement", request, nil, rooted+" roots "+values+" members ")

	groups := groupedRequest(t, map[string]string{"resources:DISK_GB": "0"})
	groups.OneOf = [][]string{{a}}
	granted = "group_policy, root_member_of"
	ask("with another extension", groups, nil, "placement 1.39 group_policy, root_member_of roots in:"+a+" members ")
	granted = "group_policy"
	ask("groups alone, without it", groups, nil, "placement 1.39 group_policy, root_member_of roots in:"+a+" members ",
		withExtension+" roots  members ")
}

// TestPlacesThatForbid: a flavor's group that only forbids is asked for with the extension
// resourceless, of the bundled Placement, which finds a place, and by Placement's rules elsewhere.
func TestPlacesThatForbid(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, client := newRig(t)
	s.put("/traits/CUSTOM_SLOW", nil)
	serial := 0
	add := func(parent int, inventory map[string]int, traits ...string) int {
		serial++
		body := map[string]any{"uuid": providerUUID(serial), "name": fmt.Sprint("p", serial)}
		if parent > 0 {
			body["parent_provider_uuid"] = providerUUID(parent)
		}
		s.put("/resource_providers", body)
		inventories := map[string]any{}
		for class, total := range inventory {
			inventories[class] = map[string]any{"total": total}
		}
		s.put("/resource_providers/"+providerUUID(serial)+"/inventories",
			map[string]any{"resource_provider_generation": 0, "inventories": inventories})
		if len(traits) > 0 {
			s.put("/resource_providers/"+providerUUID(serial)+"/traits",
				map[string]any{"resource_provider_generation": 1, "traits": traits})
		}
		return serial
	}
	root := add(0, map[string]int{"VCPU": 8, "MEMORY_MB": 4096, "DISK_GB": 100}, "CUSTOM_SLOW")
	slow, fast := add(root, nil, "CUSTOM_SLOW"), add(root, nil)
	add(slow, map[string]int{"VGPU": 1})
	gpu := add(fast, map[string]int{"VGPU": 1})
	specs := map[string]string{"resources_GPU:VGPU": "1",
		"trait_AT:CUSTOM_SLOW": "forbidden", "same_subtree:NEAR": "_AT,_GPU", "group_policy": "none"}
	r, err := resourcerequest.New(
		cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1, ExtraSpecs: specs}}, nil)
	check(t, err)
	var sent []string
	s.instead = func(r *http.Request) (*http.Response, error) {
		sent = append(sent, asked(r))
		return nil, nil
	}
	found := testproc.Try(client.Candidates(t.Context(), r)).Or(t)
	// The GPU itself is such a place as well, also the slow one: same_subtree counts a provider
	// among those below it.
	for _, c := range found {
		if at := c.Mappings["_AT"]; len(at) != 1 || at[0] == providerUUID(root) || at[0] == providerUUID(slow) {
			t.Errorf("the place is %v", at)
		}
	}
	if !slices.ContainsFunc(found, func(c resourcerequest.Candidate) bool {
		return c.Mappings["_AT"][0] == providerUUID(fast) && c.Mappings["_GPU"][0] == providerUUID(gpu)
	}) {
		t.Errorf("the place above the GPU is missing: %+v", found)
	}
	s.instead = func(r *http.Request) (*http.Response, error) {
		sent = append(sent, asked(r))
		r.Header.Del("Placement-Extensions") // a Placement without extensions
		return nil, nil
	}
	if found, err := client.Candidates(t.Context(), r); err != nil || len(found) != 0 {
		t.Errorf("%d candidates by Placement's rules, %v", len(found), err)
	}
	testproc.Same(t, cmp.Diff([]string{"placement 1.39 resourceless", "placement 1.39 resourceless"}, sent))
}
