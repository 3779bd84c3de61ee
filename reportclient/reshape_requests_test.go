// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// gpus is the smallest reshape: VGPU from the root to a child, with two guests and what they hold
// elsewhere.
var gpus = example{
	before: []edit{inventory(cn1, "VCPU", providertree.Inventory{Total: 8}),
		inventory(cn1, "VGPU", providertree.Inventory{Total: 4}), joinStorage},
	claims: map[int]resources{alice: {cn1: {"VGPU": 1, "VCPU": 2}, nfs: {"DISK_GB": 10}},
		bob: {cn1: {"VGPU": 2}}, carol: {cn1: {"VCPU": 4}}},
	edits: []edit{childOnce(cn1, gpu0, "cn1_gpu"),
		noInventory(cn1, "VGPU"), inventory(gpu0, "VGPU", providertree.Inventory{Total: 4})},
	moves: []move{{alice, cn1, "VGPU", gpu0, "VGPU", 1}, {bob, cn1, "VGPU", gpu0, "VGPU", 2}},
}

// childOnce is child where an earlier try may have left it.
func childOnce(parent, uuid int, name string) edit {
	return func(t *testing.T, tr *providertree.Tree) {
		if !tr.Exists(id(uuid)) {
			child(parent, uuid, name)(t, tr)
		}
	}
}

// TestReshapeRequests is every request of a reshaping start, of its undoing, and of the passes
// after it.
func TestReshapeRequests(t *testing.T) { onEmptyBundled(t, testReshapeRequests) }

// TestRealReshapeRequests is the same with OpenStack's Placement.
func TestRealReshapeRequests(t *testing.T) { onEmptyOpenStack(t, testReshapeRequests) }

func testReshapeRequests(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	t.Run("start and undo", func(t *testing.T) {
		url := empty(t)
		_, _, _, _ = gpus.prepare(t, url)
		client, requests, now := observed(t, url)
		known := testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
		want(t, requests, "GET /",
			"GET /resource_providers", "GET /resource_providers/#1/inventories", "GET /resource_providers/#1/traits",
			"GET /resource_providers/#1/aggregates",
			"GET /resource_providers", "GET /resource_providers/#9/inventories", "GET /resource_providers/#9/traits",
			"GET /resource_providers/#9/aggregates")
		before := testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
		want(t, requests, "GET /resource_providers/#1/allocations", "GET /allocations/#11",
			"GET /allocations/#12", "GET /allocations/#13")
		desired, after := known.Clone(), before.Clone()
		for _, e := range gpus.edits {
			e(t, desired)
		}
		for _, m := range gpus.moves {
			m.apply(after)
		}
		plan := client.PlanReshape(known, desired, before, after)
		ok(t, client.Apply(t.Context(), id(cn1), plan))
		// no inventory is read afterwards
		want(t, requests, "POST /resource_providers", "POST /reshaper")
		ok(t, apply(t, client))
		want(t, requests)
		now.pass(6 * time.Minute)
		// with the right generation
		ok(t, apply(t, client, inventory(gpu0, "VGPU", providertree.Inventory{Total: 5})))
		want(t, requests, "GET /resource_providers",
			"GET /resource_providers", "PUT /resource_providers/#2/inventories")

		reshape := plan.Operations[len(plan.Operations)-1].Reshape
		posted := *reshape
		posted.Providers = slices.Clone(reshape.Providers)
		posted.Providers[1].Generation = 0 // that of a provider that was just created
		undo := posted.Inverse().Plan()
		if err := client.Apply(t.Context(), id(cn1), undo); !errors.Is(err, reportclient.ErrConflict) {
			t.Errorf("undone although the child was written to since: %v", err)
		}
		want(t, requests, "POST /reshaper")
		undo.Operations[0].Reshape.Providers[1].Generation++
		ok(t, client.Apply(t.Context(), id(cn1), undo))
		want(t, requests, "POST /reshaper")
		noInventory(gpu0, "VGPU")(t, desired)
		inventory(cn1, "VGPU", providertree.Inventory{Total: 4})(t, desired)
		checkPlacement(t, url, desired, before)
	})
	t.Run("a class that moves and is over-committed", func(t *testing.T) { overcommitted(t, empty(t)) })
	t.Run("types of consumers", func(t *testing.T) { consumerTypes(t, empty(t)) })
	t.Run("consumers that vanish", func(t *testing.T) { vanishing(t, empty(t)) })
	t.Run("a provider that vanishes", func(t *testing.T) { vanishedProvider(t, empty(t)) })
	t.Run("to one provider and back to none", func(t *testing.T) { collapse(t, empty(t)) })
}

// overcommitted: a guest that moves also holds some of a class that is over-committed. Placement
// 14.0.0 (2025.2) and ours allow that, since nothing grows; older ones refuse, and the error says
// what to do.
func overcommitted(t *testing.T, url string) {
	e := gpus
	e.crowd = []edit{inventory(cn1, "VCPU", providertree.Inventory{Total: 4})}
	client, _, _, makePlan := e.prepare(t, url)
	plan, desired, after := makePlan()
	err := client.Apply(t.Context(), id(cn1), plan)
	if err == nil {
		checkPlacement(t, url, desired, after)
		return
	}
	if !strings.HasPrefix(t.Name(), "TestReal") {
		t.Fatal(err)
	}
	if !errors.Is(err, reportclient.ErrReshapeRefused) ||
		errors.Is(err, reportclient.ErrConflict) || !strings.Contains(err.Error(), "over-committed") {
		t.Errorf("got %v", err)
	}
	// the way out
	ok(t, apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 4, AllocationRatio: 2})))
	plan, desired, after = makePlan()
	ok(t, client.Apply(t.Context(), id(cn1), plan))
	checkPlacement(t, url, desired, after)
}

// consumerTypes survive, since microversion 1.37 does not speak of them.
func consumerTypes(t *testing.T, url string) {
	e := gpus
	e.claims = map[int]resources{bob: {cn1: {"VGPU": 2}}}
	e.moves = []move{{alice, cn1, "VGPU", gpu0, "VGPU", 1},
		{migration, cn1, "VGPU", gpu0, "VGPU", 1}, {bob, cn1, "VGPU", gpu0, "VGPU", 2}}
	client, _, now, makePlan := e.prepare(t, url)
	claimAs(t, url, alice, resources{cn1: {"VGPU": 1}}, "INSTANCE")
	claimAs(t, url, migration, resources{cn1: {"VGPU": 1}}, "MIGRATION")
	now.pass(6 * time.Minute)
	plan, desired, after := makePlan()
	ok(t, client.Apply(t.Context(), id(cn1), plan))
	checkPlacement(t, url, desired, after)
	for consumer, wanted := range map[int]string{alice: "INSTANCE", migration: "MIGRATION", bob: "unknown"} {
		if got := ask(t, "1.38", url+"/allocations/"+id(consumer)); !strings.Contains(got,
			fmt.Sprintf(`"consumer_type": %q`, wanted)) &&
			!strings.Contains(got, fmt.Sprintf(`"consumer_type":%q`, wanted)) {
			t.Errorf("consumer %d: %s, want type %s", consumer, got, wanted)
		}
	}
}

// vanishing: a consumer that lets go between the two readings is left out, wherever it went.
func vanishing(t *testing.T, url string) {
	client, requests, _, _ := gpus.prepare(t, url)
	testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
	requests.fail = func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/allocations/"+id(alice)) {
			asAdmin(t, "1.37", http.MethodDelete, url+"/allocations/"+id(alice), "")
			body := fmt.Sprintf(
				`{%q: {"allocations": {%q: {"resources": {"VGPU": 1}}}, "project_id": "p", "user_id": "u", `+
					`"consumer_generation": 1}}`, id(bob), id(elsewhere))
			asAdmin(t, "1.37", http.MethodPost, url+"/allocations", body)
		}
		return nil, nil
	}
	got := testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
	other, asked, _ := observed(t, url)
	// nothing of the tree was read before
	unread := testproc.Try(other.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
	want(t, asked, "GET /resource_providers", "GET /resource_providers/#1/allocations", "GET /allocations/#13")
	testproc.Samef(t, cmp.Diff(simplify(got), simplify(unread)), "(-with the tree +without)")
	testproc.Same(t, cmp.Diff(map[string]string{id(carol): "project-13/user: " + id(cn1) + " VCPU 4"}, simplify(got)))
}

// vanishedProvider: a child that another client deletes after the tree was read is a conflict.
func vanishedProvider(t *testing.T, url string) {
	e := gpus
	e.before = append(slices.Clone(e.before), child(cn1, gpu1, "cn1_old"))
	client, _, _, _ := e.prepare(t, url)
	asAdmin(t, "1.37", http.MethodDelete, url+"/resource_providers/"+id(gpu1), "")
	testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).ErrorIs(t, reportclient.ErrConflict, "got %v")
}

// collapse brings everything to the root, deletes the children, and what the client has noted is
// what Placement has.
func collapse(t *testing.T, url string) {
	e := example{
		before: []edit{
			child(cn1, gpu0, "cn1_gpu_0"),
			inventory(gpu0, "VGPU", providertree.Inventory{Total: 2}), traits(gpu0, "CUSTOM_A"),
			child(gpu0, gpu1, "cn1_gpu_1"), inventory(gpu1, "VGPU", providertree.Inventory{Total: 2}), joinStorage,
		},
		claims: map[int]resources{alice: {gpu0: {"VGPU": 1}, nfs: {"DISK_GB": 1}},
			bob: {gpu0: {"VGPU": 1}, gpu1: {"VGPU": 2}}},
		edits: []edit{gone(gpu0), inventory(cn1, "VGPU", providertree.Inventory{Total: 4})},
		moves: []move{{alice, gpu0, "VGPU", cn1, "VGPU", 1}, {bob, gpu0, "VGPU", cn1, "VGPU", 1},
			{bob, gpu1, "VGPU", cn1, "VGPU", 2}},
		plan: []string{
			"reshape cn1: +VGPU 4; cn1_gpu_0: -VGPU; cn1_gpu_1: -VGPU; with the allocations of 2 consumers",
			"delete resource provider cn1_gpu_1 (#3)", "delete resource provider cn1_gpu_0 (#2)",
		},
	}
	e.run(t, url)
}

// ask returns the body of a GET.
func ask(t *testing.T, microversion, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	ok(t, err, authorized(t.Context(), req.Header))
	req.Header.Set("OpenStack-API-Version", "placement "+microversion)
	resp := testproc.Try(http.DefaultClient.Do(req)).Or(t)
	defer func() { _ = resp.Body.Close() }()
	body := testproc.Try(io.ReadAll(resp.Body)).Or(t)
	return string(body)
}

// TestConsumersOfSharingProvidersOnly: the gap that the specification of reshapes leaves. A
// consumer is found by what it holds in the tree, and then gathered with what it holds elsewhere;
// one that holds something on a sharing provider only is not found.
func TestConsumersOfSharingProvidersOnly(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Authenticator: service})
	sharedStorage(t, url)
	client, _, _ := observed(t, url)
	ok(t, apply(t, client, inventory(cn1, "VCPU", providertree.Inventory{Total: 8}), joinStorage))
	claim(t, url, alice, resources{cn1: {"VCPU": 1}, nfs: {"DISK_GB": 10}})
	claim(t, url, bob, resources{nfs: {"DISK_GB": 20}})
	got := testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
	held := providertree.ProviderResources{id(cn1): {"VCPU": 1}, id(nfs): {"DISK_GB": 10}}
	if d := cmp.Diff(held, got[id(alice)].Resources); d != "" || len(got) != 1 {
		t.Errorf("%d consumers (-want +got):\n%s", len(got), d)
	}
}

// TestSharingProviders are shown beside the tree, each once, whatever leads to it; others in the
// aggregate are not.
func TestSharingProviders(t *testing.T) { onEmptyBundled(t, testSharingProviders) }

// TestRealSharingProviders is the same with OpenStack's Placement.
func TestRealSharingProviders(t *testing.T) { onEmptyOpenStack(t, testSharingProviders) }

func testSharingProviders(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	const other, backup = 5, 6 // backup is a child in another host's tree
	url := empty(t)
	sharedStorage(t, url)
	asAdmin(t, "1.37", http.MethodPost, url+"/resource_providers",
		fmt.Sprintf(`{"uuid": %q, "name": "backup", "parent_provider_uuid": %q}`, id(backup), id(elsewhere)))
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(backup)+"/traits",
		`{"resource_provider_generation": 0, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}`)
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(backup)+"/aggregates",
		fmt.Sprintf(`{"resource_provider_generation": 1, "aggregates": [%q, %q]}`, id(aggregate), id(other)))
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(elsewhere)+"/aggregates",
		fmt.Sprintf(`{"resource_provider_generation": 1, "aggregates": [%q]}`, id(aggregate)))
	many := func(provider, first, count int) edit {
		return func(t *testing.T, tr *providertree.Tree) {
			for i := range count {
				testproc.Try(tr.AddAggregates(id(provider), id(first+i))).Or(t)
			}
		}
	}
	writer, requests, _ := observed(t, url)
	ok(t, apply(t, writer, inventory(cn1, "VCPU", providertree.Inventory{Total: 8}), joinStorage, many(cn1, 100, 130),
		child(cn1, gpu0, "cn1_a"), func(t *testing.T, tr *providertree.Tree) {
			testproc.Try(tr.AddAggregates(id(gpu0), id(aggregate), id(other))).Or(t)
		}, many(gpu0, 150, 150)))
	for _, r := range requests.since() {
		if strings.Contains(r, "#9") || strings.Contains(r, "#6") {
			t.Errorf("asked before anything was in an aggregate, or written to a sharing provider: %s", r)
		}
	}
	client, requests, now := observed(t, url)
	tree := testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
	if d := cmp.Diff([]string{id(cn1), id(backup), id(nfs)}, tree.Roots()); d != "" {
		if d := cmp.Diff([]string{id(cn1), id(nfs), id(backup)}, tree.Roots()); d != "" {
			t.Fatalf("roots (-want +got)\n%s", d)
		}
	}
	if inv, _ := tree.Inventory(id(nfs), "DISK_GB"); inv.Total != 1000 || !tree.HasSharingProvider("DISK_GB") {
		t.Errorf("the shared storage is shown as %+v", inv)
	}
	lists := 0
	for _, r := range requests.since() {
		if r == "GET /resource_providers" {
			lists++
		}
	}
	if lists != 1+3 { // 202 aggregates
		t.Errorf("%d lists, want the tree and three for the aggregates", lists)
	}
	// Verifying costs the lists; a claim on the storage, by whichever host, three more.
	now.pass(6 * time.Minute)
	ok(t, apply(t, client))
	want(t, requests, "GET /resource_providers", "GET /resource_providers",
		"GET /resource_providers", "GET /resource_providers")
	claim(t, url, alice, resources{nfs: {"DISK_GB": 10}})
	now.pass(6 * time.Minute)
	ok(t, apply(t, client))
	if got := requests.since(); len(got) != 4+3 {
		t.Errorf("after a claim on the storage: %v", got)
	}
	// A driver that leaves them out deletes nothing; one that changes them writes.
	ok(t, apply(t, client, gone(nfs), gone(backup)))
	want(t, requests)
	ok(t, apply(t, client, inventory(nfs, "DISK_GB", providertree.Inventory{Total: 2000})))
	want(t, requests, "PUT /resource_providers/#9/inventories")
	// Out of the aggregates, out of sight.
	ok(t, apply(t, client, func(t *testing.T, tr *providertree.Tree) {
		for _, p := range []int{cn1, gpu0} {
			testproc.Try(tr.SetAggregates(id(p), nil)).Or(t)
		}
	}))
	requests.since()
	now.pass(6 * time.Minute)
	tree = testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
	want(t, requests, "GET /resource_providers")
	testproc.Samef(t, cmp.Diff([]string{id(cn1)}, tree.Roots()), "roots")
}
