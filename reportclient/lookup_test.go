// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestLookups: what adopting and removing a node ask of Placement, against both.
func TestLookups(t *testing.T) { onBundled(t, testLookups) }

// TestRealLookups is the same with OpenStack's Placement.
func TestRealLookups(t *testing.T) { onOpenStack(t, testLookups) }

func testLookups(t *testing.T, url string) {
	t.Helper()
	client, requests, _ := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	asAdmin(t, "1.36", http.MethodPut, url+"/allocations/"+id(9),
		`{"allocations": {"`+id(1)+
			`": {"resources": {"VCPU": 2}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`)
	requests.since()

	uuid, found, err := client.FindByName(t.Context(), "cn1_gpu")
	ok(t, err)
	if !found || uuid != id(2) {
		t.Errorf("%s, %t", uuid, found)
	}
	if _, found, err := client.FindByName(t.Context(), "cn2"); found || err != nil {
		t.Errorf("%t, %v", found, err)
	}
	if _, taken, err := client.FindNamesake(t.Context(), "CN1_gpu"); taken || err != nil {
		t.Errorf("%t, %v", taken, err)
	}
	want(t, requests, "GET /resource_providers", "GET /resource_providers", "GET /resource_providers")

	tree, err := client.TreeOf(t.Context(), id(2)) // also from a child
	ok(t, err)
	testproc.EqualList(t, tree.Subtree(id(1)), []string{id(1), id(2)}, "Subtree: %v")
	if len(requests.since()) != 1+3*2 {
		t.Error("reading a tree costs another number of requests")
	}
	testproc.Try(client.TreeOf(t.Context(), id(7))).ErrorIs(t, reportclient.ErrNotFound, "TreeOf: %v")
	consumers := testproc.Try(client.ConsumersOf(t.Context(), id(1))).Or(t)
	if len(consumers) != 1 || consumers[id(9)]["VCPU"] != 2 {
		t.Errorf("ConsumersOf a tree: got %v, want 2 VCPU of one consumer", consumers)
	}
}

// TestNamesThatDifferInSpaces: a provider of such a name is no other one's, and keeps another one
// from having it. A node that finds it says its name.
func TestNamesThatDifferInSpaces(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
	asAdmin(t, "1.36", http.MethodPost, url+"/resource_providers", `{"uuid": "`+id(7)+`", "name": "cn1 "}`)
	client, _, _ := observed(t, url)
	for name, want := range map[string][2]bool{"cn1": {false, true}, "cn1 ": {true, true},
		"cn1  ": {false, true}, "cn": {}} {
		_, found, err := client.FindByName(t.Context(), name)
		testproc.Check(t, err)
		uuid, taken, err := client.FindNamesake(t.Context(), name)
		testproc.Check(t, err)
		if got := [2]bool{found, taken}; got != want || taken && uuid != id(7) {
			t.Errorf("%q is found and taken: %v, by %q", name, got, uuid)
		}
	}
	_, err := client.Tree(t.Context(), id(1), "cn1")
	testproc.ErrorIs(t, err, reportclient.ErrIdentity, "%v")
	testproc.Contains(t, err.Error(), `resource provider "cn1 " has uuid `+id(7)+` there`, "%s")
	testproc.Contains(t, err.Error(), "adopt --node cn1 --uuid "+id(7), "%s")
}

// TestRenameAndRemove: both look first, can be repeated, and do nothing to a provider that is not
// what was looked at.
func TestRenameAndRemove(t *testing.T) { onBundled(t, testRenameAndRemove) }

// TestRealRenameAndRemove is the same with OpenStack's Placement.
func TestRealRenameAndRemove(t *testing.T) { onOpenStack(t, testRenameAndRemove) }

func testRenameAndRemove(t *testing.T, url string) {
	t.Helper()
	client, requests, _ := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	read := func(uuid string) providertree.Provider {
		t.Helper()
		tree := testproc.Try(client.TreeOf(t.Context(), uuid)).Or(t)
		p, _ := tree.Provider(uuid)
		requests.since()
		return p
	}
	stale := func(p providertree.Provider) providertree.Provider { p.Generation += 7; return p }
	root, gpu := read(id(1)), read(id(2))
	testproc.ErrorIs(t, client.RenameProvider(t.Context(), stale(root), "cn9"), reportclient.ErrConflict, "%v")
	testproc.ErrorIs(t, client.RenameProvider(t.Context(), root, "cn1_gpu"), reportclient.ErrDuplicate, "%v")
	requests.since()
	ok(t, client.RenameProvider(t.Context(), root, "cn9"))
	want(t, requests, "GET /resource_providers/#1", "PUT /resource_providers/#1")
	ok(t, client.RenameProvider(t.Context(), root, "cn9"))
	want(t, requests, "GET /resource_providers/#1")
	if p := read(id(1)); p.Name != "cn9" || p.ParentUUID != "" || len(p.Inventories) != 2 {
		t.Errorf("the renamed root: got %+v, want cn9 with two inventories", p)
	}
	ok(t, client.RenameProvider(t.Context(), gpu, "cn9_gpu"))
	if p := read(id(2)); p.Name != "cn9_gpu" || p.ParentUUID != id(1) {
		t.Errorf("the renamed child: got %+v, want cn9_gpu below the root", p)
	}

	root, gpu = read(id(1)), read(id(2))
	if err := client.RemoveProvider(t.Context(), root); !errors.Is(err, reportclient.ErrProviderInUse) {
		t.Errorf("a parent with a child: %v", err)
	}
	testproc.ErrorIs(t, client.RemoveProvider(t.Context(), stale(gpu)), reportclient.ErrConflict, "RemoveProvider: %v")
	asAdmin(t, "1.36", http.MethodPut, url+"/allocations/"+id(9),
		`{"allocations": {"`+id(2)+
			`": {"resources": {"CUSTOM_GPU": 1}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`)
	gpu = read(id(2))
	if err := client.RemoveProvider(t.Context(), gpu); !errors.Is(err, reportclient.ErrProviderInUse) {
		t.Errorf("one that is allocated: %v", err)
	}
	asAdmin(t, "1.36", http.MethodDelete, url+"/allocations/"+id(9), "")
	gpu = read(id(2))
	requests.fail = func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete { // another client is first
			asAdmin(t, "1.37", http.MethodDelete, url+"/resource_providers/"+id(2), "")
		}
		return nil, nil
	}
	ok(t, client.RemoveProvider(t.Context(), gpu))
	requests.fail = nil
	ok(t, client.RemoveProvider(t.Context(), gpu))
	ok(t, client.RemoveProvider(t.Context(), read(id(1))))
	client.Forget(id(1))
	if tree, _ := client.Known(id(1)); tree != nil {
		t.Error("what is gone is still known")
	}
}

// TestRecheckSeesWhatOthersWrote: within the refresh interval a tree is taken from the cache,
// unless another client asked for a comparison. One that fails is still due.
func TestRecheckSeesWhatOthersWrote(t *testing.T) { onBundled(t, testRecheckSeesWhatOthersWrote) }

// TestRealRecheckSeesWhatOthersWrote is the same with OpenStack's Placement.
func TestRealRecheckSeesWhatOthersWrote(t *testing.T) { onOpenStack(t, testRecheckSeesWhatOthersWrote) }

func testRecheckSeesWhatOthersWrote(t *testing.T, url string) {
	t.Helper()
	client, requests, now := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	_, read := client.Known(id(1))
	now.pass(time.Minute)
	asAdmin(t, "1.37", http.MethodPut, url+"/traits/CUSTOM_THEIRS", "")
	before := testproc.Try(client.TreeOf(t.Context(), id(2))).Or(t)
	child, _ := before.Provider(id(2))
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(2)+"/traits",
		fmt.Sprintf(`{"resource_provider_generation": %d, "traits": ["CUSTOM_THEIRS"]}`, child.Generation))
	requests.since()

	has := func(ctx context.Context) (bool, error) {
		tree, err := client.Tree(ctx, id(1), "cn1")
		return err == nil && tree.HasTraits(id(2), "CUSTOM_THEIRS"), err
	}
	if there, err := has(t.Context()); err != nil || there {
		t.Fatalf("%t, %v; this test must begin with a cached tree", there, err)
	}
	want(t, requests)
	if _, at := client.Known(id(1)); !at.Equal(read) {
		t.Errorf("the cached tree says that it was read at %v, and it was at %v", at, read)
	}
	client.Recheck()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := has(ended); err == nil {
		t.Fatal("a read whose context has ended succeeds")
	}
	if there, err := has(t.Context()); err != nil || !there {
		t.Errorf("after a recheck that failed: %t, %v", there, err)
	}
	if _, at := client.Known(id(1)); !at.Equal(now.Now()) {
		t.Errorf("the cached tree says that it was read at %v, now is %v", at, now.Now())
	}
	requests.since()
	if _, err := has(t.Context()); err != nil {
		t.Error(err)
	}
	want(t, requests)
}
