// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

const otherUUID = "22222222-2222-3333-4444-555555555555"

// nodeAndPool is a node with a child, and a sharing provider with one beside it.
func nodeAndPool(t testing.TB) *providertree.Tree {
	t.Helper()
	tree := oneNode(t)
	for _, err := range []error{
		tree.AddChild(rootUUID, childUUID(1), "cn1_1"), tree.AddRoot(poolUUID, "pool"), tree.AddChild(poolUUID, childUUID(9), "pool_part"),
		tree.SetGeneration(childUUID(1), 3), tree.SetGeneration(poolUUID, 4), tree.SetGeneration(childUUID(9), 5),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return tree
}

const poolUUID = "33333333-2222-3333-4444-555555555555"

func childUUID(i int) string {
	return fmt.Sprintf("c0000000-0000-4000-8000-%012d", i)
}

// wireProvider is one of a message. [wireRoot], [wireChild] and [wirePool] are what a well-behaved driver gives back of [nodeAndPool].
func wireProvider(uuid, name, parent string, generation int64) *driverv1.ResourceProvider {
	p := &driverv1.ResourceProvider{Uuid: uuid, Name: name, ParentUuid: parent}
	if generation != providertree.NoGeneration {
		p.Generation = &generation
	}
	return p
}

func wireRoot() *driverv1.ResourceProvider  { return wireProvider(rootUUID, "cn1", "", 7) }
func wireChild() *driverv1.ResourceProvider { return wireProvider(childUUID(1), "cn1_1", rootUUID, 3) }
func wirePool() []*driverv1.ResourceProvider {
	return []*driverv1.ResourceProvider{wireProvider(poolUUID, "pool", "", 4), wireProvider(childUUID(9), "pool_part", poolUUID, 5)}
}

// TestTreesAreRefusedInWords: each of them says where it is, what is there, what ought to be and, if that is not the same, what to do.
func TestTreesAreRefusedInWords(t *testing.T) {
	const (
		root  = `resource provider "cn1" (` + rootUUID + `): `
		pool  = `resource provider "pool" (` + poolUUID + `): `
		class = `: a resource class has 1 to 255 of A-Z, 0-9 and _, and begins with CUSTOM_ unless it is a standard one`
		trait = `: a trait has 1 to 255 of A-Z, 0-9 and _, and begins with CUSTOM_ unless it is a standard one`
	)
	child := `resource provider "cn1_1" (` + childUUID(1) + `): `
	fresh := `resource provider "cn1_2" (` + childUUID(2) + `): `
	type provider = *driverv1.ResourceProvider
	inv := func(class string, i *driverv1.Inventory) func(p provider) {
		return func(p provider) { p.Inventories = map[string]*driverv1.Inventory{class: i} }
	}
	all := func(more ...provider) []provider {
		return append(append([]provider{wireRoot(), wireChild()}, more...), wirePool()...)
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
		p := wireProvider(childUUID(2), "cn1_2", rootUUID, providertree.NoGeneration)
		edit(p)
		return all(p)
	}
	deep := all()
	for i, parent := 100, rootUUID; i < 100+maxLevels+1; i++ {
		deep = append(deep, wireProvider(childUUID(i), fmt.Sprint("cn1_", i), parent, providertree.NoGeneration))
		parent = childUUID(i)
	}
	for name, c := range map[string]struct {
		reply []provider
		want  string // "" is good
		is    error
	}{
		"as it came":               {reply: all()},
		"a child more":             {reply: onFresh(func(provider) {})},
		"a child less":             {reply: append([]provider{wireRoot()}, wirePool()...)},
		"in another order":         {reply: append(wirePool(), wireChild(), wireRoot())},
		"upper case uuids":         {reply: onRoot(func(p provider) { p.Uuid = strings.ToUpper(p.Uuid) })},
		"traits twice":             {reply: onRoot(func(p provider) { p.Traits = []string{"CUSTOM_A", "CUSTOM_A"} })},
		"the largest inventory":    {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: math.MaxInt32, Reserved: math.MaxInt32, AllocationRatio: 3.4e38}))},
		"all reserved":             {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 1, Reserved: 1}))},
		"a sharing provider tuned": {reply: onPool(inv("DISK_GB", &driverv1.Inventory{Total: 1}))},

		"an empty tree": {want: `the node's own resource provider "cn1" (` + rootUUID + `) is missing in the tree: edit the tree that is given, rather than making a new one`},
		"no root":       {reply: wirePool(), want: `the node's own resource provider "cn1" (` + rootUUID + `) is missing in the tree: edit the tree that is given, rather than making a new one`},
		"root renamed":  {reply: onRoot(func(p provider) { p.Name = "cn2" }), want: root + `it was renamed to "cn2": the name of a node's own provider is not the driver's to change`},
		"root below the pool": {reply: onRoot(func(p provider) { p.ParentUuid = poolUUID }),
			want: root + "it was put below " + poolUUID + ": a node's own provider is a root"},
		"another generation": {reply: onRoot(func(p provider) { *p.Generation = 8 }), want: root + "its generation is 8, was 7: generations are Placement's to change"},
		"a lost generation":  {reply: onRoot(func(p provider) { p.Generation = nil }), want: root + "its generation is none, was 7: generations are Placement's to change"},
		"a made up generation": {reply: onFresh(func(p provider) { p.Generation = new(int64) }),
			want: fresh + "its generation is 0, was none: generations are Placement's to change"},
		"a generation below zero": {reply: onChild(func(p provider) { *p.Generation = -1 }), is: wire.ErrMalformed,
			want: child + "its generation is -1: send it back as it came, and none with a provider that is new"},

		"a second root": {reply: onFresh(func(p provider) { p.ParentUuid = "" }),
			want: fresh + "it is new, and a root: a driver adds providers below its node (" + rootUUID + "), and lists nodes in AvailableNodes"},
		"a new provider below the pool": {reply: onFresh(func(p provider) { p.ParentUuid = poolUUID }),
			want: fresh + "it is new, and below " + poolUUID + `, which is not of the tree of "cn1": a driver adds providers below its node (` + rootUUID + `)`},
		"a child moved out": {reply: onChild(func(p provider) { p.ParentUuid = poolUUID }), want: child + "it was moved to below " + poolUUID + `, out of the tree of "cn1"`},
		"a child made a root": {reply: onChild(func(p provider) { p.ParentUuid = "" }),
			want: child + `it was moved to the top, as a root, out of the tree of "cn1"`},
		"the pool renamed": {reply: onPool(func(p provider) { p.Name = "cn1_pool" }), want: pool + `it is not of the tree of "cn1", and was renamed to "cn1_pool"`},
		"the pool taken":   {reply: onPool(func(p provider) { p.ParentUuid = rootUUID }), want: pool + `it is not of the tree of "cn1", and was moved to below ` + rootUUID},
		"the pool lost": {reply: []provider{wireRoot(), wireChild()},
			want: "2 defects: (1) " + pool + `it is not of the tree of "cn1", and is missing: give back what is not the driver's as it came; ` +
				`(2) resource provider "pool_part" (` + childUUID(9) + `): it is not of the tree of "cn1", and is missing: give back what is not the driver's as it came`},
		"65 levels": {reply: deep, want: fmt.Sprintf("resource provider %q (%s): it is 65 levels below its root, at most 64 are allowed", "cn1_164", childUUID(164))},

		"no name": {reply: onFresh(func(p provider) { p.Name = "" }), is: providertree.ErrInvalid,
			want: `resource provider "" (` + childUUID(2) + `): its name has 0 characters, must have 1 to 200`},
		"a name of 201": {reply: onFresh(func(p provider) { p.Name = strings.Repeat("ä", 201) }), is: providertree.ErrInvalid,
			want: `resource provider "` + strings.Repeat("ä", 100) + `..." (` + childUUID(2) + `): its name has 201 characters, must have 1 to 200`},
		"a name twice": {reply: onFresh(func(p provider) { p.Name = "cn1_1" }), is: providertree.ErrInvalid,
			want: `resource provider "cn1_1" (` + childUUID(2) + `): its name is also that of ` + childUUID(1) + `; each is given once`},
		"a child with the name of another": {reply: onChild(func(p provider) { p.Name = "cn1" }), is: providertree.ErrInvalid,
			want: `resource provider "cn1" (` + childUUID(1) + `): its name is also that of ` + rootUUID + `; each is given once`},
		"a name that is not the node's": {reply: onFresh(func(p provider) { p.Name = "gpu_0" }),
			want: `resource provider "gpu_0" (` + childUUID(2) + `): its name does not have the node's name "cn1" in it: names are unique in all of Placement, and the next host of this kind would want the same one; "cn1_gpu_0" would do`},
		"renamed to what is not the node's": {reply: onChild(func(p provider) { p.Name = "gpu_0" }),
			want: `resource provider "gpu_0" (` + childUUID(1) + `): its name does not have the node's name "cn1" in it: names are unique in all of Placement, and the next host of this kind would want the same one; "cn1_gpu_0" would do`},
		"a name with an escape": {reply: onFresh(func(p provider) { p.Name = "cn1\x1b[31m" }),
			want: `resource provider "cn1\x1b[31m" (` + childUUID(2) + `): its name has characters that cannot be printed`},
		"a name with a space": {reply: onFresh(func(p provider) { p.Name = "cn1 " }),
			want: `resource provider "cn1 " (` + childUUID(2) + `): its name begins or ends with a space`},
		"not a uuid": {reply: onFresh(func(p provider) { p.Uuid = "gpu" }), is: providertree.ErrInvalid,
			want: `resource provider "cn1_2" (gpu): its uuid "gpu" is none: make one with providertree.ChildUUID`},
		"a uuid twice, in another notation": {reply: onFresh(func(p provider) { p.Uuid = strings.ToUpper(strings.ReplaceAll(childUUID(1), "-", "")) }), is: providertree.ErrInvalid,
			want: `resource provider "cn1_2" (C0000000000040008000000000000001): its uuid is also that of "cn1_1"; each is given once: make one with providertree.ChildUUID`},
		"a parent that is no uuid": {reply: onFresh(func(p provider) { p.ParentUuid = "cn1" }), is: providertree.ErrInvalid,
			want: fresh + `its parent uuid "cn1" is none`},
		"a parent elsewhere": {reply: onFresh(func(p provider) { p.ParentUuid = otherUUID }), is: providertree.ErrParent,
			want: fresh + "its parent " + otherUUID + " is not in the tree: a provider goes with all that is below it, or is given back as it came"},
		"its own parent": {reply: onFresh(func(p provider) { p.ParentUuid = p.Uuid }), is: providertree.ErrParent, want: fresh + "it is its own parent"},
		"a loop": {reply: all(wireProvider(childUUID(2), "cn1_2", childUUID(4), -1), wireProvider(childUUID(3), "cn1_3", childUUID(2), -1), wireProvider(childUUID(4), "cn1_4", childUUID(3), -1)),
			is: providertree.ErrParent, want: fresh + "it is below itself, in a loop of 3 providers: one of them must have a parent outside of it"},

		"no total":       {reply: onRoot(inv("VCPU", &driverv1.Inventory{})), is: providertree.ErrInvalid, want: root + "inventory of VCPU: total is 0, must be between 1 and 2147483647; leave out the class of which there is none"},
		"a total beyond": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 1 << 31})), is: providertree.ErrInvalid, want: root + "inventory of VCPU: total is 2147483648, must be between 1 and 2147483647; leave out the class of which there is none"},
		"reserved below": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 1, Reserved: -1})), is: providertree.ErrInvalid, want: root + "inventory of VCPU: reserved is -1, must be between 0 and 2147483647"},
		"reserved beyond": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, Reserved: 5})),
			want: root + "inventory of VCPU: reserved is 5, more than the total 4, which Placement refuses"},
		"units": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, MinUnit: -1, MaxUnit: 1 << 40, StepSize: math.MinInt64})), is: providertree.ErrInvalid,
			want: "3 defects: (1) " + root + "inventory of VCPU: min_unit is -1, must be between 1 and 2147483647, or 0 for Placement's default; " +
				"(2) " + root + "inventory of VCPU: max_unit is 1099511627776, must be between 1 and 2147483647, or 0 for Placement's default; " +
				"(3) " + root + "inventory of VCPU: step_size is -9223372036854775808, must be between 1 and 2147483647, or 0 for Placement's default"},
		"units crossed": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, MinUnit: 3, MaxUnit: 2})),
			want: root + "inventory of VCPU: min_unit is 3, more than max_unit 2: nobody could allocate anything"},
		"a ratio that is no number": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, AllocationRatio: math.NaN()})), is: providertree.ErrInvalid,
			want: root + "inventory of VCPU: allocation_ratio is NaN, must be a finite number above 0, or 0 for Placement's default"},
		"an endless ratio": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, AllocationRatio: math.Inf(1)})), is: providertree.ErrInvalid,
			want: root + "inventory of VCPU: allocation_ratio is +Inf, must be a finite number above 0, or 0 for Placement's default"},
		"a negative ratio": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, AllocationRatio: -0.5})), is: providertree.ErrInvalid,
			want: root + "inventory of VCPU: allocation_ratio is -0.5, must be a finite number above 0, or 0 for Placement's default"},
		"a huge ratio": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, AllocationRatio: 1e300})), is: providertree.ErrInvalid,
			want: root + "inventory of VCPU: allocation_ratio is 1e+300, must be a finite number above 0, or 0 for Placement's default"},
		"a tiny ratio": {reply: onRoot(inv("VCPU", &driverv1.Inventory{Total: 4, AllocationRatio: 1e-300})),
			want: root + "inventory of VCPU: allocation_ratio is 1e-300, must be at least 1.1754944e-38, or 0 for Placement's default: it would be stored as 0"},
		"an empty class":      {reply: onRoot(inv("", &driverv1.Inventory{Total: 1})), is: providertree.ErrInvalid, want: root + `inventory of ""` + class},
		"a class of 256":      {reply: onRoot(inv(strings.Repeat("A", 256), &driverv1.Inventory{Total: 1})), is: providertree.ErrInvalid, want: root + `inventory of "` + strings.Repeat("A", 200) + `..."` + class},
		"a class with a dash": {reply: onRoot(inv("CUSTOM-GPU", &driverv1.Inventory{Total: 1})), is: providertree.ErrInvalid, want: root + `inventory of "CUSTOM-GPU"` + class},
		"CUSTOM_ alone":       {reply: onRoot(inv("CUSTOM_", &driverv1.Inventory{Total: 1})), want: root + "inventory of CUSTOM_: a custom resource class has something behind CUSTOM_"},

		"a trait in small letters": {reply: onRoot(func(p provider) { p.Traits = []string{"hw_gpu"} }), is: providertree.ErrInvalid, want: root + `trait "hw_gpu"` + trait},
		"an empty trait":           {reply: onRoot(func(p provider) { p.Traits = []string{""} }), is: providertree.ErrInvalid, want: root + `trait ""` + trait},
		"a trait that is a prefix": {reply: onRoot(func(p provider) { p.Traits = []string{"CUSTOM_"} }), want: root + "trait CUSTOM_: a custom trait has something behind CUSTOM_"},
		"the agent's trait": {reply: onFresh(func(p provider) { p.Traits = []string{"COMPUTE_STATUS_DISABLED"} }),
			want: fresh + "trait COMPUTE_STATUS_DISABLED is the agent's own, not a driver's to report"},
		"an aggregate that is no uuid": {reply: onRoot(func(p provider) { p.Aggregates = []string{"rack"} }), is: providertree.ErrInvalid, want: root + `aggregate "rack": an aggregate is a uuid`},

		"a unit without a name": {reply: onRoot(func(p provider) { p.Resources = []*driverv1.NamedResource{{ResourceClass: "CUSTOM_A"}} }),
			want: `resource provider "cn1" (` + rootUUID + `): named resource "" of CUSTOM_A must have an identifier of 1 to 255 printable bytes`},
		"a unit twice": {reply: onRoot(func(p provider) {
			p.Resources = []*driverv1.NamedResource{{ResourceClass: "CUSTOM_A", Identifier: "x"}, {ResourceClass: "CUSTOM_B", Identifier: "x"}, {ResourceClass: "CUSTOM_A", Identifier: "x", Metadata: "m"}}
		}), want: `resource provider "cn1" (` + rootUUID + `): named resource "x" of CUSTOM_A is there twice: an identifier is given once`},
		"a unit of no class": {reply: onRoot(func(p provider) { p.Resources = []*driverv1.NamedResource{{ResourceClass: "a", Identifier: "x"}} }), is: wire.ErrMalformed,
			want: root + `named resource "x": its resource class "a" has not 1 to 255 of A-Z, 0-9 and _`},
	} {
		t.Run(name, func(t *testing.T) {
			tree, _, err := checkReply(nodeAndPool(t), "cn1", nil, reply(c.reply...))
			judge(t, err, c.want, c.is)
			if (tree == nil) != (err != nil) {
				t.Error("a tree that was refused came all the same")
			}
		})
	}
}

// judge compares an error with the words that it should have.
func judge(t *testing.T, err error, want string, is error) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v is not %v", err, is)
	}
}

func TestAllocationsAreRefusedInWords(t *testing.T) {
	const consumer = "aaaaaaaa-0000-0000-0000-000000000000"
	has := func(provider, class string, n int64) *driverv1.Allocations {
		return &driverv1.Allocations{Consumers: map[string]*driverv1.ConsumerAllocations{
			consumer: {Resources: map[string]*driverv1.Resources{provider: {Amounts: map[string]int64{class: n}}}}}}
	}
	given := providertree.Allocations{}
	negative := int64(-1)
	const who = "allocations of consumer " + consumer + ": "
	for name, c := range map[string]struct {
		given   providertree.Allocations
		came    *driverv1.Allocations
		renames map[string]string
		want    string
		is      error
	}{
		"none":              {},
		"back":              {given: given, came: &driverv1.Allocations{}},
		"something":         {given: given, came: has(rootUUID, "VCPU", 1)},
		"renames":           {given: given, came: &driverv1.Allocations{}, renames: map[string]string{"CUSTOM_A": "A"}},
		"out of nowhere":    {came: &driverv1.Allocations{}, want: "it holds allocations, though none were given: a driver that must move inventory in use answers ReshapeNeeded"},
		"lost":              {given: given, want: "the allocations that were given are missing in it: give them back, also those that did not move"},
		"renames, no moves": {renames: map[string]string{"CUSTOM_A": "A"}, want: "it renames resource classes, though no allocations were given: renames belong to a reshape"},
		"renames in a chain": {given: given, came: &driverv1.Allocations{}, renames: map[string]string{"A": "B", "B": "C", "D": "D", "e": "F"},
			want: `3 defects: (1) resource class A is renamed to B, which is renamed too: declare what it becomes in the end; (2) resource class D is renamed to itself; ` +
				`(3) resource class "e" is renamed to "F": a class has 1 to 255 of A-Z, 0-9 and _, and something behind CUSTOM_`},
		"of nothing":        {given: given, came: has(rootUUID, "VCPU", 0), is: wire.ErrMalformed, want: who + "0 of VCPU on " + rootUUID + ", must be between 1 and 2147483647; leave out what nothing is held of"},
		"of less":           {given: given, came: has(rootUUID, "VCPU", -1), is: wire.ErrMalformed, want: who + "-1 of VCPU on " + rootUUID + ", must be between 1 and 2147483647; leave out what nothing is held of"},
		"of too much":       {given: given, came: has(rootUUID, "VCPU", math.MaxInt64), is: wire.ErrMalformed, want: who + "9223372036854775807 of VCPU on " + rootUUID + ", must be between 1 and 2147483647; leave out what nothing is held of"},
		"of no class":       {given: given, came: has(rootUUID, "vcpu", 1), is: wire.ErrMalformed, want: who + `resource class "vcpu" on ` + rootUUID + ": a class has 1 to 255 of A-Z, 0-9 and _"},
		"of no provider":    {given: given, came: has("cn1", "VCPU", 1), is: wire.ErrMalformed, want: who + `resource provider "cn1": a provider is a uuid`},
		"of no consumer":    {given: given, came: &driverv1.Allocations{Consumers: map[string]*driverv1.ConsumerAllocations{"web": nil}}, is: wire.ErrMalformed, want: `allocations of consumer "web": a consumer is a uuid`},
		"of one, twice":     {given: given, came: &driverv1.Allocations{Consumers: map[string]*driverv1.ConsumerAllocations{consumer: {}, strings.ToUpper(consumer): {}}}, is: wire.ErrMalformed, want: who + "it is there twice, in another notation: use uuids as they came"},
		"with a generation": {given: given, came: &driverv1.Allocations{Consumers: map[string]*driverv1.ConsumerAllocations{consumer: {Generation: &negative}}}, is: wire.ErrMalformed, want: who + "generation -1: send it back as it came"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := checkReply(nodeAndPool(t), "cn1", c.given, &driverv1.UpdateProviderTreeResponse{
				Tree: wire.FromTree(nodeAndPool(t)), Allocations: c.came, ClassRenames: c.renames})
			judge(t, err, c.want, c.is)
		})
	}
	_, _, err := checkReply(nodeAndPool(t), "cn1", nil, &driverv1.UpdateProviderTreeResponse{})
	judge(t, err, "malformed message: it holds no provider tree", wire.ErrMalformed)
}

// TestManyDefectsAreToldTogether: those of one cause are mended at once, but nobody reads ten thousand.
func TestManyDefectsAreToldTogether(t *testing.T) {
	providers := []*driverv1.ResourceProvider{wireRoot()}
	for i := range 10_000 {
		p := wireProvider(childUUID(i), fmt.Sprint("cn1_", i), rootUUID, -1)
		p.Traits = []string{"lower", strings.Repeat("x", 10_000)}
		providers = append(providers, p)
	}
	_, _, err := checkReply(oneNode(t), "cn1", nil, reply(providers...))
	if err == nil || !strings.HasPrefix(err.Error(), `20 defects, and more that are not shown: (1) resource provider "cn1_0" (c0000000-0000-4000-8000-000000000000): trait "lower": `) ||
		strings.Count(err.Error(), "; (") != maxDefects-1 || len(err.Error()) > 20_000 {
		t.Errorf("%.2000s", err)
	}
}

func reply(providers ...*driverv1.ResourceProvider) *driverv1.UpdateProviderTreeResponse {
	return &driverv1.UpdateProviderTreeResponse{Tree: &driverv1.ProviderTree{Providers: providers}}
}

func TestNodesAreRefusedInWords(t *testing.T) {
	const uuid = "AAAAAAAA-2222-3333-4444-555555555555"
	for _, c := range []struct {
		name  string
		nodes []plugins.Node
		want  string
	}{
		{"none", nil, ""},
		{"one", []plugins.Node{{Name: "a"}}, ""},
		{"uuid is made canonical", []plugins.Node{{Name: "a", UUID: uuid}}, ""},
		{"no name", []plugins.Node{{}}, `node 0 (""): its name has 0 characters, must have 1 to 200`},
		{"unprintable name", []plugins.Node{{Name: "a\u202eb"}}, `node 0 ("a\u202eb"): its name has characters that cannot be printed`},
		{"name twice", []plugins.Node{{Name: "a"}, {Name: "a"}}, `node 1 ("a"): its name is also that of another node; each is listed once`},
		{"uuid twice", []plugins.Node{{Name: "a", UUID: uuid}, {Name: "b", UUID: strings.ToLower(uuid)}}, `node 1 ("b"): its uuid ` + strings.ToLower(uuid) + ` is also that of "a"`},
		{"bad uuids", []plugins.Node{{Name: "a", UUID: "x"}, {Name: "b", UUID: "y"}},
			`2 defects: (1) node 0 ("a"): its uuid "x" is none: leave it empty for the agent's own identity; (2) node 1 ("b"): its uuid "y" is none: leave it empty for the agent's own identity`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkNodes(c.nodes)
			judge(t, err, c.want, nil)
			if err == nil && len(c.nodes) > 0 && c.nodes[0].UUID != strings.ToLower(c.nodes[0].UUID) {
				t.Errorf("uuid %s", c.nodes[0].UUID)
			}
		})
	}
}

func TestInfoIsRefusedInWords(t *testing.T) {
	for _, c := range []struct {
		info *driverv1.InfoResponse
		want string
	}{
		{&driverv1.InfoResponse{Name: "a", Capabilities: []string{"watch", "of_tomorrow-2"}, Version: "\x1b[2J"}, ""},
		{&driverv1.InfoResponse{}, `the driver calls itself "": a name is 1 to 63 lower case letters, digits and hyphens`},
		{&driverv1.InfoResponse{Name: "a", Capabilities: []string{"\x1b[2J", ""}},
			`2 defects: (1) capability "\x1b[2J": has not 1 to 64 lower case letters, digits, underscores and hyphens; (2) capability "": has not 1 to 64 lower case letters, digits, underscores and hyphens`},
	} {
		judge(t, checkInfo(c.info), c.want, nil)
	}
}
