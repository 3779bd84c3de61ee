// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
)

// fraction is of, part of a whole; both are no less than 0, and the whole is not 0.
type fraction struct{ part, whole int64 }

func (f fraction) compare(g fraction) int {
	ah, al := bits.Mul64(uint64(f.part), uint64(g.whole))
	bh, bl := bits.Mul64(uint64(g.part), uint64(f.whole))
	return cmp.Or(cmp.Compare(ah, bh), cmp.Compare(al, bl))
}

// apportion divides an amount by weights into whole numbers, those with the largest remainders being rounded up, the lowest cell first
// between equals. The part that falls to unbound is left out.
func apportion(amount int64, weights map[int]uint64, unbound uint64) map[int]int64 {
	total := unbound
	for _, w := range weights {
		total += w
	}
	if total == 0 || amount <= 0 {
		return nil
	}
	type part struct {
		cell      int // -1: unbound, which is rounded up last
		amount    int64
		remainder uint64
	}
	var parts []part
	rest := amount
	divide := func(cell int, weight uint64) {
		hi, lo := bits.Mul64(uint64(amount), weight)
		q, r := bits.Div64(hi, lo, total) // weight <= total: the quotient is no more than amount
		parts = append(parts, part{cell, int64(q), r})
		rest -= int64(q)
	}
	for _, cell := range slices.Sorted(maps.Keys(weights)) {
		divide(cell, weights[cell])
	}
	divide(-1, unbound)
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.remainder, a.remainder) })
	out := map[int]int64{}
	for i, p := range parts {
		if int64(i) < rest {
			p.amount++
		}
		if p.cell >= 0 && p.amount > 0 {
			out[p.cell] = p.amount
		}
	}
	return out
}
