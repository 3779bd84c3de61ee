// SPDX-License-Identifier: Apache-2.0

// Package pmap holds the persistent containers that the ledger's snapshots
// are made of. A container is a small value; a change returns a new value and
// leaves the old one as it was, sharing all that did not change:
//
//	Map     string -> V, a hash array mapped trie, no order
//	IntMap  int64 >= 0 -> V, a radix trie, iterated in order
//	IDSet   sorted int64s, in chunks
//
// A change copies about log32(n) small nodes. A caller that makes many changes
// passes an Owner: nodes created under the same Owner are changed in place. An
// Owner must not be used after readers get the container, and is used by one
// goroutine.
package pmap

// Owner marks nodes that can still be changed in place.
type Owner struct{ _ byte }

const (
	bits  = 5
	width = 1 << bits
	mask  = width - 1
)

// inserted returns s with v at index i; in place if s can be changed and has
// capacity.
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

// removed returns s without index i.
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
