// SPDX-License-Identifier: Apache-2.0

package seldom_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/seldom"
)

// TestSeldom: each key has its turn once a minute, and many keys have no more than a thousand turns and one.
func TestSeldom(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := seldom.New(time.Minute, func() time.Time { return now })
	for _, step := range []struct {
		after time.Duration
		key   string
		want  bool
	}{{0, "a", true}, {0, "a", false}, {0, "b", true}, {59 * time.Second, "a", false}, {time.Second, "a", true}, {0, "a", false}, {-time.Hour, "a", true}} {
		now = now.Add(step.after)
		if got := s.Now(step.key); got != step.want {
			t.Errorf("%s at %s: %v", step.key, now, got)
		}
	}
	for _, want := range []int{999, 1000} { // b was long ago, but a was not
		said := 0
		for i := range 5000 {
			if s.Now(strconv.Itoa(i)) {
				said++
			}
		}
		if said != want+1 {
			t.Errorf("%d keys were said, not %d", said, want+1)
		}
		now = now.Add(time.Hour)
	}
}
