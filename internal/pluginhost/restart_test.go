// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newBreaker() *breaker {
	return &breaker{policy: Restart{}.withDefaults(), jitter: func(d time.Duration) time.Duration { return d }}
}

func TestBackoffDoublesUpToItsLimit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	b := newBreaker()
	b.policy.FailureLimit = 1000
	now := epoch
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 120, 120, 120} {
		delay, quarantined := b.failed(now)
		if delay != want*time.Second || quarantined {
			t.Errorf("delay %v (quarantined: %v), want %v s", delay, quarantined, int64(want))
		}
		now = now.Add(delay)
	}
	b.noteUptime(9 * time.Minute)
	if delay, _ := b.failed(now); delay != 2*time.Minute {
		t.Errorf("9 minutes of health are not enough to forget, delay %v", delay)
	}
	b.noteUptime(10 * time.Minute)
	if delay, _ := b.failed(now); delay != time.Second {
		t.Errorf("after 10 minutes of health all is forgotten, delay %v", delay)
	}
}

func TestQuarantineAfterTooManyFailures(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	b := newBreaker()
	now := epoch
	for i := 1; i < 5; i++ {
		if _, quarantined := b.failed(now); quarantined {
			t.Fatalf("quarantined after %d failures", i)
		}
		now = now.Add(time.Minute)
	}
	if delay, quarantined := b.failed(now); !quarantined || delay != 10*time.Minute {
		t.Fatalf("fifth failure within 10 minutes: %v, %v", delay, quarantined)
	}
	now = now.Add(10 * time.Minute)
	if _, quarantined := b.failed(now); !quarantined {
		t.Error("the one attempt after a quarantine failed: it goes back at once")
	}
	b.noteUptime(10 * time.Minute)
	if _, quarantined := b.failed(now); quarantined {
		t.Error("after the recovery it has a clean sheet")
	}
}

func TestOldFailuresDoNotCount(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	b := newBreaker()
	now := epoch
	for range 50 {
		if _, quarantined := b.failed(now); quarantined {
			t.Fatal("four failures in ten minutes are no reason for quarantine")
		}
		now = now.Add(151 * time.Second)
	}
}

func TestDelaysStayWithinBounds(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		b := newBreaker()
		b.jitter = func(d time.Duration) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(d)-1).Draw(t, "jitter"))
		}
		now := epoch
		for range rapid.IntRange(1, 100).Draw(t, "failures") {
			delay, quarantined := b.failed(now)
			if delay < 0 || delay > b.policy.BackoffMax && !quarantined || quarantined && delay != b.policy.Quarantine {
				t.Fatalf("delay %v (quarantined: %v)", delay, quarantined)
			}
			now = now.Add(delay + time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "up")))
		}
	})
}
