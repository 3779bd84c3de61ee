// SPDX-License-Identifier: Apache-2.0

package listing_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/listing"
	"github.com/compute-agent/compute-agent/cells/wire"
)

// TestNothingIsLeftToBeAskedWhenASilentCellIsGivenUp: one cell hangs, and one has all of the rows, in many batches. They are all fetched while the other
// one is waited for, and none when its time is over.
func TestNothingIsLeftToBeAskedWhenASilentCellIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := make([]*fakeCell, 50)
		for i := range fakes {
			fakes[i] = &fakeCell{delay: 20 * time.Millisecond}
		}
		fakes[7].rows = rowsOf("a", 700, 0, 1)
		fakes[8].fault = hang
		start := time.Now()
		r := list(t, wire.ServerQuery{Limit: 500, Sort: byCreation}, fakes...)
		check(t, timeout, time.Since(start))
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

// TestWithoutSilenceNothingIsAskedInVain: cells that all answer in good time are asked as often as if each had answered at once.
func TestWithoutSilenceNothingIsAskedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := &fakeCell{rows: rowsOf("a", 500, 1000, 1), delay: time.Millisecond}, &fakeCell{rows: rowsOf("b", 500, 0, 1), delay: 90 * time.Millisecond}
		r := list(t, wire.ServerQuery{Limit: 256, Sort: byCreation}, a, b)
		check(t, rowsOf("b", 256, 0, 1), r.Rows)
		check(t, [][]int{{173}, {173, 83}}, [][]int{a.limits, b.limits}) // a's rows come after all of b's
	})
}

// TestWhatIsForeseen: while a cell is silent, rows are told of that the result has at the same addresses if it stays silent; if it answers after all, the
// result is another.
func TestWhatIsForeseen(t *testing.T) {
	for name, late := range map[string]*fakeCell{"never": {fault: hang}, "late": {rows: rowsOf("b", 5, 0, 1), delay: time.Second}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, cells := gathererOf(&fakeCell{rows: rowsOf("a", 50, 1, 1)}, late)
				q := wire.ServerQuery{Limit: 20, Sort: byCreation}
				var told []wire.Row
				start := time.Now()
				r, err := listing.Foreseen(t.Context(), g, cells, q, func(rows []wire.Row) {
					if told = rows; time.Since(start) > 500*time.Millisecond {
						t.Errorf("told after %v", time.Since(start))
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				check(t, rowsOf("a", 20, 1, 1), told)
				want := [][]wire.Row{rowsOf("a", 50, 1, 1), late.rows}
				check(t, naive(want, q).Rows, r.Rows)
				if same := &r.Rows[0] == &told[0]; same != (late.fault != nil) {
					t.Errorf("the result is what was foreseen: %t", same)
				}
			})
		})
	}
}

// TestSilencesChangeNothing: cells that answer early, late, in between or never, with rows that are now in one of them and now all over: the list is that
// of those that answered.
func TestSilencesChangeNothing(t *testing.T) {
	delays := []time.Duration{0, 40 * time.Millisecond, 99 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, 3 * time.Second}
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			var fakes []*fakeCell
			var rows [][]wire.Row
			var down []string
			slow := 0 // so many are slow that their batches may take more time than there is
			for i := range 1 + r.IntN(8) {
				f := &fakeCell{delay: delays[r.IntN(len(delays))], rows: rowsOf(fmt.Sprintf("c%d", i), r.IntN(90), r.Int64N(100), 1+r.Int64N(3))}
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
			q := wire.ServerQuery{Limit: 1 + r.IntN(200), Sort: byCreation}
			got, want := list(t, q, fakes...), naive(rows, q)
			check(t, want.Rows, got.Rows)
			check(t, want.More, got.More)
			check(t, down, namesOf(got.Down))
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// TestFiftyListsThatTakeTurns: all are there when the time of the cell that hangs is over, although there are more than have a turn at once.
func TestFiftyListsThatTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, cells := gathererOf(&fakeCell{rows: rowsOf("a", 300, 0, 1), delay: 20 * time.Millisecond}, &fakeCell{fault: hang}, &fakeCell{delay: time.Millisecond})
		start := time.Now()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				r, err := listing.Servers(t.Context(), g, cells, wire.ServerQuery{Limit: 200, Sort: byCreation})
				if err != nil || time.Since(start) > timeout {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				check(t, rowsOf("a", 200, 0, 1), r.Rows)
			})
		}
		all.Wait()
	})
}
