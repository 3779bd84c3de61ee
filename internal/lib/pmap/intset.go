// SPDX-License-Identifier: Apache-2.0

package pmap

import (
	"iter"
	"slices"
	"sort"
)

// chunkMax is the size at which a chunk of an IntSet is split.
const chunkMax = 256

// IntSet is a persistent sorted set of numbers: a list of sorted chunks. A
// change copies the list and one chunk. The zero IntSet is empty.
type IntSet struct {
	chunks [][]int64 // none is empty
	n      int
}

// IntSetOf makes a set of numbers that are sorted and distinct; it keeps the slice.
func IntSetOf(sorted []int64) IntSet {
	s := IntSet{n: len(sorted)}
	for chunk := range slices.Chunk(sorted, chunkMax/2) {
		s.chunks = append(s.chunks, slices.Clip(chunk))
	}
	return s
}

// Len returns the number of members.
func (s IntSet) Len() int { return s.n }

// chunk returns the index of the chunk where id is or should be.
func (s IntSet) chunk(id int64) int {
	i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i][0] > id })
	return max(i-1, 0)
}

// Has reports whether id is a member.
func (s IntSet) Has(id int64) bool {
	if s.n == 0 {
		return false
	}
	_, ok := slices.BinarySearch(s.chunks[s.chunk(id)], id)
	return ok
}

// Add returns the set with id.
func (s IntSet) Add(id int64) IntSet {
	if s.n == 0 {
		return IntSet{chunks: [][]int64{{id}}, n: 1}
	}
	c := s.chunk(id)
	at, ok := slices.BinarySearch(s.chunks[c], id)
	if ok {
		return s
	}
	grown := sliceInserted(s.chunks[c], at, id, false)
	var chunks [][]int64
	if len(grown) > chunkMax {
		// IDs mostly come in order: for a new last one, keep the full chunk and
		// begin another.
		half := len(grown) / 2
		if at == len(grown)-1 {
			half = at
		}
		chunks = sliceInserted(s.chunks, c+1, slices.Clone(grown[half:]), false)
		chunks[c] = slices.Clip(grown[:half])
	} else {
		chunks = slices.Clone(s.chunks)
		chunks[c] = grown
	}
	return IntSet{chunks: chunks, n: s.n + 1}
}

// Remove returns the set without id.
func (s IntSet) Remove(id int64) IntSet {
	if !s.Has(id) {
		return s
	}
	c := s.chunk(id)
	at, _ := slices.BinarySearch(s.chunks[c], id)
	if len(s.chunks[c]) == 1 {
		return IntSet{chunks: sliceRemoved(s.chunks, c, false), n: s.n - 1}
	}
	chunks := slices.Clone(s.chunks)
	chunks[c] = sliceRemoved(s.chunks[c], at, false)
	// Merge small neighbors, so that chunks stay about full.
	if c+1 < len(chunks) && len(chunks[c])+len(chunks[c+1]) <= chunkMax/2 {
		chunks[c] = slices.Concat(chunks[c], chunks[c+1])
		chunks = sliceRemoved(chunks, c+1, true)
	}
	return IntSet{chunks: chunks, n: s.n - 1}
}

// All iterates in order.
func (s IntSet) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for _, chunk := range s.chunks {
			for _, id := range chunk {
				if !yield(id) {
					return
				}
			}
		}
	}
}
