// SPDX-License-Identifier: Apache-2.0

// Package pmap holds the persistent containers that the ledger's snapshots
// are made of. A container is a small value; a change returns a new value and
// leaves the old one as it was, sharing all that did not change:
//
//	Map     string -> V, a hash array mapped trie, no order
//	IntMap  int64 >= 0 -> V, a radix trie, iterated in order
//	IDSet   sorted int64s, in chunks
//
// A change costs what it touches, about log32(n) small nodes. Whoever makes
// many changes in a row passes an Owner: nodes that were made under the same
// Owner are changed in place. An Owner must not outlive the hand-over of the
// container to readers, and is used by one goroutine.
package pmap

// Owner marks nodes that its holder may still change in place.
type Owner struct{ _ byte }

const (
	bits  = 5
	width = 1 << bits
	mask  = width - 1
)

// inserted returns s with v at place i; in place when s may be changed and
// has room.
func inserted[T any](s []T, i int, v T, inPlace bool) []T {
	if inPlace {
		var zero T
		s = append(s, zero)
		copy(s[i+1:], s[i:])
		s[i] = v
		return s
	}
	out := make([]T, len(s)+1)
	copy(out, s[:i])
	out[i] = v
	copy(out[i+1:], s[i:])
	return out
}

// removed returns s without place i.
func removed[T any](s []T, i int, inPlace bool) []T {
	if inPlace {
		var zero T
		copy(s[i:], s[i+1:])
		s[len(s)-1] = zero
		return s[:len(s)-1]
	}
	out := make([]T, len(s)-1)
	copy(out, s[:i])
	copy(out[i:], s[i+1:])
	return out
}
