// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	otherNode     = "33333333-3333-4333-8333-333333333333"
	newGuest      = "aaaaaaaa-3333-4333-8333-333333333333"
	otherGuest    = "aaaaaaaa-4444-4444-8444-444444444444"
	ownProvider   = "/resource_providers/" + attackerNode
	someAggregate = "99999999-9999-4999-8999-999999999999"
)

// with changes some members of an object.
func with(o object, changes object) object {
	out := maps.Clone(o)
	maps.Copy(out, changes)
	return out
}

func resources(vcpus int) object { return object{"resources": object{"VCPU": vcpus}} }

// freed is the victim's guest without what it holds.
var freed = with(holds(victimNode, 4, 1), object{"allocations": object{}})

// reshape is a reshape of one provider.
func reshape(node string, generation int, inventories, allocations object) asked {
	is := object{"resource_provider_generation": generation, "inventories": inventories}
	return post("/reshaper", object{"inventories": object{node: is}, "allocations": allocations})
}

// onPlacement is what the holder of a host's credential may try beyond the calls about another
// host's tree: whatever makes something of its own count for others, or of others for itself. All
// of it is refused with a reason, and changes nothing.
var onPlacement = map[string]asked{
	"take the name of a host that comes later": post("/resource_providers", object{"name": "h3"}),
	"take a name that begins like its own":     post("/resource_providers", object{"name": "h20"}),
	"rename its root to that of a later host":  put(ownProvider, object{"name": "h3"}),
	"put its tree below that of another host": put(ownProvider,
		object{"name": attacker, "parent_provider_uuid": victimNode}),
	"make a child in the tree of another host": post(
		"/resource_providers", object{"name": "h2_child", "parent_provider_uuid": victimNode}),
	"pull a child of another host into its tree": put("/resource_providers/"+child,
		object{"name": "h2_child", "parent_provider_uuid": attackerNode}),
	"share its disk with others": put(ownProvider+"/traits",
		object{"resource_provider_generation": 2, "traits": []string{"MISC_SHARES_VIA_AGGREGATE"}}),
	"join an aggregate": put(ownProvider+"/aggregates",
		object{"resource_provider_generation": 2, "aggregates": []string{someAggregate}}),
	"fill another host with a guest":        put("/allocations/"+newGuest, holds(victimNode, 6, nil)),
	"ask what another host has left":        put("/allocations/"+newGuest, holds(victimNode, 7, nil)),
	"ask which generation another host has": reshape(victimNode, 77, object{}, object{}),
	"spread its guest onto another host": put("/allocations/"+attackerGuest, with(holds(attackerNode, 4, 1),
		object{"allocations": object{attackerNode: resources(4), victimNode: resources(1)}})),
	"move its guest to another host":         put("/allocations/"+attackerGuest, holds(victimNode, 4, 1)),
	"move a guest of another host to itself": put("/allocations/"+victimGuest, holds(attackerNode, 4, 1)),
	"let its guest grow":                     put("/allocations/"+attackerGuest, holds(attackerNode, 5, 1)),
	"charge its guest to another project": put("/allocations/"+attackerGuest,
		with(holds(attackerNode, 4, 1), object{"project_id": "rich"})),
	"give its guest to another user": put("/allocations/"+attackerGuest,
		with(holds(attackerNode, 4, 1), object{"user_id": "other"})),
	"make its guest something else": put("/allocations/"+attackerGuest,
		with(holds(attackerNode, 4, 1), object{"consumer_type": "MIGRATION"})),
	"free a guest of another host with its own": post(
		"/allocations", object{attackerGuest: holds(attackerNode, 3, 1), victimGuest: freed}),
	"reshape the tree of another host": reshape(victimNode, 2, object{}, object{victimGuest: freed}),
	"reshape a guest of another host into its tree": reshape(attackerNode, 2, object{"VCPU": vcpus},
		object{victimGuest: holds(attackerNode, 4, 1)}),
	"let its guest grow in a reshape": reshape(attackerNode, 2, object{"VCPU": vcpus},
		object{attackerGuest: holds(attackerNode, 9, 1)}),
	"let its guest shrink in a reshape": reshape(attackerNode, 2, object{"VCPU": vcpus},
		object{attackerGuest: holds(attackerNode, 3, 1)}),
	"free its guest in a reshape": reshape(attackerNode, 2, object{"VCPU": vcpus},
		object{attackerGuest: with(holds(attackerNode, 4, 1), object{"allocations": object{}})}),
	"move its guest to another host in a reshape": reshape(attackerNode, 2, object{"VCPU": vcpus},
		object{attackerGuest: holds(victimNode, 4, 1)}),
	"give its guest to another user in a reshape": reshape(attackerNode, 2, object{"VCPU": vcpus},
		object{attackerGuest: with(holds(attackerNode, 4, 1), object{"user_id": "other"})}),
	"fill the quota of a project in a reshape": reshape(attackerNode, 2, object{"VCPU": vcpus},
		object{newGuest: with(holds(attackerNode, 6, nil), object{"project_id": "rich"})}),
	"turn CPUs of its guest into another class": reshape(attackerNode, 2, object{"VCPU": vcpus, "PCPU": vcpus},
		object{attackerGuest: with(holds(attackerNode, 4, 1),
			object{"allocations": object{attackerNode: object{"resources": object{"PCPU": 4}}}})}),
	"fill the quota of a project": put("/allocations/"+
		newGuest, with(holds(attackerNode, 6, nil), object{"project_id": "rich"})),
	"fill it with several guests": post("/allocations", object{
		newGuest:   with(holds(attackerNode, 3, nil), object{"project_id": "rich"}),
		otherGuest: with(holds(attackerNode, 3, nil), object{"project_id": "rich"}),
	}),
	"report more CPUs than there are in the cloud": offers(ownProvider, 2, object{"total": 2_000_000_000}),
	"count its CPUs many times": offers(ownProvider, 2,
		object{"total": 10, "allocation_ratio": 16}),
	"report a class that it never had": put(ownProvider+"/inventories",
		object{"resource_provider_generation": 2, "inventories": object{"VCPU": vcpus, "DISK_GB": vcpus}}),
	"report it with one inventory": post(ownProvider+"/inventories",
		object{"resource_class": "VGPU", "total": 1}),
	"report more CPUs in a reshape": reshape(attackerNode, 2,
		object{"VCPU": object{"total": 2_000_000_000}}, object{}),
	"report a class that it never had in a reshape": reshape(attackerNode, 2,
		object{"VCPU": vcpus, "DISK_GB": vcpus}, object{}),
	"claim a trait of a kind that it never had": put(ownProvider+"/traits",
		object{"resource_provider_generation": 2, "traits": []string{"HW_GPU_API_VULKAN"}}),
	"claim a custom trait": put(ownProvider+"/traits",
		object{"resource_provider_generation": 2, "traits": []string{"CUSTOM_SEEN"}}),
	"state itself what it may report": post("/hosts/"+attacker+"/admission",
		object{"classes": object{"VCPU": 2_000_000_000}}),
	"open the time again in which all is admitted": post("/hosts/"+attacker+"/admission", object{"window": true}),
	"read what another host may report":            get("/hosts/" + victim + "/admission"),
	"list all hosts":                               get("/resource_providers"),
	"find a host by its name":                      get("/resource_providers?name=" + victim),
	"find a host by its uuid":                      get("/resource_providers?uuid=" + victimNode),
	"find providers with resources":                get("/resource_providers?resources=VCPU:1"),
	"find providers with a trait":                  get("/resource_providers?required=!CUSTOM_SEEN"),
	"find providers of an aggregate":               get("/resource_providers?member_of=" + someAggregate),
	"read a tree with its own name": get("/resource_providers?name=" +
		attacker + "&in_tree=" + victimNode),
	"read what a project uses":       get("/usages?project_id=p&user_id=u"),
	"read where a guest is":          get("/allocations/" + victimGuest),
	"remove a trait that others use": {method: "DELETE", path: "/traits/CUSTOM_SEEN"},
	"remove a class that others use": {method: "DELETE", path: "/resource_classes/CUSTOM_SEEN"},
	"rename a class": {"PUT", "/resource_classes/CUSTOM_SEEN",
		object{"name": "CUSTOM_MINE"}, "placement 1.2"},
	"write as before consumers had owners": {"PUT", "/allocations/" + newGuest, object{
		"allocations": []object{{"resource_provider": object{"uuid": victimNode}, "resources": object{"VCPU": 1}}},
	}, "placement 1.7"},
}

// onPlacementWithCertificate are those that a certificate with its nodes makes impossible, and a
// token does not: it says nothing about nodes.
var onPlacementWithCertificate = map[string]asked{
	"make a root with the uuid of a later node": post(
		"/resource_providers", object{"name": attacker + ".example.com", "uuid": otherNode}),
}

// TestAttacksOnPlacement tries all of it with the certificate and with the token of the attacker.
func TestAttacksOnPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	p := s.servePlacement(t)
	for _, i := range s.identities() {
		if i.host != attacker {
			continue
		}
		c := s.client(i)
		try := func(name string, a asked) {
			got, answer := send(t, c, p.url, i, a)
			if got != forbidden || a.version == "" && reason(answer) == "" {
				t.Errorf("%s, as %s: %s", name, i.name, answer)
			}
			if change := p.changed(); change != "" {
				t.Errorf("%s, as %s, changed Placement:\n%s", name, i.name, change)
				p = s.servePlacement(t)
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
		return put("/allocations/"+newGuest, onTwo(attackerNode, generation))
	},
	"repeat them with others": func(generation int) asked {
		return post("/allocations", object{newGuest: onTwo(attackerNode, generation)})
	},
	"move its part of them to and fro": func(generation int) asked {
		return put("/allocations/"+newGuest, onTwo([]string{attackerNode, otherNode}[generation%2], generation))
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
	as := s.as("other host named compute-api")
	c := s.client(as)
	for name, attack := range inConflict {
		p := s.servePlacement(t)
		p.admin(post("/resource_providers", object{"name": attacker + "_a", "uuid": otherNode,
			"parent_provider_uuid": attackerNode}))
		p.admin(offers("/resource_providers/"+otherNode, 0, vcpus))
		p.admin(put("/allocations/"+newGuest, onTwo(attackerNode, nil)))
		var read struct {
			Generation int `json:"resource_provider_generation"`
		}
		p.admin(get(victimProvider+"/inventories")).Into(t, &read)
		for range 10 {
			var guest struct {
				Generation int `json:"consumer_generation"`
			}
			p.admin(get("/allocations/"+newGuest)).Into(t, &guest)
			_, answer := send(t, c, p.url, as, attack(guest.Generation))
			testproc.Equal(t, answer.Code, http.StatusNoContent, "%s: %s: %d", name, answer)
		}
		p.victimWrites(s, read.Generation)
	}
}

// victimWrites checks that the victim can write, at the generation that it has read.
func (p *placementOf) victimWrites(s *site, generation int) {
	p.t.Helper()
	i := s.as("host")
	succeed(p.t, s.client(i), p.url, i, offers(victimProvider, generation, object{"total": 11})).Is(p.t, http.StatusOK)
}

// TestAHostWritesWithoutEnd: a credential that is used to write in a loop, refused or not, is soon
// answered with 429. The other host's writes go on.
func TestAHostWritesWithoutEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	traits := make([]string, 10_000)
	for n := range traits {
		traits[n] = fmt.Sprintf("CUSTOM_%s_%d", strings.Repeat("X", 200), n)
	}
	for _, i := range s.identities() {
		if i.host != attacker {
			continue
		}
		p, c := s.servePlacement(t), s.client(i)
		write := put(ownProvider+"/traits", object{"resource_provider_generation": 2, "traits": traits})
		_, answer := send(t, c, p.url, i, write)
		sent := 1
		for ; sent < 50 && answer.Code != http.StatusTooManyRequests; sent++ {
			_, answer = send(t, c, p.url, i, write)
		}
		if sent < 3 || answer.Code != http.StatusTooManyRequests || reason(answer) == "" {
			t.Errorf("as %s, after %d writes of 2 MB: %s", i.name, sent, answer)
		}
		p.victimWrites(s, 2)
	}
}

// TestAHostTakesNoNodeOfALaterHost: the attacker makes a child with the uuid of a node that another
// host is enrolled for and has not reported yet, and puts a guest on it. When that host comes, its
// node is made; the child has another uuid, and all that it had. After that the attacker cannot
// make such a child, even while the node is gone.
func TestAHostTakesNoNodeOfALaterHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	pair := testproc.Try(tls.X509KeyPair(s.pair(s.ca, hostIdentity("h3", otherNode), pki.SignOptions{}))).Or(t)
	late, as := identity{name: "later host", pair: &pair, host: "h3"}, s.as("other host")
	const node = "/resource_providers/" + otherNode
	child := post("/resource_providers", object{"name": attacker + "_x", "uuid": otherNode,
		"parent_provider_uuid": attackerNode})
	another := post("/resource_providers", object{"name": attacker + "_y", "uuid": otherNode,
		"parent_provider_uuid": attackerNode})
	root := post("/resource_providers", object{"name": "h3", "uuid": otherNode})
	for name, first := range map[string]asked{
		"as an agent does": get("/resource_providers?in_tree=" + otherNode), "at once": root,
	} {
		p := s.servePlacement(t)
		theirs, own := s.client(as), s.client(late)
		succeed(t, theirs, p.url, as, child)
		succeed(t, theirs, p.url, as, offers(node, 0, vcpus))
		p.admin(put("/allocations/"+newGuest, holds(otherNode, 4, nil))).Is(t, http.StatusNoContent)
		answer := succeed(t, own, p.url, late, first)
		if strings.Contains(string(answer.Raw), attacker) {
			t.Errorf("%s: the later host is shown %s", name, answer)
		}
		if first.method == http.MethodGet {
			succeed(t, own, p.url, late, root)
		}
		succeed(t, own, p.url, late, offers(node, 0, vcpus)).Is(t, http.StatusOK)

		var found struct {
			Providers []struct {
				UUID       string `json:"uuid"`
				Generation int    `json:"generation"`
			} `json:"resource_providers"`
		}
		p.admin(get("/resource_providers?name="+attacker+"_x")).Into(t, &found)
		if len(found.Providers) != 1 || found.Providers[0].UUID == otherNode || found.Providers[0].Generation != 2 {
			t.Fatalf("%s: the child is %+v", name, found.Providers)
		}
		var held struct{ Allocations map[string]any }
		p.admin(get("/allocations/"+newGuest)).Into(t, &held)
		if _, on := held.Allocations[found.Providers[0].UUID]; !on || len(held.Allocations) != 1 {
			t.Errorf("%s: the guest holds %v", name, held.Allocations)
		}

		succeed(t, own, p.url, late, asked{method: http.MethodDelete, path: node})
		got, answer := send(t, theirs, p.url, as, another)
		if got != forbidden || reason(answer) == "" {
			t.Errorf("%s: while the node is gone: %s", name, answer)
		}
	}
}
