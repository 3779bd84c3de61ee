// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Distribution says how allocations at one place are distributed over several: VGPUs of the root
// over the physical GPUs below it, or memory over NUMA nodes.
type Distribution struct {
	From Place
	// To are the possible destinations. Their order decides between equal ones.
	To []Place
	// Where returns where a consumer's share actually is, for drivers that know (the GPU that a
	// guest has). If Where or its result is nil, free capacity decides.
	Where func(consumer string, amount int64) []Portion
	// Whole forbids splitting the amount of one consumer over several places, except by Where.
	Whole bool
}

// Portion is an amount at a place.
type Portion struct {
	Place  Place
	Amount int64
}

// Distribute makes the moves of a distribution. tree has the new inventories: with the allocations
// they decide how much is free at each place, and how large a single allocation can be. Amounts at
// From do not count as in use.
//
// Consumers that Where knows come first. Then the others, the largest amounts first, each to the
// place where the least stays free, or if it fits nowhere as a whole, split over the places with
// the most free capacity. The result is the same for the same arguments, and nothing is left at
// From after the moves.
//
// Errors: a [*ReshapeFailed] that lists every consumer that does not fit, and every invalid result
// of Where. Whole amounts are not necessarily packed optimally.
//
// Cost: O(consumers × places).
func (d Distribution) Distribute(tree *providertree.Tree, allocations providertree.Allocations) (Moves, error) {
	run := distribution{Distribution: d, tree: tree, allocations: allocations, free: map[Place]int64{}}
	run.To = nil
	for _, place := range d.To {
		_, twice := run.free[place]
		inv, ok := run.inventory(place)
		switch {
		case twice:
		case place == d.From:
			run.fail("", place, "source and destination are the same")
		case !ok:
			run.fail("", place, "the destination has no inventory of this class")
		default:
			run.To = append(run.To, place)
			run.free[place] = inv.Capacity() - allocations.Used(place.Provider)[place.Class]
		}
	}
	type share struct {
		consumer string
		amount   int64
	}
	var unknown []share
	for _, consumer := range slices.Sorted(maps.Keys(allocations)) {
		held := allocations[consumer].Resources[d.From.Provider][d.From.Class]
		if held == 0 {
			continue
		}
		if d.Where != nil {
			if portions := d.Where(consumer, held); portions != nil {
				run.place(consumer, held, portions)
				continue
			}
		}
		unknown = append(unknown, share{consumer, held})
	}
	slices.SortStableFunc(unknown, func(a, b share) int { return cmp.Compare(b.amount, a.amount) })
	for _, u := range unknown {
		run.choose(u.consumer, u.amount)
	}
	if len(run.violations) > 0 {
		return nil, &ReshapeFailed{Reason: fmt.Sprintf("the allocations of %s cannot be distributed", d.From),
			Violations: run.violations}
	}
	return run.moves, nil
}

// distribution is a running Distribution.
type distribution struct {
	Distribution
	tree        *providertree.Tree
	allocations providertree.Allocations
	free        map[Place]int64
	moves       Moves
	violations  []Violation
}

func (d *distribution) fail(consumer string, at Place, problem string) {
	d.violations = append(d.violations,
		Violation{Consumer: consumer, Provider: at.Provider, Class: at.Class, Problem: problem})
}

func (d *distribution) inventory(p Place) (providertree.Inventory, bool) {
	provider, _ := d.tree.Provider(p.Provider)
	inv, ok := provider.Inventories[p.Class]
	return inv, ok
}

// place uses the driver's portions of a consumer's share. Capacity is not checked: the share is
// there.
func (d *distribution) place(consumer string, held int64, portions []Portion) {
	var sum int64
	for _, p := range portions {
		switch _, ok := d.free[p.Place]; {
		case !ok:
			d.fail(consumer, p.Place, "the driver reports the consumer's share here, which is not a destination")
			return
		case p.Amount < 1 || p.Amount > held-sum:
			d.fail(consumer, d.From,
				fmt.Sprintf("%d are allocated, and the driver reports other amounts at the destinations", held))
			return
		}
		sum += p.Amount
	}
	if sum != held {
		d.fail(consumer, d.From,
			fmt.Sprintf("%d are allocated, and the driver reports only %d at the destinations", held, sum))
		return
	}
	d.allot(consumer, portions)
}

// choose finds places with enough free capacity.
func (d *distribution) choose(consumer string, held int64) {
	var best *Portion
	for _, place := range d.To {
		if d.fits(consumer, place, held) == held && (best == nil || d.free[place] < d.free[best.Place]) {
			best = &Portion{Place: place, Amount: held}
		}
	}
	if best != nil {
		d.allot(consumer, []Portion{*best})
		return
	}
	if d.Whole {
		d.fail(consumer, d.From, fmt.Sprintf("%d are allocated, and they do not fit on one provider", held))
		return
	}
	byFree := slices.Clone(d.To)
	slices.SortStableFunc(byFree, func(a, b Place) int { return cmp.Compare(d.free[b], d.free[a]) })
	var portions []Portion
	rest := held
	for _, place := range byFree {
		if n := d.fits(consumer, place, rest); n > 0 {
			portions = append(portions, Portion{Place: place, Amount: n})
			rest -= n
		}
	}
	if rest > 0 {
		d.fail(consumer, d.From, fmt.Sprintf("%d are allocated, and only %d fit", held, held-rest))
		return
	}
	d.allot(consumer, portions)
}

// fits returns how much of an amount can be added to what the consumer has at a place.
func (d *distribution) fits(consumer string, at Place, amount int64) int64 {
	inv, ok := d.inventory(at)
	if !ok {
		return 0
	}
	there := d.allocations[consumer].Resources[at.Provider][at.Class]
	all := min(amount, d.free[at], inv.MaxUnit-there) + there
	all -= all % inv.StepSize
	if all < inv.MinUnit || all <= there {
		return 0
	}
	return all - there
}

func (d *distribution) allot(consumer string, portions []Portion) {
	for _, p := range portions {
		d.free[p.Place] -= p.Amount
		d.moves = append(d.moves, Move{Consumer: consumer, From: d.From, To: p.Place, Amount: p.Amount})
	}
}
