// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
)

// All asks all cells at once, each with its own clock. The answers are in the order of the cells,
// and all there after Timeout at the latest. Ask has to keep to its context. It costs one goroutine
// for each cell.
func All[T any](
	ctx context.Context, g *Gatherer, cells []apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) []Answer[T] {
	return inOrder(Begin[T](ctx, g, len(cells)), cells, ask)
}

// AllUnlimited is All without the semaphore: for what is small and must be known under load, too.
func AllUnlimited[T any](
	ctx context.Context, g *Gatherer, cells []apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) []Answer[T] {
	return inOrder(begin[T](ctx, g, len(cells)), cells, ask)
}

func inOrder[T any](
	r *Request[T], cells []apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) []Answer[T] {
	defer r.End()
	answers := make([]Answer[T], len(cells))
	r.each(cells, ask, func(i int, a Answer[T]) { answers[i] = a })
	return answers
}

// each asks all cells and gives the answers as they come.
func (r *Request[T]) each(
	cells []apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error), use func(int, Answer[T]),
) {
	for i, cell := range cells {
		r.Ask(i, cell, ask)
	}
	for r.Pending() > 0 {
		if i, answer, ok := r.Next(); ok {
			use(i, answer)
		}
	}
}

// Each asks all cells at once, as All does, and gives each answer to use when it is there: what
// takes time is done while other cells are waited for, and takes none of theirs. Use is called by
// the caller's goroutine, for one answer after the other.
func Each[T any](
	ctx context.Context, g *Gatherer, cells []apidb.Cell,
	ask func(context.Context, *cellclient.Client) (T, error), use func(Answer[T]),
) {
	answers := make(chan Answer[T], len(cells)) // with capacity for all of them: use may be slow
	var panics any
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel() // if use panics
		for range answers {
			continue // until the goroutine is gone
		}
	}()
	go func() {
		defer close(answers)
		defer func() { panics = recover() }() // it is the caller's
		r := Begin[T](ctx, g, len(cells))
		defer r.End()
		r.each(cells, ask, func(_ int, a Answer[T]) { answers <- a })
	}()
	for a := range answers {
		use(a)
	}
	if panics != nil {
		panic(panics)
	}
}

// One asks one cell.
func One[T any](
	ctx context.Context, g *Gatherer, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) (T, error) {
	a := askOne(ctx, g, g.options.Timeout, g.options.Now(), cell, ask)
	return a.Value, a.Err
}

// askOne asks a cell that has so much time since start: a goroutine may have to wait for a
// processor.
func askOne[T any](
	ctx context.Context, g *Gatherer, timeout time.Duration,
	start time.Time, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error),
) Answer[T] {
	m, up, err := g.memberToAsk(cell)
	if err != nil {
		failure := &cellclient.Failure{Kind: cellclient.TimedOut, Err: err}
		return Answer[T]{Cell: cell, State: TimedOut, Err: &DownError{Cell: cell, Err: failure}}
	}
	var value T
	client, err := g.clientOf(m, cell)
	if err == nil {
		asking, end := context.WithCancelCause(ctx)
		defer end(nil)
		defer context.AfterFunc(up, func() { end(errHangs) })() //nolint:contextcheck // up ends when the cell hangs
		asking, cancel := context.WithTimeout(asking, timeout-max(g.options.Now().Sub(start), 0))
		defer cancel()
		value, err = ask(asking, client)
		err = contextFailure(ctx, asking, err)
	}
	// The cell had all of its time only if the caller's did not end first.
	v := g.recordAnswer(m, start, err, ctx.Err() == nil)
	switch {
	case err == nil:
		return Answer[T]{Cell: cell, State: v.state, Value: value}
	case v.down != nil:
		err = &DownError{Cell: cell, Err: v.down}
	}
	return Answer[T]{Cell: cell, State: v.state, Err: err}
}

// contextFailure classifies an error that ask returned after its context ended: the caller
// cancelled it, it timed out, or the cell hangs. It returns any other error unchanged.
func contextFailure(caller, asking context.Context, err error) error {
	var failure *cellclient.Failure
	is := errors.As(err, &failure)
	cancelled := is && failure.Kind == cellclient.Cancelled || !is &&
		(errors.Is(err, context.Canceled) || errors.Is(err, errHangs))
	switch {
	case err == nil:
		return nil
	case cancelled && caller.Err() == nil && errors.Is(context.Cause(asking), errHangs):
		return &cellclient.Failure{Kind: cellclient.TimedOut, Sent: !is || failure.Sent, Err: errHangs}
	case is:
		return err
	case errors.Is(caller.Err(), context.Canceled) && errors.Is(err, context.Canceled):
		return &cellclient.Failure{Kind: cellclient.Cancelled, Sent: true, Err: err}
	case asking.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return &cellclient.Failure{Kind: cellclient.TimedOut, Sent: true, Err: err}
	default:
		return err
	}
}
