// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWaits: they double, with up to a quarter less, to half a minute; a success ends them.
func TestWaits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	var d backoff
	for _, seconds := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		most := seconds * time.Second
		wait := d.recordFailure("server", now)
		if wait > most || wait < most*3/4 {
			t.Errorf("the wait is %v, want up to a quarter less than %v", wait, most)
		}
		for at, want := range map[time.Time]bool{now: false, now.Add(wait): true} {
			if due, since := d.due("server", false, at); due != want || !since.IsZero() {
				t.Errorf("after %v of %v it is due: %t, unanswered since %v", at.Sub(now), wait, due, since)
			}
		}
		now = now.Add(wait)
	}
	d.recordSuccess("server", false, 0)
	if due, _ := d.due("server", false, now); !due {
		t.Error("it is put off after a success")
	}
}

// TestPlacementIsPutOff: what does not need Placement is due while it is put off, for whichever
// server it failed.
func TestPlacementIsPutOff(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	var d backoff
	if _, first := d.recordPlacementFailure(now); !first {
		t.Error("the first failure is not the first")
	}
	if _, first := d.recordPlacementFailure(now); first {
		t.Error("the second failure is the first")
	}
	for needsPlacement, want := range map[bool]bool{true: false, false: true} {
		if due, _ := d.due("server", needsPlacement, now); due != want {
			t.Errorf("a server that needs Placement (%t) is due: %t", needsPlacement, due)
		}
	}
	if back := d.recordSuccess("other", true, 0); !back {
		t.Error("a success does not end the wait for Placement")
	}
	if due, _ := d.due("server", true, now); !due {
		t.Error("it is put off although Placement answers")
	}
}
