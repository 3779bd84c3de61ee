// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// silence counts calls without an answer: in a row, and those of each call by itself. A driver that names its nodes and then hangs in
// the tree of one of them would otherwise be forgiven at every pass.
type silence struct {
	row int            // of all calls
	of  map[string]int // since the last answer to that call
}

// missed notes that a call got no answer, and returns how many did not in a row.
func (s *silence) missed(call string) int {
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.row++
	s.of[call]++
	return max(s.row, s.of[call])
}

// answered notes an answer, whatever it says.
func (s *silence) answered(call string) {
	s.row = 0
	delete(s.of, call)
}

// breakages counts calls that end with a defect of the plugin, such as a panic, each call by itself: in a row.
type breakages struct {
	of map[string]*breakage
}

type breakage struct {
	row   int
	first string // in words; it stays while the row lasts, since later ones may differ in an address or a number
	last  time.Time
}

// heard notes how a call ended that was answered.
func (b *breakages) heard(call string, err error, now time.Time) {
	defect := (*defective)(nil)
	if !errors.As(err, &defect) {
		delete(b.of, call)
		return
	}
	if b.of == nil {
		b.of = map[string]*breakage{}
	}
	if b.of[call] == nil {
		b.of[call] = &breakage{first: err.Error()}
	}
	b.of[call].row++
	b.of[call].last = now
}

// problem is nil, or which call ended so for so many times in a row. What nobody has called for long is forgotten: its node may be gone.
func (b *breakages) problem(policy Restart, now time.Time) error {
	for _, call := range slices.Sorted(maps.Keys(b.of)) {
		switch is := b.of[call]; {
		case now.Sub(is.last) >= policy.ResetAfter:
			delete(b.of, call)
		case is.row >= policy.Misses:
			return fmt.Errorf("%s ends with a defect of the driver, again and again, and never with an answer; the first time: %s", call, is.first)
		}
	}
	return nil
}

// breaker decides how long to wait after a failure. It knows nothing of processes; time is given to it.
type breaker struct {
	policy Restart
	jitter func(time.Duration) time.Duration // uniform in [0, d)

	attempt  int         // consecutive failures, the exponent of the delay
	failures []time.Time // those within the window, oldest first
	tried    bool        // quarantine is over and the one attempt after it has not proved itself yet
}

// failed notes a failure and returns the delay until the next attempt, and whether it is a quarantine.
func (b *breaker) failed(now time.Time) (time.Duration, bool) {
	for len(b.failures) > 0 && now.Sub(b.failures[0]) >= b.policy.FailureWindow {
		b.failures = b.failures[1:]
	}
	b.failures = append(b.failures, now)
	if b.tried || len(b.failures) >= b.policy.FailureLimit {
		b.failures, b.tried = nil, true
		return b.policy.Quarantine, true
	}
	delay := b.policy.BackoffMax
	if b.attempt < 32 && b.policy.BackoffBase<<b.attempt < delay && b.policy.BackoffBase<<b.attempt > 0 {
		delay = b.policy.BackoffBase << b.attempt
	}
	b.attempt++
	return b.jitter(delay), false
}

// worked notes how long the plugin has been up without a failure.
func (b *breaker) worked(up time.Duration) {
	if up >= b.policy.ResetAfter {
		b.reset()
	}
}

// reset forgets all failures.
func (b *breaker) reset() { b.attempt, b.failures, b.tried = 0, nil, false }
