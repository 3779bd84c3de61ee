// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// ofHost is a client with the token of a host.
func ofHost(t *testing.T, url, name string, change ...func(*reportclient.Config)) *reportclient.Client {
	t.Helper()
	cfg := reportclient.Config{Config: placementclient.Config{URL: url, Logger: zerolog.Nop(),
		Authorize: func(_ context.Context, h http.Header) error {
			h.Set("X-Auth-Token", "of "+name)
			return nil
		}}}
	for _, c := range change {
		c(&cfg)
	}
	return testproc.Try(reportclient.New(cfg)).Or(t)
}

// knowsHosts is a strategy with tokens of an administrator and of two hosts.
func knowsHosts(t *testing.T) placement.Auth {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	sum := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	ok(t, os.WriteFile(tokens, []byte(sum("admin")+" admin,service scheduler\n"+sum("of cn1")+" host cn1\n"+
		sum("of cn2")+" host cn2\n"), 0o600))
	return placement.Auth{Strategy: placement.Token, TokenFile: tokens}
}

// TestMoreThanIsAdmitted: what Placement does not admit to the host is an error of its own, and all
// else of the plan is written.
func TestMoreThanIsAdmitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t), func(c *placement.Config) { c.Placement.HostCapacityFactor = 2 })
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission", `{"classes": {"VCPU": 8}}`)
	client := ofHost(t, url, "cn1")
	err := apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 16}),
		traits(cn1, "COMPUTE_NODE"), child(cn1, gpu0, "cn1_gpu"),
		inventory(gpu0, "CUSTOM_GPU", providertree.Inventory{Total: 4}),
		traits(gpu0, "CUSTOM_FAST", "COMPUTE_NET_VIF_MODEL_E1000"))
	testproc.ErrorIs(t, err, reportclient.ErrNotAdmitted, "applying the plan: %v")
	testproc.ErrorIs(t, err, reportclient.ErrHostRefused, "applying the plan: %v")
	for _, part := range []string{"admit-host cn1 --class CUSTOM_GPU=4", "admit-host cn1 --trait CUSTOM_FAST"} {
		testproc.Contains(t, err.Error(), part, "%v does not say %q: %s", "the error", part)
	}
	client.Recheck()
	tree := testproc.Try(client.TreeOf(t.Context(), id(cn1))).Or(t)
	if vcpus, has := tree.Inventory(id(cn1), "VCPU"); !has || vcpus.Total != 16 ||
		!tree.HasTraits(id(cn1), "COMPUTE_NODE") {
		t.Errorf("what is admitted was not written: %+v", vcpus)
	}
	if _, has := tree.Inventory(id(gpu0), "CUSTOM_GPU"); has {
		t.Error("what is not admitted was written")
	}
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission",
		`{"classes": {"CUSTOM_GPU": 4}, "traits": ["CUSTOM_FAST"]}`)
	ok(t, apply(t, client, inventory(gpu0, "CUSTOM_GPU", providertree.Inventory{Total: 4}),
		traits(gpu0, "CUSTOM_FAST")))
}

// TestWhatAPersonAdmittedIsWritten: of two new classes and two new kinds of traits of one provider
// the ones that are admitted are written, also where the other ones never are.
func TestWhatAPersonAdmittedIsWritten(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t), func(c *placement.Config) { c.Placement.HostCapacityFactor = 1 })
	requests := &counter{}
	client := ofHost(t, url, "cn1", func(c *reportclient.Config) { c.Transport = requests })
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission", `{"classes": {"VCPU": 8}}`)
	ok(t, apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 8}), traits(cn1, "COMPUTE_NODE")))
	both := func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.SetInventories(id(cn1),
			providertree.Inventories{"VCPU": {Total: 8}, "CUSTOM_GPU": {Total: 4}, "CUSTOM_NIC": {Total: 2}})).Or(t)
		testproc.Try(tr.SetTraits(id(cn1), []string{"COMPUTE_NODE", "CUSTOM_FAST", "HW_GPU_API_VULKAN"})).Or(t)
	}
	classes := func() []string {
		fresh := testproc.Try(ofHost(t, url, "cn1").Tree(t.Context(), id(cn1), "cn1")).Or(t)
		root, _ := fresh.Provider(id(cn1))
		return append(slices.Sorted(maps.Keys(root.Inventories)), root.Traits...)
	}
	testproc.ErrorIs(t, apply(t, client, both), reportclient.ErrNotAdmitted, "applying the plan: %v")
	testproc.Samef(t, cmp.Diff([]string{"VCPU", "COMPUTE_NODE"}, classes()), "before")
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission",
		`{"classes": {"CUSTOM_NIC": 2}, "traits": ["HW_GPU"]}`)
	err := apply(t, client, both)
	testproc.ErrorIs(t, err, reportclient.ErrNotAdmitted, "applying the plan: %v")
	testproc.Contains(t, err.Error(), "admit-host cn1 --class CUSTOM_GPU=4 (",
		"%v does not say %q: %s", "the error", "what is left")
	testproc.Samef(t, cmp.Diff([]string{"CUSTOM_NIC", "VCPU", "COMPUTE_NODE", "HW_GPU_API_VULKAN"}, classes()),
		"with one of two")
	requests.since()
	testproc.ErrorIs(t, apply(t, client, both), reportclient.ErrNotAdmitted, "applying the plan: %v")
	writes := slices.DeleteFunc(requests.since(), func(r string) bool { return !strings.HasPrefix(r, "PUT ") })
	testproc.Samef(t, cmp.Diff([]string{"PUT /resource_providers/#1/inventories", "PUT /resource_providers/#1/traits"},
		writes), "the next pass")
}

// TestWhatShrinksIsWrittenBesideWhatIsNotAdmitted: of an inventory or traits that are refused, what
// does not grow is written, once.
func TestWhatShrinksIsWrittenBesideWhatIsNotAdmitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t), func(c *placement.Config) { c.Placement.HostCapacityFactor = 1 })
	requests := &counter{}
	client := ofHost(t, url, "cn1", func(c *reportclient.Config) { c.Transport = requests })
	inventoryOf := func(total, reserved int64) providertree.Inventory {
		return providertree.Inventory{Total: total, Reserved: reserved, AllocationRatio: 1.5}
	}
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission",
		`{"classes": {"VCPU": 12, "MEMORY_MB": 96, "DISK_GB": 150, "PCPU": 12}, "traits": ["HW_CPU"]}`)
	ok(t, apply(t, client, inventory(cn1, "VCPU", inventoryOf(8, 0)), inventory(cn1, "MEMORY_MB", inventoryOf(64, 0)),
		inventory(cn1, "DISK_GB", inventoryOf(100, 1)),
		inventory(cn1, "PCPU", inventoryOf(8, 0)), traits(cn1, "COMPUTE_NODE", "HW_CPU_X86_AVX", "HW_CPU_X86_VMX")))
	fewer := func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.SetInventories(id(cn1), providertree.Inventories{
			"VCPU": inventoryOf(16, 0), "MEMORY_MB": inventoryOf(32, 0), "DISK_GB": inventoryOf(100, 20),
			"CUSTOM_GPU": inventoryOf(4, 0),
		})).Or(t)
		testproc.Try(tr.SetTraits(id(cn1), []string{
			"COMPUTE_NODE", "COMPUTE_SECURITY_TPM_2_0",
			"COMPUTE_STATUS_DISABLED", "CUSTOM_COMPUTE_AGENT_NEW", "CUSTOM_FAST",
			"HW_CPU_X86_AVX2", "HW_CPU_X86_VMX", "HW_GPU_API_VULKAN", "HW_NUMA_ROOT", "OWNER_CYBORG", "OWNER_NOVA",
		})).Or(t)
	}
	puts := func() (list []string) {
		for _, r := range requests.since() {
			if r == "PUT /resource_providers/#1/inventories" || r == "PUT /resource_providers/#1/traits" {
				list = append(list, r[len("PUT /resource_providers/#1/"):])
			}
		}
		return list
	}
	puts()
	for pass, sent := range [][]string{{"inventories", "inventories", "traits", "traits"},
		{"inventories", "traits"}, {"inventories", "traits"}} {
		testproc.ErrorIs(t, apply(t, client, fewer), reportclient.ErrNotAdmitted, "applying the plan: %v")
		testproc.Samef(t, cmp.Diff(sent, puts()), "writes of pass %d", pass)
		cached, _ := client.Known(id(cn1))
		fresh := testproc.Try(ofHost(t, url, "cn1").Tree(t.Context(), id(cn1), "cn1")).Or(t)
		for which, tree := range map[string]*providertree.Tree{"cached": cached, "stored": fresh} {
			root, _ := tree.Provider(id(cn1))
			want := providertree.Inventories{"VCPU": inventoryOf(8, 0), "MEMORY_MB": inventoryOf(32, 0),
				"DISK_GB": inventoryOf(100, 20)}
			if !root.Inventories.Equal(want) {
				t.Errorf("%s after pass %d: %+v", which, pass, root.Inventories)
			}
			testproc.Samef(t, cmp.Diff([]string{
				"COMPUTE_NODE", "COMPUTE_STATUS_DISABLED",
				"CUSTOM_COMPUTE_AGENT_NEW", "HW_CPU_X86_AVX2", "HW_CPU_X86_VMX", "HW_NUMA_ROOT", "OWNER_NOVA",
			}, root.Traits), "%s traits", which)
		}
	}
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission",
		`{"classes": {"VCPU": 24, "CUSTOM_GPU": 6}, "traits": ["CUSTOM_FAST", "HW_GPU", "COMPUTE_SECURITY", `+
			`"OWNER_CYBORG"]}`)
	ok(t, apply(t, client, fewer))
	testproc.Samef(t, cmp.Diff([]string{"inventories", "traits"}, puts()), "writes when it is admitted")
}

// putsOf is a transport that notes the bodies of the writes of inventories and traits. answer, if
// set, answers the n-th one of a kind in Placement's stead: a status and a body, or 0.
type putsOf struct {
	inventories, traits []string
	answer              func(kind string, n int) (int, string)
}

func (p *putsOf) RoundTrip(r *http.Request) (*http.Response, error) {
	kind := path.Base(r.URL.Path)
	list := map[string]*[]string{"inventories": &p.inventories, "traits": &p.traits}[kind]
	if r.Method != http.MethodPut || list == nil {
		return http.DefaultTransport.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	*list = append(*list, string(body))
	if p.answer != nil {
		if status, text := p.answer(kind, len(*list)); status != 0 {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
				Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
		}
	}
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return http.DefaultTransport.RoundTrip(r)
}

// once fails the test if a body was sent twice.
func (p *putsOf) once(t *testing.T) {
	t.Helper()
	for _, list := range [][]string{p.inventories, p.traits} {
		if slices.Sort(list); len(slices.Compact(list)) != len(list) {
			t.Error("a request was made twice:", list)
		}
	}
}

// TestManyAreNotAdmitted: of 50 new classes and kinds of traits 45 are refused, more than an answer
// lists, and the others are written.
func TestManyAreNotAdmitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t), func(c *placement.Config) { c.Placement.HostCapacityFactor = 1 })
	puts := &putsOf{}
	client := ofHost(t, url, "cn1", func(c *reportclient.Config) { c.Transport = puts })
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission", `{"classes": {"VCPU": 8}}`)
	ok(t, apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 8}), traits(cn1, "COMPUTE_NODE")))
	inventories, list := providertree.Inventories{"VCPU": {Total: 8}}, []string{"COMPUTE_NODE"}
	classes, kinds, admitted := []string{}, []string{}, map[string]int{}
	for i := range 50 {
		class, trait := fmt.Sprintf("CUSTOM_C%02d", i), fmt.Sprintf("CUSTOM_T%02d", i)
		inventories[class], list = providertree.Inventory{Total: 1}, append(list, trait)
		if i%10 == 7 {
			classes, kinds, admitted[class] = append(classes, class), append(kinds, trait), 1
		}
	}
	statement := testproc.Try(json.Marshal(map[string]any{"classes": admitted, "traits": kinds})).Or(t)
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission", string(statement))
	for _, writes := range []int{4, 3} { // the second pass has nothing to write
		puts.inventories, puts.traits = nil, nil
		testproc.ErrorIs(t, apply(t, client, func(t *testing.T, tr *providertree.Tree) {
			testproc.Try(tr.SetInventories(id(cn1), inventories)).Or(t)
			testproc.Try(tr.SetTraits(id(cn1), list)).Or(t)
		}), reportclient.ErrNotAdmitted, "%v")
		testproc.Equal(t, len(puts.inventories), writes, "%d writes of inventories")
		testproc.Equal(t, len(puts.traits), writes, "%d writes of traits")
		puts.once(t)
		root, _ := testproc.Try(ofHost(t, url, "cn1").Tree(t.Context(), id(cn1), "cn1")).Or(t).Provider(id(cn1))
		testproc.Samef(t, cmp.Diff(append(slices.Clone(classes), "VCPU"), slices.Sorted(maps.Keys(root.Inventories))),
			"classes")
		testproc.Samef(t, cmp.Diff(append([]string{"COMPUTE_NODE"}, kinds...), root.Traits), "traits")
	}
}

const notAdmitted = `{"errors": [{"status": 403, "title": "Forbidden", "code": "placement.hosts.not_admitted", ` +
	`"detail": "no"%s}]}`

// TestOlderPlacementListsNothing: of a Placement that does not list what it refuses, and refuses
// the rest too, no request is made twice.
func TestOlderPlacementListsNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t))
	puts := &putsOf{}
	client := ofHost(t, url, "cn1", func(c *reportclient.Config) { c.Transport = puts })
	ok(t, apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 8}),
		traits(cn1, "COMPUTE_NODE", "CUSTOM_FAST")))
	*puts = putsOf{answer: func(string, int) (int, string) {
		return http.StatusForbidden,
			fmt.Sprintf(notAdmitted, "")
	}}
	testproc.ErrorIs(t, apply(t, client, func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.SetInventories(id(cn1),
			providertree.Inventories{"VCPU": {Total: 4}, "CUSTOM_GPU": {Total: 4}})).Or(t)
		testproc.Try(tr.SetTraits(id(cn1), []string{"COMPUTE_NODE", "CUSTOM_GOLD"})).Or(t)
	}), reportclient.ErrNotAdmitted, "%v")
	testproc.Equal(t, len(puts.inventories), 2, "%d writes of inventories")
	testproc.Equal(t, len(puts.traits), 2, "%d writes of traits")
	puts.once(t)
}

// TestConflictAfterRefusal: where the write of what is admitted ends in a conflict, nothing else is
// written to the provider with a generation that is wrong.
func TestConflictAfterRefusal(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t))
	puts := &putsOf{}
	client := ofHost(t, url, "cn1", func(c *reportclient.Config) { c.Transport = puts })
	ok(t, apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 8}), traits(cn1, "COMPUTE_NODE")))
	*puts = putsOf{answer: func(kind string, n int) (int, string) {
		switch {
		case kind == "inventories" && n == 1:
			return http.StatusForbidden, fmt.Sprintf(notAdmitted, `, "not_admitted": ["CUSTOM_GPU"]`)
		case kind == "inventories":
			return http.StatusConflict,
				`{"errors": [{"status": 409, "title": "Conflict", "code": "placement.concurrent_update", "detail": ` +
					`"generation"}]}`
		}
		return 0, ""
	}}
	err := apply(t, client, func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.SetInventories(id(cn1),
			providertree.Inventories{"VCPU": {Total: 4}, "CUSTOM_GPU": {Total: 4}})).Or(t)
		testproc.Try(tr.SetTraits(id(cn1), []string{"COMPUTE_NODE", "CUSTOM_GOLD"})).Or(t)
	})
	testproc.ErrorIs(t, err, reportclient.ErrConflict, "applying the plan: %v")
	testproc.Contains(t, err.Error(), "more than is admitted was refused before: ",
		"%v does not say %q: %s", "the error", "why")
	if errors.Is(err, reportclient.ErrHostRefused) || len(puts.traits) > 0 {
		t.Errorf("%d writes of traits after %v", len(puts.traits), err)
	}
}

// TestClassWithNewNameThatIsNotAdmitted: a class stays while its new name, of which there is more,
// is refused. One that is no former name goes.
func TestClassWithNewNameThatIsNotAdmitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t), func(c *placement.Config) { c.Placement.HostCapacityFactor = 1 })
	client := ofHost(t, url, "cn1")
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission",
		`{"classes": {"VCPU": 8, "CUSTOM_OLD": 4, "CUSTOM_LOST": 32, "CUSTOM_FORMER": 2, "CUSTOM_LATER": 2}}`)
	set := func(amounts map[string]int64) edit {
		inventories := providertree.Inventories{}
		for class, total := range amounts {
			inventories[class] = providertree.Inventory{Total: total}
		}
		return func(t *testing.T, tr *providertree.Tree) {
			testproc.Try(tr.SetInventories(id(cn1), inventories)).Or(t)
		}
	}
	has := func() map[string]int64 {
		out := map[string]int64{}
		root, _ := testproc.Try(ofHost(t, url, "cn1").Tree(t.Context(), id(cn1), "cn1")).Or(t).Provider(id(cn1))
		for class, i := range root.Inventories {
			out[class] = i.Total
		}
		return out
	}
	ok(t, apply(t, client, set(map[string]int64{"VCPU": 8, "CUSTOM_OLD": 4, "CUSTOM_LOST": 32, "CUSTOM_FORMER": 2})))
	desired := map[string]int64{"VCPU": 6, "CUSTOM_NEW": 16, "CUSTOM_LATER": 2}
	testproc.ErrorIs(t, apply(t, client, set(desired)), reportclient.ErrNotAdmitted, "applying the plan: %v")
	testproc.Samef(t, cmp.Diff(map[string]int64{"VCPU": 6, "CUSTOM_OLD": 4, "CUSTOM_LATER": 2}, has()), "before")
	asAdmin(t, "1.37", http.MethodPost, url+"/hosts/cn1/admission", `{"classes": {"CUSTOM_NEW": 16}}`)
	ok(t, apply(t, client, set(desired)))
	testproc.Samef(t, cmp.Diff(desired, has()), "when it is admitted")
}

// TestAsHost: with the token of a host, which has no other role, an agent does all that it does for
// its own tree. Of what is elsewhere it learns that it is elsewhere.
func TestAsHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, knowsHosts(t))
	client := ofHost(t, url, "cn1")
	ctx := t.Context()

	ok(t, apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 8}),
		traits(cn1, "COMPUTE_NODE", "CUSTOM_FAST"), child(cn1, gpu0, "cn1_gpu"),
		inventory(gpu0, "CUSTOM_GPU", providertree.Inventory{Total: 4})))
	sharedStorage(t, url)
	tree := testproc.Try(client.TreeOf(ctx, id(cn1))).Or(t)
	root, _ := tree.Provider(id(cn1))
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(cn1)+"/aggregates",
		fmt.Sprintf(`{"resource_provider_generation": %d, "aggregates": [%q]}`, root.Generation, id(aggregate)))
	claim(t, url, alice, resources{cn1: {"VCPU": 2}, gpu0: {"CUSTOM_GPU": 1}})
	claim(t, url, bob, resources{gpu0: {"CUSTOM_GPU": 2}, nfs: {"DISK_GB": 10}})
	claim(t, url, moving, resources{cn1: {"VCPU": 1}, elsewhere: {"VCPU": 1}, nfs: {"DISK_GB": 5}})
	claim(t, url, carol, resources{elsewhere: {"VCPU": 1}})

	client.Recheck()
	seen := testproc.Try(client.Tree(ctx, id(cn1), "cn1")).Or(t)
	if !seen.Exists(id(nfs)) {
		t.Error("the sharing provider is not seen")
	}
	held := testproc.Try(client.Holdings(ctx, id(cn1))).Or(t)
	testproc.Same(t, cmp.Diff([]string{id(alice), id(bob), id(moving)}, slices.Sorted(maps.Keys(held.Consumers))))
	away, err := client.Consumer(ctx, id(carol))
	if err != nil || !away.Elsewhere || away.Empty() {
		t.Errorf("a consumer on another host: %+v, %v", away, err)
	}
	if ours, err := client.OwnProviders(ctx,
		slices.Collect(maps.Keys(held.Consumers[id(moving)].Resources))); err != nil ||
		!slices.Equal(ours, []string{id(cn1)}) {
		t.Errorf("ours are %v, %v", ours, err)
	}
	if _, err := client.DeleteOurPart(ctx, held.Consumers[id(moving)],
		slices.Collect(maps.Keys(held.Consumers[id(moving)].Resources))); !errors.Is(err, reportclient.ErrHostRefused) {
		t.Errorf("what is on another host was removed: %v", err)
	}
	if _, err := client.DeleteOurPart(ctx, held.Consumers[id(moving)], []string{id(cn1)}); err != nil {
		t.Error(err)
	}
	if _, err := client.DeleteOurPart(ctx, held.Consumers[id(bob)], []string{id(gpu0), id(nfs)}); err != nil {
		t.Errorf("a server with a volume on the share is deleted: %v", err)
	}
	healed := reportclient.Consumer{UUID: id(38), ConsumerAllocations: providertree.ConsumerAllocations{
		ProjectID: "p", UserID: "u", Resources: resources{cn1: {"VCPU": 1}}.byUUID(),
	}}
	if err := client.CreateAllocations(ctx, healed); !errors.Is(err, reportclient.ErrHostRefused) {
		t.Errorf("a host allocates for a consumer that has nothing: %v", err)
	}
	healed.UUID, healed.Resources = id(39), resources{elsewhere: {"VCPU": 1}}.byUUID()
	if err := client.CreateAllocations(ctx, healed); !errors.Is(err, reportclient.ErrHostRefused) {
		t.Errorf("allocations on another host: %v", err)
	}
	testproc.Try(client.TreeOf(ctx, id(elsewhere))).ErrorIs(t, reportclient.ErrHostRefused, "another host's tree: %v")
	if _, found, err := client.FindByName(ctx, "cn1.example.com"); found || err != nil {
		t.Errorf("a name of its own: %t, %v", found, err)
	}

	// A write that is not allowed does not keep the others from being made.
	client.Recheck()
	err = apply(t, client, traits(cn1, "CUSTOM_OTHER"), func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.AddAggregates(id(gpu0), id(aggregate))).Or(t)
	})
	testproc.ErrorIs(t, err, reportclient.ErrHostRefused, "an aggregate: %v")
	if tree, err = client.TreeOf(ctx, id(cn1)); err != nil || !tree.HasTraits(id(cn1), "CUSTOM_OTHER") {
		t.Errorf("the traits were not written: %v", err)
	}
	if _, err := ofHost(t, url, "cn2").Tree(ctx, id(cn1), "cn1"); !errors.Is(err, reportclient.ErrHostRefused) {
		t.Errorf("another host's token: %v", err)
	}
}
