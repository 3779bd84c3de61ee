// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"errors"
	"fmt"
	"maps"
	"math"
)

// MaxUnit is the largest amount that Placement stores for any field of an inventory (2^31-1), and its default for
// max_unit.
const MaxUnit = math.MaxInt32

// MaxRatio is the largest allocation_ratio that Placement takes.
const MaxRatio = 3.40282e+38

// Inventory is how much of one resource class a resource provider has. Amounts are in the unit of the class (VCPU: a
// virtual CPU, MEMORY_MB: MiB, DISK_GB: GiB, ...).
//
// In all fields but Total and Reserved, zero means Placement's default, so Inventory{Total: 8} is complete. Inventories
// are compared and stored normalised, see [Inventory.Normalize].
type Inventory struct {
	// Total is the amount that physically exists. At least 1.
	Total int64
	// Reserved is the part of Total that is not for guests. Placement takes at most Total.
	Reserved int64
	// MinUnit and MaxUnit bound a single allocation. Defaults: 1 and [MaxUnit].
	MinUnit int64
	MaxUnit int64
	// StepSize divides every allocation. Default: 1.
	StepSize int64
	// AllocationRatio is the overcommit factor: (Total-Reserved)*AllocationRatio can be allocated. Default: 1.0.
	AllocationRatio float64
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

// Validate reports every bound of Placement's that the inventory breaks, joined into one error, or nil. That more is reserved
// than there is, is none of them: Placement refuses to be told so, but there are ways by which it comes to say it (a reshape), and
// what it says must be readable.
func (i Inventory) Validate() error { return i.Normalize().ValidateStored() }

// ValidateStored is [Inventory.Validate] of an inventory in which zero stands for itself and not for a default, as in
// what Placement stores. There, an allocation_ratio of 0 is valid: nothing can be allocated.
func (i Inventory) ValidateStored() error {
	if i.valid() {
		return nil
	}
	var errs []error
	bound := func(field string, v, low int64) {
		if v < low || v > MaxUnit {
			errs = append(errs, fmt.Errorf("%s is %d, must be between %d and %d", field, v, low, int64(MaxUnit)))
		}
	}
	bound("total", i.Total, 1)
	bound("reserved", i.Reserved, 0)
	bound("min_unit", i.MinUnit, 1)
	bound("max_unit", i.MaxUnit, 1)
	bound("step_size", i.StepSize, 1)
	if r := i.AllocationRatio; !validRatio(r) {
		errs = append(errs, fmt.Errorf("allocation_ratio is %v, must be a positive number up to %v", r, MaxRatio))
	}
	return errors.Join(errs...)
}

// valid is [Inventory.ValidateStored] without the words.
func (i Inventory) valid() bool {
	within := func(v, low int64) bool { return v >= low && v <= MaxUnit }
	return within(i.Total, 1) && within(i.Reserved, 0) && within(i.MinUnit, 1) && within(i.MaxUnit, 1) && within(i.StepSize, 1) &&
		validRatio(i.AllocationRatio)
}

func validRatio(r float64) bool { return r >= 0 && r <= MaxRatio } // not so NaN

// ratioPrecision is the relative difference below which two allocation ratios are the same: Placement's database keeps
// them as a FLOAT, of which MySQL gives back six digits.
const ratioPrecision = 1e-5

// Equal reports whether both mean the same to Placement: with its defaults filled in, and ratios as precise as it keeps them.
func (i Inventory) Equal(o Inventory) bool {
	a, b := i.Normalize(), o.Normalize()
	same := math.Abs(a.AllocationRatio-b.AllocationRatio) <= ratioPrecision*min(a.AllocationRatio, b.AllocationRatio)
	a.AllocationRatio, b.AllocationRatio = 0, 0
	return a == b && same
}

// Inventories is the inventory of one resource provider by resource class. A class that the provider does not have is
// absent: Placement knows no inventory with a total of 0.
type Inventories map[string]Inventory

// Classes returns the resource classes, sorted.
func (v Inventories) Classes() []string { return sortedKeys(v) }

// Equal reports whether both hold the same classes with the same normalised inventories. A nil map equals an empty one.
func (v Inventories) Equal(other Inventories) bool {
	return maps.EqualFunc(v, other, Inventory.Equal)
}

// normalize returns a normalised copy, never nil.
func (v Inventories) normalize() Inventories {
	out := make(Inventories, len(v))
	for class, inv := range v {
		out[class] = inv.Normalize()
	}
	return out
}

// Validate reports broken class names and inventories, joined into one error, or nil: all of them, if there are not very many.
func (v Inventories) Validate() error {
	if v.valid() {
		return nil
	}
	var errs []error
	for _, class := range v.Classes() {
		if err := ValidateClass(class); err != nil {
			errs = tell(errs, err)
			continue
		}
		if err := v[class].Validate(); err != nil {
			errs = tell(errs, fmt.Errorf("inventory of %s: %w", class, err))
		}
	}
	return errors.Join(errs...)
}

// valid is [Inventories.Validate] without the words, and without sorting.
func (v Inventories) valid() bool {
	for class, inv := range v {
		if ValidateClass(class) != nil || !inv.Normalize().valid() {
			return false
		}
	}
	return true
}
