// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
)

const (
	rootUUID  = "11111111-2222-3333-4444-555555555555"
	poolUUID  = "33333333-2222-3333-4444-555555555555"
	otherUUID = "22222222-2222-3333-4444-555555555555"
)

func childUUID(i int) string { return fmt.Sprintf("c0000000-0000-4000-8000-%012d", i) }

type provider = *providertree.Provider

func provided(uuid, name, parent string, generation int64) provider {
	return &providertree.Provider{UUID: uuid, Name: name, ParentUUID: parent, Generation: generation}
}

// givenRoot, givenChild and givenPool are what nodeAndPool holds.
func givenRoot() provider  { return provided(rootUUID, "cn1", "", 7) }
func givenChild() provider { return provided(childUUID(1), "cn1_1", rootUUID, 3) }
func givenPool() []provider {
	return []provider{provided(poolUUID, "pool", "", 4), provided(childUUID(9), "pool_part", poolUUID, 5)}
}

// nodeAndPool is a node with a child, and a sharing provider with one beside it.
func nodeAndPool(tb testing.TB) *providertree.Tree {
	tb.Helper()
	result, err := treeOf(append([]provider{givenRoot(), givenChild()}, givenPool()...))
	if err != nil {
		tb.Fatal(err)
	}
	return result
}

func treeOf(providers []provider) (*providertree.Tree, error) {
	list := make([]providertree.Provider, 0, len(providers))
	for _, p := range providers {
		list = append(list, *p)
	}
	tree := &providertree.Tree{}
	return tree, tree.Populate(list)
}

// edited is what is wrong with an edited tree, of which no more is known than its providers.
func edited(before *providertree.Tree, after []provider) error {
	tree, err := treeOf(after)
	if err != nil {
		return err
	}
	return providertree.Check(before, tree, "cn1").Err()
}

// TestCheck: each violation says where it is, what is there, what is allowed and, if that is not
// the same, what to do.
func TestCheck(t *testing.T) {
	t.Parallel()
	const (
		root = `resource provider "cn1" (` + rootUUID + `): `
		pool = `resource provider "pool" (` + poolUUID + `): `
	)
	child := `resource provider "cn1_1" (` + childUUID(1) + `): `
	fresh := `resource provider "cn1_2" (` + childUUID(2) + `): `
	inv := func(class string, i providertree.Inventory) func(p provider) {
		return func(p provider) { p.Inventories = providertree.Inventories{class: i} }
	}
	unit := func(identifier string) func(p provider) {
		return func(p provider) {
			p.Resources = map[string][]providertree.Resource{"CUSTOM_A": {{Identifier: identifier}}}
		}
	}
	all := func(more ...provider) []provider {
		return append(append([]provider{givenRoot(), givenChild()}, more...), givenPool()...)
	}
	onRoot := func(edit func(p provider)) []provider {
		providers := all()
		edit(providers[0])
		return providers
	}
	onChild := func(edit func(p provider)) []provider {
		providers := all()
		edit(providers[1])
		return providers
	}
	onPool := func(edit func(p provider)) []provider {
		providers := all()
		edit(providers[2])
		return providers
	}
	onFresh := func(edit func(p provider)) []provider {
		p := provided(childUUID(2), "cn1_2", rootUUID, providertree.NoGeneration)
		edit(p)
		return all(p)
	}
	stocked := func(before *providertree.Tree) {
		if _, err := before.SetInventory(childUUID(1),
			"VGPU", providertree.Inventory{Total: 1, Reserved: 2}); err != nil {
			t.Fatal(err)
		}
	}
	deep := all()
	for i, parent := 100, rootUUID; i < 100+64+1; i++ {
		deep = append(deep, provided(childUUID(i), fmt.Sprint("cn1_", i), parent, providertree.NoGeneration))
		parent = childUUID(i)
	}
	for name, c := range map[string]struct {
		after  []provider
		before func(*providertree.Tree)
		want   string // "" is good
		is     error
	}{
		"as it came":       {after: all()},
		"a child more":     {after: onFresh(func(provider) {})},
		"a child less":     {after: append([]provider{givenRoot()}, givenPool()...)},
		"in another order": {after: append(givenPool(), givenChild(), givenRoot())},
		"upper case uuids": {after: onRoot(func(p provider) { p.UUID = strings.ToUpper(p.UUID) })},
		"traits twice":     {after: onRoot(func(p provider) { p.Traits = []string{"CUSTOM_A", "CUSTOM_A"} })},
		"the largest inventory": {after: onRoot(
			inv("VCPU", providertree.Inventory{Total: math.MaxInt32,
				Reserved: math.MaxInt32, AllocationRatio: 3.4e38}))},
		"a name of 200":            {after: onFresh(func(p provider) { p.Name = "cn1" + strings.Repeat("ä", 197) })},
		"a unit's name of 255":     {after: onRoot(unit(strings.Repeat("x", 255)))},
		"all reserved":             {after: onRoot(inv("VCPU", providertree.Inventory{Total: 1, Reserved: 1}))},
		"a sharing provider tuned": {after: onPool(inv("DISK_GB", providertree.Inventory{Total: 1}))},

		"an empty tree": {want: root +
			`the node's own resource provider is missing from the tree: edit the given tree instead of ` +
			`building a new one`},
		"no root": {after: givenPool(), want: root +
			`the node's own resource provider is missing from the tree: edit the given tree instead of ` +
			`building a new one`},
		"root renamed": {after: onRoot(func(p provider) { p.Name = "cn2" }), want: root +
			`it was renamed to "cn2": a driver must not rename a node's own provider`},
		"root below the pool": {after: onRoot(func(p provider) { p.ParentUUID = poolUUID }),
			want: root + "it was put below " + poolUUID + ": a node's own provider is a root"},
		"too much reserved, as it was before": {before: stocked,
			after: onChild(inv("VGPU", providertree.Inventory{Total: 1, Reserved: 2}))},
		"another generation": {after: onRoot(func(p provider) { p.Generation = 8 }), want: root +
			"its generation is 8, was 7: only Placement changes generations"},
		"a lost generation": {after: onRoot(func(p provider) { p.Generation = providertree.NoGeneration }), want: root +
			"its generation is unset, was 7: only Placement changes generations"},
		"a made up generation": {after: onFresh(func(p provider) { p.Generation = 0 }),
			want: fresh + "its generation is 0, was unset: only Placement changes generations"},
		"a generation below zero": {after: onChild(func(p provider) { p.Generation = -5 }), is: providertree.ErrInvalid,
			want: child + "its generation is -5: return it unchanged, and leave it out of a new provider"},

		"a second root": {after: onFresh(func(p provider) { p.ParentUUID = "" }),
			want: fresh + "it is new, and a root: a driver adds providers below its node (" + rootUUID +
				"), and lists nodes in AvailableNodes"},
		"a new provider below the pool": {after: onFresh(func(p provider) { p.ParentUUID = poolUUID }),
			want: fresh + "it is new, and below " + poolUUID +
				`, which is outside of the tree of "cn1": a driver adds providers below its node (` + rootUUID + `)`},
		"a child moved out": {after: onChild(func(p provider) { p.ParentUUID = poolUUID }), want: child +
			"it was moved to below " + poolUUID + `, out of the tree of "cn1"`},
		"a child made a root": {after: onChild(func(p provider) { p.ParentUUID = "" }),
			want: child + `it was moved to the top, as a root, out of the tree of "cn1"`},
		"the pool renamed": {after: onPool(func(p provider) { p.Name = "cn1_pool" }), want: pool +
			`it is outside of the tree of "cn1", and was renamed to "cn1_pool"`},
		"the pool taken": {after: onPool(func(p provider) { p.ParentUUID = rootUUID }), want: pool +
			`it is outside of the tree of "cn1", and was moved to below ` + rootUUID},
		"all inventory gone": {after: all(), before: stocked, want: root +
			"all inventory of the node is missing: a driver that does not know what the machine has must answer " +
			"that it is not ready"},
		"the pool lost": {after: []provider{givenRoot(), givenChild()},
			want: "2 violations: (1) " + pool +
				`it is outside of the tree of "cn1", and is missing: return what is not the driver's unchanged; ` +
				`(2) resource provider "pool_part" (` + childUUID(9) +
				`): it is outside of the tree of "cn1", and is missing: return what is not the driver's unchanged`},
		"65 levels": {after: deep,
			want: fmt.Sprintf("resource provider %q (%s): it is 65 levels below its root, at most 64 are allowed",
				"cn1_164", childUUID(164))},

		"no name": {after: onFresh(func(p provider) { p.Name = "" }), is: providertree.ErrInvalid,
			want: `resource provider "" (` + childUUID(2) + `): its name has 0 characters, must have 1 to 200`},
		"a name of 201": {after: onFresh(func(p provider) { p.Name = strings.Repeat("ä", 201) }),
			is: providertree.ErrInvalid,
			want: `resource provider "` + strings.Repeat("ä", 40) + `..." (` + childUUID(2) +
				`): its name has 201 characters, must have 1 to 200`},
		"a name twice": {after: onFresh(func(p provider) { p.Name = "cn1_1" }), is: providertree.ErrInvalid,
			want: `resource provider "cn1_1" (` + childUUID(2) + `): its name is also that of ` +
				childUUID(1) + `; each is given once`},
		"a child with the name of another": {after: onChild(func(p provider) { p.Name = "cn1" }),
			is: providertree.ErrInvalid,
			want: `resource provider "cn1" (` + childUUID(1) + `): its name is also that of ` +
				rootUUID + `; each is given once`},
		"a name that is not the node's": {after: onFresh(func(p provider) { p.Name = "gpu_0" }),
			want: `resource provider "gpu_0" (` +
				childUUID(2) +
				`): its name does not contain the node's name "cn1": names are unique in all of Placement, and the ` +
				`next host of this kind would use the same one; for example "cn1_gpu_0"`},
		"renamed to what is not the node's": {after: onChild(func(p provider) { p.Name = "gpu_0" }),
			want: `resource provider "gpu_0" (` +
				childUUID(1) +
				`): its name does not contain the node's name "cn1": names are unique in all of Placement, and the ` +
				`next host of this kind would use the same one; for example "cn1_gpu_0"`},
		"a name with an escape": {after: onFresh(func(p provider) { p.Name = "cn1\x1b[31m" }),
			want: `resource provider "cn1\x1b[31m" (` + childUUID(2) + `): its name has unprintable characters`},
		"a name with a space": {after: onFresh(func(p provider) { p.Name = "cn1 " }),
			want: `resource provider "cn1 " (` + childUUID(2) + `): its name begins or ends with a space`},
		"not a uuid": {after: onFresh(func(p provider) { p.UUID = "gpu" }), is: providertree.ErrInvalid,
			want: `resource provider "cn1_2" (gpu): its uuid "gpu" is not a uuid: derive one with ` +
				`providertree.ChildUUID`},
		"a uuid twice, in another notation": {after: onFresh(
			func(p provider) { p.UUID = strings.ToUpper(strings.ReplaceAll(childUUID(1), "-", "")) }),
			is: providertree.ErrInvalid,
			want: `resource provider "cn1_2" (C0000000000040008000000000000001): duplicate uuid, also that of ` +
				`"cn1_1": derive one with providertree.ChildUUID`},
		"a parent that is no uuid": {after: onFresh(func(p provider) { p.ParentUUID = "cn1" }),
			is:   providertree.ErrInvalid,
			want: fresh + `its parent "cn1" is not a uuid`},
		"a parent elsewhere": {after: onFresh(func(p provider) { p.ParentUUID = otherUUID }),
			is: providertree.ErrParent,
			want: fresh + "its parent " + otherUUID +
				" is not in the tree: remove a provider with all its descendants, or return it unchanged"},
		"its own parent": {after: onFresh(func(p provider) { p.ParentUUID = p.UUID }), is: providertree.ErrParent,
			want: fresh + "it is its own parent"},
		"a loop": {after: all(provided(childUUID(2), "cn1_2", childUUID(4), -1),
			provided(childUUID(3), "cn1_3", childUUID(2), -1), provided(childUUID(4), "cn1_4", childUUID(3), -1)),
			is: providertree.ErrParent, want: fresh +
				"it is below itself, in a loop of 3 providers: one of them must have a parent outside of it"},
		"below a loop": {after: all(provided(childUUID(2), "cn1_2", childUUID(3), -1),
			provided(childUUID(3), "cn1_3", childUUID(4), -1), provided(childUUID(4), "cn1_4", childUUID(3), -1)),
			is: providertree.ErrParent, want: `resource provider "cn1_3" (` + childUUID(3) +
				`): it is below itself, in a loop of 2 providers: one of them must have a parent outside of it`},

		"no total": {after: onRoot(inv("VCPU", providertree.Inventory{})), is: providertree.ErrInvalid,
			want: root +
				"inventory of VCPU: total is 0, must be between 1 and 2147483647: leave out a class without inventory"},
		"a total beyond": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 1 << 31})),
			is: providertree.ErrInvalid, want: root +
				"inventory of VCPU: total is 2147483648, must be between 1 and 2147483647: leave out a class " +
				"without inventory"},
		"reserved below": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 1, Reserved: -1})),
			is: providertree.ErrInvalid, want: root +
				"inventory of VCPU: reserved is -1, must be between 0 and 2147483647"},
		"reserved beyond": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 4, Reserved: 5})),
			want: root +
				"inventory of VCPU: reserved is 5, more than the total 4, which Placement refuses: write at most 4"},
		"units": {after: onRoot(
			inv("VCPU", providertree.Inventory{Total: 4, MinUnit: -1, MaxUnit: 1 << 40, StepSize: math.MinInt64})),
			is: providertree.ErrInvalid,
			want: "3 violations: (1) " + root +
				"inventory of VCPU: min_unit is -1, must be between 1 and 2147483647, or 0 for Placement's default; " +
				"(2) " + root +
				"inventory of VCPU: max_unit is 1099511627776, must be " +
				"between 1 and 2147483647, or 0 for Placement's default; " +
				"(3) " + root +
				"inventory of VCPU: step_size is -9223372036854775808, must be between 1 and 2147483647, or 0 for " +
				"Placement's default"},
		"units crossed": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 4, MinUnit: 3, MaxUnit: 2})),
			want: root + "inventory of VCPU: min_unit is 3, more than max_unit 2: no allocation would be possible"},
		"a ratio that is no number": {after: onRoot(
			inv("VCPU", providertree.Inventory{Total: 4, AllocationRatio: math.NaN()})), is: providertree.ErrInvalid,
			want: root +
				"inventory of VCPU: allocation_ratio is NaN, must be above 0 and at most 3.403e+38, or 0 for " +
				"Placement's default"},
		"an endless ratio": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 4, AllocationRatio: math.Inf(1)})),
			is: providertree.ErrInvalid,
			want: root +
				"inventory of VCPU: allocation_ratio is +Inf, must be above 0 and at most 3.403e+38, or 0 for " +
				"Placement's default"},
		"a negative ratio": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 4, AllocationRatio: -0.5})),
			is: providertree.ErrInvalid,
			want: root +
				"inventory of VCPU: allocation_ratio is -0.5, must be above 0 and at most 3.403e+38, or 0 for " +
				"Placement's default"},
		"a huge ratio": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 4, AllocationRatio: 1e300})),
			is: providertree.ErrInvalid,
			want: root +
				"inventory of VCPU: allocation_ratio is 1e+300, must be above 0 and at most 3.403e+38, or 0 for " +
				"Placement's default"},
		"a tiny ratio": {after: onRoot(inv("VCPU", providertree.Inventory{Total: 4, AllocationRatio: 1e-300})),
			want: root +
				"inventory of VCPU: allocation_ratio is 1e-300, must be at least 1.1754944e-38, or 0 for " +
				"Placement's default: it would be stored as 0"},
		"an empty class": {after: onRoot(inv("", providertree.Inventory{Total: 1})), is: providertree.ErrInvalid,
			want: root + `inventory: resource class name "" has 0 characters, must have 1 to 255`},
		"a class of 256": {after: onRoot(inv(strings.Repeat("A", 256), providertree.Inventory{Total: 1})),
			is: providertree.ErrInvalid, want: root + `inventory: resource class name "` + strings.Repeat("A", 80) +
				`..." has 256 characters, must have 1 to 255`},
		"a class with a dash": {after: onRoot(inv("CUSTOM-GPU", providertree.Inventory{Total: 1})),
			is: providertree.ErrInvalid, want: root +
				`inventory: resource class name "CUSTOM-GPU": only A-Z, 0-9 and _ are allowed`},
		"CUSTOM_ alone": {after: onRoot(inv("CUSTOM_", providertree.Inventory{Total: 1})), is: providertree.ErrInvalid,
			want: root + `inventory: resource class name "CUSTOM_": a custom resource class has a name after CUSTOM_`},

		"a trait in small letters": {after: onRoot(func(p provider) { p.Traits = []string{"hw_gpu"} }),
			is: providertree.ErrInvalid, want: root + `trait name "hw_gpu": only A-Z, 0-9 and _ are allowed`},
		"an empty trait": {after: onRoot(func(p provider) { p.Traits = []string{""} }),
			is: providertree.ErrInvalid, want: root + `trait name "" has 0 characters, must have 1 to 255`},
		"a trait that is a prefix": {after: onRoot(func(p provider) { p.Traits = []string{"CUSTOM_"} }),
			is: providertree.ErrInvalid, want: root + `trait name "CUSTOM_": a custom trait has a name after CUSTOM_`},
		"the agent's trait": {after: onFresh(func(p provider) { p.Traits = []string{"COMPUTE_STATUS_DISABLED"} }),
			want: fresh + "trait COMPUTE_STATUS_DISABLED belongs to the agent, a driver must not report it"},
		"an aggregate that is no uuid": {after: onRoot(func(p provider) { p.Aggregates = []string{"rack"} }),
			is: providertree.ErrInvalid, want: root + `aggregate "rack" is not a uuid`},

		"a unit without a name": {after: onRoot(unit("")),
			want: `resource provider "cn1" (` + rootUUID +
				`): named resource "" of CUSTOM_A: an identifier has 1 to 255 printable bytes`},
		"a unit's name of 256": {after: onRoot(unit(strings.Repeat("x", 256))),
			want: `resource provider "cn1" (` + rootUUID + `): named resource "` + strings.Repeat("x", 80) +
				`..." of CUSTOM_A: an identifier has 1 to 255 printable bytes`},
		"a unit twice": {after: onRoot(func(p provider) {
			p.Resources = map[string][]providertree.Resource{"CUSTOM_A": {{Identifier: "x"},
				{Identifier: "x", Metadata: "m"}}, "CUSTOM_B": {{Identifier: "x"}}}
		}), want: `resource provider "cn1" (` + rootUUID + `): duplicate named resource "x" of CUSTOM_A`},
		"a unit of no class": {after: onRoot(
			func(p provider) { p.Resources = map[string][]providertree.Resource{"a": {{Identifier: "x"}}} }),
			is:   providertree.ErrInvalid,
			want: root + `named resources: resource class name "a": only A-Z, 0-9 and _ are allowed`},
	} {
		t.Run(name, func(t *testing.T) {
			before := nodeAndPool(t)
			if c.before != nil {
				c.before(before)
			}
			err := edited(before, c.after)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
		})
	}
}

// TestCheckWithoutTheNode: where the node was not there before, only providers and their items are
// checked.
func TestCheckWithoutTheNode(t *testing.T) {
	t.Parallel()
	given := append([]provider{givenRoot(), provided(childUUID(2), "gpu", rootUUID, 5)}, givenPool()...)
	given[1].Inventories = providertree.Inventories{"VGPU": {Total: 1, Reserved: 2}}
	after, err := treeOf(given)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := treeOf(givenPool())
	if err != nil {
		t.Fatal(err)
	}
	const want = `resource provider "gpu" (c0000000-0000-4000-8000-000000000002): inventory of VGPU: reserved is 2, ` +
		`more than the total 1, which Placement refuses: write at most 1`
	for name, before := range map[string]*providertree.Tree{"nil": nil, "empty": {}, "another": pool} {
		if got := providertree.Check(before, after, "cn1"); len(got) != 1 || got.Error() != want {
			t.Errorf("%s: got  %v\nwant %s", name, got.Err(), want)
		}
	}
}

// TestViolationsIn: a field is with all below it, and "" is what is about the provider itself.
func TestViolationsIn(t *testing.T) {
	t.Parallel()
	all := providertree.Violations{{Field: ""}, {Field: "name"}, {Field: "inventories.VCPU"},
		{Field: "inventories.VCPU.total"}, {Field: "inventories.VCPU_X"}}
	for _, c := range []struct {
		fields []string
		want   providertree.Violations
	}{
		{nil, nil}, {[]string{""}, all[:1]}, {[]string{"name", ""}, all[:2]}, {[]string{"nam"}, nil},
		{[]string{"inventories"}, all[2:]},
		{[]string{"inventories.VCPU", "inventories"}, all[2:]}, {[]string{"inventories.VCPU"}, all[2:4]},
		{[]string{"inventories.VCPU.total"}, all[3:4]},
	} {
		if got := all.In(c.fields...); !slices.Equal(got, c.want) {
			t.Errorf("in %q: %+v, want %+v", c.fields, got, c.want)
		}
	}
}
