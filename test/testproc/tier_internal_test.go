// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"fmt"
	"testing"
)

// TestEachIsDrawn: of many commits, each runs a share of the tests, and each test is run by a
// share.
func TestEachIsDrawn(t *testing.T) {
	t.Parallel()
	const commits, tests, n = 60, 40, 3
	by := [tests]int{}
	for c := range commits {
		runs := 0
		for i := range tests {
			if drawn(fmt.Sprintf("%040x", c), fmt.Sprint("Test", i), n) {
				runs++
				by[i]++
			}
		}
		if runs == 0 || runs == tests {
			t.Errorf("the commit %d runs %d of %d tests", c, runs, tests)
		}
	}
	for i, runs := range by {
		if runs < commits/n/2 || runs > 2*commits/n {
			t.Errorf("the test %d is run by %d of %d commits", i, runs, commits)
		}
	}
}

// TestDrawnRuns: outside of make test-real, and in make nightly, nothing is left out.
func TestDrawnRuns(t *testing.T) {
	for _, tier := range []string{"", "nightly"} {
		t.Setenv("TEST_TIER", tier)
		t.Setenv("TEST_DRAW", map[string]string{"nightly": "commit"}[tier])
		for i := range 20 {
			t.Run(fmt.Sprint(tier, i), func(t *testing.T) {
				defer func() {
					if t.Skipped() {
						t.Errorf("%q leaves it out", tier)
					}
				}()
				Drawn(t, 1000)
			})
		}
	}
}
