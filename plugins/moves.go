// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Place is a resource class on a resource provider.
type Place struct {
	// Provider is a uuid.
	Provider string
	Class    string
}

func (p Place) String() string { return p.Class + " on " + p.Provider }

// Move moves Amount of a consumer from From to To. These can be two providers, two classes of one
// provider, or both.
type Move struct {
	// Consumer is a uuid.
	Consumer string
	From, To Place
	// Amount is at least 1, in the unit of both classes.
	Amount int64
}

// Moves describes a reshape: what moves where. [Moves.Apply] returns the resulting allocations. The
// total amounts of a consumer over all places never change.
//
// [MoveAll], [RenameClass] and [Distribution.Distribute] make the moves of the usual reshapes; the
// results can be appended.
type Moves []Move

// Apply returns the allocations after the moves, in their order: a later one finds what an earlier
// one brought, so moving there and back changes nothing. The allocations given stay as they are,
// and nil stays nil when there is nothing to move. What is used up disappears, so that no empty
// resources are left.
//
// Errors: a [*ReshapeFailed] that lists every move that cannot be made: of a consumer that holds
// less than that there or is not in the allocations at all, of no amount, to where it is already,
// or to more than Placement can store.
//
// Cost: O(allocations + moves).
func (m Moves) Apply(allocations providertree.Allocations) (providertree.Allocations, error) {
	after := allocations.Clone()
	var violations []Violation
	for _, move := range m {
		if problem := move.apply(after); problem != "" {
			violations = append(violations,
				Violation{Consumer: move.Consumer, Provider: move.From.Provider,
					Class: move.From.Class, Problem: problem})
		}
	}
	if len(violations) > 0 {
		return nil, &ReshapeFailed{Reason: "not everything can be moved", Violations: violations}
	}
	return after, nil
}

// apply makes one move, or returns why it is invalid.
func (m Move) apply(allocations providertree.Allocations) string {
	consumer, known := allocations[m.Consumer]
	held := consumer.Resources[m.From.Provider][m.From.Class]
	there := consumer.Resources[m.To.Provider][m.To.Class]
	switch {
	case m.Amount < 1:
		return fmt.Sprintf("the amount to move is %d, must be at least 1", m.Amount)
	case m.From == m.To:
		return "source and destination of the move are the same"
	case !known:
		return fmt.Sprintf("%d move to %s, and the consumer has no allocations in this tree", m.Amount, m.To)
	case held < m.Amount:
		return fmt.Sprintf("%d move to %s, and %d are allocated", m.Amount, m.To, held)
	case there > providertree.MaxUnit-m.Amount:
		return fmt.Sprintf("%d move to %s, where %d are already allocated: more than Placement can store",
			m.Amount, m.To, there)
	}
	consumer.Resources.Add(m.From.Provider, m.From.Class, -m.Amount)
	consumer.Resources.Add(m.To.Provider, m.To.Class, m.Amount)
	return ""
}

// Inverse returns the moves that undo these.
func (m Moves) Inverse() Moves {
	out := make(Moves, 0, len(m))
	for _, move := range slices.Backward(m) {
		move.From, move.To = move.To, move.From
		out = append(out, move)
	}
	return out
}

// MoveAll moves all allocations at one place to another.
func MoveAll(allocations providertree.Allocations, from, to Place) Moves {
	var out Moves
	if from == to {
		return nil
	}
	for _, consumer := range slices.Sorted(maps.Keys(allocations)) {
		if held := allocations[consumer].Resources[from.Provider][from.Class]; held > 0 {
			out = append(out, Move{Consumer: consumer, From: from, To: to, Amount: held})
		}
	}
	return out
}

// RenameClass moves all allocations of one class on the given providers (the driver's own) to
// another class. Consumers can have the same class on other hosts, where it keeps its name. The
// driver must declare the rename ([Renamer]).
func RenameClass(allocations providertree.Allocations, from, to string, providers ...string) Moves {
	var out Moves
	for _, uuid := range providers {
		out = append(out, MoveAll(allocations, Place{Provider: uuid, Class: from}, Place{Provider: uuid, Class: to})...)
	}
	return out
}
