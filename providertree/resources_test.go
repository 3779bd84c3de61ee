// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"errors"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
)

const consumer = "aaaaaaaa-0000-0000-0000-000000000000"

func TestCanonicalAllocations(t *testing.T) {
	t.Parallel()
	negative, first := int64(-1), int64(0)
	on := func(provider, class string, n int64) providertree.Allocations {
		return providertree.Allocations{consumer: {Resources: providertree.ProviderResources{provider: {class: n}}}}
	}
	const who, must = "allocations of consumer " +
		consumer + ": ", ", must be between 1 and 2147483647; leave out classes without an amount"
	for name, c := range map[string]struct {
		given providertree.Allocations
		want  string
	}{
		"none":       {nil, ""},
		"some":       {on(rootUUID, "VCPU", 1), ""},
		"the most":   {on(rootUUID, "VCPU", providertree.MaxUnit), ""},
		"of nothing": {on(rootUUID, "VCPU", 0), who + "0 of VCPU on " + rootUUID + must},
		"of less":    {on(rootUUID, "VCPU", -1), who + "-1 of VCPU on " + rootUUID + must},
		"of too much": {on(rootUUID, "VCPU", math.MaxInt64),
			who + "9223372036854775807 of VCPU on " + rootUUID + must},
		"of no class": {on(rootUUID, "vcpu", 1),
			who + "on " + rootUUID + `: resource class name "vcpu": only A-Z, 0-9 and _ are allowed`},
		"of no provider": {on("cn1", "VCPU", 1), who + `resource provider "cn1" is not a uuid`},
		"of one provider twice": {providertree.Allocations{consumer: {Resources: providertree.ProviderResources{
			poolUUID: {"VCPU": 1}, strings.ReplaceAll(poolUUID, "-", ""): {"VCPU": 1},
		}}},
			who + "resource provider 33333333222233334444555555555555 is a duplicate in another notation: use " +
				"uuids as given"},
		"of no consumer": {providertree.Allocations{"web": {}},
			`allocations of consumer web: consumer "web" is not a uuid`},
		"of one, twice": {providertree.Allocations{consumer: {}, strings.ToUpper(consumer): {}},
			who + "it is a duplicate in another notation: use uuids as given"},
		"the first generation": {providertree.Allocations{consumer: {Generation: &first}}, ""},
		"of a generation": {providertree.Allocations{consumer: {Generation: &negative}},
			who + "its generation is -1: return it unchanged"},
	} {
		t.Run(name, func(t *testing.T) {
			got, found := c.given.Canonical()
			text := ""
			if err := found.Err(); err != nil {
				if text = err.Error(); !errors.Is(err, providertree.ErrInvalid) {
					t.Errorf("%v is not ErrInvalid", err)
				}
			} else if (got == nil) != (c.given == nil) {
				t.Error("no allocations must not become an empty set of them, nor the other way round")
			}
			if text != c.want {
				t.Errorf("got  %s\nwant %s", text, c.want)
			}
		})
	}
	got, found := providertree.Allocations{strings.ToUpper(
		consumer): {Resources: providertree.ProviderResources{strings.ReplaceAll(rootUUID, "-",
		""): {"VCPU": 1}}}}.Canonical()
	if diff := cmp.Diff(on(rootUUID, "VCPU", 1), got); diff != "" || len(found) > 0 {
		t.Errorf("%v %s", found, diff)
	}
}

// TestArithmeticIsCutToAnInt64: sums and what is free are those of numbers without bounds, cut to
// what an int64 holds.
func TestArithmeticIsCutToAnInt64(t *testing.T) {
	t.Parallel()
	cut := func(n *big.Int) int64 {
		switch {
		case n.IsInt64():
			return n.Int64()
		case n.Sign() < 0:
			return math.MinInt64
		}
		return math.MaxInt64
	}
	edges := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
	for _, a := range edges {
		for _, b := range edges {
			sum := providertree.Resources{"VCPU": a}
			sum.Add(providertree.Resources{"VCPU": b, "VGPU": b})
			if want := cut(new(big.Int).Add(big.NewInt(a), big.NewInt(b))); !sum.Equal(
				providertree.Resources{"VCPU": want, "VGPU": b}) {
				t.Errorf("%d and %d are %v, want %d", a, b, sum, want)
			}
			free := providertree.Limits{Capacity: a}.Free(b)
			if want := cut(new(big.Int).Sub(big.NewInt(a), big.NewInt(b))); free != want {
				t.Errorf("%d of %d are used: %d free, want %d", b, a, free, want)
			}
		}
	}
}

func TestProviderResourcesAreValues(t *testing.T) {
	t.Parallel()
	one := providertree.ProviderResources{}
	one.Add("p", "VCPU", 1)
	one.AddAll("q", providertree.Resources{"VCPU": 2, "MEMORY_MB": 3})
	other := one.Clone()
	if !one.Equal(other) || providertree.ProviderResources(nil).Clone() != nil {
		t.Errorf("%v, %v", one, other)
	}
	other.Add("p", "VCPU", 1)
	other.Add("r", "VGPU", 1)
	other.Add("r", "VGPU", -1)
	other.Add("q", "MEMORY_MB", 0)
	if one.Equal(other) || one["p"]["VCPU"] != 1 || len(other) != 2 {
		t.Errorf("a clone shares with its original: %v", one)
	}
	if diff := cmp.Diff(providertree.Resources{"VCPU": 4, "MEMORY_MB": 3}, other.Totals()); diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// TestMisplaced: what a reshape moves is where the driver lists it. What it does not move, and what
// the driver lists of no guest, is not looked at; and a difference that was there before is not the
// reshape's.
func TestMisplaced(t *testing.T) {
	t.Parallel()
	type resources = providertree.ProviderResources
	vgpus := func(root, gpu0, gpu1 int64) resources {
		r := resources{"root": {"VCPU": 2}}
		r.Add("root", "VGPU", root)
		r.Add("gpu0", "VGPU", gpu0)
		r.Add("gpu1", "VGPU", gpu1)
		return r
	}
	for name, c := range map[string]struct {
		before, after, has resources
		want               []providertree.Misplacement
	}{
		"agrees":              {vgpus(1, 0, 0), vgpus(0, 1, 0), vgpus(0, 1, 0), nil},
		"divided, and agrees": {vgpus(3, 0, 0), vgpus(0, 1, 2), vgpus(0, 1, 2), nil},
		"on the other one": {vgpus(1, 0, 0), vgpus(0, 0, 1), vgpus(0, 1, 0),
			[]providertree.Misplacement{{"gpu0", "VGPU", 0, 1}, {"gpu1", "VGPU", 1, 0}}},
		"divided otherwise": {vgpus(3, 0, 0), vgpus(0, 2, 1), vgpus(0, 1, 2),
			[]providertree.Misplacement{{"gpu0", "VGPU", 2, 1}, {"gpu1", "VGPU", 1, 2}}},
		"does not move": {vgpus(0, 0, 1), vgpus(0, 0, 1), vgpus(0, 1, 0), nil},
		"has fewer":     {vgpus(2, 0, 0), vgpus(0, 2, 0), vgpus(0, 1, 0), nil},
		"has fewer, elsewhere": {vgpus(2, 0, 0), vgpus(0, 0, 2), vgpus(0, 1, 0),
			[]providertree.Misplacement{{"gpu0", "VGPU", 0, 1}}},
		"has more": {vgpus(1, 0, 0), vgpus(0, 1, 0), vgpus(0, 2, 0), nil},
		"has more, elsewhere": {vgpus(1, 0, 0), vgpus(0, 0, 1), vgpus(0, 2, 0),
			[]providertree.Misplacement{{"gpu1", "VGPU", 1, 0}}},
		"has none":           {vgpus(1, 0, 0), vgpus(0, 1, 0), vgpus(0, 0, 0), nil},
		"moves off the list": {resources{"root": {"FPGA": 1}}, resources{"gpu0": {"FPGA": 1}}, vgpus(0, 1, 0), nil},
		"of another host":    {resources{"other": {"VGPU": 1}}, resources{"away": {"VGPU": 1}}, vgpus(0, 1, 0), nil},
		"gets another name": {resources{"root": {"CUSTOM_GPU": 1}}, vgpus(0, 0, 1), vgpus(0, 1, 0),
			[]providertree.Misplacement{{"gpu0", "VGPU", 0, 1}, {"gpu1", "VGPU", 1, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			own := func(provider string) bool { return provider != "other" && provider != "away" }
			got := providertree.Misplaced(c.before, c.after, c.has, own, map[string]bool{"VGPU": true, "VCPU": true})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error("(-want +got):\n" + diff)
			}
		})
	}
}
