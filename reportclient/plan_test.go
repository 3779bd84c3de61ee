// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func id(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

type edit func(*testing.T, *providertree.Tree)

var ok = testproc.Check

func inventory(provider int, class string, inv providertree.Inventory) edit {
	return func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.SetInventory(id(provider), class, inv)).Or(t)
	}
}

func traits(provider int, list ...string) edit {
	return func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.AddTraits(id(provider), list...)).Or(t)
	}
}

func child(parent, uuid int, name string) edit {
	return func(t *testing.T, tr *providertree.Tree) { ok(t, tr.AddChild(id(parent), id(uuid), name)) }
}

// placementSays is the usual starting point: a node that Placement knows, with a child.
func placementSays(t *testing.T) *providertree.Tree {
	t.Helper()
	tr := &providertree.Tree{}
	ok(t, tr.Populate([]providertree.Provider{
		{UUID: id(1), Name: "cn1", Generation: 7,
			Inventories: providertree.Inventories{"VCPU": {Total: 8}, "CUSTOM_OLD": {Total: 1}},
			Traits:      []string{"COMPUTE_NODE", "CUSTOM_ADMIN"}},
		{UUID: id(2), Name: "cn1_gpu", ParentUUID: id(1),
			Generation: 3, Inventories: providertree.Inventories{"VGPU": {Total: 2}},
			Traits: []string{providertree.TraitSharesViaAggregate}}, // what shares from within the tree is as any other
	}))
	return tr
}

// TestPlan shows for each kind of difference what is written, in which order.
func TestPlan(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cases := []struct {
		name  string
		edits []edit
		want  []string
	}{
		{"nothing", nil, nil},
		{"the same again", []edit{inventory(1, "VCPU", providertree.Inventory{Total: 8, MinUnit: 1, StepSize: 1})},
			nil},
		{"one inventory",
			[]edit{inventory(1, "VCPU", providertree.Inventory{Total: 8, Reserved: 1, AllocationRatio: 4})}, []string{
				"set the inventory of cn1: VCPU reserved 0→1 allocation_ratio 1→4",
			}},
		{"a custom class that the tree has already needs no asking",
			[]edit{inventory(2, "CUSTOM_OLD", providertree.Inventory{Total: 1})}, []string{
				"set the inventory of cn1_gpu: +CUSTOM_OLD 1",
			}},
		{"custom names first, then parents before children, then content from the leaves up", []edit{
			child(1, 3, "cn1_numa_0"), child(3, 4, "cn1_numa_0_gpu"),
			inventory(4, "CUSTOM_GPU", providertree.Inventory{Total: 4}),
			inventory(3, "VCPU", providertree.Inventory{Total: 4}),
			traits(3, "HW_NUMA_ROOT", "CUSTOM_FAST"), traits(1, "OWNER_NOVA"),
		}, []string{
			"ensure that resource class CUSTOM_GPU exists",
			"ensure that trait CUSTOM_FAST exists",
			"create resource provider cn1_numa_0 (" + id(3) + ") below " + id(1),
			"create resource provider cn1_numa_0_gpu (" + id(4) + ") below " + id(3),
			"set the inventory of cn1_numa_0_gpu: +CUSTOM_GPU 4",
			"set the inventory of cn1_numa_0: +VCPU 4",
			"set the traits of cn1_numa_0: +CUSTOM_FAST, +HW_NUMA_ROOT",
			"set the traits of cn1: +OWNER_NOVA",
		}},
		{"a child that goes",
			[]edit{func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Remove(id(2))).Or(t) }}, []string{
				"delete resource provider cn1_gpu (" + id(2) + ")",
			}},
		{"a child that is replaced by another of its name", []edit{
			func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Remove(id(2))).Or(t) }, child(1, 3, "cn1_gpu"),
		}, []string{
			"delete resource provider cn1_gpu (" + id(2) + ")",
			"create resource provider cn1_gpu (" + id(3) + ") below " + id(1),
		}},
		{"a child that is renamed",
			[]edit{func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Rename(id(2), "gpu")).Or(t) }}, []string{
				"update resource provider gpu (" + id(2) + "): name cn1_gpu→gpu",
			}},
		{"aggregates", []edit{func(t *testing.T, tr *providertree.Tree) {
			testproc.Try(tr.AddAggregates(id(1), id(9))).
				Or(t)
		}}, []string{
			"set the aggregates of cn1: +" + id(9),
		}},
		{"six traits are listed, what is beyond is counted", []edit{
			traits(1, "CUSTOM_A", "CUSTOM_B", "CUSTOM_C", "CUSTOM_D", "CUSTOM_E", "CUSTOM_F", "CUSTOM_G", "CUSTOM_H"),
			traits(2, "CUSTOM_A", "CUSTOM_B", "CUSTOM_C", "CUSTOM_D", "CUSTOM_E", "CUSTOM_F"),
		}, []string{
			"ensure that trait CUSTOM_A exists", "ensure that trait CUSTOM_B exists",
			"ensure that trait CUSTOM_C exists", "ensure that trait CUSTOM_D exists",
			"ensure that trait CUSTOM_E exists", "ensure that trait CUSTOM_F exists",
			"ensure that trait CUSTOM_G exists", "ensure that trait CUSTOM_H exists",
			"set the traits of cn1_gpu: +CUSTOM_A, +CUSTOM_B, +CUSTOM_C, +CUSTOM_D, +CUSTOM_E, +CUSTOM_F",
			"set the traits of cn1: +CUSTOM_A, +CUSTOM_B, +CUSTOM_C, +CUSTOM_D, +CUSTOM_E, +CUSTOM_F, +2 more",
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			known := placementSays(t)
			desired := known.Clone()
			for _, e := range c.edits {
				e(t, desired)
			}
			var got []string
			for _, op := range reportclient.NewPlan(known, desired).Operations {
				got = append(got, op.String())
			}
			testproc.Same(t, cmp.Diff(c.want, got))
		})
	}
}

// TestPlanOfANewNode: it is created, also if the driver reports nothing of it.
func TestPlanOfANewNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := &providertree.Tree{}
	ok(t, known.AddRoot(id(1), "cn1"))
	full := known.Clone()
	traits(1, "COMPUTE_NODE")(t, full)
	inventory(1, "VCPU", providertree.Inventory{Total: 2})(t, full)
	for want, desired := range map[string]*providertree.Tree{"create_provider set_inventories set_traits": full,
		"create_provider": known.Clone()} {
		var kinds []string
		for _, op := range reportclient.NewPlan(known, desired).Operations {
			kinds = append(kinds, op.Kind.String())
		}
		testproc.Equal(t, strings.Join(kinds, " "), want, "got %s")
	}
}

func BenchmarkPlanNothing(b *testing.B) {
	tr := &providertree.Tree{}
	providers := []providertree.Provider{{UUID: id(0), Name: "root"}}
	for i := 1; i < 100; i++ {
		providers = append(providers, providertree.Provider{UUID: id(i), Name: fmt.Sprint("p", i), ParentUUID: id(0),
			Inventories: providertree.Inventories{"VGPU": {Total: 4}}})
	}
	testproc.Check(b, tr.Populate(providers))
	clone := tr.Clone()
	b.ReportAllocs()
	for b.Loop() {
		if !reportclient.NewPlan(tr, clone).Empty() {
			b.Fatal("a plan for nothing")
		}
	}
}
