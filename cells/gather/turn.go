// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// turnsPerProcessor is how many requests to many cells are made at the same time, for each processor. Each is dozens of answers to be read, and so keeps
// one busy. More at once get none of them done earlier, but all of them late. While cells are waited for that are far away, others have the turn: see pause.
const turnsPerProcessor = 1

// turns are given to requests in the order in which they come, and for a moment none while one is being finished that had waited for a silent cell.
type turns struct {
	mu        sync.Mutex
	free      int
	finishing int
	waiting   list.List // of chan struct{}: closed when the turn has come
}

func newTurns() *turns { return &turns{free: turnsPerProcessor * runtime.GOMAXPROCS(0)} }

// admit gives turns to those who wait. The lock is held.
func (ts *turns) admit(finishing int) {
	for ts.free > 0 && finishing == 0 && ts.waiting.Len() > 0 {
		ts.free--
		close(ts.waiting.Remove(ts.waiting.Front()).(chan struct{}))
	}
}

// insist gives turns although others are being finished: it takes them long.
func (ts *turns) insist() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.admit(0)
}

// queue begins to wait. Come is closed when the turn has come.
func (ts *turns) queue() (come chan struct{}, place *list.Element) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	come = make(chan struct{})
	place = ts.waiting.PushBack(come)
	ts.admit(ts.finishing)
	return come, place
}

// turn is a request's.
type turn struct {
	of    *turns // nil: it needs none
	state turnState
}

type turnState int

const (
	without   turnState = iota // it is over, or silent cells are waited for
	taken                      // it is one of those that there are at the same time
	finishing                  // silent cells were waited for, and all answers are there
)

// wait waits for a turn, for half of Timeout at most: then the request is made without.
func (g *Gatherer) wait(ctx context.Context) *turn {
	t := &turn{of: g.turns}
	come, place := t.of.queue()
	enough := time.NewTimer(g.options.Timeout / 2)
	defer enough.Stop()
	moment := time.NewTicker(silence)
	defer moment.Stop()
	for waiting := true; waiting; {
		select {
		case <-come:
			waiting = false
		case <-moment.C:
			t.of.insist()
		case <-enough.C:
			waiting = false
		case <-ctx.Done():
			waiting = false
		}
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	select {
	case <-come: // also at the last moment
		t.state = taken
	default:
		t.of.waiting.Remove(place)
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
		t.of.free++
	case finishing:
		t.of.finishing--
	}
	if t.state = state; state == finishing {
		t.of.finishing++
	}
	t.of.admit(t.of.finishing)
}
