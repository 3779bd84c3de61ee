// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestFilledConsumersFitAnyhow: whichever provider of those with room a driver takes, and in
// whatever order, each consumer with all its classes on the same one, there is one for the last
// consumer too, unless the providers are of very different size; and on one there is none.
func TestFilledConsumersFitAnyhow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		base, r := reshapeOf(t)
		full := fill(base, r)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		ids := sortedKeys(full.given)
		random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		children := r.after.Subtree(base.root)[1:]
		used := map[plugins.Place]int64{}
		alone := map[string]int64{}
		fits := func(child string, want map[string]int64) bool {
			for class, n := range want {
				inv, _ := r.after.Inventory(child, class)
				inv = inv.Normalize()
				if n < inv.MinUnit || n > inv.MaxUnit ||
					n%inv.StepSize != 0 || used[plugins.Place{Provider: child, Class: class}]+n > inv.Capacity() {
					return false
				}
			}
			return true
		}
		for _, id := range ids {
			want := full.given[id].Resources[base.root]
			placed := false
			for _, i := range random.Perm(len(children)) {
				if placed = fits(children[i], want); placed {
					for class, n := range want {
						used[plugins.Place{Provider: children[i], Class: class}] += n
					}
					break
				}
			}
			if !placed {
				t.Fatalf("consumer %s with %v finds no place: %v", id, want, used)
			}
			for class, n := range want {
				alone[class] += n
			}
		}
		overflows := false
		for class, n := range alone {
			one := true
			for _, child := range children {
				inv, _ := r.after.Inventory(child, class)
				one = one && n > inv.Capacity()
			}
			overflows = overflows || one
		}
		if full.decisive != overflows {
			t.Fatalf("telling: %v, all on one do not fit: %v (%v)", full.decisive, overflows, alone)
		}
	})
}

// reshapeOf is one from a flat tree to children of about the same size that have all classes.
func reshapeOf(t *rapid.T) (*baseline, *reshaped) {
	root := consumerName(1000)
	base := &baseline{node: "cn1", root: root, own: &providertree.Tree{}}
	e := &editor{tree: base.own}
	e.root(root, "cn1")
	kinds := map[string]providertree.Inventory{}
	for _, class := range []string{"VCPU", "MEMORY_MB", "VGPU"}[:rapid.IntRange(1, 3).Draw(t, "classes")] {
		kinds[class] = providertree.Inventory{
			Total:           rapid.Int64Range(10, 1000).Draw(t, "total"),
			AllocationRatio: float64(rapid.IntRange(1, 4).Draw(t, "ratio")),
			MaxUnit:         rapid.Int64Range(8, 1000).Draw(t, "max"), MinUnit: rapid.Int64Range(1, 2).Draw(t, "min"),
			StepSize: rapid.Int64Range(1, 2).Draw(t, "step"),
		}
	}
	for i := range rapid.IntRange(2, 5).Draw(t, "children") {
		id := consumerName(2000 + i)
		e.child(root, id, "cn1_"+id)
		for class, inv := range kinds {
			inv.Total += rapid.Int64Range(0, inv.Total/20).Draw(t, "more")
			_, err := base.own.SetInventory(id, class, inv)
			e.setError(err)
		}
	}
	if e.err != nil {
		t.Fatal(e.err)
	}
	before := testproc.Try(base.flat()).Or(t)
	return base, &reshaped{before: before, after: base.own.Clone()}
}
