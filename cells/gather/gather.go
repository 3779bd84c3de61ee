// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
)

// All asks all cells at once, each with its own clock. The answers are in the order of the cells, and all there after Timeout at the latest.
// Ask has to keep to its context. It costs one goroutine for each cell.
func All[T any](ctx context.Context, g *Gatherer, cells []apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error)) []Answer[T] {
	return Each(ctx, g, g.NewBudget(), cells, func(ctx context.Context, _ int, c *cellclient.Client) (T, error) { return ask(ctx, c) })
}

// One asks one cell.
func One[T any](ctx context.Context, g *Gatherer, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error)) (T, error) {
	a := askOne(ctx, g, g.NewBudget(), cell, ask)
	return a.Value, a.Err
}

// Each is All with something else to ask of each cell, by its index, and with a budget, for requests that ask cells more than once.
func Each[T any](ctx context.Context, g *Gatherer, b *Budget, cells []apidb.Cell,
	ask func(ctx context.Context, i int, c *cellclient.Client) (T, error),
) []Answer[T] {
	answers := make([]Answer[T], len(cells))
	var panics sync.Map // a panic is the asking goroutine's, as it would be without the others
	var all sync.WaitGroup
	for i, cell := range cells {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					panics.Store(i, p)
				}
			}()
			answers[i] = askOne(ctx, g, b, cell, func(ctx context.Context, c *cellclient.Client) (T, error) { return ask(ctx, i, c) })
		})
	}
	all.Wait()
	panics.Range(func(_, p any) bool { panic(p) })
	return answers
}

// Budget is the time that the cells have for one request, each for itself, however often they are asked.
type Budget struct {
	whole time.Duration

	mu    sync.Mutex
	spent map[string]time.Duration // by uuid
}

// NewBudget gives every cell the gatherer's Timeout.
func (g *Gatherer) NewBudget() *Budget {
	return &Budget{whole: g.options.Timeout, spent: map[string]time.Duration{}}
}

func (b *Budget) left(uuid string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.whole - b.spent[uuid]
}

func (b *Budget) spend(uuid string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent[uuid] += max(d, 0)
}

func askOne[T any](ctx context.Context, g *Gatherer, b *Budget, cell apidb.Cell, ask func(context.Context, *cellclient.Client) (T, error)) Answer[T] {
	start := g.options.Now()
	m, err := g.enter(cell)
	if err != nil {
		failure := &cellclient.Failure{Kind: cellclient.TimedOut, Err: err}
		return Answer[T]{Cell: cell, State: TimedOut, Err: &DownError{Cell: cell, Err: failure}}
	}
	var value T
	client, err := g.clientOf(m, cell)
	if err == nil {
		asking, cancel := context.WithTimeout(ctx, b.left(cell.UUID))
		defer cancel()
		value, err = ask(asking, client)
		err = ended(ctx, asking, err)
		b.spend(cell.UUID, g.options.Now().Sub(start))
	}
	// The cell had all of its time only if the caller's did not end first.
	v := g.note(m, start, err, ctx.Err() == nil)
	switch {
	case err == nil:
		return Answer[T]{Cell: cell, State: v.state, Value: value}
	case v.down != nil:
		err = &DownError{Cell: cell, Err: v.down}
	}
	return Answer[T]{Cell: cell, State: v.state, Err: err}
}

// ended makes a failure of a context's error that ask gave as it is.
func ended(caller, asking context.Context, err error) error {
	var failure *cellclient.Failure
	switch {
	case err == nil, errors.As(err, &failure):
		return err
	case errors.Is(caller.Err(), context.Canceled) && errors.Is(err, context.Canceled):
		return &cellclient.Failure{Kind: cellclient.Cancelled, Sent: true, Err: err}
	case asking.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return &cellclient.Failure{Kind: cellclient.TimedOut, Sent: true, Err: err}
	default:
		return err
	}
}
