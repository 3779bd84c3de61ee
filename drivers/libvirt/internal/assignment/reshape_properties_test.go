// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// anyInventory is one of any bounds.
func anyInventory(t *rapid.T) providertree.Inventory {
	total := rapid.Int64Range(1, 16).Draw(t, "total")
	inv := providertree.Inventory{
		Total: total, Reserved: rapid.Int64Range(0, total).Draw(t, "reserved"),
		AllocationRatio: rapid.SampledFrom([]float64{1, 1, 1.5, 4}).Draw(t, "ratio"),
		MaxUnit:         rapid.Int64Range(1, total).Draw(t, "max_unit"),
	}
	if rapid.IntRange(0, 9).Draw(t, "odd units") == 0 {
		inv.StepSize, inv.MinUnit = rapid.Int64Range(1, 3).Draw(t, "step_size"),
			rapid.Int64Range(1, inv.MaxUnit).Draw(t, "min_unit")
	}
	return inv
}

// anyLayout has every class on the root, on some cells, or on none; and some devices, of any class.
func anyLayout(t *rapid.T, r *assignment.Reshape) layout {
	s := layout{}
	put := func(provider, class string) {
		if s[provider] == nil {
			s[provider] = map[string]providertree.Inventory{}
		}
		s[provider][class] = anyInventory(t)
	}
	for _, class := range []string{"VCPU", "PCPU", "MEMORY_MB", "CUSTOM_PAGES_2M", "CUSTOM_OTHER"} {
		switch rapid.SampledFrom([]string{"root", "cells", "cells", "all", "none"}).Draw(t, class) {
		case "root":
			put(root, class)
		case "cells":
			put(cell0, class)
			if rapid.Bool().Draw(t, "both") {
				put(cell1, class)
			}
		case "all":
			put(root, class)
			put(cell0, class)
			put(cell1, class)
		}
	}
	for _, provider := range []string{gpu0, gpu1, nic0, sev, snp} {
		if rapid.IntRange(0, 3).Draw(t, "is there") == 0 {
			continue
		}
		is := r.Providers[provider]
		if provider == gpu0 || provider == gpu1 || provider == nic0 {
			is.Class = rapid.SampledFrom([]string{"VGPU", "CUSTOM_BIG", "CUSTOM_NIC"}).Draw(t, "class")
			r.Providers[provider] = is
		}
		put(provider, is.Class)
	}
	return s
}

// anyDomain is bound to anything, or to nothing.
func anyDomain(t *rapid.T, uuid string) domain.Domain {
	d := domain.Domain{
		UUID: uuid, VCPUs: rapid.IntRange(0, 6).Draw(t, "vcpus"),
		MemoryKiB: rapid.Uint64Range(0, 8<<10).Draw(t, "memory"),
		Security: rapid.SampledFrom([]domain.Security{"", domain.SEV, domain.SEVSNP, domain.SEVES}).
			Draw(t, "security"),
	}
	cpus := rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 1, 3, rapid.ID)
	if rapid.Bool().Draw(t, "pinned") {
		for range d.VCPUs {
			d.Pins = append(d.Pins, cpus.Draw(t, "pin")[:1])
		}
	} else if rapid.Bool().Draw(t, "cpuset") {
		d.CPUSet = cpus.Draw(t, "cpuset")
	}
	if rapid.Bool().Draw(t, "numatune") {
		d.Memory = domain.NUMATune{Mode: "strict",
			Nodes: rapid.SliceOfNDistinct(rapid.IntRange(0, 2), 1, 2, rapid.ID).Draw(t, "nodes")}
	}
	d.Mdevs = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{id(0x101), id(0x102), id(0x201), id(0x202), id(0x999)}),
		0, 3, rapid.ID).Draw(t, "mdevs")
	if rapid.Bool().Draw(t, "nic") {
		d.PCI = managed(machine.Address{Bus: nic(0).Bus, Function: 2})
	}
	return d
}

func anyReshape(t *rapid.T) assignment.Reshape {
	r := assignment.Reshape{
		Machine: host(2, 4), Providers: providers(), Pages: map[string]uint64{"CUSTOM_PAGES_2M": 2048},
		Dedicated: rapid.SliceOfNDistinct(rapid.IntRange(0, 20), 0, 8, rapid.ID).Draw(t, "dedicated"),
		Rule:      rapid.SampledFrom([]assignment.Rule{assignment.Split, assignment.Whole}).Draw(t, "rule"),
		Guess:     rapid.Bool().Draw(t, "guess"),
	}
	r.Tree = anyLayout(t, &r).tree(t)
	places := []plugins.Place{
		{Provider: root, Class: "VCPU"}, {Provider: root, Class: "VCPU"}, {Provider: root, Class: "PCPU"},
		{Provider: root, Class: "MEMORY_MB"},
		{Provider: root, Class: "MEMORY_MB"}, {Provider: root, Class: "VGPU"}, {Provider: root, Class: "VGPU"},
		{Provider: root, Class: "CUSTOM_BIG"},
		{Provider: root, Class: "CUSTOM_OTHER"}, {Provider: root, Class: "CUSTOM_PAGES_2M"},
		{Provider: root, Class: "MEM_ENCRYPTION_CONTEXT"},
		{Provider: cell0, Class: "VCPU"}, {Provider: cell1, Class: "VCPU"}, {Provider: cell0, Class: "PCPU"},
		{Provider: cell1, Class: "MEMORY_MB"},
		{Provider: gpu0, Class: "VGPU"}, {Provider: gpu1, Class: "CUSTOM_BIG"},
		{Provider: nic0, Class: "CUSTOM_PCI_OLD"}, {Provider: nic0, Class: "CUSTOM_NIC"},
		{Provider: abroad, Class: "VGPU"}, {Provider: abroad, Class: "VCPU"}, {Provider: id(0xee), Class: "MEMORY_MB"},
	}
	held := holdings{}
	for n := range rapid.IntRange(0, 6).Draw(t, "consumers") {
		consumer := id(n + 1)
		held[consumer] = allocations{}
		for _, at := range rapid.SliceOfN(rapid.SampledFrom(places), 1, 5).Draw(t, "holds") {
			if held[consumer][at.Provider] == nil {
				held[consumer][at.Provider] = map[string]int64{}
			}
			held[consumer][at.Provider][at.Class] = rapid.Int64Range(1, 6).Draw(t, "amount")
		}
		if rapid.IntRange(0, 4).Draw(t, "domain") > 0 {
			r.Domains = append(r.Domains, anyDomain(t, consumer))
		}
	}
	r.Allocations = held.allocations()
	return r
}

// TestReshapeProperties: for any host, layout and guests: nothing is lost and nothing invented, no
// place has more allocations than capacity, what is not the driver's is not touched, what should
// move and does not has a reason, and a second run has nothing to do.
func TestReshapeProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moved, clean := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		r := anyReshape(t)
		plan := r.Plan()
		after := testproc.Try(plan.Moves.Apply(r.Allocations)).Or(t)
		testproc.Check(t, plan.Renames.Validate())
		moved += len(plan.Moves)
		if len(plan.Moves) > 0 && len(plan.Violations) == 0 {
			clean++
		}
		offends := map[plugins.Violation]bool{}
		for _, o := range plan.Violations {
			if o.Problem == "" {
				t.Fatalf("%v has no reason", o)
			}
			o.Problem = ""
			offends[o] = true
		}
		for consumer, before := range r.Allocations {
			is := after[consumer]
			if diff := cmp.Diff(plan.Renames.Totals(before.Totals()), plan.Renames.Totals(is.Totals())); diff != "" {
				t.Fatalf("%s: %s", consumer, diff)
			}
			for class, n := range is.Totals() {
				if plan.Renames.Present(class) != class && n > before.Totals()[class] {
					t.Fatalf("%s has more of %s, which is called %s now", consumer, class, plan.Renames[class])
				}
			}
			for provider, amounts := range is.Resources {
				ours := provider != abroad && provider != id(0xee)
				if !ours && cmp.Diff(before.Resources[provider], amounts) != "" {
					t.Fatalf("%s holds something else of another owner's", consumer)
				}
				for class, n := range amounts {
					inv, there := r.Tree.Inventory(provider, class)
					if ours && !there &&
						!offends[plugins.Violation{Consumer: consumer, Provider: provider, Class: class}] {
						t.Fatalf("%s still holds %s of %s, without a discrepancy: %v",
							consumer, class, provider, plan.Violations)
					}
					grown := n - before.Resources[provider][class]
					if i := inv.Normalize(); grown > 0 &&
						(!there || n < i.MinUnit || n > i.MaxUnit || n%i.StepSize != 0) {
						t.Fatalf("%s holds %d of %s of %s, allowed are %+v", consumer, n, class, provider, i)
					}
				}
			}
		}
		for provider := range r.Tree.All() {
			was, is := r.Allocations.Used(provider.UUID), after.Used(provider.UUID)
			for class, inv := range provider.Inventories {
				if is[class] > was[class] && is[class] > inv.Capacity() {
					t.Fatalf("%d of %s of %s, and its capacity is %d", is[class], class, provider.Name, inv.Capacity())
				}
			}
		}

		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		shuffled := r
		shuffled.Domains, shuffled.Dedicated = mixed(random, r.Domains), mixed(random, r.Dedicated)
		shuffled.Machine.Parents = mixed(random, r.Machine.Parents)
		if diff := cmp.Diff(plan, shuffled.Plan()); diff != "" {
			t.Fatalf("the order decides: %s", diff)
		}
		if len(plan.Violations) == 0 {
			r.Allocations = after
			if again := r.Plan(); len(again.Moves)+len(again.Violations) > 0 {
				t.Fatalf("once more: %v, %v", again.Moves, again.Violations)
			}
		}
	})
	t.Logf("%d moves, and %d reshapes without violations", moved, clean)
	if !testing.Short() && (moved == 0 || clean == 0) {
		t.Error("too little ever moved")
	}
}

// TestThereAndBack: to NUMA cells and back: each guest holds what it held before, whatever it is
// bound to.
func TestThereAndBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moved := 0
	rapid.Check(t, func(t *rapid.T) {
		all := map[string]providertree.Inventory{"VCPU": of(64), "PCPU": of(64), "MEMORY_MB": of(64)}
		r := assignment.Reshape{Machine: host(2, 4),
			Providers: providers(), Tree: layout{cell0: all, cell1: all}.tree(t)}
		held := holdings{}
		for n := range rapid.IntRange(0, 8).Draw(t, "guests") {
			held[id(n+1)] = allocations{root: rapid.MapOfN(rapid.SampledFrom([]string{"VCPU", "PCPU", "MEMORY_MB"}),
				rapid.Int64Range(1, 8), 1, 3).Draw(t, "holds")}
			r.Domains = append(r.Domains, anyDomain(t, id(n+1)))
			for i := range r.Domains[n].Memory.Nodes { // the host has two cells
				r.Domains[n].Memory.Nodes[i] %= 2
			}
		}
		r.Allocations = held.allocations()
		plan := r.Plan()
		after, err := plan.Moves.Apply(r.Allocations)
		if err != nil || len(plan.Violations) > 0 {
			t.Fatal(err, plan.Violations)
		}
		moved += len(plan.Moves)
		for consumer := range after {
			if slices.Contains(slices.Collect(maps.Keys(after[consumer].Resources)), root) {
				t.Fatalf("%s still holds something of the root", consumer)
			}
		}
		r.Allocations, r.Tree = after, layout{root: all}.tree(t)
		plan = r.Plan()
		back, err := plan.Moves.Apply(after)
		if diff := cmp.Diff(held.allocations(), back, cmpopts.EquateEmpty()); err != nil ||
			len(plan.Violations) > 0 || diff != "" {
			t.Fatal(err, plan.Violations, diff)
		}
	})
	if moved == 0 {
		t.Error("nothing ever moved")
	}
}

func BenchmarkReshape(b *testing.B) {
	all := map[string]providertree.Inventory{"VCPU": of(1024), "MEMORY_MB": of(1 << 20)}
	r := assignment.Reshape{Machine: host(2, 64), Providers: providers(),
		Tree: layout{cell0: all, cell1: all, gpu0: {"VGPU": of(200)}, gpu1: {"VGPU": of(200)}}.tree(b)}
	held := holdings{}
	for n := range 200 {
		held[id(n+0x1000)] = allocations{root: {"VCPU": 2, "MEMORY_MB": 1024, "VGPU": 1}}
		r.Domains = append(r.Domains, gpus(pinned(id(n+0x1000), []int{n % 2}, n%256), id(0x101)))
	}
	r.Allocations = held.allocations()
	b.ReportAllocs()
	for b.Loop() {
		if plan := r.Plan(); len(plan.Violations) > 0 {
			b.Fatal(plan.Violations)
		}
	}
}
