// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMergeIsReadyWhenACellTimesOut: one cell hangs, and one has all of the rows,
// in many batches. They are all fetched while the other one is waited for, and none when its time
// is over.
func TestMergeIsReadyWhenACellTimesOut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		fakes := make([]*listCell, 50)
		for i := range fakes {
			fakes[i] = &listCell{delay: 20 * time.Millisecond}
		}
		fakes[7].rows = rowsOf("a", 700, 0, 1)
		fakes[8].fault = hang
		start := time.Now()
		r := mergeFrom(t, cellwire.ServerQuery{Limit: 500, Sort: byCreation}, fakes...)
		check(t, mergeTimeout, time.Since(start))
		check(t, rowsOf("a", 500, 0, 1), r.Rows)
		check(t, []string{"cell8"}, namesOf(r.Down))
		check(t, true, r.More)
		if n := len(fakes[7].at); n < 3 {
			t.Errorf("one cell gave everything in %d batches: there was nothing to be seen", n)
		}
		for i, f := range fakes {
			if last := f.at[len(f.at)-1].Sub(start); last > time.Second {
				t.Errorf("cell%d was asked after %v", i, last)
			}
		}
	})
}

// TestMergeAsksNoMoreThanNeeded: cells that all answer in good time are asked as often as
// if each had answered at once.
func TestMergeAsksNoMoreThanNeeded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		a, b := &listCell{rows: rowsOf("a", 500, 1000, 1), delay: time.Millisecond},
			&listCell{rows: rowsOf("b", 500, 0, 1), delay: 90 * time.Millisecond}
		r := mergeFrom(t, cellwire.ServerQuery{Limit: 256, Sort: byCreation}, a, b)
		check(t, rowsOf("b", 256, 0, 1), r.Rows)
		check(t, [][]int{{173}, {173, 83}}, [][]int{a.limits, b.limits}) // a's rows come after all of b's
	})
}

// TestMergeResultsBeforeATimeout: while a cell is silent the result without it is given, and not
// again if it stays silent; if it answers after all, another is given. A cell that is silent after
// its first rows, which would go with it, lets nothing be foreseen.
func TestMergeResultsBeforeATimeout(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rows := rowsOf("b", 30, 0, 1)
	for name, tt := range map[string]struct {
		late   *listCell
		limit  int
		errors int // of use
		given  []time.Duration
	}{
		"never": {late: &listCell{fault: hang}, given: []time.Duration{100 * time.Millisecond}},
		"late": {late: &listCell{rows: rows, delay: time.Second},
			given: []time.Duration{100 * time.Millisecond, time.Second}},
		"halfway": {late: &listCell{rows: rowsOf("b", 90, -100, 1), fault: hang, faultAt: 1}, limit: 100,
			given: []time.Duration{mergeTimeout}},
		"an error": {late: &listCell{fault: hang},
			errors: 1, given: []time.Duration{100 * time.Millisecond, mergeTimeout}},
		"errors to the end": {late: &listCell{fault: hang},
			errors: 2, given: []time.Duration{100 * time.Millisecond, mergeTimeout}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, cells := gathererOf(&listCell{rows: rowsOf("a", 50, 1, 1)}, tt.late)
				q := cellwire.ServerQuery{Limit: max(20, tt.limit), Sort: byCreation}
				start, wrong := time.Now(), errors.New("wrong")
				var last mergedServers
				var given []time.Duration
				err := mergeServersEarly(t.Context(), g, cells, q, func(r mergedServers) error {
					last, given = r, append(given, time.Since(start))
					if len(given) <= tt.errors {
						return wrong
					}
					return nil
				})
				if isWrong := errors.Is(err, wrong); isWrong != (tt.errors == 2) || !isWrong && err != nil {
					t.Error(err)
				}
				check(t, tt.given, given)
				want := [][]cellwire.Row{rowsOf("a", 50, 1, 1)}
				if tt.late.fault == nil {
					want = append(want, rows)
				} else {
					check(t, []string{"cell1"}, namesOf(last.Down))
				}
				check(t, naiveMerge(want, q).Rows, last.Rows)
			})
		})
	}
}

// TestMergeIsIndependentOfDelays: cells that answer early, late, in between or never, with rows
// that are now in one of them and now all over: the list is that of those that answered.
func TestMergeIsIndependentOfDelays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	delays := []time.Duration{0, 40 * time.Millisecond, 99 * time.Millisecond, 150 * time.Millisecond,
		400 * time.Millisecond, 3 * time.Second}
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var fakes []*listCell
			var rows [][]cellwire.Row
			var down []string
			slow := 0 // so many are slow that their batches may take more time than there is
			for i := range 1 + r.IntN(8) {
				f := &listCell{delay: delays[r.IntN(len(delays))],
					rows: rowsOf(fmt.Sprintf("c%d", i), r.IntN(90), r.Int64N(100), 1+r.Int64N(3))}
				if f.delay > time.Second {
					if slow++; slow > 1 {
						f.delay = 0
					}
					f.rows = f.rows[:min(len(f.rows), 9)] // one batch
				}
				if r.IntN(4) == 0 {
					f.fault, f.faultAt = hang, 0
					down = append(down, fmt.Sprintf("cell%d", i))
				} else {
					rows = append(rows, f.rows)
				}
				fakes = append(fakes, f)
			}
			q := cellwire.ServerQuery{Limit: 1 + r.IntN(200), Sort: byCreation}
			got, want := mergeFrom(t, q, fakes...), naiveMerge(rows, q)
			check(t, want.Rows, got.Rows)
			check(t, want.More, got.More)
			check(t, down, namesOf(got.Down))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// TestFiftyInterleavedMerges: all are there when the time of the cell that hangs is over, although
// there are more than have a turn at once.
func TestFiftyInterleavedMerges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		g, cells := gathererOf(&listCell{rows: rowsOf("a", 300, 0, 1), delay: 20 * time.Millisecond},
			&listCell{fault: hang}, &listCell{delay: time.Millisecond})
		start := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				r, err := mergeServers(t.Context(), g, cells, cellwire.ServerQuery{Limit: 200, Sort: byCreation})
				if err != nil || time.Since(start) > mergeTimeout {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				check(t, rowsOf("a", 200, 0, 1), r.Rows)
			})
		}
		all.Wait()
	})
}
