// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

type request = []any // method, path, body

type reply struct {
	status int
	body   map[string]any
}

// upstream runs requests through the distribution's own Placement on a file.
func upstream(t *testing.T, path string, requests ...request) []reply {
	t.Helper()
	answers := testproc.Try(testproc.AskPlacement(t.Context(), path, requests)).Or(t)
	replies := make([]reply, len(answers))
	for i, a := range answers {
		replies[i].status = a.Status
		testproc.Check(t, json.Unmarshal(a.Body, &replies[i].body))
		if a.Status >= 300 {
			t.Fatalf("OpenStack Placement answered %d to %v: %s", a.Status, requests[i], a.Body)
		}
	}
	return replies
}

const (
	host  = "11111111-1111-4111-8111-111111111111"
	numa  = "22222222-2222-4222-8222-222222222222"
	aggr  = "33333333-3333-4333-8333-333333333333"
	guest = "44444444-4444-4444-8444-444444444444"
	other = "55555555-5555-4555-8555-555555555555"
)

func inventory(total, reserved, step int64, ratio float64) placementtest.InventoryDump {
	return placementtest.InventoryDump{Total: total, Reserved: reserved, MinUnit: 1, MaxUnit: 1<<31 - 1,
		StepSize: step, Ratio: ratio}
}

// TestRealAdoptAndHandBack: a database goes from OpenStack Placement to us, is
// changed, and goes back; either side shows what the other wrote.
func TestRealAdoptAndHandBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	testproc.NeedPlacement(t)
	path := filepath.Join(t.TempDir(), "placement.db")
	type m = map[string]any
	upstream(t, path,
		request{"PUT", "/resource_classes/CUSTOM_GPU", nil},
		request{"PUT", "/traits/CUSTOM_FAST", nil},
		request{"POST", "/resource_providers", m{"uuid": host, "name": "host"}},
		request{"POST", "/resource_providers", m{"uuid": numa, "name": "numa", "parent_provider_uuid": host}},
		request{"PUT", "/resource_providers/" + host + "/inventories",
			m{"resource_provider_generation": 0,
				"inventories": m{"VCPU": m{"total": 8, "allocation_ratio": 1.5},
					"MEMORY_MB": m{"total": 1024, "reserved": 24, "step_size": 2}}}},
		request{"PUT", "/resource_providers/" + numa + "/inventories",
			m{"resource_provider_generation": 0, "inventories": m{"CUSTOM_GPU": m{"total": 2}}}},
		request{"PUT", "/resource_providers/" + numa + "/traits",
			m{"resource_provider_generation": 1, "traits": []string{"CUSTOM_FAST", "HW_CPU_X86_AVX"}}},
		request{"PUT", "/resource_providers/" + host + "/aggregates",
			m{"resource_provider_generation": 1, "aggregates": []string{aggr}}},
		request{"PUT", "/allocations/" + guest,
			m{"consumer_generation": nil, "consumer_type": "INSTANCE", "project_id": "q", "user_id": "u",
				"allocations": m{host: m{"resources": m{"VCPU": 4}}, numa: m{"resources": m{"CUSTOM_GPU": 1}}}}},
	)

	l := open(t, path)
	got := testproc.Try(placementtest.DumpOf(l.Current())).Or(t)
	held := providertree.ProviderResources{host: {"VCPU": 4}, numa: {"CUSTOM_GPU": 1}}
	want := placementtest.Dump{
		Providers: map[string]placementtest.ProviderDump{
			host: {Name: "host", Root: host, Generation: 3, Aggregates: []string{aggr},
				Used: map[string]int64{"VCPU": 4}, Consumers: []string{guest}, Children: []string{numa},
				Inventories: map[string]placementtest.InventoryDump{"VCPU": inventory(8, 0, 1, 1.5),
					"MEMORY_MB": inventory(1024, 24, 2, 1)}},
			numa: {Name: "numa", Parent: host, Root: host,
				Generation: 3, Traits: []string{"CUSTOM_FAST", "HW_CPU_X86_AVX"},
				Used: map[string]int64{"CUSTOM_GPU": 1}, Consumers: []string{guest},
				Inventories: map[string]placementtest.InventoryDump{"CUSTOM_GPU": inventory(2, 0, 1, 1)}},
		},
		Consumers: map[string]placementtest.ConsumerDump{guest: {Generation: 1, Project: "q", User: "u",
			Type: "INSTANCE", Allocations: held}},
		Members:  map[string][]string{aggr: {host}},
		Traited:  map[string][]string{"CUSTOM_FAST": {numa}, "HW_CPU_X86_AVX": {numa}},
		Offering: map[string][]string{"VCPU": {host}, "MEMORY_MB": {host}, "CUSTOM_GPU": {numa}},
		Classes:  []string{"CUSTOM_GPU"}, Traits: []string{"CUSTOM_FAST"},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("adopted: want -, got +\n%s", diff)
	}
	if c, _ := l.Current().Class("CUSTOM_GPU"); c.ID != ledger.MinCustomClassID {
		t.Errorf("CUSTOM_GPU has number %d", c.ID)
	}
	_, err := l.Update(ctx, func(tx *ledger.Tx) error {
		if _, err := tx.CreateProvider(ledger.NewProvider{UUID: other, Name: "other"}); err != nil {
			return err
		}
		if _, err := tx.AddInventory(other,
			ledger.Inventory{Class: "CUSTOM_GPU", Total: 3,
				MinUnit: 1, MaxUnit: 3, StepSize: 1, AllocationRatio: 1}); err != nil {
			return err
		}
		gen := int64(1)
		return tx.ReplaceAllocations(
			[]ledger.ConsumerAllocations{{Consumer: guest,
				CheckGeneration: true, Generation: &gen, Project: "q2", User: "u",
				Resources: providertree.ProviderResources{other: {"CUSTOM_GPU": 2}, host: {"MEMORY_MB": 100}}}})
	})
	testproc.Check(t, err)
	closeLedger(t, l)

	back := upstream(t, path,
		request{"GET", "/allocations/" + guest, nil},
		request{"GET", "/resource_providers/" + host + "/usages", nil},
		request{"GET", "/resource_providers/" + other, nil},
		request{"GET", "/resource_providers/" + numa + "/usages", nil},
		// And it goes on writing where we stopped.
		request{"DELETE", "/allocations/" + guest, nil},
		request{"POST", "/resource_providers", m{"uuid": aggr, "name": "last"}},
	)
	for i, want := range []string{
		`{"allocations":{"` + host + `":{"generation":4,"resources":{"MEMORY_MB":100}},"` + other +
			`":{"generation":2,"resources":{"CUSTOM_GPU":2}}},"consumer_generation":2,"consumer_type":"INSTANCE",` +
			`"project_id":"q2","user_id":"u"}`,
		`{"resource_provider_generation":4,"usages":{"MEMORY_MB":100,"VCPU":0}}`,
	} {
		text, err := json.Marshal(back[i].body)
		if err != nil || string(text) != want {
			t.Errorf("handed back, Placement shows\n%s, %v, want\n%s", text, err, want)
		}
	}
	testproc.Equal(t, back[2].body["name"], "other", "Placement shows our provider with name %v")

	l = open(t, path)
	defer closeLedger(t, l)
	testproc.Equal(t, l.Current().ProviderCount(), 4, "after Placement wrote again there are %d providers")
	if c, ok := l.Current().Consumer(guest); ok {
		t.Errorf("Placement deleted the allocations, we show %+v", c)
	}
}

// TestOldRows: a database that an old Placement began can lack roots and
// consumer records, and hold consumers without allocations.
func TestOldRows(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	each(t, oldRows)
}

func oldRows(t *testing.T, e testEngine) {
	name := e.fresh(t)
	closeLedger(t, open(t, name))
	execute(t, name,
		"INSERT INTO resource_providers (id, uuid, name, generation, root_provider_id) VALUES (1, 'a', 'a', 5, NULL)",
		"INSERT INTO inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, "+
			"step_size, allocation_ratio) VALUES (1, 0, 4, 0, 1, 4, 1, 1.0)",
		"INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) VALUES (1, "+
			"'stray', 0, 3)",
		"INSERT INTO projects (id, external_id) VALUES (1, 'q')", "INSERT INTO users (id, external_id) VALUES (1, 'u')",
		"INSERT INTO consumers (id, uuid, project_id, user_id, generation) VALUES (1, 'orphan', 1, 1, 9)",
	)
	l := open(t, name)
	defer closeLedger(t, l)
	second := l
	if e.shared {
		second = open(t, name)
		defer closeLedger(t, second)
	}
	a, _ := l.Current().Provider("a")
	if a.Root != "a" || l.Current().Used(a, "VCPU") != 3 {
		t.Errorf("provider %+v uses %d, want root a and 3", a, l.Current().Used(a, "VCPU"))
	}
	for _, uuid := range []string{"stray", "orphan"} {
		if _, ok := l.Current().Consumer(uuid); ok {
			t.Errorf("%s is shown", uuid)
		}
	}
	claim := func(uuid string, amount int64) error {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{{Consumer: uuid, CheckGeneration: true, Project: "q", User: "u",
					Resources: providertree.ProviderResources{"a": {"VCPU": amount}}}})
		})
		return err
	}
	if err := claim("new", 2); ledger.KindOf(err) != ledger.CapacityExceeded {
		t.Errorf("what a stray holds was given away: %v", err)
	}
	testproc.NoErrorf(t, claim("orphan", 1), "a record without allocations is in the way of a new consumer")
	testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
		testproc.Equal(t, tx.AddMissingConsumers("incomplete", "incomplete", 10), 1, "made %d missing records")
		return nil
	})).Or(t)
	s := testproc.Try(second.Snapshot(ctx)).Or(t)
	same(t, "the server that wrote -, the other +", l.Current(), s)
	if c, ok := s.Consumer("stray"); !ok || c.Project != "incomplete" || len(c.Allocations) != 1 {
		t.Errorf("the stray is now %+v", c)
	}
}
