// SPDX-License-Identifier: Apache-2.0

package providertree_test

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
)

func TestFits(t *testing.T) {
	t.Parallel()
	type limits = providertree.Limits
	all := limits{Capacity: 16, MinUnit: 2, MaxUnit: 8, StepSize: 2}
	with := func(change func(*limits)) limits { l := all; change(&l); return l }
	for name, c := range map[string]struct {
		limits       limits
		used, amount int64
		want         providertree.Rule
		text         string
	}{
		"fits":              {all, 0, 8, providertree.RuleNone, ""},
		"fits exactly":      {all, 8, 8, providertree.RuleNone, ""},
		"the least":         {all, 0, 2, providertree.RuleNone, ""},
		"one of min_unit 0": {limits{Capacity: 1, MaxUnit: 1, StepSize: 1}, 0, 1, providertree.RuleNone, ""},
		"too little":        {all, 0, 1, providertree.RuleMinUnit, "1 is less than min_unit 2"},
		"too much at once":  {all, 0, 10, providertree.RuleMaxUnit, "10 is more than max_unit 8"},
		"between steps":     {all, 0, 3, providertree.RuleStepSize, "3 is not a multiple of step_size 2"},
		"too much": {all, 10, 8,
			providertree.RuleCapacity, "8 is more than available: capacity 16, used 10"},
		"more used than there is": {all, 18, 2,
			providertree.RuleCapacity, "2 is more than available: capacity 16, used 18"},
		"the unit before what is free": {all, 16, 3, providertree.RuleStepSize, "3 is not a multiple of step_size 2"},
		"step_size 0": {with(func(l *limits) { l.StepSize = 0 }), 0, 2, providertree.RuleStepSize,
			"2 is not a multiple of step_size 0"},
		"negative step_size": {with(func(l *limits) { l.StepSize = -2 }), 0, 4, providertree.RuleNone, ""},
		"not of negative step": {with(func(l *limits) { l.StepSize = -2 }), 0, 3, providertree.RuleStepSize,
			"3 is not a multiple of step_size -2"},
		"least step_size": {with(func(l *limits) { l.StepSize = math.MinInt64 }), 0, 4,
			providertree.RuleStepSize, "4 is not a multiple of step_size -9223372036854775808"},
		"max_unit 0": {with(func(l *limits) { l.MaxUnit = 0 }), 0, 2, providertree.RuleMaxUnit,
			"2 is more than max_unit 0"},
		"min_unit 0": {with(func(l *limits) { l.MinUnit = 0 }), 0, 2, providertree.RuleNone, ""},
		"nothing of min_unit 0": {with(func(l *limits) { l.MinUnit = 0 }), 0, 0, providertree.RuleMinUnit,
			"0 is less than min_unit 1"},
		"negative of min_unit -5": {with(func(l *limits) { l.MinUnit = -5 }), 0, -2, providertree.RuleMinUnit,
			"-2 is less than min_unit 1"},
		"negative capacity": {with(func(l *limits) { l.Capacity = -1 }), 0, 2, providertree.RuleCapacity,
			"2 is more than available: capacity -1, used 0"},
		"beyond all numbers": {with(func(l *limits) { l.Capacity = math.MinInt64 }), math.MaxInt64, 2,
			providertree.RuleCapacity,
			"2 is more than available: capacity -9223372036854775808, used 9223372036854775807"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.limits.Broken(c.used, c.amount); got != c.want {
				t.Errorf("rule %v, want %+v", got, c.want)
			}
			err := c.limits.Fits(c.used, c.amount)
			var fit *providertree.FitError
			if errors.As(err, &fit) != (c.want != providertree.RuleNone) {
				t.Fatalf("error %v, want one of rule %v", err, c.want)
			}
			if fit != nil &&
				(*fit != providertree.FitError{Rule: c.want, Limits: c.limits, Used: c.used, Amount: c.amount} ||
					err.Error() != c.text) {
				t.Errorf("%+v: %v, want %s", *fit, err, c.text)
			}
		})
	}
}

// TestFitsAgreesWithPlainArithmetic: what fits is what the four rules say, in numbers so small that
// nothing can go over.
func TestFitsAgreesWithPlainArithmetic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := func(label string) int64 { return rapid.Int64Range(-4, 12).Draw(t, label) }
		l := providertree.Limits{Capacity: n("capacity"),
			MinUnit: n("min_unit"), MaxUnit: n("max_unit"), StepSize: n("step_size")}
		used, amount := n("used"), n("amount")
		units := amount >= 1 && amount >= l.MinUnit && amount <= l.MaxUnit && l.StepSize != 0 && amount%l.StepSize == 0
		if got := l.BrokenUnit(amount) == providertree.RuleNone; got != units {
			t.Fatalf("units of %d: %v", amount, l.BrokenUnit(amount))
		}
		if got := l.Broken(used, amount) == providertree.RuleNone; got != (units && used+amount <= l.Capacity) {
			t.Fatalf("%d beside %d: %v", amount, used, l.Broken(used, amount))
		}
	})
}

// TestInventoryFitsWithDefaults: zero in an inventory of a tree is Placement's default.
func TestInventoryFitsWithDefaults(t *testing.T) {
	t.Parallel()
	inv := providertree.Inventory{Total: 8, Reserved: 1, AllocationRatio: 2}
	if want := (providertree.Limits{Capacity: 14, MinUnit: 1, MaxUnit: providertree.MaxUnit,
		StepSize: 1}); inv.Limits() != want {
		t.Errorf("%+v, want %+v", inv.Limits(), want)
	}
	if err := inv.Fits(7, 7); err != nil {
		t.Error(err)
	}
	if err := inv.Fits(8, 7); err == nil {
		t.Error("15 of 14 fit")
	}
}

// TestWhatMayLeaveAnInventory: what the inventory has no longer, or does not fit; not what it could
// hold as before.
func TestWhatMayLeaveAnInventory(t *testing.T) {
	t.Parallel()
	was := providertree.Inventory{Total: 8, Reserved: 1, AllocationRatio: 4}
	for name, c := range map[string]struct {
		change func(*providertree.Inventory)
		want   bool
	}{
		"it stays": {func(*providertree.Inventory) {}, false},
		"it grows": {func(i *providertree.Inventory) {
			i.Total, i.Reserved,
				i.AllocationRatio = 9, 0, 5
		}, false},
		"defaults are written out": {func(i *providertree.Inventory) {
			i.MinUnit, i.MaxUnit, i.StepSize = 1,
				providertree.MaxUnit, 1
		}, false},
		"its units fit the amount": {func(i *providertree.Inventory) { i.MinUnit, i.MaxUnit, i.StepSize = 2, 4, 2 },
			false},
		"its total is less":            {func(i *providertree.Inventory) { i.Total = 7 }, true},
		"less, at a higher ratio":      {func(i *providertree.Inventory) { i.Total, i.AllocationRatio = 4, 16 }, true},
		"more is reserved":             {func(i *providertree.Inventory) { i.Reserved = 2 }, true},
		"its ratio is less":            {func(i *providertree.Inventory) { i.AllocationRatio = 2 }, true},
		"the amount is below min_unit": {func(i *providertree.Inventory) { i.MinUnit = 5 }, true},
		"the amount is above max_unit": {func(i *providertree.Inventory) { i.MaxUnit = 3 }, true},
		"the amount is between steps":  {func(i *providertree.Inventory) { i.StepSize = 3 }, true},
	} {
		t.Run(name, func(t *testing.T) {
			next := was
			c.change(&next)
			if got := was.MayLeave(next, 4); got != c.want {
				t.Errorf("may leave: %v, want %+v", got, c.want)
			}
		})
	}
}

func TestCapacityIsCutTowardsZero(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		total, reserved int64
		ratio           float64
		want            int64
	}{
		{10, 0, 1, 10}, {10, 2, 1.5, 12}, {3, 0, 0.5, 1},
		{1, 0, 16, 16}, {7, 0, 1.1, 7}, {5, 10, 0.3, -1}, {8, 0, 0, 0}, {8, 0, -1, -8},
		{8, 0, math.NaN(), 0}, {0, 0, math.Inf(1), 0}, {math.MaxInt32, 0, 3.40282e+38, math.MaxInt64},
		{math.MaxInt32, 0, -3.40282e+38, math.MinInt64},
		{math.MinInt64, 8, 1, math.MinInt64}, {8, math.MinInt64, 1, math.MaxInt64},
	} {
		if got := providertree.Capacity(c.total, c.reserved, c.ratio); got != c.want {
			t.Errorf("(%d - %d) * %v is %d, want %d", c.total, c.reserved, c.ratio, got, c.want)
		}
	}
}

func BenchmarkFits(b *testing.B) {
	limits := providertree.Inventory{Total: 64}.Limits()
	b.ReportAllocs()
	for b.Loop() {
		if limits.Broken(8, 4) != providertree.RuleNone {
			b.Fatal("4 of 56 do not fit")
		}
	}
}
