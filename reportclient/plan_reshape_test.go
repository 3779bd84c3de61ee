// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func gone(provider int) edit {
	return func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Remove(id(provider))).Or(t) }
}

func allocations(holds map[int]resources) providertree.Allocations {
	generation := int64(4)
	out := providertree.Allocations{}
	for consumer, r := range holds {
		out[id(consumer)] = providertree.ConsumerAllocations{Resources: r.byUUID(),
			Generation: &generation, ProjectID: "p", UserID: "u"}
	}
	return out
}

// moved is a child of gpu0.
const moved = 4

// knownTree is a node with VGPU on the root and on one child, beside shared storage.
func knownTree(t *testing.T) *providertree.Tree {
	t.Helper()
	tr := &providertree.Tree{}
	ok(t, tr.Populate([]providertree.Provider{
		{UUID: id(cn1), Name: "cn1", Generation: 7,
			Inventories: providertree.Inventories{"VCPU": {Total: 8}, "VGPU": {Total: 4}},
			Aggregates:  []string{id(aggregate)}},
		{UUID: id(gpu0), Name: "cn1_gpu", ParentUUID: id(cn1), Generation: 3,
			Inventories: providertree.Inventories{"VGPU": {Total: 2}}},
		{UUID: id(moved), Name: "cn1_gpu_vf", ParentUUID: id(gpu0), Generation: 1},
		{UUID: id(nfs), Name: "nfs", Generation: 50, Inventories: providertree.Inventories{"DISK_GB": {Total: 1000}},
			Traits: []string{"MISC_SHARES_VIA_AGGREGATE"}},
	}))
	return tr
}

// TestReshapePlan shows what is part of a reshape, and where it stands in the plan.
func TestReshapePlan(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cases := []struct {
		name   string
		claims map[int]resources
		edits  []edit
		moves  []move
		want   []string
	}{
		{name: "nothing"},
		{
			name: "what does not move is written as in any plan", claims: map[int]resources{alice: {cn1: {"VGPU": 1}}},
			edits: []edit{inventory(cn1, "VCPU", providertree.Inventory{Total: 4})},
			want:  []string{"set the inventory of cn1: VCPU total 8→4"},
		},
		{
			name: "capacity that moves does so in one step also when no consumer holds any of it",
			edits: []edit{inventory(cn1, "VGPU", providertree.Inventory{Total: 2}),
				inventory(gpu0, "VGPU", providertree.Inventory{Total: 4})},
			want: []string{"reshape cn1: VGPU total 4→2; cn1_gpu: VGPU total 2→4; with the allocations of 0 consumers"},
		},
		{
			name:   "a provider that goes is emptied by the reshape and deleted after it",
			claims: map[int]resources{alice: {gpu0: {"VGPU": 1}}, bob: {cn1: {"VCPU": 1}}},
			edits: []edit{gone(moved), gone(gpu0),
				inventory(cn1, "VGPU", providertree.Inventory{Total: 6}), traits(cn1, "CUSTOM_FLAT")},
			moves: []move{{alice, gpu0, "VGPU", cn1, "VGPU", 1}},
			want: []string{
				"ensure that trait CUSTOM_FLAT exists",
				"set the traits of cn1: +CUSTOM_FLAT",
				"reshape cn1: VGPU total 4→6; cn1_gpu: -VGPU; with the allocations of 1 consumer",
				"delete resource provider cn1_gpu_vf (#4)",
				"delete resource provider cn1_gpu (#2)",
			},
		},
		{
			name:   "a new provider takes over the name of one that goes",
			claims: map[int]resources{alice: {gpu0: {"VGPU": 1}}},
			edits: []edit{gone(gpu0), child(cn1, gpu1, "cn1_gpu"),
				inventory(gpu1, "VGPU", providertree.Inventory{Total: 2})},
			moves: []move{{alice, gpu0, "VGPU", gpu1, "VGPU", 1}},
			want: []string{
				"create resource provider #3 (#3) below #1",
				"reshape cn1_gpu: +VGPU 2; cn1_gpu: -VGPU; with the allocations of 1 consumer",
				"delete resource provider cn1_gpu_vf (#4)",
				"delete resource provider cn1_gpu (#2)",
				"update resource provider cn1_gpu (#3): name #3→cn1_gpu",
			},
		},
		{
			name:   "a child is moved out of a provider that goes, and takes over its name",
			claims: map[int]resources{alice: {gpu0: {"VGPU": 1}}},
			edits: []edit{
				func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Move(id(moved), id(cn1))).Or(t) },
				gone(gpu0),
				func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Rename(id(moved), "cn1_gpu")).Or(t) },
				inventory(cn1, "VGPU", providertree.Inventory{Total: 6}),
			},
			moves: []move{{alice, gpu0, "VGPU", cn1, "VGPU", 1}},
			want: []string{
				"update resource provider cn1_gpu_vf (#4): parent #2→#1",
				"reshape cn1: VGPU total 4→6; cn1_gpu: -VGPU; with the allocations of 1 consumer",
				"delete resource provider cn1_gpu (#2)",
				"update resource provider cn1_gpu (#4): name cn1_gpu_vf→cn1_gpu",
			},
		},
		{
			name: "renames and moves come before the reshape", claims: map[int]resources{alice: {gpu0: {"VGPU": 1}}},
			edits: []edit{
				func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Rename(id(gpu0), "cn1_gpu_0")).Or(t) },
				noInventory(gpu0, "VGPU"), inventory(moved, "VGPU", providertree.Inventory{Total: 2}),
			},
			moves: []move{{alice, gpu0, "VGPU", moved, "VGPU", 1}},
			want: []string{
				"update resource provider cn1_gpu_0 (#2): name cn1_gpu→cn1_gpu_0",
				"reshape cn1_gpu_0: -VGPU; cn1_gpu_vf: +VGPU 2; with the allocations of 1 consumer",
			},
		},
		{
			name:   "what was closed has capacity again in the reshape that moves its allocations",
			claims: map[int]resources{alice: {cn1: {"VCPU": 2}, gpu0: {"VGPU": 2}}},
			edits: []edit{
				inventory(cn1, "VGPU", providertree.Inventory{Total: 5}), noInventory(cn1, "VCPU"),
				inventory(moved, "VCPU", providertree.Inventory{Total: 8}),
				inventory(gpu0, "VGPU", providertree.Inventory{Total: 3}),
			},
			moves: []move{{alice, cn1, "VCPU", moved, "VCPU", 2}},
			want: []string{
				"reshape cn1: -VCPU, VGPU total 4→5; cn1_gpu: VGPU total 2→3; cn1_gpu_vf: +VCPU 8; with the " +
					"allocations of 1 consumer",
			},
		},
		{
			name: "a custom class exists before it is moved to", claims: map[int]resources{alice: {gpu0: {"VGPU": 1}}},
			edits: []edit{noInventory(gpu0, "VGPU"), inventory(gpu0, "CUSTOM_A40", providertree.Inventory{Total: 2})},
			moves: []move{{alice, gpu0, "VGPU", gpu0, "CUSTOM_A40", 1}},
			want: []string{
				"ensure that resource class CUSTOM_A40 exists",
				"reshape cn1_gpu: +CUSTOM_A40 2, -VGPU; with the allocations of 1 consumer",
			},
		},
		{
			name:   "allocations that move between inventories that stay",
			claims: map[int]resources{alice: {cn1: {"VGPU": 1, "VCPU": 2}}},
			moves:  []move{{alice, cn1, "VGPU", gpu0, "VGPU", 1}},
			want:   []string{"reshape cn1: inventory unchanged; with the allocations of 1 consumer"},
		},
		{
			name:   "they name a provider on which an amount changes, where no inventory moves",
			claims: map[int]resources{alice: {cn1: {"VCPU": 2}, gpu0: {"VGPU": 1}}},
			moves:  []move{{alice, gpu0, "VGPU", moved, "VGPU", 1}},
			want:   []string{"reshape cn1_gpu: inventory unchanged; with the allocations of 1 consumer"},
		},
		{
			name:   "what only grows, or only shrinks, does not move",
			claims: map[int]resources{alice: {cn1: {"VGPU": 1}}},
			edits: []edit{
				inventory(cn1, "VGPU", providertree.Inventory{Total: 4, Reserved: 1}),
				inventory(gpu0, "VGPU", providertree.Inventory{Total: 2, MaxUnit: 1}),
				inventory(cn1, "VCPU", providertree.Inventory{Total: 16}),
				inventory(gpu0, "VCPU", providertree.Inventory{Total: 1}),
			},
			want: []string{
				"set the inventory of cn1_gpu: +VCPU 1, VGPU max_unit 2147483647→1",
				"set the inventory of cn1: VCPU total 8→16, VGPU reserved 0→1",
			},
		},
		{
			name:   "what grows on one provider and keeps its capacity on another does not move",
			claims: map[int]resources{alice: {cn1: {"VGPU": 1}}},
			edits: []edit{
				inventory(cn1, "VGPU", providertree.Inventory{Total: 5}),
				inventory(gpu0, "VGPU", providertree.Inventory{Total: 2, MaxUnit: 1}),
			},
			want: []string{"set the inventory of cn1_gpu: VGPU max_unit 2147483647→1",
				"set the inventory of cn1: VGPU total 4→5"},
		},
		{
			name:   "a sharing provider is written to if a driver changed it",
			claims: map[int]resources{alice: {nfs: {"DISK_GB": 10}, cn1: {"VCPU": 1}}},
			edits: []edit{inventory(nfs, "DISK_GB", providertree.Inventory{Total: 900}),
				inventory(cn1, "DISK_GB", providertree.Inventory{Total: 100})},
			moves: []move{{alice, nfs, "DISK_GB", cn1, "DISK_GB", 10}},
			want: []string{"reshape cn1: +DISK_GB 100; nfs: DISK_GB total 1000→900; with the allocations " +
				"of 1 consumer"},
		},
		{name: "and never deleted", claims: map[int]resources{alice: {cn1: {"VCPU": 1}}}, edits: []edit{gone(nfs)}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			known := knownTree(t)
			desired := known.Clone()
			for _, e := range c.edits {
				e(t, desired)
			}
			before := allocations(c.claims)
			after := before.Clone()
			for _, m := range c.moves {
				m.apply(after)
			}
			testproc.Same(t, cmp.Diff(c.want, lines(reportclient.NewReshapePlan(known, desired, before, after))))
			if len(c.moves) == 0 { // without allocations it is the plan of any pass
				if d := cmp.Diff(lines(reportclient.NewPlan(known, desired)),
					lines(reportclient.NewReshapePlan(known, desired, nil, nil))); d != "" {
					t.Errorf("(-NewPlan +NewReshapePlan without allocations)\n%s", d)
				}
			}
		})
	}
}

// oneMove is a reshape of one consumer, with a driver that meddled with more than it may.
func oneMove(t *testing.T) reportclient.Operation {
	t.Helper()
	known := knownTree(t)
	desired := known.Clone()
	noInventory(gpu0, "VGPU")(t, desired)
	inventory(cn1, "VGPU", providertree.Inventory{Total: 6})(t, desired)
	before := allocations(map[int]resources{alice: {gpu0: {"VGPU": 1}, nfs: {"DISK_GB": 10}}, bob: {gpu0: {"VGPU": 1}}})
	after := before.Clone()
	move{alice, gpu0, "VGPU", cn1, "VGPU", 1}.apply(after)
	delete(after, id(bob))
	meddled := after[id(alice)]
	forged := int64(99)
	meddled.Generation, meddled.ProjectID, meddled.UserID, meddled.ConsumerType = &forged, "mine", "me", "INSTANCE"
	after[id(alice)] = meddled
	plan := reportclient.NewReshapePlan(known, desired, before, after)
	if len(plan.Operations) != 1 || plan.Operations[0].Kind != reportclient.ReshapeTree {
		t.Fatal(lines(plan))
	}
	return plan.Operations[0]
}

// TestReshapeAsJSON is the form of journals and of `plan --output json`. The owner and the
// generation are those that were read, amounts of 0 are left out, and a consumer that the driver
// did not give back is not part of it. What is held elsewhere has a name.
func TestReshapeAsJSON(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	op := oneMove(t)
	got := testproc.Try(json.MarshalIndent(op.Reshape, "", "  ")).Or(t)
	golden.Text(t, "testdata/reshape.json", string(got)+"\n")
	var back reportclient.Reshape
	ok(t, json.Unmarshal(got, &back))
	testproc.Samef(t, cmp.Diff(*op.Reshape, back), "written and read back")
	former := strings.Replace(string(got), `,
  "names": {
    "00000000-0000-4000-8000-000000000009": "nfs"
  }`, "", 1) // as versions wrote it that knew of no names
	var unnamed reportclient.Reshape
	ok(t, json.Unmarshal([]byte(former), &unnamed))
	want := *op.Reshape
	want.Names = nil
	testproc.Samef(t, cmp.Diff(want, unnamed), "written by a former version")
	var shown struct {
		Operation string
		Reshape   *reportclient.Reshape
	}
	asOperation, err := json.Marshal(op)
	ok(t, err, json.Unmarshal(asOperation, &shown))
	if shown.Operation != "reshape" || shown.Reshape == nil {
		t.Errorf("the operation is shown as %s", asOperation)
	}
}

// TestFormerReshape: with the request that was posted it is the whole reshape again; with another
// one it is an error.
func TestFormerReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	reshape := oneMove(t).Reshape
	request := testproc.Try(reshape.Request()).Or(t)
	back := reshape.WithoutRequest()
	ok(t, back.FillFromRequest(request))
	again := testproc.Try(back.Request()).Or(t)
	if string(again) != string(request) {
		t.Errorf("the request is %s, and was %s", again, request)
	}
	testproc.Samef(t, cmp.Diff(reshape.Inverse(), back.Inverse()), "inverse")
	for text, says := range map[string]string{
		string(request[1:]):   "invalid character",
		`{"inventories": {}}`: "resource provider " + id(cn1),
		strings.ReplaceAll(string(request), id(alice), id(bob)): "consumer " + id(alice),
	} {
		testproc.ErrorHas(t, reshape.WithoutRequest().FillFromRequest([]byte(text)), says, "%.40s: got %v", text)
	}
}

// TestNamesOfAReshape: whatever a consumer of it holds from has a name if it is in the tree, before
// or after. Another host's has none.
func TestNamesOfAReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const elsewhere = 77
	known := knownTree(t)
	desired := known.Clone()
	child(cn1, gpu1, "cn1_gpu_1")(t, desired)
	inventory(gpu1, "VCPU", providertree.Inventory{Total: 4})(t, desired)
	gone(moved)(t, desired)
	before := allocations(
		map[int]resources{alice: {cn1: {"VGPU": 1}, gpu0: {"VGPU": 1}, nfs: {"DISK_GB": 10}, moved: {"VCPU": 1},
			elsewhere: {"VCPU": 1}}, bob: {nfs: {"DISK_GB": 1}}})
	after := before.Clone()
	move{alice, moved, "VCPU", gpu1, "VCPU", 1}.apply(after)
	plan := reportclient.NewReshapePlan(known, desired, before, after)
	reshape := plan.Operations[slices.IndexFunc(plan.Operations,
		func(op reportclient.Operation) bool { return op.Reshape != nil })].Reshape
	named := map[string]string{}
	for _, p := range reshape.Providers {
		named[p.UUID] = p.Name
	}
	if d := cmp.Diff(map[string]string{id(gpu1): "cn1_gpu_1"}, named); d != "" {
		t.Fatalf("providers (-want +got)\n%s", d)
	}
	if d := cmp.Diff(map[string]string{id(cn1): "cn1", id(gpu0): "cn1_gpu", id(moved): "cn1_gpu_vf", id(nfs): "nfs"},
		reshape.Names); d != "" {
		t.Errorf("names of the others (-want +got)\n%s", d)
	}
}

// TestInverse: it carries the generations that hold after the reshape, and the inverse of the
// inverse is the reshape but for those.
func TestInverse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	reshape := oneMove(t).Reshape
	inverse := reshape.Inverse()
	// inventories twice and allocations; inventories once
	for i, want := range []int64{7 + 3, 3 + 1} {
		testproc.Equal(t, inverse.Providers[i].Generation, want, "generation of %s: %d", inverse.Providers[i].Name)
	}
	testproc.Equal(t, *inverse.Consumers[0].Generation, 5, "generation of the consumer: %d")
	twice := inverse.Inverse()
	for i := range twice.Providers {
		twice.Providers[i].Generation = reshape.Providers[i].Generation
	}
	for i := range twice.Consumers {
		twice.Consumers[i].Generation = reshape.Consumers[i].Generation
	}
	testproc.Samef(t, cmp.Diff(reshape, twice), "(-reshape +inverse of the inverse)")
}

// BenchmarkPlanReshape is 64 GPUs and 512 guests.
func BenchmarkPlanReshape(b *testing.B) {
	known := &providertree.Tree{}
	providers := []providertree.Provider{{UUID: id(0),
		Name: "root", Inventories: providertree.Inventories{"VCPU": {Total: 1000}, "VGPU": {Total: 512}}}}
	claims := map[int]resources{}
	for i := range 512 {
		claims[1000+i] = resources{0: {"VCPU": 1, "VGPU": 1}}
	}
	before := allocations(claims)
	testproc.Check(b, known.Populate(providers))
	desired, after := known.Clone(), before.Clone()
	testproc.Try(desired.RemoveInventory(id(0), "VGPU")).Or(b)
	for i := range 64 {
		testproc.Check(b, desired.AddChild(id(0), id(1+i), id(1+i)))
		testproc.Try(desired.SetInventory(id(1+i), "VGPU", providertree.Inventory{Total: 8})).Or(b)
	}
	for i := range 512 {
		move{1000 + i, 0, "VGPU", 1 + i/8, "VGPU", 1}.apply(after)
	}
	b.ReportAllocs()
	for b.Loop() {
		if reportclient.NewReshapePlan(known, desired, before, after).Empty() {
			b.Fatal("an empty plan")
		}
	}
}
