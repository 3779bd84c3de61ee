// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// hosts are n hosts that are equal, but that the unsuitable ones cannot serve twoCPUs.
func hosts(n int, unsuitable func(i int) bool) placementtest.Forest {
	var f placementtest.Forest
	for i := range n {
		inv := placementtest.Inventory{Class: "VCPU", Total: 4}
		if unsuitable != nil && unsuitable(i) {
			inv.MaxUnit = 1
		}
		f = append(f, placementtest.Provider{Name: fmt.Sprint("h", i), Inventories: []placementtest.Inventory{inv}})
	}
	return f
}

var twoCPUs = &candidates.Request{Groups: []candidates.Group{asks("", "VCPU", 2)}}

// series makes successive searches for the same, and returns the providers of the candidates of
// each.
func series(
	t *testing.T, s *ledger.Snapshot, r *candidates.Request, searches int, o candidates.Options,
) (found [][]string) {
	t.Helper()
	o.Rotation.Window = o.Limit
	for range searches {
		var names []string
		stats := testproc.Try(candidates.Search(ctx, s, r, o, func(c *candidates.Candidate) bool {
			names = append(names, c.Allocations[0].Provider.Name)
			return true
		})).Or(t)
		found = append(found, names)
		o.Rotation.At += uint64(stats.Passed)
	}
	return found
}

// firsts counts the different first candidates of some searches, and all the different ones.
func firsts(found [][]string) (first, all int) {
	begun, seen := map[string]bool{}, map[string]bool{}
	for _, names := range found {
		begun[names[0]] = true
		for _, name := range names {
			seen[name] = true
		}
	}
	return len(begun), len(seen)
}

var phases = []uint64{0, 1, 1 << 63, 0x9e3779b97f4a7c15, 1<<64 - 1}

// TestSuccessiveSearchesBeginAtDifferentTrees: N searches begin at each of N suitable trees once,
// when they ask for one candidate or for all, wherever on the ring they begin and whatever stands
// between the trees.
func TestSuccessiveSearchesBeginAtDifferentTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, n := range []int{1, 2, 3, 4, 6, 10, 16, 50, 89} {
		for name, unsuitable := range map[string]func(int) bool{
			"none":             nil,
			"the first half":   func(i int) bool { return i < n/2 },
			"two of three":     func(i int) bool { return i%3 != 0 },
			"all but the last": func(i int) bool { return i < n-1 },
		} {
			s := plant(t, ground(t), hosts(n, unsuitable))
			suitable := 0
			for i := range n {
				if unsuitable == nil || !unsuitable(i) {
					suitable++
				}
			}
			for _, phase := range phases {
				for _, at := range []uint64{0, 1, 5, 1 << 40} {
					for _, o := range []candidates.Options{{Limit: 1}, {Limit: 1, DepthFirst: true},
						{Limit: n}, {Limit: 2 * n}, {}} {
						o.Rotation = candidates.Rotation{At: at, Phase: phase}
						if begun, _ := firsts(series(t, s, twoCPUs, suitable, o)); begun != suitable {
							t.Errorf("%d of %d hosts, unsuitable %s, %+v: as many searches begin at %d",
								suitable, n, name, o, begun)
						}
					}
				}
			}
		}
	}
}

// TestLimitedSearchesReachAllTrees: as many searches as it takes answers of that size to hold all
// trees do hold them, also where some trees serve nothing; and they begin at more and more trees.
func TestLimitedSearchesReachAllTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, e := range []struct {
		hosts, limit, searches int
		unsuitable             func(int) bool
	}{
		{10_000, 1000, 10, nil},
		{100, 10, 10, nil},
		{100, 7, 15, nil},
		{97, 10, 10, nil},
		{100, 99, 2, nil},
		{100, 10, 10, func(i int) bool { return i < 60 }},
		{100, 10, 10, func(i int) bool { return i%7 != 0 }},
	} {
		s := plant(t, ground(t), hosts(e.hosts, e.unsuitable))
		suitable := 0
		for i := range e.hosts {
			if e.unsuitable == nil || !e.unsuitable(i) {
				suitable++
			}
		}
		for _, phase := range phases {
			o := candidates.Options{Limit: e.limit, Rotation: candidates.Rotation{Phase: phase}}
			if _, reached := firsts(series(t, s, twoCPUs, e.searches, o)); reached != suitable {
				t.Errorf("%d of %d hosts, limit %d: %d searches reach %d",
					suitable, e.hosts, e.limit, e.searches, reached)
			}
			o.Rotation.At = 333 // In the middle of a lap, twice as many do it.
			if _, reached := firsts(series(t, s, twoCPUs, 2*e.searches, o)); reached != suitable {
				t.Errorf("%d of %d hosts, limit %d, not from the beginning: %d searches reach %d",
					suitable, e.hosts, e.limit, 2*e.searches, reached)
			}
			if begun, _ := firsts(series(t, s, twoCPUs, 4*e.searches, o)); e.unsuitable == nil && begun <= e.searches {
				t.Errorf("%d of %d hosts, limit %d: %d searches begin at %d",
					suitable, e.hosts, e.limit, 4*e.searches, begun)
			}
		}
	}
}

// TestConcurrentSearchesRarelyMeet: of 4 or 16 searches in a row, two at most begin at the same
// tree where most trees serve nothing, however these stand among the others.
func TestConcurrentSearchesRarelyMeet(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	g := ground(t)
	for name, unsuitable := range map[string]func(int) bool{
		"the first are full":          func(i int) bool { return i < 900 },
		"the last are full":           func(i int) bool { return i >= 100 },
		"all in a row but some":       func(i int) bool { return i/100%10 != 3 },
		"nine of ten":                 func(i int) bool { return i%10 != 0 },
		"all but a part of each rack": func(i int) bool { return i%40 >= 4 },
	} {
		s := plant(t, g, hosts(1000, unsuitable))
		for _, limit := range []int{1, 10, 100} {
			for _, phase := range phases {
				for clients, least := range map[int]int{4: 3, 16: 15} {
					o := candidates.Options{Limit: limit, Rotation: candidates.Rotation{At: 7, Phase: phase}}
					if begun, _ := firsts(series(t, s, twoCPUs, clients, o)); begun < least {
						t.Errorf("%s, limit %d, phase %x: %d clients begin at %d hosts, want at least %d",
							name, limit, phase, clients, begun, least)
					}
				}
			}
		}
	}
}

// TestSuccessiveSearchesBeginAtDifferentDevices: where only one tree serves a request, each of its
// providers comes first in turn.
func TestSuccessiveSearchesBeginAtDifferentDevices(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, devicesOf := range []int{1, 2, 5, 21} {
		s := plant(t, ground(t), wide(1, devicesOf, 0))
		for _, limit := range []int{1, 10} {
			if begun, _ := firsts(series(t, s, &candidates.Request{Groups: devices(1)}, devicesOf,
				candidates.Options{Limit: limit})); begun != devicesOf {
				t.Errorf("limit %d: %d searches begin at %d of as many devices", limit, devicesOf, begun)
			}
		}
	}
}

// TestPassed: the next search begins where this one had as many candidates as its client asks for,
// or behind the first tree with one where there were not as many; in later laps, a prime number of
// candidates further.
func TestPassed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := plant(t, ground(t), hosts(100, nil))
	passed := func(limit int, r candidates.Rotation) int {
		t.Helper()
		_, stats, err := find(t, s, twoCPUs, candidates.Options{Limit: limit, Rotation: r})
		testproc.Check(t, err)
		return stats.Passed
	}
	for _, c := range []struct{ limit, window, want int }{{0, 0, 1}, {3, 0, 3}, {3, 3, 3}, {5, 3, 3},
		{100, 100, 97}, {0, 101, 1}} {
		testproc.Equal(t, passed(c.limit, candidates.Rotation{Window: c.window}), c.want, "%+v: %d passed", c)
	}
	for _, c := range []struct {
		at   uint64
		want int
	}{{0, 10}, {89, 10}, {90, 7}, {100, 7}} {
		if got := passed(10, candidates.Rotation{At: c.at, Window: 10}); got != c.want {
			t.Errorf("at %d: %d passed, want %d", c.at, got, c.want)
		}
	}
	for window := 1; window <= 100; window++ {
		want := window - 1
		for want > 1 && !big.NewInt(int64(want)).ProbablyPrime(0) {
			want--
		}
		if got := passed(window, candidates.Rotation{At: 100, Window: window}); got != max(want, 1) {
			t.Errorf("window %d: %d passed, want %d", window, got, want)
		}
	}
}

// TestLapsBeginApart: with each lap, the first option of a slot moves on by the number nearest to a
// golden section of all of them that leads through all.
func TestLapsBeginApart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const trees = 3
	for _, n := range []int{1, 2, 3, 4, 5, 6, 10, 15, 21, 30, 60, 64, 65, 66, 70} {
		middle := int(math.Round(float64(n) / math.Phi))
		by := 0
		for d := 0; by == 0; d++ {
			for _, near := range []int{middle + d, middle - d} {
				if by == 0 && near > 0 && near <= n &&
					new(big.Int).GCD(nil, nil, big.NewInt(int64(near)), big.NewInt(int64(n))).Int64() == 1 {
					by = near
				}
			}
		}
		s := plant(t, ground(t), wide(trees, n, 0))
		for lap := range 5 {
			keys, _, err := find(t, s, &candidates.Request{Groups: devices(1)},
				candidates.Options{Limit: 1, Rotation: candidates.Rotation{At: uint64(trees * lap), Window: 1}})
			if want := fmt.Sprintf("h0_d%[1]d:FPGA=1 | _D0=h0_d%[1]d", lap*by%n); err != nil ||
				!slices.Equal(keys, []string{want}) {
				t.Errorf("%d devices, lap %d: %q, %v, want %s", n, lap, keys, err, want)
			}
		}
	}
}

// TestPhasesHaveRingsOfTheirOwn: searches of different phases that meet at a tree go on to
// different ones.
func TestPhasesHaveRingsOfTheirOwn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := plant(t, ground(t), hosts(101, nil))
	next := map[int]bool{}
	for phase := range uint64(20) {
		var at [2]int
		for i, names := range series(t, s, twoCPUs, 2,
			candidates.Options{Limit: 1, Rotation: candidates.Rotation{Phase: (phase + 1) * 0xd1342543de82ef95}}) {
			testproc.Try(fmt.Sscanf(names[0], "h%d", &at[i])).Or(t)
		}
		next[(at[1]-at[0]+101)%101] = true
	}
	if len(next) < 15 {
		t.Errorf("20 phases go on by %d different distances", len(next))
	}
}
