// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func id(kind, n int) string { return fmt.Sprintf("%08d-0000-4000-8000-%012d", kind, n) }

var (
	gNode      = plugins.Node{Name: "cn1", UUID: id(1, 0)}
	gSharing   = id(2, 0) // a root of its own in the tree
	gOtherHost = id(3, 0) // of another host, in no tree of ours
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// vgpus is the reshape of the specification's first use case: VGPU goes from the root to a child
// for each physical GPU, with guests, a migration, shared storage and another host in the picture.
func vgpus() Draft {
	known := &providertree.Tree{}
	check(known.AddRoot(gNode.UUID, gNode.Name))
	check(known.AddRoot(gSharing, "nfs"))
	must(known.SetInventories(gNode.UUID,
		providertree.Inventories{"VCPU": {Total: 8, AllocationRatio: 4}, "VGPU": {Total: 8}}))
	must(known.SetInventories(gSharing, providertree.Inventories{"DISK_GB": {Total: 1000}}))
	generation := int64(7)
	holds := func(vgpus int64, more providertree.ProviderResources) providertree.ConsumerAllocations {
		r := providertree.ProviderResources{gNode.UUID: {"VCPU": 2, "VGPU": vgpus}}
		maps.Copy(r, more)
		return providertree.ConsumerAllocations{Resources: r, ProjectID: "p", UserID: "u",
			Generation: &generation, ConsumerType: "INSTANCE"}
	}
	r := Draft{Node: gNode, Known: known, Desired: known.Clone(), Before: providertree.Allocations{
		id(9, 1): holds(2, providertree.ProviderResources{gSharing: {"DISK_GB": 10}}),
		id(9, 2): holds(1, providertree.ProviderResources{gOtherHost: {"VGPU": 1, "VCPU": 2}}), // being evacuated
		id(9, 3): {Resources: providertree.ProviderResources{gNode.UUID: {"VCPU": 4}}, ProjectID: "p", UserID: "u"},
	}}
	for n := range 2 {
		check(r.Desired.AddChild(gNode.UUID, id(4, n), fmt.Sprintf("cn1_gpu_%d", n)))
		must(r.Desired.SetInventories(id(4, n), providertree.Inventories{"VGPU": {Total: 4}}))
	}
	must(r.Desired.RemoveInventory(gNode.UUID, "VGPU"))
	r.Base, r.Answer = r.Known, r.Desired
	r.After = must(plugins.Moves{
		{Consumer: id(9, 1), From: plugins.Place{Provider: gNode.UUID, Class: "VGPU"},
			To: plugins.Place{Provider: id(4, 0), Class: "VGPU"}, Amount: 2},
		{Consumer: id(9, 2), From: plugins.Place{Provider: gNode.UUID, Class: "VGPU"},
			To: plugins.Place{Provider: id(4, 1), Class: "VGPU"}, Amount: 1},
	}.Apply(r.Before))
	return r
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// set changes what a consumer is to hold.
func (d Draft) set(consumer, provider, class string, n int64) {
	if d.After[consumer].Resources[provider] == nil {
		d.After[consumer].Resources[provider] = map[string]int64{}
	}
	d.After[consumer].Resources[provider][class] = n
}

func (d *Draft) own(consumer string, change func(*providertree.ConsumerAllocations)) {
	c := d.After[consumer]
	change(&c)
	d.After[consumer] = c
}

func TestGuardLetsAnHonestReshapePass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if violations := violationsOf(vgpus()); len(violations) > 0 {
		t.Errorf("the violations of a valid reshape: got %v, want none", violations)
	}
}

// TestGuardNamesEveryViolation: each fault is found, under its consumer, provider and class.
func TestGuardNamesEveryViolation(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	guest, evacuee, plain := id(9, 1), id(9, 2), id(9, 3)
	gpu0 := id(4, 0)
	for name, c := range map[string]struct {
		fault func(*Draft)
		want  []string // each is the beginning of one violation, and all that there are
	}{
		"a consumer is dropped": {func(r *Draft) { delete(r.After, plain) }, []string{
			"consumer " + plain + ": all its allocations would be lost"}},
		"a consumer is invented": {func(r *Draft) { r.After[id(9, 9)] = r.After[plain].Clone() }, []string{
			"consumer " + id(9, 9) + ": it has no allocations here"}},
		"everything is dropped": {func(r *Draft) { r.After = providertree.Allocations{} }, []string{
			"consumer " + guest, "consumer " + evacuee, "consumer " + plain}},
		"an amount is lost": {func(r *Draft) { r.set(guest, gpu0, "VGPU", 1) }, []string{
			"consumer " + guest +
				", resource class VGPU: it holds 2 on the providers of cn1 and would hold 1: 1 would be lost"}},
		"an amount is doubled": {func(r *Draft) { r.set(guest, id(4, 1), "VGPU", 2) }, []string{
			"consumer " + guest +
				", resource class VGPU: it holds 2 on the providers of cn1 and would hold 4: 2 would be added"}},
		"an amount is zero": {func(r *Draft) { r.set(guest, id(4, 1), "VGPU", 0) }, []string{
			"consumer " + guest + ", resource provider " + id(4, 1) + ", resource class VGPU: it would hold 0"}},
		"a negative amount makes the sum right": {func(r *Draft) {
			r.set(guest, gpu0, "VGPU", 3)
			r.set(guest,
				id(4, 1), "VGPU", -1)
		}, []string{
			"consumer " + guest + ", resource provider " + id(4, 1) + ", resource class VGPU: it would hold -1"}},
		"amounts overflow to the right sum": {func(r *Draft) {
			r.set(guest, gpu0, "VGPU", math.MaxInt64)
			r.set(guest, id(4, 1), "VGPU", math.MaxInt64)
			r.set(guest, gNode.UUID, "VGPU", 4)
		}, []string{
			"consumer " + guest + ", resource provider " +
				gNode.UUID + ", resource class VGPU: it would hold 4, but cn1 would have no inventory",
			"consumer " + guest + ", resource provider " +
				gpu0 + ", resource class VGPU: it would hold 9223372036854775807",
			"consumer " + guest + ", resource provider " +
				id(4, 1) + ", resource class VGPU: it would hold 9223372036854775807",
			"consumer " + guest +
				", resource class VGPU: it holds 2 on the providers of cn1 and would hold 9223372036854775807",
			"resource provider " + gpu0 +
				", resource class VGPU: 9223372036854775807 would be allocated on cn1_gpu_0, but its capacity is 4",
			"resource provider " + id(4, 1)}},
		"a provider is left with nothing": {func(r *Draft) { r.After[guest].Resources[id(4, 1)] = map[string]int64{} },
			[]string{
				"consumer " + guest + ", resource provider " + id(4, 1) + ": it would hold an empty set"}},
		"what another host gives is changed": {func(r *Draft) { r.set(evacuee, gOtherHost, "VGPU", 2) }, []string{
			"consumer " + evacuee + ", resource provider " + gOtherHost +
				", resource class VGPU: the provider is outside of the tree of cn1, and what is allocated there " +
				"would change from 1 to 2"}},
		"it is moved to another host": {func(r *Draft) {
			delete(r.After[guest].Resources, gpu0)
			r.set(guest, gOtherHost, "VGPU", 2)
		}, []string{
			"consumer " + guest + ", resource provider " +
				gOtherHost + ", resource class VGPU: the provider is outside of the tree",
			"consumer " + guest +
				", resource class VGPU: it holds 2 on the providers of cn1 and would hold 0: 2 would be lost"}},
		"another host's provider is made one of ours": {func(r *Draft) {
			check(r.Desired.AddChild(gNode.UUID, gOtherHost, "cn1_gpu_9"))
			must(r.Desired.SetInventories(gOtherHost, providertree.Inventories{"VGPU": {Total: 4}, "VCPU": {Total: 4}}))
			r.set(evacuee, gOtherHost, "VGPU", 2)
			delete(r.After[evacuee].Resources, id(4, 1))
		}, []string{
			"consumer " + evacuee + ", resource provider " + gOtherHost +
				", resource class VGPU: the provider is outside of the tree",
			"consumer " + evacuee + ", resource class VGPU"}},
		"shared storage is freed": {func(r *Draft) { delete(r.After[guest].Resources, gSharing) }, []string{
			"consumer " + guest + ", resource provider " +
				gSharing + ", resource class DISK_GB: the provider is outside of the tree"}},
		"the sharing provider is changed": {func(r *Draft) {
			must(r.Desired.SetInventory(gSharing, "DISK_GB", providertree.Inventory{Total: 1}))
		}, []string{
			"resource provider " + gSharing + ": nfs is outside of the tree of cn1, and would be changed"}},
		"the sharing provider is taken into the tree": {func(r *Draft) { must(r.Desired.Move(gSharing, gNode.UUID)) },
			[]string{
				"resource provider " + gSharing + ": nfs is outside of the tree of cn1, and would be changed"}},
		"the provider is not there": {func(r *Draft) { must(r.Desired.Remove(gpu0)) }, []string{
			"consumer " + guest + ", resource provider " +
				gpu0 + ", resource class VGPU: the provider is outside of the tree of cn1",
			"consumer " + guest + ", resource class VGPU: it holds 2"}},
		"the inventory is not there": {func(r *Draft) { must(r.Desired.RemoveInventory(gpu0, "VGPU")) }, []string{
			"consumer " + guest + ", resource provider " +
				gpu0 + ", resource class VGPU: it would hold 2, but cn1_gpu_0 would have no inventory of it"}},
		"inventory that is still allocated goes": {func(r *Draft) {
			must(
				r.Desired.RemoveInventory(gNode.UUID, "VCPU"))
		}, []string{
			"consumer " + guest + ", resource provider " + gNode.UUID + ", resource class VCPU",
			"consumer " + evacuee + ", resource provider " + gNode.UUID + ", resource class VCPU",
			"consumer " + plain + ", resource provider " +
				gNode.UUID + ", resource class VCPU: it would hold 4, but cn1 would have no inventory of it"}},
		"more than the capacity": {func(r *Draft) {
			must(r.Desired.SetInventory(gpu0, "VGPU", providertree.Inventory{Total: 4, Reserved: 3}))
		}, []string{
			"resource provider " + gpu0 +
				", resource class VGPU: 2 would be allocated on cn1_gpu_0, but its capacity is 1"}},
		"less than min_unit": {func(r *Draft) {
			must(r.Desired.SetInventory(gpu0, "VGPU", providertree.Inventory{Total: 4, MinUnit: 3}))
		}, []string{
			"consumer " + guest + ", resource provider " +
				gpu0 + ", resource class VGPU: it would hold 2, less than the min_unit 3 of cn1_gpu_0"}},
		"more than max_unit": {func(r *Draft) {
			must(r.Desired.SetInventory(gpu0, "VGPU", providertree.Inventory{Total: 4, MaxUnit: 1}))
		}, []string{
			"consumer " + guest + ", resource provider " +
				gpu0 + ", resource class VGPU: it would hold 2, more than the max_unit 1 of cn1_gpu_0"}},
		"off the step_size": {func(r *Draft) {
			must(r.Desired.SetInventory(gpu0, "VGPU", providertree.Inventory{Total: 4, StepSize: 4}))
		}, []string{
			"consumer " + guest + ", resource provider " +
				gpu0 + ", resource class VGPU: it would hold 2, not a multiple of the step_size 4 of cn1_gpu_0"}},
		"what stays of a moved consumer does not fit any more": {func(r *Draft) {
			must(r.Desired.SetInventory(gNode.UUID,
				"VCPU", providertree.Inventory{Total: 8, AllocationRatio: 4, MaxUnit: 1}))
		}, []string{
			"consumer " + guest + ", resource provider " +
				gNode.UUID + ", resource class VCPU: it would hold 2, more than the max_unit 1",
			"consumer " + evacuee}},
		"the owner is changed": {func(r *Draft) {
			r.own(guest, func(c *providertree.ConsumerAllocations) { c.ProjectID, c.UserID = "evil", "u" })
		}, []string{"consumer " + guest +
			`: it belongs to project "p" and user "u", and would be given to project "evil"`}},
		"the type is changed": {func(r *Draft) {
			r.own(guest, func(c *providertree.ConsumerAllocations) { c.ConsumerType = "MIGRATION" })
		}, []string{"consumer " + guest + `: its consumer type is "INSTANCE"`}},
		"the generation is changed": {func(r *Draft) {
			r.own(guest, func(c *providertree.ConsumerAllocations) { g := *c.Generation + 1; c.Generation = &g })
		}, []string{"consumer " + guest + ": its consumer generation was changed"}},
		"the generation is dropped": {func(r *Draft) {
			r.own(guest, func(c *providertree.ConsumerAllocations) { c.Generation = nil })
		}, []string{"consumer " + guest + ": its consumer generation was changed"}},
		"it leaves inventory that stays": {func(r *Draft) {
			must(r.Desired.SetInventory(gpu0, "VCPU", providertree.Inventory{Total: 8}))
			r.After[plain].Resources[gpu0] = map[string]int64{"VCPU": 3}
			r.set(plain, gNode.UUID, "VCPU", 1)
			delete(r.After[guest].Resources, gNode.UUID)
			r.set(guest, gpu0, "VCPU", 2)
		}, []string{
			"consumer " + guest + ", resource provider " +
				gNode.UUID +
				", resource class VCPU: it holds 2 there and would hold 0, but the inventory stays as it is",
			"consumer " + plain + ", resource provider " +
				gNode.UUID +
				", resource class VCPU: it holds 4 there and would hold 1, but the inventory stays as it is"}},
		"two guests get each other's devices": {func(r *Draft) {
			r.Guests = []plugins.Guest{listed(evacuee, id(4, 0), 1), listed(guest, id(4, 1), 2)}
		}, []string{
			"consumer " + guest + ", resource provider " +
				gpu0 + ", resource class VGPU: it would hold 2 there, but the driver lists the guest with 0",
			"consumer " + guest + ", resource provider " +
				id(4, 1) + ", resource class VGPU: it would hold 0 there, but the driver lists the guest with 2",
			"consumer " + evacuee + ", resource provider " + gpu0 +
				", resource class VGPU: it would hold 0 there, but the driver lists the guest with 1",
			"consumer " + evacuee + ", resource provider " + id(4, 1) +
				", resource class VGPU: it would hold 1 there, but the driver lists the guest with 0"}},
		"a class is renamed and the driver does not report it": {func(r *Draft) {
			must(r.Desired.SetInventories(gpu0, providertree.Inventories{"CUSTOM_VGPU": {Total: 4}}))
			r.After[guest].Resources[gpu0] = map[string]int64{"CUSTOM_VGPU": 2}
		}, []string{
			"consumer " + guest +
				", resource class CUSTOM_VGPU: it holds 0 on the providers of cn1 and would hold 2: 2 would be added",
			"consumer " + guest +
				", resource class VGPU: it holds 2 on the providers of cn1 and would hold 0: 2 would be lost"}},
		"a class is renamed backwards": {func(r *Draft) {
			r.Renames =
				plugins.ClassRenames{"VCPU": "PCPU"}
			r.pcpus("PCPU", "VCPU")
		}, []string{
			"consumer " + plain +
				", resource class VCPU: it would hold 4 of a class that is renamed to PCPU, more than the 0 before"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := vgpus()
			c.fault(&r)
			got := violationsOf(r)
			for i, o := range got {
				if i >= len(c.want) || !strings.HasPrefix(o.String(), c.want[i]) {
					t.Errorf("violation %d: %s", i, o)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("%d violations, want %d:\n%s", len(got), len(c.want), strings.Join(c.want, "\n"))
			}
		})
	}
}

// listed is a guest as a driver lists it.
func listed(consumer, provider string, vgpus int64) plugins.Guest {
	return plugins.Guest{UUID: consumer,
		Resources: providertree.ProviderResources{gNode.UUID: {"VCPU": 2}, provider: {"VGPU": vgpus}}}
}

// pcpus has the plain consumer's 4 CPUs counted in another class: what the specification calls a
// rename.
func (d *Draft) pcpus(from, to string) {
	plain := id(9, 3)
	d.Before[plain] = providertree.ConsumerAllocations{Resources: providertree.ProviderResources{gNode.UUID: {from: 4}},
		ProjectID: "p", UserID: "u"}
	d.After[plain] = providertree.ConsumerAllocations{Resources: providertree.ProviderResources{gNode.UUID: {to: 4}},
		ProjectID: "p", UserID: "u"}
	must(d.Desired.SetInventory(gNode.UUID, "PCPU", providertree.Inventory{Total: 4}))
	// of the 8 that there were
	must(d.Desired.SetInventory(gNode.UUID, "VCPU", providertree.Inventory{Total: 4, AllocationRatio: 4}))
}

// TestGuardLetsAllocationsLeaveForAReason: each way in which a reshape takes inventory away, with
// an allocation that leaves it.
func TestGuardLetsAllocationsLeaveForAReason(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	guest, gpu0 := id(9, 1), id(4, 0)
	change := func(r *Draft, change func(*providertree.Inventory)) {
		inv, _ := r.Desired.Inventory(gNode.UUID, "VCPU")
		change(&inv)
		must(r.Desired.SetInventory(gNode.UUID, "VCPU", inv))
	}
	for name, reason := range map[string]func(*Draft){
		"fewer":             func(r *Draft) { change(r, func(i *providertree.Inventory) { i.Total = 7 }) },
		"more are reserved": func(r *Draft) { change(r, func(i *providertree.Inventory) { i.Reserved = 1 }) },
		"a lower ratio":     func(r *Draft) { change(r, func(i *providertree.Inventory) { i.AllocationRatio = 3 }) },
		"it does not fit": func(r *Draft) {
			for _, allocations := range []providertree.Allocations{r.Before, r.After} { // that of the others does
				allocations[id(9, 2)].Resources[gNode.UUID]["VCPU"] = 4
			}
			change(r, func(i *providertree.Inventory) { i.StepSize = 4 })
		},
		"its kind is removed": func(r *Draft) {
			r.Answer =
				r.Desired.Clone()
			must(r.Answer.RemoveInventory(gNode.UUID, "VCPU"))
		},
		"it has drained before": func(r *Draft) {
			for _, tree := range []*providertree.Tree{r.Known, r.Desired} {
				must(tree.SetInventory(gNode.UUID, "VCPU", providertree.Inventory{Total: 8, Reserved: 8}))
			}
		},
		"the steps before had one": func(r *Draft) {
			r.Given, r.Held = r.Desired, r.After.Clone() // nothing is left to leave
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := vgpus()
			must(r.Desired.SetInventory(gpu0, "VCPU", providertree.Inventory{Total: 8}))
			delete(r.After[guest].Resources, gNode.UUID)
			r.set(guest, gpu0, "VCPU", 2)
			if len(violationsOf(r)) != 1 {
				t.Errorf("without a reason: %v", violationsOf(r))
			}
			reason(&r)
			if violations := violationsOf(r); len(violations) > 0 {
				t.Errorf("the violations with a reason: got %v, want none", violations)
			}
		})
	}
}

// TestGuardComparesGuestsWithWhatMoves: a list of guests that agrees, or says nothing of what
// moves, is no violation.
func TestGuardComparesGuestsWithWhatMoves(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	requested := listed(id(9, 1), id(4, 1), 2)
	requested.FromFlavor = true
	for name, guests := range map[string][]plugins.Guest{
		"it agrees":                {listed(id(9, 1), id(4, 0), 2), listed(id(9, 2), id(4, 1), 1)},
		"resources are not known":  {{UUID: id(9, 1)}, {UUID: id(9, 2)}},
		"it is what was requested": {requested},
		"of other guests":          {listed(id(9, 8), id(4, 0), 2)},
		"of other classes": {{UUID: id(9, 1),
			Resources: providertree.ProviderResources{gNode.UUID: {"VCPU": 99}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := vgpus()
			r.Guests = guests
			if violations := violationsOf(r); len(violations) > 0 {
				t.Errorf("the violations beside guests that fit: got %v, want none", violations)
			}
		})
	}
}

func TestGuardKnowsDeclaredRenames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := vgpus()
	r.Renames = plugins.ClassRenames{"VCPU": "PCPU"}
	r.pcpus("VCPU", "PCPU")
	if violations := violationsOf(r); len(violations) > 0 {
		t.Errorf("of three consumers one has CPUs of its own: %v", violations)
	}
}

// TestGuardAllowsOverCommitThatDoesNotGrow: a provider that holds too much already is no reason to
// keep everything where it is.
func TestGuardAllowsOverCommitThatDoesNotGrow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := vgpus()
	for _, tree := range []*providertree.Tree{r.Known, r.Desired} {
		must(tree.SetInventory(gNode.UUID, "VCPU", providertree.Inventory{Total: 2}))
	}
	if violations := violationsOf(r); len(violations) > 0 {
		t.Errorf("the violations of an over-commitment that does not grow: got %v, want none", violations)
	}
	r.set(id(9, 3), gNode.UUID, "VCPU", 5)
	if violations := violationsOf(r); len(violations) != 2 {
		t.Errorf("it grows: %v", violations)
	}
}

// TestGuardKeepsWhatIsAllocated: a provider that was there must not be removed while a
// consumer holds something of it.
func TestGuardKeepsWhatIsAllocated(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := vgpus()
	old := id(4, 9)
	check(r.Known.AddChild(gNode.UUID, old, "cn1_old"))
	must(r.Known.SetInventories(old, providertree.Inventories{"VGPU": {Total: 1}}))
	for _, allocations := range []providertree.Allocations{r.Before, r.After} {
		allocations[id(9, 3)].Resources[old] = map[string]int64{"VGPU": 1}
	}
	violations := violationsOf(r)
	if len(violations) != 1 || violations[0].Consumer != id(9, 3) || violations[0].Provider != old ||
		!strings.Contains(violations[0].Problem, "cn1_old") {
		t.Errorf("the violations of an allocation that is lost: got %v, want one, on cn1_old", violations)
	}
}

// randomNode is a random node in which everything has capacity, and what its consumers hold.
func randomNode(t *rapid.T) Draft {
	known := &providertree.Tree{}
	check(known.AddRoot(gNode.UUID, gNode.Name))
	check(known.AddRoot(gSharing, "nfs"))
	classes := []string{"VCPU", "MEMORY_MB", "VGPU", "CUSTOM_A"}
	children := rapid.IntRange(1, 3).Draw(t, "children")
	places := []string{gNode.UUID}
	for n := range children {
		check(known.AddChild(gNode.UUID, id(4, n), fmt.Sprintf("cn1_%d", n)))
		places = append(places, id(4, n))
	}
	for _, p := range append(places, gSharing) {
		inv := providertree.Inventories{}
		for _, class := range classes {
			inv[class] = providertree.Inventory{Total: 100_000}
		}
		must(known.SetInventories(p, inv))
	}
	r := Draft{Node: gNode, Known: known, Desired: known.Clone(), Before: providertree.Allocations{}}
	for n := range rapid.IntRange(1, 5).Draw(t, "consumers") {
		generation := rapid.Int64Range(0, 9).Draw(t, "generation")
		c := providertree.ConsumerAllocations{Resources: providertree.ProviderResources{}, ProjectID: "p",
			UserID: "u", Generation: &generation}
		for _, p := range append(slices.Clone(places), gSharing, gOtherHost) {
			for _, class := range classes {
				if rapid.IntRange(0, 2).Draw(t, "holds") == 0 {
					if c.Resources[p] == nil {
						c.Resources[p] = map[string]int64{}
					}
					c.Resources[p][class] = rapid.Int64Range(1, 20).Draw(t, "amount")
				}
			}
		}
		if c.Resources[gNode.UUID] == nil {
			c.Resources[gNode.UUID] = map[string]int64{}
		}
		c.Resources[gNode.UUID]["VCPU"] = rapid.Int64Range(1, 20).Draw(t, "amount")
		r.Before[id(9, n)] = c
	}
	// Honest moves between the node's own places, to a new child too.
	check(r.Desired.AddChild(gNode.UUID, id(5, 0), "cn1_new"))
	inv := providertree.Inventories{}
	for _, class := range classes {
		inv[class] = providertree.Inventory{Total: 100_000}
	}
	must(r.Desired.SetInventories(id(5, 0), inv))
	places = append(places, id(5, 0))
	r.After = r.Before.Clone()
	for range rapid.IntRange(0, 8).Draw(t, "moves") {
		consumer := rapid.SampledFrom(slices.Sorted(maps.Keys(r.After))).Draw(t, "consumer")
		from, to := rapid.SampledFrom(places).Draw(t, "from"), rapid.SampledFrom(places).Draw(t, "to")
		held := slices.Sorted(maps.Keys(r.After[consumer].Resources[from]))
		if from == to || len(held) == 0 {
			continue
		}
		class := rapid.SampledFrom(held).Draw(t, "class")
		move := plugins.Move{Consumer: consumer, From: plugins.Place{Provider: from, Class: class},
			To:     plugins.Place{Provider: to, Class: class},
			Amount: rapid.Int64Range(1, r.After[consumer].Resources[from][class]).Draw(t, "amount")}
		r.After = must(plugins.Moves{move}.Apply(r.After))
	}
	// What moved did so because its place shrank.
	for consumer, c := range r.Before {
		for provider, amounts := range c.Resources {
			for class, n := range amounts {
				if r.After[consumer].Resources[provider][class] < n {
					must(r.Desired.SetInventory(provider, class, providertree.Inventory{Total: 50_000}))
				}
			}
		}
	}
	r.Base, r.Answer = r.Known, r.Desired
	return r
}

// TestGuardHonestMovesAlwaysPass: the guard accepts every correct move within the node.
func TestGuardHonestMovesAlwaysPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		if violations := violationsOf(randomNode(t)); len(violations) > 0 {
			t.Fatalf("the violations of a valid reshape: got %v, want none", violations)
		}
	})
}

// TestGuardFindsEveryFault: after honest moves, one random change of an amount, a consumer
// or an owner is found.
func TestGuardFindsEveryFault(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		r := randomNode(t)
		consumer := rapid.SampledFrom(slices.Sorted(maps.Keys(r.After))).Draw(t, "victim")
		resources := r.After[consumer].Resources
		provider := rapid.SampledFrom(slices.Sorted(maps.Keys(resources))).Draw(t, "provider")
		class := rapid.SampledFrom(slices.Sorted(maps.Keys(resources[provider]))).Draw(t, "class")
		n := resources[provider][class]
		what := rapid.SampledFrom([]string{
			"lost", "less", "invented", "doubled", "foreign", "sharing", "negative", "zero", "huge", "renamed",
			"stolen", "consumer lost", "consumer invented", "owner", "generation", "empty",
		}).Draw(t, "fault")
		delta := rapid.Int64Range(1, math.MaxInt64-n).Draw(t, "delta")
		switch what {
		case "lost":
			delete(resources[provider], class)
		case "less":
			resources[provider][class] = n - delta
		case "invented":
			resources[provider][class] = n + delta
		case "doubled":
			r.set(consumer, id(5, 0), "PCPU", n)
		case "foreign":
			delete(resources[provider], class)
			r.set(consumer, id(3, 7), class, n)
		case "sharing":
			if provider == gSharing {
				r.set(consumer, gOtherHost, class, resources[gOtherHost][class]+n)
			} else {
				delete(resources[provider], class)
				r.set(consumer, gSharing, class, resources[gSharing][class]+n)
			}
		case "negative":
			resources[provider][class] = -n
		case "zero":
			resources[provider][class] = 0
		case "huge":
			resources[provider][class] = math.MaxInt64
		case "renamed":
			delete(resources[provider], class)
			r.set(consumer, provider, "CUSTOM_OTHER", n)
		case "stolen": // the sum over all consumers stays
			delete(resources[provider], class)
			other := id(9, 99)
			r.After[other] =
				providertree.ConsumerAllocations{Resources: providertree.ProviderResources{provider: {class: n}}}
		case "consumer lost":
			delete(r.After, consumer)
		case "consumer invented":
			r.After[id(9, 98)] = r.After[consumer].Clone()
		case "owner":
			r.own(consumer, func(c *providertree.ConsumerAllocations) { c.UserID = "other" })
		case "generation":
			r.own(consumer, func(c *providertree.ConsumerAllocations) { *c.Generation++ })
		case "empty":
			resources[id(4, 77)] = map[string]int64{}
		}
		if len(violationsOf(r)) == 0 {
			t.Fatalf("%s passed", what)
		}
	})
}

func BenchmarkGuardReshape(b *testing.B) {
	r := vgpus()
	one, done := r.Before[id(9, 1)], r.After[id(9, 1)]
	must(r.Desired.SetInventory(id(4, 0), "VGPU", providertree.Inventory{Total: 100_000}))
	must(r.Desired.SetInventory(gNode.UUID, "VCPU", providertree.Inventory{Total: 100_000}))
	for n := range 1000 {
		r.Before[id(8, n)], r.After[id(8, n)] = one.Clone(), done.Clone()
	}
	b.ReportAllocs()
	for b.Loop() {
		if violations := violationsOf(r); len(violations) > 0 {
			b.Fatal(violations[0])
		}
	}
}
