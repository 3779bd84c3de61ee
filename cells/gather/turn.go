// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"runtime"
	"time"
)

// turnsPerProcessor is how many requests to many cells are made at the same time, for each processor. Each is dozens of answers to be read. More at once
// get none of them done earlier, but all of them late. Fewer would leave processors idle when cells are far away.
const turnsPerProcessor = 8

func newTurns() chan struct{} { return make(chan struct{}, turnsPerProcessor*runtime.GOMAXPROCS(0)) }

// turn is a request's. It is over once.
type turn struct{ turns chan struct{} }

// wait waits for a turn, for half of Timeout at most: then the request is made all the same.
func (g *Gatherer) wait(ctx context.Context) (*turn, time.Duration) {
	t := &turn{turns: g.turns}
	select {
	case g.turns <- struct{}{}:
		return t, 0
	default:
	}
	begin := g.options.Now()
	enough := time.NewTimer(g.options.Timeout / 2)
	defer enough.Stop()
	select {
	case g.turns <- struct{}{}:
	case <-enough.C:
		t.turns = nil
	case <-ctx.Done():
		t.turns = nil
	}
	return t, min(max(g.options.Now().Sub(begin), 0), g.options.Timeout/2)
}

func (t *turn) over() {
	if t.turns != nil {
		<-t.turns
		t.turns = nil
	}
}
