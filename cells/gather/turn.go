// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// askedPerProcessor is how many cells are asked at the same time, for each processor: what their answers cost keeps it busy. More at once get none of the
// requests done earlier, but all of them late. While cells are waited for that are far away, others have the turn: see pause.
const askedPerProcessor = 64

// turns are given to requests in the order in which they come, and for a moment none while one is being finished that had waited for a silent cell.
type turns struct {
	most int // cells that are asked at the same time

	mu        sync.Mutex
	free      int // of most
	finishing int
	waiting   list.List // of place
}

// place is one among those who wait.
type place struct {
	cells int
	come  chan struct{} // closed when the turn has come
}

func newTurns() *turns {
	most := askedPerProcessor * runtime.GOMAXPROCS(0)
	return &turns{most: most, free: most}
}

// queue begins to wait for a turn to ask so many cells.
func (ts *turns) queue(cells int) (place, *list.Element) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	mine := place{cells: cells, come: make(chan struct{})}
	at := ts.waiting.PushBack(mine)
	ts.admit()
	return mine, at
}

// admit gives turns to those who wait, if nobody goes before them. The lock is held.
func (ts *turns) admit() {
	if ts.finishing == 0 {
		ts.give()
	}
}

func (ts *turns) give() {
	for ts.waiting.Len() > 0 {
		first := ts.waiting.Front()
		p := first.Value.(place)
		if p.cells > ts.free {
			return
		}
		ts.free -= p.cells
		ts.waiting.Remove(first)
		close(p.come)
	}
}

// insist gives turns although others are being finished: it takes them long.
func (ts *turns) insist() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.give()
}

// turn is a request's.
type turn struct {
	of    *turns // nil: it needs none
	cells int
	state turnState
}

type turnState int

const (
	without   turnState = iota // it is over, or silent cells are waited for
	taken                      // it is one of those that there are at the same time
	finishing                  // silent cells were waited for, and all answers are there
)

// wait waits for a turn to ask so many cells, for half of Timeout at most: then the request is made without.
func (g *Gatherer) wait(ctx context.Context, cells int) *turn {
	t := &turn{of: g.turns, cells: min(cells, g.turns.most)}
	mine, at := t.of.queue(t.cells)
	enough := time.NewTimer(g.options.Timeout / 2)
	defer enough.Stop()
	moment := time.NewTicker(silence)
	defer moment.Stop()
	for waiting := true; waiting; {
		waiting = false
		select {
		case <-mine.come:
		case <-enough.C:
		case <-ctx.Done():
		case <-moment.C:
			waiting = true
			t.of.insist()
		}
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	select {
	case <-mine.come: // also at the last moment
		t.state = taken
	default:
		t.of.waiting.Remove(at)
		t.of.admit() // those behind it may need less
	}
	return t
}

// becomes gives back what the turn was, and makes it another.
func (t *turn) becomes(state turnState) {
	if t.of == nil || t.state == state {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	switch t.state {
	case taken:
		t.of.free += t.cells
	case finishing:
		t.of.finishing--
	}
	if t.state = state; state == finishing {
		t.of.finishing++
	}
	t.of.admit()
}
