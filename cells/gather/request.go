// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
)

// silence is how long no cell answers until [Request.Next] says so: in a list of cells that are well there is none as long as that. After pause the
// request's turn is another's: its cells may be far away, and processors are not to wait for them.
const (
	pause   = 25 * time.Millisecond
	silence = 100 * time.Millisecond
)

// Request asks cells at once and gives their answers as they come. It belongs to one goroutine.
type Request[T any] struct {
	ctx    context.Context
	cancel context.CancelFunc
	g      *Gatherer
	has    time.Duration // a cell for an answer
	turn   *turn

	replies chan reply[T] // with room for all that are asked
	asked   int           // that have not answered
	quiet   *time.Timer   // since the last answer: pause, and then silence
	paused  bool
}

type reply[T any] struct {
	i      int
	answer Answer[T]
	panics any
}

type came struct{}

// Came marks a context as that of what came in now, and is to have its answer after Timeout. What passes until the cells are asked comes off their time.
func (g *Gatherer) Came(ctx context.Context) context.Context {
	return context.WithValue(ctx, came{}, g.options.Now())
}

// passed is what comes off the time of the cells: nothing, if it is more than a quarter of it. Then the request is late anyway, and cells that are slow but
// well are not to be missed for it.
func (g *Gatherer) passed(since time.Time) time.Duration {
	if passed := g.options.Now().Sub(since); passed > 0 && passed <= g.options.Timeout/4 {
		return passed
	}
	return 0
}

// Begin begins a request to so many cells at most, each of which has Timeout for an answer, and may be asked again when it has answered. It waits for
// the request's turn, at most for half of that; one to a single cell needs none. What passed since [Gatherer.Came], or while it waited for the turn, comes
// off the time of the cells, unless that is more than a quarter of it. Whoever begins a request ends it.
func Begin[T any](ctx context.Context, g *Gatherer, cells int) *Request[T] {
	since, ok := ctx.Value(came{}).(time.Time)
	if !ok {
		since = g.options.Now()
	}
	t := &turn{}
	if cells > 1 {
		t = g.wait(ctx, cells)
	}
	return begin[T](ctx, g, cells, t, g.passed(since))
}

func begin[T any](ctx context.Context, g *Gatherer, cells int, t *turn, waited time.Duration) *Request[T] {
	ctx, cancel := context.WithCancel(ctx)
	return &Request[T]{ctx: ctx, cancel: cancel, g: g, has: g.options.Timeout - waited, turn: t, replies: make(chan reply[T], cells), quiet: time.NewTimer(pause)}
}

// Ask asks a cell. Next gives its answer with the number i. Ask has to keep to its context, which ends when the cell's time does.
func (r *Request[T]) Ask(i int, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error)) {
	if r.asked++; r.turn.state == finishing {
		r.turn.becomes(without)
	}
	start := r.g.options.Now()
	go func() {
		one := reply[T]{i: i, panics: "gather: what asks a cell ended its goroutine"}
		defer func() {
			if p := recover(); p != nil {
				one.panics = p // it is the panic of who asks, as it would be without other cells
			}
			r.replies <- one
		}()
		one.answer = askOne(r.ctx, r.g, r.has, start, cell, ask)
		one.panics = nil
	}()
}

// Asked is how many answers are still to come.
func (r *Request[T]) Asked() int { return r.asked }

// Next waits for an answer. It is not ok when none came for a while: those that are still to come may take all the time that there is. It comes back
// once for each silence. When the last answer is there after a pause, other requests begin after this one's End, or a moment: everybody who waited for the
// same cell goes on at the same moment, and late by what is done in between.
func (r *Request[T]) Next() (i int, answer Answer[T], ok bool) {
	one, ok := r.reply()
	if !ok {
		return 0, answer, false
	}
	r.asked--
	if one.panics != nil {
		panic(one.panics)
	}
	r.paused = false
	r.quiet.Reset(pause)
	if r.asked == 0 && r.turn.state == without {
		r.turn.becomes(finishing)
	}
	return one.i, one.answer, true
}

func (r *Request[T]) reply() (one reply[T], ok bool) {
	select {
	case one = <-r.replies: // first of all
		return one, true
	default:
	}
	for {
		select {
		case one = <-r.replies:
			return one, true
		case <-r.quiet.C:
		}
		if r.paused {
			return one, false
		}
		r.paused = true
		r.quiet.Reset(silence - pause)
		r.turn.becomes(without)
	}
}

// End ends a request, and what of it is still under way.
func (r *Request[T]) End() {
	r.cancel()
	for ; r.asked > 0; r.asked-- {
		<-r.replies
	}
	r.quiet.Stop()
	r.turn.becomes(without)
}
