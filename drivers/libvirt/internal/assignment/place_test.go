// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestPlace(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type held = map[string]int64
	type at = map[int]map[string]int64
	capacity := func(vcpu, memory int64) assignment.Capacity {
		classes := map[string]assignment.Space{"VCPU": {Free: vcpu}, "MEMORY_MB": {Free: memory}}
		return assignment.Capacity{0: {Name: "NUMA cell 0", Classes: classes},
			1: {Name: "NUMA cell 1", Classes: classes}}
	}
	atMost := func(most int64, r assignment.Capacity) assignment.Capacity {
		for place, site := range r {
			r[place] = assignment.Site{Name: site.Name,
				Classes: map[string]assignment.Space{"VCPU": {Free: site.Classes["VCPU"].Free, Most: most}}}
		}
		return r
	}
	for name, c := range map[string]struct {
		guests     []assignment.Guest
		capacity   assignment.Capacity
		rule       assignment.Rule
		want       assignment.Shares
		violations []assignment.Violation
	}{
		"equals alternate, the lowest cell first": {
			[]assignment.Guest{{UUID: "b", Amounts: held{"VCPU": 1, "MEMORY_MB": 4}},
				{UUID: "a", Amounts: held{"VCPU": 1, "MEMORY_MB": 4}},
				{UUID: "c", Amounts: held{"VCPU": 1, "MEMORY_MB": 4}}},
			capacity(4, 16), assignment.Whole,
			assignment.Shares{"a": at{0: {"VCPU": 1, "MEMORY_MB": 4}}, "b": at{1: {"VCPU": 1, "MEMORY_MB": 4}},
				"c": at{0: {"VCPU": 1, "MEMORY_MB": 4}}}, nil,
		},
		"what is fixed in no place is not fixed": {
			[]assignment.Guest{
				{UUID: "a", Amounts: held{"VCPU": 4, "MEMORY_MB": 1},
					Fixed: map[string]map[int]int64{"VCPU": {}, "MEMORY_MB": {1: 0}}},
				{UUID: "b", Amounts: held{"VCPU": 1, "MEMORY_MB": 1},
					Fixed: map[string]map[int]int64{"VCPU": {}, "MEMORY_MB": {0: 1}}},
			},
			capacity(8, 16), assignment.Whole,
			assignment.Shares{"a": at{1: {"VCPU": 4, "MEMORY_MB": 1}}, "b": at{0: {"VCPU": 1, "MEMORY_MB": 1}}}, nil,
		},
		"the largest come first": {
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 2}}, {UUID: "b", Amounts: held{"VCPU": 2}},
				{UUID: "c", Amounts: held{"VCPU": 4}}},
			capacity(4, 1), assignment.Whole,
			assignment.Shares{"a": at{1: {"VCPU": 2}}, "b": at{1: {"VCPU": 2}}, "c": at{0: {"VCPU": 4}}}, nil,
		},
		"what is bound comes before, and what is not follows it": {
			[]assignment.Guest{
				{UUID: "a", Amounts: held{"VCPU": 3}},
				{UUID: "b", Amounts: held{"VCPU": 2, "MEMORY_MB": 4},
					Fixed: map[string]map[int]int64{"MEMORY_MB": {0: 4}}},
				{UUID: "c", Amounts: held{"VCPU": 2}, Fixed: map[string]map[int]int64{"VCPU": {0: 1, 1: 1}}},
			},
			capacity(4, 16), assignment.Whole,
			assignment.Shares{"a": at{1: {"VCPU": 3}},
				"b": at{0: {"VCPU": 2, "MEMORY_MB": 4}}, "c": at{0: {"VCPU": 1}, 1: {"VCPU": 1}}}, nil,
		},
		"guests that belong near a place come before large ones": {
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 2}, Near: []int{1}},
				{UUID: "b", Amounts: held{"VCPU": 1}, Near: []int{1}}, {UUID: "c", Amounts: held{"VCPU": 4}}},
			capacity(4, 1), assignment.Whole,
			assignment.Shares{"a": at{1: {"VCPU": 2}}, "b": at{1: {"VCPU": 1}}, "c": at{0: {"VCPU": 4}}}, nil,
		},
		"too large for a cell": {
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 6, "MEMORY_MB": 4}}},
			capacity(4, 16), assignment.Whole, nil,
			[]assignment.Violation{{UUID: "a",
				Reason: "no single place has 4 of MEMORY_MB and 6 of VCPU free, and it must not be divided"}},
		},
		"too large for a cell, and split": {
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 6, "MEMORY_MB": 4}}},
			capacity(4, 16), assignment.Split,
			assignment.Shares{"a": at{0: {"VCPU": 4, "MEMORY_MB": 4}, 1: {"VCPU": 2}}}, nil,
		},
		"too large for the host": {
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 9}}, {UUID: "b", Amounts: held{"VCPU": 8}}},
			capacity(4, 16), assignment.Split,
			assignment.Shares{"b": at{0: {"VCPU": 4}, 1: {"VCPU": 4}}},
			[]assignment.Violation{{UUID: "a", Reason: "all places together have less free than its 9 of VCPU"}},
		},
		"too much for one guest in one place": {
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 6}},
				{UUID: "b", Amounts: held{"VCPU": 5}, Fixed: map[string]map[int]int64{"VCPU": {0: 5}}}},
			atMost(4, capacity(8, 1)), assignment.Split, assignment.Shares{"a": at{0: {"VCPU": 4}, 1: {"VCPU": 2}}},
			[]assignment.Violation{{UUID: "b",
				Reason: "5 of VCPU are bound to NUMA cell 0, which gives one guest at most 4"}},
		},
		"others make way": { // a takes a larger part of the memory and so comes first; b needs all it can have of both
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 3, "MEMORY_MB": 15}},
				{UUID: "b", Amounts: held{"VCPU": 8}}},
			assignment.Capacity{
				0: {Name: "0",
					Classes: map[string]assignment.Space{"VCPU": {Free: 6, Most: 4}, "MEMORY_MB": {Free: 15}}},
				1: {Name: "1", Classes: map[string]assignment.Space{"VCPU": {Free: 5, Most: 4}}},
			}, assignment.Split,
			assignment.Shares{"a": at{0: {"VCPU": 2, "MEMORY_MB": 15}, 1: {"VCPU": 1}},
				"b": at{0: {"VCPU": 4}, 1: {"VCPU": 4}}}, nil,
		},
		"too much already": {
			[]assignment.Guest{{UUID: "a", Amounts: held{"VCPU": 1}}},
			assignment.Capacity{0: {Name: "0", Classes: map[string]assignment.Space{"VCPU": {Free: -3}}},
				1: {Name: "1", Classes: map[string]assignment.Space{"VCPU": {Free: 1}}}},
			assignment.Split, assignment.Shares{"a": at{1: {"VCPU": 1}}}, nil,
		},
		"bound to where nothing is free": {
			[]assignment.Guest{
				{UUID: "a", Amounts: held{"VCPU": 5}, Fixed: map[string]map[int]int64{"VCPU": {0: 5}}},
				{UUID: "b", Amounts: held{"VCPU": 1}, Fixed: map[string]map[int]int64{"VCPU": {1: 1}}},
				{UUID: "c", Amounts: held{"VCPU": 1}, Fixed: map[string]map[int]int64{"VCPU": {0: 2}}},
				{UUID: "d", Amounts: held{"VCPU": 1}}, {UUID: "d", Amounts: held{"VCPU": 2}},
			},
			assignment.Capacity{0: capacity(4, 16)[0], 1: {Name: "NUMA cell 1"}}, assignment.Split, nil,
			[]assignment.Violation{
				{UUID: "a", Reason: "5 of VCPU are bound to NUMA cell 0, which has 4 free"},
				{UUID: "b", Reason: "1 of VCPU are bound to NUMA cell 1, which has 0 free"},
				{UUID: "c", Reason: "2 of VCPU are bound to NUMA cell 0, and it holds 1"},
				{UUID: "d", Reason: "it is there more than once"}, {UUID: "d", Reason: "it is there more than once"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			shares, violations := assignment.Place(c.guests, c.capacity, c.rule)
			testproc.Same(t, cmp.Diff(c.want, shares, cmpopts.EquateEmpty()))
			testproc.Same(t, cmp.Diff(c.violations, violations))
		})
	}
}

func anyGuests(t *rapid.T) ([]assignment.Guest, assignment.Capacity) {
	classes := []string{"VCPU", "PCPU", "MEMORY_MB"}
	capacity := assignment.Capacity{}
	for cell := range rapid.IntRange(1, 4).Draw(t, "cells") {
		site := assignment.Site{Name: fmt.Sprint("NUMA cell ", cell), Classes: map[string]assignment.Space{}}
		for _, class := range classes {
			site.Classes[class] = assignment.Space{Free: rapid.Int64Range(-1, 20).Draw(t, "room"),
				Most: rapid.Int64Range(0, 6).Draw(t, "most")}
		}
		capacity[cell] = site
	}
	var guests []assignment.Guest
	for i := range rapid.IntRange(0, 12).Draw(t, "guests") {
		g := assignment.Guest{UUID: fmt.Sprint("guest", i),
			Amounts: map[string]int64{}, Fixed: map[string]map[int]int64{}}
		for _, class := range classes {
			amount := rapid.Int64Range(0, 8).Draw(t, class)
			if amount == 0 {
				continue
			}
			g.Amounts[class] = amount
			if fixed := rapid.Int64Range(0, amount).Draw(t, "fixed"); fixed > 0 && rapid.Bool().Draw(t, "bound") {
				g.Fixed[class] = map[int]int64{rapid.IntRange(0, len(capacity)-1).Draw(t, "cell"): fixed}
			}
		}
		guests = append(guests, g)
	}
	return guests, capacity
}

func TestPlaceProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		guests, capacity := anyGuests(t)
		rule := rapid.SampledFrom([]assignment.Rule{assignment.Whole, assignment.Split}).Draw(t, "rule")
		shares, violations := assignment.Place(guests, capacity, rule)
		offends := map[string]bool{}
		for _, o := range violations {
			offends[o.UUID] = true
		}

		used := map[int]map[string]int64{}
		for cell := range capacity {
			used[cell] = map[string]int64{}
		}
		for _, g := range guests {
			if _, placed := shares[g.UUID]; placed == offends[g.UUID] {
				t.Fatalf("%s: placed %t, offends %t", g.UUID, placed, offends[g.UUID])
			} else if !placed {
				continue
			}
			sums, loose := map[string]int64{}, map[string]int{}
			for cell, classes := range shares[g.UUID] {
				for class, amount := range classes {
					if amount < max(1, g.Fixed[class][cell]) {
						t.Fatalf("%s: %d of %s in cell %d; fixed are %v", g.UUID, amount, class, cell, g.Fixed)
					}
					if amount > g.Fixed[class][cell] {
						loose[class]++
					}
					if most := capacity[cell].Classes[class].Most; most > 0 && amount > most {
						t.Fatalf("%s: %d of %s in cell %d, and %d can be", g.UUID, amount, class, cell, most)
					}
					sums[class] += amount
					used[cell][class] += amount
				}
			}
			if diff := cmp.Diff(g.Amounts, sums, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: %s", g.UUID, diff)
			}
			for class, cells := range g.Fixed {
				for cell, amount := range cells {
					if shares[g.UUID][cell][class] < amount {
						t.Fatalf("%s: %v is not where %v says", g.UUID, shares[g.UUID], g.Fixed)
					}
				}
			}
			for class, cells := range loose {
				if rule == assignment.Whole && cells > 1 {
					t.Fatalf("%s: %s is split: %v", g.UUID, class, shares[g.UUID])
				}
			}
		}
		for cell, classes := range used {
			for class, amount := range classes {
				if free := capacity[cell].Classes[class].Free; amount > max(free, 0) {
					t.Fatalf("cell %d: %d of %s, and %d are free", cell, amount, class, free)
				}
			}
		}

		shuffled := slices.Clone(guests)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		again, violationsAgain := assignment.Place(shuffled, capacity, rule)
		if diff := cmp.Diff(shares, again) + cmp.Diff(violations, violationsAgain); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestSplitFillsTheHost: if guests that are bound to nothing can be divided so that all fit, none
// is left out. Whether they can be says the theorem of maximum flows and minimum cuts: for no set
// of places may they need more than it has, once they have all that they can elsewhere.
func TestSplitFillsTheHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	full := 0
	rapid.Check(t, func(t *rapid.T) {
		guests, capacity := anyGuests(t)
		for i := range guests {
			guests[i].Fixed = nil
		}
		if rapid.Bool().Draw(t, "plenty") { // so that some guests fit in every run
			for _, site := range capacity {
				for class, space := range site.Classes {
					space.Free += 100
					site.Classes[class] = space
				}
			}
		}
		_, violations := assignment.Place(guests, capacity, assignment.Split)
		fits := true
		for _, class := range []string{"VCPU", "PCPU", "MEMORY_MB"} {
			for set := range 1 << len(capacity) {
				var need, have int64
				for place, site := range capacity {
					if space := site.Classes[class]; set>>place&1 == 1 {
						have += max(space.Free, 0)
					}
				}
				for _, g := range guests {
					var elsewhere int64
					for place, site := range capacity {
						if most := site.Classes[class].Most; set>>place&1 == 0 && most > 0 {
							elsewhere += most
						} else if set>>place&1 == 0 {
							elsewhere = 1 << 40
							break
						}
					}
					need += max(g.Amounts[class]-elsewhere, 0)
				}
				fits = fits && need <= have
			}
		}
		if fits != (len(violations) == 0) {
			t.Fatalf("fits %t: %v", fits, violations)
		}
		if fits && len(guests) > 0 {
			full++
		}
	})
	if full == 0 {
		t.Error("nothing ever fitted")
	}
}

func BenchmarkPlace(b *testing.B) {
	var guests []assignment.Guest
	for i := range 200 {
		guests = append(guests, assignment.Guest{UUID: id(i), Amounts: map[string]int64{"VCPU": 2, "MEMORY_MB": 2048}})
	}
	capacity := assignment.Capacity{}
	for cell := range 8 {
		capacity[cell] = assignment.Site{Classes: map[string]assignment.Space{"VCPU": {Free: 512},
			"MEMORY_MB": {Free: 1 << 20}}}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, violations := assignment.Place(guests, capacity, assignment.Whole); len(violations) > 0 {
			b.Fatal(violations)
		}
	}
}
