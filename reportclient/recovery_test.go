// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// asAdmin does what an operator's client does, with a microversion of its own, and wants one of the
// good statuses.
func asAdmin(t *testing.T, microversion, method, url, body string) {
	t.Helper()
	req := testproc.Try(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))).Or(t)
	ok(t, authorized(t.Context(), req.Header))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("OpenStack-API-Version", "placement "+microversion)
	resp := testproc.Try(http.DefaultClient.Do(req)).Or(t)
	_ = resp.Body.Close()
	if resp.StatusCode > 299 {
		t.Fatalf("%s %s: %s", method, url, resp.Status)
	}
}

// TestPlacementLosesCustomSymbols: a Placement whose database is restored or created again has
// forgotten the custom classes and traits too. The agent makes them again: nothing that the driver
// says is left out, or refused forever.
func TestPlacementLosesCustomSymbols(t *testing.T) { onBundled(t, testPlacementLosesCustomSymbols) }

// TestRealPlacementLosesCustomSymbols is the same with OpenStack's Placement.
func TestRealPlacementLosesCustomSymbols(t *testing.T) {
	onOpenStack(t, testPlacementLosesCustomSymbols)
}

func testPlacementLosesCustomSymbols(t *testing.T, url string) {
	t.Helper()
	client, _, now := observed(t, url)
	gpu := func(t *testing.T, tr *providertree.Tree) {
		if !tr.Exists(id(2)) {
			ok(t, tr.AddChild(id(1), id(2), "cn1_gpu"))
		}
	}
	says := []edit{gpu, traits(1, "COMPUTE_NODE", "CUSTOM_FAST"),
		inventory(2, "CUSTOM_GPU", providertree.Inventory{Total: 2})}
	ok(t, apply(t, client, says...))
	for _, path := range []string{"/resource_providers/" +
		id(2), "/resource_providers/" + id(1), "/resource_classes/CUSTOM_GPU", "/traits/CUSTOM_FAST"} {
		asAdmin(t, "1.37", http.MethodDelete, url+path, "")
	}
	now.pass(6 * time.Minute)
	var err error
	for range 3 { // it may take a pass or two to find out
		if err = apply(t, client, says...); err == nil {
			break
		}
	}
	testproc.NoErrorf(t, err, "the third pass after the loss still fails")
	fresh, _, _ := observed(t, url)
	tree, err := fresh.Tree(t.Context(), id(1), "cn1")
	ok(t, err)
	if !tree.HasTraits(id(1), "CUSTOM_FAST") {
		t.Error("Placement lacks the root's CUSTOM_FAST")
	}
	if _, found := tree.Inventory(id(2), "CUSTOM_GPU"); !found {
		t.Error("Placement lacks the child's CUSTOM_GPU")
	}
}

// TestZeroRatioIsSeen: an allocation ratio of 0 in Placement is no default but a capacity of
// nothing. It is not what the driver says, so it is put right.
func TestZeroRatioIsSeen(t *testing.T) { onBundled(t, testZeroRatioIsSeen) }

// TestRealZeroRatioIsSeen is the same with OpenStack's Placement.
func TestRealZeroRatioIsSeen(t *testing.T) { onOpenStack(t, testZeroRatioIsSeen) }

func testZeroRatioIsSeen(t *testing.T, url string) {
	t.Helper()
	client, requests, now := observed(t, url)
	vcpu := inventory(1, "VCPU", providertree.Inventory{Total: 8, AllocationRatio: 1})
	ok(t, apply(t, client, vcpu))
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(1)+"/inventories/VCPU",
		`{"resource_provider_generation": 1, "total": 8, "allocation_ratio": 0.0}`)
	now.pass(6 * time.Minute)
	requests.since()
	ok(t, apply(t, client, vcpu))
	var written bool
	for _, r := range requests.since() {
		written = written || strings.HasPrefix(r, "PUT ")
	}
	if !written {
		t.Error("Placement has an allocation ratio of 0 for VCPU, the driver says 1, and nothing was written")
	}
}

// TestAggregatesOfOldClients: writes of aggregates with a microversion below 1.19 (the default of
// the openstack command's plugin) do not raise the provider's generation. They survive all the same
// when aggregates are written.
func TestAggregatesOfOldClients(t *testing.T) { onBundled(t, testAggregatesOfOldClients) }

// TestRealAggregatesOfOldClients is the same with OpenStack's Placement.
func TestRealAggregatesOfOldClients(t *testing.T) { onOpenStack(t, testAggregatesOfOldClients) }

func testAggregatesOfOldClients(t *testing.T, url string) {
	t.Helper()
	client, _, _ := observed(t, url)
	ok(t, apply(t, client, inventory(1, "VCPU", providertree.Inventory{Total: 8})))
	asAdmin(t, "1.1", http.MethodPut, url+"/resource_providers/"+id(1)+"/aggregates", `["`+id(7)+`"]`)
	join := func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.AddAggregates(id(1), id(8))).Or(t) }
	if err := apply(t, client, join); !errors.Is(err, reportclient.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	ok(t, apply(t, client, join))
	tree := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	if !tree.InAggregates(id(1), id(7), id(8)) {
		t.Error("the administrator's aggregate is gone, or ours did not come")
	}
}

// TestRenameLeavesTheParent: Placement takes no generation with a new name. So a rename says
// nothing of the parent, which another client may have changed since the tree was read.
func TestRenameLeavesTheParent(t *testing.T) { onBundled(t, testRenameLeavesTheParent) }

// TestRealRenameLeavesTheParent is the same with OpenStack's Placement.
func TestRealRenameLeavesTheParent(t *testing.T) { onOpenStack(t, testRenameLeavesTheParent) }

func testRenameLeavesTheParent(t *testing.T, url string) {
	t.Helper()
	client, _, now := observed(t, url)
	ok(t, apply(t, client, child(1, 2, "cn1_gpu"), child(1, 3, "cn1_numa")))
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(2),
		`{"name": "cn1_gpu", "parent_provider_uuid": "`+id(3)+`"}`)
	ok(t, apply(t, client,
		func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Rename(id(2), "cn1_vgpu")).Or(t) }))
	now.pass(6 * time.Minute)
	tree := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	if p, _ := tree.Provider(id(2)); p.Name != "cn1_vgpu" || p.ParentUUID != id(3) {
		t.Errorf("%s is below %s", p.Name, p.ParentUUID)
	}
}

// TestProviderVanishesWhileRead: a child that another client deletes between the listing and the
// reading is a concurrent write like any other, so that the pass is computed again at once.
func TestProviderVanishesWhileRead(t *testing.T) { onBundled(t, testProviderVanishesWhileRead) }

// TestRealProviderVanishesWhileRead is the same with OpenStack's Placement.
func TestRealProviderVanishesWhileRead(t *testing.T) { onOpenStack(t, testProviderVanishesWhileRead) }

func testProviderVanishesWhileRead(t *testing.T, url string) {
	t.Helper()
	writer, _, _ := observed(t, url)
	ok(t, apply(t, writer, firstTree...))
	client, requests, _ := observed(t, url)
	deleted := false
	requests.fail = func(r *http.Request) (*http.Response, error) {
		if !deleted && strings.HasSuffix(r.URL.Path, id(2)+"/inventories") {
			deleted = true
			asAdmin(t, "1.37", http.MethodDelete, url+"/resource_providers/"+id(2), "")
		}
		return nil, nil
	}
	if _, err := client.Tree(t.Context(), id(1), "cn1"); err != nil && !errors.Is(err, reportclient.ErrConflict) {
		t.Errorf("got %v, want a conflict or the tree without it", err)
	}
}

// TestTraitThatPlacementLearned: a trait that Placement once did not know, and that an admin has
// set since, is not taken away from the provider.
func TestTraitThatPlacementLearned(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const trait = "HW_CPU_X86_NOT_INVENTED_YET"
	traits := `["COMPUTE_NODE"]`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := func(s string) { _, _ = w.Write([]byte(s)) }
		switch {
		case r.URL.Path == "/":
			answer(`{"versions": [{"min_version": "1.0", "max_version": "1.39"}]}`)
		case r.URL.Path == "/resource_providers":
			generation := "1"
			if strings.Contains(traits, trait) {
				generation = "2"
			}
			answer(`{"resource_providers": [{"uuid": "` + id(1) + `", "name": "cn1", "generation": ` + generation +
				`, "parent_provider_uuid": null}]}`)
		case r.URL.Path == "/traits": // os-traits was too old then
			answer(`{"traits": ["COMPUTE_NODE"]}`)
		case r.Method == http.MethodPut && !strings.Contains(traits, trait):
			w.WriteHeader(http.StatusBadRequest)
		case strings.HasSuffix(r.URL.Path, "/traits"):
			answer(`{"resource_provider_generation": 2, "traits": ` + traits + `}`)
		case strings.HasSuffix(r.URL.Path, "/aggregates"):
			answer(`{"resource_provider_generation": 2, "aggregates": []}`)
		default:
			answer(`{"resource_provider_generation": 2, "inventories": {}}`)
		}
	}))
	defer server.Close()
	client, requests, now := observed(t, server.URL)
	known := &providertree.Tree{}
	ok(t, known.Populate(
		[]providertree.Provider{{UUID: id(1), Name: "cn1", Generation: 1, Traits: []string{"COMPUTE_NODE"}}}))
	desired := known.Clone()
	testproc.Try(desired.AddTraits(id(1), trait)).Or(t)
	if client.Apply(t.Context(), id(1), client.Plan(known, desired)) == nil {
		t.Fatal("the first write was not refused")
	}
	requests.since()

	traits = `["COMPUTE_NODE", "` + trait + `"]` // the control plane was upgraded, and an admin set it
	now.pass(6 * time.Minute)
	known = testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	if plan := client.Plan(known, known.Clone()); !plan.Empty() {
		t.Errorf("the driver wants nothing changed, and the plan is: %v", plan.Operations)
	}
}
