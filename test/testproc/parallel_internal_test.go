// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestSemaphoreAdmitsNoMoreThanItsSize(t *testing.T) {
	t.Parallel()
	s := semaphore{dir: t.TempDir(), size: 5}
	var now, most atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			units := 1 + i%7 // more than there are counts as all
			release, err := s.acquire(units)
			if err != nil {
				t.Error(err)
				return
			}
			n := now.Add(int64(min(units, s.size)))
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			now.Add(-int64(min(units, s.size)))
			release()
		})
	}
	all.Wait()
	if n := most.Load(); n > 5 || n < 1 {
		t.Errorf("%d units were held at once, of 5", n)
	}
}

func TestSemaphoreIsFreeAfterRelease(t *testing.T) {
	t.Parallel()
	s := semaphore{dir: t.TempDir(), size: 3}
	for range 3 {
		release, err := s.acquire(3)
		Check(t, err)
		release()
	}
	if _, err := (semaphore{dir: "/proc/none", size: 1}).acquire(1); err == nil {
		t.Error("a directory that cannot be made gives no error")
	}
}
