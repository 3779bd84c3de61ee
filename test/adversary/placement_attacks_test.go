// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	otherNode     = "33333333-3333-4333-8333-333333333333"
	newGuest      = "aaaaaaaa-3333-4333-8333-333333333333"
	ownProvider   = "/resource_providers/" + attackerNode
	someAggregate = "99999999-9999-4999-8999-999999999999"
)

// with changes some members of an object.
func with(o object, changes object) object {
	out := object{}
	for _, from := range []object{o, changes} {
		for name, value := range from {
			out[name] = value
		}
	}
	return out
}

func resources(vcpus int) object { return object{"resources": object{"VCPU": vcpus}} }

// onPlacement is what the holder of a host's credential may try beyond the calls about another
// host's tree: whatever makes something of its own count for others, or of others for itself. All
// of it is refused with a reason, and changes nothing.
var onPlacement = map[string]asked{
	"take the name of a host that comes later":   {method: "POST", path: "/resource_providers", body: object{"name": "h3"}},
	"take a name that begins like its own":       {method: "POST", path: "/resource_providers", body: object{"name": "h20"}},
	"rename its root to that of a later host":    {method: "PUT", path: ownProvider, body: object{"name": "h3"}},
	"put its tree below that of another host":    {method: "PUT", path: ownProvider, body: object{"name": attacker, "parent_provider_uuid": victimNode}},
	"make a child in the tree of another host":   {method: "POST", path: "/resource_providers", body: object{"name": "h2_child", "parent_provider_uuid": victimNode}},
	"pull a child of another host into its tree": {method: "PUT", path: "/resource_providers/" + child, body: object{"name": "h2_child", "parent_provider_uuid": attackerNode}},
	"share its disk with others":                 {method: "PUT", path: ownProvider + "/traits", body: object{"resource_provider_generation": 2, "traits": []string{"MISC_SHARES_VIA_AGGREGATE"}}},
	"join an aggregate":                          {method: "PUT", path: ownProvider + "/aggregates", body: object{"resource_provider_generation": 2, "aggregates": []string{someAggregate}}},
	"fill another host with a guest":             {method: "PUT", path: "/allocations/" + newGuest, body: holds(victimNode, 6, nil)},
	"ask what another host has left":             {method: "PUT", path: "/allocations/" + newGuest, body: holds(victimNode, 7, nil)},
	"ask which generation another host has":      {method: "POST", path: "/reshaper", body: object{"inventories": object{victimNode: object{"resource_provider_generation": 77, "inventories": object{}}}, "allocations": object{}}},
	"spread its guest onto another host": {method: "PUT", path: "/allocations/" + attackerGuest, body: with(holds(attackerNode, 4, 1),
		object{"allocations": object{attackerNode: resources(4), victimNode: resources(1)}})},
	"move its guest to another host":            {method: "PUT", path: "/allocations/" + attackerGuest, body: holds(victimNode, 4, 1)},
	"move a guest of another host to itself":    {method: "PUT", path: "/allocations/" + victimGuest, body: holds(attackerNode, 4, 1)},
	"let its guest grow":                        {method: "PUT", path: "/allocations/" + attackerGuest, body: holds(attackerNode, 5, 1)},
	"charge its guest to another project":       {method: "PUT", path: "/allocations/" + attackerGuest, body: with(holds(attackerNode, 4, 1), object{"project_id": "rich"})},
	"give its guest to another user":            {method: "PUT", path: "/allocations/" + attackerGuest, body: with(holds(attackerNode, 4, 1), object{"user_id": "other"})},
	"make its guest something else":             {method: "PUT", path: "/allocations/" + attackerGuest, body: with(holds(attackerNode, 4, 1), object{"consumer_type": "MIGRATION"})},
	"free a guest of another host with its own": {method: "POST", path: "/allocations", body: object{attackerGuest: holds(attackerNode, 3, 1), victimGuest: with(holds(victimNode, 4, 1), object{"allocations": object{}})}},
	"reshape the tree of another host": {method: "POST", path: "/reshaper", body: object{
		"inventories": object{victimNode: object{"resource_provider_generation": 2, "inventories": object{}}}, "allocations": object{victimGuest: with(holds(victimNode, 4, 1), object{"allocations": object{}})},
	}},
	"reshape a guest of another host into its tree": {method: "POST", path: "/reshaper", body: object{
		"inventories": object{attackerNode: object{"resource_provider_generation": 2, "inventories": object{"VCPU": vcpus}}}, "allocations": object{victimGuest: holds(attackerNode, 4, 1)},
	}},
	"let its guest grow in a reshape": {method: "POST", path: "/reshaper", body: object{
		"inventories": object{attackerNode: object{"resource_provider_generation": 2, "inventories": object{"VCPU": vcpus}}}, "allocations": object{attackerGuest: holds(attackerNode, 9, 1)},
	}},
	"list all hosts":                 {method: "GET", path: "/resource_providers"},
	"find a host by its name":        {method: "GET", path: "/resource_providers?name=" + victim},
	"find a host by its uuid":        {method: "GET", path: "/resource_providers?uuid=" + victimNode},
	"find providers with resources":  {method: "GET", path: "/resource_providers?resources=VCPU:1"},
	"find providers with a trait":    {method: "GET", path: "/resource_providers?required=!CUSTOM_SEEN"},
	"find providers of an aggregate": {method: "GET", path: "/resource_providers?member_of=" + someAggregate},
	"read a tree with its own name":  {method: "GET", path: "/resource_providers?name=" + attacker + "&in_tree=" + victimNode},
	"read what a project uses":       {method: "GET", path: "/usages?project_id=p&user_id=u"},
	"read where a guest is":          {method: "GET", path: "/allocations/" + victimGuest},
	"remove a trait that others use": {method: "DELETE", path: "/traits/CUSTOM_SEEN"},
	"remove a class that others use": {method: "DELETE", path: "/resource_classes/CUSTOM_SEEN"},
	"rename a class":                 {method: "PUT", path: "/resource_classes/CUSTOM_SEEN", body: object{"name": "CUSTOM_MINE"}, headers: map[string]string{"OpenStack-API-Version": "placement 1.2"}},
	"write as before consumers had owners": {method: "PUT", path: "/allocations/" + newGuest, body: object{"allocations": []object{{"resource_provider": object{"uuid": victimNode}, "resources": object{"VCPU": 1}}}},
		headers: map[string]string{"OpenStack-API-Version": "placement 1.7"}},
}

// onPlacementWithCertificate are those that a certificate with its nodes makes impossible, and a
// token does not: it says nothing about nodes.
var onPlacementWithCertificate = map[string]asked{
	"make a root with the uuid of a later node": {method: "POST", path: "/resource_providers", body: object{"name": attacker + ".example.com", "uuid": otherNode}},
}

// TestAttacksOnPlacement tries all of it with the certificate and with the token of the attacker.
func TestAttacksOnPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	p := s.servePlacement(t)
	before := p.state()
	for _, i := range s.identities() {
		if i.host != attacker {
			continue
		}
		c := s.client(i)
		try := func(name string, a asked) {
			if a.headers == nil {
				a.headers = map[string]string{"OpenStack-API-Version": microversion}
			}
			got, text := send(t, c, p.url, i, a)
			if got != forbidden || a.headers["OpenStack-API-Version"] == microversion && reason(text) == "" {
				t.Errorf("%s, as %s: %s %s", name, i.name, got, text)
			}
			if after := p.state(); after != before {
				t.Errorf("%s, as %s, changed Placement:\n%s", name, i.name, cmp.Diff(before, after))
				p = s.servePlacement(t)
				before = p.state()
			}
		}
		for name, a := range onPlacement {
			try(name, a)
		}
		if i.pair != nil {
			for name, a := range onPlacementWithCertificate {
				try(name, a)
			}
		}
	}
}

// inConflict are writes that are accepted, because a host may move what its guests hold, and that
// must not keep another host from writing. The guest holds something of both hosts.
var inConflict = map[string]func(generation int) asked{
	"repeat the allocations of a guest on two hosts": func(generation int) asked {
		return asked{method: "PUT", path: "/allocations/" + newGuest, body: onTwo(attackerNode, generation)}
	},
	"repeat them with others": func(generation int) asked {
		return asked{method: "POST", path: "/allocations", body: object{newGuest: onTwo(attackerNode, generation)}}
	},
	"move its part of them to and fro": func(generation int) asked {
		return asked{method: "PUT", path: "/allocations/" + newGuest, body: onTwo([]string{attackerNode, otherNode}[generation%2], generation)}
	},
}

// onTwo are allocations on a provider of the attacker and on the victim.
func onTwo(own string, generation any) object {
	return with(holds(own, 1, generation), object{"allocations": object{own: resources(1), victimNode: resources(1)}})
}

// TestAHostKeepsNoOtherFromWriting: while the attacker writes again and again, the victim's write
// that names the generation which it has read is accepted.
func TestAHostKeepsNoOtherFromWriting(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	var as identity
	for _, i := range s.identities() {
		if i.host == attacker && i.pair != nil {
			as = i
		}
	}
	c, ours := s.client(as), holders(s)["certificate"]
	headers := map[string]string{"OpenStack-API-Version": microversion}
	for name, attack := range inConflict {
		p := s.servePlacement(t)
		p.admin(asked{method: "POST", path: "/resource_providers", body: object{"name": attacker + "_a", "uuid": otherNode, "parent_provider_uuid": attackerNode}})
		p.admin(asked{method: "PUT", path: "/resource_providers/" + otherNode + "/inventories", body: object{"resource_provider_generation": 0, "inventories": object{"VCPU": vcpus}}})
		p.admin(asked{method: "PUT", path: "/allocations/" + newGuest, body: onTwo(attackerNode, nil)})
		var read struct {
			Generation int `json:"resource_provider_generation"`
		}
		_, text, _ := strings.Cut(p.admin(asked{method: "GET", path: victimProvider + "/inventories"}), "{")
		check(t, json.Unmarshal([]byte("{"+text), &read))
		for range 10 {
			var guest struct {
				Generation int `json:"consumer_generation"`
			}
			_, text, _ = strings.Cut(p.admin(asked{method: "GET", path: "/allocations/" + newGuest}), "{")
			check(t, json.Unmarshal([]byte("{"+text), &guest))
			a := attack(guest.Generation)
			a.headers = headers
			if got, text := send(t, c, p.url, as, a); got != answered || text[:3] != "204" {
				t.Errorf("%s: %s %s", name, got, text)
			}
		}
		write := asked{method: "PUT", path: victimProvider + "/inventories", headers: headers,
			body: object{"resource_provider_generation": read.Generation, "inventories": object{"VCPU": object{"total": 11}}}}
		if got, text := send(t, s.client(ours), p.url, ours, write); got != answered || text[:3] != "200" {
			t.Errorf("%s: the write of the other host: %s %s", name, got, text)
		}
	}
}

// TestAHostWritesWithoutEnd: a credential that is used to write in a loop, refused or not, is soon
// answered with 429. The other host's writes go on.
func TestAHostWritesWithoutEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	headers := map[string]string{"OpenStack-API-Version": microversion}
	traits := make([]string, 10_000)
	for n := range traits {
		traits[n] = fmt.Sprintf("CUSTOM_%s_%d", strings.Repeat("X", 200), n)
	}
	for _, i := range s.identities() {
		if i.host != attacker {
			continue
		}
		p, c := s.servePlacement(t), s.client(i)
		a := asked{method: "PUT", path: ownProvider + "/traits", headers: headers, body: object{"resource_provider_generation": 2, "traits": traits}}
		text, sent := "", 0
		for sent = 0; sent < 50 && !strings.HasPrefix(text, "429"); sent++ {
			_, text = send(t, c, p.url, i, a)
		}
		if sent < 3 || !strings.HasPrefix(text, "429") || reason(text[strings.Index(text, "{"):]) == "" {
			t.Errorf("as %s, after %d writes of 2 MB: %.200s", i.name, sent, text)
		}
		ours := holders(s)["certificate"]
		write := asked{method: "PUT", path: victimProvider + "/inventories", headers: headers, body: object{"resource_provider_generation": 2, "inventories": object{"VCPU": object{"total": 11}}}}
		if got, text := send(t, s.client(ours), p.url, ours, write); got != answered || text[:3] != "200" {
			t.Errorf("the write of the other host: %s %s", got, text)
		}
	}
}
