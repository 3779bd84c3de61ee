// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"sync"
	"time"
)

// maxLogKeys is how many keys are kept at once.
const maxLogKeys = 1000

// LogLimiter keeps records that clients can cause as often as they like from filling the log: it
// allows each key once in an interval. It is safe for concurrent use.
type LogLimiter struct {
	interval time.Duration
	now      func() time.Time

	mu      sync.Mutex
	allowed map[string]time.Time
	others  time.Time // when a key was allowed last that is not kept
}

// NewLogLimiter makes a LogLimiter. Of ever new keys it allows a thousand in an interval, and then
// one for all others.
func NewLogLimiter(interval time.Duration, now func() time.Time) *LogLimiter {
	return &LogLimiter{interval: interval, now: now, allowed: map[string]time.Time{}}
}

// Allow reports whether it is time for the key, and records it. It costs a look at all keys when
// there are a thousand.
func (l *LogLimiter) Allow(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	// the clock may be set back
	recent := func(at time.Time) bool { return !at.IsZero() && now.Sub(at).Abs() < l.interval }
	if recent(l.allowed[key]) {
		return false
	}
	if _, known := l.allowed[key]; !known && len(l.allowed) >= maxLogKeys {
		if recent(l.others) {
			return false
		}
		for other, at := range l.allowed {
			if !recent(at) {
				delete(l.allowed, other)
			}
		}
		if len(l.allowed) >= maxLogKeys {
			l.others = now
			return true
		}
	}
	l.allowed[key] = now
	return true
}
