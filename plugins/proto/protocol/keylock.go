// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// KeyLocks are a mutex for each key that obeys a context. The keys are locked in the order of
// the calls, and kept only while they are locked or waited for. The zero value is ready to use.
type KeyLocks struct {
	mu    sync.Mutex
	locks map[string]*keyLock
}

type keyLock struct {
	*semaphore.Weighted
	users int // goroutines that hold it or wait for it
}

// Lock waits for the lock of a key and returns its unlock function. If ctx ends first, the error is
// the cause.
func (m *KeyLocks) Lock(ctx context.Context, key string) (unlock func(), err error) {
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
func (m *KeyLocks) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.locks)
}

func (m *KeyLocks) join(key string) *keyLock {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.locks[key]
	if l == nil {
		if m.locks == nil {
			m.locks = map[string]*keyLock{}
		}
		l = &keyLock{Weighted: semaphore.NewWeighted(1)}
		m.locks[key] = l
	}
	l.users++
	return l
}

func (m *KeyLocks) leave(key string, l *keyLock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(m.locks, key)
	}
}
