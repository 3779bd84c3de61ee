// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// setVCPU is the write of an inventory.
func setVCPU(total, reserved int64) reportclient.Operation {
	return reportclient.Operation{Kind: reportclient.SetInventories, UUID: "u", Provider: "cn1",
		Inventories: providertree.Inventories{"VCPU": {Total: total, Reserved: reserved}}}
}

// TestWhenAnItemFlaps: in which pass it is reported first, by what the passes write. 0 is a pass
// that writes nothing, -1 one that writes what the one before wrote.
func TestWhenAnItemFlaps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		total func(pass int) int64
		want  int // 0: never, in a hundred passes
	}{
		"to and fro":              {func(n int) int64 { return 8 + int64(n%2) }, 10},
		"up and down, never back": {func(n int) int64 { return 1000 + int64(n*5-n%2*20) }, 10},
		"down and up, never back": {func(n int) int64 { return 1000 - int64(n*5-n%2*20) }, 10},
		"only up":                 {func(n int) int64 { return 8 + int64(n) }, 16},
		"only down":               {func(n int) int64 { return 1000 - int64(n) }, 16},
		"only up, 15 of 16":       {func(n int) int64 { return int64(8+n) * b2i(n%16 < 15) }, 0},
		"another field":           {func(int) int64 { return 1000 }, 16},
		"ten of sixteen passes":   {func(n int) int64 { return int64(8+n%3) * b2i(n%8 < 5) }, 13},
		"nine of sixteen passes":  {func(n int) int64 { return int64(8+n%3) * b2i(n%16 < 9) }, 0},
		"nine times, and then restored": {func(n int) int64 {
			if n < 9 {
				return 8 + int64(n%2)
			}
			return -1
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, got, last := flaps{}, 0, int64(0)
			for n := range 100 {
				var done []reportclient.Operation
				switch total := c.total(n); {
				case name == "another field":
					done = append(done, setVCPU(total, int64(n)))
				case total > 0:
					last = total
					done = append(done, setVCPU(total, 0))
				case total < 0:
					done = append(done, setVCPU(last, 0))
				}
				f.observe(done)
				if got == 0 && len(f.lines()) > 0 {
					got = n + 1
				}
			}
			testproc.Equal(t, got, c.want, "reported first in pass %d")
		})
	}
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// TestOthersDoNotMakeADriverFlap: what another client changes between two passes, and the driver
// hands on or restores, is no flapping of the driver; what the driver changes by itself is.
func TestOthersDoNotMakeADriverFlap(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	with := func(total int64, ratio float64) providertree.Inventories {
		return providertree.Inventories{"VCPU": {Total: total, AllocationRatio: ratio}}
	}
	for name, c := range map[string]struct {
		before, written func(pass int) providertree.Inventories
		want            int // how many items flap
	}{
		"another client writes totals, and ratios that the driver keeps": {
			func(n int) providertree.Inventories { return with(1, float64(1+n%2)) },
			func(n int) providertree.Inventories { return with(8, float64(1+n%2)) }, 0,
		},
		"another client removes the class": {
			func(int) providertree.Inventories { return providertree.Inventories{} },
			func(n int) providertree.Inventories { return with(int64(8+n%2), 1) }, 0,
		},
		"the driver": {
			func(n int) providertree.Inventories { return with(int64(9-n%2), 1) },
			func(n int) providertree.Inventories { return with(int64(8+n%2), 1) }, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := flaps{}
			for n := range 40 {
				f.observe([]reportclient.Operation{{
					Kind: reportclient.SetInventories, UUID: "u", Provider: "cn1",
					Before: &providertree.Provider{Inventories: c.before(n)}, Inventories: c.written(n),
				}})
			}
			if got := f.lines(); len(got) != c.want {
				t.Errorf("reported: %v", got)
			}
		})
	}
}

// TestWhenAnItemIsOverwritten: after the third pass that restores it, however often others change
// it, until an hour's passes find it as it was written.
func TestWhenAnItemIsOverwritten(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	with := func(total int64) *providertree.Provider {
		return &providertree.Provider{Inventories: providertree.Inventories{"VCPU": {Total: total}}}
	}
	for name, c := range map[string]struct{ every, want, until int }{
		"in every pass": {1, 4, 0}, "every fifth": {5, 16, 0}, "every hour": {60, 181, 0},
		"too rarely to tell": {70, 0, 0}, "three times": {5, 16, 16 + 64},
	} {
		t.Run(name, func(t *testing.T) {
			f, got, last := flaps{}, 0, 0
			for n := range 400 {
				var done []reportclient.Operation
				op := setVCPU(8, 0)
				switch {
				case n == 0:
					done = append(done, op)
				case n%c.every == 0 && (c.until == 0 || n <= 3*c.every):
					op.Before = with(1)
					done = append(done, op)
				}
				f.observe(done)
				if lines := f.overwritten(); len(lines) > 0 {
					if got == 0 {
						got = n + 1
						testproc.Contains(t, lines[0], "inventory VCPU of cn1: total 8", "reported: %s")
						testproc.Contains(t, lines[0],
							"restored 3 times; the last time it was found as: total 1", "reported: %s")
					}
					last = n + 1
				}
				if lines := f.lines(); len(lines) > 0 {
					t.Fatalf("the driver is reported to flap: %v", lines)
				}
			}
			testproc.Equal(t, got, c.want, "reported first in pass %d")
			if c.until > 0 {
				testproc.Equal(t, last, c.until, "reported last in pass %d")
			}
		})
	}
}

// TestFlapsAreNamed: each kind of item with its last four values, and no more items than are kept.
func TestFlapsAreNamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := flaps{}
	for n := range 10 {
		had, has := []string{"A"}, []string{"B"}
		if n%2 == 1 {
			had, has = has, had
		}
		kind := []reportclient.Kind{reportclient.CreateProvider, reportclient.DeleteProvider}[n%2]
		before := &providertree.Provider{Traits: had,
			Aggregates: had, Inventories: providertree.Inventories{"VCPU": {Total: 1}, had[0]: {Total: 1}}}
		f.observe([]reportclient.Operation{
			{Kind: reportclient.SetTraits, Provider: "traits", Traits: has, Before: before},
			{Kind: reportclient.SetAggregates, Provider: "aggregates", Aggregates: has, Before: before},
			{Kind: kind, Provider: "comes and goes"},
			{Kind: reportclient.UpdateProvider, Provider: "moves", Parent: had[0]},
			// VCPU stays as it is
			{Kind: reportclient.SetInventories, Provider: "classes", Before: before,
				Inventories: providertree.Inventories{"VCPU": {Total: 1}, has[0]: {Total: 1}}},
			setVCPU(int64(n%5+1), 0),
		})
	}
	inventory := func(total int) string {
		return fmt.Sprintf("total %d, reserved 0, ratio 1, units 1 to 2147483647 by 1", total)
	}
	fro := func(a, b string) string { return strings.Join([]string{a, b, a, b}, ", then ") }
	want := []string{
		"aggregate A of aggregates: " + fro("removed", "added"),
		"aggregate B of aggregates: " + fro("added", "removed"),
		"inventory A of classes: " + fro("removed", inventory(1)),
		"inventory B of classes: " + fro(inventory(1), "removed"),
		"inventory VCPU of cn1: " +
			strings.Join([]string{inventory(2), inventory(3), inventory(4), inventory(5)}, ", then "),
		"place and name of moves: " + fro("moves below A", "moves below B"),
		"resource provider of comes and goes: " + fro("created", "deleted"),
		"trait A of traits: " + fro("removed", "added"),
		"trait B of traits: " + fro("added", "removed"),
	}
	for i := range want {
		want[i] += ", written by 10 of the last 16 passes"
	}
	if got := f.lines(); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("reported:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	f = flaps{}
	for n := range 10 {
		var done []reportclient.Operation
		for i := range flapItems + 1 {
			op := setVCPU(int64(1+n%2), 0)
			op.UUID = fmt.Sprint(i)
			done = append(done, op)
		}
		f.observe(done)
	}
	if got := len(f.lines()); got != flapItems {
		t.Errorf("%d items are kept, want %d", got, flapItems)
	}
}
