// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocationcandidates"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocations"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceclasses"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/traits"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/usages"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// gopher is a gophercloud client of the endpoint, with a token that it was given.
func gopher(endpoint, token, microversion string) *gophercloud.ServiceClient {
	provider := &gophercloud.ProviderClient{HTTPClient: http.Client{Timeout: patience}}
	provider.SetToken(token)
	return &gophercloud.ServiceClient{ProviderClient: provider, Endpoint: endpoint + "/",
		Type: "placement", Microversion: microversion}
}

// extract is for results that are read with Extract.
func extract[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// TestGophercloud: a host with two NUMA nodes and a device below one, as a program in Go sees it at
// the newest microversion.
func TestGophercloud(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const token = "a program's token"
	endpoint := newPlacement(t, "--auth", "token", "--token-file", tokenFile(t, token, "service"))
	ctx := t.Context()
	if _, err := resourceproviders.List(gopher(endpoint, "another", "1.39"), nil).
		AllPages(ctx); !gophercloud.ResponseCodeIs(err, http.StatusUnauthorized) {
		t.Errorf("with an unknown token: %v", err)
	}
	c := gopher(endpoint, token, "1.39")

	// A tree.
	create := func(name, parent string) *resourceproviders.ResourceProvider {
		t.Helper()
		return extract[*resourceproviders.ResourceProvider](t)(resourceproviders.Create(ctx, c,
			resourceproviders.CreateOpts{Name: name, UUID: uuid.NewString(), ParentProviderUUID: parent}).Extract())
	}
	host := create("host", "")
	numa0, numa1 := create("host_NUMA0", host.UUID), create("host_NUMA1", host.UUID)
	device := create("host_device", numa0.UUID)
	if device.RootProviderUUID != host.UUID || device.ParentProviderUUID != numa0.UUID {
		t.Errorf("the device is %+v", device)
	}
	renamed := extract[*resourceproviders.ResourceProvider](t)(resourceproviders.Update(ctx, c, device.UUID,
		resourceproviders.UpdateOpts{Name: ptr("host_FPGA")}).Extract())
	testproc.Equal(t, renamed.Name, "host_FPGA", "the device was renamed to %q")
	if _, err := resourceproviders.Create(ctx, c, resourceproviders.CreateOpts{Name: "host"}).
		Extract(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		t.Errorf("a second provider named host: %v", err)
	}

	// Its inventories, with a class and traits of one's own.
	check(t, resourceclasses.Create(ctx, c, resourceclasses.CreateOpts{Name: "CUSTOM_GATE"}).ExtractErr())
	check(t, resourceclasses.Update(ctx, c, "CUSTOM_GATE").ExtractErr())
	inventory := func(total int) resourceproviders.Inventory {
		return resourceproviders.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	for _, numa := range []*resourceproviders.ResourceProvider{numa0, numa1} {
		got := extract[*resourceproviders.ResourceProviderInventories](
			t)(resourceproviders.UpdateInventories(ctx, c, numa.UUID, resourceproviders.UpdateInventoriesOpts{
			ResourceProviderGeneration: numa.Generation,
			Inventories: map[string]resourceproviders.Inventory{"VCPU": inventory(8),
				"MEMORY_MB": inventory(16384)},
		}).Extract())
		if diff := cmp.Diff(inventory(8), got.Inventories["VCPU"]); diff != "" ||
			got.ResourceProviderGeneration != numa.Generation+1 {
			t.Errorf("inventories at generation %d (-want +got):\n%s", got.ResourceProviderGeneration, diff)
		}
	}
	// An empty inventories set first: a single class is put into what is there.
	extract[*resourceproviders.ResourceProviderInventories](
		t)(resourceproviders.UpdateInventories(ctx, c, device.UUID, resourceproviders.UpdateInventoriesOpts{
		ResourceProviderGeneration: device.Generation,
		Inventories:                map[string]resourceproviders.Inventory{"CUSTOM_GATE": inventory(3)},
	}).Extract())
	extract[*resourceproviders.ResourceProviderInventory](
		t)(resourceproviders.UpdateInventory(ctx, c, device.UUID, "CUSTOM_GATE",
		resourceproviders.UpdateInventoryOpts{ResourceProviderGeneration: device.Generation + 1,
			Inventory: inventory(4)}).Extract())
	one := extract[*resourceproviders.ResourceProviderInventory](
		t)(resourceproviders.GetInventory(ctx, c, device.UUID, "CUSTOM_GATE").Extract())
	if one.Total != 4 {
		t.Errorf("the inventory of CUSTOM_GATE is %+v", one)
	}
	if _, err := resourceproviders.UpdateInventory(ctx, c,
		device.UUID, "CUSTOM_GATE", resourceproviders.UpdateInventoryOpts{Inventory: inventory(5)}).
		Extract(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		t.Errorf("a write at an old generation: %v", err)
	}

	check(t, traits.Create(ctx, c, "CUSTOM_NEAR").ExtractErr())
	check(t, traits.Get(ctx, c, "CUSTOM_NEAR").ExtractErr())
	if err := traits.Get(ctx, c, "CUSTOM_FAR").ExtractErr(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("a trait that is not there: %v", err)
	}
	have := extract[*resourceproviders.ResourceProviderTraits](
		t)(resourceproviders.UpdateTraits(ctx, c, numa0.UUID, resourceproviders.UpdateTraitsOpts{
		ResourceProviderGeneration: numa0.Generation + 1, Traits: []string{"CUSTOM_NEAR"},
	}).Extract())
	testproc.Samef(t, cmp.Diff([]string{"CUSTOM_NEAR"}, have.Traits), "traits")
	associated := true
	pages, err := traits.List(c, traits.ListOpts{Name: "startswith:CUSTOM_", Associated: &associated}).AllPages(ctx)
	check(t, err)
	if diff := cmp.Diff([]string{"CUSTOM_NEAR"}, extract[[]string](t)(traits.ExtractTraits(pages))); diff != "" {
		t.Errorf("associated traits (-want +got):\n%s", diff)
	}
	aggregate := uuid.NewString()
	grouped := extract[*resourceproviders.ResourceProviderAggregates](
		t)(resourceproviders.UpdateAggregates(ctx, c, host.UUID, resourceproviders.UpdateAggregatesOpts{
		ResourceProviderGeneration: &host.Generation, Aggregates: []string{aggregate},
	}).Extract())
	testproc.Samef(t, cmp.Diff([]string{aggregate}, grouped.Aggregates), "aggregates")
	list, err := resourceproviders.List(c,
		resourceproviders.ListOpts139{MemberOf: []string{aggregate}, Resources: "VCPU:4"}).AllPages(ctx)
	check(t, err)
	if found := extract[[]resourceproviders.ResourceProvider](
		t)(resourceproviders.ExtractResourceProviders(list)); len(found) != 0 {
		t.Errorf("providers of the aggregate that have VCPU are %v: only the host is in it, and it has none", found)
	}

	// What is available: CPU and device of the same NUMA node.
	asked := testproc.Try(allocationcandidates.List(c, allocationcandidates.ListOpts{
		MemberOf: []string{aggregate}, Resources: "MEMORY_MB:1024", GroupPolicy: "none",
		SameSubtree: []string{"_CPU,_DEV"}, Limit: 10,
		ResourceGroups: map[string]allocationcandidates.ResourceGroup{
			"_CPU": {Resources: "VCPU:2", Required: []string{"CUSTOM_NEAR"}}, "_DEV": {Resources: "CUSTOM_GATE:1"},
		},
	}).AllPages(ctx)).Or(t)
	candidates := extract[*allocationcandidates.AllocationCandidates](
		t)(allocationcandidates.ExtractAllocationCandidates(asked))
	if len(candidates.AllocationRequests) != 2 || len(candidates.ProviderSummaries) != 4 {
		t.Fatalf("%d candidates and %d summaries, not 2 (memory of either NUMA node) and 4",
			len(candidates.AllocationRequests), len(candidates.ProviderSummaries))
	}
	for _, request := range candidates.AllocationRequests {
		if request.Mappings == nil || !slices.Equal((*request.Mappings)["_CPU"], []string{numa0.UUID}) ||
			!slices.Equal((*request.Mappings)["_DEV"], []string{device.UUID}) {
			t.Errorf("a candidate maps %v", request.Mappings)
		}
	}

	// A claim of the first of them, its usages, and that no client can overwrite it by accident.
	claim := allocations.UpdateOpts{
		Allocations: map[string]allocations.ProviderAllocationsOpts{}, ProjectID: "p",
		UserID: "u", ConsumerType: "INSTANCE",
	}
	for provider, a := range candidates.AllocationRequests[0].Allocations {
		claim.Allocations[provider] = allocations.ProviderAllocationsOpts{Resources: a.Resources}
	}
	consumer := uuid.NewString()
	check(t, allocations.Update(ctx, c, consumer, claim).ExtractErr())
	if err := allocations.Update(ctx, c, consumer, claim).
		ExtractErr(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		t.Errorf("a second first claim: %v", err)
	}
	claimed := extract[*allocations.Allocations](t)(allocations.Get(ctx, c, consumer).Extract())
	if claimed.ConsumerGeneration == nil || claimed.ConsumerType == nil || *claimed.ConsumerType != "INSTANCE" ||
		len(claimed.Allocations) != len(claim.Allocations) {
		t.Errorf("the claim is %+v", claimed)
	}
	used := extract[*usages.Usages](
		t)(usages.Get(ctx, c, usages.GetOpts{ProjectID: "p", ConsumerType: "INSTANCE"}).Extract())
	want := map[string]usages.ConsumerTypeUsage{"INSTANCE": {"consumer_count": 1, "VCPU": 2,
		"MEMORY_MB": 1024, "CUSTOM_GATE": 1}}
	testproc.Samef(t, cmp.Diff(want, used.Usages), "usages")
	ofDevice := extract[*resourceproviders.ResourceProviderUsage](
		t)(resourceproviders.GetUsages(ctx, c, device.UUID).Extract())
	if ofDevice.Usages["CUSTOM_GATE"] != 1 {
		t.Errorf("usages of the device are %v", ofDevice.Usages)
	}
	onDevice := extract[*resourceproviders.ResourceProviderAllocations](
		t)(resourceproviders.GetAllocations(ctx, c, device.UUID).Extract())
	if onDevice.Allocations[consumer].Resources["CUSTOM_GATE"] != 1 {
		t.Errorf("allocations on the device are %v", onDevice.Allocations)
	}

	// Two consumers at once: one goes, one comes.
	next := uuid.NewString()
	taken := claim
	claim.Allocations, claim.ConsumerGeneration =
		map[string]allocations.ProviderAllocationsOpts{}, claimed.ConsumerGeneration
	check(t, allocations.Manage(ctx, c, allocations.ManageOpts{consumer: claim, next: taken}).ExtractErr())
	if gone := extract[*allocations.Allocations](
		t)(allocations.Get(ctx, c, consumer).Extract()); len(gone.Allocations) != 0 {
		t.Errorf("what was given up is still there: %v", gone)
	}

	// Deletion: what is in use stays; afterwards all goes, from the leaves up.
	if err := resourceproviders.DeleteInventories(ctx, c, device.UUID).
		ExtractErr(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		t.Errorf("deleting inventories in use: %v", err)
	}
	check(t, allocations.Delete(ctx, c, next).ExtractErr())
	if err := allocations.Delete(ctx, c, next).ExtractErr(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("deleting a claim twice: %v", err)
	}
	if err := resourceproviders.Delete(ctx, c, host.UUID).
		ExtractErr(); !gophercloud.ResponseCodeIs(err, http.StatusConflict) {
		t.Errorf("deleting a provider with children: %v", err)
	}
	check(t, resourceproviders.DeleteTraits(ctx, c, numa0.UUID).ExtractErr())
	check(t, resourceproviders.DeleteInventory(ctx, c, device.UUID, "CUSTOM_GATE").ExtractErr())
	for _, provider := range []*resourceproviders.ResourceProvider{device, numa0, numa1, host} {
		check(t, resourceproviders.Delete(ctx, c, provider.UUID).ExtractErr())
	}
	check(t, traits.Delete(ctx, c, "CUSTOM_NEAR").ExtractErr())
	check(t, resourceclasses.Delete(ctx, c, "CUSTOM_GATE").ExtractErr())
}

// TestGophercloudOldMicroversion: a program that asks for the forms of long ago gets them.
func TestGophercloudOldMicroversion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	endpoint := newPlacement(t)
	ctx := t.Context()
	old := gopher(endpoint, "admin", "1.10")
	host := extract[*resourceproviders.ResourceProvider](
		t)(resourceproviders.Create(ctx, gopher(endpoint, "admin", "1.20"), resourceproviders.CreateOpts{Name: "host"}).
		Extract())
	extract[*resourceproviders.ResourceProviderInventories](
		t)(resourceproviders.UpdateInventories(ctx, old, host.UUID, resourceproviders.UpdateInventoriesOpts{
		Inventories: map[string]resourceproviders.Inventory{"VCPU": {Total: 4, MinUnit: 1, MaxUnit: 4,
			StepSize: 1, AllocationRatio: 1}},
	}).Extract())
	aggregate := uuid.NewString()
	grouped := extract[*resourceproviders.ResourceProviderAggregates](
		t)(resourceproviders.UpdateAggregates(ctx, old, host.UUID,
		resourceproviders.UpdateAggregatesOpts{Aggregates: []string{aggregate}}).Extract())
	if grouped.ResourceProviderGeneration != nil || !slices.Equal(grouped.Aggregates, []string{aggregate}) {
		t.Errorf("aggregates at 1.10 are %+v", grouped)
	}
	pages, err := allocationcandidates.List(old, allocationcandidates.ListOpts{Resources: "VCPU:1"}).AllPages(ctx)
	check(t, err)
	candidates := extract[*allocationcandidates.AllocationCandidates110](
		t)(allocationcandidates.ExtractAllocationCandidates110(pages))
	want := &allocationcandidates.AllocationCandidates110{
		AllocationRequests: []allocationcandidates.AllocationRequest110{{
			Allocations: []allocationcandidates.AllocationRequest110Resource{{
				ResourceProvider: allocationcandidates.AllocationRequest110ResourceProvider{UUID: host.UUID},
				Resources:        map[string]int{"VCPU": 1},
			}},
		}},
		ProviderSummaries: map[string]allocationcandidates.ProviderSummary110{
			host.UUID: {Resources: map[string]allocationcandidates.ProviderSummaryResource{"VCPU": {Capacity: 4}}},
		},
	}
	testproc.Samef(t, cmp.Diff(want, candidates), "candidates at 1.10")
	used := extract[*usages.UsagesPre138](t)(usages.Get(ctx, old, usages.GetOpts{ProjectID: "p"}).ExtractPre138())
	if len(used.Usages) != 0 {
		t.Errorf("usages of an unknown project are %v", used.Usages)
	}
}

func ptr[T any](v T) *T { return &v }
