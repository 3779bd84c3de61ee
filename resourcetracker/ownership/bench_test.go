// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// wide is a node of n children with a handful of items each, every tenth of them another client's,
// and the record of that.
func wide(b *testing.B, n int) (*providertree.Tree, *Record) {
	b.Helper()
	all := []providertree.Provider{{UUID: root, Name: "cn1", Generation: 1,
		Inventories: providertree.Inventories{"VCPU": {Total: 8}}}}
	r := &Record{Root: root, Node: "cn1", Driver: "fake"}
	for i := range n {
		p := providertree.Provider{UUID: uid(fmt.Sprint(i)), Name: fmt.Sprintf("cn1_%d", i),
			ParentUUID: root, Generation: 1,
			Inventories: providertree.Inventories{"VGPU": {Total: 4}, "CUSTOM_A": {Total: 1}},
			Traits:      []string{"CUSTOM_BY_HAND", "HW_A", "HW_B"}}
		all = append(all, p)
		if i%10 > 0 {
			r.setProvider(p, ours{owner: Driver, inventories: map[string]Owner{"VGPU": Driver, "CUSTOM_A": Operator},
				traits: map[string]Owner{"HW_A": Driver, "HW_B": Driver}})
		}
	}
	out := &providertree.Tree{}
	testproc.Check(b, out.Populate(all))
	return out, r
}

var sizes = []int{1_000, 10_000}

// BenchmarkMerge: "same" is a steady pass, "again" an answer that was built from nothing, without
// what others have.
func BenchmarkMerge(b *testing.B) {
	for _, n := range sizes {
		known, record := wide(b, n)
		base := Strip(known, record)
		var own []providertree.Provider
		for p := range base.All() {
			if record.provider(p.UUID).Owner == Driver || p.UUID == root {
				p.Traits = []string{"HW_A"}
				own = append(own, p)
			}
		}
		rebuilt := &providertree.Tree{}
		testproc.Check(b, rebuilt.Populate(own))
		for name, answer := range map[string]*providertree.Tree{"same": base.Clone(), "rebuilt": rebuilt} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					testproc.Try(
						Merge(Input{Root: root, Node: "cn1", Known: known, Base: base,
							Answer: answer, Record: record})).Or(b)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/provider")
			})
		}
	}
}

// BenchmarkDrain: "same" has nothing that shrinks, "all" takes away every child while it is
// allocated.
func BenchmarkDrain(b *testing.B) {
	for _, n := range sizes {
		known, _ := wide(b, n)
		bare := &providertree.Tree{}
		testproc.Check(b, bare.AddRoot(root, "cn1"))
		usages := providertree.ProviderResources{}
		for _, uuid := range known.UUIDs() {
			usages[uuid] = map[string]int64{"VGPU": 1}
		}
		for name, desired := range map[string]*providertree.Tree{"same": known, "all": bare} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := Drain(known, desired, usages, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/provider")
			})
		}
	}
}

func BenchmarkDrift(b *testing.B) {
	for _, n := range sizes {
		known, record := wide(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if drift := record.Drift(known); drift != nil {
					b.Fatal(drift)
				}
			}
		})
	}
}

// BenchmarkSave: what an fsync costs here decides it.
func BenchmarkSave(b *testing.B) {
	_, record := wide(b, 1_000)
	s := Open(b.TempDir())
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			record.Layout++
			testproc.Check(b, s.Save(record))
		}
	})
	b.Run("same", func(b *testing.B) {
		for b.Loop() {
			testproc.Check(b, s.Save(record))
		}
	})
}
