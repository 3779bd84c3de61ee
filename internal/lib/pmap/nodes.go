// SPDX-License-Identifier: Apache-2.0

package pmap

// Owner marks nodes that can still be changed in place. One is made by new, used by one goroutine,
// and not used after others get what was changed under it; nil marks none.
type Owner struct{ _ byte }

const (
	trieBits  = 5
	trieWidth = 1 << trieBits
	trieMask  = trieWidth - 1
)

// sliceCopied returns a copy of s with capacity for one more.
func sliceCopied[T any](s []T) []T { return append(make([]T, 0, len(s)+1), s...) }

// sliceInserted returns s with v at index i; in place if s can be changed and has
// capacity.
func sliceInserted[T any](s []T, i int, v T, inPlace bool) []T {
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

// sliceRemoved returns s without index i.
func sliceRemoved[T any](s []T, i int, inPlace bool) []T {
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
