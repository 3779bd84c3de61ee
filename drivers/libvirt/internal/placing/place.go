// SPDX-License-Identifier: Apache-2.0

package placing

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
)

// Guest is a consumer whose amounts are to be divided over NUMA cells.
type Guest struct {
	UUID string
	// Amounts are what it holds of each class, 1 at least.
	Amounts map[string]int64
	// Fixed is what of these must be in which cell, by class.
	Fixed map[string]map[int]int64
}

// Room is how much can be allocated in each cell of each class.
type Room map[int]map[string]int64

// Shares are who has how much where: by uuid of the guest, cell and class.
type Shares map[string]map[int]map[string]int64

// Rule says what becomes of a guest of which what is bound to no cell fits into none as a whole.
type Rule int

// The rules.
const (
	// Whole makes it an offender.
	Whole Rule = iota
	// Split divides it: each class to the roomiest cell that takes all of it, or else to several, the roomiest first.
	Split
)

// Offender is a guest that cannot be placed. None of its amounts is in the result.
type Offender struct {
	UUID, Reason string
}

// Place divides what guests hold over cells.
//
// What is fixed is fixed. The rest of a guest goes to one cell as a whole: one of those where something of it is fixed if it fits there, else
// the one that has the largest part of its room left afterwards, the lowest number between equals. Guests of which something is fixed come first, then
// those that need a larger part of the host, in the order of their uuids between equals. So the result does not depend on the order of the arguments. To pack as well as
// possible is not promised.
//
// Cost: O(guests × (log guests + cells × classes)).
func Place(guests []Guest, room Room, rule Rule) (Shares, []Offender) {
	p := placement{total: room, left: Room{}, shares: Shares{}, cells: slices.Sorted(maps.Keys(room))}
	for cell, classes := range room {
		p.left[cell] = maps.Clone(classes)
	}
	var loose []Guest
	sorted := slices.SortedFunc(slices.Values(guests), func(a, b Guest) int { return cmp.Compare(a.UUID, b.UUID) })
	for i, g := range sorted {
		if i > 0 && sorted[i-1].UUID == g.UUID || i+1 < len(sorted) && sorted[i+1].UUID == g.UUID {
			p.offend(g.UUID, "it is there more than once")
		} else if p.fix(g) {
			loose = append(loose, g)
		}
	}
	need := make(map[string]fraction, len(loose))
	for _, g := range loose {
		need[g.UUID] = p.need(g)
	}
	slices.SortStableFunc(loose, func(a, b Guest) int {
		return cmp.Or(rank(len(a.Fixed) > 0)-rank(len(b.Fixed) > 0), need[b.UUID].compare(need[a.UUID]))
	})
	for _, g := range loose {
		p.rest(g, rule)
	}
	slices.SortFunc(p.offenders, func(a, b Offender) int { return cmp.Or(cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.Reason, b.Reason)) })
	return p.shares, p.offenders
}

type placement struct {
	total, left Room
	cells       []int
	shares      Shares
	offenders   []Offender
}

func (p *placement) offend(uuid, format string, args ...any) bool {
	p.offenders = append(p.offenders, Offender{UUID: uuid, Reason: fmt.Sprintf(format, args...)})
	return false
}

// fix takes what is fixed of a guest, all or nothing.
func (p *placement) fix(g Guest) bool {
	for _, class := range slices.Sorted(maps.Keys(g.Fixed)) {
		rest := g.Amounts[class]
		for _, cell := range slices.Sorted(maps.Keys(g.Fixed[class])) {
			amount := g.Fixed[class][cell]
			switch {
			case amount < 0 || amount > rest:
				return p.offend(g.UUID, "%d of %s are bound to NUMA cell %d, and it holds %d", amount, class, cell, g.Amounts[class])
			case amount > p.left[cell][class]:
				return p.offend(g.UUID, "%d of %s are bound to NUMA cell %d, which has room for %d more", amount, class, cell, p.left[cell][class])
			}
			rest -= amount
		}
	}
	p.shares[g.UUID] = map[int]map[string]int64{}
	for class, cells := range g.Fixed {
		for cell, amount := range cells {
			p.take(g.UUID, cell, class, amount)
		}
	}
	return true
}

func (p *placement) take(uuid string, cell int, class string, amount int64) {
	if amount == 0 {
		return
	}
	if p.shares[uuid][cell] == nil {
		p.shares[uuid][cell] = map[string]int64{}
	}
	p.shares[uuid][cell][class] += amount
	p.left[cell][class] -= amount
}

// loose is what is not fixed of a guest.
func (g Guest) loose() map[string]int64 {
	out := map[string]int64{}
	for class, amount := range g.Amounts {
		for _, fixed := range g.Fixed[class] {
			amount -= fixed
		}
		if amount > 0 {
			out[class] = amount
		}
	}
	return out
}

// need is the largest part of all that there is of a class that the rest of a guest takes.
func (p *placement) need(g Guest) fraction {
	most := fraction{0, 1}
	for class, amount := range g.loose() {
		var all int64
		for _, classes := range p.total {
			all += classes[class]
		}
		if part := (fraction{amount, max(all, 1)}); part.compare(most) > 0 {
			most = part
		}
	}
	return most
}

// rest places what is not fixed.
func (p *placement) rest(g Guest, rule Rule) {
	rest := g.loose()
	if len(rest) == 0 {
		return
	}
	if cell, ok := p.best(g.UUID, rest); ok {
		for class, amount := range rest {
			p.take(g.UUID, cell, class, amount)
		}
		return
	}
	if rule == Whole {
		p.give(g.UUID)
		p.offend(g.UUID, "no NUMA cell has room for %s", list(rest))
		return
	}
	for _, class := range slices.Sorted(maps.Keys(rest)) {
		if !p.split(g.UUID, class, rest[class]) {
			p.give(g.UUID)
			p.offend(g.UUID, "all NUMA cells together have no room for %d of %s", rest[class], class)
			return
		}
	}
}

// best is the cell that takes all of the amounts and has the most left afterwards. Those where the guest is already come first.
func (p *placement) best(uuid string, amounts map[string]int64) (int, bool) {
	best, most, mine, found := 0, fraction{}, false, false
	for _, cell := range p.cells {
		left, fits := fraction{1, 1}, true
		for class, amount := range amounts {
			after := p.left[cell][class] - amount
			if after < 0 {
				fits = false
				break
			}
			if part := (fraction{after, p.total[cell][class]}); part.compare(left) < 0 {
				left = part
			}
		}
		if !fits {
			continue
		}
		here := len(p.shares[uuid][cell]) > 0
		if !found || here && !mine || here == mine && left.compare(most) > 0 {
			best, most, mine, found = cell, left, here, true
		}
	}
	return best, found
}

// split places an amount of one class, in one cell if it can be.
func (p *placement) split(uuid, class string, amount int64) bool {
	if cell, ok := p.best(uuid, map[string]int64{class: amount}); ok {
		p.take(uuid, cell, class, amount)
		return true
	}
	for _, cell := range slices.SortedStableFunc(slices.Values(p.cells), func(a, b int) int { return cmp.Compare(p.left[b][class], p.left[a][class]) }) {
		portion := min(amount, max(p.left[cell][class], 0))
		p.take(uuid, cell, class, portion)
		amount -= portion
	}
	return amount == 0
}

// give takes back what an offender got.
func (p *placement) give(uuid string) {
	for cell, classes := range p.shares[uuid] {
		for class, amount := range classes {
			p.left[cell][class] += amount
		}
	}
	delete(p.shares, uuid)
}

func list(amounts map[string]int64) string {
	var out string
	for i, class := range slices.Sorted(maps.Keys(amounts)) {
		if i > 0 {
			out += " and "
		}
		out += fmt.Sprintf("%d of %s", amounts[class], class)
	}
	return out
}

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
