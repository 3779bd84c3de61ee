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
func (k *KeyLocks) Lock(ctx context.Context, key string) (unlock func(), err error) {
	l := k.join(key)
	if ctx.Err() != nil || l.Acquire(ctx, 1) != nil {
		k.leave(key, l)
		return nil, context.Cause(ctx)
	}
	return func() {
		l.Release(1)
		k.leave(key, l)
	}, nil
}

// Len returns how many keys are kept.
func (k *KeyLocks) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.locks)
}

func (k *KeyLocks) join(key string) *keyLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.locks[key]
	if l == nil {
		if k.locks == nil {
			k.locks = map[string]*keyLock{}
		}
		l = &keyLock{Weighted: semaphore.NewWeighted(1)}
		k.locks[key] = l
	}
	l.users++
	return l
}

func (k *KeyLocks) leave(key string, l *keyLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.locks, key)
	}
}
