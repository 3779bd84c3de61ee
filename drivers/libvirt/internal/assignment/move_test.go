// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// story is a reshape and what comes of it.
type story struct {
	to        totals
	moving    []plugins.Place
	dedicated []int
	rule      assignment.Rule
	policy    assignment.Policy
	domains   []domain.Domain
	unread    map[string]string
	before    held

	after   held // nil: as before
	renames plugins.ClassRenames
	notes   []string // parts of each
	// violations are the ends of consumers' uuids, classes, and parts of their problems.
	violations []string
}

var vgpuOfRoot = []plugins.Place{at(moveRoot, "VGPU")}

// twoGPUs is the layout with VGPU on the GPUs.
var twoGPUs = totals{moveRoot: {"VCPU": 8}, gpuProvider(0): {"VGPU": 4}, gpuProvider(1): {"VGPU": 4}}

func (s story) request() assignment.MoveRequest {
	return assignment.MoveRequest{
		Tree: s.to.tree(), Root: moveRoot, Moving: s.moving, Sites: sites(2), Machine: moveHost(2), Domains: s.domains,
		Unread: s.unread, Dedicated: s.dedicated,
		Rule: s.rule, Unplaced: s.policy, Allocations: s.before.allocations(),
	}
}

// checkLength checks that the agent does not truncate a violation.
func checkLength(t interface{ Errorf(string, ...any) }, o plugins.Violation) {
	if len(o.Problem) > 512 || len(o.Hint) > 512 {
		t.Errorf("the end is lost of %+v", o)
	}
}

func (s story) check(t *testing.T, r assignment.MoveRequest) {
	t.Helper()
	tree := r.Tree.Clone()
	got, err := assignment.Move(r)
	if diff := cmp.Diff(s.before.allocations(), r.Allocations); diff != "" || !tree.Equal(r.Tree) {
		t.Errorf("the request was changed: %s", diff)
	}
	var failed *plugins.ReshapeFailed
	switch {
	case len(s.violations) == 0 && err != nil:
		t.Fatal(err)
	case len(s.violations) > 0:
		if !errors.As(err, &failed) {
			t.Fatalf("%v, %v", got.Moves, err)
		}
		var said []string
		for _, o := range failed.Violations {
			said = append(said, o.Consumer[len(o.Consumer)-2:]+" "+o.Class+": "+
				o.Problem+" | "+o.Hint+" | "+failed.Hint)
			checkLength(t, o)
		}
		checkWords(t, "violations", s.violations, said)
		return
	}
	want := s.after
	if want == nil {
		want = s.before
	}
	testproc.Same(t, cmp.Diff(want.allocations(), got.Allocations))
	testproc.Same(t, cmp.Diff(s.renames, got.Renames))
	checkWords(t, "notes", s.notes, got.Notes)
}

// checkWords compares texts with what they should begin with and then contain, divided by three
// dots.
func checkWords(t *testing.T, what string, want, got []string) {
	t.Helper()
	same := slices.EqualFunc(want, got, func(words, text string) bool {
		parts := strings.Split(words, "...")
		found := strings.HasPrefix(text, parts[0])
		for _, part := range parts {
			is := false
			_, text, is = strings.Cut(text, part)
			found = found && is
		}
		return found
	})
	if !same {
		t.Errorf("%s are\n%s\nshould have\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func run(t *testing.T, stories map[string]story) {
	t.Helper()
	for name, s := range stories {
		t.Run(name, func(t *testing.T) {
			s.check(t, s.request())
			if s.dedicated != nil {
				return // of VCPU it matters whether there is some left
			}
			r := s.request() // places that lose their inventory may have it still
			for _, place := range s.moving {
				if r.Tree.Exists(place.Provider) {
					must(r.Tree.SetInventory(place.Provider, place.Class, providertree.Inventory{Total: 100}))
				}
			}
			s.check(t, r)
		})
	}
}

func TestMediatedDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	run(t, map[string]story{
		"to the GPU that made them": {
			to: twoGPUs, moving: vgpuOfRoot,
			domains: []domain.Domain{with(guest(1, 1), mdev(1, 0)), with(guest(2, 1), mdev(0, 0), mdev(1, 1))},
			before:  held{vm(1): {moveRoot: {"VCPU": 1, "VGPU": 1}}, vm(2): {moveRoot: {"VGPU": 2}}},
			after: held{vm(1): {moveRoot: {"VCPU": 1}, gpuProvider(1): {"VGPU": 1}},
				vm(2): {gpuProvider(0): {"VGPU": 1}, gpuProvider(1): {"VGPU": 1}}},
		},
		"what is allocated of another host, or of an unmanaged provider, is ignored": {
			to: totals{moveRoot: {"VCPU": 8}, gpuProvider(0): {"VGPU": 4}, gpuProvider(1): {"VGPU": 4},
				unmanaged: {"VGPU": 9}}, moving: vgpuOfRoot,
			domains: []domain.Domain{with(guest(1, 1), mdev(1, 0))},
			before: held{
				vm(1): {moveRoot: {"VGPU": 1}, otherHost: {"VGPU": 3}, unmanaged: {"VGPU": 1}},
				vm(2): {otherHost: {"VGPU": 1}}, // on its way here, without a domain
			},
			after: held{vm(1): {gpuProvider(1): {"VGPU": 1}, otherHost: {"VGPU": 3}, unmanaged: {"VGPU": 1}},
				vm(2): {otherHost: {"VGPU": 1}}},
		},
		"a GPU that is not configured any more": {
			to: totals{moveRoot: {"VCPU": 8}, gpuProvider(0): {"VGPU": 4}}, moving: vgpuOfRoot,
			domains: []domain.Domain{with(guest(1, 1), mdev(0, 0), mdev(1, 0))},
			before:  held{vm(1): {moveRoot: {"VGPU": 2}}},
			violations: []string{"01 VGPU: ..." + mdev(1, 0) +
				"...pci_0000_81_00_0...enabled_mdev_types...allocation show CONSUMER...unplaced_consumers = \"guess\""},
		},
		"a GPU that is not configured any more, guessed": {
			to:     totals{moveRoot: {"VCPU": 8}, gpuProvider(0): {"VGPU": 4}},
			moving: vgpuOfRoot, policy: assignment.Guess,
			domains: []domain.Domain{with(guest(1, 1), mdev(0, 0), mdev(1, 0))},
			before:  held{vm(1): {moveRoot: {"VGPU": 2}}},
			after:   held{vm(1): {gpuProvider(0): {"VGPU": 2}}},
		},
		"the class is that of the GPU": {
			to:      totals{moveRoot: {"VCPU": 8}, gpuProvider(0): {"VGPU": 4}, gpuProvider(1): {"CUSTOM_BIG": 4}},
			moving:  vgpuOfRoot,
			domains: []domain.Domain{with(guest(1, 1), mdev(1, 0)), with(guest(2, 1), mdev(0, 0))},
			before:  held{vm(1): {moveRoot: {"VGPU": 1}}, vm(2): {moveRoot: {"VGPU": 1}}},
			after:   held{vm(1): {gpuProvider(1): {"CUSTOM_BIG": 1}}, vm(2): {gpuProvider(0): {"VGPU": 1}}},
			renames: plugins.ClassRenames{"VGPU": "CUSTOM_BIG"},
		},
		"one class cannot become two": {
			// there is nothing to guess
			to: totals{moveRoot: {"VCPU": 8}, gpuProvider(0): {"CUSTOM_SMALL": 4},
				gpuProvider(1): {"CUSTOM_BIG": 9}},
			moving: vgpuOfRoot, policy: assignment.Guess,
			domains:    []domain.Domain{with(guest(1, 1), mdev(1, 0)), with(guest(2, 1), mdev(0, 0))},
			before:     held{vm(1): {moveRoot: {"VGPU": 1}}, vm(2): {moveRoot: {"VGPU": 1}}},
			violations: []string{"02 VGPU: ...CUSTOM_SMALL...rename a class only once...first give the class"},
		},
		"another owner keeps a class on the GPU": {
			to: totals{gpuProvider(0): {"CUSTOM_A": 9, "VGPU": 4}, gpuProvider(1): {"VGPU": 4}}, moving: vgpuOfRoot,
			domains: []domain.Domain{with(guest(1, 1), mdev(0, 0))},
			before:  held{vm(1): {moveRoot: {"VGPU": 1}, gpuProvider(0): {"CUSTOM_A": 1}}},
			after:   held{vm(1): {gpuProvider(0): {"VGPU": 1, "CUSTOM_A": 1}}},
		},
		"another class for a GPU, and for a network card": {
			to: totals{gpuProvider(0): {"CUSTOM_BIG": 4}, gpuProvider(1): {"VGPU": 4},
				nicProvider: {"CUSTOM_NIC": 8}},
			moving: []plugins.Place{at(gpuProvider(0), "VGPU"), at(nicProvider, "CUSTOM_PCI_15B3_1016")},
			before: held{ // even without a domain
				vm(1): {gpuProvider(0): {"VGPU": 2}}, vm(2): {gpuProvider(1): {"VGPU": 1}},
				vm(3): {nicProvider: {"CUSTOM_PCI_15B3_1016": 1}, otherHost: {"CUSTOM_PCI_15B3_1016": 1}},
			},
			after: held{vm(1): {gpuProvider(0): {"CUSTOM_BIG": 2}}, vm(2): {gpuProvider(1): {"VGPU": 1}},
				vm(3): {nicProvider: {"CUSTOM_NIC": 1}, otherHost: {"CUSTOM_PCI_15B3_1016": 1}}},
			renames: plugins.ClassRenames{"VGPU": "CUSTOM_BIG", "CUSTOM_PCI_15B3_1016": "CUSTOM_NIC"},
		},
		"without a domain there is no choice with one GPU": {
			to: totals{moveRoot: {"VCPU": 8}, gpuProvider(0): {"VGPU": 4}}, moving: vgpuOfRoot,
			before: held{vm(1): {moveRoot: {"VGPU": 1}}}, after: held{vm(1): {gpuProvider(0): {"VGPU": 1}}},
		},
		"all of unknown place are listed": {
			to: twoGPUs, moving: vgpuOfRoot,
			domains: []domain.Domain{with(guest(2, 1)),
				with(guest(3, 1), moveID(0x999)), with(guest(4, 1), mdev(0, 0))},
			before: held{vm(1): {moveRoot: {"VGPU": 1}}, vm(2): {moveRoot: {"VGPU": 1}}, vm(3): {moveRoot: {"VGPU": 1}},
				vm(4): {moveRoot: {"VGPU": 1}}, vm(5): {moveRoot: {"VGPU": 1}}},
			violations: []string{
				"01 VGPU: ...no domain...allocation delete CONSUMER...\"guess\"",
				"02 VGPU: ...no further such device...allocation show CONSUMER...\"guess\"",
				"03 VGPU: ..." + moveID(0x999) + " does not exist...", "05 VGPU: ...no domain...",
			},
		},
		"and guessed": {
			to:     totals{gpuProvider(0): {"VGPU": 2}, gpuProvider(1): {"VGPU": 3}},
			moving: vgpuOfRoot, policy: assignment.Guess,
			domains: []domain.Domain{with(guest(2, 1)), with(guest(4, 1), mdev(0, 0))},
			before: held{vm(1): {moveRoot: {"VGPU": 1}},
				vm(2): {moveRoot: {"VGPU": 2}}, vm(4): {moveRoot: {"VGPU": 1}}},
			after: held{vm(1): {gpuProvider(0): {"VGPU": 1}}, vm(2): {gpuProvider(1): {"VGPU": 2}},
				vm(4): {gpuProvider(0): {"VGPU": 1}}},
			notes: []string{"consumer " + vm(1) + "...1 of VGPU to cn1_a00...no domain", "consumer " + vm(2) +
				"...2 of VGPU to cn1_a01...no further such device"},
		},
		"nothing free even for guessing": {
			to: totals{gpuProvider(0): {"VGPU": 1}, gpuProvider(1): {"VGPU": 1}}, moving: vgpuOfRoot,
			policy: assignment.Guess, domains: []domain.Domain{with(guest(1, 1), mdev(0, 0), mdev(0, 1), mdev(0, 2))},
			before:     held{vm(1): {moveRoot: {"VGPU": 3}}},
			violations: []string{"01 VGPU: ...bound to resource provider cn1_a00...fits nowhere else..."},
		},
		"more held than there are: the rest goes along": {
			to: twoGPUs, moving: vgpuOfRoot, domains: []domain.Domain{with(guest(1, 1), mdev(1, 0))},
			before: held{vm(1): {moveRoot: {"VGPU": 3}}},
			after:  held{vm(1): {gpuProvider(1): {"VGPU": 3}}},
			notes:  []string{"consumer " + vm(1) + " holds 3...has 1"},
		},
		"fewer held than there are": {
			to: twoGPUs, moving: vgpuOfRoot, domains: []domain.Domain{with(guest(1, 1), mdev(1, 0), mdev(1, 1))},
			before: held{vm(1): {moveRoot: {"VGPU": 1}}},
			after:  held{vm(1): {gpuProvider(1): {"VGPU": 1}}},
			notes:  []string{"consumer " + vm(1) + " holds 1...has 2"},
		},
		"more held than there are, and nothing free for the rest": {
			to: twoGPUs, moving: vgpuOfRoot, domains: []domain.Domain{with(guest(1, 1), mdev(1, 0))},
			before:     held{vm(1): {moveRoot: {"VGPU": 5}}},
			violations: []string{"01 VGPU: ...4 free...free capacity..."},
		},
		"switched off while allocated: no place loses anything": {
			to: totals{moveRoot: {"VCPU": 8}}, before: held{vm(1): {moveRoot: {"VGPU": 1, "VCPU": 1}}},
		},
		"no provider gains it": {
			to: totals{moveRoot: {"VCPU": 8}}, moving: vgpuOfRoot,
			before: held{vm(1): {moveRoot: {"VGPU": 1}}, vm(2): {moveRoot: {"VGPU": 2}}},
			notes:  []string{"2 consumers keep...VGPU on cn1"},
		},
		"part has moved before": {
			to: twoGPUs, moving: vgpuOfRoot, domains: []domain.Domain{with(guest(1, 1), mdev(0, 0), mdev(1, 0))},
			before: held{vm(1): {moveRoot: {"VGPU": 1}, gpuProvider(0): {"VGPU": 1}}},
			after:  held{vm(1): {gpuProvider(0): {"VGPU": 1}, gpuProvider(1): {"VGPU": 1}}},
		},
	})
}

func TestDedicatedProcessors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	vcpuOfRoot := []plugins.Place{at(moveRoot, "VCPU")}
	domains := []domain.Domain{on(guest(1, 2), nil, 0, 1), guest(2, 2), on(guest(3, 2), nil, 6, 7)}
	run(t, map[string]story{
		"VCPU of guests with dedicated processors, here": {
			to:     totals{moveRoot: {"PCPU": 4, "VCPU": 16}},
			moving: vcpuOfRoot, dedicated: []int{0, 1, 2, 3}, domains: domains,
			before: held{vm(1): {moveRoot: {"VCPU": 2}, otherHost: {"VCPU": 2}}, vm(2): {moveRoot: {"VCPU": 2}},
				vm(3): {moveRoot: {"VCPU": 2}}, vm(4): {moveRoot: {"VCPU": 1}}},
			after: held{vm(1): {moveRoot: {"PCPU": 2}, otherHost: {"VCPU": 2}}, vm(2): {moveRoot: {"VCPU": 2}},
				vm(3): {moveRoot: {"VCPU": 2}}, vm(4): {moveRoot: {"VCPU": 1}}},
			renames: plugins.ClassRenames{"VCPU": "PCPU"},
			notes:   []string{"consumers without a readable domain...VCPU on cn1...dedicated: " + vm(4)},
		},
		"and no VCPU is left": {
			to: totals{moveRoot: {"PCPU": 4}}, moving: vcpuOfRoot, dedicated: []int{0, 1, 2, 3}, domains: domains,
			before:  held{vm(1): {moveRoot: {"VCPU": 2}}, vm(2): {moveRoot: {"VCPU": 2}}},
			after:   held{vm(1): {moveRoot: {"PCPU": 2}}, vm(2): {moveRoot: {"VCPU": 2}}},
			renames: plugins.ClassRenames{"VCPU": "PCPU"}, notes: []string{"1 consumers keep...VCPU on cn1"},
		},
		"in the cells": {
			to:        totals{cell(0): {"PCPU": 4}, cell(1): {"VCPU": 16}},
			moving:    []plugins.Place{at(cell(0), "VCPU"), at(cell(1), "VCPU")},
			dedicated: []int{0, 1, 2, 3}, domains: domains,
			before:  held{vm(1): {cell(0): {"VCPU": 2}}, vm(2): {cell(0): {"VCPU": 2}}, vm(4): {cell(1): {"VCPU": 1}}},
			after:   held{vm(1): {cell(0): {"PCPU": 2}}, vm(2): {cell(1): {"VCPU": 2}}, vm(4): {cell(1): {"VCPU": 1}}},
			renames: plugins.ClassRenames{"VCPU": "PCPU"},
			notes:   []string{"consumers without a readable domain...VCPU on cn1_c01...: " + vm(4)},
		},
		"on the way to the cells": {
			to: totals{cell(0): {"PCPU": 2, "VCPU": 8, "MEMORY_MB": 100},
				cell(1): {"PCPU": 2, "VCPU": 8, "MEMORY_MB": 100}},
			moving:    []plugins.Place{at(moveRoot, "VCPU"), at(moveRoot, "MEMORY_MB")},
			dedicated: []int{0, 1, 6, 7}, domains: domains,
			before:  held{vm(3): {moveRoot: {"VCPU": 2, "MEMORY_MB": 10}}},
			after:   held{vm(3): {cell(1): {"PCPU": 2, "MEMORY_MB": 10}}},
			renames: plugins.ClassRenames{"VCPU": "PCPU"},
		},
		"not enough PCPU": {
			to:     totals{moveRoot: {"PCPU": 1, "VCPU": 16}},
			moving: vcpuOfRoot, dedicated: []int{0, 1, 2, 3}, domains: domains,
			before: held{vm(1): {moveRoot: {"VCPU": 2}}}, violations: []string{"01 VCPU: ...PCPU...\"guess\""},
		},
		"not enough PCPU, guessed: it stays": {
			to:     totals{moveRoot: {"PCPU": 1, "VCPU": 16}},
			moving: vcpuOfRoot, dedicated: []int{0, 1, 2, 3}, domains: domains, policy: assignment.Guess,
			before: held{vm(1): {moveRoot: {"VCPU": 2}}},
		},
	})
}

func TestEncryption(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const class = "MEM_ENCRYPTION_CONTEXT"
	both := totals{sevProvider: {class: 9}, sevESProvider: {class: 9}}
	moving := []plugins.Place{at(moveRoot, class)}
	run(t, map[string]story{
		"by the kind of the domain": {
			to: both, moving: moving,
			domains: []domain.Domain{sealed(guest(1, 1), domain.SEV), sealed(guest(2, 1), domain.SEVES)},
			before:  held{vm(1): {moveRoot: {class: 1}}, vm(2): {moveRoot: {class: 1}}},
			after:   held{vm(1): {sevProvider: {class: 1}}, vm(2): {sevESProvider: {class: 1}}},
		},
		"there is one only": {
			to: totals{sevESProvider: {class: 9}}, moving: moving, domains: []domain.Domain{guest(1, 1)},
			before: held{vm(1): {moveRoot: {class: 1}}, vm(2): {moveRoot: {class: 1}}},
			after:  held{vm(1): {sevESProvider: {class: 1}}, vm(2): {sevESProvider: {class: 1}}},
		},
		"none of the domain's kind": {
			to: both, moving: moving, domains: []domain.Domain{sealed(guest(1, 1), domain.SEVSNP)},
			before:     held{vm(1): {moveRoot: {class: 1}}, vm(2): {moveRoot: {class: 1}}},
			violations: []string{"01 " + class + ": ...", "02 " + class + ": ...no domain..."},
		},
		"back to the root": {
			to: totals{moveRoot: {class: 9}, sevProvider: nil}, moving: []plugins.Place{at(sevProvider, class)},
			before: held{vm(1): {sevProvider: {class: 1}}}, after: held{vm(1): {moveRoot: {class: 1}}},
		},
	})
}

func TestCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	to := totals{moveRoot: {"DISK_GB": 100}, cell(0): {"VCPU": 8, "MEMORY_MB": 100, "CUSTOM_HUGEPAGES_2M": 20},
		cell(1): {"VCPU": 8, "MEMORY_MB": 100, "CUSTOM_HUGEPAGES_2M": 20}}
	moving := []plugins.Place{at(moveRoot, "VCPU"), at(moveRoot, "MEMORY_MB"), at(moveRoot, "CUSTOM_HUGEPAGES_2M")}
	small := func(vcpu, memory int64) providertree.ProviderResources {
		return providertree.ProviderResources{moveRoot: {"VCPU": vcpu, "MEMORY_MB": memory, "DISK_GB": 1}}
	}
	placed := func(n int, vcpu, memory int64) providertree.ProviderResources {
		return providertree.ProviderResources{moveRoot: {"DISK_GB": 1}, cell(n): {"VCPU": vcpu, "MEMORY_MB": memory}}
	}
	run(t, map[string]story{
		"where the guest is bound to be": {
			to: to, moving: moving,
			domains: []domain.Domain{in(guest(1, 2), 1), in(guest(2, 2), 1), on(guest(3, 4), []int{0, 1}, 0, 1, 4, 5)},
			before: held{vm(1): small(2, 10),
				vm(2): {moveRoot: {"VCPU": 2, "MEMORY_MB": 10, "CUSTOM_HUGEPAGES_2M": 5}},
				vm(3): {moveRoot: {"VCPU": 4}}},
			after: held{vm(1): placed(1, 2, 10),
				vm(2): {cell(1): {"VCPU": 2, "MEMORY_MB": 10, "CUSTOM_HUGEPAGES_2M": 5}},
				vm(3): {cell(0): {"VCPU": 2}, cell(1): {"VCPU": 2}}},
		},
		"an isolated emulator thread is where it is pinned, on a full host": {
			to:     totals{cell(0): {"PCPU": 4}, cell(1): {"PCPU": 4}},
			moving: []plugins.Place{at(moveRoot, "PCPU")}, dedicated: []int{0, 1, 2, 3, 4, 5, 6, 7},
			domains: []domain.Domain{emulated(on(guest(1, 2), nil, 0, 4), 5),
				on(guest(2, 3), nil, 1, 2, 3), on(guest(3, 2), nil, 6, 7)},
			before: held{vm(1): {moveRoot: {"PCPU": 3}},
				vm(2): {moveRoot: {"PCPU": 3}}, vm(3): {moveRoot: {"PCPU": 2}}},
			after: held{vm(1): {cell(0): {"PCPU": 1}, cell(1): {"PCPU": 2}}, vm(2): {cell(0): {"PCPU": 3}},
				vm(3): {cell(1): {"PCPU": 2}}},
		},
		"guests that are bound to nothing go where most is free": {
			to: to, moving: moving, domains: []domain.Domain{in(guest(1, 2), 0), guest(2, 3), guest(3, 2)},
			before: held{vm(1): small(2, 10), vm(2): small(3, 10), vm(3): small(2, 10)},
			after:  held{vm(1): placed(0, 2, 10), vm(2): placed(1, 3, 10), vm(3): placed(0, 2, 10)},
		},
		"too large for a cell, whole": {
			to: to, moving: moving, rule: assignment.Whole,
			domains: []domain.Domain{guest(1, 9)}, before: held{vm(1): small(9, 10)},
			violations: []string{"01 MEMORY_MB: ...9 of VCPU...must not be divided...\"guess\"", "01 VCPU: ..."},
		},
		"too large for a cell, divided": {
			to: to, moving: moving, domains: []domain.Domain{guest(1, 9)}, before: held{vm(1): small(9, 10)},
			after: held{vm(1): {moveRoot: {"DISK_GB": 1}, cell(0): {"VCPU": 8, "MEMORY_MB": 10}, cell(1): {"VCPU": 1}}},
		},
		"no domain": {
			to: to, moving: moving, domains: []domain.Domain{guest(2, 2)},
			before: held{vm(1): small(2, 10), vm(2): small(2, 10), vm(3): {moveRoot: {"DISK_GB": 1}},
				vm(4): {moveRoot: {"VCPU": 1}}},
			violations: []string{
				"01 MEMORY_MB: ...no domain...2 NUMA cells...migration...delete CONSUMER...allocation show " +
					"CONSUMER...unplaced_consumers = \"guess\"",
				"01 VCPU: ...", "04 VCPU: ...",
			},
		},
		"a domain that cannot be read": {
			to: to, moving: moving, unread: map[string]string{vm(1): "its XML is garbled"},
			before:     held{vm(1): small(2, 10)},
			violations: []string{"01 MEMORY_MB: its XML is garbled | ...virsh dumpxml CONSUMER", "01 VCPU: its XML..."},
		},
		"a domain that cannot be read, guessed": {
			to: to, moving: moving, policy: assignment.Guess, unread: map[string]string{vm(1): "its XML is garbled"},
			before: held{vm(1): small(2, 10)},
			after:  held{vm(1): placed(0, 2, 10)}, notes: []string{"consumer " + vm(1) + "...: its XML is garbled"},
		},
		"a domain that cannot be read, and one cell": {
			to: totals{cell(1): {"VCPU": 8, "MEMORY_MB": 100}}, moving: moving,
			unread: map[string]string{vm(1): "its XML is garbled"},
			before: held{vm(1): {moveRoot: {"VCPU": 2}}}, after: held{vm(1): {cell(1): {"VCPU": 2}}},
		},
		"no domain, guessed": {
			to: to, moving: moving, policy: assignment.Guess, domains: []domain.Domain{in(guest(2, 8), 0)},
			before: held{vm(1): small(2, 10), vm(2): small(8, 10)},
			after:  held{vm(1): placed(1, 2, 10), vm(2): placed(0, 8, 10)},
			notes:  []string{"consumer " + vm(1) + "...10 of MEMORY_MB to cn1_c01, 2 of VCPU to cn1_c01...no domain"},
		},
		"no domain, and one cell": {
			to: totals{cell(1): {"VCPU": 8, "MEMORY_MB": 100}}, moving: moving,
			before: held{vm(1): {moveRoot: {"VCPU": 2}}}, after: held{vm(1): {cell(1): {"VCPU": 2}}},
		},
		"nothing free where it is bound to be": {
			to: to, moving: moving, domains: []domain.Domain{in(guest(1, 6), 0), in(guest(2, 6), 0)},
			before: held{vm(1): small(6, 10), vm(2): small(6, 10)},
			violations: []string{"02 MEMORY_MB: ...",
				"02 VCPU: 6 of VCPU are bound to...2 free...free capacity where it is...\"guess\""},
		},
		"nothing free where it is bound to be, guessed": {
			to: to, moving: moving, policy: assignment.Guess,
			domains: []domain.Domain{in(guest(1, 6), 0), with(in(guest(2, 6), 0), mdev(0, 0))},
			before:  held{vm(1): small(6, 10), vm(2): small(6, 10)},
			after:   held{vm(1): placed(0, 6, 10), vm(2): placed(1, 6, 10)},
			notes: []string{"consumer " +
				vm(2) + "...10 of MEMORY_MB to cn1_c01, 6 of VCPU to cn1_c01...are bound to"},
		},
		"nothing free for the memory only, guessed: the processors stay where they are": {
			to:     totals{cell(0): {"PCPU": 4, "MEMORY_MB": 100}, cell(1): {"PCPU": 4, "MEMORY_MB": 100}},
			policy: assignment.Guess, dedicated: []int{0, 1, 2, 3},
			moving: moving, domains: []domain.Domain{on(guest(1, 2), []int{0}, 0, 1)},
			before: held{vm(1): small(2, 150)},
			after: held{vm(1): {moveRoot: {"DISK_GB": 1},
				cell(0): {"PCPU": 2, "MEMORY_MB": 100}, cell(1): {"MEMORY_MB": 50}}},
			renames: plugins.ClassRenames{"VCPU": "PCPU"},
			notes: []string{"consumer " + vm(1) +
				" was placed where capacity is free, 100 of MEMORY_MB to cn1_c00, 50 of MEMORY_MB to cn1_c01: ..."},
		},
		"what is there already counts": {
			to: to, moving: moving,
			domains: []domain.Domain{in(guest(1, 4), 0), guest(2, 6), on(guest(3, 2), nil, 0, 4)},
			before: held{vm(1): {cell(0): {"VCPU": 4}},
				vm(2): {moveRoot: {"VCPU": 6}}, vm(3): {moveRoot: {"VCPU": 1}, cell(0): {"VCPU": 1}}},
			after: held{vm(1): {cell(0): {"VCPU": 4}},
				vm(2): {cell(1): {"VCPU": 6}}, vm(3): {cell(0): {"VCPU": 1}, cell(1): {"VCPU": 1}}},
		},
		"back to the root, where it adds up": {
			to: totals{moveRoot: {"VCPU": 16, "MEMORY_MB": 200, "CUSTOM_HUGEPAGES_2M": 40}, cell(0): nil, cell(1): nil},
			moving: []plugins.Place{
				at(cell(0), "VCPU"), at(cell(1), "VCPU"), at(cell(0), "MEMORY_MB"), at(cell(1), "MEMORY_MB"),
				at(cell(0), "CUSTOM_HUGEPAGES_2M"), at(cell(1), "CUSTOM_HUGEPAGES_2M"),
			},
			before: held{vm(1): {cell(0): {"VCPU": 2, "MEMORY_MB": 5, "CUSTOM_HUGEPAGES_2M": 7},
				cell(1): {"VCPU": 3, "CUSTOM_HUGEPAGES_2M": 1}}, vm(2): {cell(1): {"VCPU": 1}}},
			after: held{vm(1): {moveRoot: {"VCPU": 5, "MEMORY_MB": 5, "CUSTOM_HUGEPAGES_2M": 8}},
				vm(2): {moveRoot: {"VCPU": 1}}},
		},
		"back to a root that has less": {
			to: totals{moveRoot: {"VCPU": 3}, cell(0): nil}, moving: []plugins.Place{at(cell(0), "VCPU")},
			before:     held{vm(1): {cell(0): {"VCPU": 2}}, vm(2): {cell(0): {"VCPU": 2}}},
			violations: []string{"02 VCPU: ...cn1, which has 1 free..."},
		},
		"a cell whose provider is gone": {
			to: totals{moveRoot: {"VCPU": 8}}, moving: []plugins.Place{at(moveID(0xc77), "VCPU")},
			before: held{vm(1): {moveID(0xc77): {"VCPU": 2}}}, after: held{vm(1): {moveRoot: {"VCPU": 2}}},
		},
	})
}

func TestTheRootIsMissing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tree := range []*providertree.Tree{nil, {}} {
		testproc.Try(assignment.Move(assignment.MoveRequest{Tree: tree, Root: moveRoot})).ErrorHas(t, moveRoot, "%v")
	}
	empty, err := assignment.Move(
		assignment.MoveRequest{Tree: totals{}.tree(), Root: moveRoot, Machine: machine.Machine{}})
	if err != nil || empty.Allocations != nil || empty.Moves != nil || empty.Renames != nil || empty.Notes != nil {
		t.Errorf("%+v, %v", empty, err)
	}
}
