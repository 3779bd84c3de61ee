// SPDX-License-Identifier: Apache-2.0

// Package pmap has persistent maps and sets. The state of Placement is made of them, so that each
// version stays as it was for its readers.
//
//	StringMap  string -> V, a hash array mapped trie, no order
//	IntMap     int64 >= 0 -> V, a radix trie, iterated in order
//	IntSet     sorted int64s, in chunks
//
// Each is a small value. A change returns a new value and leaves the old one as it was, sharing all
// that did not change: it copies about log32(n) small nodes, or a chunk. Any number of goroutines
// can read one value.
//
// A caller that makes many changes passes an [Owner]: nodes created under the same one are changed
// in place.
//
// Decision 0026 has what a B-tree of a library costs in their place.
package pmap
