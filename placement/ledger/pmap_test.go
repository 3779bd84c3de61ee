// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Each container is checked against Go's own map, along a random history of
// changes, with and without an owner; every version ever made must still hold
// what it held when it was made.

func TestMapAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m     stringMap[int]
			model map[string]int
		}
		var kept []version
		var m stringMap[int]
		model := map[string]int{}
		var owner *nodeOwner
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			key := fmt.Sprint("k", rapid.IntRange(0, 120).Draw(t, "key"))
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0: // a version is handed to readers: the owner ends
				kept = append(kept, version{m, maps.Clone(model)})
				owner = nil
				if rapid.Bool().Draw(t, "owned") {
					owner = new(nodeOwner)
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

func TestMapCollisions(t *testing.T) {
	// Keys whose hashes agree in every bit end in a list on the last level.
	var root *mapNode[int]
	for i := range 5 {
		root, _ = root.set(nil, fmt.Sprint(i), 42, i, 60)
	}
	// Below the root of this little trie all five must be found again.
	seen := map[string]int{}
	root.each(func(k string, v int) bool { seen[k] = v; return true })
	if len(seen) != 5 {
		t.Fatalf("%d of 5 colliding keys kept: %v", len(seen), seen)
	}
}

func TestIntMapAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m     intMap[int]
			model map[int64]int
		}
		var kept []version
		var m intMap[int]
		model := map[int64]int{}
		var owner *nodeOwner
		keys := rapid.OneOf(rapid.Int64Range(0, 40), rapid.Int64Range(1000, 1100), rapid.Int64Min(0))
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			key := keys.Draw(t, "key")
			switch rapid.IntRange(0, 9).Draw(t, "op") {
			case 0:
				kept = append(kept, version{m, maps.Clone(model)})
				owner = nil
				if rapid.Bool().Draw(t, "owned") {
					owner = new(nodeOwner)
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

func TestIDSetAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SliceOfNDistinct(rapid.Int64Range(0, 2000), 0, 700, rapid.ID[int64]).Draw(t, "start")
		slices.Sort(start)
		model := map[int64]bool{}
		for _, id := range start {
			model[id] = true
		}
		s := idSetOf(slices.Clone(start))
		first := s
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			id := rapid.Int64Range(0, 2000).Draw(t, "id")
			if rapid.Bool().Draw(t, "add") {
				s, model[id] = s.Add(id), true
			} else {
				s = s.Remove(id)
				delete(model, id)
			}
		}
		if got, want := slices.Collect(s.All()), slices.Sorted(maps.Keys(model)); !slices.Equal(got, want) || s.Len() != len(want) {
			t.Fatalf("set %v, want %v", got, want)
		}
		for id := range int64(2001) {
			if s.Has(id) != model[id] {
				t.Fatalf("Has(%d) = %v", id, s.Has(id))
			}
		}
		if got := slices.Collect(first.All()); !slices.Equal(got, start) {
			t.Fatalf("the first version changed: %v, want %v", got, start)
		}
	})
}

func BenchmarkMapGet(b *testing.B) {
	var m stringMap[int]
	owner := new(nodeOwner)
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
	var m intMap[*int]
	owner := new(nodeOwner)
	for i := range int64(100_000) {
		m = m.Set(owner, i, nil)
	}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		m = m.Set(nil, i%100_000, nil)
	}
}
