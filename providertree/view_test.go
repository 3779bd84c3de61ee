// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/providertree"
)

// pair is a root with something of everything, and a child.
func pair(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	if err := tree.Populate([]providertree.Provider{
		{
			UUID: id(1), Name: "cn1", Generation: 3, Inventories: providertree.Inventories{"VCPU": {Total: 8}, "DISK_GB": {Total: 9}},
			Traits: []string{"CUSTOM_B", "CUSTOM_A"}, Aggregates: []string{id(9)},
			Resources: map[string][]providertree.Resource{"PMEM": {{Identifier: "b"}, {Identifier: "a", Metadata: "m"}}},
		},
		{UUID: id(2), Name: "child", ParentUUID: id(1), Generation: providertree.NoGeneration},
	}); err != nil {
		t.Fatal(err)
	}
	return tree
}

// shown is a provider as its view shows it.
func shown(v providertree.View) providertree.Provider {
	p := providertree.Provider{
		UUID: v.UUID(), Name: v.Name(), ParentUUID: v.ParentUUID(), Generation: v.Generation(),
		Inventories: maps.Collect(v.Inventories()), Traits: v.AppendTraits(nil), Aggregates: v.AppendAggregates(nil),
	}
	for class, u := range v.Resources() {
		if p.Resources == nil {
			p.Resources = map[string][]providertree.Resource{}
		}
		p.Resources[class] = append(p.Resources[class], u)
	}
	return p
}

// exactly compares providers field by field: Provider.Equal leaves out what it must not.
var exactly = cmp.Options{cmpopts.EquateEmpty(), cmp.Transformer("fields", func(p providertree.Provider) any {
	type fields providertree.Provider
	return fields(p)
})}

func TestViewsShowWhatProvidersAre(t *testing.T) {
	tree := pair(t)
	var all []providertree.Provider
	for v := range tree.Views() {
		all = append(all, shown(v))
		p, _ := tree.Provider(v.UUID())
		again, _ := tree.View(v.UUID())
		named, _ := tree.ViewByName(v.Name())
		if again != v || named != v || v.Classes() != len(p.Inventories) || !slices.Equal(v.SortedClasses(), slices.Sorted(maps.Keys(p.Inventories))) || !v.TraitsAre(p.Traits) || !v.AggregatesAre(p.Aggregates) ||
			v.TraitsAre([]string{"CUSTOM_A"}) || v.AggregatesAre([]string{id(8)}) {
			t.Errorf("%s: %+v", v.Name(), p)
		}
	}
	var want []providertree.Provider
	for p := range tree.All() {
		want = append(want, p)
	}
	if diff := cmp.Diff(want, all, exactly); diff != "" {
		t.Error(diff)
	}
	root, _ := tree.View(id(1))
	for range root.Resources() { // it must not go on
		break
	}
	if inv, ok := root.Inventory("VCPU"); !ok || inv.Total != 8 || inv.MaxUnit != providertree.MaxUnit {
		t.Errorf("%+v", inv)
	}
	if _, known := tree.View(id(7)); known {
		t.Error("a view of nothing")
	}
	if _, known := tree.ViewByName("nobody"); known {
		t.Error("a view of nobody")
	}
}

func TestViewsStay(t *testing.T) {
	tree := pair(t)
	before, _ := tree.View(id(1))
	was := shown(before)
	list := append(before.AppendTraits(nil), "MINE")
	list[0] = "MINE_TOO"
	for _, change := range []func() error{
		func() error { _, err := tree.AddTraits(id(1), "CUSTOM_C"); return err },
		func() error { _, err := tree.SetInventory(id(1), "VCPU", providertree.Inventory{Total: 4}); return err },
		func() error { _, err := tree.RemoveInventory(id(1), "DISK_GB"); return err },
		func() error { _, err := tree.SetAggregates(id(1), nil); return err },
		func() error { _, err := tree.SetResources(id(1), nil); return err },
		func() error { _, err := tree.Rename(id(1), "other"); return err },
		func() error { return tree.SetGeneration(id(1), 4) },
		func() error { _, err := tree.Remove(id(1)); return err },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(was, shown(before), exactly); diff != "" {
		t.Error(diff)
	}
}

// TestSame: each single difference is one, also those that Equal leaves out.
func TestSame(t *testing.T) {
	for name, change := range map[string]func(*providertree.Tree) error{
		"generation": func(tree *providertree.Tree) error { return tree.SetGeneration(id(1), 4) },
		"name":       func(tree *providertree.Tree) error { _, err := tree.Rename(id(2), "x"); return err },
		"parent":     func(tree *providertree.Tree) error { _, err := tree.Move(id(2), ""); return err },
		"removal":    func(tree *providertree.Tree) error { _, err := tree.Remove(id(2)); return err },
		"addition":   func(tree *providertree.Tree) error { return tree.AddRoot(id(5), "x") },
		"replacement": func(tree *providertree.Tree) error {
			if _, err := tree.Remove(id(2)); err != nil {
				return err
			}
			return tree.AddChild(id(1), id(5), "child")
		},
		"class": func(tree *providertree.Tree) error { _, err := tree.RemoveInventory(id(1), "VCPU"); return err },
		"amount": func(tree *providertree.Tree) error {
			_, err := tree.SetInventory(id(1), "VCPU", providertree.Inventory{Total: 7})
			return err
		},
		"traits":     func(tree *providertree.Tree) error { _, err := tree.AddTraits(id(2), "CUSTOM_A"); return err },
		"aggregates": func(tree *providertree.Tree) error { _, err := tree.AddAggregates(id(2), id(9)); return err },
		"units": func(tree *providertree.Tree) error {
			_, err := tree.SetResources(id(2), map[string][]providertree.Resource{"PMEM": {{Identifier: "z"}}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree, anew := pair(t), pair(t)
			clone := tree.Clone()
			if !tree.Same(clone) || !tree.Same(anew) || !anew.Same(tree) {
				t.Fatal("they are the same before the change")
			}
			if err := change(clone); err != nil {
				t.Fatal(err)
			}
			if tree.Same(clone) || clone.Same(tree) || anew.Same(clone) {
				t.Error("it was not noticed")
			}
		})
	}
	one, other := pair(t), pair(t)
	for i, tree := range []*providertree.Tree{one, other} {
		for j := range 2 {
			if err := tree.AddChild(id(1), id(10+(i+j)%2), []string{"a", "b"}[(i+j)%2]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !one.Equal(other) || one.Same(other) {
		t.Error("the order of siblings: Equal leaves it out, Same does not")
	}
}

// TestPopulateAllocatesLittle bounds what a provider of a tree that arrives as a whole costs: its record, and the maps and lists that
// it has.
func TestPopulateAllocatesLittle(t *testing.T) {
	const n = 5000
	providers := []providertree.Provider{{UUID: id(0), Name: "root"}}
	for i := 1; i < n; i++ {
		providers = append(providers, providertree.Provider{
			UUID: id(i), Name: providers[0].Name + id(i), ParentUUID: id(0),
			Inventories: providertree.Inventories{"VGPU": {Total: 1}}, Traits: []string{"CUSTOM_A"}, Aggregates: []string{id(9)},
		})
	}
	got := testing.AllocsPerRun(5, func() {
		if err := (&providertree.Tree{}).Populate(providers); err != nil {
			t.Fatal(err)
		}
	}) / n
	if got > 5.2 {
		t.Errorf("%.2f allocations a provider", got)
	}
}
