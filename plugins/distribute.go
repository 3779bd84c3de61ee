// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Distribution says how what is allocated at one place is to be spread over several: VGPUs of the root over the physical
// GPUs below it, or memory over NUMA nodes.
type Distribution struct {
	From Place
	// To are the places that it may go to. Their order decides between equals.
	To []Place
	// Where tells for a consumer where its share really is, for drivers that know (a GPU that a guest has is no matter of
	// choice). Nil, or an answer of nil, leaves it to free room.
	Where func(consumer string, amount int64) []Portion
	// Whole forbids to split what one consumer holds over several places, unless Where does.
	Whole bool
}

// Portion is an amount at a place.
type Portion struct {
	Place  Place
	Amount int64
}

// Distribute makes the moves of a distribution. tree has the inventories as they are to be: they decide how much room
// there is at each place, with what allocations say is in use there, and how large a single allocation may be. What
// consumers hold at From is not counted as in use.
//
// Consumers that Where knows come first. Then the others, the largest amounts first, each to the place where it leaves the least
// room, or if it fits nowhere as a whole, split over the roomiest places. The result is the same for the same
// arguments, and there is nothing left to move when the moves were applied.
//
// Errors: a [*ReshapeFailed] that lists every consumer for which there is no room, and every answer of Where that
// cannot be. Packing whole amounts as well as possible is not promised.
//
// Cost: O(consumers × places).
func (d Distribution) Distribute(tree *providertree.Tree, allocations providertree.Allocations) (Moves, error) {
	run := distribution{Distribution: d, tree: tree, allocations: allocations, room: map[Place]int64{}}
	run.To = nil
	for _, place := range d.To {
		_, twice := run.room[place]
		inv, ok := run.inventory(place)
		switch {
		case twice:
		case place == d.From:
			run.offend("", place, "allocations are to go to where they come from")
		case !ok:
			run.offend("", place, "allocations are to go here, and there is no inventory")
		default:
			run.To = append(run.To, place)
			run.room[place] = inv.Capacity() - allocations.Used(place.Provider)[place.Class]
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
				run.told(consumer, held, portions)
				continue
			}
		}
		unknown = append(unknown, share{consumer, held})
	}
	slices.SortStableFunc(unknown, func(a, b share) int { return cmp.Compare(b.amount, a.amount) })
	for _, u := range unknown {
		run.choose(u.consumer, u.amount)
	}
	if len(run.offenders) > 0 {
		return nil, &ReshapeFailed{Reason: fmt.Sprintf("what is allocated of %s cannot be distributed", d.From), Offenders: run.offenders}
	}
	return run.moves, nil
}

// distribution is a Distribution under way.
type distribution struct {
	Distribution
	tree        *providertree.Tree
	allocations providertree.Allocations
	room        map[Place]int64
	moves       Moves
	offenders   []Offender
}

func (d *distribution) offend(consumer string, at Place, problem string) {
	d.offenders = append(d.offenders, Offender{Consumer: consumer, Provider: at.Provider, Class: at.Class, Problem: problem})
}

func (d *distribution) inventory(p Place) (providertree.Inventory, bool) {
	provider, _ := d.tree.Provider(p.Provider)
	inv, ok := provider.Inventories[p.Class]
	return inv, ok
}

// told takes the driver's word for where a consumer's share is. Room is no question then: it is there.
func (d *distribution) told(consumer string, held int64, portions []Portion) {
	var sum int64
	for _, p := range portions {
		switch _, ok := d.room[p.Place]; {
		case !ok:
			d.offend(consumer, p.Place, "the consumer's share is said to be here, where none of it can go")
			return
		case p.Amount < 1 || p.Amount > held-sum:
			d.offend(consumer, d.From, fmt.Sprintf("%d are allocated, and shares are said to be elsewhere that are not as much together", held))
			return
		}
		sum += p.Amount
	}
	if sum != held {
		d.offend(consumer, d.From, fmt.Sprintf("%d are allocated, and only %d are said to be elsewhere", held, sum))
		return
	}
	d.take(consumer, portions)
}

// choose looks for room.
func (d *distribution) choose(consumer string, held int64) {
	var best *Portion
	for _, place := range d.To {
		if d.fits(consumer, place, held) == held && (best == nil || d.room[place] < d.room[best.Place]) {
			best = &Portion{Place: place, Amount: held}
		}
	}
	if best != nil {
		d.take(consumer, []Portion{*best})
		return
	}
	if d.Whole {
		d.offend(consumer, d.From, fmt.Sprintf("%d are allocated, and there is no place with room for all of them", held))
		return
	}
	roomiest := slices.Clone(d.To)
	slices.SortStableFunc(roomiest, func(a, b Place) int { return cmp.Compare(d.room[b], d.room[a]) })
	var portions []Portion
	rest := held
	for _, place := range roomiest {
		if n := d.fits(consumer, place, rest); n > 0 {
			portions = append(portions, Portion{Place: place, Amount: n})
			rest -= n
		}
	}
	if rest > 0 {
		d.offend(consumer, d.From, fmt.Sprintf("%d are allocated, and there is room for %d only", held, held-rest))
		return
	}
	d.take(consumer, portions)
}

// fits is how many of an amount can be added to what the consumer holds at a place.
func (d *distribution) fits(consumer string, at Place, amount int64) int64 {
	inv, ok := d.inventory(at)
	if !ok {
		return 0
	}
	there := d.allocations[consumer].Resources[at.Provider][at.Class]
	all := min(amount, d.room[at], inv.MaxUnit-there) + there
	all -= all % inv.StepSize
	if all < inv.MinUnit || all <= there {
		return 0
	}
	return all - there
}

func (d *distribution) take(consumer string, portions []Portion) {
	for _, p := range portions {
		d.room[p.Place] -= p.Amount
		d.moves = append(d.moves, Move{Consumer: consumer, From: d.From, To: p.Place, Amount: p.Amount})
	}
}
