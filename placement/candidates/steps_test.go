// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// numbered are n names.
func numbered(prefix string, n int) []string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint(prefix, i))
	}
	return names
}

// TestConditionsCountAsSteps: eight checked providers, conditions or compared pairs are a step, so
// that a request with thousands of conditions ends when it should.
func TestConditionsCountAsSteps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	// Eight providers, and another tree that has all traits.
	traits := numbered("CUSTOM_T", 200)
	conditions := append(wide(1, 7, 0), placementtest.Provider{Name: "z", Traits: traits})
	conditions[0].Traits, conditions[0].Aggregates = traits[:48], []string{"a0"}
	aggregates := placementtest.UUIDs(numbered("a", 200))
	host := asks("", "VCPU", 1)
	host.Required, host.Forbidden = [][]string{traits[:40]}, traits[100:116]
	host.MemberOf, host.NotMemberOf = [][]string{aggregates[:48]}, aggregates[100:124]
	many := func(n int) candidates.Request {
		var r candidates.Request
		for _, suffix := range numbered("_", n) {
			r.Groups = append(r.Groups, asks(suffix, "VCPU", 1))
		}
		return r
	}
	flat, together := many(64), many(64)
	flat.Flat, together.SameSubtree = true, [][]string{suffixesOf(together.Groups)}
	shared := append(wide(1, 0, 0), placementtest.Provider{Name: "s0"})
	for i := range 8 {
		shared = append(shared, placementtest.Provider{Name: fmt.Sprint("s", i+1), Parent: "s0",
			Inventories: has(fpga, 1), Traits: []string{shares}, Aggregates: []string{"aggA"}})
	}
	shared[0].Aggregates = []string{"aggA"}
	for name, c := range map[string]struct {
		f    placementtest.Forest
		r    candidates.Request
		want int
	}{
		"one placement": {wide(1, 0, 0), candidates.Request{Groups: devicesOf("VCPU", 1)}, 1},
		// (16 + 24 + 40 + 48) / 8 + 1 for each of the eight providers.
		"conditions on providers": {conditions, candidates.Request{Groups: []candidates.Group{host}}, 17 + 1},
		// (8 + 16 + 32 + 64) / 8 for the root, and one for the providers.
		"conditions on roots": {conditions,
			candidates.Request{Groups: devicesOf("VCPU", 1), Root: candidates.RootConditions{
				Required: traits[:8], Forbidden: traits[100:116], NotMemberOf: aggregates[100:132],
				MemberOf: [][]string{aggregates[:64]}}}, 15 + 1 + 1},
		// Each placement is compared with 64 others.
		"one provider of a tree": {wide(1, 0, 0), flat, 64/8 + 64 + 64},
		// With 64 others and itself.
		"same subtree":                       {wide(1, 0, 0), together, 64/8 + 64 + 64},
		"sharing providers of other classes": {shared, candidates.Request{Groups: devicesOf("VCPU", 1)}, 1},
		"sharing providers of the class":     {shared, candidates.Request{Groups: devicesOf(fpga, 1)}, 1 + 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, stats, err := find(t, plant(t, ground(t), c.f), &c.r, candidates.Options{Limit: 1, DepthFirst: true})
			if err != nil || stats.Candidates != 1 || stats.Steps != c.want {
				t.Errorf("%+v, %v, want %d steps", stats, err, c.want)
			}
		})
	}
}

// devicesOf are groups that ask for one of a class each.
func devicesOf(class string, n int) []candidates.Group {
	groups := devices(n)
	for i := range groups {
		groups[i].Resources[0].Class = class
	}
	return groups
}

// TestRoundsOfManyTrees: the candidates of many trees are found by searching each tree again, for
// three rounds, and those of few by keeping the searches.
func TestRoundsOfManyTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for trees, want := range map[int]int{
		64: 64 * (1 + 2 + 4),
		65: 65 * (1 + 3 + 4 + 5 + 5 + 1),
	} {
		_, stats, err := find(t, plant(t, ground(t), wide(trees, 6, 0)),
			&candidates.Request{Groups: devices(1)}, candidates.Options{})
		if err != nil || stats.Candidates != 6*trees || stats.Steps != want {
			t.Errorf("%d trees: %+v, %v, want %d steps", trees, stats, err, want)
		}
	}
}

// TestStepsEnd: a tree that there are no steps left for is not visited, and an unknown name is an
// error where there are none left to find out whether Placement would get there.
func TestStepsEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	g := ground(t)
	// Looking at the eight providers of a host takes the only step.
	stats, err := candidates.Search(ctx, plant(t, g, wide(2, 7, 7)), &candidates.Request{Groups: devices(1)},
		candidates.Options{Steps: 1},
		func(*candidates.Candidate) bool { return true })
	if err != nil || stats.Trees != 1 || !stats.Exhausted || stats.Candidates > 0 {
		t.Errorf("%+v, %v, want an end after the first tree", stats, err)
	}
	s := plant(t, g, wide(1, 1, 1))
	r := &candidates.Request{Groups: append(devicesOf("VCPU", 1), asks("_F", fpga, 1),
		asks("_X", placementtest.UnknownName, 1))}
	// The first group takes one step, and eight for its tree; the second one has no candidate.
	for steps, want := range map[int]error{9: &candidates.UnknownNameError{Class: placementtest.UnknownName,
		Suffix: "_X"}, 10: nil} {
		if _, _, err := find(t, s, r, candidates.Options{Steps: steps}); !sameError(err, want) {
			t.Errorf("%d steps: %v, want %v", steps, err, want)
		}
	}
}

// TestUnknownNames: the texts are Placement's. Where there is no provider at all, the first group
// is looked at.
func TestUnknownNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := plant(t, ground(t), nil)
	for _, c := range []struct {
		r    candidates.Request
		want string
	}{
		{candidates.Request{Groups: []candidates.Group{asks("", placementtest.UnknownName, 1)}},
			"No such resource class CUSTOM_NOWHERE."},
		{candidates.Request{Groups: []candidates.Group{requiring(asks("", "VCPU", 1), placementtest.UnknownName)}},
			"No such trait(s): CUSTOM_NOWHERE."},
		{candidates.Request{Groups: devices(1),
			Root: candidates.RootConditions{Required: []string{placementtest.UnknownName}}},
			"No such trait(s): CUSTOM_NOWHERE."},
	} {
		_, _, err := find(t, s, &c.r, candidates.Options{})
		var unknown *candidates.UnknownNameError
		if !errors.As(err, &unknown) || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	// A tree that does not exist has no way to serve the group before.
	elsewhere := asks("", "", 0)
	elsewhere.InTree = placementtest.UUID("elsewhere")
	r := candidates.Request{Groups: []candidates.Group{elsewhere, asks("1", placementtest.UnknownName, 1)},
		Resourceless: true}
	if _, _, err := find(t, plant(t, ground(t), wide(1, 1, 1)), &r, candidates.Options{}); err != nil {
		t.Errorf("in_tree of nothing before an unknown class: %v", err)
	}
	for _, root := range []candidates.RootConditions{
		{Required: []string{nicRootStandard}}, {Forbidden: []string{nicRootStandard}},
		{MemberOf: [][]string{placementtest.UUIDs([]string{"a"})}}, {NotMemberOf: placementtest.UUIDs([]string{"a"})},
	} {
		r := candidates.Request{Groups: []candidates.Group{asks("", placementtest.UnknownName, 1)}, Root: root}
		if _, _, err := find(t, s, &r, candidates.Options{}); err != nil {
			t.Errorf("no root meets %+v: %v", root, err)
		}
	}
}

// nicRootStandard is a trait that exists from the beginning.
const nicRootStandard = "HW_NIC_SRIOV"

// TestRareConditions: where the rarest condition is that of an eighth of the trees at most, these
// are visited; and alternatives are not rarer than all of them together.
func TestRareConditions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := hosts(16, nil)
	for i := range f {
		switch i {
		case 3, 9:
			f[i].Traits, f[i].Aggregates = []string{"CUSTOM_TWO", "CUSTOM_THREE"}, []string{"aggA"}
		case 12:
			f[i].Traits, f[i].Aggregates = []string{"CUSTOM_ONE", "CUSTOM_THREE"}, []string{"aggB"}
		}
	}
	s := plant(t, ground(t), f)
	a, b := placementtest.UUID("aggA"), placementtest.UUID("aggB")
	group := func(change func(g *candidates.Group)) candidates.Request {
		g := asks("", "VCPU", 1)
		change(&g)
		return candidates.Request{Groups: []candidates.Group{g}}
	}
	root := func(c candidates.RootConditions) candidates.Request {
		return candidates.Request{Groups: []candidates.Group{asks("", "VCPU", 1)}, Root: c}
	}
	for name, c := range map[string]struct {
		r            candidates.Request
		trees, found int
	}{
		"two": {group(
			func(g *candidates.Group) { g.Required = [][]string{{"CUSTOM_TWO"}} }), 2, 2},
		"three": {group(
			func(g *candidates.Group) { g.Required = [][]string{{"CUSTOM_THREE"}} }), 16, 3},
		"the rarer of two": {group(
			func(g *candidates.Group) { g.Required = [][]string{{"CUSTOM_THREE"}, {"CUSTOM_ONE"}} }), 1, 1},
		"one of two": {group(
			func(g *candidates.Group) { g.Required = [][]string{{"CUSTOM_TWO", "CUSTOM_ONE"}} }), 16, 3},
		"an aggregate": {group(func(g *candidates.Group) { g.MemberOf = [][]string{{a}} }), 2, 2},
		"one of two aggregates": {group(func(g *candidates.Group) { g.MemberOf = [][]string{{a, b}} }), 16,
			3},
		"roots of a trait":                {root(candidates.RootConditions{Required: []string{"CUSTOM_TWO"}}), 2, 2},
		"roots of an aggregate":           {root(candidates.RootConditions{MemberOf: [][]string{{a}}}), 2, 2},
		"roots of one of two aggregates":  {root(candidates.RootConditions{MemberOf: [][]string{{a, b}}}), 16, 3},
		"roots of no aggregate of either": {root(candidates.RootConditions{NotMemberOf: []string{a, b}}), 16, 13},
	} {
		checkAgainstReference(t, s, &c.r, 5, 2)
		if _, stats, err := find(t, s, &c.r, candidates.Options{}); err != nil || stats.Trees != c.trees ||
			stats.Candidates != c.found {
			t.Errorf("%s: %+v, %v, want %d candidates of %d trees", name, stats, err, c.found, c.trees)
		}
	}
}

// TestManyRequiredTraits: the providers of the unsuffixed group have many traits together.
func TestManyRequiredTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, n := range []int{63, 64, 65, 128, 129} {
		traits := numbered("CUSTOM_T", n)
		// Each provider lacks some of them.
		lacks := [][]int{{0}, {n - 1}, {62}, {0, n - 1}, {n / 2, n - 1}, {}}
		f := placementtest.Forest{{Name: "h"}}
		for i, some := range lacks {
			p := placementtest.Provider{Name: fmt.Sprint("p", i), Parent: "h",
				Inventories: slices.Concat(has("VCPU", 4), has("MEMORY_MB", 4), has(vf, 4))}
			for j, trait := range traits {
				if !slices.Contains(some, j) {
					p.Traits = append(p.Traits, trait)
				}
			}
			f = append(f, p)
		}
		g := requiring(asks("", "VCPU", 1), traits...)
		g.Resources = append(g.Resources, candidates.Resource{Class: "MEMORY_MB", Amount: 1},
			candidates.Resource{Class: vf, Amount: 1})
		s := plant(t, ground(t), f)
		checkAgainstReference(t, s, &candidates.Request{Groups: []candidates.Group{g}}, 3, 5)
		checkAgainstReference(t, s, &candidates.Request{Groups: []candidates.Group{asks("_A", "VCPU", 1), g}}, 3, 5)
	}
}
