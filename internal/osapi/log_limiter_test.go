// SPDX-License-Identifier: Apache-2.0

package osapi_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestLogLimiter: each key is allowed once a minute, and of many keys a thousand and one.
func TestLogLimiter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := osapi.NewLogLimiter(time.Minute, func() time.Time { return now })
	for _, step := range []struct {
		after time.Duration
		key   string
		want  bool
	}{{0, "a", true}, {0, "a", false}, {0, "b", true}, {59 * time.Second, "a", false}, {time.Second, "a", true},
		{0, "a", false}, {-time.Hour, "a", true}} {
		now = now.Add(step.after)
		testproc.Equal(t, s.Allow(step.key), step.want, "%s at %s: %v", step.key, now)
	}
	for _, want := range []int{999, 1000} { // b was long ago, but a was not
		allowed := 0
		for i := range 5000 {
			if s.Allow(strconv.Itoa(i)) {
				allowed++
			}
		}
		if allowed != want+1 {
			t.Errorf("%d keys were allowed, not %d", allowed, want+1)
		}
		now = now.Add(time.Hour)
	}
}
