// SPDX-License-Identifier: Apache-2.0

package testproc_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

type verdict bool

func (v verdict) Failed() bool { return bool(v) }

// TestFew: a property that holds is checked a few times, and one that fails as often as it is asked
// for, also if it panics.
func TestFew(t *testing.T) {
	t.Setenv("TEST_TIER", "")
	for name, c := range map[string]struct {
		property func(check int) verdict
		want     int
	}{
		"holds":          {func(int) verdict { return false }, 3},
		"fails":          {func(check int) verdict { return check == 2 }, 10},
		"fails too late": {func(check int) verdict { return check == 4 }, 3},
		"panics":         {func(check int) verdict { _ = []int{0, 0}[check]; return false }, 10},
	} {
		checks := 0
		var last verdict
		property := testproc.Few(3, func(v *verdict) {
			checks++
			*v = c.property(checks)
		})
		for range 10 {
			func() {
				defer func() { _ = recover() }()
				last = false
				property(&last)
			}()
		}
		if checks != c.want {
			t.Errorf("%s: %d checks, not %d", name, checks, c.want)
		}
	}
	t.Setenv("TEST_TIER", "nightly")
	checks := 0
	property := testproc.Few(3, func(*verdict) { checks++ })
	for range 10 {
		property(new(verdict))
	}
	if checks != 10 {
		t.Errorf("make nightly has %d checks", checks)
	}
}
