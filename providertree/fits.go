// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"math"
)

// Limits are the numbers that decide which amounts fit an inventory. As in a row of Placement's
// database, zero is zero in every field, not a default. Rows that another program wrote can have
// values that no API accepts; these have the same effect as in OpenStack's Placement:
//
//   - step_size 0 and max_unit below 1 allow no amount, a negative step_size is as its absolute
//     value, min_unit below 1 is as 1;
//   - allocation_ratio 0 is a capacity of 0, a negative one a negative capacity, NaN a capacity of
//     0.
//
// [Inventory.Limits] fills in Placement's defaults first, the ledger does not.
type Limits struct {
	// Capacity is the amount that can be allocated in all, see [Capacity].
	Capacity int64
	// MinUnit and MaxUnit bound one allocation, StepSize divides it.
	MinUnit, MaxUnit, StepSize int64
}

// Rule is a rule of an inventory that an amount can break.
type Rule uint8

// The rules of an inventory, in the order in which they are looked at.
const (
	// RuleNone is broken by no amount: the amount fits.
	RuleNone Rule = iota
	// RuleMinUnit requires at least min_unit, and at least 1, of each allocation.
	RuleMinUnit
	// RuleMaxUnit allows at most max_unit to each allocation.
	RuleMaxUnit
	// RuleStepSize requires of each allocation that it is a multiple of step_size.
	RuleStepSize
	// RuleCapacity allows at most the capacity to all allocations together.
	RuleCapacity
)

// String is the name of the field that the rule is about: min_unit, max_unit, step_size, capacity.
func (r Rule) String() string {
	return [...]string{"none", "min_unit", "max_unit", "step_size", "capacity"}[r]
}

// BrokenUnit returns the rule for a single allocation that the amount breaks, [RuleNone] for none.
// It does not depend on the used amount.
//
// Cost: it allocates no memory.
func (l Limits) BrokenUnit(amount int64) Rule {
	switch {
	case amount < max(l.MinUnit, 1):
		return RuleMinUnit
	case amount > l.MaxUnit:
		return RuleMaxUnit
	case l.StepSize == 0 || amount%l.StepSize != 0:
		return RuleStepSize
	}
	return RuleNone
}

// Broken returns the first rule that the amount breaks if an amount is used already; RuleNone if it
// fits. It is [Limits.Fits] without the error.
func (l Limits) Broken(used, amount int64) Rule {
	if r := l.BrokenUnit(amount); r != RuleNone {
		return r
	}
	if amount > l.Free(used) {
		return RuleCapacity
	}
	return RuleNone
}

// Free returns how much of the capacity is not used. It is negative if more than the capacity is
// used.
func (l Limits) Free(used int64) int64 {
	free := l.Capacity - used
	if (free > l.Capacity) == (used < 0) {
		return free
	}
	if l.Capacity < 0 { // it wrapped
		return math.MinInt64
	}
	return math.MaxInt64
}

// Most returns the largest amount that one allocation could have, without regard to min_unit and
// step_size.
func (l Limits) Most(used int64) int64 { return min(l.Free(used), l.MaxUnit) }

// Fits returns nil if an amount can be allocated in one piece when used is allocated already;
// otherwise a [*FitError].
func (l Limits) Fits(used, amount int64) error {
	if r := l.Broken(used, amount); r != RuleNone {
		return &FitError{Rule: r, Limits: l, Used: used, Amount: amount}
	}
	return nil
}

// FitError says why an amount does not fit an inventory.
type FitError struct {
	// Rule is the first rule that is broken.
	Rule Rule
	// Limits are the limits of the inventory.
	Limits Limits
	// Used is what was allocated already, Amount what did not fit.
	Used, Amount int64
}

// Error implements error.
func (e *FitError) Error() string {
	switch e.Rule {
	case RuleMinUnit:
		return fmt.Sprintf("%d is less than min_unit %d", e.Amount, max(e.Limits.MinUnit, 1))
	case RuleMaxUnit:
		return fmt.Sprintf("%d is more than max_unit %d", e.Amount, e.Limits.MaxUnit)
	case RuleStepSize:
		return fmt.Sprintf("%d is not a multiple of step_size %d", e.Amount, e.Limits.StepSize)
	default:
		return fmt.Sprintf("%d is more than available: capacity %d, used %d", e.Amount, e.Limits.Capacity, e.Used)
	}
}

// Limits returns what the inventory allows, with Placement's defaults in the fields that are zero.
func (i Inventory) Limits() Limits {
	n := i.Normalize()
	return Limits{Capacity: Capacity(n.Total, n.Reserved, n.AllocationRatio), MinUnit: n.MinUnit,
		MaxUnit: n.MaxUnit, StepSize: n.StepSize}
}

// Fits returns nil if an amount can be allocated in one piece when used is allocated already;
// otherwise a [*FitError]. For many amounts, take [Inventory.Limits] once.
func (i Inventory) Fits(used, amount int64) error { return i.Limits().Fits(used, amount) }

// Capacity is the amount that can be allocated in all, with Placement's defaults in the fields that
// are zero.
func (i Inventory) Capacity() int64 { return i.Limits().Capacity }

// MayLeave reports whether a reshape that changes the inventory to next may move an allocation of
// an amount away from it: if the inventory shrinks, or gets units that the amount does not fit.
// From an inventory that stays as it is nothing may move, because the amount would be free there
// and allocated a second time. From an inventory that is removed, everything may move.
func (i Inventory) MayLeave(next Inventory, amount int64) bool {
	is := next.Limits()
	return next.Total < i.Total || is.Capacity < i.Capacity() || is.BrokenUnit(amount) != RuleNone
}

// Capacity is (total-reserved)*ratio, cut to a whole number towards zero as Placement's int() does,
// and to what an int64 holds. It is 0 where the product is not a number.
func Capacity(total, reserved int64, ratio float64) int64 {
	c := (float64(total) - float64(reserved)) * ratio
	switch {
	case math.IsNaN(c):
		return 0
	case c >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(max(c, math.MinInt64))
}
