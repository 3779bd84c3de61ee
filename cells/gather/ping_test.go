// SPDX-License-Identifier: Apache-2.0

package gather_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// pinged is a gatherer that pings the cells of a cloud until the test ends, or stop is called.
func (c *cloud) pinged(t *testing.T) (g *gather.Gatherer, stop func()) {
	t.Helper()
	g = c.gatherer(pingInterval)
	return g, c.run(t, g, func(context.Context) ([]apidb.Cell, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Clone(c.cells), nil
	})
}

func (c *cloud) run(t *testing.T, g *gather.Gatherer, list func(context.Context) ([]apidb.Cell, error)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx, list) }()
	stop = sync.OnceFunc(func() {
		cancel()
		testproc.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// list asks the first cell, as lists do.
func (c *cloud) list(t *testing.T, g *gather.Gatherer) (took time.Duration, err error) {
	t.Helper()
	start := time.Now()
	_, err = gather.One(t.Context(), g, c.cells[0], services)
	return time.Since(start), err
}

// logged are the events in the log.
func (c *cloud) logged() []string {
	var lines []string
	for line := range strings.Lines(c.log.String()) {
		for _, event := range []string{"is down", "is up again"} {
			if strings.Contains(line, event) {
				lines = append(lines, event)
			}
		}
	}
	return lines
}

// behaves has pings answered one way and all other requests another way.
func behaves(ping, other behaviour) behaviour {
	return func(r *http.Request) (*http.Response, error) {
		if r.URL.Path == "/v1/cell" {
			return ping(r)
		}
		return other(r)
	}
}

// TestPingsFindAHang: DownTime after its last answer a cell that hangs is known to, although no
// request is sent, whenever it begins; requests do not wait for it then, and it is used again with
// the first ping that it answers.
func TestPingsFindAHang(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for begins := 10 * time.Second; begins < 11*time.Second; begins += 130 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud(up)
			g, stop := c.pinged(t)
			time.Sleep(begins)
			check(t, gather.OK, g.States()[0].State)
			c.set(0, hangs)
			last := g.States()[0].LastAnswer
			time.Sleep(time.Until(last.Add(downTime - time.Nanosecond)))
			check(t, false, g.States()[0].CircuitOpen)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			s := g.States()[0]
			check(t, []any{true, gather.TimedOut, time.Now()}, []any{s.CircuitOpen, s.State, s.Since})
			for range 20 {
				took, err := c.list(t, g)
				if took != 0 || !errors.Is(err, gather.ErrDown) || !cellclient.NotSent(err) {
					t.Fatalf("after %v: %v", took, err)
				}
				time.Sleep(777 * time.Millisecond)
			}
			check(t, []string{"is down"}, c.logged())
			c.set(0, up)
			time.Sleep(downTime) // the ping under way ends, and the next is answered
			check(t, gather.OK, g.States()[0].State)
			if took, err := c.list(t, g); took != 0 || err != nil {
				t.Errorf("after %v: %v", took, err)
			}
			check(t, []string{"is down", "is up again"}, c.logged())
			check(t, gather.Counts{Answered: 1}, g.States()[0].Requests)
			check(t, uint64(20), g.States()[0].NotSent)
			stop()
			asked := c.asked(0)
			time.Sleep(time.Hour)
			check(t, asked, c.asked(0))
		})
	}
}

// TestHangEndsRequests: those under way when a cell begins to hang end with its DownTime, and say
// that they may have reached it.
func TestHangEndsRequests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, begins := range map[string]behaviour{"at once": hangs, "in the middle of an answer": stalls} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(up, behaves(up, slow(3*time.Second)))
				g, _ := c.pinged(t)
				time.Sleep(time.Minute)
				c.set(0, begins)
				var requests sync.WaitGroup
				for range 3 {
					requests.Go(func() {
						took, err := c.list(t, g)
						var failure *cellclient.Failure
						if !errors.As(err, &failure) || failure.Kind != cellclient.TimedOut || !failure.Sent ||
							!errors.Is(err, gather.ErrDown) || took > downTime {
							t.Errorf("after %v: %v", took, err)
						}
					})
					time.Sleep(200 * time.Millisecond)
				}
				check(t, []string{isHung, isUp}, states(c.all(t.Context(), g))) // the other has its time
				requests.Wait()
				s := g.States()[0]
				check(t, []any{gather.TimedOut, gather.Counts{TimedOut: 4}}, []any{s.State, s.Requests})
				check(t, []string{"is down"}, c.logged())
			})
		})
	}
}

// TestSlowCellIsNotDown: one that answers pings, or requests, is up, whatever else it takes its
// time for; and one whose pings take nearly as long as they may.
func TestSlowCellIsNotDown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tt := range map[string]struct {
		behave behaviour
		want   gather.Counts // of requests
	}{
		"large lists":              {behaves(up, slow(3*time.Second)), gather.Counts{Answered: 10}},
		"lists that take too long": {behaves(up, hangs), gather.Counts{TimedOut: 10}},
		"pings that take too long": {behaves(slow(timeout), slow(1500*time.Millisecond)),
			gather.Counts{Answered: 10}},
		"pings that take nearly too long": {behaves(slow(downTime-1), hangs), gather.Counts{TimedOut: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(tt.behave)
				g, _ := c.pinged(t)
				for range 10 {
					_, _ = c.list(t, g)
				}
				s := g.States()[0]
				check(t, []any{gather.OK, tt.want, uint64(0)}, []any{s.State, s.Requests, s.NotSent})
				check(t, []string(nil), c.logged())
			})
		})
	}
}

// TestStoppedProcessFindsNoHang: when it is this process that did not run, the cell is pinged again
// instead of being down.
func TestStoppedProcessFindsNoHang(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up)
		g, _ := c.pinged(t)
		time.Sleep(time.Minute)
		lost := false // the answer to one ping
		c.set(0, func(r *http.Request) (*http.Response, error) {
			if !lost {
				lost = true
				c.late.Add(int64(time.Hour))
				return hangs(r)
			}
			return up(r)
		})
		time.Sleep(time.Minute)
		s := g.States()[0]
		check(t, []any{gather.OK, uint64(1)}, []any{s.State, s.Pings.TimedOut})
		check(t, []string(nil), c.logged())
		c.set(0, hangs)
		time.Sleep(downTime)
		synctest.Wait()
		check(t, true, g.States()[0].CircuitOpen)
	})
}

// allAnsweredLately says that all cells answered within half of the interval of pings. If they all
// hang from then on, each knows of the others that they are slow when it had DownTime. Otherwise
// the last answers are up to an interval apart: the first cell may have had its DownTime when the
// others are not late yet, and is down then.
func (c *cloud) allAnsweredLately(g *gather.Gatherer) bool {
	return !slices.ContainsFunc(g.States(),
		func(s gather.CellState) bool { return time.Since(s.LastAnswer) > pingInterval/2 })
}

// TestOverload: while most cells that are up answer pings slowly, one that does not answer has more
// time, but not forever; if only some do, it has not.
func TestOverload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tt := range map[string]struct {
		others []behaviour
		takes  time.Duration // until it is known that a cell hangs
	}{
		"others are well": {[]behaviour{up, up, slow(900 * time.Millisecond)}, downTime},
		"others are slow": {[]behaviour{up, slow(900 * time.Millisecond), slow(800 * time.Millisecond)},
			2 * downTime},
		"others hang, too":    {[]behaviour{hangs, hangs, hangs}, 2 * downTime},
		"others refuse":       {[]behaviour{refused, refused, up}, downTime},
		"there are no others": {nil, downTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud(append([]behaviour{up}, tt.others...)...)
				for i, b := range tt.others {
					if name == "others hang, too" {
						b = up // until then
					}
					c.set(i+1, b)
				}
				g, _ := c.pinged(t)
				time.Sleep(time.Minute)
				for name == "others hang, too" && !c.allAnsweredLately(g) {
					time.Sleep(time.Millisecond)
				}
				c.set(0, hangs)
				for i, b := range tt.others {
					c.set(i+1, b)
				}
				last := g.States()[0].LastAnswer
				time.Sleep(time.Until(last.Add(tt.takes - time.Millisecond)))
				check(t, false, g.States()[0].CircuitOpen)
				time.Sleep(downTime - pingInterval + time.Millisecond)
				synctest.Wait()
				check(t, true, g.States()[0].CircuitOpen)
			})
		})
	}
}

// TestPingsThatFail: a cell that refuses connections is down, and up again with the next ping, but
// requests are sent to it all the same, as they cost no time.
func TestPingsThatFail(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(refused)
		g, _ := c.pinged(t)
		time.Sleep(time.Minute)
		check(t, []any{gather.Failed, false}, []any{g.States()[0].State, g.States()[0].CircuitOpen})
		if took, err := c.list(t, g); took != 0 || !errors.Is(err, gather.ErrDown) ||
			g.States()[0].Requests.Failed != 1 {
			t.Errorf("after %v: %v", took, err)
		}
		c.set(0, up)
		if _, err := c.list(t, g); err != nil { // before the next ping
			t.Error(err)
		}
		c.set(0, refused)
		time.Sleep(pingInterval)
		c.set(0, hangs) // which costs time
		time.Sleep(downTime)
		synctest.Wait()
		check(t, true, g.States()[0].CircuitOpen)
		c.set(0, refused)
		time.Sleep(downTime)
		synctest.Wait()
		check(t, []any{gather.Failed, false}, []any{g.States()[0].State, g.States()[0].CircuitOpen})
		c.set(0, up)
		time.Sleep(pingInterval)
		check(t, gather.OK, g.States()[0].State)
		check(t, []string{"is down", "is up again", "is down", "is up again"}, c.logged())
	})
}

// TestPingsDoNotHideABrokenCell: one that answers pings, and requests wrongly, is down until it
// answers a request; the log does not say so each second.
func TestPingsDoNotHideABrokenCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(behaves(up, answers(500, `{"code":"internal","message":"x"}`)))
		g, _ := c.pinged(t)
		for range 10 {
			time.Sleep(10 * time.Second)
			if took, err := c.list(t, g); took != 0 || !errors.Is(err, gather.ErrDown) {
				t.Errorf("after %v: %v", took, err)
			}
		}
		check(t, gather.Failed, g.States()[0].State)
		check(t, []string{"is down"}, c.logged())
		c.set(0, up)
		time.Sleep(time.Minute)
		check(t, gather.Failed, g.States()[0].State)
		_, err := c.list(t, g)
		check(t, []any{nil, gather.OK}, []any{err, g.States()[0].State})
		check(t, []string{"is down", "is up again"}, c.logged())
	})
}

// TestLateAnswerDoesNotEndAHang: that an answer is read does not show that the cell answers now.
func TestLateAnswerDoesNotEndAHang(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(hangs)
		g, _ := c.pinged(t)
		_, err := gather.One(t.Context(), g, c.cells[0], func(context.Context, *cellclient.Client) (int, error) {
			time.Sleep(2 * downTime) // what it reads, it has already
			return 0, nil
		})
		s := g.States()[0]
		check(t, []any{nil, true, gather.Counts{Answered: 1}}, []any{err, s.CircuitOpen, s.Requests})
	})
}

// TestWithoutPings: each request waits.
func TestWithoutPings(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(hangs)
		g := c.gatherer(0)
		c.run(t, g, nil)
		for range 3 {
			if took, err := c.list(t, g); took != timeout || !errors.Is(err, gather.ErrDown) {
				t.Errorf("after %v: %v", took, err)
			}
		}
		check(t, gather.Counts{}, g.States()[0].Pings)
		check(t, []string{"is down"}, c.logged())
		c.set(0, up)
		_, err := c.list(t, g)
		check(t, []any{nil, gather.OK}, []any{err, g.States()[0].State})
	})
}

// TestEndOfPings: no circuit stays open, as nothing would close it.
func TestEndOfPings(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(hangs)
		g, stop := c.pinged(t)
		time.Sleep(time.Minute)
		check(t, true, g.States()[0].CircuitOpen)
		stop()
		c.set(0, up)
		_, err := c.list(t, g)
		check(t, []any{nil, gather.OK}, []any{err, g.States()[0].State})
		check(t, []string{"is down", "is up again"}, c.logged())
	})
}

// TestPingedCells: those of the list, and others that are asked, under the URL that they have; one
// that is removed is forgotten. A list that cannot be read changes nothing.
func TestPingedCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up, up, up)
		listed, failure := c.cells[:1], error(nil)
		g := c.gatherer(pingInterval)
		c.run(t, g, func(context.Context) ([]apidb.Cell, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return listed, failure
		})
		becomes := func(cells []apidb.Cell, err error) {
			c.mu.Lock()
			listed, failure = cells, err
			c.mu.Unlock()
			time.Sleep(time.Minute)
		}
		names := func() (all []string) {
			for _, s := range g.States() {
				all = append(all, s.Cell.Name+" "+s.Cell.URL)
			}
			return all
		}
		pinged := func() (now []string) {
			c.mu.Lock()
			clear(c.requests)
			c.mu.Unlock()
			time.Sleep(2 * pingInterval)
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Sorted(maps.Keys(c.requests))
		}
		check(t, []string{"cell0 http://cell0"}, names())
		_, err := gather.One(t.Context(), g, c.cells[1], services) // it was created a moment ago
		check(t, nil, err)
		check(t, []string{"cell0", "cell1"}, pinged())

		becomes(nil, errors.New("no database"))
		check(t, []string{"cell0", "cell1"}, pinged())

		moved := c.cells[0]
		moved.URL = "http://cell2"
		becomes([]apidb.Cell{moved}, nil)
		check(t, []string{"cell0 http://cell2"}, names())
		check(t, []string{"cell2"}, pinged())

		becomes(nil, nil)
		check(t, []string(nil), names())
		check(t, []string(nil), pinged())
	})
}

// TestListIsOlderThanARequest: a list that was begun before a request removes nothing that the
// request brought.
func TestListIsOlderThanARequest(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(up)
		g := c.gatherer(pingInterval)
		var lists atomic.Int64
		c.run(t, g, func(context.Context) ([]apidb.Cell, error) {
			if lists.Add(1) == 2 {
				time.Sleep(time.Second)
				_, err := c.list(t, g)
				return nil, err
			}
			return nil, nil
		})
		time.Sleep(12 * time.Second)
		check(t, []int{2, 1}, []int{int(lists.Load()), len(g.States())})
		time.Sleep(10 * time.Second)
		check(t, []int{3, 0}, []int{int(lists.Load()), len(g.States())})
	})
}

// TestPingsAreFewAndNotAllAtOnce: each cell gets one an interval, or a third more, at moments of
// its own.
func TestPingsAreFewAndNotAllAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		at := map[time.Time]int{}
		var mu sync.Mutex
		notes := func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			at[time.Now()]++
			return up(r)
		}
		c := newCloud(slices.Repeat([]behaviour{notes}, 100)...)
		_, _ = c.pinged(t)
		time.Sleep(time.Minute)
		mu.Lock()
		clear(at)
		mu.Unlock()
		time.Sleep(time.Minute)
		n := 0
		mu.Lock()
		defer mu.Unlock()
		for _, here := range at {
			if n += here; here > 2 {
				t.Errorf("%d pings at one moment", here)
			}
		}
		if n < 100*60 || n > 100*80 {
			t.Errorf("%d pings in a minute", n)
		}
		check(t, int64(100), c.clients.Load())
	})
}

// TestMovedCell: under another URL it is another cell, and the log says when it is up again.
func TestMovedCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(hangs)
		g, _ := c.pinged(t)
		time.Sleep(time.Minute)
		c.mu.Lock()
		c.cells[0].URL, c.behave["moved"] = "http://moved", up
		c.mu.Unlock()
		for range 3 {
			if took, err := c.list(t, g); took != 0 || err != nil {
				t.Errorf("after %v: %v", took, err)
			}
		}
		check(t, int64(2), c.clients.Load())
		check(t, []string{"is down", "is up again"}, c.logged())
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(refused)
		g := c.gatherer(0)
		for _, at := range []struct {
			url    string
			behave behaviour
		}{{"cell0", refused}, {"wrong", refused}, {"right", up}, {"also-right", up}} {
			c.cells[0].URL, c.behave[at.url] = "http://"+at.url, at.behave
			_, _ = c.list(t, g)
		}
		check(t, []string{"is down", "is down", "is up again"}, c.logged())
	})
}

// TestPingStates: what is known of a cell that is pinged.
func TestPingStates(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(slow(30*time.Millisecond), refused)
		g, _ := c.pinged(t)
		time.Sleep(100 * time.Millisecond)
		got := g.States()
		for i := range got {
			got[i].Cause = fmt.Sprint(got[i].Cause != "")
		}
		start := time.Now().Add(-100 * time.Millisecond)
		check(t, []gather.CellState{
			{
				Cell: c.cells[0], State: gather.OK, Since: start.Add(30 * time.Millisecond),
				LastAnswer: start.Add(30 * time.Millisecond), Cause: "false",
				Pings: gather.Counts{Answered: 1}, PingTime: 30 * time.Millisecond,
			},
			{Cell: c.cells[1], State: gather.Failed, Since: start, Cause: "true", Pings: gather.Counts{Failed: 1}},
		}, got)
	})
}
