// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"maps"
	"math"
)

// MaxUnit is the largest amount that Placement stores for any field of an inventory (2^31-1), and
// its default for max_unit.
const MaxUnit = math.MaxInt32

// MaxRatio is the largest allocation_ratio that Placement takes.
const MaxRatio = 3.40282e+38

// Inventory is how much of one resource class a resource provider has. Amounts are in the unit of
// the class (VCPU: a virtual CPU, MEMORY_MB: MiB, DISK_GB: GiB, ...).
//
// In all fields but Total and Reserved, zero means Placement's default, so Inventory{Total: 8} is
// complete. Inventories are compared and stored normalised, see [Inventory.Normalize].
type Inventory struct {
	// Total is the amount that physically exists. At least 1.
	Total int64 `json:"total"`
	// Reserved is the part of Total that is not for guests. Placement takes at most Total.
	Reserved int64 `json:"reserved"`
	// MinUnit and MaxUnit bound a single allocation. Defaults: 1 and [MaxUnit].
	MinUnit int64 `json:"min_unit"`
	MaxUnit int64 `json:"max_unit"`
	// StepSize divides every allocation. Default: 1.
	StepSize int64 `json:"step_size"`
	// AllocationRatio is the overcommit factor: (Total-Reserved)*AllocationRatio can be allocated.
	// Default: 1.0.
	AllocationRatio float64 `json:"allocation_ratio"`
}

// Normalize returns the inventory with Placement's defaults in the fields that are zero.
func (i Inventory) Normalize() Inventory {
	if i.MinUnit == 0 {
		i.MinUnit = 1
	}
	if i.MaxUnit == 0 {
		i.MaxUnit = MaxUnit
	}
	if i.StepSize == 0 {
		i.StepSize = 1
	}
	if i.AllocationRatio == 0 {
		i.AllocationRatio = 1
	}
	return i
}

// Validate returns every bound of Placement that the inventory breaks, as [Violations], or nil. It
// accepts inventories that Placement can return but does not take, see [Inventory.Check].
func (i Inventory) Validate() error {
	n := i.Normalize()
	if n.valid() {
		return nil
	}
	return n.bounds(orDefault).Err()
}

// ValidateStored is [Inventory.Validate] of an inventory in which zero is not a default, as in what
// Placement stores. There, an allocation_ratio of 0 is valid: nothing can be allocated.
func (i Inventory) ValidateStored() error {
	if i.valid() {
		return nil
	}
	return i.bounds("").Err()
}

// Check is [Inventory.Validate] for an inventory that is to be written. In addition to the bounds,
// reserved must be at most total, min_unit at most max_unit, and the ratio not so small that
// Placement would store 0. Validate does not check these, because Placement may have such an
// inventory nevertheless. The fields of the violations are those of the inventory: total, reserved,
// min_unit, ...
func (i Inventory) Check() Violations {
	n := i.Normalize()
	out := n.bounds(orDefault)
	if n.Reserved > n.Total && n.Total >= 1 {
		out = append(out, Violation{
			Field: "reserved", Problem: fmt.Sprintf("reserved is %d, more than the total %d, which Placement refuses",
				n.Reserved, n.Total),
			Hint: fmt.Sprintf("write at most %d", n.Total),
		})
	}
	if n.MinUnit > n.MaxUnit && n.MaxUnit >= 1 {
		out = append(out, Violation{
			Field: "min_unit", Problem: fmt.Sprintf("min_unit is %d, more than max_unit %d", n.MinUnit, n.MaxUnit),
			Hint: "no allocation would be possible",
		})
	}
	if r := n.AllocationRatio; validRatio(r) && r < minRatio {
		out = append(out, Violation{
			Field: "allocation_ratio",
			Problem: fmt.Sprintf("allocation_ratio is %v, must be at least %v, or 0 for Placement's default",
				r, minRatio),
			Hint: "it would be stored as 0",
		})
	}
	return out
}

// orDefault is what a field may be beside its bounds where zero is a default.
const orDefault = ", or 0 for Placement's default"

// bounds checks each field by itself, without defaults.
func (i Inventory) bounds(or string) Violations {
	var out Violations
	bound := func(field string, v, low int64, or, hint string) {
		if v < low || v > MaxUnit {
			out = append(out, Violation{
				Field: field, Problem: fmt.Sprintf("%s is %d, must be between %d and %d%s",
					field, v, low, int64(MaxUnit), or), Hint: hint, kind: ErrInvalid,
			})
		}
	}
	bound("total", i.Total, 1, "", "leave out a class without inventory")
	bound("reserved", i.Reserved, 0, "", "")
	bound("min_unit", i.MinUnit, 1, or, "")
	bound("max_unit", i.MaxUnit, 1, or, "")
	bound("step_size", i.StepSize, 1, or, "")
	if r := i.AllocationRatio; !validRatio(r) {
		out = append(out, Violation{
			Field:   "allocation_ratio",
			Problem: fmt.Sprintf("allocation_ratio is %v, must be above 0 and at most %.4g%s", r, MaxRatio, or),
			kind:    ErrInvalid,
		})
	}
	return out
}

// valid is [Inventory.ValidateStored] without the texts.
func (i Inventory) valid() bool {
	within := func(v, low int64) bool { return v >= low && v <= MaxUnit }
	return within(i.Total, 1) && within(i.Reserved, 0) &&
		within(i.MinUnit, 1) && within(i.MaxUnit, 1) && within(i.StepSize, 1) &&
		validRatio(i.AllocationRatio)
}

func validRatio(r float64) bool { return r >= 0 && r <= MaxRatio } // not so NaN

// ratioPrecision is the relative difference below which two allocation ratios are the same:
// Placement's database keeps them as a FLOAT, of which MySQL gives back six digits.
const ratioPrecision = 1e-5

// Equal reports whether Placement would store both as the same inventory: with its defaults filled
// in, and ratios in its precision.
func (i Inventory) Equal(o Inventory) bool {
	a, b := i.Normalize(), o.Normalize()
	same := math.Abs(a.AllocationRatio-b.AllocationRatio) <= ratioPrecision*min(a.AllocationRatio, b.AllocationRatio)
	a.AllocationRatio, b.AllocationRatio = 0, 0
	return a == b && same
}

// Inventories is the inventory of one resource provider by resource class. A class that the
// provider does not have is absent: Placement knows no inventory with a total of 0.
type Inventories map[string]Inventory

// Classes returns the resource classes, sorted.
func (i Inventories) Classes() []string { return sortedKeys(i) }

// Equal reports whether both hold the same classes with the same normalised inventories. A nil map
// equals an empty one.
func (i Inventories) Equal(other Inventories) bool {
	return maps.EqualFunc(i, other, Inventory.Equal)
}

// normalize returns a normalised copy, never nil.
func (i Inventories) normalize() Inventories {
	out := make(Inventories, len(i))
	for class, inv := range i {
		out[class] = inv.Normalize()
	}
	return out
}

// Validate reports broken class names and inventories as [Violations], or nil.
func (i Inventories) Validate() error {
	if i.valid() {
		return nil
	}
	r := &reporter{}
	r.inventories(i)
	return r.found.Err()
}

// valid is [Inventories.Validate] without the texts, and without sorting.
func (i Inventories) valid() bool {
	for class, inv := range i {
		if ValidateClass(class) != nil || !inv.Normalize().valid() {
			return false
		}
	}
	return true
}

// Resources is amounts by resource class, each in the unit of its class. A class of which there is
// nothing is absent; nil is empty.
type Resources map[string]int64

// Clone returns a copy; nil stays nil.
func (r Resources) Clone() Resources { return maps.Clone(r) }

// Equal reports whether both are the same amounts of the same classes.
func (r Resources) Equal(o Resources) bool { return maps.Equal(r, o) }

// Classes returns the resource classes, sorted.
func (r Resources) Classes() []string { return sortedKeys(r) }

// Add adds amounts. A sum that does not fit an int64 becomes the nearest value that does, because
// the amounts are not trusted.
func (r Resources) Add(o Resources) {
	for class, n := range o {
		r[class] = addSaturated(r[class], n)
	}
}

func addSaturated(a, b int64) int64 {
	sum := a + b
	if (sum < a) == (b < 0) {
		return sum
	}
	if sum < 0 { // it wrapped
		return math.MaxInt64
	}
	return math.MinInt64
}
