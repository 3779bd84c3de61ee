// SPDX-License-Identifier: Apache-2.0

package gather_test

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// counted counts how many requests are at a cell at the same time.
type counted struct {
	mu        sync.Mutex
	now, most int
}

func (c *counted) of(b behaviour) behaviour {
	return func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		c.now++
		c.most = max(c.most, c.now)
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.now--
		}()
		return b(r)
	}
}

// most are how many requests to two cells there are at once.
func most() int { return 64 * runtime.GOMAXPROCS(0) / 2 }

// crowd makes so many requests to all cells and checks how each ends; it returns how long all took.
func crowd(t *testing.T, c *cloud, requests int, want ...string) time.Duration {
	t.Helper()
	g, begin := c.gatherer(0), time.Now()
	var all sync.WaitGroup
	for range requests {
		all.Go(func() {
			check(t, want, states(c.all(t.Context(), g)))
			if took := time.Since(begin); took > timeout {
				t.Errorf("an answer took %v", took)
			}
		})
	}
	all.Wait()
	return time.Since(begin)
}

// TestRequestsAreLimited: no more are made at once than the semaphore allows, and all are made.
func TestRequestsAreLimited(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var n counted
		took := crowd(t, newCloud(n.of(slow(8*time.Millisecond)), up), 3*most(), isUp, isUp)
		check(t, most(), n.most)
		check(t, 24*time.Millisecond, took)
	})
}

// TestCellsThatAreFarAway: other requests begin before they answer.
func TestCellsThatAreFarAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		took := crowd(t, newCloud(slow(90*time.Millisecond)), 3*most(), isUp)
		check(t, 90*time.Millisecond, took) // one cell is asked without a limit
		took = crowd(t, newCloud(slow(90*time.Millisecond), up), 3*most(), isUp, isUp)
		check(t, 140*time.Millisecond, took)
	})
}

// TestHangingCellDelaysNoOtherRequest: requests that wait for it let others begin, and what those
// waited comes off its time.
func TestHangingCellDelaysNoOtherRequest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var n counted
		took := crowd(t, newCloud(up, n.of(hangs)), 5*most(), isUp, isHung)
		check(t, 5*most(), n.most)
		check(t, timeout, took)
	})
}

// TestRequestsBeginInTime: when others hold the semaphore for long, because another of their cells
// answers each moment, a request begins without it after a quarter of the time, and has its answer
// in time.
func TestRequestsBeginInTime(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		busy := newCloud()
		for d := time.Duration(0); d < timeout; d += 8 * time.Millisecond {
			one := newCloud(slow(d))
			one.cells[0].UUID, one.cells[0].Name = d.String(), d.String()
			one.cells[0].URL = "http://" + d.String()
			busy.cells = append(busy.cells, one.cells[0])
			busy.behave[d.String()] = slow(d)
		}
		g := busy.gatherer(0)
		var all sync.WaitGroup
		// more cells than are asked at the same time
		for n := 64 * runtime.GOMAXPROCS(0); n >= 0; n -= len(busy.cells) {
			all.Go(func() { busy.all(t.Context(), g) })
		}
		synctest.Wait()
		begin := time.Now()
		// the slowest takes a second
		few := &cloud{behave: busy.behave, requests: map[string]int{}, cells: busy.cells[:126]}
		got := states(few.all(t.Context(), g))
		check(t, timeout/4+time.Second, time.Since(begin))
		for i, state := range got {
			testproc.Equal(t, state, isUp, "cell %d is %s", i)
		}
		few.cells[0].UUID, few.behave[few.cells[0].Name] = "hangs", hangs
		begin = time.Now()
		check(t, isHung, states(few.all(t.Context(), g))[0])
		check(t, timeout, time.Since(begin))
		all.Wait()
	})
}

// TestWaitingTimeIsDeducted of the cells, unless it is more than a quarter.
func TestWaitingTimeIsDeducted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for passed, takes := range map[time.Duration]time.Duration{0: timeout, time.Second: timeout - time.Second,
		timeout / 4: timeout / 4 * 3, timeout/4 + 1: timeout, time.Hour: timeout} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(hangs, up)
			g := c.gatherer(0)
			ctx := g.WithArrival(t.Context())
			time.Sleep(passed)
			start := time.Now()
			check(t, []string{isHung, isUp}, states(c.all(ctx, g)))
			check(t, takes, time.Since(start))
		})
	}
}

// TestACellThatWasAskedLate has its time all the same.
func TestACellThatWasAskedLate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(slow(timeout*9/10), up)
		g := c.gatherer(0)
		ctx := g.WithArrival(t.Context())
		time.Sleep(timeout / 2)
		check(t, []string{isUp, isUp}, states(c.all(ctx, g)))
	})
}

// TestEachAnswerHasItsTime: a cell that answers in time is well, however often it is asked for one
// request.
func TestEachAnswerHasItsTime(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(slow(6*time.Second), slow(time.Second))
		g := c.gatherer(0)
		r := gather.Begin[[]cellwire.Service](t.Context(), g, len(c.cells))
		defer r.End()
		for range 3 {
			answers := make([]gather.Answer[[]cellwire.Service], len(c.cells))
			for i, cell := range c.cells {
				r.Ask(i, cell, services)
			}
			for r.Pending() > 0 {
				if i, answer, ok := r.Next(); ok {
					answers[i] = answer
				}
			}
			check(t, []string{isUp, isUp}, states(answers))
		}
	})
}

// TestAllUnlimited: what is asked at once is not limited.
func TestAllUnlimited(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, up)
		g := c.gatherer(0)
		for range most() {
			defer gather.Begin[[]cellwire.Service](t.Context(), g, 2).End()
		}
		start := time.Now()
		check(t, []string{isUp, isUp}, states(gather.AllUnlimited(t.Context(), g, c.cells, services)))
		check(t, time.Duration(0), time.Since(start))
	})
}

// TestTheLimitIsOfCells: requests to few cells are made beside one to many, until as many cells are
// asked as at most; requests begin in the order in which they come, and when one gives up those
// behind it go on.
func TestTheLimitIsOfCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, up)
		g := c.gatherer(0)
		most := 64 * runtime.GOMAXPROCS(0)
		begin := func(ctx context.Context, cells int) (*atomic.Bool, func()) {
			begun, end := &atomic.Bool{}, make(chan struct{})
			var request sync.WaitGroup
			request.Go(func() {
				r := gather.Begin[[]cellwire.Service](ctx, g, cells)
				begun.Store(true)
				<-end
				r.End()
			})
			synctest.Wait()
			return begun, func() {
				close(end)
				request.Wait()
			}
		}
		large, endLarge := begin(t.Context(), most-2)
		ctx, giveUp := context.WithCancel(t.Context())
		first, endFirst := begin(ctx, 3)
		second, endSecond := begin(t.Context(), 2)
		third, endThird := begin(t.Context(), 2)
		now := func() [4]bool {
			synctest.Wait()
			return [4]bool{large.Load(), first.Load(), second.Load(), third.Load()}
		}
		check(t, [4]bool{true, false, false, false}, now()) // the second could begin, but for the first
		giveUp()
		check(t, [4]bool{true, true, true, false}, now()) // the first goes without the semaphore
		endSecond()
		check(t, [4]bool{true, true, true, true}, now())
		endLarge()
		endFirst()
		endThird()
	})
}
