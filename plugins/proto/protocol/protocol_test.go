// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const someUUID = "11111111-2222-3333-4444-555555555555"

// anyTree draws a tree of a few providers with something of everything.
func anyTree(t *rapid.T) *providertree.Tree {
	tree := &providertree.Tree{}
	symbol := rapid.StringMatching(`(CUSTOM_)?[A-Z0-9_]{1,10}`)
	uuid := rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	for i := range rapid.IntRange(0, 12).Draw(t, "providers") {
		id, err := providertree.ChildUUID(someUUID, fmt.Sprint(i))
		testproc.Check(t, err)
		name := fmt.Sprint(i, rapid.StringN(0, 20, -1).Draw(t, "name"))
		if known := tree.UUIDs(); len(known) > 0 && rapid.Bool().Draw(t, "child") {
			err = tree.AddChild(rapid.SampledFrom(known).Draw(t, "parent"), id, name)
		} else {
			err = tree.AddRoot(id, name)
		}
		testproc.Check(t, err)
		if rapid.Bool().Draw(t, "known to Placement") {
			must(t, tree.SetGeneration(id, rapid.Int64Range(0, 1<<40).Draw(t, "generation")))
		}
		for range rapid.IntRange(0, 3).Draw(t, "classes") {
			total := rapid.Int64Range(1, providertree.MaxUnit).Draw(t, "total")
			testproc.Try(tree.SetInventory(id, symbol.Draw(t, "class"), providertree.Inventory{
				Total: total, Reserved: rapid.Int64Range(0, total).Draw(t, "reserved"),
				MinUnit: rapid.Int64Range(0, 10).Draw(t, "min"), MaxUnit: rapid.Int64Range(0, 10).Draw(t, "max"),
				StepSize:        rapid.Int64Range(0, 10).Draw(t, "step"),
				AllocationRatio: rapid.Float64Range(0, 16).Draw(t, "ratio"),
			})).Or(t)
		}
		testproc.Try(tree.SetTraits(id, rapid.SliceOfN(symbol, 0, 4).Draw(t, "traits"))).Or(t)
		testproc.Try(tree.SetAggregates(id, rapid.SliceOfN(uuid, 0, 3).Draw(t, "aggregates"))).Or(t)
		resources := map[string][]providertree.Resource{}
		for range rapid.IntRange(0, 3).Draw(t, "named") {
			class := symbol.Draw(t, "class of a named resource")
			resources[class] = append(resources[class],
				providertree.Resource{Identifier: rapid.String().Draw(t, "id"),
					Metadata: rapid.String().Draw(t, "meta")})
		}
		testproc.Try(tree.SetResources(id, resources)).Or(t)
	}
	return tree
}

var must = testproc.Check

// overTheWire encodes and decodes a message, as the connection does.
func overTheWire[M proto.Message](t *rapid.T, in, out M) M {
	raw := testproc.Try(proto.Marshal(in)).Or(t)
	must(t, proto.Unmarshal(raw, out))
	return out
}

func TestTreeComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree := anyTree(t)
		got := testproc.Try(ToTree(overTheWire(t, FromTree(tree), &driverv1.ProviderTree{}))).Or(t)
		if diff := cmp.Diff(list(tree), list(got)); diff != "" { // in order, with generations
			t.Fatal(diff)
		}
	})
}

// record is a provider without its methods: cmp would take its Equal, which leaves out generations.
type record struct {
	Provider    plain
	Inventories map[string]numbers
}

type (
	plain   providertree.Provider
	numbers providertree.Inventory
)

func list(tree *providertree.Tree) []record {
	var out []record
	for p := range tree.All() {
		r := record{Provider: plain(p), Inventories: map[string]numbers{}}
		for class, inv := range p.Inventories {
			r.Inventories[class] = numbers(inv)
		}
		r.Provider.Inventories = nil
		out = append(out, r)
	}
	return out
}

func TestAllocationsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := providertree.Allocations{}
		for i := range rapid.IntRange(0, 5).Draw(t, "consumers") {
			id, _ := providertree.ChildUUID(someUUID, fmt.Sprint(i))
			c := providertree.ConsumerAllocations{
				Resources: providertree.ProviderResources{}, ProjectID: rapid.String().Draw(t, "project"),
				UserID:       rapid.String().Draw(t, "user"),
				ConsumerType: rapid.SampledFrom([]string{"", "INSTANCE"}).Draw(t, "type"),
			}
			if rapid.Bool().Draw(t, "known") {
				g := rapid.Int64Range(0, 1<<40).Draw(t, "generation")
				c.Generation = &g
			}
			for j := range rapid.IntRange(0, 3).Draw(t, "on") {
				provider, _ := providertree.ChildUUID(someUUID, fmt.Sprint("p", j))
				c.Resources[provider] = rapid.MapOfN(rapid.StringMatching(`[A-Z_]{1,8}`),
					rapid.Int64Range(1, providertree.MaxUnit), 0, 3).Draw(t, "amounts")
			}
			in[id] = c
		}
		got := testproc.Try(ToAllocations(overTheWire(t, FromAllocations(in), &driverv1.Allocations{}))).Or(t)
		if diff := cmp.Diff(in, got); diff != "" {
			t.Fatal(diff)
		}
	})
	if got, err := ToAllocations(FromAllocations(nil)); got != nil || err != nil {
		t.Error("no allocations must not become an empty set of them")
	}
	if got, err := ToAllocations(FromAllocations(providertree.Allocations{})); got == nil || err != nil {
		t.Error("an empty set of allocations must not become none")
	}
}

func TestMalformedAllocationsAreRefused(t *testing.T) {
	minus := int64(-1)
	on := func(provider, class string, n int64) *driverv1.ConsumerAllocations {
		return &driverv1.ConsumerAllocations{Resources: map[string]*driverv1.Resources{
			provider: {Amounts: map[string]int64{class: n}},
		}}
	}
	for name, m := range map[string]map[string]*driverv1.ConsumerAllocations{
		"consumer":   {"x": on(someUUID, "VCPU", 1)},
		"provider":   {someUUID: on("x", "VCPU", 1)},
		"class":      {someUUID: on(someUUID, "vcpu", 1)},
		"zero":       {someUUID: on(someUUID, "VCPU", 0)},
		"too much":   {someUUID: on(someUUID, "VCPU", 1<<31)},
		"generation": {someUUID: {Generation: &minus}},
		"consumer given twice": {someUUID: on(someUUID, "VCPU", 1),
			strings.ReplaceAll(someUUID, "-", ""): on(someUUID, "VCPU", 1)},
	} {
		if _, err := ToAllocations(&driverv1.Allocations{Consumers: m}); !errors.Is(err, providertree.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFailuresComeBackAsTheyWere(t *testing.T) {
	for _, f := range []Failure{
		{Kind: KindReshapeNeeded, Words: "why", Message: "around: why"},
		{Kind: KindConfigError, Words: "why", Key: "a",
			More: []KeyProblem{{"b[0]", "x"}, {Problem: "y"}}, Message: "m"},
		{Kind: KindReshapeFailed, Words: "why", Hint: "w",
			Violations: []Violation{{"c", "p", "VGPU", "x", "z"}, {Problem: "y"}}, Message: "m"},
		{Kind: KindNotReady, Message: "m"},
		{Kind: KindConfigError, Key: "a.b", Words: "w", Message: "m"},
		{Kind: KindUnsupported, Message: "m"},
		{Kind: KindInstanceNotFound, UUID: someUUID, Message: "m"},
		{Kind: KindInstanceFault, UUID: someUUID, Words: "w", Message: "around: w"},
		{Message: "only words"},
	} {
		testproc.Same(t, cmp.Diff(f, FailureOf(f.Err())))
	}
	if got := FailureOf(errors.New("plain")); got.Kind != KindOther || got.Message != "plain" {
		t.Errorf("a plain error: %+v", got)
	}
}

func TestFailuresAreBounded(t *testing.T) {
	f := Failure{Kind: KindReshapeFailed, Words: strings.Repeat("w", 1<<20) + "\xff",
		Message: strings.Repeat("m", 1<<20)}
	for range 10_000 {
		f.Violations = append(f.Violations, Violation{Problem: strings.Repeat("\xff", 10_000)})
	}
	st, _ := status.FromError(f.Err())
	if n := proto.Size(st.Proto()); n > 1<<20 {
		t.Errorf("%d bytes", n)
	}
	got := FailureOf(f.Err())
	if got.Kind != KindReshapeFailed || len(got.Violations) != maxViolations+1 ||
		got.Violations[maxViolations].Problem != "and 9500 more" {
		t.Errorf("kind %v, %d violations, last %q",
			got.Kind, len(got.Violations), got.Violations[len(got.Violations)-1].Problem)
	}
}

// FuzzToTree: whatever bytes come, there is an error or a tree that obeys its own rules.
func FuzzToTree(f *testing.F) {
	minus := int64(-5)
	for _, seed := range []*driverv1.ProviderTree{
		{},
		{Providers: []*driverv1.ResourceProvider{{}}},
		{Providers: []*driverv1.ResourceProvider{{Uuid: someUUID, Name: "a", Generation: &minus}}},
		{Providers: []*driverv1.ResourceProvider{{Uuid: someUUID, Name: "a", ParentUuid: someUUID}}},
		{Providers: []*driverv1.ResourceProvider{
			{Uuid: someUUID, Name: "a",
				Inventories: map[string]*driverv1.Inventory{"VCPU": {Total: 1, AllocationRatio: 1}, "X": nil},
				Traits:      []string{"T", "T"}, Aggregates: []string{someUUID},
				Resources: []*driverv1.NamedResource{{ResourceClass: "X", Identifier: "i"}}},
		}},
	} {
		raw := testproc.Try(proto.Marshal(seed)).Or(f)
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		msg := &driverv1.ProviderTree{}
		if proto.Unmarshal(raw, msg) != nil {
			return
		}
		tree, err := ToTree(msg)
		if err != nil {
			if tree != nil {
				t.Fatal("a tree with an error")
			}
			return
		}
		if tree.Len() != len(msg.GetProviders()) || len(tree.UUIDs()) != tree.Len() {
			t.Fatalf("%d providers in, %d out, %d reachable", len(msg.GetProviders()), tree.Len(), len(tree.UUIDs()))
		}
		again, err := ToTree(FromTree(tree))
		if err != nil || !again.Equal(tree) {
			t.Fatalf("it does not survive its own encoding: %v", err)
		}
	})
}
