// SPDX-License-Identifier: Apache-2.0

// Package seldom keeps what others can bring about as often as they like from filling a log: of each kind, something is said once in a while.
package seldom

import (
	"sync"
	"time"
)

// most is how many keys are known at once.
const most = 1000

// Seldom says when it is time to say something again. It is safe for concurrent use.
type Seldom struct {
	every time.Duration
	now   func() time.Time

	mu   sync.Mutex
	said map[string]time.Time
	rest time.Time // when something was said last about a key that there was no room for
}

// New allows each key once in every. Whoever comes with ever new keys has no more than a thousand of them in that time, and then one for all others.
func New(every time.Duration, now func() time.Time) *Seldom {
	return &Seldom{every: every, now: now, said: map[string]time.Time{}}
}

// Now reports whether it is time for the key, and takes note of it. It costs a look at all keys when there are a thousand.
func (s *Seldom) Now(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	recent := func(at time.Time) bool { return !at.IsZero() && now.Sub(at).Abs() < s.every } // the clock may be set back
	if recent(s.said[key]) {
		return false
	}
	if _, known := s.said[key]; !known && len(s.said) >= most {
		if recent(s.rest) {
			return false
		}
		for other, at := range s.said {
			if !recent(at) {
				delete(s.said, other)
			}
		}
		if len(s.said) >= most {
			s.rest = now
			return true
		}
	}
	s.said[key] = now
	return true
}
