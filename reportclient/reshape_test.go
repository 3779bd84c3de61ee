// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// service is who a reshape is allowed to; everything else the tests do is, too.
var service = osapi.Fixed{Principal: osapi.Principal{User: "compute-agent",
	Project: "service", Roles: []string{"service"}}}

// onEmptyBundled runs a test against the bundled Placement. Each call of empty gives the URL of one
// in which nothing was written.
func onEmptyBundled(t *testing.T, test func(t *testing.T, empty func(*testing.T) string)) {
	t.Helper()
	testproc.Parallel(t, testproc.Light)
	test(t, func(t *testing.T) string { return bundled(t, placement.Auth{Authenticator: service}) })
}

// onEmptyOpenStack is onEmptyBundled with OpenStack's Placement.
func onEmptyOpenStack(t *testing.T, test func(t *testing.T, empty func(*testing.T) string)) {
	t.Helper()
	testproc.Parallel(t, testproc.Light)
	server := testproc.StartPlacement(t)
	test(t, func(t *testing.T) string {
		ok(t, server.Reset(t.Context()))
		return server.URL
	})
}

// Providers and consumers of the tests. The instances live on cn1; elsewhere is another host, and
// nfs shares storage.
const (
	cn1, gpu0, gpu1   = 1, 2, 3
	elsewhere, nfs    = 8, 9
	alice, bob, carol = 11, 12, 13
	// migration is a consumer that is not an instance; moving is an instance between two hosts.
	migration, moving  = 14, 15
	aggregate, unknown = 7, 29
)

// resources is what a consumer holds: by provider, then by class.
type resources map[int]map[string]int64

func (r resources) byUUID() providertree.ProviderResources {
	out := providertree.ProviderResources{}
	for provider, amounts := range r {
		out[id(provider)] = amounts
	}
	return out
}

// claim is what a scheduler does: a consumer is given something. A type is given only if it has
// one.
func claim(t *testing.T, url string, consumer int, holds resources) {
	t.Helper()
	claimAs(t, url, consumer, holds, "")
}

func claimAs(t *testing.T, url string, consumer int, holds resources, consumerType string) {
	t.Helper()
	var parts []string
	for _, provider := range slices.Sorted(maps.Keys(holds)) {
		var amounts []string
		for class, n := range holds[provider] {
			amounts = append(amounts, fmt.Sprintf("%q: %d", class, n))
		}
		parts = append(parts, fmt.Sprintf(`%q: {"resources": {%s}}`, id(provider), strings.Join(amounts, ", ")))
	}
	body := fmt.Sprintf(
		`{"allocations": {%s}, "project_id": "project-%d", "user_id": "user", "consumer_generation": null`,
		strings.Join(parts, ", "), consumer)
	version := "1.37"
	if consumerType != "" {
		body, version = body+fmt.Sprintf(`, "consumer_type": %q`, consumerType), "1.38"
	}
	asAdmin(t, version, http.MethodPut, url+"/allocations/"+id(consumer), body+"}")
}

// sharedStorage is an NFS share for cn1 and others, and another host.
func sharedStorage(t *testing.T, url string) {
	t.Helper()
	for uuid, name := range map[int]string{nfs: "nfs", elsewhere: "cn2"} {
		asAdmin(t, "1.37", http.MethodPost, url+"/resource_providers",
			fmt.Sprintf(`{"uuid": %q, "name": %q}`, id(uuid), name))
	}
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(nfs)+"/inventories",
		`{"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 1000}}}`)
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(nfs)+"/traits",
		`{"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}`)
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(nfs)+"/aggregates",
		fmt.Sprintf(`{"resource_provider_generation": 2, "aggregates": [%q]}`, id(aggregate)))
	asAdmin(t, "1.37", http.MethodPut, url+"/resource_providers/"+id(elsewhere)+"/inventories",
		`{"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8}, "VGPU": {"total": 2}}}`)
}

func joinStorage(t *testing.T, tr *providertree.Tree) {
	t.Helper()
	testproc.Try(tr.AddAggregates(id(cn1), id(aggregate))).Or(t)
}

func noInventory(provider int, class string) edit {
	return func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.RemoveInventory(id(provider), class)).Or(t)
	}
}

// move turns a consumer's amount of a class on a provider into as much of a class on another.
type move struct {
	consumer, from int
	class          string
	to             int
	as             string
	amount         int64
}

func (m move) apply(a providertree.Allocations) {
	held := a[id(m.consumer)].Resources
	held[id(m.from)][m.class] -= m.amount
	if held[id(m.to)] == nil {
		held[id(m.to)] = map[string]int64{}
	}
	held[id(m.to)][m.as] += m.amount
}

// example is a reshape with what Placement has before, and what the plan must say.
type example struct {
	name   string
	before []edit
	claims map[int]resources
	crowd  []edit // written once the claims are there
	edits  []edit
	moves  []move
	plan   []string
}

// TestReshapes: the three worked examples of the specification, each with a migration's consumer,
// an instance that is also on another host, shared storage attached, and a class that is
// over-committed.
func TestReshapes(t *testing.T) { onEmptyBundled(t, testReshapes) }

// TestRealReshapes is the same with OpenStack's Placement.
func TestRealReshapes(t *testing.T) { onEmptyOpenStack(t, testReshapes) }

func testReshapes(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	examples := []example{{
		name: "VGPU from the root to one child for each physical GPU",
		before: []edit{inventory(cn1, "VCPU", providertree.Inventory{Total: 8}),
			inventory(cn1, "VGPU", providertree.Inventory{Total: 6}), joinStorage},
		claims: map[int]resources{
			alice: {cn1: {"VGPU": 1}, nfs: {"DISK_GB": 10}}, bob: {cn1: {"VGPU": 2}}, carol: {cn1: {"VCPU": 6}},
			migration: {cn1: {"VGPU": 1}}, moving: {cn1: {"VGPU": 1}, elsewhere: {"VGPU": 1, "VCPU": 2}},
		},
		crowd: []edit{inventory(cn1, "VCPU", providertree.Inventory{Total: 4})},
		edits: []edit{
			child(cn1, gpu0, "cn1_pci_0000_84_00_0"),
			child(cn1, gpu1, "cn1_pci_0000_85_00_0"), noInventory(cn1, "VGPU"),
			inventory(gpu0, "VGPU", providertree.Inventory{Total: 4}),
			inventory(gpu1, "VGPU", providertree.Inventory{Total: 2}),
			traits(gpu0, "OWNER_NOVA"), traits(gpu1, "OWNER_NOVA"),
			inventory(cn1, "VCPU", providertree.Inventory{Total: 4, Reserved: 1}),
		},
		moves: []move{
			{alice, cn1, "VGPU", gpu0, "VGPU", 1}, {bob, cn1, "VGPU", gpu0, "VGPU", 2},
			{migration, cn1, "VGPU", gpu1, "VGPU", 1}, {moving, cn1, "VGPU", gpu1, "VGPU", 1},
		},
		plan: []string{
			"create resource provider cn1_pci_0000_84_00_0 (#2) below #1",
			"create resource provider cn1_pci_0000_85_00_0 (#3) below #1",
			"set the traits of cn1_pci_0000_85_00_0: +OWNER_NOVA",
			"set the traits of cn1_pci_0000_84_00_0: +OWNER_NOVA",
			"reshape cn1: VCPU reserved 0→1, -VGPU; cn1_pci_0000_84_00_0: +VGPU 4; cn1_pci_0000_85_00_0: +VGPU 2; " +
				"with the allocations of 4 consumers",
		},
	}, {
		name: "processors, memory and network functions to NUMA nodes",
		before: []edit{
			inventory(cn1, "VCPU", providertree.Inventory{Total: 16, AllocationRatio: 4}),
			inventory(cn1, "MEMORY_MB", providertree.Inventory{Total: 32768}),
			inventory(cn1, "SRIOV_NET_VF", providertree.Inventory{Total: 8}),
			inventory(cn1, "PCPU", providertree.Inventory{Total: 4}), joinStorage,
		},
		claims: map[int]resources{
			alice:     {cn1: {"VCPU": 2, "MEMORY_MB": 2048, "SRIOV_NET_VF": 1}, nfs: {"DISK_GB": 10}},
			bob:       {cn1: {"VCPU": 4, "MEMORY_MB": 4096}, nfs: {"DISK_GB": 20}},
			carol:     {cn1: {"PCPU": 4}},
			migration: {cn1: {"VCPU": 4, "MEMORY_MB": 4096}},
			moving:    {cn1: {"VCPU": 1, "MEMORY_MB": 512}, elsewhere: {"VCPU": 1}},
		},
		crowd: []edit{inventory(cn1, "PCPU", providertree.Inventory{Total: 2})},
		edits: []edit{
			child(cn1, 2, "cn1_numa_0"), child(cn1, 3, "cn1_numa_1"),
			traits(2, "HW_NUMA_ROOT"), traits(3, "HW_NUMA_ROOT"),
			noInventory(cn1, "VCPU"), noInventory(cn1, "MEMORY_MB"), noInventory(cn1, "SRIOV_NET_VF"),
			inventory(2, "VCPU", providertree.Inventory{Total: 8, AllocationRatio: 4}),
			inventory(3, "VCPU", providertree.Inventory{Total: 8, AllocationRatio: 4}),
			inventory(2, "MEMORY_MB", providertree.Inventory{Total: 16384}),
			inventory(3, "MEMORY_MB", providertree.Inventory{Total: 16384}),
			child(2, 4, "cn1_pf_0"), inventory(4, "SRIOV_NET_VF", providertree.Inventory{Total: 8}),
		},
		moves: []move{
			{alice, cn1, "VCPU", 2, "VCPU", 2}, {alice, cn1, "MEMORY_MB", 2, "MEMORY_MB", 2048},
			{alice, cn1, "SRIOV_NET_VF", 4, "SRIOV_NET_VF", 1},
			{bob, cn1, "VCPU", 2, "VCPU", 2}, {bob, cn1, "VCPU", 3, "VCPU", 2},
			{bob, cn1, "MEMORY_MB", 3, "MEMORY_MB", 4096},
			{migration, cn1, "VCPU", 3, "VCPU", 4}, {migration, cn1, "MEMORY_MB", 3, "MEMORY_MB", 4096},
			{moving, cn1, "VCPU", 3, "VCPU", 1}, {moving, cn1, "MEMORY_MB", 3, "MEMORY_MB", 512},
		},
		plan: []string{
			"create resource provider cn1_numa_0 (#2) below #1",
			"create resource provider cn1_pf_0 (#4) below #2",
			"create resource provider cn1_numa_1 (#3) below #1",
			"set the traits of cn1_numa_1: +HW_NUMA_ROOT",
			"set the traits of cn1_numa_0: +HW_NUMA_ROOT",
			"reshape cn1: -MEMORY_MB, -SRIOV_NET_VF, -VCPU; cn1_numa_0: +MEMORY_MB 16384, +VCPU 8; cn1_pf_0: " +
				"+SRIOV_NET_VF 8; cn1_numa_1: +MEMORY_MB 16384, +VCPU 8; with the allocations of 4 consumers",
		},
	}, {
		name: "a custom class becomes a standard one",
		before: []edit{
			inventory(cn1, "VCPU", providertree.Inventory{Total: 8}), child(cn1, gpu0, "cn1_gpu"),
			inventory(gpu0, "CUSTOM_GPU", providertree.Inventory{Total: 4}),
			child(cn1, gpu1, "cn1_other"), inventory(gpu1, "CUSTOM_FPGA", providertree.Inventory{Total: 1}),
			joinStorage,
		},
		claims: map[int]resources{
			alice:     {gpu0: {"CUSTOM_GPU": 1}, nfs: {"DISK_GB": 10}},
			migration: {gpu0: {"CUSTOM_GPU": 2}}, carol: {cn1: {"VCPU": 6}},
			moving: {gpu0: {"CUSTOM_GPU": 1}, elsewhere: {"VGPU": 1}},
		},
		crowd: []edit{inventory(cn1, "VCPU", providertree.Inventory{Total: 4})},
		edits: []edit{
			noInventory(gpu0, "CUSTOM_GPU"), inventory(gpu0, "VGPU", providertree.Inventory{Total: 4}),
			inventory(gpu1, "CUSTOM_FPGA", providertree.Inventory{Total: 2}),
		},
		moves: []move{
			{alice, gpu0, "CUSTOM_GPU", gpu0, "VGPU", 1},
			{migration, gpu0, "CUSTOM_GPU", gpu0, "VGPU", 2}, {moving, gpu0, "CUSTOM_GPU", gpu0, "VGPU", 1},
		},
		plan: []string{
			"reshape cn1_gpu: -CUSTOM_GPU, +VGPU 4; with the allocations of 3 consumers",
			"set the inventory of cn1_other: CUSTOM_FPGA total 1→2",
		},
	}}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) { e.run(t, empty(t)) })
	}
}

// prepare brings Placement to the state before, and gathers.
func (e example) prepare(t *testing.T, url string) (client *reportclient.Client, requests *counter,
	now *clock, plan func() (reportclient.Plan, *providertree.Tree, providertree.Allocations)) {
	t.Helper()
	sharedStorage(t, url)
	client, requests, now = observed(t, url)
	ok(t, apply(t, client, e.before...))
	for _, consumer := range slices.Sorted(maps.Keys(e.claims)) {
		claim(t, url, consumer, e.claims[consumer])
	}
	now.pass(6 * time.Minute)
	ok(t, apply(t, client, e.crowd...))
	requests.since()
	return client, requests, now, func() (reportclient.Plan, *providertree.Tree, providertree.Allocations) {
		known := testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
		before := testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
		desired, after := known.Clone(), before.Clone()
		for _, edit := range e.edits {
			edit(t, desired)
		}
		for _, m := range e.moves {
			m.apply(after)
		}
		return client.PlanReshape(known, desired, before, after), desired, after
	}
}

func (e example) run(t *testing.T, url string) {
	client, requests, now, makePlan := e.prepare(t, url)
	plan, desired, after := makePlan()
	gathered := requests.since()
	// an upper bound is enough here: the exact requests stand in TestReshapeRequests
	local := len(e.before)
	if most := 2*local + len(e.claims); len(gathered) > most {
		t.Errorf("%d requests to gather, more than %d: %v", len(gathered), most, gathered)
	}
	testproc.Samef(t, cmp.Diff(e.plan, lines(plan)), "plan")
	ok(t, client.Apply(t.Context(), id(cn1), plan))
	if sent := requests.since(); len(sent) != len(plan.Operations) {
		t.Errorf("%d operations, and the requests were %v", len(plan.Operations), sent)
	}
	checkPlacement(t, url, desired, after)

	// What the client has noted is what Placement has, generations included: looking costs the two
	// lists alone.
	now.pass(6 * time.Minute)
	tree := testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
	want(t, requests, "GET /resource_providers", "GET /resource_providers")
	if !tree.Equal(desired) {
		t.Errorf("the cached tree is not the desired one:\n%s",
			cmp.Diff(slices.Collect(desired.All()), slices.Collect(tree.All())))
	}
}

// checkPlacement compares what Placement has with what it should have.
func checkPlacement(t *testing.T, url string, desired *providertree.Tree, after providertree.Allocations) {
	t.Helper()
	fresh, _, _ := observed(t, url)
	tree := testproc.Try(fresh.Tree(t.Context(), id(cn1), "cn1")).Or(t)
	if !tree.Equal(desired) {
		t.Errorf("Placement's tree (-want +got):\n%s",
			cmp.Diff(slices.Collect(desired.All()), slices.Collect(tree.All())))
	}
	allocations := testproc.Try(fresh.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
	testproc.Samef(t, cmp.Diff(simplify(after), simplify(allocations)), "Placement's allocations")
}

// simplify leaves out generations, amounts of 0 and what is empty then.
func simplify(a providertree.Allocations) map[string]string {
	out := map[string]string{}
	for consumer, c := range a {
		var parts []string
		for _, provider := range slices.Sorted(maps.Keys(c.Resources)) {
			for _, class := range slices.Sorted(maps.Keys(c.Resources[provider])) {
				if n := c.Resources[provider][class]; n != 0 {
					parts = append(parts, fmt.Sprintf("%s %s %d", provider, class, n))
				}
			}
		}
		out[consumer] = fmt.Sprint(c.ProjectID, "/", c.UserID, ": ", strings.Join(parts, ", "))
	}
	return out
}

func lines(plan reportclient.Plan) []string {
	var out []string
	for _, op := range plan.Operations {
		s := op.String()
		for i := range 10 {
			s = strings.ReplaceAll(s, id(i), fmt.Sprint("#", i))
		}
		out = append(out, s)
	}
	return out
}
