// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"net/netip"
	"sync"
	"time"
)

// limiter counts events by key: a number of them in a minute is too many. Of more keys than it
// keeps, the others count together. It is safe for concurrent use.
type limiter struct {
	limit int
	now   func() time.Time

	mu     sync.Mutex
	counts map[string]count
}

type count struct {
	since time.Time
	n     int
}

const (
	// maxKeys is how many keys a limiter keeps.
	maxKeys = 10_000
	others  = ""
)

func newLimiter(limit int, now func() time.Time) *limiter {
	return &limiter{limit: limit, now: now, counts: map[string]count{}}
}

// exceeded reports whether a key has had too many events.
func (l *limiter) exceeded(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, c := l.find(key)
	return c.n >= l.limit
}

// add counts an event.
func (l *limiter) add(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key, c := l.find(key)
	c.n++
	l.counts[key] = c
}

// find returns the count of a key in this minute, and the key that it is kept under.
func (l *limiter) find(key string) (string, count) {
	now := l.now()
	recent := func(c count) bool { return now.Sub(c.since).Abs() < time.Minute } // the clock may be set back
	if _, known := l.counts[key]; !known && len(l.counts) >= maxKeys {
		for other, c := range l.counts {
			if !recent(c) {
				delete(l.counts, other)
			}
		}
		if len(l.counts) >= maxKeys {
			key = others
		}
	}
	if c, known := l.counts[key]; known && recent(c) {
		return key, c
	}
	return key, count{since: now}
}

// network is what a client can choose addresses of at will: with IPv6, 64 bits of one.
func network(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Unmap().Is4() {
		return address
	}
	prefix, err := a.WithZone("").Prefix(64)
	if err != nil {
		return address
	}
	return prefix.String()
}
