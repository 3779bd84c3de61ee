// SPDX-License-Identifier: Apache-2.0

package assignment

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
)

// Guest is a consumer whose amounts Place divides over places.
type Guest struct {
	UUID string
	// Amounts are what it holds of each class, 1 at least.
	Amounts map[string]int64
	// Fixed is what of these must be in which place, by class.
	Fixed map[string]map[int]int64
	// Near are the places where what is not fixed is best, since its devices are there.
	Near []int
}

// Capacity is what can be allocated where, by number of the place. Numbers decide between equals.
type Capacity map[int]Site

// Site is a place: a NUMA cell, or another provider.
type Site struct {
	// Name is what people call it.
	Name    string
	Classes map[string]Space
}

// Space is the free capacity for a class in one place.
type Space struct {
	// Free is for all guests together; less than 0 where there is too much already.
	Free int64
	// Most is for a single guest; 0: no limit.
	Most int64
}

// Shares are amounts by uuid of the guest, place and class.
type Shares map[string]map[int]map[string]int64

// Rule decides about a guest whose unbound amounts fit into no single place.
type Rule int

// The rules.
const (
	// Split divides it: each class to the roomiest place that takes all of it, or else to several,
	// the roomiest first.
	Split Rule = iota
	// Whole makes it a violation.
	Whole
)

// Violation is a guest that cannot be placed. None of its amounts is in the result.
type Violation struct {
	UUID, Reason string
}

// Place divides what guests hold over places, NUMA cells in the first place.
//
// What is fixed is fixed. The rest of a guest goes to one place as a whole: one of those where
// something of it is fixed if it fits there, else one that it should be near to, else the one with
// the largest free share afterwards, the lowest number between equals. Guests of which something is
// fixed come first, then those that should be near to something, then those that need a larger
// share of all capacity, in the order of their uuids between equals. So the result does not depend
// on the order of the arguments.
//
// With [Split], a guest is left out only if no division makes it and the earlier guests fit:
// unfixed amounts of earlier guests move away if needed. [Whole] does not promise optimal packing.
//
// Cost: O(guests × (log guests + places × classes)), and O(places² × guests) more for each guest
// that displaces others.
func Place(guests []Guest, capacity Capacity, rule Rule) (Shares, []Violation) {
	p := placement{capacity: capacity, left: map[int]map[string]int64{}, shares: Shares{}, loose: Shares{},
		places: slices.Sorted(maps.Keys(capacity))}
	for place, site := range capacity {
		p.left[place] = map[string]int64{}
		for class, space := range site.Classes {
			p.left[place][class] = space.Free
		}
	}
	var loose []Guest
	sorted := slices.SortedFunc(slices.Values(guests), func(a, b Guest) int { return cmp.Compare(a.UUID, b.UUID) })
	for i, g := range sorted {
		if i > 0 && sorted[i-1].UUID == g.UUID || i+1 < len(sorted) && sorted[i+1].UUID == g.UUID {
			p.addViolation(g.UUID, "it is there more than once")
		} else if p.placeFixed(g) {
			loose = append(loose, g)
		}
	}
	need := make(map[string]fraction, len(loose))
	for _, g := range loose {
		need[g.UUID] = p.need(g)
	}
	slices.SortStableFunc(loose, func(a, b Guest) int {
		return cmp.Or(rank(a.isFixed())-rank(b.isFixed()),
			rank(len(a.Near) > 0)-rank(len(b.Near) > 0), need[b.UUID].compare(need[a.UUID]))
	})
	for _, g := range loose {
		p.placeRest(g, rule)
	}
	slices.SortFunc(p.violations,
		func(a, b Violation) int { return cmp.Or(cmp.Compare(a.UUID, b.UUID), cmp.Compare(a.Reason, b.Reason)) })
	return p.shares, p.violations
}

type placement struct {
	capacity Capacity
	left     map[int]map[string]int64
	places   []int
	// shares are all, loose those of them that are not fixed.
	shares, loose Shares
	violations    []Violation
}

func (p *placement) addViolation(uuid, format string, args ...any) bool {
	p.violations = append(p.violations, Violation{UUID: uuid, Reason: fmt.Sprintf(format, args...)})
	return false
}

// placeFixed takes what is fixed of a guest, all or nothing.
func (p *placement) placeFixed(g Guest) bool {
	for _, class := range slices.Sorted(maps.Keys(g.Fixed)) {
		rest := g.Amounts[class]
		for _, place := range slices.Sorted(maps.Keys(g.Fixed[class])) {
			amount, name := g.Fixed[class][place], p.capacity[place].Name
			switch most := p.capacity[place].Classes[class].Most; {
			case amount < 0 || amount > rest:
				return p.addViolation(g.UUID, "%d of %s are bound to %s, and it holds %d", amount,
					class, name, g.Amounts[class])
			case amount > p.left[place][class]:
				return p.addViolation(g.UUID, "%d of %s are bound to %s, which has %d free", amount, class, name,
					max(p.left[place][class], 0))
			case most > 0 && amount > most:
				return p.addViolation(g.UUID,
					"%d of %s are bound to %s, which gives one guest at most %d", amount, class, name, most)
			}
			rest -= amount
		}
	}
	p.shares[g.UUID], p.loose[g.UUID] = map[int]map[string]int64{}, map[int]map[string]int64{}
	for class, places := range g.Fixed {
		for place, amount := range places {
			if amount > 0 {
				p.addShare(p.shares[g.UUID], place, class, amount)
				p.left[place][class] -= amount
			}
		}
	}
	return true
}

func (p *placement) addShare(from map[int]map[string]int64, place int, class string, amount int64) {
	if amount == 0 {
		return
	}
	if from[place] == nil {
		from[place] = map[string]int64{}
	}
	if from[place][class] += amount; from[place][class] == 0 {
		delete(from[place], class)
	}
	if len(from[place]) == 0 {
		delete(from, place)
	}
}

// move changes what a guest has in a place of what is not fixed; an amount below 0 is taken away.
func (p *placement) move(uuid string, place int, class string, amount int64) {
	p.addShare(p.shares[uuid], place, class, amount)
	p.addShare(p.loose[uuid], place, class, amount)
	p.left[place][class] -= amount
}

// isFixed reports whether a guest has fixed amounts.
func (g Guest) isFixed() bool {
	for _, places := range g.Fixed {
		for _, amount := range places {
			if amount > 0 {
				return true
			}
		}
	}
	return false
}

// rest returns the amounts of a guest that are not fixed to a site, by class, without zeros.
func (g Guest) rest() map[string]int64 {
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
	for class, amount := range g.rest() {
		var all int64
		for _, site := range p.capacity {
			all += max(site.Classes[class].Free, 0)
		}
		if part := (fraction{amount, max(all, 1)}); part.compare(most) > 0 {
			most = part
		}
	}
	return most
}

// placeRest places what is not fixed.
func (p *placement) placeRest(g Guest, rule Rule) {
	rest := g.rest()
	if len(rest) == 0 {
		return
	}
	if place, ok := p.bestPlace(g, rest); ok {
		for class, amount := range rest {
			p.move(g.UUID, place, class, amount)
		}
		return
	}
	if rule == Whole {
		p.release(g.UUID)
		p.addViolation(g.UUID, "no single place has %s free, and it must not be divided", list(rest))
		return
	}
	for _, class := range slices.Sorted(maps.Keys(rest)) {
		if !p.split(g, class, rest[class]) {
			p.release(g.UUID)
			p.addViolation(g.UUID, "all places together have less free than its %d of %s", rest[class], class)
			return
		}
	}
}

// allowed is how much more a guest can have in a place, whatever is free.
func (p *placement) allowed(uuid string, place int, class string) int64 {
	most := p.capacity[place].Classes[class].Most
	if most == 0 {
		most = math.MaxInt64
	}
	return max(most-p.shares[uuid][place][class], 0)
}

// bestPlace is the place that takes all amounts and has the most left afterwards. Places that the
// guest uses already come first, then those that it should be near to.
func (p *placement) bestPlace(g Guest, amounts map[string]int64) (int, bool) {
	uuid, best, most, closest, found := g.UUID, 0, fraction{}, 0, false
	for _, place := range p.places {
		left, fits := fraction{1, 1}, true
		for class, amount := range amounts {
			after := p.left[place][class] - amount
			if after < 0 || amount > p.allowed(uuid, place, class) {
				fits = false
				break
			}
			if part := (fraction{after, p.capacity[place].Classes[class].Free}); part.compare(left) < 0 {
				left = part
			}
		}
		if !fits {
			continue
		}
		distance := 2*rank(len(p.shares[uuid][place]) > 0) + rank(slices.Contains(g.Near, place))
		if !found || distance < closest || distance == closest && left.compare(most) > 0 {
			best, most, closest, found = place, left, distance, true
		}
	}
	return best, found
}

// split places an amount of one class, in one place if it can be.
func (p *placement) split(g Guest, class string, amount int64) bool {
	uuid := g.UUID
	if place, ok := p.bestPlace(g, map[string]int64{class: amount}); ok {
		p.move(uuid, place, class, amount)
		return true
	}
	for _, place := range slices.SortedStableFunc(slices.Values(p.places),
		func(a, b int) int { return cmp.Compare(p.left[b][class], p.left[a][class]) }) {
		portion := min(amount, max(p.left[place][class], 0), p.allowed(uuid, place, class))
		p.move(uuid, place, class, portion)
		amount -= portion
	}
	for amount > 0 {
		pushed := p.push(uuid, class, amount)
		if pushed == 0 {
			return false
		}
		amount -= pushed
	}
	return true
}

// push places some of an amount by displacing others: along a path, each guest moves some of its
// share to the next place, until one has free capacity. It is the augmenting path of a maximum flow
// from guests to places, so it fails only if the guests do not fit at all.
func (p *placement) push(uuid, class string, amount int64) int64 {
	type step struct {
		from     int // the place that is given up
		guest    string
		capacity int64 // how much can go along the path so far
	}
	reached := map[int]step{}
	var queue []int
	enqueue := func(place int, s step) {
		if _, before := reached[place]; !before && s.capacity > 0 {
			reached[place] = s
			queue = append(queue, place)
		}
	}
	for _, place := range p.places {
		enqueue(place, step{guest: uuid, capacity: min(amount, p.allowed(uuid, place, class))})
	}
	others := slices.Sorted(maps.Keys(p.loose))
	for i := 0; i < len(queue); i++ {
		place := queue[i]
		if free := p.left[place][class]; free > 0 {
			pushed := min(reached[place].capacity, free)
			for at := reached[place]; ; at = reached[place] {
				p.move(at.guest, place, class, pushed)
				if at.guest == uuid {
					return pushed
				}
				p.move(at.guest, at.from, class, -pushed)
				place = at.from
			}
		}
		for _, other := range others {
			if has := p.loose[other][place][class]; has > 0 && other != uuid {
				for _, next := range p.places {
					enqueue(next,
						step{from: place, guest: other,
							capacity: min(reached[place].capacity, has, p.allowed(other, next, class))})
				}
			}
		}
	}
	return 0
}

// release takes back what a guest got that is left out.
func (p *placement) release(uuid string) {
	for place, classes := range p.shares[uuid] {
		for class, amount := range classes {
			p.left[place][class] += amount
		}
	}
	delete(p.shares, uuid)
	delete(p.loose, uuid)
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

// apportion divides an amount by weights into whole numbers, those with the largest remainders
// being rounded up, the lowest cell first between equals. The part that falls to unbound is left
// out.
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
