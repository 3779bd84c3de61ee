// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestLocksEachKeyInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m KeyLocks
		var order []int
		unlock := testproc.Try(m.Lock(context.Background(), "a")).Or(t)
		for i := range 5 {
			go func() {
				unlock, err := m.Lock(context.Background(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				time.Sleep(time.Second)
				unlock()
			}()
			synctest.Wait() // it waits in the queue
		}
		other, err := m.Lock(context.Background(), "b")
		if err != nil || len(order) != 0 || m.Len() != 2 {
			t.Errorf("another key does not wait: %v, %v, %d keys", err, order, m.Len())
		}
		other()
		unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) || m.Len() != 0 {
			t.Errorf("order %v, %d keys left", order, m.Len())
		}
	})
}

func TestLockEndsWithContext(t *testing.T) {
	var m KeyLocks
	unlock := testproc.Try(m.Lock(context.Background(), "a")).Or(t)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	testproc.Try(m.Lock(ctx, "a")).ErrorIs(t, gone, "got %v")
	unlock()
	testproc.Equal(t, m.Len(), 0, "%d keys left")
}

// TestNoKeyIsLockedTwiceOrForever, whatever the order of locks, unlocks and contexts that end.
func TestNoKeyIsLockedTwiceOrForever(t *testing.T) {
	synctestRapid(t, func(t *rapid.T) {
		var m KeyLocks
		held := map[string]*bool{"a": new(bool), "b": new(bool), "c": new(bool)}
		for i := range rapid.IntRange(0, 30).Draw(t, "users") {
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
			patience := time.Duration(rapid.IntRange(0, 20).Draw(t, "patience")) * time.Second
			work := time.Duration(rapid.IntRange(0, 5).Draw(t, "work")) * time.Second
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				unlock, err := m.Lock(ctx, key)
				if err != nil {
					return
				}
				if *held[key] {
					t.Errorf("user %d: %s is held already", i, key)
				}
				*held[key] = true
				time.Sleep(work)
				*held[key] = false
				unlock()
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		testproc.Equal(t, m.Len(), 0, "%d keys left")
	})
}

// synctestRapid checks a property with each example in a bubble of its own.
func synctestRapid(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { property(rt) })
	})
}
