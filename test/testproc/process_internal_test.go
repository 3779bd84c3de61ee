// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"os/exec"
	"testing"
	"testing/synctest"
	"time"
)

// TestDeadline: a process that works silently, as OpenStack's services do when they start, is
// waited for however busy the machine is. One that only looks at the clock now and then hangs.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used time.Duration
		d := newDeadline(func() time.Duration { return used })
		defer d.Stop()
		start := time.Now()
		for range 3 {
			used += working
			<-d.C
			if d.hangs() {
				t.Fatalf("after %v of CPU time in %v it hangs", used, time.Since(start))
			}
		}
		used += working - 1
		<-d.C
		if !d.hangs() || time.Since(start) != 4*Patience {
			t.Errorf("after %v it does not hang", time.Since(start))
		}
	})
}

// TestUsed: the CPU time is that of the process, and its end is no time at all.
func TestUsed(t *testing.T) {
	p := Start(t, "a loop", exec.Command("sh", "-c", "while :; do :; done"))
	p.KilledBy(t)
	Eventually(t, Patience, "the loop has run", True(func() bool { return p.used() > 0 }))
	p.Kill()
	if used := p.used(); used != 0 {
		t.Errorf("what has ended has used %v", used)
	}
}
