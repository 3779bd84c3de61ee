// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/placementtest"
)

// TestExplainAgrees: an explanation counts the candidates and the trees that have some as they are,
// and its steps add up.
func TestExplainAgrees(t *testing.T) {
	g := ground(t)
	rapid.Check(t, func(t *rapid.T) {
		f := placementtest.Forests().Draw(t, "forest")
		r := placementtest.CandidateRequests(true).Draw(t, "request")
		s := plant(t, g, f)
		t.Logf("forest:\n%srequest: %+v", f, r)
		e, err := candidates.Explain(ctx, s, r, candidates.Options{Limit: 10_000})
		if err != nil {
			t.Fatal(err)
		}
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
			if alone, err := placementtest.CandidatesByRoot(s, part(r, i)); err == nil && group.Steps[len(group.Steps)-1].Trees != len(alone) {
				t.Fatalf("%d trees can serve %+v, want %d", group.Steps[len(group.Steps)-1].Trees, group, len(alone))
			}
			before := len(f)
			for _, step := range group.Steps {
				if before -= step.Removed; step.Providers != before || step.Removed < 0 || step.Trees < 0 || (step.Trees == 0) != (step.Providers == 0) {
					t.Fatalf("providers do not add up at %+v", step)
				}
			}
		}
	})
}

// part is the request for number i of the parts that are explained, alone.
func part(r *candidates.Request, i int) *candidates.Request {
	for _, g := range r.Groups {
		if g.Suffix != "" {
			if i == 0 {
				return &candidates.Request{Groups: []candidates.Group{g}}
			}
			i--
			continue
		}
		if i < len(g.Resources) {
			// The traits are those of all providers of the group together.
			g.Resources, g.Required = g.Resources[i:i+1], nil
			return &candidates.Request{Groups: []candidates.Group{g}}
		}
		i -= len(g.Resources)
	}
	panic("there is no such part")
}

// TestVerdicts: the explanations of typical cases.
func TestVerdicts(t *testing.T) {
	host := func(name string, free int64, traits ...string) placementtest.Forest {
		return placementtest.Forest{
			{Name: name, Inventories: []placementtest.Inventory{{Class: "VCPU", Total: 8, MaxUnit: 8, Used: 8 - free}}},
			{Name: name + "_f", Parent: name, Inventories: has(fpga, 2), Traits: traits},
		}
	}
	f := append(append(host("a", 3, "CUSTOM_X"), host("b", 8)...), host("c", 8, "CUSTOM_Y")...)
	f = append(f, placementtest.Provider{Name: "big", Inventories: []placementtest.Inventory{{Class: "VCPU", Total: 8, MaxUnit: 8}}, Traits: []string{"CUSTOM_BIG", "CUSTOM_Z"}})
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
			`No candidates. Each group has providers, but no tree has one for each. The nearest miss: 3 of 4 trees serve all but group _FPGA (FPGA:1). Of these, in 2 (such as c) no provider has trait CUSTOM_X, in 1 (such as big) no provider has an inventory of FPGA.`},
		{"near and far misses", candidates.Request{Groups: []candidates.Group{compute(1), requiring(device(1, "CUSTOM_Y"), "CUSTOM_Z")}},
			"No candidates. Nothing serves group _FPGA (FPGA:1): of 1 provider that meets all before, none has trait CUSTOM_Z."},
		{"misses of two kinds", candidates.Request{Groups: []candidates.Group{device(1), requiring(asks("_BIG", "VCPU", 4), "CUSTOM_BIG")}},
			`No candidates. Each group has providers, but no tree has one for each. The nearest miss: 3 of 4 trees serve all but group _BIG (VCPU:4). Of these, in 2 (such as c) no provider has trait CUSTOM_BIG, in 1 (such as a) no provider has 4 VCPU free.`},
		{"too large", candidates.Request{Groups: []candidates.Group{compute(9)}},
			"No candidates. Nothing serves group _COMPUTE (VCPU:9): of 4 providers that meet all before, none gives 9 VCPU in one piece (max_unit is smaller)."},
		{"no such inventory", candidates.Request{Groups: []candidates.Group{asks("", "VGPU", 1)}},
			"No candidates. Nothing serves the unsuffixed group (VGPU:1): no provider has an inventory of VGPU."},
		{"no such trait", candidates.Request{Groups: []candidates.Group{device(1, "CUSTOM_NOWHERE")}},
			"There is no trait CUSTOM_NOWHERE: GET /allocation_candidates answers 400 if it gets that far. No candidates. Nothing serves group _FPGA (FPGA:1): of 3 providers that meet all before, none has trait CUSTOM_NOWHERE (there is no such trait)."},
		{"root", candidates.Request{Groups: []candidates.Group{compute(1)}, Root: candidates.RootConditions{Required: []string{"CUSTOM_X"}}},
			"No candidates. 4 roots are left, and for none of them the root has trait CUSTOM_X."},
		{"enough for each and not for all", candidates.Request{Groups: []candidates.Group{compute(5), asks("_MORE", "VCPU", 5)}},
			`No candidates. 3 trees have a provider for each group, but none has all at once: "all groups fit at once" stops 3.`},
		{"policy", candidates.Request{Groups: []candidates.Group{device(1), asks("_OTHER", fpga, 1)}, GroupPolicy: candidates.Isolate},
			`No candidates. 3 trees have a provider for each group, but none has all at once: "group_policy=isolate: a provider for each suffixed group" stops 3.`},
		{"subtree", candidates.Request{Groups: []candidates.Group{device(1), asks("_OTHER", fpga, 1), compute(1)}, Isolate: []string{"_FPGA"}},
			`No candidates. 3 trees have a provider for each group, but none has all at once: "isolate=_FPGA: providers of their own" stops 3.`},
		{"flat", candidates.Request{Groups: []candidates.Group{device(1), compute(1)}, Flat: true},
			`No candidates. 3 trees have a provider for each group, but none has all at once: "one provider of each tree, as before microversion 1.29" stops 3.`},
	} {
		t.Run(e.name, func(t *testing.T) {
			got, err := candidates.Explain(ctx, plant(t, ground(t), f), &e.r, candidates.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Verdict != e.want {
				t.Errorf("the verdict is\n%s\nwant\n%s", got.Verdict, e.want)
			}
		})
	}
}

// TestExplainStops: an explanation that takes too many steps says so, and a context that has ended
// ends the work.
func TestExplainStops(t *testing.T) {
	s := plant(t, ground(t), wide(2, 21, 1))
	r := &candidates.Request{Groups: devices(21)}
	e, err := candidates.Explain(ctx, s, r, candidates.Options{Steps: 400})
	if err != nil {
		t.Fatal(err)
	}
	if last := e.Trees[len(e.Trees)-1]; last.Kind != candidates.StepUndecided || last.Removed != 2 {
		t.Errorf("the last step is %+v, want two trees that are undecided", last)
	}
	e, err = candidates.Explain(ctx, s, r, candidates.Options{Steps: 100})
	if err != nil {
		t.Fatal(err)
	}
	if all := e.Trees[0]; !e.Incomplete || all.Trees != 1 || !strings.HasPrefix(e.Verdict, "There are too many trees and conditions: only 1 of 2 trees were evaluated.") {
		t.Errorf("%d trees were looked at, incomplete: %t, verdict: %s", all.Trees, e.Incomplete, e.Verdict)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := candidates.Explain(ended, s, r, candidates.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that of the context", err)
	}
}
