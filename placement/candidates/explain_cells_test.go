// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const numaRoot = "HW_NUMA_ROOT"

// cell is a NUMA cell with what is free of 8 VCPU and 16384 MEMORY_MB, and devices below it.
func cell(name, host string, vcpu, memory int64, devices ...placementtest.Provider) placementtest.Forest {
	f := placementtest.Forest{{Name: name, Parent: host,
		Traits: []string{numaRoot}, Inventories: []placementtest.Inventory{
			{Class: "VCPU", Total: 8, Used: 8 - vcpu}, {Class: "MEMORY_MB", Total: 16384, Used: 16384 - memory},
		}}}
	for _, d := range devices {
		d.Parent = name
		f = append(f, d)
	}
	return f
}

// TestExplainByCells: which host fails for which NUMA cell, and what that lacks.
func TestExplainByCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	gpu := func(name string, used int64) placementtest.Provider {
		return placementtest.Provider{Name: name,
			Inventories: []placementtest.Inventory{{Class: "VGPU", Total: 2, Used: used}}}
	}
	host := func(name string, disk int64, cells ...placementtest.Forest) placementtest.Forest {
		return append(placementtest.Forest{{Name: name, Inventories: has("DISK_GB", disk)}}, slices.Concat(cells...)...)
	}
	// One cell has the processors, the other one the memory and the device.
	f := host("a", 100, cell("a0", "a", 2, 16384, gpu("a0g", 0)), cell("a1", "a", 8, 4096, gpu("a1g", 2)))
	compute := func(suffix string, vcpu, memory int64) candidates.Group {
		return candidates.Group{Suffix: suffix,
			Resources: []candidates.Resource{{Class: "VCPU", Amount: vcpu}, {Class: "MEMORY_MB", Amount: memory}}}
	}
	free := func(vcpu, memory int64) map[string]int64 { return map[string]int64{"VCPU": vcpu, "MEMORY_MB": memory} }
	with := func(m map[string]int64, class string, n int64) map[string]int64 { m[class] = n; return m }
	lacks := func(pairs ...string) []candidates.CellLack {
		list := []candidates.CellLack{}
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, candidates.CellLack{Suffix: pairs[i], Reason: pairs[i+1]})
		}
		return list
	}
	for _, e := range []struct {
		name string
		f    placementtest.Forest
		r    candidates.Request
		want []candidates.HostExplanation
	}{
		{"no cell has both", f, candidates.Request{Groups: []candidates.Group{compute("_NUMA0", 4, 8192)}},
			[]candidates.HostExplanation{{
				Host: "a", Verdict: "none of its 2 NUMA cells can serve group _NUMA0 (VCPU:4, MEMORY_MB:8192)",
				Cells: []candidates.CellExplanation{
					{Provider: "a0", Free: free(2, 16384), Lacks: lacks("_NUMA0", "2 of 4 VCPU free")},
					{Provider: "a1", Free: free(8, 4096), Lacks: lacks("_NUMA0", "4096 of 8192 MEMORY_MB free")}}}}},
		{"no cell has any of both", f, candidates.Request{Groups: []candidates.Group{compute("_NUMA0", 8, 16384)}},
			[]candidates.HostExplanation{{
				Host: "a", Verdict: "none of its 2 NUMA cells can serve group _NUMA0 (VCPU:8, MEMORY_MB:16384)",
				Cells: []candidates.CellExplanation{
					{Provider: "a0", Free: free(2, 16384), Lacks: lacks("_NUMA0", "2 of 8 VCPU free")},
					{Provider: "a1", Free: free(8, 4096), Lacks: lacks("_NUMA0", "4096 of 16384 MEMORY_MB free")}}}}},
		{"no cell has the device, too", f,
			candidates.Request{Groups: []candidates.Group{compute("_NUMA0", 4, 1024), asks("_GPU", "VGPU", 1)},
				SameSubtree: [][]string{{"_NUMA0", "_GPU"}}}, []candidates.HostExplanation{{
				Host: "a",
				Verdict: "none of its 2 NUMA cells can serve group _NUMA0 (VCPU:4, MEMORY_MB:1024) and group _GPU " +
					"(VGPU:1) together (same_subtree)", Cells: []candidates.CellExplanation{
					{Provider: "a0", Free: with(free(2, 16384), "VGPU", 2), Lacks: lacks("_NUMA0", "2 of 4 VCPU free")},
					{Provider: "a1", Free: with(free(8, 4096), "VGPU", 0),
						Lacks: lacks("_GPU", "a1g has 0 of 1 VGPU free")}}}}},
		{"a cell has both once", f,
			candidates.Request{Groups: []candidates.Group{compute("_NUMA0", 6, 1024), compute("_NUMA1", 6, 1024)}},
			[]candidates.HostExplanation{{
				Host: "a", Verdict: "each group can be served, but not all at once",
				Cells: []candidates.CellExplanation{
					{Provider: "a0", Free: free(2, 16384), Lacks: lacks()},
					{Provider: "a1", Free: free(8, 4096), Lacks: lacks()}}}}},
		{"a trait, and one cell", cell("b0", "", 8, 8),
			candidates.Request{Groups: []candidates.Group{requiring(asks("_A", "VCPU", 1), "CUSTOM_X"),
				asks("_B", "VCPU", 1)}},
			[]candidates.HostExplanation{{Host: "b0", Verdict: "its NUMA cell cannot serve group _A (VCPU:1)",
				Cells: []candidates.CellExplanation{
					{Provider: "b0", Free: map[string]int64{"VCPU": 8},
						Lacks: lacks("_A", "no provider has trait CUSTOM_X (there is no such trait)")}}}}},
		{"one class of the unsuffixed group", f,
			candidates.Request{Groups: []candidates.Group{{Resources: []candidates.Resource{{Class: "VCPU", Amount: 9},
				{Class: "DISK_GB", Amount: 1}}}}},
			[]candidates.HostExplanation{{Host: "a",
				Verdict: "none of its 2 NUMA cells can serve the unsuffixed group (VCPU:9)",
				Cells: []candidates.CellExplanation{
					{Provider: "a0", Free: map[string]int64{"VCPU": 2}, Lacks: lacks("", "2 of 9 VCPU free")},
					{Provider: "a1", Free: map[string]int64{"VCPU": 8}, Lacks: lacks("", "8 of 9 VCPU free")}}}}},
		{"what no cell has", f,
			candidates.Request{Groups: []candidates.Group{asks("", "DISK_GB", 101), compute("_NUMA0", 1, 1)}}, nil},
		{"there are candidates", f, candidates.Request{Groups: []candidates.Group{compute("_NUMA0", 8, 4096)}}, nil},
		{"no cells", nics(), candidates.Request{Groups: []candidates.Group{asks("_A", vf, 5)}}, nil},
	} {
		t.Run(e.name, func(t *testing.T) {
			got := testproc.Try(candidates.Explain(ctx, plant(t, ground(t), e.f), &e.r, candidates.Options{})).Or(t)
			if diff := cmp.Diff(e.want, got.Hosts); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, got.Verdict)
			}
		})
	}
}

// TestNearestHosts: of many hosts, those are explained that lack the least, the first of them, and
// of many cells the first; a host of nothing but cells is left out.
func TestNearestHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var f placementtest.Forest
	for i, lacking := range []int{2, 1, 2, 0, 1, 2, 1} {
		name := fmt.Sprint("h", i)
		vcpu, memory := int64(8), int64(16384)
		if lacking > 0 {
			vcpu = 0
		}
		if lacking > 1 {
			memory = 0
		}
		f = append(append(f, placementtest.Provider{Name: name}), cell(name+"c", name, vcpu, memory)...)
	}
	explain := func(f placementtest.Forest, groups ...candidates.Group) (hosts []string, cells int) {
		e, err := candidates.Explain(ctx, plant(t, ground(t), f),
			&candidates.Request{Groups: groups}, candidates.Options{})
		testproc.Check(t, err)
		for _, h := range e.Hosts {
			hosts = append(hosts, h.Host)
			cells = len(h.Cells)
		}
		return hosts, cells
	}
	// Each of the groups fits h3, and not all of them at once.
	groups := []candidates.Group{asks("_A", "VCPU", 5), asks("_B", "VCPU", 5), asks("_M", "MEMORY_MB", 1)}
	if hosts, _ := explain(f, groups...); !slices.Equal(hosts, []string{"h3", "h1", "h4"}) {
		t.Errorf("the nearest hosts are %q", hosts)
	}
	many := func(n int) placementtest.Forest {
		f := placementtest.Forest{{Name: "h"}}
		for i := range n {
			f = append(f, cell(fmt.Sprint("c", i), "h", 1, 1)...)
		}
		return f
	}
	for n, want := range map[int]int{16: 16, 17: 16, 256: 16, 257: 0} {
		if _, cells := explain(many(n), asks("_A", "VCPU", 2)); cells != want {
			t.Errorf("of %d cells %d are explained, want %d", n, cells, want)
		}
	}
}

// TestCellsAgree: what cells lack is what the exhaustive reference does not find there, and what is
// free is the sum.
func TestCellsAgree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	g := ground(t)
	rapid.Check(t, func(t *rapid.T) {
		f := placementtest.Forests().Draw(t, "forest")
		for i := range f {
			if rapid.IntRange(0, 2).Draw(t, "cell") == 0 {
				f[i].Traits = append(slices.Clone(f[i].Traits), numaRoot)
			}
		}
		r := placementtest.CandidateRequests(true).Draw(t, "request")
		s := plant(t, g, f)
		t.Logf("forest:\n%srequest: %+v", f, r)
		e := testproc.Try(candidates.Explain(ctx, s, r, candidates.Options{})).Or(t)
		t.Logf("hosts: %+v", e.Hosts)
		if e.Candidates > 0 && e.Hosts != nil {
			t.Fatal("there are candidates, and hosts that have none")
		}
		below := func(name, top string) bool { // or the same
			for name != "" && name != top {
				name = f[slices.IndexFunc(f, func(p placementtest.Provider) bool { return p.Name == name })].Parent
			}
			return name == top
		}
		for _, h := range e.Hosts {
			for _, c := range h.Cells {
				if !below(c.Provider, h.Host) {
					t.Fatalf("%s is not of %s", c.Provider, h.Host)
				}
				free := map[string]int64{}
				for p := range s.Providers() {
					for i := range p.Inventories {
						if inv := &p.Inventories[i]; below(p.Name, c.Provider) && asksFor(r, inv.Class) {
							free[inv.Class] += max(inv.Limits().Capacity-s.Used(p, inv.Class), 0)
						}
					}
				}
				if diff := cmp.Diff(free, c.Free); diff != "" {
					t.Fatalf("%s has free (-want +got):\n%s", c.Provider, diff)
				}
				lacking := map[string]bool{}
				for _, l := range c.Lacks {
					lacking[l.Suffix] = true
				}
				for _, group := range r.Groups {
					if group.Suffix == "" || !strings.Contains(h.Verdict, "group "+group.Suffix) {
						continue
					}
					alone, err := placementtest.CandidatesByRoot(s,
						&candidates.Request{Groups: []candidates.Group{group}, Resourceless: r.Resourceless})
					if err != nil {
						continue // a name that does not exist: nothing, or all, meets it
					}
					serves := false
					for key := range alone[h.Host] {
						_, name, _ := strings.Cut(key, " | "+group.Suffix+"=")
						serves = serves || below(name, c.Provider)
					}
					if serves == lacking[group.Suffix] {
						t.Fatalf("%s serves group %s: %t, and lacks something for it: %t",
							c.Provider, group.Suffix, serves, !serves)
					}
				}
				if strings.Contains(h.Verdict, "NUMA cell") == (len(c.Lacks) == 0) {
					t.Fatalf("%q, and %s lacks %+v", h.Verdict, c.Provider, c.Lacks)
				}
			}
		}
	})
}

// asksFor says whether the request has a class.
func asksFor(r *candidates.Request, class string) bool {
	return slices.ContainsFunc(r.Groups, func(g candidates.Group) bool {
		return slices.ContainsFunc(g.Resources, func(a candidates.Resource) bool { return a.Class == class })
	})
}
