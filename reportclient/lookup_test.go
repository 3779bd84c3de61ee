// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// TestLookups: what adopting and removing a node ask of Placement, against both.
func TestLookups(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		client, requests, _ := observed(t, url)
		ok(t, apply(t, client, firstTree...))
		asAdmin(t, "1.36", http.MethodPut, url+"/allocations/"+id(9),
			`{"allocations": {"`+id(1)+`": {"resources": {"VCPU": 2}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`)
		requests.since()

		uuid, found, err := client.FindByName(t.Context(), "cn1_gpu")
		ok(t, err)
		if !found || uuid != id(2) {
			t.Errorf("%s, %t", uuid, found)
		}
		if _, found, err := client.FindByName(t.Context(), "cn2"); found || err != nil {
			t.Errorf("%t, %v", found, err)
		}
		want(t, requests, "GET /resource_providers", "GET /resource_providers")

		tree, err := client.TreeOf(t.Context(), id(2)) // also from a child
		ok(t, err)
		if got := tree.Subtree(id(1)); !slices.Equal(got, []string{id(1), id(2)}) {
			t.Errorf("%v", got)
		}
		if len(requests.since()) != 1+3*2 {
			t.Error("reading a tree costs another number of requests")
		}
		if _, err := client.TreeOf(t.Context(), id(7)); !errors.Is(err, reportclient.ErrNotFound) {
			t.Errorf("%v", err)
		}
		consumers, err := client.ConsumersOf(t.Context(), id(1))
		ok(t, err)
		if len(consumers) != 1 || consumers[id(9)]["VCPU"] != 2 {
			t.Errorf("%v", consumers)
		}
	})
}

// TestRenameAndRemove: both look first, can be repeated, and do nothing to a provider that is not what was looked at.
func TestRenameAndRemove(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
		client, requests, _ := observed(t, url)
		ok(t, apply(t, client, firstTree...))
		read := func(uuid string) providertree.Provider {
			t.Helper()
			tree, err := client.TreeOf(t.Context(), uuid)
			ok(t, err)
			p, _ := tree.Provider(uuid)
			requests.since()
			return p
		}
		stale := func(p providertree.Provider) providertree.Provider { p.Generation += 7; return p }
		root, gpu := read(id(1)), read(id(2))
		if err := client.RenameProvider(t.Context(), stale(root), "cn9"); !errors.Is(err, reportclient.ErrConflict) {
			t.Errorf("%v", err)
		}
		if err := client.RenameProvider(t.Context(), root, "cn1_gpu"); !errors.Is(err, reportclient.ErrDuplicate) {
			t.Errorf("%v", err)
		}
		requests.since()
		ok(t, client.RenameProvider(t.Context(), root, "cn9"))
		want(t, requests, "GET /resource_providers/#1", "PUT /resource_providers/#1")
		ok(t, client.RenameProvider(t.Context(), root, "cn9"))
		want(t, requests, "GET /resource_providers/#1")
		if p := read(id(1)); p.Name != "cn9" || p.ParentUUID != "" || len(p.Inventories) != 2 {
			t.Errorf("%+v", p)
		}
		ok(t, client.RenameProvider(t.Context(), gpu, "cn9_gpu"))
		if p := read(id(2)); p.Name != "cn9_gpu" || p.ParentUUID != id(1) {
			t.Errorf("%+v", p)
		}

		root, gpu = read(id(1)), read(id(2))
		if err := client.RemoveProvider(t.Context(), root); !errors.Is(err, reportclient.ErrProviderInUse) {
			t.Errorf("a parent with a child: %v", err)
		}
		if err := client.RemoveProvider(t.Context(), stale(gpu)); !errors.Is(err, reportclient.ErrConflict) {
			t.Errorf("%v", err)
		}
		asAdmin(t, "1.36", http.MethodPut, url+"/allocations/"+id(9),
			`{"allocations": {"`+id(2)+`": {"resources": {"CUSTOM_GPU": 1}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`)
		gpu = read(id(2))
		if err := client.RemoveProvider(t.Context(), gpu); !errors.Is(err, reportclient.ErrProviderInUse) {
			t.Errorf("one that is allocated: %v", err)
		}
		asAdmin(t, "1.36", http.MethodDelete, url+"/allocations/"+id(9), "")
		gpu = read(id(2))
		ok(t, client.RemoveProvider(t.Context(), gpu))
		ok(t, client.RemoveProvider(t.Context(), gpu))
		ok(t, client.RemoveProvider(t.Context(), read(id(1))))
		client.Forget(id(1))
		if client.Known(id(1)) != nil {
			t.Error("what is gone is still known")
		}
	})
}
