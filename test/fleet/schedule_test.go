// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// fleet is all agents, on one simulated clock.
type fleet struct {
	config    *config.Config
	timings   resourcetracker.Timings
	servers   *servers
	providers int
	balance   string
	// idleTimeout is how long a connection of an agent stays open without a request.
	idleTimeout time.Duration
	pace        float64
	workers     int
	agents      []*agent

	connections, probes atomic.Int64

	began   time.Time // the simulated time at which the phase begins
	seconds []atomic.Int64
}

// dawn is when the simulated time begins.
var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// second is the counter of the requests in a simulated second of the phase.
func (f *fleet) second(now time.Time) *atomic.Int64 {
	return &f.seconds[min(int(now.Sub(f.began)/time.Second), len(f.seconds)-1)]
}

// schedule is the agents, the one that is due first at the top.
type schedule []*agent

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due().Before(s[j].due()) }
func (s schedule) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *schedule) Push(a any)        { *s = append(*s, a.(*agent)) }
func (s *schedule) Pop() any {
	last := len(*s) - 1
	a := (*s)[last]
	*s = (*s)[:last]
	return a
}

// run has all agents do what is due until a simulated time, and returns what that was.
func (f *fleet) run(ctx context.Context, from time.Time, long time.Duration) *sample {
	f.began, f.seconds = from, make([]atomic.Int64, max(int(long/time.Second), 1))
	until, begin := from.Add(long), time.Now()
	var mu sync.Mutex
	waiting := make(schedule, len(f.agents))
	copy(waiting, f.agents)
	heap.Init(&waiting)
	take := func() *agent {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil || len(waiting) == 0 || !waiting[0].due().Before(until) {
			return nil
		}
		return heap.Pop(&waiting).(*agent)
	}
	parts := make([]sample, f.workers)
	var working sync.WaitGroup
	for i := range parts {
		working.Go(func() {
			for a := take(); a != nil; a = take() {
				if f.pace > 0 {
					time.Sleep(time.Until(begin.Add(time.Duration(float64(a.due().Sub(from)) / f.pace))))
				}
				a.sample = &parts[i]
				a.act(ctx)
				mu.Lock()
				heap.Push(&waiting, a)
				mu.Unlock()
			}
		})
	}
	working.Wait()
	all := &sample{wall: time.Since(begin)}
	for i := range parts {
		all.add(&parts[i])
	}
	return all
}

// TestSchedule: what is due first is done first, and nothing after the end.
func TestSchedule(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var order schedule
	for _, minute := range []int{3, 1, 2} {
		heap.Push(&order, &agent{number: minute, next: dawn.Add(time.Duration(minute) * time.Minute)})
	}
	heap.Push(&order, &agent{number: 0, next: dawn.Add(time.Hour), idle: dawn.Add(90 * time.Second)})
	for _, want := range []int{1, 0, 2, 3} {
		if got := heap.Pop(&order).(*agent); got.number != want {
			t.Errorf("agent %d comes before agent %d", got.number, want)
		}
	}
}
