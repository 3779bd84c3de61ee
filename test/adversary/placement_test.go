// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// What is in the Placement of the tests: a tree of each host, and a guest on it.
const (
	child          = "11111111-1111-4111-8111-111111111112"
	victimGuest    = "aaaaaaaa-1111-4111-8111-111111111111"
	attackerGuest  = "aaaaaaaa-2222-4222-8222-222222222222"
	microversion   = "placement 1.39"
	victimProvider = "/resource_providers/" + victimNode
	childProvider  = "/resource_providers/" + child
)

// holds is a set of allocations of a consumer on one provider.
func holds(provider string, vcpus int, generation any) object {
	return object{
		"allocations": object{provider: object{"resources": object{"VCPU": vcpus}}}, "consumer_generation": generation,
		"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE",
	}
}

var vcpus = object{"total": 10, "allocation_ratio": 1.0, "reserved": 0, "min_unit": 1, "max_unit": 10, "step_size": 1}

// offers replaces the inventory of a provider.
func offers(provider string, generation int, vcpus object) asked {
	body := object{"resource_provider_generation": generation, "inventories": object{"VCPU": vcpus}}
	return put(provider+"/inventories", body)
}

// fixture makes what is there, as the admin.
var fixture = []asked{
	post("/resource_providers", object{"name": victim, "uuid": victimNode}),
	post("/resource_providers", object{"name": victim + "_numa0", "uuid": child, "parent_provider_uuid": victimNode}),
	post("/resource_providers", object{"name": attacker, "uuid": attackerNode}),
	offers(victimProvider, 0, vcpus),
	offers(ownProvider, 0, vcpus),
	put("/allocations/"+victimGuest, holds(victimNode, 4, nil)),
	put("/allocations/"+attackerGuest, holds(attackerNode, 4, nil)),
	put("/traits/CUSTOM_SEEN", nil),
	put("/resource_classes/CUSTOM_SEEN", nil),
	post("/hosts/"+victim+"/admission", object{"traits": []string{"CUSTOM_SEEN"}}),
}

// onVictim are the requests to calls of Placement about what is the victim's, as its agent would
// make them, where these have a body, or another path than ofVictim makes. The generation of its
// root is 2: an inventory and an allocation.
var onVictim = map[string]asked{
	"GET /resource_providers": {path: "/resource_providers?in_tree=" + victimNode},
	"POST /resource_providers": {body: object{"name": victim + "_numa1",
		"parent_provider_uuid": victimNode}},
	"PUT /resource_providers/{uuid}":    {body: object{"name": victim + ".example.com"}},
	"DELETE /resource_providers/{uuid}": {path: childProvider},
	"POST /resource_providers/{uuid}/inventories": {path: childProvider + "/inventories",
		body: object{"resource_class": "VCPU", "total": 4}},
	"PUT /resource_providers/{uuid}/inventories":         offers(victimProvider, 2, object{"total": 8}),
	"DELETE /resource_providers/{uuid}/inventories":      {path: childProvider + "/inventories"},
	"PUT /resource_providers/{uuid}/inventories/{class}": {body: object{"resource_provider_generation": 2, "total": 9}},
	"PUT /resource_providers/{uuid}/aggregates": {body: object{"resource_provider_generation": 2,
		"aggregates": []string{}}},
	"PUT /resource_providers/{uuid}/traits": {body: object{"resource_provider_generation": 2,
		"traits": []string{"CUSTOM_SEEN"}}},
	"POST /resource_classes":             {body: object{"name": "CUSTOM_NEW"}},
	"PUT /resource_classes/{name}":       {path: "/resource_classes/CUSTOM_NEW"},
	"GET /traits":                        {path: "/traits?name=in:CUSTOM_SEEN"},
	"PUT /traits/{name}":                 {path: "/traits/CUSTOM_NEW"},
	"POST /allocations":                  {body: object{victimGuest: holds(victimNode, 3, 1)}},
	"PUT /allocations/{consumer}":        {body: holds(victimNode, 2, 1)},
	"GET /allocation_candidates":         {path: "/allocation_candidates?resources=VCPU:1"},
	"GET /allocation_candidates/explain": {path: "/allocation_candidates/explain?resources=VCPU:1"},
	"POST /hosts/{host}/admission":       {body: object{"classes": object{"VCPU": 2_000_000_000}}},
	"GET /usages":                        {path: "/usages?project_id=p"},
	"POST /reshaper": {body: object{
		"inventories": object{
			victimNode: object{"resource_provider_generation": 2, "inventories": object{}},
			child:      object{"resource_provider_generation": 0, "inventories": object{"VCPU": vcpus}},
		},
		"allocations": object{victimGuest: holds(child, 4, 1)},
	}},
}

var ofVictim = strings.NewReplacer("{uuid}", victimNode,
	"{class}", "VCPU", "{name}", "CUSTOM_SEEN", "{consumer}", victimGuest, "{host}", victim)

// Calls of hosts: those about its own tree only, and those about names that
// all providers share. The agent of a host makes no others.
var (
	ofTheOwner = []string{
		"GET /resource_providers", "POST /resource_providers", "GET /resource_providers/{uuid}",
		"PUT /resource_providers/{uuid}", "DELETE /resource_providers/{uuid}",
		"GET /resource_providers/{uuid}/inventories", "POST /resource_providers/{uuid}/inventories",
		"PUT /resource_providers/{uuid}/inventories",
		"DELETE /resource_providers/{uuid}/inventories", "GET /resource_providers/{uuid}/inventories/{class}",
		"PUT /resource_providers/{uuid}/inventories/{class}",
		"DELETE /resource_providers/{uuid}/inventories/{class}", "GET /resource_providers/{uuid}/usages",
		"GET /resource_providers/{uuid}/aggregates",
		"PUT /resource_providers/{uuid}/aggregates", "GET /resource_providers/{uuid}/traits",
		"PUT /resource_providers/{uuid}/traits", "DELETE /resource_providers/{uuid}/traits",
		"GET /resource_providers/{uuid}/allocations", "POST /allocations", "GET /allocations/{consumer}",
		"PUT /allocations/{consumer}", "DELETE /allocations/{consumer}", "POST /reshaper",
	}
	ofAnyHost = []string{
		"GET /", "GET /resource_classes", "POST /resource_classes", "GET /resource_classes/{name}",
		"PUT /resource_classes/{name}", "GET /traits", "GET /traits/{name}", "PUT /traits/{name}",
	}
)

// rule says what Placement's rules are for an identity and a call.
func rule(policy api.Policy, i identity, call api.Call) outcome {
	key := call.Method + " " + call.Path
	who := osapi.Principal{User: i.user, Project: i.user, Roles: []string{i.role}}
	project := ""
	if call.Path == "/usages" {
		call.Action, project = api.ShowUsages, "p"
	}
	if call.Method == http.MethodPut && call.Path == "/resource_classes/{name}" {
		call.Action = api.CreateClass
	}
	switch {
	case i.handshake:
		return noConnection
	case key == "GET /":
		return answered
	case i.unknown, i.api: // the compute API has a token for Placement
		return unknown
	case i.host == victim && slices.Contains(ofTheOwner, key), i.host != "" && slices.Contains(ofAnyHost, key):
		return answered
	case i.host == "" && policy.Allows(call.Action, &who, project):
		return answered
	}
	return forbidden
}

// placementOf is a Placement with what the tests need to be there.
type placementOf struct {
	t     testing.TB
	url   string
	admin func(asked) *world.Answer
	began string // its state with what tests need
}

// servePlacement serves a Placement of the site until the test ends.
func (s *site) servePlacement(t testing.TB) *placementOf {
	t.Helper()
	return s.servePlacementWith(t, s.denied())
}

// servePlacementWith has another deny list.
func (s *site) servePlacementWith(t testing.TB, denied *pki.DenyFile) *placementOf {
	t.Helper()
	certFile, keyFile := s.server("placement")
	service := testproc.Try(placement.New(t.Context(), placement.Config{
		StateDir: t.TempDir(), Logger: nopLog,
		Denied: denied, Placement: api.Options{HostCapacityFactor: 2, HostAdmissionWindow: time.Hour},
		Auth: placement.Auth{Strategy: placement.Token, TokenFile: s.tokenFile("placement-tokens",
			"host", victim, "host", attacker, "host", stolen, "service", "nova", "admin", "admin", "member", "alice",
			"service,admin", "operator")},
		TLS: osapi.TLSFiles{CertFile: certFile, KeyFile: keyFile, HostCAFile: s.file("hosts.pem", s.ca.PEM())},
	})).Or(t)
	url := serve(t, service.Serve, service.Close)
	operator := identity{name: "operator", token: "token-of-operator"}
	c := s.client(operator)
	p := &placementOf{t: t, url: url, admin: func(a asked) *world.Answer {
		t.Helper()
		return succeed(t, c, url, operator, a)
	}}
	for _, a := range fixture {
		p.admin(a)
	}
	p.began = p.state()
	return p
}

// serve serves on an address of this machine until the test ends, and returns its URL.
func serve(t testing.TB, run func(context.Context, net.Listener) error, ends func() error) string {
	t.Helper()
	l := testproc.Try((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- run(ctx, l) }()
	t.Cleanup(func() {
		stop()
		testproc.NoError(t, errors.Join(<-served, ends()))
	})
	return "https://" + l.Addr().String()
}

// state is all that Placement has, for comparison.
func (p *placementOf) state() string {
	p.t.Helper()
	var text strings.Builder
	for _, path := range []string{
		"/resource_providers", "/resource_classes", "/traits?name=startswith:CUSTOM_", victimProvider + "/inventories",
		victimProvider + "/traits", victimProvider + "/aggregates",
		"/resource_providers/" + attackerNode + "/inventories", "/allocations/" + victimGuest,
		"/allocations/" + attackerGuest,
	} {
		fmt.Fprintf(&text, "%s\n", p.admin(get(path)).Raw)
	}
	return text.String()
}

// changed is how the state differs from that in the beginning.
func (p *placementOf) changed() string {
	p.t.Helper()
	return gocmp.Diff(p.began, p.state())
}

// TestPlacement makes each call of Placement about a host's tree as each identity.
func TestPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Heavy)
	s := newSite(t)
	policy := testproc.Try(api.NewPolicy(api.Secure)).Or(t)
	identities := s.identities()
	heads := []string{"CALL"}
	clients := make([]*http.Client, len(identities))
	for n, i := range identities {
		heads, clients[n] = append(heads, i.name), s.client(i)
	}
	out := table{heads}
	p := s.servePlacement(t)
	for _, call := range api.Calls() {
		key := call.Method + " " + call.Path
		a, known := onVictim[key]
		a.method, a.path = call.Method, cmp.Or(a.path, ofVictim.Replace(call.Path))
		writes := call.Method == http.MethodPut || call.Method == http.MethodPost
		if writes && !known || strings.Contains(a.path, "{") {
			t.Errorf("no request is known for the call %s", key)
			continue
		}
		row := []string{key}
		for n, i := range identities {
			got, answer := send(t, clients[n], p.url, i, a)
			row = append(row, string(got))
			if want := rule(policy, i, call); got != want {
				t.Errorf("%s as %s: %s, want %s: %s", key, i.name, got, want, answer)
			}
			if got == forbidden && i.host != "" && reason(answer) == "" {
				t.Errorf("%s as %s: no reason: %s", key, i.name, answer)
			}
			if change := p.changed(); change != "" {
				if got != answered {
					t.Errorf("%s as %s is refused, and changed Placement:\n%s", key, i.name, change)
				}
				p = s.servePlacement(t)
			}
		}
		out = append(out, row)
	}
	out.compare(t, "placement.txt")
}

// reason is the detail of an error of Placement.
func reason(a *world.Answer) string {
	var body struct{ Errors []struct{ Detail string } }
	if json.Unmarshal(a.Raw, &body) != nil || len(body.Errors) == 0 {
		return ""
	}
	return body.Errors[0].Detail
}
