// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
)

func id(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

func three(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	for _, err := range []error{tree.AddRoot(id(1), "cn1"),
		tree.AddChild(id(1), id(2), "cn1_numa_0"), tree.AddChild(id(2), id(3), "cn1_pci_0000_84_00_0")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	populate := func(p ...providertree.Provider) func(*providertree.Tree) error {
		return func(tree *providertree.Tree) error { return tree.Populate(p) }
	}
	cases := []struct {
		name string
		do   func(*providertree.Tree) error
		want error
	}{
		{"a second root of one name",
			func(tr *providertree.Tree) error { return tr.AddRoot(id(9), "cn1") }, providertree.ErrExists},
		{"a root of a child's name",
			func(tr *providertree.Tree) error { return tr.AddRoot(id(9), "cn1_numa_0") }, providertree.ErrExists},
		{"a second provider of one uuid",
			func(tr *providertree.Tree) error { return tr.AddRoot(id(3), "x") }, providertree.ErrExists},
		{"the same uuid in upper case", func(tr *providertree.Tree) error {
			return tr.AddRoot("0000000000004000800"+"0000000000003", "x")
		}, providertree.ErrExists},
		{"a child of an unknown parent",
			func(tr *providertree.Tree) error { return tr.AddChild(id(7), id(9), "x") }, providertree.ErrParent},
		{"no uuid", func(tr *providertree.Tree) error { return tr.AddRoot("", "x") }, providertree.ErrInvalid},
		{"no name", func(tr *providertree.Tree) error { return tr.AddRoot(id(9), "") }, providertree.ErrInvalid},
		{"a name of 201", func(tr *providertree.Tree) error { return tr.AddRoot(id(9), strings.Repeat("x", 201)) },
			providertree.ErrInvalid},
		{"a move below itself",
			func(tr *providertree.Tree) error { _, err := tr.Move(id(1), id(3)); return err }, providertree.ErrParent},
		{"inventory of an unknown provider",
			func(tr *providertree.Tree) error { _, err := tr.SetInventories(id(9), nil); return err },
			providertree.ErrNotFound},
		{"traits of an unknown provider",
			func(tr *providertree.Tree) error { _, err := tr.AddTraits(id(9)); return err }, providertree.ErrNotFound},
		{"a trait in small letters",
			func(tr *providertree.Tree) error { _, err := tr.AddTraits(id(1), "fast"); return err },
			providertree.ErrInvalid},
		{"an aggregate that is no uuid",
			func(tr *providertree.Tree) error { _, err := tr.AddAggregates(id(1), "rack"); return err },
			providertree.ErrInvalid},
		{"inventory of zero", func(tr *providertree.Tree) error {
			_, err := tr.SetInventory(id(1), "VCPU", providertree.Inventory{})
			return err
		}, providertree.ErrInvalid},
		{"more than Placement can hold", func(tr *providertree.Tree) error {
			_, err := tr.SetInventory(id(1), "VCPU", providertree.Inventory{Total: math.MaxInt32 + 1})
			return err
		}, providertree.ErrInvalid},
		{"a ratio that is no number", func(tr *providertree.Tree) error {
			_, err := tr.SetInventory(id(1), "VCPU", providertree.Inventory{Total: 1, AllocationRatio: math.NaN()})
			return err
		}, providertree.ErrInvalid},
		{"an orphan among good ones", populate(
			providertree.Provider{UUID: id(8), Name: "good"},
			providertree.Provider{UUID: id(9), Name: "x", ParentUUID: id(7)}), providertree.ErrParent},
		{"a loop among good ones", populate(
			providertree.Provider{UUID: id(7), Name: "good"},
			providertree.Provider{UUID: id(8), Name: "a", ParentUUID: id(9)},
			providertree.Provider{UUID: id(9), Name: "b", ParentUUID: id(8)}), providertree.ErrParent},
		{"one uuid twice", populate(providertree.Provider{UUID: id(8), Name: "a"},
			providertree.Provider{UUID: id(8), Name: "b"}), providertree.ErrInvalid},
		{"one name twice", populate(providertree.Provider{UUID: id(8), Name: "a"},
			providertree.Provider{UUID: id(9), Name: "a"}), providertree.ErrInvalid},
		{"a generation from before", func(tr *providertree.Tree) error {
			return errors.Join(tr.SetGeneration(id(1), 5), tr.SetGeneration(id(1), 4))
		}, providertree.ErrStaleGeneration},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tree := three(t)
			if err := c.do(tree); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			} else {
				t.Log(err)
			}
			if !tree.Equal(three(t)) {
				t.Error("the refused change left something behind")
			}
		})
	}
}

// TestPopulateReplaces holds the odd cases of Nova's ProviderTree that its users rely on.
func TestPopulateReplaces(t *testing.T) {
	t.Parallel()
	t.Run("listing a provider alone disowns its descendants", func(t *testing.T) {
		tree := three(t)
		if err := tree.Populate(
			[]providertree.Provider{{UUID: id(2), Name: "cn1_numa_0", ParentUUID: id(1)}}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{id(1), id(2)}, tree.UUIDs()); diff != "" {
			t.Error("(-want +got):\n" + diff)
		}
	})
	t.Run("a root takes a new name and keeps the children that are listed, in any order", func(t *testing.T) {
		tree := three(t)
		if err := tree.Populate([]providertree.Provider{
			{UUID: id(3), Name: "gpu", ParentUUID: id(2)}, {UUID: id(2), Name: "cn1_numa_0", ParentUUID: id(1)},
			{UUID: id(1), Name: "renamed"},
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{id(1), id(2), id(3)}, tree.UUIDs()); diff != "" {
			t.Error("(-want +got):\n" + diff)
		}
		if _, found := tree.ProviderByName("cn1"); found {
			t.Error("the old name still leads somewhere")
		}
	})
	t.Run("two providers swap names", func(t *testing.T) {
		tree := three(t)
		if err := tree.Populate([]providertree.Provider{
			{UUID: id(1), Name: "cn1_numa_0"}, {UUID: id(2), Name: "cn1", ParentUUID: id(1)},
			{UUID: id(3), Name: "gpu", ParentUUID: id(2)},
		}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("nothing is a no-op", func(t *testing.T) {
		tree := three(t)
		if err := tree.Populate(nil); err != nil || !tree.Equal(three(t)) {
			t.Fatal(err)
		}
	})
}

// TestInventoryComparesWithDefaults: a record that leaves a field out means Placement's default, so
// it differs from one in which the field is something else, whichever of the two is newer.
func TestInventoryComparesWithDefaults(t *testing.T) {
	t.Parallel()
	tree := three(t)
	set := func(inv providertree.Inventory) bool {
		result, err := tree.SetInventory(id(1), "VCPU", inv)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	full := providertree.Inventory{Total: 4, Reserved: 0,
		MinUnit: 1, MaxUnit: providertree.MaxUnit, StepSize: 1, AllocationRatio: 1}
	steps := []struct {
		inv  providertree.Inventory
		want bool
	}{{full, true}, {providertree.Inventory{Total: 4}, false},
		{providertree.Inventory{Total: 4, AllocationRatio: 16}, true},
		{providertree.Inventory{Total: 4}, true}, {full, false}}
	for i, s := range steps {
		if got := set(s.inv); got != s.want {
			t.Errorf("step %d: changed=%v, want %+v", i, got, s.want)
		}
	}
}

// TestChildUUIDStays pins the derivation: another value after an upgrade would give every device a
// second provider.
func TestChildUUIDStays(t *testing.T) {
	t.Parallel()
	got, err := providertree.ChildUUID("6f5b1f5e-97a4-4f9b-9b6e-3d5b9f2d3a10", "pci_0000_84_00_0")
	if err != nil {
		t.Fatal(err)
	}
	if want := "8bbdd6ec-7baf-5771-9957-106bce292301"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestAllocationsCloneIsDeep(t *testing.T) {
	t.Parallel()
	g := int64(3)
	a := providertree.Allocations{id(5): {Resources: providertree.ProviderResources{id(1): {"VCPU": 2}},
		Generation: &g}}
	b := a.Clone()
	b[id(5)].Resources[id(1)]["VCPU"], *b[id(5)].Generation = 9, 9
	if a[id(5)].Resources[id(1)]["VCPU"] != 2 || g != 3 ||
		a.Used(id(1))["VCPU"] != 2 || a[id(5)].Totals()["VCPU"] != 2 {
		t.Error("the clone is tied to its original")
	}
	if providertree.Allocations(nil).Clone() != nil {
		t.Error("nil must stay nil: it says that this is no reshape")
	}
}

func bigTree(b *testing.B, n int) *providertree.Tree {
	b.Helper()
	tree := &providertree.Tree{}
	if err := tree.AddRoot(id(0), "root"); err != nil {
		b.Fatal(err)
	}
	for i := 1; i < n; i++ {
		if err := tree.AddChild(id((i-1)/8), id(i), fmt.Sprintf("p%d", i)); err != nil {
			b.Fatal(err)
		}
	}
	return tree
}

func BenchmarkClone(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tree := bigTree(b, n)
			b.ReportAllocs()
			for b.Loop() {
				_ = tree.Clone()
			}
		})
	}
}

// BenchmarkPopulateSiblings is a tree as it arrives from a plugin or from Placement: many children
// of one provider.
func BenchmarkPopulateSiblings(b *testing.B) {
	providers := []providertree.Provider{{UUID: id(0), Name: "root"}}
	for i := 1; i < 10_000; i++ {
		providers = append(providers,
			providertree.Provider{UUID: id(i), Name: fmt.Sprintf("p%d", i), ParentUUID: id(0)})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := (&providertree.Tree{}).Populate(providers); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDiffNothing(b *testing.B) {
	tree := bigTree(b, 1000)
	clone := tree.Clone()
	b.ReportAllocs()
	for b.Loop() {
		_ = providertree.Diff(tree, clone)
	}
}

// TestReservedBeyondTotalCanBeRead: Placement takes that from a reshape, and one such inventory
// must not make a tree unreadable.
func TestReservedBeyondTotalCanBeRead(t *testing.T) {
	t.Parallel()
	tree := &providertree.Tree{}
	inv := providertree.Inventory{Total: 1, Reserved: 2}
	if err := tree.Populate(
		[]providertree.Provider{{UUID: id(
			1), Name: "a", Inventories: providertree.Inventories{"VCPU": inv}}}); err != nil || inv.Capacity() != -1 {
		t.Errorf("%v, capacity %d", err, inv.Capacity())
	}
	if c := (providertree.Inventory{Total: providertree.MaxUnit, AllocationRatio: math.MaxFloat32}).
		Capacity(); c != math.MaxInt64 {
		t.Errorf("a capacity beyond all numbers is %d", c)
	}
}

// TestErrorsDoNotGrowWithWhatIsWrong: what is given comes from another process.
func TestErrorsDoNotGrowWithWhatIsWrong(t *testing.T) {
	t.Parallel()
	wrong := providertree.Provider{Inventories: providertree.Inventories{}}
	for i := range 1000 {
		wrong.Traits = append(wrong.Traits, fmt.Sprint("trait", i))
		wrong.Aggregates = append(wrong.Aggregates, fmt.Sprint("aggregate", i))
		wrong.Inventories[fmt.Sprint("class", i)] = providertree.Inventory{}
		wrong.Inventories[fmt.Sprint("CLASS_", i)] = providertree.Inventory{}
	}
	many, orphans, loop := make([]providertree.Provider, 1000), make([]providertree.Provider, 1000),
		make([]providertree.Provider, 1000)
	for i := range many {
		many[i] = wrong
		orphans[i] = providertree.Provider{UUID: id(i), Name: fmt.Sprint("p", i), ParentUUID: id(5000)}
		loop[i] = providertree.Provider{UUID: id(i), Name: fmt.Sprint("p", i), ParentUUID: id((i + 1) % len(loop))}
	}
	for name, c := range map[string]struct {
		given []providertree.Provider
		want  error
	}{"everything": {many, providertree.ErrInvalid}, "orphans": {orphans, providertree.ErrParent},
		"a loop": {loop, providertree.ErrParent}} {
		err := (&providertree.Tree{}).Populate(c.given)
		var found providertree.Violations
		if !errors.Is(err, c.want) || len(err.Error()) > 20_000 || !errors.As(err, &found) || len(found) > 2000 {
			t.Errorf("%s: %d violations, %d bytes: %.300v", name, len(found), len(fmt.Sprint(err)), err)
		}
	}
}

// TestPopulateStopsCounting: a thousand violations are collected of providers that no tree can
// hold.
func TestPopulateStopsCounting(t *testing.T) {
	t.Parallel()
	unnamed := make([]providertree.Provider, 1001)
	for i := range unnamed {
		unnamed[i].UUID = id(i)
	}
	var found providertree.Violations
	if err := (&providertree.Tree{}).Populate(unnamed); !errors.As(err, &found) || len(found) != 1000 {
		t.Errorf("%d violations", len(found))
	}
}

// TestNamedResourcesAreASet: their order and duplicates do not matter.
func TestNamedResourcesAreASet(t *testing.T) {
	t.Parallel()
	tree := three(t)
	a, b, c := providertree.Resource{Identifier: "a", Metadata: "2"},
		providertree.Resource{Identifier: "b", Metadata: "1"}, providertree.Resource{Identifier: "b", Metadata: "2"}
	for i, step := range []struct {
		given, want []providertree.Resource
		changed     bool
	}{
		{[]providertree.Resource{c, a, b, c}, []providertree.Resource{a, b, c}, true},
		{[]providertree.Resource{b, c, b, a}, []providertree.Resource{a, b, c}, false},
		{[]providertree.Resource{c, a}, []providertree.Resource{a, c}, true},
	} {
		changed, err := tree.SetResources(id(1), map[string][]providertree.Resource{"CUSTOM_PMEM": step.given})
		p, _ := tree.Provider(id(1))
		if err != nil || changed != step.changed || !slices.Equal(p.Resources["CUSTOM_PMEM"], step.want) {
			t.Errorf("step %d: changed %t, %v, %v", i, changed, p.Resources, err)
		}
	}
}

// TestPopulateAllocatesLittle bounds what a provider of a tree that arrives as a whole costs: its
// record, and the maps and lists that it has.
func TestPopulateAllocatesLittle(t *testing.T) {
	const n = 5000
	providers := []providertree.Provider{{UUID: id(0), Name: "root"}}
	for i := 1; i < n; i++ {
		providers = append(providers, providertree.Provider{
			UUID: id(i), Name: providers[0].Name + id(i), ParentUUID: id(0),
			Inventories: providertree.Inventories{"VGPU": {Total: 1}},
			Traits:      []string{"CUSTOM_A"}, Aggregates: []string{id(9)},
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
