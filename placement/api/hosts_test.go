// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/api/hostpolicy"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// What is in Placement in the tests of hosts: a tree of h1 with a provider below its root, one of
// h2, and a provider that shares with each; an instance on each, and one that is on both.
const (
	root1   = "10000000-0000-4000-8000-000000000001"
	numa1   = "10000000-0000-4000-8000-000000000002"
	spare1  = "10000000-0000-4000-8000-000000000003" // a node of h1 that Placement does not have
	root2   = "20000000-0000-4000-8000-000000000001"
	share1  = "30000000-0000-4000-8000-000000000001"
	share2  = "30000000-0000-4000-8000-000000000002"
	nowhere = "40000000-0000-4000-8000-000000000001"

	onHost1 = "50000000-0000-4000-8000-000000000001"
	onHost2 = "50000000-0000-4000-8000-000000000002"
	onBoth  = "50000000-0000-4000-8000-000000000003"
	onNone  = "50000000-0000-4000-8000-000000000004"
)

// identities are the hosts that tests send requests as, by token.
var identities = map[string]*pki.Identity{
	"h1": {Kind: pki.Host, Name: "h1", Names: []string{"h1"}, Nodes: []string{root1, spare1}},
	"h2": {Kind: pki.Host, Name: "h2", Names: []string{"h2"}},
	"h3": {Kind: pki.Host, Name: "h3", Names: []string{"h3"}},
	"h3 with nodes": {Kind: pki.Host, Name: "h3",
		Names: []string{"h3"}, Nodes: []string{"90000000-0000-4000-8000-000000000003"}},
	"h4": {Kind: pki.Host, Name: "h4", Names: []string{"h4"}, Nodes: []string{nowhere}, Expires: clock.Add(time.Hour)},
}

// knowsHosts takes tokens of hosts, and leaves the rest to NoAuth.
type knowsHosts struct{ osapi.NoAuth }

func (k knowsHosts) Authenticate(r *http.Request) (osapi.Principal, error) {
	token := r.Header.Get("X-Auth-Token")
	if id := identities[token]; id != nil {
		return osapi.Principal{User: token, Project: token, Roles: []string{osapi.RoleHost}, Host: id}, nil
	}
	return k.NoAuth.Authenticate(r)
}

// hostsWorld is an API with what the constants above say.
func hostsWorld(t testing.TB, change ...func(*api.Config)) (*api.API, *transactor.Ledger) {
	t.Helper()
	l := openLedger(t)
	bounded := func(c *api.Config) { c.Options.HostCapacityFactor, c.Options.HostAdmissionWindow = 2, time.Hour }
	h := newAPI(t, slices.Concat([]func(*api.Config){bounded}, change,
		[]func(*api.Config){func(c *api.Config) { c.Authenticator, c.Ledger = knowsHosts{}, l }})...)
	inventory := func(classes ...string) string {
		parts := make([]string, len(classes))
		for i, class := range classes {
			parts[i] = fmt.Sprintf(`%q:{"total":100}`, class)
		}
		return `{"resource_provider_generation":0,"inventories":{` + strings.Join(parts, ",") + `}}`
	}
	for _, p := range []struct{ uuid, name, parent, inventory, aggregate, traits string }{
		{root1, "h1.example.com", "", inventory("VCPU", "MEMORY_MB"), agg1, `"COMPUTE_NODE"`},
		{numa1, "h1.example.com_NUMA0", root1, inventory("MEMORY_MB", "VCPU"), "", ""},
		{root2, "h2", "", inventory("VCPU", "MEMORY_MB"), agg2, `"COMPUTE_NODE"`},
		{share1, "shared-1", "", inventory("DISK_GB"), agg1, `"MISC_SHARES_VIA_AGGREGATE"`},
		{share2, "shared-2", "", inventory("DISK_GB"), agg2, `"MISC_SHARES_VIA_AGGREGATE"`},
	} {
		parent := "null"
		if p.parent != "" {
			parent = `"` + p.parent + `"`
		}
		path := "/resource_providers/" + p.uuid
		calls(t, h,
			call{method: "POST", path: "/resource_providers", version: "1.39",
				body:   fmt.Sprintf(`{"name":%q,"uuid":%q,"parent_provider_uuid":%s}`, p.name, p.uuid, parent),
				status: 200},
			call{method: "PUT", path: path + "/inventories", version: "1.39", body: p.inventory, status: 200},
		)
		if p.aggregate != "" {
			call{method: "PUT", path: path + "/aggregates",
				version: "1.39", body: `{"resource_provider_generation":1,"aggregates":["` +
					p.aggregate + `"]}`, status: 200}.do(t, h)
			call{method: "PUT", path: path + "/traits", version: "1.39",
				body: `{"resource_provider_generation":2,"traits":[` + p.traits + `]}`, status: 200}.do(t, h)
		}
	}
	for consumer, allocations := range map[string]string{
		onHost1: allocated(root1, "VCPU", 2, numa1, "MEMORY_MB", 64, share1, "DISK_GB", 10),
		onHost2: allocated(root2, "VCPU", 1, share2, "DISK_GB", 5),
		onBoth:  allocated(root1, "VCPU", 4, root2, "VCPU", 4, share1, "DISK_GB", 1),
	} {
		call{method: "PUT", path: "/allocations/" + consumer, version: "1.39",
			body: holding(allocations, "null"), status: 204}.do(t, h)
	}
	return h, l
}

// allocated is the JSON of allocations: provider, class and amount, again and again.
func allocated(of ...any) string {
	parts := make([]string, 0, len(of)/3)
	for i := 0; i < len(of); i += 3 {
		parts = append(parts, fmt.Sprintf(`%q:{"resources":{%q:%d}}`, of[i], of[i+1], of[i+2]))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func holding(allocations, generation string) string {
	return `{"allocations":` + allocations + `,"project_id":"proj","user_id":"user","consumer_generation":` +
		generation + `,"consumer_type":"INSTANCE"}`
}

// as sends a call as a host.
func (c call) as(host string) call {
	c.headers = append(c.headers, "X-Auth-Token: "+host)
	if c.version == "" {
		c.version = "1.39"
	}
	return c
}

func dumpOf(t testing.TB, l *transactor.Ledger) placementtest.Dump {
	t.Helper()
	return testproc.Try(placementtest.DumpOf(l.Current())).Or(t)
}

// TestWhatEachPrincipalMayDo: every call of the API, with what is in it a host's own and another
// host's. The table has a row for each call, and a call without one fails the test.
func TestWhatEachPrincipalMayDo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const inventories = `{"resource_provider_generation":%GEN,"inventories":{"VCPU":{"total":100},` +
		`"MEMORY_MB":{"total":100}}}`
	type row struct {
		body       string
		own, other int // the statuses for the host whose the provider or consumer is, and for another
	}
	rows := map[string]row{
		"GET /":                   {own: 200, other: 200},
		"GET /resource_providers": {own: 200, other: 403}, // with ?in_tree=
		"POST /resource_providers": {`{"name":"h1.new","uuid":"` + spare1 + `"}`, 200,
			403},
		"GET /resource_providers/{uuid}":                     {own: 200, other: 403},
		"DELETE /resource_providers/{uuid}":                  {own: 409, other: 403}, // it has a child
		"PUT /resource_providers/{uuid}":                     {`{"name":"h1.other"}`, 200, 403},
		"GET /resource_providers/{uuid}/inventories":         {own: 200, other: 403},
		"POST /resource_providers/{uuid}/inventories":        {`{"resource_class":"DISK_GB","total":9}`, 201, 403},
		"PUT /resource_providers/{uuid}/inventories":         {inventories, 200, 403},
		"DELETE /resource_providers/{uuid}/inventories":      {own: 409, other: 403}, // allocated
		"GET /resource_providers/{uuid}/inventories/{class}": {own: 200, other: 403},
		"PUT /resource_providers/{uuid}/inventories/{class}": {`{"resource_provider_generation":%GEN,"total":99}`,
			200, 403},
		"DELETE /resource_providers/{uuid}/inventories/{class}": {own: 409, other: 403},
		"GET /resource_providers/{uuid}/usages":                 {own: 200, other: 403},
		"GET /resource_providers/{uuid}/aggregates":             {own: 200, other: 403},
		"PUT /resource_providers/{uuid}/aggregates": {`{"resource_provider_generation":%GEN,` +
			`"aggregates":["` + agg1 + `"]}`, 200, 403},
		"GET /resource_providers/{uuid}/traits": {own: 200, other: 403},
		"PUT /resource_providers/{uuid}/traits": {`{"resource_provider_generation":%GEN,` +
			`"traits":["COMPUTE_NODE"]}`, 200, 403},
		"DELETE /resource_providers/{uuid}/traits":   {own: 204, other: 403},
		"GET /resource_providers/{uuid}/allocations": {own: 200, other: 403},
		"GET /resource_classes":                      {own: 200, other: 200},
		"POST /resource_classes":                     {`{"name":"CUSTOM_NEW"}`, 201, 201},
		"GET /resource_classes/{name}":               {own: 200, other: 200},
		"PUT /resource_classes/{name}":               {own: 204, other: 204},
		"DELETE /resource_classes/{name}":            {own: 403, other: 403},
		"GET /traits":                                {own: 200, other: 200},
		"GET /traits/{name}":                         {own: 204, other: 204},
		"PUT /traits/{name}":                         {own: 204, other: 204},
		"DELETE /traits/{name}":                      {own: 403, other: 403},
		"POST /allocations": {`{"` + onHost1 + `":` +
			holding(allocated(share1, "DISK_GB", 10), "1") + `}`, 204, 403},
		"GET /allocations/{consumer}": {own: 200, other: 403},
		"PUT /allocations/{consumer}": {holding(allocated(root1, "VCPU", 1, share1, "DISK_GB", 10), "1"), 204,
			403},
		"DELETE /allocations/{consumer}":     {own: 204, other: 403},
		"GET /allocation_candidates":         {own: 403, other: 403},
		"GET /allocation_candidates/explain": {own: 403, other: 403},
		"GET /usages":                        {own: 403, other: 403},
		"GET /hosts/{host}/admission":        {own: 403, other: 403},
		"POST /hosts/{host}/admission":       {`{"window":true}`, 403, 403},
		"POST /reshaper": {`{"inventories":{"` + root1 + `":` +
			inventories + `},"allocations":{}}`, 204, 403},
	}
	described := map[string]bool{}
	for _, c := range api.Calls() {
		name := c.Method + " " + c.Path
		r, found := rows[name]
		if !found {
			t.Errorf("the table has no row for %s", name)
			continue
		}
		described[name] = true
		name = strings.NewReplacer("{uuid}", root1, "{class}", "VCPU", "{consumer}", onHost1, "{host}", "h1").
			Replace(c.Path)
		if strings.HasPrefix(name, "/traits") || strings.HasPrefix(name, "/resource_classes") {
			name = strings.ReplaceAll(name, "{name}", "CUSTOM_THERE")
		}
		switch name {
		case "/resource_providers":
			if c.Method == http.MethodGet {
				name += "?in_tree=" + root1
			}
		case "/usages":
			name += "?project_id=proj"
		case "/allocation_candidates", "/allocation_candidates/explain":
			name += "?resources=VCPU:1&in_tree=" + root1
		}
		for who, want := range map[string]int{"h1": r.own, "h2": r.other, "user:": 403} {
			dbservers.Case(t, fmt.Sprintf("%s %s as %s", c.Method, name, who), func(t *testing.T) {
				h, l := hostsWorld(t)
				calls(t, h,
					call{method: "POST", path: "/hosts/h1/admission", version: "1.39",
						body: `{"classes":{"DISK_GB":9}}`, status: 200},
					call{method: "PUT", path: "/traits/CUSTOM_THERE", version: "1.39", status: 201},
					call{method: "PUT", path: "/resource_classes/CUSTOM_THERE", version: "1.39", status: 201})
				if c.Path == "/" {
					want = 200
				}
				p, _ := l.Current().Provider(root1)
				before := dumpOf(t, l)
				body := strings.ReplaceAll(r.body, "%GEN", fmt.Sprint(p.Generation))
				w := call{method: c.Method, path: name, body: body}.as(who).send(h)
				if w.Code != want {
					t.Errorf("status %d, want %d: %s", w.Code, want, w.Body)
				}
				if diff := cmp.Diff(before, dumpOf(t, l)); w.Code >= 400 && diff != "" {
					t.Errorf("it was refused, and changed:\n%s", diff)
				}
				if w.Code == 403 && who != "user:" {
					if e := errorOf(t, w); e.Code != wire.CodeHost || !strings.Contains(e.Detail, "placement:hosts:") {
						t.Errorf("the answer names no rule: %s", w.Body)
					}
				}
			})
		}
	}
	for name := range rows {
		if !described[name] {
			t.Errorf("the table has a row for %s, which is no call", name)
		}
	}
}

// TestHostsInTheDocumentation: the page has each call with what a host may do with it, and the
// rules with their defaults.
func TestHostsInTheDocumentation(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	text := "| call | for a host |\n|---|---|\n"
	for _, c := range api.Calls() {
		hosts := c.Hosts
		if hosts == "" {
			hosts = "no"
		}
		text += fmt.Sprintf("| `%s %s` | %s |\n", c.Method, c.Path, hosts)
	}
	golden.Section(t, "../../docs/identity.md", "<!-- calls of hosts: begin -->", "<!-- calls of hosts: end -->", text)
	page := testproc.Try(os.ReadFile("../../docs/identity.md")).Or(t)
	for action, rule := range hostpolicy.DefaultRules() {
		if row := fmt.Sprintf("| `%s` | `%s` |", action, rule); !strings.Contains(string(page), row) {
			t.Errorf("docs/identity.md has no row %s", row)
		}
	}
}

// TestWhatAHostReads: lists that can only hold what the host may read, and no others.
func TestWhatAHostReads(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, _ := hostsWorld(t)
	for path, want := range map[string]int{
		"":                       403,
		"?resources=VCPU:1":      403,
		"?required=COMPUTE_NODE": 403,
		"?member_of=" + agg1:     403,
		"?member_of=!" + agg2:    403,
		"?uuid=" + root1:         200,
		"?uuid=" + nowhere:       200,
		"?uuid=" + share1:        200,
		"?uuid=" + share2:        403,
		"?uuid=" + root2:         403,
		"?in_tree=" + root2:      403,
		"?in_tree=" + share1:     403,
		"?in_tree=" + nowhere:    200,
		"?in_tree=" + numa1 + "&member_of=" + agg2: 200,
		"?name=h1":                            200,
		"?name=h1.other":                      200,
		"?name=h1.example.com":                200,
		"?name=h1.example.com_NUMA0":          200,
		"?name=h1.example.com_NUMA9":          200,
		"?name=h2":                            403,
		"?name=h10":                           403,
		"?name=nothing":                       403,
		"?name=":                              403,
		"?required=MISC_SHARES_VIA_AGGREGATE": 403,
		"?required=MISC_SHARES_VIA_AGGREGATE&member_of=" + agg1:                        200,
		"?required=MISC_SHARES_VIA_AGGREGATE&member_of=" + agg2:                        403,
		"?required=MISC_SHARES_VIA_AGGREGATE&member_of=in:" + agg1 + "," + agg2:        403,
		"?required=MISC_SHARES_VIA_AGGREGATE&member_of=!" + agg1:                       403,
		"?required=in:MISC_SHARES_VIA_AGGREGATE,COMPUTE_NODE&member_of=" + agg1:        403,
		"?required=MISC_SHARES_VIA_AGGREGATE,COMPUTE_NODE&member_of=" + agg1:           200,
		"?required=MISC_SHARES_VIA_AGGREGATE&member_of=" + agg2 + "&member_of=" + agg1: 200,
	} {
		call{method: "GET", path: "/resource_providers" + path, status: want}.as("h1").do(t, h)
	}
	for path, want := range map[string]int{
		"/resource_providers/" + nowhere:                  404,
		"/resource_providers/" + nowhere + "/inventories": 404,
		"/resource_providers/" + share1:                   200,
		"/resource_providers/" + share1 + "/inventories":  200,
		"/resource_providers/" + share1 + "/traits":       200,
		"/resource_providers/" + share1 + "/aggregates":   200,
		"/resource_providers/" + share1 + "/usages":       403, // of all hosts
		"/resource_providers/" + share1 + "/allocations":  403,
		"/resource_providers/" + share2:                   403,
		"/allocations/" + onHost2:                         403,
		"/allocations/" + onBoth:                          200,
		"/allocations/" + onNone:                          200,
	} {
		call{method: "GET", path: path, status: want}.as("h1").do(t, h)
	}
}

// TestWhatAHostWrites: each write that a host must not make, beside the one that it may, changes
// nothing.
func TestWhatAHostWrites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type write struct {
		name, method, path, body string
		status                   int
	}
	post := func(name, body string, status int) write {
		return write{name, "POST", "/resource_providers", body, status}
	}
	put := func(name, uuid, what, body string, status int) write {
		return write{name, "PUT", "/resource_providers/" + uuid + what, body, status}
	}
	allocate := func(name, consumer, allocations, generation string, status int) write {
		return write{name, "PUT", "/allocations/" + consumer, holding(allocations, generation), status}
	}
	reshape := func(name, inventories, allocations string, status int) write {
		return write{name, "POST", "/reshaper",
			`{"inventories":{` + inventories + `},"allocations":{` + allocations + `}}`, status}
	}
	inv := func(provider, generation string, classes ...string) string {
		parts := make([]string, len(classes))
		for i, class := range classes {
			parts[i] = `"` + class + `":{"total":100}`
		}
		return `"` + provider + `":{"resource_provider_generation":` + generation + `,"inventories":{` +
			strings.Join(parts, ",") + `}}`
	}
	consumer := func(uuid, allocations, generation string) string {
		return `"` + uuid + `":` + holding(allocations, generation)
	}
	for _, w := range []write{
		post("a root with the host's name", `{"name":"h1","uuid":"`+spare1+`"}`, 200),
		post("a root of a node that its certificate does not have", `{"name":"h1","uuid":"`+nowhere+`"}`, 403),
		post("a root with another host's name", `{"name":"h7","uuid":"`+spare1+`"}`, 403),
		post("a root with a name that begins as the host's", `{"name":"h10","uuid":"`+spare1+`"}`, 403),
		post("a root with the name of another host that exists", `{"name":"h2","uuid":"`+spare1+`"}`, 403),
		post("a root with the uuid of another host", `{"name":"h1","uuid":"`+root2+`"}`, 403),
		post("a child of its root", `{"name":"h1.example.com_NUMA1","uuid":"`+
			nowhere+`","parent_provider_uuid":"`+root1+`"}`, 200),
		post("a child with a name that a host could have",
			`{"name":"h7","uuid":"`+nowhere+`","parent_provider_uuid":"`+root1+`"}`, 403),
		post("a child of another host", `{"name":"h1_gift","uuid":"`+nowhere+`","parent_provider_uuid":"`+root2+`"}`,
			403),
		put("a name of its own", root1, "", `{"name":"h1"}`, 200),
		put("a name of another host", root1, "", `{"name":"h7"}`, 403),
		put("a root made of a child", numa1, "", `{"name":"h1.example.com_NUMA0","parent_provider_uuid":null}`, 403),
		put("its child into a tree of another host",
			numa1, "", `{"name":"h1.example.com_NUMA0","parent_provider_uuid":"`+root2+`"}`, 403),
		put("its root into a tree of another host",
			root1, "", `{"name":"h1.example.com","parent_provider_uuid":"`+root2+`"}`, 403),
		put("the root of another host into its tree",
			root2, "", `{"name":"h2","parent_provider_uuid":"`+root1+`"}`, 403),
		put("the root of another host with its own name", root2, "", `{"name":"h1"}`, 403),
		put("a sharing provider with its own name", share1, "", `{"name":"h1"}`, 403),
		put("the trait that shares", root1, "/traits",
			`{"resource_provider_generation":5,"traits":["MISC_SHARES_VIA_AGGREGATE"]}`, 403),
		put("other traits", root1, "/traits", `{"resource_provider_generation":5,"traits":["COMPUTE_NODE"]}`, 200),
		put("the traits of a sharing provider",
			share1, "/traits", `{"resource_provider_generation":5,"traits":[]}`, 403),
		put("its aggregates as they are",
			root1, "/aggregates", `{"resource_provider_generation":5,"aggregates":["`+agg1+`"]}`, 200),
		put("another aggregate", root1, "/aggregates",
			`{"resource_provider_generation":5,"aggregates":["`+agg1+`","`+agg2+`"]}`, 403),
		put("no aggregate", root1, "/aggregates", `{"resource_provider_generation":5,"aggregates":[]}`, 403),
		put("the same aggregates of a provider of another host",
			root2, "/aggregates", `{"resource_provider_generation":5,"aggregates":["`+agg2+`"]}`, 403),
		put("a provider of another host, with a generation of long ago",
			root2, "/inventories", `{"resource_provider_generation":0,"inventories":{}}`, 403),

		allocate("healing", onNone, allocated(root1, "VCPU", 1), "null", 403), // unless a rule allows it
		allocate("healing on a sharing provider, too",
			onNone, allocated(root1, "VCPU", 1, share1, "DISK_GB", 1), "null", 403),
		allocate("healing on another host", onNone, allocated(root2, "VCPU", 1), "null", 403),
		allocate("a move in its tree", onHost1, allocated(numa1, "VCPU", 2, "numa", "MEMORY_MB", 1), "1", 400),
		allocate("a move between its providers", onHost1, allocated(numa1, "VCPU", 2, share1, "DISK_GB", 10), "1", 204),
		allocate("less", onHost1, allocated(root1, "VCPU", 1, numa1, "MEMORY_MB", 64, share1, "DISK_GB", 10), "1", 204),
		allocate("less of what is shared, too", onHost1, allocated(root1, "VCPU", 1, share1, "DISK_GB", 9), "1", 204),
		allocate("nothing", onHost1, `{}`, "1", 204),
		allocate("more", onHost1, allocated(root1, "VCPU", 3, numa1, "MEMORY_MB", 64, share1, "DISK_GB", 10), "1", 403),
		allocate("more of what is shared", onHost1, allocated(root1, "VCPU", 2, share1, "DISK_GB", 11), "1", 403),
		allocate("another class", onHost1, allocated(root1, "MEMORY_MB", 65, share1, "DISK_GB", 10), "1", 403),
		allocate("something of another host", onHost1, allocated(root1, "VCPU", 2, root2, "VCPU", 1), "1", 403),
		allocate("too much of another host", onHost1, allocated(root1, "VCPU", 2, root2, "VCPU", 100000), "1", 403),
		allocate("what is on another host", onHost2, allocated(root2, "VCPU", 1, share2, "DISK_GB", 5), "1", 403),
		allocate("what is on another host, with a generation of long ago", onHost2, `{}`, "7", 403),
		allocate("its part of what is on two hosts",
			onBoth, allocated(root2, "VCPU", 4, share1, "DISK_GB", 1), "1", 204),
		allocate("its part, and what is shared, of what is on two hosts",
			onBoth, allocated(root2, "VCPU", 4), "1", 403),
		allocate("all of what is on two hosts", onBoth, `{}`, "1", 403),
		allocate("less on the other host", onBoth,
			allocated(root1, "VCPU", 4, root2, "VCPU", 3, share1, "DISK_GB", 1), "1", 403),
		{"another project", "PUT", "/allocations/" +
			onHost1, strings.Replace(holding(allocated(root1, "VCPU", 2, share1, "DISK_GB", 10), "1"),
			`"proj"`, `"mine"`, 1), 403},
		{"another user", "PUT", "/allocations/" + onHost1,
			strings.Replace(holding(allocated(root1, "VCPU", 2, share1, "DISK_GB", 10), "1"), `"user"`, `"me"`, 1),
			403},
		{"another type", "PUT", "/allocations/" + onHost1,
			strings.Replace(holding(allocated(root1, "VCPU", 2, share1, "DISK_GB", 10), "1"),
				"INSTANCE", "MIGRATION", 1), 403},
		{"all of one on two hosts", "DELETE", "/allocations/" + onBoth, "", 403},
		{"of two consumers one of another host", "POST",
			"/allocations", `{` + consumer(onHost1, allocated(root1, "VCPU", 1, share1, "DISK_GB", 10), "1") + `,` +
				consumer(onHost2, `{}`, "1") + `}`, 403},

		reshape("a reshape", inv(root1, "5", "VCPU")+","+inv(numa1, "2", "VCPU", "MEMORY_MB"),
			consumer(onHost1, allocated(numa1, "MEMORY_MB", 64, root1, "VCPU", 2, share1, "DISK_GB", 10), "1"), 204),
		reshape("a reshape into another class", inv(root1, "5", "PCPU", "VCPU", "MEMORY_MB"),
			consumer(onHost1, allocated(numa1, "MEMORY_MB", 64, root1, "PCPU", 2, share1, "DISK_GB", 10), "1"), 403),
		reshape("a reshape that exchanges amounts of classes", inv(root1, "5", "VCPU", "MEMORY_MB"),
			consumer(onHost1, allocated(root1, "VCPU", 64, numa1, "MEMORY_MB", 2, share1, "DISK_GB", 10), "1"), 403),
		reshape("a reshape that loses a class", inv(root1, "5", "VCPU", "MEMORY_MB"),
			consumer(onHost1, allocated(root1, "VCPU", 2, share1, "DISK_GB", 10), "1"), 403),
		reshape("a reshape that releases a consumer",
			inv(root1, "5", "VCPU", "MEMORY_MB"), consumer(onHost1, `{}`, "1"), 403),
		reshape("a reshape into more", inv(root1, "5", "PCPU", "VCPU", "MEMORY_MB"),
			consumer(onHost1, allocated(numa1, "MEMORY_MB", 64, root1, "PCPU", 3, share1, "DISK_GB", 10), "1"), 403),
		reshape("the same inventory of another host", inv(root2, "5", "VCPU", "MEMORY_MB"), "", 403),
		reshape("that, with a consumer on both", inv(root2, "5", "VCPU", "MEMORY_MB"),
			consumer(onBoth, allocated(root1, "VCPU", 4, root2, "VCPU", 4, share1, "DISK_GB", 1), "1"), 403),
		reshape("a consumer of another host", inv(root1, "5", "VCPU", "MEMORY_MB"),
			consumer(onHost2, allocated(root2, "VCPU", 1, share2, "DISK_GB", 5), "1"), 403),
	} {
		dbservers.Case(t, w.name, func(t *testing.T) {
			h, l := hostsWorld(t)
			p1, _ := l.Current().Provider(root1)
			p2, _ := l.Current().Provider(numa1)
			if p1.Generation != 5 || p2.Generation != 2 {
				t.Fatalf("the generations are %d and %d, and the writes of this test name 5 and 2",
					p1.Generation, p2.Generation)
			}
			before := dumpOf(t, l)
			answer := call{method: w.method, path: w.path, body: w.body}.as("h1").send(h)
			if answer.Code != w.status {
				t.Errorf("status %d, want %d: %s", answer.Code, w.status, answer.Body)
			}
			if diff := cmp.Diff(before, dumpOf(t, l)); answer.Code >= 400 && diff != "" {
				t.Errorf("it was refused, and changed:\n%s", diff)
			}
			if answer.Code == 403 && strings.Contains(answer.Body.String(), "generation") {
				t.Errorf("the answer tells of others: %s", answer.Body)
			}
		})
	}
}

// BenchmarkHosts is what the rules for hosts cost: writes of a service user and of a host, in a
// cloud of 1,000 hosts.
func BenchmarkHosts(b *testing.B) {
	for _, who := range []string{"admin", "h1"} {
		for _, what := range []string{"inventories", "allocations"} {
			b.Run(what+"/"+who, func(b *testing.B) {
				now := clock
				h, l := hostsWorld(b, func(c *api.Config) { c.Now = func() time.Time { return now } })
				for i := range 1000 {
					call{method: "POST", path: "/resource_providers", version: "1.39",
						body: fmt.Sprintf(`{"name":"other%d"}`, i), status: 200}.do(b, h)
				}
				b.ResetTimer()
				for i := range b.N {
					b.StopTimer()
					now = now.Add(time.Second) // a host may always write once in this time
					p, _ := l.Current().Provider(root1)
					c, _ := l.Current().Consumer(onHost1)
					write := call{method: "PUT", version: "1.39", path: "/resource_providers/" + root1 + "/inventories",
						status: 200, headers: []string{"X-Auth-Token: " + who},
						body: fmt.Sprintf(
							`{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":%d},`+
								`"MEMORY_MB":{"total":100}}}`, p.Generation, 100+i%2)}
					if what == "allocations" {
						write.path, write.status = "/allocations/"+onHost1, 204
						on := []string{root1, numa1}[i%2] // the same again would change nothing
						write.body = holding(allocated(on, "VCPU", 2, share1, "DISK_GB", 10), fmt.Sprint(c.Generation))
					}
					b.StartTimer()
					write.do(b, h)
				}
			})
		}
	}
}
