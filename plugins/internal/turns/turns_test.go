// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestOneAtATimeForEachKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b ByKey
		var order []int
		give, err := b.Take(context.Background(), "a")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			go func() {
				give, err := b.Take(context.Background(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				time.Sleep(time.Second)
				give()
			}()
			synctest.Wait() // it waits in the queue
		}
		other, err := b.Take(context.Background(), "b")
		if err != nil || len(order) != 0 || b.Len() != 2 {
			t.Errorf("another key does not wait: %v, %v, %d keys", err, order, b.Len())
		}
		other()
		give()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) || b.Len() != 0 {
			t.Errorf("order %v, %d keys left", order, b.Len())
		}
	})
}

func TestWhoGivesUpIsForgotten(t *testing.T) {
	var b ByKey
	give, err := b.Take(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	if _, err := b.Take(ctx, "a"); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	give()
	if b.Len() != 0 {
		t.Errorf("%d keys left", b.Len())
	}
}

// TestNothingIsHeldTwiceOrForEver: whoever comes, waits, gives up and leaves in whatever order.
func TestNothingIsHeldTwiceOrForEver(t *testing.T) {
	synctestRapid(t, func(t *rapid.T) {
		var b ByKey
		held := map[string]*bool{"a": new(bool), "b": new(bool), "c": new(bool)}
		for i := range rapid.IntRange(0, 30).Draw(t, "users") {
			key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
			patience := time.Duration(rapid.IntRange(0, 20).Draw(t, "patience")) * time.Second
			work := time.Duration(rapid.IntRange(0, 5).Draw(t, "work")) * time.Second
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				give, err := b.Take(ctx, key)
				if err != nil {
					return
				}
				if *held[key] {
					t.Errorf("user %d: %s is held already", i, key)
				}
				*held[key] = true
				time.Sleep(work)
				*held[key] = false
				give()
			}()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if b.Len() != 0 {
			t.Errorf("%d keys left", b.Len())
		}
	})
}

// synctestRapid checks a property with each example in a bubble of its own.
func synctestRapid(t *testing.T, property func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { property(rt) })
	})
}
