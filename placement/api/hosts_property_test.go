// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// What random writes are about: what is there, and what is not.
var (
	anyProviders = []string{root1, numa1, spare1, root2, share1, share2, nowhere}
	anyNames     = []string{"h1", "h1.example.com", "h1.other", "h1_NUMA0", "h1.example.com_NUMA0",
		"h2", "h10", "h7", "shared-1"}
	anyConsumers  = []string{onHost1, onHost2, onBoth, onNone}
	anyClasses    = []string{"VCPU", "MEMORY_MB", "DISK_GB", "CUSTOM_ANY"}
	anyTraits     = []string{"COMPUTE_NODE", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_ANY"}
	anyAggregates = []string{agg1, agg2}
)

// drawWrite draws a request, mostly with the generations that things have.
func drawWrite(t *rapid.T, d placementtest.Dump) call {
	pick := func(label string, from []string) string { return rapid.SampledFrom(from).Draw(t, label) }
	some := func(label string, from []string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 0, 3, rapid.ID[string]).Draw(t, label)
	}
	jsonOf := func(v any) string {
		b := testproc.Try(json.Marshal(v)).Or(t)
		return string(b)
	}
	provider := pick("provider", anyProviders)
	generation := func(uuid string) int64 {
		return d.Providers[uuid].Generation - int64(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "stale"))
	}
	parent := func() any {
		if rapid.Bool().Draw(t, "root") {
			return nil
		}
		return pick("parent", anyProviders)
	}
	inventories := func(uuid string) map[string]any {
		all := map[string]any{}
		for _, class := range some("classes", anyClasses) {
			all[class] = map[string]int64{"total": rapid.Int64Range(1, 200).Draw(t, "total")}
		}
		return map[string]any{"resource_provider_generation": generation(uuid), "inventories": all}
	}
	consumer := func(uuid string) map[string]any {
		now := d.Consumers[uuid]
		allocations := map[string]any{}
		keep := rapid.Bool().Draw(t, "begin with what it has")
		if keep {
			for p, amounts := range now.Allocations {
				allocations[p] = map[string]any{"resources": maps.Clone(amounts)}
			}
		}
		for _, p := range some("on", anyProviders) {
			if rapid.IntRange(0, 2).Draw(t, "less") == 0 {
				delete(allocations, p)
				continue
			}
			classes := slices.Sorted(maps.Keys(d.Providers[p].Inventories))
			if len(classes) == 0 {
				classes = anyClasses
			}
			allocations[p] =
				map[string]any{"resources": map[string]int64{pick("class", classes): rapid.Int64Range(1, 12).
					Draw(t, "amount")}}
		}
		body := map[string]any{"allocations": allocations,
			"project_id": "proj", "user_id": "user", "consumer_type": "INSTANCE", "consumer_generation": nil}
		if now.Generation > 0 {
			body["consumer_generation"] = now.Generation
		}
		if rapid.IntRange(0, 5).Draw(t, "owner") == 0 {
			body["project_id"] = "other"
		}
		return body
	}
	path := "/resource_providers/" + provider
	switch rapid.IntRange(0, 12).Draw(t, "write") {
	case 0:
		return call{method: "POST", path: "/resource_providers",
			body: jsonOf(map[string]any{"name": pick("name", anyNames), "uuid": provider,
				"parent_provider_uuid": parent()})}
	case 1:
		return call{method: "PUT", path: path,
			body: jsonOf(map[string]any{"name": pick("name", anyNames), "parent_provider_uuid": parent()})}
	case 2:
		return call{method: "PUT", path: path,
			body: jsonOf(map[string]any{"name": d.Providers[provider].Name, "parent_provider_uuid": parent()})}
	case 3:
		return call{method: "DELETE", path: path + pick("what", []string{"", "/inventories", "/traits"})}
	case 4:
		return call{method: "PUT", path: path + "/inventories", body: jsonOf(inventories(provider))}
	case 5:
		return call{method: "PUT", path: path + "/traits",
			body: jsonOf(map[string]any{"resource_provider_generation": generation(provider),
				"traits": some("traits", anyTraits)})}
	case 6:
		return call{method: "PUT", path: path + "/aggregates",
			body: jsonOf(map[string]any{"resource_provider_generation": generation(provider),
				"aggregates": some("aggregates", anyAggregates)})}
	case 7:
		return call{method: pick("method", []string{"PUT", "DELETE"}),
			path: pick("kind", []string{"/traits/", "/resource_classes/"}) + "CUSTOM_ANY"}
	case 8:
		return call{method: "DELETE", path: "/allocations/" + pick("consumer", anyConsumers)}
	case 9, 10:
		uuid := pick("consumer", anyConsumers)
		return call{method: "PUT", path: "/allocations/" + uuid, body: jsonOf(consumer(uuid))}
	}
	consumers, reshaped := map[string]any{}, map[string]any{}
	for _, uuid := range some("consumers", anyConsumers) {
		consumers[uuid] = consumer(uuid)
	}
	if rapid.Bool().Draw(t, "reshape") {
		for _, uuid := range some("reshaped", anyProviders) {
			reshaped[uuid] = inventories(uuid)
		}
		return call{method: "POST", path: "/reshaper",
			body: jsonOf(map[string]any{"inventories": reshaped, "allocations": consumers})}
	}
	return call{method: "POST", path: "/allocations", body: jsonOf(consumers)}
}

// fromHost1 says what is wrong with a change that h1 made, by what a dump shows and without the
// code under test: nothing of others may have changed.
func fromHost1(before, after placementtest.Dump, reshaped bool) error {
	own := func(d placementtest.Dump, uuid string) bool {
		root := d.Providers[d.Providers[uuid].Root].Name
		return root == "h1" || strings.HasPrefix(root, "h1.")
	}
	sharing := func(uuid string) bool {
		p := before.Providers[uuid]
		return slices.Contains(p.Traits, "MISC_SHARES_VIA_AGGREGATE") &&
			slices.ContainsFunc(p.Aggregates, func(aggregate string) bool {
				return slices.ContainsFunc(before.Members[aggregate],
					func(member string) bool { return own(before, member) })
			})
	}
	beside := map[string]bool{} // what consumers of the host hold elsewhere
	for uuid := range before.Consumers {
		if err := consumerFromHost1(uuid, before, after, own, sharing, beside); err != nil {
			return err
		}
	}
	for uuid, c := range after.Consumers {
		if _, was := before.Consumers[uuid]; !was {
			return fmt.Errorf("the consumer %s is new: %+v", uuid, c)
		}
	}
	for uuid, was := range before.Providers {
		is, there := after.Providers[uuid]
		if own(before, uuid) {
			if there && (!own(after, uuid) || !slices.Equal(was.Aggregates, is.Aggregates)) ||
				!there && len(was.Aggregates) > 0 {
				return fmt.Errorf("provider %s of the host: %+v, and then %+v", uuid, was, is)
			}
			continue
		}
		if beside[uuid] && is.Generation == was.Generation+1 && (reshaped || !cmp.Equal(was.Used, is.Used)) {
			is.Generation--
		}
		if sharing(uuid) || beside[uuid] { // what is used of it was judged with the consumers
			was.Used, is.Used, was.Consumers, is.Consumers = nil, nil, nil, nil
		}
		if diff := cmp.Diff(was, is); diff != "" {
			return fmt.Errorf("provider %s of others changed:\n%s", uuid, diff)
		}
	}
	for uuid, is := range after.Providers {
		was, there := before.Providers[uuid]
		if !there && (!own(after, uuid) || is.Parent == "" && uuid != root1 && uuid != spare1) {
			return fmt.Errorf("provider %s was made: %+v", uuid, is)
		}
		if !own(before, uuid) && there && own(after, uuid) {
			return fmt.Errorf("provider %s of others is the host's now", uuid)
		}
		if slices.Contains(is.Traits, "MISC_SHARES_VIA_AGGREGATE") &&
			!slices.Contains(was.Traits, "MISC_SHARES_VIA_AGGREGATE") {
			return fmt.Errorf("provider %s shares now", uuid)
		}
		if is.Parent != "" && is.Name != was.Name && slices.Contains([]string{"h2", "h10", "h7", "shared-1"}, is.Name) {
			return fmt.Errorf("provider %s has the name %s", uuid, is.Name)
		}
	}
	if h := after.Hosts["h1"]; h.Since.Unix() == 1 { // it is admitted what it had at its first write
		had, has := offered(before, own), offered(after, own)
		for class, amount := range has {
			if amount > had[class] && amount > 2*float64(h.Classes[class]) {
				return fmt.Errorf("the host has %v %s, and had %v; it is admitted %d",
					amount, class, had[class], h.Classes[class])
			}
		}
	}
	for _, lists := range [][2][]string{{before.Classes, after.Classes}, {before.Traits, after.Traits}} {
		for _, name := range lists[0] {
			if !slices.Contains(lists[1], name) {
				return fmt.Errorf("%s is gone", name)
			}
		}
	}
	return nil
}

// freed is a dump of before, in which providers of others that had the uuids of h1's nodes have
// those that they got: they are below the roots of others, and have no names of h1.
func freed(before, after placementtest.Dump) placementtest.Dump {
	for _, node := range []string{root1, spare1} {
		was, there := before.Providers[node]
		is := uuidOf(after, was.Name)
		if there && is != node && is != "" && was.Parent != "" && was.Name != "h1" &&
			!strings.HasPrefix(was.Name, "h1.") && !strings.HasPrefix(was.Name, "h1_") {
			before = renamed(before, node, is)
		}
	}
	return before
}

// consumerFromHost1 is the part of fromHost1 about a consumer that was there.
func consumerFromHost1(
	uuid string, before, after placementtest.Dump, own func(placementtest.Dump, string) bool,
	sharing func(string) bool, beside map[string]bool,
) error {
	was, is := before.Consumers[uuid], after.Consumers[uuid]
	if cmp.Equal(was, is) {
		return nil
	}
	ownWas, ownIs := map[string]int64{}, map[string]int64{}
	elsewhere := false
	for p, amounts := range was.Allocations {
		if own(before, p) {
			add(ownWas, amounts)
			continue
		}
		beside[p] = true
		elsewhere = elsewhere || !sharing(p)
	}
	if len(ownWas) == 0 {
		return fmt.Errorf("consumer %s of others: %+v, and then %+v", uuid, was, is)
	}
	for p, amounts := range is.Allocations {
		if own(after, p) {
			add(ownIs, amounts)
		} else if was.Allocations[p] == nil {
			return fmt.Errorf("consumer %s holds something of %s", uuid, p)
		}
	}
	for p, amounts := range was.Allocations {
		if own(before, p) {
			continue
		}
		for class, n := range amounts {
			if now := is.Allocations[p][class]; now > n || now < n && (elsewhere || !sharing(p)) {
				return fmt.Errorf("consumer %s has %d %s of %s, and had %d", uuid, now, class, p, n)
			}
		}
		for class := range is.Allocations[p] {
			if amounts[class] == 0 {
				return fmt.Errorf("consumer %s has %s of %s", uuid, class, p)
			}
		}
	}
	for class, n := range ownIs {
		if n > ownWas[class] {
			return fmt.Errorf("consumer %s has more %s than before", uuid, class)
		}
	}
	if len(is.Allocations) > 0 && (is.Project != was.Project || is.User != was.User || is.Type != was.Type) {
		return fmt.Errorf("consumer %s has another owner", uuid)
	}
	return nil
}

// offered is what the host's providers have, by class.
func offered(d placementtest.Dump, own func(placementtest.Dump, string) bool) map[string]float64 {
	all := map[string]float64{}
	for uuid, p := range d.Providers {
		for class, i := range p.Inventories {
			if own(d, uuid) {
				all[class] += float64(i.Total) * i.Ratio
			}
		}
	}
	return all
}

func add(to map[string]int64, amounts providertree.Resources) {
	for class, n := range amounts {
		to[class] += n
	}
}

// TestRandomWritesOfAHost: whatever a host sends, an independent check of what changed finds
// nothing of others; and what was refused changed nothing. An admin writes meanwhile, so that the
// states are those of a cloud with many owners.
func TestRandomWritesOfAHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.FewerChecks(t)
	allowed, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		h, l := hostsWorld(t)
		for range rapid.IntRange(5, 25).Draw(rt, "writes") {
			before := dumpOf(t, l)
			c := drawWrite(rt, before)
			c.version = "1.39"
			if rapid.IntRange(0, 3).Draw(rt, "who") == 0 {
				c.send(h)
				continue
			}
			w := c.as("h1").send(h)
			after := dumpOf(t, l)
			if w.Code >= http.StatusInternalServerError {
				rt.Fatalf("%s %s %s: %d %s", c.method, c.path, c.body, w.Code, w.Body)
			}
			if w.Code >= http.StatusBadRequest {
				refused++
				if diff := cmp.Diff(before, after); diff != "" {
					rt.Fatalf("%s %s %s was refused (%d), and changed:\n%s", c.method, c.path, c.body, w.Code, diff)
				}
				continue
			}
			allowed++
			if err := fromHost1(freed(before, after), after, c.path == "/reshaper"); err != nil {
				rt.Fatalf("%s %s %s: %d, and %v", c.method, c.path, c.body, w.Code, err)
			}
		}
	})
	if allowed < refused/20 || refused == 0 {
		t.Errorf("%d writes were allowed, and %d refused: the test tells nothing", allowed, refused)
	}
}

// FuzzHosts sends any request as a host. What others have stays, and what it reads is not about
// them.
func FuzzHosts(f *testing.F) {
	for _, c := range []call{
		{method: "PUT", path: "/allocations/" + onBoth,
			body: holding(allocated(root1, "VCPU", 4, root2, "VCPU", 4, share1, "DISK_GB", 1), "1")},
		{method: "POST", path: "/reshaper", body: `{"inventories":{},"allocations":{"` +
			onHost1 + `":` + holding(`{}`, "1") + `}}`},
		{method: "GET", path: "/resource_providers?in_tree=" + root1 + "&member_of=in:" + agg1},
		{method: "PUT", path: "/resource_providers/" +
			root1, body: `{"name":"h1_x","parent_provider_uuid":"` + root2 + `"}`},
		{method: "POST", path: "/resource_providers", body: `{"name":"h1.b","uuid":"` + spare1 + `"}`},
		{method: "DELETE", path: "/resource_providers/" + root2 + "/traits"},
	} {
		f.Add(c.method, c.path, "1.39", c.body)
	}
	f.Fuzz(func(t *testing.T, method, path, version, body string) {
		if _, err := http.NewRequest(method, "http://placement"+path, nil); err != nil || path == "" ||
			path[0] != '/' { // it is not sent
			return // no request
		}
		h, l := hostsWorld(t)
		before := dumpOf(t, l)
		w := call{method: method, path: path, version: version, body: body}.as("h1").send(h)
		if w.Code >= http.StatusInternalServerError {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		testproc.NoError(t, fromHost1(before, dumpOf(t, l), true))
		if text := w.Body.String(); w.Code == http.StatusOK && !strings.Contains(path, onBoth) &&
			(strings.Contains(text, root2) || strings.Contains(text, share2)) {
			t.Errorf("%s %s shows others: %s", method, path, text)
		}
	})
}
