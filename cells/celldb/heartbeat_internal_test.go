// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestHeartbeatsShareWrites: the heartbeats that come while one is written are all in the next
// write, at the latest time of theirs, and each gets its own write's outcome.
func TestHeartbeatsShareWrites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		const hosts = 50
		var writes [][]string
		var times []int64
		release := make(chan struct{})
		failed := errors.New("failed")
		h := newHeartbeats(func(_ context.Context, hosts []string, at int64) error {
			writes, times = append(writes, hosts), append(times, at)
			if len(writes) == 1 {
				<-release
				return nil
			}
			return failed
		})
		outcomes := make(chan error, hosts+1)
		go func() { outcomes <- h.write(t.Context(), "first", 1) }()
		synctest.Wait()
		for i := range hosts {
			go func() { outcomes <- h.write(t.Context(), fmt.Sprint("host", i), int64(100+i)) }()
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		testproc.ErrorIs(t, h.write(ended, "late", 1), context.Canceled, "after the end of its context: %v")
		synctest.Wait()
		close(release)
		testproc.NoErrorf(t, <-outcomes, "the first")
		for range hosts {
			testproc.ErrorIs(t, <-outcomes, failed, "one of the second write: %v")
		}
		if len(writes) != 2 || len(writes[1]) != hosts ||
			slices.Contains(writes[1], "late") || times[1] != 100+hosts-1 {
			t.Errorf("%d writes, at %v: %v", len(writes), times, writes)
		}
	})
}
