// SPDX-License-Identifier: Apache-2.0

package pmap

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Each container is checked against Go's own map, along a random history of
// changes, with and without an owner; every version ever made must still hold
// what it held when it was made.

func TestMapAgainstModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m     StringMap[int]
			model map[string]int
		}
		var kept []version
		var m StringMap[int]
		model := map[string]int{}
		var owner *Owner
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			key := fmt.Sprint("k", rapid.IntRange(0, 120).Draw(t, "key"))
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0: // a version is handed to readers: the owner ends
				kept = append(kept, version{m, maps.Clone(model)})
				owner = nil
				if rapid.Bool().Draw(t, "owned") {
					owner = new(Owner)
				}
			case 1, 2, 3:
				m = m.Delete(owner, key)
				delete(model, key)
			default:
				v := rapid.Int().Draw(t, "value")
				m = m.Set(owner, key, v)
				model[key] = v
			}
		}
		for _, v := range append(kept, version{m, model}) {
			if diff := cmp.Diff(v.model, maps.Collect(v.m.All())); diff != "" {
				t.Fatal(diff)
			}
			if v.m.Len() != len(v.model) {
				t.Fatalf("Len %d, want %d", v.m.Len(), len(v.model))
			}
			for i := range 121 {
				key := fmt.Sprint("k", i)
				got, ok := v.m.Get(key)
				want, wantOK := v.model[key]
				if got != want || ok != wantOK {
					t.Fatalf("Get(%s) = %d, %v, want %d, %v", key, got, ok, want, wantOK)
				}
			}
		}
	})
}

// TestMapCollisions: keys whose hashes agree in every bit share a list below all levels; the last
// of them moves up to the root.
func TestMapCollisions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const hash = 42
	var root *mapNode[int]
	for i := range 5 {
		root, _ = root.set(nil, fmt.Sprint(i), hash, i, trieMaxShift)
	}
	for shift := trieMaxShift - trieBits; shift >= 0; shift -= trieBits {
		root = &mapNode[int]{kidBits: 1 << (hash >> shift & trieMask), children: []*mapNode[int]{root}}
	}
	root, added := root.set(nil, "3", hash, 30, 0)
	if added {
		t.Error("an existing key was added")
	}
	if root, added = root.set(nil, "5", hash, 5, 0); !added {
		t.Error("a new key was not added")
	}
	model := map[string]int{"0": 0, "1": 1, "2": 2, "3": 30, "4": 4, "5": 5}
	for _, key := range []string{"2", "5", "0", "3", "1"} {
		before := StringMap[int]{root: root, n: len(model)}
		root = root.delete(nil, key, hash, 0)
		testproc.Samef(t, cmp.Diff(model, maps.Collect(before.All())), "deleting %s changed the map before", key)
		delete(model, key)
		after := StringMap[int]{root: root, n: len(model)}
		testproc.Samef(t, cmp.Diff(model, maps.Collect(after.All())), "deleting %s", key)
		for i := range 7 {
			key := fmt.Sprint(i)
			got, ok := after.get(key, hash)
			if want, wantOK := model[key]; got != want || ok != wantOK {
				t.Errorf("key %s is %d, %v, want %d, %v", key, got, ok, want, wantOK)
			}
		}
	}
	if len(root.entries) != 1 {
		t.Errorf("the last key is not in the root: %+v", root)
	}
	if root = root.delete(nil, "4", hash, 0); root != nil {
		t.Errorf("a node is left: %+v", root)
	}
}

func TestIntMapAgainstModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m     IntMap[int]
			model map[int64]int
		}
		var kept []version
		var m IntMap[int]
		model := map[int64]int{}
		var owner *Owner
		keys := rapid.OneOf(rapid.Int64Range(0, 40), rapid.Int64Range(1000, 1100), rapid.Int64Min(0))
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			key := keys.Draw(t, "key")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				kept = append(kept, version{m, maps.Clone(model)})
				owner = nil
				if rapid.Bool().Draw(t, "owned") {
					owner = new(Owner)
				}
			case 1, 2, 3:
				m = m.Delete(owner, key)
				delete(model, key)
			default:
				v := rapid.Int().Draw(t, "value")
				m = m.Set(owner, key, v)
				model[key] = v
			}
		}
		for _, v := range append(kept, version{m, model}) {
			var order []int64
			for key, val := range v.m.All() {
				order = append(order, key)
				if want, ok := v.model[key]; !ok || want != val {
					t.Fatalf("%d holds %d, want %d, %v", key, val, want, ok)
				}
				if got, ok := v.m.Get(key); !ok || got != val {
					t.Fatalf("Get(%d) = %d, %v, want %d", key, got, ok, val)
				}
			}
			if want := slices.Sorted(maps.Keys(v.model)); !slices.Equal(order, want) || v.m.Len() != len(want) {
				t.Fatalf("keys %v, want %v", order, want)
			}
		}
	})
}

// TestIDSetAgainstModel adds and removes ranges, so that chunks split and merge.
func TestIDSetAgainstModel(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const most = 2000
	rapid.Check(t, func(t *rapid.T) {
		start := slices.Collect(steps(0, rapid.Int64Range(0, most).Draw(t, "start"),
			rapid.Int64Range(1, 3).Draw(t, "step")))
		model := map[int64]bool{}
		for _, id := range start {
			model[id] = true
		}
		first := IntSetOf(slices.Clone(start))
		s := first
		for range rapid.IntRange(0, 10).Draw(t, "changes") {
			from := rapid.Int64Range(0, most).Draw(t, "from")
			ids := slices.Collect(steps(from, min(most, from+rapid.Int64Range(1, 500).Draw(t, "length")),
				rapid.Int64Range(1, 3).Draw(t, "step")))
			if rapid.Bool().Draw(t, "down") {
				slices.Reverse(ids)
			}
			add := rapid.Bool().Draw(t, "add")
			for _, id := range ids {
				if add {
					s, model[id] = s.Add(id), true
				} else {
					s = s.Remove(id)
					delete(model, id)
				}
			}
		}
		if got, want := slices.Collect(s.All()),
			slices.Sorted(maps.Keys(model)); !slices.Equal(got, want) || s.Len() != len(want) {
			t.Fatalf("set %v, want %v", got, want)
		}
		for id := range int64(most + 1) {
			if s.Has(id) != model[id] {
				t.Fatalf("Has(%d) = %v", id, s.Has(id))
			}
		}
		for _, size := range sizes(s) {
			if size < 1 || size > chunkMax {
				t.Fatalf("chunks of %v", sizes(s))
			}
		}
		if got := slices.Collect(first.All()); !slices.Equal(got, start) {
			t.Fatalf("the first version changed: %v, want %v", got, start)
		}
	})
}

// steps are the numbers of [from, to) by step.
func steps(from, to, step int64) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for id := from; id < to && yield(id); id += step {
		}
	}
}

func sizes(s IntSet) (out []int) {
	for _, chunk := range s.chunks {
		out = append(out, len(chunk))
	}
	return out
}

// TestIDSetChunks: chunks are full if IDs come in order, half full otherwise, and small neighbors
// merge.
func TestIDSetChunks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	add := func(s IntSet, ids ...int64) IntSet {
		for _, id := range ids {
			s = s.Add(id)
		}
		return s
	}
	remove := func(s IntSet, ids ...int64) IntSet {
		for _, id := range ids {
			s = s.Remove(id)
		}
		return s
	}
	upTo := func(from, to int64) []int64 { return slices.Collect(steps(from, to, 1)) }
	down := upTo(0, 2*chunkMax)
	slices.Reverse(down)
	for name, tc := range map[string]struct {
		set  IntSet
		want []int
	}{
		"in order":  {add(IntSet{}, upTo(0, 2*chunkMax+1)...), []int{chunkMax, chunkMax, 1}},
		"backwards": {add(IntSet{}, down...), []int{254, 129, 129}},
		"at once":   {IntSetOf(upTo(0, chunkMax+1)), []int{128, 128, 1}},
		"neighbors of 65 and 64": {remove(IntSetOf(upTo(0, 256)), slices.Concat(upTo(128, 192), upTo(0, 63))...),
			[]int{65, 64}},
		"neighbors of 64 and 64": {remove(IntSetOf(upTo(0, 256)), slices.Concat(upTo(128, 192), upTo(0, 64))...),
			[]int{128}},
	} {
		testproc.EqualList(t, sizes(tc.set), tc.want, "%s: chunks of %v", name)
	}
}

// TestIntMapHeight: the trie is as high as its largest key needs.
func TestIntMapHeight(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for key, want := range map[int64]uint{0: 0, trieWidth - 1: 0, trieWidth: 1,
		trieWidth*trieWidth - 1: 1, trieWidth * trieWidth: 2} {
		if m := (IntMap[int]{}).Set(nil, key, 0); m.levels != want {
			t.Errorf("key %d is below %d levels, want %d", key, m.levels, want)
		}
	}
}

// TestAllocations: adding a key copies each node on its way once, with space for it.
func TestAllocations(t *testing.T) {
	var ints IntMap[int64]
	for key := range steps(0, trieWidth*trieWidth, 2) {
		ints = ints.Set(nil, key, key)
	}
	if got := testing.AllocsPerRun(10, func() { ints.Set(nil, 1, 0) }); got != 4 {
		t.Errorf("an IntMap of two levels: %v allocations, want 2 nodes with their slices", got)
	}
	root := &mapNode[int]{}
	root, _ = root.set(nil, "a", 1, 0, 0)
	if got := testing.AllocsPerRun(10, func() { root.set(nil, "b", 2, 0, 0) }); got != 2 {
		t.Errorf("a StringMap of one level: %v allocations, want a node with its entries", got)
	}
}

func BenchmarkMapGet(b *testing.B) {
	var m StringMap[int]
	owner := new(Owner)
	keys := make([]string, 100_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%08x-0000-4000-8000-%012x", i, i)
		m = m.Set(owner, keys[i], i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := m.Get(keys[i%len(keys)]); !ok {
			b.Fatal("lost a key")
		}
	}
}

func BenchmarkIntMapSet(b *testing.B) {
	var m IntMap[*int]
	owner := new(Owner)
	for i := range int64(100_000) {
		m = m.Set(owner, i, nil)
	}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		m = m.Set(nil, i%100_000, nil)
	}
}
