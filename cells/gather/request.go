// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
)

const (
	// pause is how long no cell answers until other requests may ask cells: the remaining ones may
	// be far away, and processors must not wait for them.
	pause = 25 * time.Millisecond
	// idle is how long no cell answers until [Request.Next] says so: in a list of cells that are up
	// none is idle as long as that.
	idle = 100 * time.Millisecond
)

// askedPerProcessor is how many cells are asked at the same time, for each processor, by requests
// to several cells: answers to more of them would only arrive later, and cells that are up would
// time out.
const askedPerProcessor = 64

// Request asks cells at once and gives their answers as they come. It belongs to one goroutine.
type Request[T any] struct {
	ctx     context.Context
	cancel  context.CancelFunc
	g       *Gatherer
	timeout time.Duration // of a cell for an answer
	held    int64         // of the gatherer's semaphore

	replies chan reply[T] // with capacity for all that are asked
	asked   int           // that have not answered
	pause   *time.Timer   // since the last answer
	idle    *time.Timer
}

type reply[T any] struct {
	i      int
	answer Answer[T]
	panics any
}

type arrivalKey struct{}

// WithArrival marks a context as that of what came in now, and is to have its answer after Timeout.
// What passes until the cells are asked comes off their time.
func (g *Gatherer) WithArrival(ctx context.Context) context.Context {
	return context.WithValue(ctx, arrivalKey{}, g.options.Now())
}

// deduction is the part of the cells' timeout that has passed since the request arrived, or 0 if
// that is more than a quarter: then the request is late anyway, and slow cells must not time out
// for it.
func (g *Gatherer) deduction(since time.Time) time.Duration {
	if passed := g.options.Now().Sub(since); passed > 0 && passed <= g.options.Timeout/4 {
		return passed
	}
	return 0
}

// Begin begins a request to so many cells at most, each of which has Timeout for an answer, and may
// be asked again when it has answered. A request to several cells first acquires the gatherer's
// semaphore, or waits for a quarter of Timeout. What passed since [Gatherer.WithArrival] comes off
// the time of the cells, unless it is more than a quarter of it. The caller has to end the request.
func Begin[T any](ctx context.Context, g *Gatherer, cells int) *Request[T] {
	since, ok := ctx.Value(arrivalKey{}).(time.Time)
	if !ok {
		since = g.options.Now()
	}
	held := int64(0)
	if cells > 1 {
		waiting, cancel := context.WithTimeout(ctx, g.options.Timeout/4)
		defer cancel()
		if n := min(int64(cells), g.maxAsked); g.asked.Acquire(waiting, n) == nil {
			held = n
		}
	}
	r := begin[T](ctx, g, cells)
	r.held, r.timeout = held, r.timeout-g.deduction(since)
	return r
}

func begin[T any](ctx context.Context, g *Gatherer, cells int) *Request[T] {
	ctx, cancel := context.WithCancel(ctx)
	return &Request[T]{
		ctx: ctx, cancel: cancel, g: g, timeout: g.options.Timeout, replies: make(chan reply[T], cells),
		pause: time.NewTimer(pause), idle: time.NewTimer(idle),
	}
}

// Ask asks a cell. Next gives its answer with the number i. Ask has to keep to its context, which
// ends when the cell's time does.
func (r *Request[T]) Ask(i int, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error)) {
	r.asked++
	start := r.g.options.Now()
	go func() {
		one := reply[T]{i: i, panics: "gather: what asks a cell ended its goroutine"}
		defer func() {
			if p := recover(); p != nil {
				one.panics = p // the caller panics, as it would without other cells
			}
			r.replies <- one
		}()
		one.answer = askOne(r.ctx, r.g, r.timeout, start, cell, ask)
		one.panics = nil
	}()
}

// Pending is how many answers are still to come.
func (r *Request[T]) Pending() int { return r.asked }

// Next waits for an answer. It is not ok when none came for a while: those that are still to come
// may take all the time that there is. It returns once for each such idle time.
func (r *Request[T]) Next() (i int, answer Answer[T], ok bool) {
	select {
	case one := <-r.replies: // first of all
		return one.i, r.accept(one), true
	default:
	}
	for {
		select {
		case one := <-r.replies:
			return one.i, r.accept(one), true
		case <-r.pause.C:
			r.release()
		case <-r.idle.C:
			return 0, answer, false
		}
	}
}

func (r *Request[T]) accept(one reply[T]) Answer[T] {
	r.asked--
	if one.panics != nil {
		panic(one.panics)
	}
	r.pause.Reset(pause)
	r.idle.Reset(idle)
	return one.answer
}

// release lets other requests ask.
func (r *Request[T]) release() {
	if r.held > 0 {
		r.g.asked.Release(r.held)
		r.held = 0
	}
}

// End cancels the requests to cells that are under way, and waits for them.
func (r *Request[T]) End() {
	r.cancel()
	for ; r.asked > 0; r.asked-- {
		<-r.replies
	}
	r.pause.Stop()
	r.idle.Stop()
	r.release()
}
