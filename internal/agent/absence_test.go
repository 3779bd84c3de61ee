// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// TestAbsence says, minute by minute, when a node is disabled for the want of its driver, and when
// it is enabled again. Each letter is a minute: A the driver answered, F it is failing, and . it is
// up and has not been asked yet.
func TestAbsence(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		grace   time.Duration
		kept    bool // the reason was there when the agent was started
		minutes string
		want    []string
	}{
		"always there":                     {3 * time.Minute, false, "AAAAAAAAAAAA", nil},
		"gone for shorter than the grace":  {3 * time.Minute, false, "AAFFFAAAAA", nil},
		"gone for longer":                  {3 * time.Minute, false, "AAFFFFFFFA", []string{"5 disabled", "9 enabled"}},
		"never there since the start":      {3 * time.Minute, false, "FFFFFF", []string{"3 disabled"}},
		"disabled before the start":        {3 * time.Minute, true, "FFFFFFA", []string{"6 enabled"}},
		"before the start, and back":       {3 * time.Minute, true, ".A", []string{"1 enabled"}},
		"a crash loop without an answer":   {3 * time.Minute, false, "AF.F.F.F", []string{"5 disabled"}},
		"a process that is back is no end": {3 * time.Minute, false, "AFFFF...A", []string{"4 disabled", "8 enabled"}},
		"a crash loop that answers":        {3 * time.Minute, false, "AFFAFFAFFAFF", nil},
		"up, and Placement is not":         {3 * time.Minute, false, "AF..........", nil},
		"an old answer is no absence":      {3 * time.Minute, false, "A.................F", nil},
		"never":                            {0, false, "AFFFFFFFFFFF", nil},
		"never, now":                       {0, true, "FF", []string{"0 enabled"}},
		"the full grace after each return": {2 * time.Minute, false,
			"FFFAFFF", []string{"2 disabled", "3 enabled", "6 disabled"}},
	} {
		t.Run(name, func(t *testing.T) {
			var a absence
			p := presence{driver: "libvirt", node: "cn1", grace: c.grace, disabled: c.kept}
			var got []string
			for i, minute := range c.minutes {
				now := noon.Add(time.Duration(i) * time.Minute)
				p.failing = minute == 'F'
				if minute == 'A' {
					p.answered = now
				}
				disable, enable,
					next := a.decide(now,
					[]presence{p, {driver: "other", node: "cn2", answered: now, grace: time.Minute}})
				switch {
				case len(disable) > 0:
					got, p.disabled = append(got, fmt.Sprint(i, " disabled")), true
				case len(enable) > 0:
					got, p.disabled = append(got, fmt.Sprint(i, " enabled")), false
				}
				if p.failing && !p.disabled && c.grace > 0 && !next.Equal(a.unavailableSince(p).Add(c.grace)) {
					t.Errorf("minute %d: looks again at %v", i, next)
				}
				if len(disable)+len(enable) > 1 {
					t.Errorf("minute %d: %v, %v", i, disable, enable)
				}
			}
			testproc.Samef(t, cmp.Diff(c.want, got), "%s", c.minutes)
		})
	}
}

// TestAbsenceNeverFlaps: whatever a driver does, between two times that its node is disabled lie an
// answer and a whole grace.
func TestAbsenceNeverFlaps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		var a absence
		grace := time.Duration(rapid.IntRange(1, 20).Draw(t, "grace")) * time.Minute
		p := presence{driver: "d", node: "n", grace: grace}
		now, last := noon, time.Time{}
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.IntRange(1, 300).Draw(t, "seconds")) * time.Second)
			p.failing = rapid.Bool().Draw(t, "failing")
			if rapid.IntRange(0, 4).Draw(t, "answered") == 0 {
				p.answered = now.Add(-time.Millisecond)
			}
			disable, enable, _ := a.decide(now, []presence{p})
			switch {
			case len(disable) > 0:
				if p.disabled || !p.failing || now.Sub(p.answered) < grace &&
					!p.answered.IsZero() || now.Sub(last) < grace {
					t.Fatalf("disabled at %v; the last answer was at %v, and it was enabled at %v",
						now, p.answered, last)
				}
				p.disabled = true
			case len(enable) > 0:
				if !p.disabled || p.failing || p.answered.IsZero() {
					t.Fatalf("enabled at %v, the last answer was at %v", now, p.answered)
				}
				p.disabled, last = false, now
			}
		}
	})
}
