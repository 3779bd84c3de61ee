// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	rootID = "00000000-0000-0000-0000-00000000000f"
	gpu0   = "00000000-0000-0000-0000-000000000000"
	gpu1   = "00000000-0000-0000-0000-000000000001"
)

// gpus is a node with VGPUs on two children.
func gpus(t testing.TB, inventories ...providertree.Inventory) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	err := tree.AddRoot(rootID, "cn1")
	for i, inv := range inventories {
		uuid := []string{gpu0, gpu1}[i]
		err = errors.Join(err, tree.AddChild(rootID, uuid, "cn1_"+uuid))
		_, problem := tree.SetInventory(uuid, "VGPU", inv)
		err = errors.Join(err, problem)
	}
	testproc.Check(t, err)
	return tree
}

func vgpus(onRoot map[string]int64) held {
	out := held{}
	for consumer, n := range onRoot {
		out[consumer] = providertree.ProviderResources{rootID: {"VGPU": n, "VCPU": 1}}
	}
	return out
}

var vgpuOnRoot, vgpuOn0, vgpuOn1 = Place{rootID, "VGPU"}, Place{gpu0, "VGPU"}, Place{gpu1, "VGPU"}

func TestDistribute(t *testing.T) {
	size := func(total int64) providertree.Inventory { return providertree.Inventory{Total: total} }
	for _, tc := range []struct {
		name        string
		inventories []providertree.Inventory
		before      held
		d           Distribution
		want        Moves
		fails       []Violation
	}{
		{
			name:        "the largest first, each where the least stays free",
			inventories: []providertree.Inventory{size(4), size(3)},
			before:      vgpus(map[string]int64{"a": 1, "b": 3, "c": 3}),
			want: Moves{{"b", vgpuOnRoot, vgpuOn1, 3}, {"c", vgpuOnRoot, vgpuOn0, 3},
				{"a", vgpuOnRoot, vgpuOn0, 1}},
		},
		{
			name: "used amounts are not free", inventories: []providertree.Inventory{size(2), size(2)},
			before: held{"a": {gpu0: {"VGPU": 1}}, "b": {rootID: {"VGPU": 2}}},
			want:   Moves{{"b", vgpuOnRoot, vgpuOn1, 2}},
		},
		{
			name:        "overcommitted",
			inventories: []providertree.Inventory{{Total: 2, Reserved: 1, AllocationRatio: 4}, size(1)},
			before:      vgpus(map[string]int64{"a": 4}), want: Moves{{"a", vgpuOnRoot, vgpuOn0, 4}},
		},
		{
			name: "split only if it must be", inventories: []providertree.Inventory{size(2), size(3)},
			before: vgpus(map[string]int64{"a": 4}),
			want:   Moves{{"a", vgpuOnRoot, vgpuOn1, 3}, {"a", vgpuOnRoot, vgpuOn0, 1}},
		},
		{
			name: "not split if it must not be", inventories: []providertree.Inventory{size(2), size(3)},
			before: vgpus(map[string]int64{"a": 4}), d: Distribution{Whole: true},
			fails: []Violation{{"a", rootID, "VGPU", "4 are allocated, and they do not fit on one provider", ""}},
		},
		{
			name:        "units",
			inventories: []providertree.Inventory{{Total: 9, MaxUnit: 4, StepSize: 2}, {Total: 9, MinUnit: 3}},
			before:      vgpus(map[string]int64{"a": 2, "b": 5}),
			want:        Moves{{"b", vgpuOnRoot, vgpuOn1, 5}, {"a", vgpuOnRoot, vgpuOn0, 2}},
		},
		{
			name:        "the driver reports the place, whatever is free there",
			inventories: []providertree.Inventory{size(1), size(4)},
			before:      vgpus(map[string]int64{"a": 1, "b": 2, "c": 2}),
			d: Distribution{Where: func(consumer string, n int64) []Portion {
				return map[string][]Portion{"b": {{vgpuOn0, n}}, "c": {{vgpuOn0, 1}, {vgpuOn1, 1}}}[consumer]
			}},
			want: Moves{{"b", vgpuOnRoot, vgpuOn0, 2}, {"c", vgpuOnRoot, vgpuOn0, 1}, {"c", vgpuOnRoot, vgpuOn1, 1},
				{"a", vgpuOnRoot, vgpuOn1, 1}},
		},
		{
			name: "all violations", inventories: []providertree.Inventory{size(1), size(1)},
			before: vgpus(map[string]int64{"a": 3, "b": 2, "c": 2, "d": 2}),
			d: Distribution{Where: func(consumer string, _ int64) []Portion {
				return map[string][]Portion{"b": {{vgpuOnRoot, 2}}, "c": {{vgpuOn0, 1}}, "d": {{vgpuOn0, 3}}}[consumer]
			}},
			fails: []Violation{
				{"b", rootID, "VGPU", "the driver reports the consumer's share here, which is not a destination", ""},
				{"c", rootID, "VGPU", "2 are allocated, and the driver reports only 1 at the destinations", ""},
				{"d", rootID, "VGPU", "2 are allocated, and the driver reports other amounts at the destinations", ""},
				{"a", rootID, "VGPU", "3 are allocated, and only 2 fit", ""},
			},
		},
		{
			name: "a place without inventory, and the place itself", inventories: []providertree.Inventory{size(9)},
			before: vgpus(map[string]int64{"a": 1}), d: Distribution{To: []Place{vgpuOn0, vgpuOn1, vgpuOnRoot}},
			fails: []Violation{
				{"", gpu1, "VGPU", "the destination has no inventory of this class", ""},
				{"", rootID, "VGPU", "source and destination are the same", ""},
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.d
			d.From = vgpuOnRoot
			if d.To == nil {
				d.To = []Place{vgpuOn0, vgpuOn1, vgpuOn0}
			}
			got, err := d.Distribute(gpus(t, tc.inventories...), tc.before.allocations())
			var failed *ReshapeFailed
			switch {
			case tc.fails == nil && err != nil:
				t.Fatal(err)
			case tc.fails != nil:
				if !errors.As(err, &failed) {
					t.Fatalf("%v, %v", got, err)
				}
				testproc.Same(t, cmp.Diff(tc.fails, failed.Violations))
				return
			}
			testproc.Same(t, cmp.Diff(tc.want, got))
		})
	}
}

// TestDistributeFits: what is distributed is conserved, fits, comes out the same each time, and
// leaves nothing to do.
func TestDistributeFits(t *testing.T) {
	inventory := rapid.Custom(func(t *rapid.T) providertree.Inventory {
		return providertree.Inventory{
			Total: rapid.Int64Range(1, 20).Draw(t, "total"), MaxUnit: rapid.Int64Range(1, 20).Draw(t, "max"),
			MinUnit: rapid.Int64Range(1, 3).Draw(t, "min"), StepSize: rapid.Int64Range(1, 3).Draw(t, "step"),
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		tree := gpus(t, inventory.Draw(rt, "gpu0"), inventory.Draw(rt, "gpu1"))
		before := vgpus(rapid.MapOfN(rapid.StringMatching(`c[0-9]`), rapid.Int64Range(1, 8), 0, 8).Draw(rt, "held")).
			allocations()
		d := Distribution{From: vgpuOnRoot, To: []Place{vgpuOn0, vgpuOn1}, Whole: rapid.Bool().Draw(rt, "whole")}
		moves, err := d.Distribute(tree, before)
		again, _ := d.Distribute(tree, before)
		if diff := cmp.Diff(moves, again); diff != "" {
			rt.Fatalf("not the same again: %s", diff)
		}
		if err != nil {
			return
		}
		after := testproc.Try(moves.Apply(before)).Or(rt)
		checkConserved(rt, before, after)
		for _, at := range d.To {
			p, _ := tree.Provider(at.Provider)
			inv := p.Inventories["VGPU"]
			if used := after.Used(at.Provider)["VGPU"]; used > inv.Capacity() {
				rt.Fatalf("%d in use of %d", used, inv.Capacity())
			}
			for consumer, c := range after {
				if n := c.Resources[at.Provider]["VGPU"]; n != 0 &&
					(n < inv.MinUnit || n > inv.MaxUnit || n%inv.StepSize != 0) {
					rt.Fatalf("%s holds %d, allowed are %+v", consumer, n, inv)
				}
			}
		}
		if rest, err := d.Distribute(tree, after); err != nil || len(rest) > 0 {
			rt.Fatalf("once more: %v, %v", rest, err)
		}
	})
}
