// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// everyPlace is where consumers of the property tests hold something.
var everyPlace = []plugins.Place{
	at(moveRoot, "VCPU"), at(moveRoot, "VCPU"), at(moveRoot, "MEMORY_MB"), at(moveRoot, "MEMORY_MB"),
	at(moveRoot, "PCPU"), at(moveRoot, "CUSTOM_HUGEPAGES_2M"), at(moveRoot, "VGPU"), at(moveRoot, "VGPU"),
	at(moveRoot, "CUSTOM_BIG"), at(moveRoot, "MEM_ENCRYPTION_CONTEXT"), at(moveRoot, "DISK_GB"), at(cell(0), "VCPU"),
	at(cell(1), "VCPU"), at(cell(0), "MEMORY_MB"),
	at(cell(1), "CUSTOM_HUGEPAGES_2M"), at(gpuProvider(0), "VGPU"), at(gpuProvider(1), "CUSTOM_BIG"),
	at(nicProvider, "CUSTOM_PCI_A"), at(sevProvider, "MEM_ENCRYPTION_CONTEXT"), at(shared, "DISK_GB"),
	at(otherHost, "VGPU"), at(otherHost, "VCPU"), at(unmanaged, "CUSTOM_BIG"),
	at(unmanaged, "VCPU"), at(moveID(0xc99), "VCPU"),
}

func anyTotals(t *rapid.T) totals {
	s := totals{moveRoot: {}, shared: {}, nicProvider: {}, unmanaged: {"CUSTOM_BIG": 3}}
	put := func(provider, class string) {
		if s[provider] == nil {
			s[provider] = map[string]int64{}
		}
		s[provider][class] = rapid.Int64Range(1, 20).Draw(t, "total")
	}
	for _, class := range computing {
		where := rapid.SampledFrom([]string{"root", "cells", "cells", "one", "none"}).Draw(t, class)
		if where == "root" {
			put(moveRoot, class)
		}
		for n := range map[string]int{"cells": 2, "one": 1}[where] {
			put(cell(n), class)
		}
	}
	for _, n := range []int{0, 1} {
		if class := rapid.SampledFrom([]string{"VGPU", "VGPU", "CUSTOM_BIG", ""}).
			Draw(t, "class of a GPU"); class != "" {
			put(gpuProvider(n), class)
		}
	}
	put(nicProvider, rapid.SampledFrom([]string{"CUSTOM_PCI_A", "CUSTOM_NIC"}).Draw(t, "class of the NIC"))
	put(rapid.SampledFrom([]string{moveRoot, sevProvider, sevESProvider}).Draw(t, "encryption"),
		"MEM_ENCRYPTION_CONTEXT")
	put(sevESProvider, "MEM_ENCRYPTION_CONTEXT")
	put(shared, "DISK_GB")
	if rapid.Bool().Draw(t, "disk") {
		put(moveRoot, "DISK_GB")
	}
	return s
}

func anyMoveDomain(t *rapid.T, n int) domain.Domain {
	d := guest(n, rapid.IntRange(1, 6).Draw(t, "vcpus"))
	switch rapid.SampledFrom([]string{"pinned", "floating", "free"}).Draw(t, "kind") {
	case "pinned":
		d = on(d, []int{rapid.IntRange(0, 2).Draw(t, "node")},
			rapid.SliceOfN(rapid.IntRange(0, 9), d.VCPUs, d.VCPUs).Draw(t, "pins")...)
	case "floating":
		d = in(d, rapid.IntRange(0, 2).Draw(t, "cell"))
	}
	d.Mdevs = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{mdev(0, 0), mdev(0, 1), mdev(1, 0), moveID(0x999)}), 0,
		3, rapid.ID).Draw(t, "mdevs")
	if rapid.Bool().Draw(t, "nic") {
		d.PCI = managed(machine.Address{Bus: 6})
	}
	return sealed(d, rapid.SampledFrom([]domain.Security{"", domain.SEV, domain.SEVES, domain.SEVSNP}).
		Draw(t, "security"))
}

func anyRequest(t *rapid.T) assignment.MoveRequest {
	s := anyTotals(t)
	r := assignment.MoveRequest{
		Tree: s.tree(), Root: moveRoot, Sites: sites(2), Machine: moveHost(2),
		Dedicated: rapid.SliceOfNDistinct(rapid.IntRange(0, 9), 0, 5, rapid.ID).Draw(t, "dedicated"),
		Rule:      rapid.SampledFrom([]assignment.Rule{assignment.Split, assignment.Whole}).Draw(t, "rule"),
		Unplaced:  rapid.SampledFrom([]assignment.Policy{assignment.Refuse, assignment.Guess}).Draw(t, "policy"),
	}
	h := held{}
	for n := range rapid.IntRange(0, 7).Draw(t, "consumers") {
		h[vm(n+1)] = providertree.ProviderResources{}
		for _, place := range rapid.SliceOfN(rapid.SampledFrom(everyPlace), 1, 5).Draw(t, "holds") {
			if h[vm(n+1)][place.Provider] == nil {
				h[vm(n+1)][place.Provider] = map[string]int64{}
			}
			h[vm(n+1)][place.Provider][place.Class] = rapid.Int64Range(1, 6).Draw(t, "amount")
		}
		if rapid.IntRange(0, 4).Draw(t, "there") > 0 {
			r.Domains = append(r.Domains, anyMoveDomain(t, n+1))
		}
	}
	r.Allocations = h.allocations()
	for _, place := range everyPlace {
		_, has := s[place.Provider][place.Class]
		ours := place.Provider != otherHost && place.Provider != unmanaged && place.Class != "DISK_GB"
		if ours && !slices.Contains(r.Moving, place) &&
			rapid.IntRange(0, 9).Draw(t, "leaves") > map[bool]int{true: 8, false: 1}[has] {
			r.Moving = append(r.Moving, place)
		}
	}
	return r
}

// TestMoveProperties: whatever is asked for, nothing is lost, invented, taken from others or put
// where nothing is free.
func TestMoveProperties(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		r := anyRequest(t)
		before := r.Allocations.Clone()
		got, err := assignment.Move(r)
		if diff := gocmp.Diff(before, r.Allocations); diff != "" {
			t.Fatalf("the request was changed: %s", diff)
		}
		checkAnyOrder(t, r, got, err)
		if err != nil {
			checkViolations(t, r, err)
			return
		}
		checkConserved(t, r, got)
		checkCapacity(t, r, got)
		if r.Unplaced == assignment.Guess {
			return // once capacity is free, a second run finds a better place for what was guessed
		}
		again := r
		again.Allocations = got.Allocations
		if rest, err := assignment.Move(again); err != nil || len(rest.Moves) > 0 {
			t.Fatalf("once more: %v, %v", rest.Moves, err)
		}
	})
}

// checkAnyOrder checks that the order of what there is decides nothing.
func checkAnyOrder(t *rapid.T, r assignment.MoveRequest, got assignment.MoveResult, err error) {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	r.Domains, r.Moving, r.Dedicated = slices.Clone(r.Domains), slices.Clone(r.Moving), slices.Clone(r.Dedicated)
	random.Shuffle(len(r.Domains), func(i, j int) { r.Domains[i], r.Domains[j] = r.Domains[j], r.Domains[i] })
	random.Shuffle(len(r.Moving), func(i, j int) { r.Moving[i], r.Moving[j] = r.Moving[j], r.Moving[i] })
	random.Shuffle(len(r.Dedicated), func(i, j int) { r.Dedicated[i], r.Dedicated[j] = r.Dedicated[j], r.Dedicated[i] })
	other, otherErr := assignment.Move(r)
	if diff := gocmp.Diff(got, other); diff != "" {
		t.Fatal(diff)
	}
	var a, b *plugins.ReshapeFailed
	if errors.As(err, &a) != errors.As(otherErr, &b) {
		t.Fatalf("%v\n%v", err, otherErr)
	} else if diff := gocmp.Diff(a, b); diff != "" {
		t.Fatal(diff)
	}
}

// checkViolations checks that they are all: without their consumers it goes.
func checkViolations(t *rapid.T, r assignment.MoveRequest, err error) {
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) || len(failed.Violations) == 0 {
		t.Fatal(err)
	}
	r.Allocations = r.Allocations.Clone()
	for _, o := range failed.Violations {
		checkLength(t, o)
		if r.Allocations[o.Consumer].Resources[o.Provider][o.Class] == 0 && !slices.ContainsFunc(failed.Violations,
			func(p plugins.Violation) bool {
				_, there := r.Allocations[p.Consumer]
				return p.Consumer == o.Consumer && !there
			}) {
			t.Fatalf("a violation that holds nothing there: %s", o)
		}
		if o.Hint == "" || strings.Contains(o.Hint, o.Consumer) ||
			!strings.Contains(failed.Hint, "openstack resource provider allocation show CONSUMER") {
			t.Fatalf("no hint, or one for each consumer: %+v", o)
		}
		delete(r.Allocations, o.Consumer)
	}
	if _, err := assignment.Move(r); err != nil {
		t.Fatalf("one after the other: first %v, and then %v", failed, err)
	}
}

func checkConserved(t *rapid.T, r assignment.MoveRequest, got assignment.MoveResult) {
	testproc.Check(t, got.Renames.Validate())
	if len(got.Allocations) != len(r.Allocations) {
		t.Fatalf("%d consumers became %d", len(r.Allocations), len(got.Allocations))
	}
	for consumer, was := range r.Allocations {
		is := got.Allocations[consumer]
		if diff := gocmp.Diff(got.Renames.Totals(was.Totals()), got.Renames.Totals(is.Totals())); diff != "" {
			t.Fatalf("%s: %s", consumer, diff)
		}
		for class := range got.Renames {
			if is.Totals()[class] > was.Totals()[class] {
				t.Fatalf("%s has more of %s, which has another name now", consumer, class)
			}
		}
		for _, uuid := range []string{otherHost, unmanaged, shared} {
			if diff := gocmp.Diff(was.Resources[uuid], is.Resources[uuid]); diff != "" {
				t.Fatalf("%s of another owner's: %s", consumer, diff)
			}
		}
		if was.Resources[moveRoot]["DISK_GB"] != is.Resources[moveRoot]["DISK_GB"] {
			t.Fatalf("%s: the disk has moved", consumer)
		}
		for uuid, amounts := range is.Resources {
			if len(amounts) == 0 {
				t.Fatalf("%s holds an empty set on %s", consumer, uuid)
			}
		}
	}
	for _, m := range got.Moves {
		if !slices.Contains(r.Moving, m.From) && (m.From.Class != "VCPU" || m.To.Class != "PCPU") {
			t.Fatalf("%+v does not leave", m)
		}
	}
}

// checkCapacity checks that nothing has more than its capacity, unless it had that before, and no
// consumer more than max_unit.
func checkCapacity(t *rapid.T, r assignment.MoveRequest, got assignment.MoveResult) {
	for _, m := range got.Moves {
		inv, there := r.Tree.Inventory(m.To.Provider, m.To.Class)
		if !there || slices.Contains(r.Moving, m.To) && m.To.Class != "VCPU" {
			t.Fatalf("%+v goes to where there is nothing", m)
		}
		if used := got.Allocations.Used(m.To.Provider)[m.To.Class]; used > inv.Capacity() {
			t.Fatalf("%+v: %d are in use then, and the capacity is %d", m, used, inv.Capacity())
		}
		if n := got.Allocations[m.Consumer].Resources[m.To.Provider][m.To.Class]; n > inv.MaxUnit {
			t.Fatalf("%+v: it holds %d then, and may have %d", m, n, inv.MaxUnit)
		}
	}
}

// TestMoveThereAndBack: from the root to the cells and back, every consumer holds what it held.
func TestMoveThereAndBack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.IntRange(1, 4).Draw(t, "cells")
		const capacity = 4000
		there := flatToNested(cells, capacity, capacity)
		there.Rule = rapid.SampledFrom([]assignment.Rule{assignment.Split, assignment.Whole}).Draw(t, "rule")
		h := held{}
		for n := range rapid.IntRange(0, 12).Draw(t, "consumers") {
			d := anyMoveDomain(t, n+1)
			if cells < 3 { // it may be bound to a cell that is not there
				d.Pins, d.CPUSet, d.Memory = nil, nil, domain.NUMATune{}
			}
			there.Domains = append(there.Domains, d)
			own := map[string]int64{"DISK_GB": 1}
			for _, class := range computing {
				if amount := rapid.Int64Range(0, 40).Draw(t, class); amount > 0 {
					own[class] = amount
				}
			}
			h[vm(n+1)] = providertree.ProviderResources{moveRoot: own, otherHost: {"VCPU": 1}}
		}
		there.Allocations = h.allocations()
		nested := testproc.Try(assignment.Move(there)).Or(t)
		for consumer, c := range nested.Allocations {
			if diff := gocmp.Diff(providertree.Resources{"DISK_GB": 1}, c.Resources[moveRoot]); diff != "" {
				t.Fatalf("%s has something left on the root: %s", consumer, diff)
			}
		}
		flat := testproc.Try(assignment.Move(back(there, nested, capacity, capacity))).Or(t)
		if diff := gocmp.Diff(there.Allocations, flat.Allocations); diff != "" ||
			len(nested.Renames)+len(flat.Renames) > 0 {
			t.Fatalf("%s, %v, %v", diff, nested.Renames, flat.Renames)
		}
	})
}

// TestNotesAreBounded: they stay readable when there is much to guess.
func TestNotesAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := flatToNested(2, 4000, 4000)
	r.Unplaced = assignment.Guess
	h := held{}
	for n := range 1000 {
		h[vm(n)] = providertree.ProviderResources{moveRoot: {"VCPU": 1}}
	}
	r.Allocations = h.allocations()
	got, err := assignment.Move(r)
	if err != nil || len(got.Notes) != 51 || !strings.Contains(got.Notes[50], "950 more") ||
		!slices.IsSorted(got.Notes[:50]) {
		t.Errorf("%v, %d notes, the last is %q", err, len(got.Notes), slices.MaxFunc(got.Notes, cmp.Compare))
	}
}

// BenchmarkMove moves 10,000 consumers to 8 cells: half of them are bound to one.
func BenchmarkMove(b *testing.B) {
	const consumers, cells = 10000, 8
	for name, policy := range map[string]assignment.Policy{"domains": assignment.Refuse, "guess": assignment.Guess} {
		b.Run(name, func(b *testing.B) {
			r := flatToNested(cells, 4*consumers, 2048*consumers)
			r.Unplaced = policy
			out := make(providertree.Allocations, consumers)
			for n := range consumers {
				out[vm(n)] =
					providertree.ConsumerAllocations{Resources: providertree.ProviderResources{moveRoot: {"VCPU": 2,
						"MEMORY_MB": 2048, "DISK_GB": 1}}}
				d := guest(n, 2)
				if n%2 == 0 {
					d = in(d, n/2%cells)
				}
				if policy == assignment.Refuse {
					r.Domains = append(r.Domains, d)
				}
			}
			r.Allocations = out
			b.ReportAllocs()
			for b.Loop() {
				got, err := assignment.Move(r)
				if err != nil || len(got.Moves) != 2*consumers {
					b.Fatal(len(got.Moves), err)
				}
			}
		})
	}
}
