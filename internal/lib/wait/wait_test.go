// SPDX-License-Identifier: Apache-2.0

package wait_test

import (
	"math"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBackoff: the time doubles up to the longest, however many failures there are, and is shorter
// by chance by the share that is given.
func TestBackoff(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	b := wait.Backoff{Min: time.Second, Max: time.Minute, Jitter: 0.25}
	for failures, want := range map[int]time.Duration{
		0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1000: time.Minute,
		math.MaxInt: time.Minute,
	} {
		if got := b.Longest(failures); got != want {
			t.Errorf("after %d failures: %v, want %v", failures, got, want)
		}
	}
	for random, want := range map[float64]time.Duration{0: 3 * time.Second, 0.5: 3500 * time.Millisecond} {
		if got := b.Delay(3, random); got != want {
			t.Errorf("with the random number %v: %v, want %v", random, got, want)
		}
	}
	testproc.Equal(t, wait.Backoff{Min: 2, Max: 1}.Longest(1), time.Duration(1), "Max below Min: %v")
	testproc.Equal(t, wait.Backoff{Min: 1, Max: math.MaxInt64}.Longest(100), time.Duration(math.MaxInt64),
		"without a bound: %v")
}
