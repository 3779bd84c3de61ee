// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
)

// model is a simple reference implementation of a Tree: a list of providers with a linear search
// and every rule written out in the most obvious way.
type model []providertree.Provider

func (m model) find(uuid string) int {
	return slices.IndexFunc(m, func(p providertree.Provider) bool { return p.UUID == uuid })
}

func (m model) named(name string) int {
	return slices.IndexFunc(m, func(p providertree.Provider) bool { return p.Name == name })
}

func (m model) below(uuid, ancestor string) bool {
	for range len(m) + 1 {
		if uuid == ancestor {
			return true
		}
		i := m.find(uuid)
		if i < 0 {
			return false
		}
		uuid = m[i].ParentUUID
	}
	return false
}

func (m model) looped(uuid string) bool {
	for range len(m) + 1 {
		i := m.find(uuid)
		if i < 0 {
			return false
		}
		uuid = m[i].ParentUUID
	}
	return true
}

func (m model) without(uuid string) model {
	var out model
	for _, p := range m {
		if !m.below(p.UUID, uuid) {
			out = append(out, p)
		}
	}
	return out
}

// populate is the rule of Tree.Populate: drop the subtree of everything that is given, add what is
// given, look whether the result makes sense.
func (m model) populate(given []providertree.Provider) (model, bool) {
	listed := model(given)
	for i, p := range given {
		if listed.find(p.UUID) != i || listed.named(p.Name) != i {
			return m, false
		}
		if j := m.find(p.UUID); j >= 0 && p.Generation < m[j].Generation {
			return m, false
		}
	}
	var out model
	for _, p := range m {
		dropped := slices.ContainsFunc(given,
			func(g providertree.Provider) bool { return m.find(g.UUID) >= 0 && m.below(p.UUID, g.UUID) })
		if !dropped && listed.find(p.UUID) < 0 {
			out = append(out, p)
		}
	}
	out = append(out, given...)
	for i, p := range out {
		if out.named(p.Name) != i || (p.ParentUUID != "" && out.find(p.ParentUUID) < 0) || out.looped(p.UUID) {
			return m, false
		}
	}
	return out, true
}

var (
	someUUID = rapid.Map(rapid.IntRange(0, 9),
		func(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) })
	someName   = rapid.Map(rapid.IntRange(0, 9), func(i int) string { return fmt.Sprintf("provider %d", i) })
	traits     = []string{"CUSTOM_T0", "CUSTOM_T1", "CUSTOM_T2", providertree.TraitSharesViaAggregate}
	aggregates = []string{"aaaaaaaa-0000-4000-8000-000000000000", "aaaaaaaa-0000-4000-8000-000000000001",
		"aaaaaaaa-0000-4000-8000-000000000002"}
	classes = []string{"VCPU", "MEMORY_MB", "CUSTOM_X"}
	someOf  = func(all []string) *rapid.Generator[[]string] {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, len(all), rapid.ID[string])
	}
	someTraits     = someOf(traits)
	someAggregates = someOf(aggregates)
	someInventory  = rapid.Custom(func(t *rapid.T) providertree.Inventory {
		return providertree.Inventory{
			Total: rapid.Int64Range(1, 3).Draw(t, "total"), MaxUnit: rapid.Int64Range(0, 2).Draw(t, "max"),
			AllocationRatio: rapid.SampledFrom([]float64{0, 1, 1.5}).Draw(t, "ratio"),
		}
	})
	someInventories = rapid.Map(rapid.MapOfN(rapid.SampledFrom(classes), someInventory, 0, 3),
		func(m map[string]providertree.Inventory) providertree.Inventories { return m })
	someProvider = rapid.Custom(func(t *rapid.T) providertree.Provider {
		return providertree.Provider{
			UUID: someUUID.Draw(t, "uuid"), Name: someName.Draw(t, "name"),
			ParentUUID:  rapid.OneOf(rapid.Just(""), someUUID).Draw(t, "parent"),
			Generation:  rapid.Int64Range(-1, 3).Draw(t, "generation"),
			Inventories: someInventories.Draw(t, "inventories"),
			Traits:      someTraits.Draw(t, "traits"), Aggregates: someAggregates.Draw(t, "aggregates"),
		}
	})
)

// TestTreeAgainstModel applies the same random operations to a Tree and to its model and compares
// them after each step.
func TestTreeAgainstModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree, m := &providertree.Tree{}, model{}
		refuse := func(err error, want bool) {
			if (err != nil) != want {
				t.Fatalf("tree says %v; the model refuses: %v", err, want)
			}
		}
		edit := func(uuid string, f func(*providertree.Provider)) bool {
			i := m.find(uuid)
			if i >= 0 {
				f(&m[i])
			}
			return i < 0
		}
		add := func(p providertree.Provider) bool {
			if m.find(p.UUID) >= 0 || m.named(p.Name) >= 0 || (p.ParentUUID != "" && m.find(p.ParentUUID) < 0) {
				return true
			}
			m = append(m, p)
			return false
		}
		t.Repeat(map[string]func(*rapid.T){
			"add root": func(t *rapid.T) {
				p := providertree.Provider{UUID: someUUID.Draw(t, "uuid"), Name: someName.Draw(t, "name"),
					Generation: providertree.NoGeneration}
				refuse(tree.AddRoot(p.UUID, p.Name), add(p))
			},
			"add child": func(t *rapid.T) {
				p := providertree.Provider{
					UUID: someUUID.Draw(t, "uuid"), Name: someName.Draw(t, "name"),
					ParentUUID: someUUID.Draw(t, "parent"), Generation: providertree.NoGeneration,
				}
				refuse(tree.AddChild(p.ParentUUID, p.UUID, p.Name), add(p))
			},
			"remove": func(t *rapid.T) {
				uuid := someUUID.Draw(t, "uuid")
				gone, err := tree.Remove(uuid)
				refuse(err, m.find(uuid) < 0)
				before := len(m)
				m = m.without(uuid)
				if len(gone) != before-len(m) {
					t.Fatalf("removed %v, the model %d", gone, before-len(m))
				}
			},
			"rename": func(t *rapid.T) {
				uuid, name := someUUID.Draw(t, "uuid"), someName.Draw(t, "name")
				_, err := tree.Rename(uuid, name)
				i := m.named(name)
				if i >= 0 && m[i].UUID != uuid {
					refuse(err, true)
					return
				}
				refuse(err, edit(uuid, func(p *providertree.Provider) { p.Name = name }))
			},
			"move": func(t *rapid.T) {
				uuid, parent := someUUID.Draw(t, "uuid"), rapid.OneOf(rapid.Just(""), someUUID).Draw(t, "parent")
				_, err := tree.Move(uuid, parent)
				if m.find(uuid) < 0 || (parent != "" && (m.find(parent) < 0 || m.below(parent, uuid))) {
					refuse(err, true)
					return
				}
				refuse(err, edit(uuid, func(p *providertree.Provider) { p.ParentUUID = parent }))
			},
			"inventories": func(t *rapid.T) {
				uuid, inv := someUUID.Draw(t, "uuid"), someInventories.Draw(t, "inventories")
				changed, err := tree.SetInventories(uuid, inv)
				refuse(err, edit(uuid, func(p *providertree.Provider) {
					if changed == p.Inventories.Equal(inv) {
						t.Fatalf("changed=%v from %v to %v", changed, p.Inventories, inv)
					}
					p.Inventories = inv
				}))
			},
			"traits": func(t *rapid.T) {
				uuid, a, r := someUUID.Draw(t, "uuid"), someTraits.Draw(t, "add"), someTraits.Draw(t, "remove")
				_, err := tree.AddTraits(uuid, a...)
				_, err2 := tree.RemoveTraits(uuid, r...)
				refuse(errors.Join(err, err2), edit(uuid,
					func(p *providertree.Provider) { p.Traits = plusMinus(p.Traits, a, r) }))
			},
			"aggregates": func(t *rapid.T) {
				uuid, a, r := someUUID.Draw(t, "uuid"), someAggregates.Draw(t, "add"), someAggregates.Draw(t, "remove")
				_, err := tree.AddAggregates(uuid, a...)
				_, err2 := tree.RemoveAggregates(uuid, r...)
				refuse(errors.Join(err, err2), edit(uuid,
					func(p *providertree.Provider) { p.Aggregates = plusMinus(p.Aggregates, a, r) }))
			},
			"generation": func(t *rapid.T) {
				uuid, g := someUUID.Draw(t, "uuid"), rapid.Int64Range(0, 4).Draw(t, "generation")
				err := tree.SetGeneration(uuid, g)
				if i := m.find(uuid); i >= 0 && g < m[i].Generation {
					refuse(err, true)
					return
				}
				refuse(err, edit(uuid, func(p *providertree.Provider) { p.Generation = g }))
			},
			"populate": func(t *rapid.T) {
				given := rapid.SliceOfN(someProvider, 0, 5).Draw(t, "given")
				next, ok := m.populate(given)
				refuse(tree.Populate(given), !ok)
				m = next
			},
			"": func(t *rapid.T) {
				compare(t, tree, m)
				compareLookups(t, tree, m)
			},
		})
	})
}

func plusMinus(list, add, remove []string) []string {
	out := slices.Concat(list, add)
	return slices.DeleteFunc(out, func(s string) bool { return slices.Contains(remove, s) })
}

func compare(t *rapid.T, tree *providertree.Tree, m model) {
	if tree.Len() != len(m) {
		t.Fatalf("%d providers, the model has %d", tree.Len(), len(m))
	}
	order := tree.UUIDs()
	if sorted := slices.Compact(slices.Sorted(slices.Values(order))); len(sorted) != len(m) {
		t.Fatalf("pre-order lists %v", order)
	}
	for _, p := range m {
		got, ok := tree.Provider(p.UUID)
		byName, okName := tree.ProviderByName(p.Name)
		if !ok || !okName || byName.UUID != p.UUID {
			t.Fatalf("%s: lookups give %v, %v (%v)", p.UUID, ok, okName, byName.UUID)
		}
		if p.ParentUUID != "" && slices.Index(order, p.ParentUUID) > slices.Index(order, p.UUID) {
			t.Fatalf("%s is listed before its parent", p.UUID)
		}
		if p.ParentUUID != "" && !slices.Contains(tree.Children(p.ParentUUID), p.UUID) {
			t.Fatalf("%s is no child of its parent", p.UUID)
		}
		if len(tree.Subtree(p.UUID)) != len(m)-len(m.without(p.UUID)) {
			t.Fatalf("subtree of %s: %v", p.UUID, tree.Subtree(p.UUID))
		}
		p.Inventories = normal(p.Inventories)
		p.Traits, p.Aggregates = sortedSet(p.Traits), sortedSet(p.Aggregates)
		if d := cmp.Diff(p, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("%s (-model +tree):\n%s", p.UUID, d)
		}
	}
}

// compareLookups asks for single things of each provider, and of one that there is not.
func compareLookups(t *rapid.T, tree *providertree.Tree, m model) {
	for _, p := range slices.Concat(m, model{{UUID: "none"}}) {
		exists := m.find(p.UUID) >= 0
		root := ""
		if exists {
			root = m[slices.IndexFunc(m,
				func(r providertree.Provider) bool { return r.ParentUUID == "" && m.below(p.UUID, r.UUID) })].UUID
		}
		if got, ok := tree.RootOf(p.UUID); ok != exists || got != root {
			t.Fatalf("the root of %s is %q, want %q", p.UUID, got, root)
		}
		for _, class := range classes {
			inv, has := p.Inventories[class]
			if got, ok := tree.Inventory(p.UUID, class); ok != has || has && got != inv.Normalize() {
				t.Fatalf("%s has %v of %s: %v, want %v", p.UUID, got, class, ok, inv)
			}
		}
		for name, c := range map[string]struct {
			of   func(string, ...string) bool
			all  []string
			have []string
		}{"traits": {tree.HasTraits, traits, p.Traits}, "aggregates": {tree.InAggregates, aggregates, p.Aggregates}} {
			some := someOf(c.all).Draw(t, name)
			lacks := slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(c.have, s) })
			if got := c.of(p.UUID, some...); got != (exists && !lacks) {
				t.Fatalf("%s has the %s %v: %v", p.UUID, name, some, got)
			}
		}
	}
	for _, class := range classes {
		shared := slices.ContainsFunc(m, func(p providertree.Provider) bool {
			_, has := p.Inventories[class]
			return has && slices.Contains(p.Traits, providertree.TraitSharesViaAggregate)
		})
		if tree.HasSharingProvider(class) != shared {
			t.Fatalf("a provider shares %s: %v, want %v", class, !shared, shared)
		}
	}
}

func sortedSet(l []string) []string { return slices.Compact(slices.Sorted(slices.Values(l))) }

func normal(v providertree.Inventories) providertree.Inventories {
	out := providertree.Inventories{}
	for class, inv := range v {
		out[class] = inv.Normalize()
	}
	return out
}

// TestClonesAreIndependent changes a clone at random: the original must not notice, nor may what it
// handed out before.
func TestClonesAreIndependent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tree := grown(t)
		before := slices.Collect(tree.All())
		clone := tree.Clone()
		for range 10 {
			uuid := someUUID.Draw(t, "uuid")
			_, _ = clone.SetInventories(uuid, someInventories.Draw(t, "inventories"))
			_, _ = clone.AddTraits(uuid, someTraits.Draw(t, "traits")...)
			_, _ = clone.AddAggregates(uuid, someAggregates.Draw(t, "aggregates")...)
			_, _ = clone.Move(uuid, someUUID.Draw(t, "parent"))
			_, _ = clone.Rename(uuid, someName.Draw(t, "name"))
			_ = clone.AddChild(someUUID.Draw(t, "parent"), uuid, someName.Draw(t, "name"))
			if rapid.Bool().Draw(t, "remove") {
				_, _ = clone.Remove(someUUID.Draw(t, "gone"))
			}
		}
		if d := cmp.Diff(before, slices.Collect(tree.All())); d != "" {
			t.Fatalf("the original changed:\n%s", d)
		}
	})
}

// TestDiffLeadsFromOneToTheOther applies a Diff to the older tree and must arrive at the newer one.
func TestDiffLeadsFromOneToTheOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before, after := grown(t), grown(t)
		changes := providertree.Diff(before, after)
		got := before.Clone()
		// out of the way of each other first: names and parents may be swapped
		for _, c := range changes.Changed {
			must(t)(got.Rename(c.Before.UUID, "tmp "+c.Before.UUID))
			must(t)(got.Move(c.Before.UUID, ""))
		}
		for i, p := range changes.Removed {
			if kids := got.Children(p.UUID); len(kids) > 0 {
				// a surviving child of a removed parent is among the changed: moved already
				for _, k := range kids {
					t.Fatalf("removal %d: %s still has child %s", i, p.UUID, k)
				}
			}
			must(t)(got.Remove(p.UUID))
		}
		for _, p := range changes.Added {
			if p.ParentUUID == "" {
				must(t)(nil, got.AddRoot(p.UUID, "tmp "+p.UUID))
			} else {
				must(t)(nil, got.AddChild(p.ParentUUID, p.UUID, "tmp "+p.UUID))
			}
		}
		final := slices.Clone(changes.Added)
		for _, c := range changes.Changed {
			final = append(final, c.After)
		}
		for _, p := range final {
			must(t)(got.Move(p.UUID, ""))
		}
		for _, p := range final {
			must(t)(got.Move(p.UUID, p.ParentUUID))
			must(t)(got.Rename(p.UUID, p.Name))
			must(t)(got.SetInventories(p.UUID, p.Inventories))
			must(t)(got.SetTraits(p.UUID, p.Traits))
			must(t)(got.SetAggregates(p.UUID, p.Aggregates))
		}
		if !got.Equal(after) {
			t.Fatalf("arrived at something else:\n%s", cmp.Diff(slices.Collect(after.All()), slices.Collect(got.All())))
		}
		if !providertree.Diff(after, after.Clone()).Empty() {
			t.Fatal("a clone differs from its original")
		}
	})
}

func grown(t *rapid.T) *providertree.Tree {
	tree := &providertree.Tree{}
	for _, p := range rapid.SliceOfN(someProvider, 0, 12).Draw(t, "providers") {
		_ = tree.Populate([]providertree.Provider{p})
	}
	return tree
}

func must(t *rapid.T) func(any, error) {
	return func(_ any, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
}
