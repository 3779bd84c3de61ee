// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestExplainAgrees: an explanation counts the candidates and the trees that have some as they are,
// and its steps add up.
func TestExplainAgrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	g := ground(t)
	rapid.Check(t, func(t *rapid.T) {
		f := placementtest.Forests().Draw(t, "forest")
		r := placementtest.CandidateRequests(true).Draw(t, "request")
		s := plant(t, g, f)
		t.Logf("forest:\n%srequest: %+v", f, r)
		e := testproc.Try(candidates.Explain(ctx, s, r, candidates.Options{Limit: 10_000})).Or(t)
		t.Logf("explanation: %+v", e)
		want, err := placementtest.CandidatesByRoot(s, r)
		if err != nil {
			want = nil // The search refuses a name that does not exist; the explanation says so.
			if e.Candidates > 0 {
				return // The name was one to avoid.
			}
		}
		all := placementtest.CandidateSet{}
		for _, some := range want {
			for key := range some {
				all[key] = true
			}
		}
		last := e.Trees[len(e.Trees)-1]
		if e.Candidates != len(all) || e.MoreCandidates || e.Incomplete || last.Trees != len(want) {
			t.Fatalf("%d candidates in %d trees, want %d in %d", e.Candidates, last.Trees, len(all), len(want))
		}
		if e.Verdict == "" {
			t.Fatal("no verdict")
		}
		before := e.Trees[0].Trees
		for _, step := range e.Trees {
			if before -= step.Removed; step.Trees != before || step.Removed < 0 {
				t.Fatalf("trees do not add up at %+v", step)
			}
		}
		for i, group := range e.Groups {
			if alone, err := placementtest.CandidatesByRoot(s, part(r, i)); err == nil &&
				group.Steps[len(group.Steps)-1].Trees != len(alone) {
				t.Fatalf("%d trees can serve %+v, want %d", group.Steps[len(group.Steps)-1].Trees, group, len(alone))
			}
			before := len(f)
			for _, step := range group.Steps {
				if before -= step.Removed; step.Providers != before || step.Removed < 0 || step.Trees < 0 ||
					(step.Trees == 0) != (step.Providers == 0) {
					t.Fatalf("providers do not add up at %+v", step)
				}
			}
		}
	})
}

// part is the request for number i of the parts that are explained, alone.
func part(r *candidates.Request, i int) *candidates.Request {
	for _, g := range r.Groups {
		if g.Suffix != "" || len(g.Resources) == 0 {
			if i == 0 {
				return &candidates.Request{Groups: []candidates.Group{g}, Resourceless: r.Resourceless}
			}
			i--
			continue
		}
		if i < len(g.Resources) {
			// The traits are those of all providers of the group together.
			g.Resources, g.Required = g.Resources[i:i+1], nil
			return &candidates.Request{Groups: []candidates.Group{g}, Resourceless: r.Resourceless}
		}
		i -= len(g.Resources)
	}
	panic("there is no such part")
}

// TestVerdicts: the explanations of typical cases.
func TestVerdicts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	host := func(name string, free int64, traits ...string) placementtest.Forest {
		return placementtest.Forest{
			{Name: name, Inventories: []placementtest.Inventory{{Class: "VCPU", Total: 8, MaxUnit: 8, Used: 8 - free}}},
			{Name: name + "_f", Parent: name, Inventories: has(fpga, 2), Traits: traits},
		}
	}
	f := append(append(host("a", 3, "CUSTOM_X"), host("b", 8)...), host("c", 8, "CUSTOM_Y")...)
	f = append(f, placementtest.Provider{Name: "big",
		Inventories: []placementtest.Inventory{{Class: "VCPU", Total: 8, MaxUnit: 8}},
		Traits:      []string{"CUSTOM_BIG", "CUSTOM_Z"}})
	compute := func(n int64) candidates.Group { return asks("_COMPUTE", "VCPU", n) }
	device := func(n int64, traits ...string) candidates.Group { return requiring(asks("_FPGA", fpga, n), traits...) }
	for _, e := range []struct {
		name string
		r    candidates.Request
		want string
	}{
		{"all is well", candidates.Request{Groups: []candidates.Group{compute(2)}}, "4 candidates in 4 of 4 trees."},
		{"scarce", candidates.Request{Groups: []candidates.Group{compute(2), device(1, "CUSTOM_Y")}},
			"1 candidate in 1 of 4 trees. The scarcest is group _FPGA (FPGA:1): 1 of 4 trees can serve it."},
		{"not enough is free", candidates.Request{Groups: []candidates.Group{compute(4), device(1, "CUSTOM_X")}},
			`No candidates. Each group has providers, but no tree has one for each. The nearest miss: 3 of 4 trees ` +
				`serve all but group _FPGA (FPGA:1). Of these, in 2 (such as c) no provider has trait CUSTOM_X, in ` +
				`1 (such as big) no provider has an inventory of FPGA.`},
		{"near and far misses",
			candidates.Request{Groups: []candidates.Group{compute(1), requiring(device(1, "CUSTOM_Y"), "CUSTOM_Z")}},
			"No candidates. Nothing serves group _FPGA (FPGA:1): of 1 provider that meets all before, none has " +
				"trait CUSTOM_Z."},
		{"misses of two kinds",
			candidates.Request{Groups: []candidates.Group{device(1), requiring(asks("_BIG", "VCPU", 4), "CUSTOM_BIG")}},
			`No candidates. Each group has providers, but no tree has one for each. The nearest miss: 3 of 4 trees ` +
				`serve all but group _BIG (VCPU:4). Of these, in 2 (such as c) no provider has trait CUSTOM_BIG, in ` +
				`1 (such as a) no provider has 4 VCPU free.`},
		{"too large", candidates.Request{Groups: []candidates.Group{compute(9)}},
			"No candidates. Nothing serves group _COMPUTE (VCPU:9): of 4 providers that meet all before, none gives " +
				"9 VCPU in one piece (max_unit is smaller)."},
		{"no such inventory", candidates.Request{Groups: []candidates.Group{asks("", "VGPU", 1)}},
			"No candidates. Nothing serves the unsuffixed group (VGPU:1): no provider has an inventory of VGPU."},
		{"no such trait", candidates.Request{Groups: []candidates.Group{device(1, "CUSTOM_NOWHERE")}},
			"There is no trait CUSTOM_NOWHERE: GET /allocation_candidates answers 400 if it gets that far. No " +
				"candidates. Nothing serves group _FPGA (FPGA:1): of 3 providers that meet all before, none has " +
				"trait CUSTOM_NOWHERE (there is no such trait)."},
		{"root", candidates.Request{Groups: []candidates.Group{compute(1)},
			Root: candidates.RootConditions{Required: []string{"CUSTOM_X"}}},
			"No candidates. 4 roots are left, and for none of them the root has trait CUSTOM_X."},
		{"enough for each and not for all",
			candidates.Request{Groups: []candidates.Group{compute(5), asks("_MORE", "VCPU", 5)}},
			`No candidates. 3 trees have a provider for each group, but none has all at once: 3 fail the rule "all ` +
				`groups fit at once".`},
		{"policy", candidates.Request{Groups: []candidates.Group{device(1), asks("_OTHER", fpga, 1)},
			GroupPolicy: candidates.Isolate},
			`No candidates. 3 trees have a provider for each group, but none has all at once: 3 fail the rule ` +
				`"group_policy=isolate: a provider for each suffixed group".`},
		{"subtree", candidates.Request{Groups: []candidates.Group{device(1), asks("_OTHER", fpga, 1), compute(1)},
			Isolate: []string{"_FPGA"}},
			`No candidates. 3 trees have a provider for each group, but none has all at once: 3 fail the rule ` +
				`"isolate=_FPGA: providers of their own".`},
		{"a condition on the tree",
			candidates.Request{Resourceless: true,
				Groups: []candidates.Group{requiring(asks("", "", 0), "CUSTOM_X", "CUSTOM_Y"), compute(1)}},
			"No candidates. Nothing serves the unsuffixed group: of 1 provider that meets all before, none has " +
				"trait CUSTOM_Y."},
		{"a condition on the tree, and a group",
			candidates.Request{Resourceless: true,
				Groups: []candidates.Group{requiring(asks("", "", 0), "CUSTOM_X"), compute(4)}},
			"No candidates. Each group has providers, but no tree has one for each. The nearest miss: 3 of 4 trees " +
				"serve all but the unsuffixed group. There (such as in big), no provider has trait CUSTOM_X."},
		{"flat", candidates.Request{Groups: []candidates.Group{device(1), compute(1)}, Flat: true},
			`No candidates. 3 trees have a provider for each group, but none has all at once: 3 fail the rule "one ` +
				`provider of each tree, as before microversion 1.29".`},
	} {
		t.Run(e.name, func(t *testing.T) {
			got := testproc.Try(candidates.Explain(ctx, plant(t, ground(t), f), &e.r, candidates.Options{})).Or(t)
			if got.Verdict != e.want {
				t.Errorf("the verdict is\n%s\nwant\n%s", got.Verdict, e.want)
			}
		})
	}
}

// TestExplainStops: an explanation that takes too many steps says so, and a context that has ended
// ends the work.
func TestExplainStops(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := plant(t, ground(t), wide(2, 21, 1))
	r := &candidates.Request{Groups: devices(21)}
	e := testproc.Try(candidates.Explain(ctx, s, r, candidates.Options{Steps: 400})).Or(t)
	if last := e.Trees[len(e.Trees)-1]; last.Kind != candidates.StepUndecided || last.Removed != 2 {
		t.Errorf("the last step is %+v, want two trees that are undecided", last)
	}
	e = testproc.Try(candidates.Explain(ctx, s, r, candidates.Options{Steps: 100})).Or(t)
	if all := e.Trees[0]; !e.Incomplete || all.Trees != 1 ||
		!strings.HasPrefix(e.Verdict, "There are too many trees and conditions: only 1 of 2 trees were evaluated.") {
		t.Errorf("%d trees were looked at, incomplete: %t, verdict: %s", all.Trees, e.Incomplete, e.Verdict)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	testproc.Try(candidates.Explain(ended, s, r, candidates.Options{})).ErrorIs(t, context.Canceled, "the error is %v")
}

// inLines is an explanation as text.
func inLines(e *candidates.Explanation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%d candidates, more: %t, incomplete: %t\n", e.Verdict, e.Candidates,
		e.MoreCandidates, e.Incomplete)
	for _, g := range e.Groups {
		fmt.Fprintf(&b, "group %q %v\n", g.Suffix, g.Resources)
		for _, s := range g.Steps {
			fmt.Fprintf(&b, "  -%d: %d of %d trees: %s: %s (%s)\n", s.Removed, s.Providers,
				s.Trees, s.Kind, s.Condition, s.Note)
		}
	}
	for _, s := range e.Trees {
		fmt.Fprintf(&b, "-%d: %d: %s: %s\n", s.Removed, s.Trees, s.Kind, s.Condition)
	}
	return b.String()
}

// TestExplanations compares explanations as a whole with testdata/explanations.txt.
func TestExplanations(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := placementtest.Forest{
		{Name: "a", Inventories: has("VCPU", 4), Traits: []string{"CUSTOM_R"}, Aggregates: []string{"aggA"}},
		{Name: "a_f", Parent: "a", Inventories: has(fpga, 1), Traits: []string{"CUSTOM_X"}},
		{Name: "b", Inventories: has("VCPU", 8), Traits: []string{"CUSTOM_R"}, Aggregates: []string{"aggB"}},
		{Name: "b_f", Parent: "b", Inventories: has(fpga, 4), Traits: []string{"CUSTOM_X", "CUSTOM_Y"}},
		{Name: "c", Inventories: []placementtest.Inventory{{Class: "VCPU", Total: 8,
			MinUnit: 4, MaxUnit: 4, StepSize: 2}}},
		{Name: "d", Inventories: []placementtest.Inventory{{Class: "VCPU", Total: 8, Used: 7}},
			Aggregates: []string{"aggC"}},
		{Name: "s", Inventories: has("DISK_GB", 100), Traits: []string{shares}, Aggregates: []string{"aggA", "aggC"}},
	}
	ids := func(names ...string) []string { return placementtest.UUIDs(names) }
	host := asks("", "VCPU", 2)
	host.Required, host.Forbidden = [][]string{{"CUSTOM_R", "CUSTOM_X"}}, []string{"CUSTOM_Y"}
	host.MemberOf, host.NotMemberOf = [][]string{ids("aggA", "aggB"), ids("aggB")}, ids("aggC", "aggD")
	device := requiring(asks("_F", fpga, 1), "CUSTOM_X")
	device.NotMemberOf, device.InTree = ids("aggC"), placementtest.UUID("b")
	disk := candidates.Group{Resources: []candidates.Resource{{Class: "VCPU", Amount: 1},
		{Class: "DISK_GB", Amount: 10}}}
	// Four hosts lack one thing each, and what they have besides is missing where that is there.
	member := func(name string, traits []string,
		aggregates []string, vcpu placementtest.Inventory) placementtest.Forest {
		vcpu.Class = "VCPU"
		return placementtest.Forest{
			{Name: name, Inventories: []placementtest.Inventory{{Class: "MEMORY_MB", Total: 4}}},
			{Name: name + "_c", Parent: name, Inventories: []placementtest.Inventory{vcpu},
				Traits: traits, Aggregates: aggregates},
		}
	}
	fast, rack := []string{"CUSTOM_FAST"}, []string{"aggA"}
	near := slices.Concat(
		member("small", fast, rack, placementtest.Inventory{Total: 8, MaxUnit: 1}),
		member("full", fast, rack, placementtest.Inventory{Total: 8, Used: 7}),
		member("slow", nil, rack, placementtest.Inventory{Total: 8}),
		member("far", fast, nil, placementtest.Inventory{Total: 8}),
		member("good", fast, rack, placementtest.Inventory{Total: 8})[1:])
	near[len(near)-1].Parent = ""
	cpu := requiring(asks("_C", "VCPU", 2), "CUSTOM_FAST")
	cpu.MemberOf = [][]string{ids("aggA")}
	var text strings.Builder
	for _, e := range []struct {
		name  string
		f     placementtest.Forest
		r     candidates.Request
		limit int
	}{
		{"every condition", f, candidates.Request{Groups: []candidates.Group{host, device, asks("_G", fpga, 2)},
			GroupPolicy: candidates.Isolate, Isolate: []string{"_F"}, Flat: true,
			SameSubtree: [][]string{{"_F", "_G"}},
			Root: candidates.RootConditions{Required: []string{"CUSTOM_R"}, Forbidden: []string{"CUSTOM_Y"},
				MemberOf: [][]string{ids("aggA", "aggB")}, NotMemberOf: ids("aggC")}}, 0},
		{"roots outside of an aggregate", f,
			candidates.Request{Groups: []candidates.Group{asks("", "VCPU", 1)},
				Root: candidates.RootConditions{NotMemberOf: ids("aggA")}}, 0},
		{"no condition", f,
			candidates.Request{Groups: []candidates.Group{asks("_A", "VCPU", 1), asks("_B", "VCPU", 1)}}, 0},
		{"what is shared", f, candidates.Request{Groups: []candidates.Group{disk}}, 0},
		{"as many as the limit", f, candidates.Request{Groups: []candidates.Group{asks("", "VCPU", 4)}}, 3},
		{"more than the limit", f, candidates.Request{Groups: []candidates.Group{asks("", "VCPU", 4)}}, 2},
		{"units", f, candidates.Request{Groups: []candidates.Group{asks("", "VCPU", 3)}}, 0},
		{"nothing serves four groups", f,
			candidates.Request{Groups: []candidates.Group{asks("_A", "VCPU", 9), asks("_B", "VGPU", 1),
				requiring(asks("_C", "", 0), "CUSTOM_NONE"), asks("_D", fpga, 5)}}, 0},
		{"the first two are as scarce", f,
			candidates.Request{Groups: []candidates.Group{asks("_A", fpga, 1),
				asks("_B", fpga, 1), asks("_C", "VCPU", 1)}}, 0},
		{"the second is the scarcest", f,
			candidates.Request{Groups: []candidates.Group{asks("_A", "VCPU", 1), asks("_B", fpga, 1)}}, 0},
		{"one lacks the first and one the second", f,
			candidates.Request{Groups: []candidates.Group{asks("_A", fpga, 2), asks("_B", "DISK_GB", 1)},
				Root: candidates.RootConditions{Required: []string{"CUSTOM_R"}}}, 0},
		{"near misses of four kinds", near,
			candidates.Request{Groups: []candidates.Group{asks("_M", "MEMORY_MB", 1), cpu}}, 0},
		{"each tree lacks both", f,
			candidates.Request{Groups: []candidates.Group{asks("_A", fpga, 2), asks("_B", "DISK_GB", 1)},
				Root: candidates.RootConditions{NotMemberOf: ids("aggA", "aggB", "aggC")}}, 0},
	} {
		got, err := candidates.Explain(ctx, plant(t, ground(t), e.f), &e.r, candidates.Options{Limit: e.limit})
		testproc.Check(t, err)
		fmt.Fprintf(&text, "## %s\n%s\n", e.name, inLines(got))
	}
	golden.Text(t, "testdata/explanations.txt", text.String())
}

// TestExplainIsLimited: the conditions and names of a request are counted, and each rule with all
// groups, before any of them is looked at.
func TestExplainIsLimited(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := plant(t, ground(t), nil)
	many := func(n int) []string { return slices.Repeat([]string{"CUSTOM_A"}, n) }
	group := func(suffix string, classes, forbidden, not, required, in int) candidates.Group {
		g := candidates.Group{Suffix: suffix, Forbidden: many(forbidden), NotMemberOf: many(not)}
		for range classes {
			g.Resources = append(g.Resources, candidates.Resource{Class: "VCPU", Amount: 1})
		}
		if required > 0 {
			g.Required, g.MemberOf = [][]string{many(required)}, [][]string{many(in)}
		}
		return g
	}
	small := group("_A", 0, 0, 0, 0, 0)
	for name, c := range map[string]struct {
		r    candidates.Request
		want string // how many there are, if they are too many
	}{
		// 10,000 and 5,000, 1 for the kind, 2 and 34,995 for the two sets, 2 classes.
		"as many as can be": {candidates.Request{Groups: []candidates.Group{group("_A", 2, 10_000,
			5_000, 30_000, 4_995)}}, ""},
		"one more": {candidates.Request{Groups: []candidates.Group{group("_A", 2, 10_000, 5_000, 30_000, 4_996)}},
			"50001"},
		"of each class": {candidates.Request{Groups: []candidates.Group{group("", 2, 10_000, 5_000, 30_000, 4_995)}},
			"99998"},
		"of each rule": {candidates.Request{Groups: slices.Repeat([]candidates.Group{small}, 300),
			SameSubtree: slices.Repeat([][]string{{"_A"}}, 200)}, "60300"},
	} {
		_, err := candidates.Explain(ctx, s, &c.r, candidates.Options{})
		want := "the request has too many conditions to be explained: there are " +
			c.want + ", and at most 50000 can be"
		if c.want == "" && err != nil || c.want != "" &&
			(!errors.Is(err, candidates.ErrTooMuch) || err.Error() != want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestExplainCountsItsWork: eight conditions, or names of them, that a provider is checked for are
// a step, and the work ends with the context.
func TestExplainCountsItsWork(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var f placementtest.Forest
	for i := range 2 {
		f = append(f, wide(1, 3, 0).Copy(fmt.Sprint("x", i))...)
	}
	f = append(f, placementtest.Provider{Name: "z", Traits: append(numbered("CUSTOM_T", 64), "CUSTOM_U")})
	g := asks("_A", "VCPU", 1)
	g.Forbidden, g.NotMemberOf = numbered("CUSTOM_T", 8), placementtest.UUIDs(numbered("a", 16))
	g.Required, g.MemberOf = [][]string{numbered("CUSTOM_T", 24)}, [][]string{placementtest.UUIDs(numbered("a", 40))}
	s := plant(t, ground(t), f)
	// 14 conditions and 88 names, of the four providers of the first tree.
	const each = 4 * (14 + 88) / 8
	for steps, trees := range map[int]int{each: 1, each + 1: 2, 2 * each: 2} {
		e, err := candidates.Explain(ctx, s, &candidates.Request{Groups: []candidates.Group{g}},
			candidates.Options{Steps: steps})
		if err != nil || e.Trees[0].Trees != trees || !e.Incomplete {
			t.Errorf("%d steps: %+v, %v, want %d trees", steps, e, err, trees)
		}
	}
	// What nothing serves is not searched for: the context is asked about at the first tree.
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := candidates.Explain(ended, plant(t, ground(t), wide(1, 0, 0)),
		&candidates.Request{Groups: []candidates.Group{asks("", "VGPU", 1)}},
		candidates.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that of the context", err)
	}
	long, r := crowd(200)
	gone := &leaving{Context: ctx, after: 1}
	if _, err := candidates.Explain(gone, plant(t, ground(t), long), &r, candidates.Options{}); !errors.Is(err,
		context.Canceled) || gone.asked > 6 {
		t.Errorf("no client waits, and the context was asked about %d times: %v", gone.asked, err)
	}
}
