// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
)

// TestInventoryBounds: the fields that are wrong in an inventory that is stored, that is read, and
// that is to be written.
func TestInventoryBounds(t *testing.T) {
	t.Parallel()
	const least, most = 1.1754944e-38, providertree.MaxRatio
	with := func(change func(i *providertree.Inventory)) providertree.Inventory {
		i := providertree.Inventory{Total: 4, MinUnit: 1, MaxUnit: 4, StepSize: 1, AllocationRatio: 1}
		change(&i)
		return i
	}
	ratio := func(r float64) providertree.Inventory {
		return with(func(i *providertree.Inventory) { i.AllocationRatio = r })
	}
	var none []string
	total, reserved, minUnit, maxUnit, ratios := []string{"total"}, []string{"reserved"}, []string{"min_unit"},
		[]string{"max_unit"}, []string{"allocation_ratio"}
	for name, c := range map[string]struct {
		inv                   providertree.Inventory
		stored, read, written []string
	}{
		"good": {ratio(1), none, none, none},
		"defaults": {providertree.Inventory{Total: 1},
			[]string{"min_unit", "max_unit", "step_size"}, none, none},
		"ratio 0":            {ratio(0), none, none, none},
		"the largest ratio":  {ratio(most), none, none, none},
		"a larger ratio":     {ratio(math.Nextafter(most, math.Inf(1))), ratios, ratios, ratios},
		"the smallest ratio": {ratio(least), none, none, none},
		"a smaller ratio":    {ratio(math.Nextafter(least, 0)), none, none, ratios},
		"a negative ratio":   {ratio(-1), ratios, ratios, ratios},
		"all reserved":       {with(func(i *providertree.Inventory) { i.Reserved = 4 }), none, none, none},
		"more reserved than total": {with(func(i *providertree.Inventory) { i.Total, i.Reserved = 1, 2 }), none, none,
			reserved},
		"reserved of nothing": {with(func(i *providertree.Inventory) { i.Total, i.Reserved = 0, 2 }), total, total,
			total},
		"one unit": {with(func(i *providertree.Inventory) { i.MinUnit, i.MaxUnit = 1, 1 }), none, none, none},
		"crossed units": {with(func(i *providertree.Inventory) { i.MinUnit, i.MaxUnit = 2, 1 }), none, none,
			minUnit},
		"max_unit below 0": {with(func(i *providertree.Inventory) { i.MaxUnit = -1 }), maxUnit, maxUnit, maxUnit},
	} {
		for way, e := range map[string]struct {
			err  error
			want []string
		}{"stored": {c.inv.ValidateStored(), c.stored},
			"read": {c.inv.Validate(), c.read}, "written": {c.inv.Check().Err(), c.written}} {
			var found providertree.Violations
			errors.As(e.err, &found)
			var got []string
			for _, v := range found {
				got = append(got, v.Field)
			}
			if !slices.Equal(got, e.want) {
				t.Errorf("%s, %s: %v", name, way, e.err)
			}
		}
	}
}

// TestRatiosAreEqualToFiveDigits: MySQL gives back six digits of a FLOAT.
func TestRatiosAreEqualToFiveDigits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b float64
		want bool
	}{
		{16, 16.0001, true}, {16, 16.0002, false}, {0.001, 0.001000009, true}, {0.001, 0.001000011, false},
		{1.1, float64(float32(1.1)), true}, {0, 1, true},
		{1, 2, false}, {5e-324, 5e-324, true}, {providertree.MaxRatio, providertree.MaxRatio, true},
	} {
		a, b := providertree.Inventory{Total: 1, AllocationRatio: c.a},
			providertree.Inventory{Total: 1, AllocationRatio: c.b}
		if a.Equal(b) != c.want || b.Equal(a) != c.want {
			t.Errorf("%v and %v are equal: %t, %t", c.a, c.b, a.Equal(b), b.Equal(a))
		}
	}
}
