// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
)

// TestCheckLetsHonestEditsPass: whatever a driver does to its own with the methods of a tree.
func TestCheckLetsHonestEditsPass(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		before := nodeAndPool(t)
		after := before.Clone()
		own := func() string {
			return rapid.SampledFrom(after.Subtree(rootUUID)).Draw(rt, "provider")
		}
		must := func(_ any, err error) {
			if err != nil {
				rt.Fatal(err)
			}
		}
		class := rapid.StringMatching(`(CUSTOM_)?[A-Z][A-Z0-9_]{0,20}`).
			Filter(func(s string) bool { return s != "CUSTOM_" })
		for i := range rapid.IntRange(0, 20).Draw(rt, "edits") {
			switch rapid.IntRange(0, 6).Draw(rt, "edit") {
			case 0:
				must(nil, after.AddChild(own(), childUUID(1000+i), fmt.Sprint("cn1_new_", i)))
			case 1:
				total := rapid.Int64Range(1, math.MaxInt32).Draw(rt, "total")
				low := rapid.Int64Range(0, math.MaxInt32).Draw(rt, "min")
				must(after.SetInventory(own(), class.Draw(rt, "class"), providertree.Inventory{
					Total: total, Reserved: rapid.Int64Range(0, total).Draw(rt, "reserved"), MinUnit: low,
					MaxUnit:         rapid.Int64Range(max(low, 1), math.MaxInt32).Draw(rt, "max"),
					StepSize:        rapid.Int64Range(0, math.MaxInt32).Draw(rt, "step"),
					AllocationRatio: rapid.Float64Range(1.1754944e-38, 3.4e38).Draw(rt, "ratio")}))
			case 2:
				must(after.AddTraits(own(), class.Draw(rt, "trait")))
			case 3:
				must(after.AddAggregates(own(), poolUUID))
			case 4:
				if p := own(); p != rootUUID {
					must(after.Remove(p))
				}
			case 5:
				if p := own(); p != rootUUID {
					must(after.Rename(p, fmt.Sprintf("%s ä cn1 %d", p, i)))
				}
			case 6:
				if p, to := own(), own(); p != rootUUID && !slices.Contains(after.Subtree(p), to) {
					must(after.Move(p, to))
				}
			}
		}
		if err := providertree.Check(before, after, "cn1").Err(); err != nil {
			rt.Fatal(err)
		}
	})
}

// largeTrees are n providers in layouts that are slow to check for a careless check.
var largeTrees = map[string]func(n int) []provider{
	"chain": func(n int) []provider {
		out := []provider{provided(rootUUID, "cn1", "", 7)}
		for i := 1; i < n; i++ {
			out = append(out, provided(childUUID(i), fmt.Sprint("cn1_", i), out[i-1].UUID, -1))
		}
		return out
	},
	"chain from its end": func(n int) []provider {
		out := []provider{provided(rootUUID, "cn1", "", 7)}
		for i := 1; i < n; i++ {
			parent := childUUID(i + 1)
			if i == n-1 {
				parent = rootUUID
			}
			out = append(out, provided(childUUID(i), fmt.Sprint("cn1_", i), parent, -1))
		}
		return out
	},
	"loop": func(n int) []provider {
		out := []provider{provided(rootUUID, "cn1", "", 7)}
		for i := 1; i < n; i++ {
			out = append(out, provided(childUUID(i), fmt.Sprint("cn1_", i), childUUID(i%(n-1)+1), -1))
		}
		return out
	},
	"siblings": func(n int) []provider {
		out := []provider{provided(rootUUID, "cn1", "", 7)}
		for i := 1; i < n; i++ {
			out = append(out, provided(childUUID(i), fmt.Sprint("cn1_", i), rootUUID, -1))
		}
		return out
	},
	"one name": func(n int) []provider {
		out := []provider{provided(rootUUID, "cn1", "", 7)}
		for i := 1; i < n; i++ {
			out = append(out, provided(childUUID(i), "cn1_1", rootUUID, -1))
		}
		return out
	},
}

// TestLargeTreesAreCheckedInTime: 50,000 providers, of which only the siblings are a tree that a
// machine could have. A check that compared each with each, or walked to the root from each, would
// not end before the test's deadline.
func TestLargeTreesAreCheckedInTime(t *testing.T) {
	t.Parallel()
	const n = 50_000
	before, err := treeOf([]provider{givenRoot()})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"chain": "levels below its root", "chain from its end": "levels below its root",
		"loop": "in a loop of 49999 providers", "siblings": "", "one name": "its name is also that of",
	} {
		err := edited(before, largeTrees[name](n))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 10_000):
			t.Errorf("%s: %.1000v", name, err)
		}
	}
}

// BenchmarkCheck is a tree of the design limit, and one ten times as large, made and checked as the
// host makes and checks what a driver answers. The time for each provider must not depend on their
// number.
func BenchmarkCheck(b *testing.B) {
	before, err := treeOf([]provider{givenRoot()})
	if err != nil {
		b.Fatal(err)
	}
	for name, make := range largeTrees {
		for _, n := range []int{1000, 10_000} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				after := make(n)
				b.ReportAllocs()
				for b.Loop() {
					_ = edited(before, after)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/provider")
			})
		}
	}
}
