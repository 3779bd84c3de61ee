// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAHostRenamesNoClass: in the form that the call had before 1.7, either.
func TestAHostRenamesNoClass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, _ := hostsWorld(t)
	calls(t, h,
		call{method: "PUT", path: "/resource_classes/CUSTOM_A", status: 201}.as("h1"),
		call{method: "PUT", path: "/resource_classes/CUSTOM_A", body: `{"name":"CUSTOM_B"}`,
			version: "1.6", status: 403}.as("h1"),
	)
}

// TestRenamedClassesOfAHost: where an operator has declared that a class has another name now, a
// reshape of a host may give consumers the new one, and the former again; no more of it, and
// nothing of other classes. Other writes do not rename.
func TestRenamedClassesOfAHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, l := hostsWorld(t, func(c *api.Config) {
		c.Options.HostClassRenames = []string{"VCPU=PCPU",
			"VGPU=CUSTOM_VGPU_A", "CUSTOM_VGPU_A=CUSTOM_VGPU_B", "of no effect"}
	})
	for _, class := range []string{"CUSTOM_VGPU_A", "CUSTOM_VGPU_B"} {
		call{method: "PUT", path: "/resource_classes/" + class, version: "1.39", status: 201}.do(t, h)
	}
	reshape := func(name, allocations string, status int) {
		t.Helper()
		p, _ := l.Current().Provider(root1)
		c, _ := l.Current().Consumer(onHost1)
		const inventories = `"VCPU":{"total":100},"MEMORY_MB":{"total":100},"PCPU":{"total":100},` +
			`"VGPU":{"total":8},"CUSTOM_VGPU_A":{"total":4},"CUSTOM_VGPU_B":{"total":4}`
		body := fmt.Sprintf(
			`{"inventories":{%q:{"resource_provider_generation":%d,"inventories":{%s}}},"allocations":{%q:%s}}`,
			root1, p.Generation, inventories, onHost1, holding(allocations, fmt.Sprint(c.Generation)))
		w := call{method: "POST", path: "/reshaper", body: body}.as("h1").send(h)
		if w.Code != status {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, status, w.Body)
		}
		if status == 403 && !strings.Contains(w.Body.String(), "placement:hosts:allocations") {
			t.Errorf("%s: %s", name, w.Body)
		}
	}
	testproc.Try(l.Update(context.Background(), func(tx *ledger.Tx) error {
		one, typ := int64(1), "INSTANCE"
		if _, err := tx.AddInventory(root1,
			ledger.Inventory{Class: "VGPU", Total: 8,
				MinUnit: 1, MaxUnit: 8, StepSize: 1, AllocationRatio: 1}); err != nil {
			return err
		}
		return tx.ReplaceAllocations([]ledger.ConsumerAllocations{{
			Consumer: onHost1, CheckGeneration: true, Generation: &one, Project: "proj", User: "user", Type: &typ,
			Resources: providertree.ProviderResources{root1: {"VCPU": 2, "VGPU": 3}, share1: {"DISK_GB": 10}},
		}})
	})).Or(t)
	held := func(of string) string {
		return `{"` + root1 + `":{"resources":{` + of + `}},"` + share1 + `":{"resources":{"DISK_GB":10}}}`
	}
	reshape("more of the new class", held(`"PCPU":3,"VGPU":3`), 403)
	reshape("less of the new class", held(`"PCPU":1,"VGPU":3`), 403)
	reshape("the class of another group", held(`"VCPU":2,"VGPU":1,"PCPU":2`), 403)
	reshape("the amount of another group", held(`"PCPU":3,"VGPU":2`), 403)
	reshape("a class that is not renamed", held(`"VCPU":2,"MEMORY_MB":3`), 403)
	reshape("both classes", held(`"VCPU":1,"PCPU":1,"VGPU":3`), 204)
	reshape("the new class", held(`"PCPU":2,"CUSTOM_VGPU_A":1,"CUSTOM_VGPU_B":2`), 204)
	reshape("the former class", held(`"VCPU":2,"VGPU":3`), 204)

	c, _ := l.Current().Consumer(onHost1)
	body := holding(held(`"PCPU":2,"VGPU":3`), fmt.Sprint(c.Generation))
	call{method: "PUT", path: "/allocations/" + onHost1, body: body, status: 403}.as("h1").do(t, h)
}

// oldState is a store with a tree of h1, of which a consumer holds something that has no record, as
// a Placement before 1.8 left it.
type oldState struct{ noStore }

// Load implements ledger.Store.
func (s *oldState) Load(context.Context) (*ledger.State, error) {
	return &ledger.State{
		Version:   s.version,
		Classes:   []ledger.NamedRow{{ID: 0, Name: "VCPU"}},
		Providers: []ledger.ProviderRow{{ID: 1, UUID: root1, Name: "h1", Root: 1}},
		Inventories: []ledger.InventoryRow{{Provider: 1, Class: 0, Total: 100, MinUnit: 1, MaxUnit: 100,
			StepSize: 1, AllocationRatio: 1}},
		Allocations: []ledger.AllocationRow{{Provider: 1, Class: 0, Consumer: onNone, Used: 4}},
	}, nil
}

// TestAHostChoosesNoOwner: of allocations that have no record of their consumer, a host does not
// say whose they are, in no call that writes allocations and at no microversion. When an
// administrator has made the record, the host moves them as all others.
func TestAHostChoosesNoOwner(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	l := openOn(t, &oldState{})
	h := newAPI(t, func(c *api.Config) { c.Authenticator, c.Ledger = knowsHosts{}, l })
	mine := strings.Replace(holding(allocated(root1, "VCPU", 4), "null"), `"proj"`, `"victim"`, 1)
	less := strings.Replace(mine, `"VCPU":4`, `"VCPU":1`, 1)
	reshaped := `{"inventories":{"` + root1 +
		`":{"resource_provider_generation":0,"inventories":{"VCPU":{"total":100}}}},"allocations":{"` + onNone + `":` +
		mine + `}}`
	refused := func(c call) {
		t.Helper()
		c.status = 403
		w := c.as("h1").do(t, h)
		if !strings.Contains(w.Body.String(), "online-data-migrations") {
			t.Errorf("%s %s: %s", c.method, c.path, w.Body)
		}
		if n := l.Current().MissingConsumers(); n != 1 {
			t.Errorf("%s %s: %d consumers without a record are left", c.method, c.path, n)
		}
	}
	refused(call{method: "PUT", path: "/allocations/" + onNone, body: mine})
	refused(call{method: "PUT", path: "/allocations/" + onNone, body: less})
	refused(call{method: "POST", path: "/allocations", body: `{"` + onNone + `":` + mine + `}`})
	refused(call{method: "POST", path: "/reshaper", body: reshaped})
	refused(call{method: "PUT", path: "/allocations/" + onNone, version: "1.10",
		body: `{"allocations":[{"resource_provider":{"uuid":"` + root1 +
			`"},"resources":{"VCPU":4}}],"project_id":"victim","user_id":"u"}`})
	refused(call{method: "PUT", path: "/allocations/" + onNone, version: "1.7",
		body: `{"allocations":[{"resource_provider":{"uuid":"` + root1 + `"},"resources":{"VCPU":4}}]}`})
	testproc.Try(l.Update(context.Background(), func(tx *ledger.Tx) error {
		tx.AddMissingConsumers("incomplete", "incomplete", 10)
		return nil
	})).Or(t)
	c, _ := l.Current().Consumer(onNone)
	own := fmt.Sprintf(`{"allocations":%s,"project_id":"incomplete","user_id":"incomplete","consumer_generation":%d}`,
		allocated(root1, "VCPU", 1), c.Generation)
	call{method: "PUT", path: "/allocations/" + onNone, version: "1.36", body: own, status: 204}.as("h1").do(t, h)
}
