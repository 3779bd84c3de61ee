// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestWorldDependsOnlyOnItsSeed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, p := range Profiles {
		if !reflect.DeepEqual(World(7, p), World(7, p)) {
			t.Errorf("%s: the same seed made two different worlds", name)
		}
		if reflect.DeepEqual(World(7, p), World(8, p)) {
			t.Errorf("%s: two seeds made the same world", name)
		}
	}
}

// TestGeneratorReachesEveryRequest: each call of the API and each parameter of its queries, at
// each microversion that has it.
func TestGeneratorReachesEveryRequest(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	since := map[string]int{
		"GET /": 0, "GET /resource_providers": 0, "POST /resource_providers": 0,
		"GET /resource_providers/{uuid}": 0, "PUT /resource_providers/{uuid}": 0,
		"DELETE /resource_providers/{uuid}":          0,
		"GET /resource_providers/{uuid}/inventories": 0, "POST /resource_providers/{uuid}/inventories": 0,
		"PUT /resource_providers/{uuid}/inventories": 0, "DELETE /resource_providers/{uuid}/inventories": 5,
		"GET /resource_providers/{uuid}/inventories/{class}":    0,
		"PUT /resource_providers/{uuid}/inventories/{class}":    0,
		"DELETE /resource_providers/{uuid}/inventories/{class}": 0,
		"GET /resource_providers/{uuid}/usages":                 0, "GET /resource_providers/{uuid}/allocations": 0,
		"GET /resource_providers/{uuid}/aggregates": 1, "PUT /resource_providers/{uuid}/aggregates": 1,
		"GET /resource_providers/{uuid}/traits": 6, "PUT /resource_providers/{uuid}/traits": 6,
		"DELETE /resource_providers/{uuid}/traits": 6,
		"GET /resource_classes":                    2, "POST /resource_classes": 2, "GET /resource_classes/{name}": 2,
		"PUT /resource_classes/{name}":    2,
		"DELETE /resource_classes/{name}": 2,
		"GET /traits":                     6, "GET /traits/{name}": 6,
		"PUT /traits/{name}": 6, "DELETE /traits/{name}": 6,
		"GET /allocations/{consumer}": 0, "PUT /allocations/{consumer}": 0,
		"DELETE /allocations/{consumer}": 0, "POST /allocations": 13,
		"GET /usages": 9, "POST /reshaper": 30,
		"GET /resource_providers?name": 0, "GET /resource_providers?uuid": 0, "GET /resource_providers?member_of": 3,
		"GET /resource_providers?resources": 4,
		"GET /resource_providers?in_tree":   14, "GET /resource_providers?required": 18,
		"GET /traits?name": 6, "GET /traits?associated": 6,
		"GET /usages?project_id": 9, "GET /usages?user_id": 9, "GET /usages?consumer_type": 38,
		"GET /allocation_candidates?resources": 10, "GET /allocation_candidates?required": 17,
		"GET /allocation_candidates?member_of": 21,
		"GET /allocation_candidates?in_tree":   31, "GET /allocation_candidates?limit": 16,
		"GET /allocation_candidates?group_policy": 25,
		"GET /allocation_candidates?resourcesN":   25, "GET /allocation_candidates?requiredN": 25,
		"GET /allocation_candidates?member_ofN": 25,
		"GET /allocation_candidates?in_treeN":   31, "GET /allocation_candidates?root_required": 35,
		"GET /allocation_candidates?same_subtree": 36,
	}
	reached := map[string]map[int]bool{}
	reach := func(what string, minor int) {
		if reached[what] == nil {
			reached[what] = map[int]bool{}
		}
		reached[what][minor] = true
	}
	for seed := range uint64(700) {
		for _, p := range []Profile{Mixed, Plain} {
			for _, st := range World(seed, p) {
				call := st.Method + " " + routeOf(st.Path)
				reach(call, st.minor())
				for _, param := range st.Query {
					reach(call+"?"+groupSuffix.ReplaceAllString(param.Name, "${1}N"), st.minor())
				}
			}
		}
	}
	for what, first := range since {
		for minor := first; minor <= newest; minor++ {
			if !reached[what][minor] {
				t.Errorf("%s at 1.%d is never made", what, minor)
			}
		}
	}
}

func TestCompare(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	json := http.Header{"Content-Type": {"application/json"}}
	is := func(status int, header http.Header, body string) Answer { return Answer{status, header, body} }
	for name, c := range map[string]struct {
		real, ours Answer
		want       []string
	}{
		"the same": {is(200, json, `{"a":[1,2]}`), is(200, json, `{"a":[1,2]}`), nil},
		"lists have no order": {is(200, json, `{"a":[1,{"x":2,"y":[3,4]}]}`),
			is(200, json, `{"a": [{"y":[4,3],"x":2},1]}`), nil},
		"lists are no sets":   {is(200, json, `{"a":[1,1]}`), is(200, json, `{"a":[1]}`), []string{"body"}},
		"numbers are numbers": {is(200, json, `{"a":1.0,"b":1.1}`), is(200, json, `{"a":1,"b":1.1}`), nil},
		"a number is no text": {is(200, json, `{"a":1}`), is(200, json, `{"a":"1"}`), []string{"body"}},
		"null is not nothing": {is(200, json, `{"a":null}`), is(200, json, `{}`), []string{"body"}},
		"status":              {is(200, json, `{}`), is(204, nil, ``), []string{"status"}},
		"prose does not count": {is(404, json, `{"errors":[{"status":404,"detail":"x"}]}`),
			is(404, json, `{"errors":[{"status":404,"detail":"y"}]}`), nil},
		"a code does": {is(409, json, `{"errors":[{"code":"a"}]}`),
			is(409, json, `{"errors":[{"code":"b"}]}`), []string{"error code"}},
		"methods have no order": {is(405, http.Header{"Allow": {"GET, PUT"}}, ``),
			is(405, http.Header{"Allow": {"PUT,GET"}}, ``), nil},
		"Last-Modified, its value": {is(204, http.Header{"Last-Modified": {"x"}}, ``),
			is(204, http.Header{"Last-Modified": {"y"}}, ``), nil},
		"Last-Modified, whether": {is(204, http.Header{"Last-Modified": {"x"}}, ``),
			is(204, nil, ``), []string{"Last-Modified"}},
		"the version of the answer": {is(204, http.Header{"Openstack-Api-Version": {"placement 1.1"}}, ``),
			is(204, http.Header{"Openstack-Api-Version": {"placement 1.2"}}, ``), []string{"OpenStack-API-Version"}},
	} {
		var got []string
		for _, d := range compare(c.real, c.ours, http.MethodGet) {
			got = append(got, d.What)
		}
		testproc.Samef(t, cmp.Diff(c.want, got), "%s", name)
	}
}

// twisted is our service with a fault that a test puts in.
type twisted struct {
	*Ours
	twist func(r Request, a *Answer)
}

func (t twisted) Do(ctx context.Context, r Request) (Answer, error) {
	a, err := t.Ours.Do(ctx, r)
	t.twist(r, &a)
	return a, err
}

func TestDifferencesAreFoundAndShrunk(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	both := [2]*Ours{}
	for i := range both {
		database := dbservers.Fresh(t)
		ours := testproc.Try(NewOurs(t.Context(), database, func() { dbservers.Empty(t, database) })).Or(t)
		t.Cleanup(func() { testproc.NoError(t, ours.Close()) })
		both[i] = ours
	}
	// What is used of VCPU is shown as used of DISK_GB, in one of the views.
	fault := func(r Request, a *Answer) {
		if strings.HasSuffix(r.Target, "/allocations") &&
			r.Method == http.MethodGet && strings.Contains(a.Body, `"VCPU"`) {
			a.Body = strings.ReplaceAll(a.Body, `"VCPU"`, `"DISK_GB"`)
		}
	}
	result, err := Run(t.Context(), both[0], twisted{both[1], fault},
		Plan{Seed: 1, Stride: 1, Profile: Plain, Requests: 5000, Findings: 1, ShrinkRequests: 3000})
	testproc.Check(t, err)
	if len(result.Findings) != 1 {
		t.Fatalf("%d differences were found in %d requests", len(result.Findings), result.Counts.Requests)
	}
	f := result.Findings[0]
	var got []string
	for _, st := range f.Script {
		got = append(got, st.Method+" "+routeOf(st.Path))
	}
	want := []string{"POST /resource_providers", "PUT /resource_providers/{uuid}/inventories",
		"PUT /allocations/{consumer}", "GET /resource_providers/{uuid}/allocations"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the script (-want +got):\n%s\n%s", diff, f.Rendered)
	}
	if !strings.Contains(f.Rendered, "DISK_GB") || strings.Contains(f.Rendered, "there was no difference") {
		t.Errorf("the script does not show the difference:\n%s", f.Rendered)
	}
}
