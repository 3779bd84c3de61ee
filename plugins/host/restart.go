// SPDX-License-Identifier: Apache-2.0

package host

import "time"

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
