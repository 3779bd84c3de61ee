// SPDX-License-Identifier: Apache-2.0

// Package turns lets those who are about the same thing in one after the other, and those who are about different things at once.
package turns

import (
	"context"
	"sync"
)

// ByKey gives turns by key, in the order in which they are asked for. It remembers only keys that somebody holds or waits for. The zero
// value is ready; all methods may be called from any goroutine.
type ByKey struct {
	mu     sync.Mutex
	queues map[string]*queue
}

type queue struct {
	turn  chan struct{} // full while somebody has it
	users int           // who have it or wait for it
}

// Take waits for the turn of a key, and returns the function that gives it back, which is to be called once. If ctx ends first, the
// error is its cause, and there is nothing to give back.
func (b *ByKey) Take(ctx context.Context, key string) (give func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	q := b.join(key)
	select {
	case q.turn <- struct{}{}:
		return func() {
			<-q.turn
			b.leave(key, q)
		}, nil
	case <-ctx.Done():
		b.leave(key, q)
		return nil, context.Cause(ctx)
	}
}

// Len is how many keys are remembered.
func (b *ByKey) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues)
}

func (b *ByKey) join(key string) *queue {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[key]
	if q == nil {
		if b.queues == nil {
			b.queues = map[string]*queue{}
		}
		q = &queue{turn: make(chan struct{}, 1)}
		b.queues[key] = q
	}
	q.users++
	return q
}

func (b *ByKey) leave(key string, q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(b.queues, key)
	}
}
