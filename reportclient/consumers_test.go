// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"errors"
	"fmt"
	"maps"
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

// crowd is a node with a child, a share and another host, and consumers on all of them.
func crowd(t *testing.T, url string) (*reportclient.Client, *counter) {
	t.Helper()
	client, requests, _ := observed(t, url)
	sharedStorage(t, url)
	ok(t, apply(t, client,
		inventory(cn1, "VCPU", providertree.Inventory{Total: 8}), child(cn1, gpu0, "cn1_gpu"),
		inventory(gpu0, "CUSTOM_GPU", providertree.Inventory{Total: 4}), joinStorage))
	claim(t, url, alice, resources{cn1: {"VCPU": 2}, gpu0: {"CUSTOM_GPU": 1}})
	claim(t, url, bob, resources{gpu0: {"CUSTOM_GPU": 2}, nfs: {"DISK_GB": 10}})
	claimAs(t, url, moving, resources{cn1: {"VCPU": 1}, elsewhere: {"VCPU": 1}, nfs: {"DISK_GB": 5}}, "INSTANCE")
	claim(t, url, carol, resources{elsewhere: {"VCPU": 1}})
	requests.since()
	return client, requests
}

// TestHoldings: every provider and every class, with all that each consumer holds and how old that
// is.
func TestHoldings(t *testing.T) { onEmptyBundled(t, testHoldings) }

// TestRealHoldings is the same with OpenStack's Placement.
func TestRealHoldings(t *testing.T) { onEmptyOpenStack(t, testHoldings) }

func testHoldings(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	client, requests := crowd(t, empty(t))
	got := testproc.Try(client.Holdings(t.Context(), id(cn1))).Or(t)
	want(t, requests, "GET /resource_providers", "GET /resource_providers", "GET /resource_providers/#1/inventories",
		"GET /resource_providers/#1/allocations",
		"GET /resource_providers/#2/inventories", "GET /resource_providers/#2/allocations", "GET /allocations/#11",
		"GET /allocations/#12", "GET /allocations/#15")
	names, used := []string{}, []string{}
	for _, p := range got.Providers {
		names = append(names, p.Name)
		used = append(used, fmt.Sprint(p.Used()))
	}
	testproc.Same(t, cmp.Diff([]string{"cn1", "map[VCPU:3]", "cn1_gpu", "map[CUSTOM_GPU:3]"},
		[]string{names[0], used[0], names[1], used[1]}))
	testproc.Same(t, cmp.Diff([]string{id(alice), id(bob), id(moving)}, slices.Sorted(maps.Keys(got.Consumers))))
	m := got.Consumers[id(moving)]
	testproc.Same(t, cmp.Diff(resources{cn1: {"VCPU": 1}, elsewhere: {"VCPU": 1}, nfs: {"DISK_GB": 5}}.byUUID(),
		m.Resources))
	if m.Generation == nil || m.ProjectID != "project-15" || m.UserID != "user" {
		t.Errorf("the consumer that is moving: got %+v, want its generation, project and user", m)
	}
	if m.Written.IsZero() || m.Age < 0 || m.Age > time.Hour || time.Since(m.Written) > time.Hour {
		t.Errorf("written at %v, %v ago", m.Written, m.Age)
	}
	none, err := client.Holdings(t.Context(), id(unknown))
	if err != nil || len(none.Providers)+len(none.Consumers) != 0 {
		t.Errorf("a node that is not there: %+v, %v", none, err)
	}
	gone, err := client.Consumer(t.Context(), id(unknown))
	if err != nil || !gone.Empty() || gone.Generation != nil || !gone.Written.IsZero() {
		t.Errorf("a consumer that is not there: %+v, %v", gone, err)
	}
}

// TestConsumerType: a type is read with one request, at the microversion that has types; without
// one it is empty.
func TestConsumerType(t *testing.T) { onEmptyBundled(t, testConsumerType) }

// TestRealConsumerType is the same with OpenStack's Placement.
func TestRealConsumerType(t *testing.T) { onEmptyOpenStack(t, testConsumerType) }

func testConsumerType(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	client, requests := crowd(t, empty(t))
	for consumer, want := range map[int]string{alice: "", moving: "INSTANCE", unknown: ""} {
		if got, err := client.ConsumerType(t.Context(), id(consumer)); err != nil || got != want {
			t.Errorf("consumer %d has the type %q, want %q; %v", consumer, got, want, err)
		}
	}
	testproc.Equal(t, len(requests.since()), 3, "%d requests for 3 consumers")
}

// TestHoldingsOfAChangingNode: a consumer that lets go between the two readings is left out, also
// of what is used. A provider that shares says so.
func TestHoldingsOfAChangingNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
	client, requests := crowd(t, url)
	writer, _, _ := observed(t, url)
	ok(t, apply(t, writer, traits(gpu0, providertree.TraitSharesViaAggregate)))
	requests.fail = func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/allocations/"+id(moving) {
			c := testproc.Try(writer.Consumer(t.Context(), id(moving))).Or(t)
			testproc.Try(writer.DeleteOurPart(t.Context(), c, []string{id(cn1)})).Or(t)
		}
		return nil, nil
	}
	got := testproc.Try(client.Holdings(t.Context(), id(cn1))).Or(t)
	testproc.Same(t, cmp.Diff([]string{id(alice), id(bob)}, slices.Sorted(maps.Keys(got.Consumers))))
	for i, want := range []struct {
		sharing bool
		used    providertree.Resources
	}{{false, providertree.Resources{"VCPU": 2}}, {true, providertree.Resources{"CUSTOM_GPU": 3}}} {
		if p := got.Providers[i]; p.Sharing != want.sharing || !maps.Equal(p.Used(), want.used) {
			t.Errorf("%s: sharing %t, used %v", p.Name, p.Sharing, p.Used())
		}
	}
}

// TestAgeIsPlacementsOwn: the age of a consumer does not depend on the local clock.
func TestAgeIsPlacementsOwn(t *testing.T) { onEmptyBundled(t, testAgeIsPlacementsOwn) }

// TestRealAgeIsPlacementsOwn is the same with OpenStack's Placement.
func TestRealAgeIsPlacementsOwn(t *testing.T) { onEmptyOpenStack(t, testAgeIsPlacementsOwn) }

func testAgeIsPlacementsOwn(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	url := empty(t)
	_, _ = crowd(t, url)
	client, requests, now := observed(t, url)
	now.pass(100 * time.Hour)
	c, err := client.Consumer(t.Context(), id(alice))
	ok(t, err)
	if c.Age > time.Hour {
		t.Errorf("%v old", c.Age)
	}
	// Where no Date is sent, as by a Placement in this process, ours is the same clock.
	requests.fail = func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			resp.Header.Del("Date")
		}
		return resp, err
	}
	c = testproc.Try(client.Consumer(t.Context(), id(alice))).Or(t)
	if c.Age < 99*time.Hour {
		t.Errorf("%v old", c.Age)
	}
	requests.fail = func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			resp.Header.Del("Last-Modified")
		}
		return resp, err
	}
	c, err = client.Consumer(t.Context(), id(alice))
	if err != nil || !c.Written.IsZero() || c.Age != 0 {
		t.Errorf("a consumer of an answer without a date: got %+v, %v, want no age", c, err)
	}
}

// TestDeleteOurPart: what is ours is removed, what is elsewhere stays, and only if no other client
// wrote meanwhile.
func TestDeleteOurPart(t *testing.T) { onEmptyBundled(t, testDeleteOurPart) }

// TestRealDeleteOurPart is the same with OpenStack's Placement.
func TestRealDeleteOurPart(t *testing.T) { onEmptyOpenStack(t, testDeleteOurPart) }

func testDeleteOurPart(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	ours := []string{id(cn1), id(gpu0)}
	url := empty(t)
	client, requests := crowd(t, url)
	read := func(consumer int) reportclient.Consumer {
		t.Helper()
		c := testproc.Try(client.Consumer(t.Context(), id(consumer))).Or(t)
		requests.since()
		return c
	}
	for _, tc := range []struct {
		consumer int
		left     resources
		changed  bool
	}{
		{alice, resources{}, true},
		{bob, resources{nfs: {"DISK_GB": 10}}, true},
		{moving, resources{elsewhere: {"VCPU": 1}, nfs: {"DISK_GB": 5}}, true},
		{carol, resources{elsewhere: {"VCPU": 1}}, false},
		{unknown, resources{}, false},
	} {
		before := read(tc.consumer)
		changed, err := client.DeleteOurPart(t.Context(), before, ours)
		if err != nil || changed != tc.changed {
			t.Errorf("consumer %d: changed %v, %v", tc.consumer, changed, err)
		}
		if sent := requests.since(); (len(sent) == 1) != tc.changed {
			t.Errorf("consumer %d: %v", tc.consumer, sent)
		}
		after := read(tc.consumer)
		testproc.Samef(t, cmp.Diff(tc.left.byUUID(), after.Resources), "consumer %d", tc.consumer)
		if !after.Empty() && (after.ProjectID != before.ProjectID || after.UserID != before.UserID) {
			t.Errorf("consumer %d has another owner: %+v", tc.consumer, after)
		}
		if tc.changed { // once is once
			if _, err := client.DeleteOurPart(t.Context(), before, ours); !errors.Is(err, reportclient.ErrConflict) {
				t.Errorf("consumer %d, with the generation of before: %v", tc.consumer, err)
			}
			if d := cmp.Diff(after.Resources, read(tc.consumer).Resources); d != "" {
				t.Errorf("consumer %d was changed in spite of its generation:\n%s", tc.consumer, d)
			}
		}
	}
}

// TestCreateAllocations: only for a consumer that has none, and only where the capacity suffices.
func TestCreateAllocations(t *testing.T) { onEmptyBundled(t, testCreateAllocations) }

// TestRealCreateAllocations is the same with OpenStack's Placement.
func TestRealCreateAllocations(t *testing.T) { onEmptyOpenStack(t, testCreateAllocations) }

func testCreateAllocations(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	client, requests := crowd(t, empty(t))
	guest := reportclient.Consumer{UUID: id(20),
		ConsumerAllocations: providertree.ConsumerAllocations{ProjectID: "p", UserID: "u",
			Resources: resources{cn1: {"VCPU": 3}, gpu0: {"CUSTOM_GPU": 1}}.byUUID()}}
	ok(t, client.CreateAllocations(t.Context(), guest))
	want(t, requests, "PUT /allocations/#20")
	got := testproc.Try(client.Consumer(t.Context(), guest.UUID)).Or(t)
	if d := cmp.Diff(guest.Resources, got.Resources); d != "" || got.ProjectID != "p" || got.UserID != "u" {
		t.Errorf("%s%+v", d, got)
	}
	if err := client.CreateAllocations(t.Context(), guest); !errors.Is(err, reportclient.ErrConflict) {
		t.Errorf("for one that holds something: %v", err)
	}
	guest.UUID = id(21)
	if err := client.CreateAllocations(t.Context(), guest); !errors.Is(err, reportclient.ErrInsufficientCapacity) ||
		errors.Is(err, reportclient.ErrConflict) || !strings.Contains(err.Error(), "capacity") {
		t.Errorf("without room: %v", err)
	}
	guest.Resources = resources{unknown: {"VCPU": 1}}.byUUID()
	if err := client.CreateAllocations(t.Context(), guest); !errors.Is(err, reportclient.ErrInvalid) {
		t.Errorf("on a provider that is not there: %v", err)
	}
	requests.since()
	if err := client.CreateAllocations(t.Context(), got); err == nil {
		t.Error("over what is there")
	}
	want(t, requests)
}
