// SPDX-License-Identifier: Apache-2.0

// Package keylock is a mutex for each key that obeys a context.
package keylock

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Map locks keys, in the order of the calls. It keeps only keys that are locked or waited for. The
// zero value is ready to use.
type Map struct {
	mu    sync.Mutex
	locks map[string]*lock
}

type lock struct {
	*semaphore.Weighted
	users int // goroutines that hold it or wait for it
}

// Lock waits for the lock of a key and returns its unlock function. If ctx ends first, the error is
// the cause.
func (m *Map) Lock(ctx context.Context, key string) (unlock func(), err error) {
	l := m.join(key)
	if ctx.Err() != nil || l.Acquire(ctx, 1) != nil {
		m.leave(key, l)
		return nil, context.Cause(ctx)
	}
	return func() {
		l.Release(1)
		m.leave(key, l)
	}, nil
}

// Len returns how many keys are kept.
func (m *Map) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.locks)
}

func (m *Map) join(key string) *lock {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.locks[key]
	if l == nil {
		if m.locks == nil {
			m.locks = map[string]*lock{}
		}
		l = &lock{Weighted: semaphore.NewWeighted(1)}
		m.locks[key] = l
	}
	l.users++
	return l
}

func (m *Map) leave(key string, l *lock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(m.locks, key)
	}
}
