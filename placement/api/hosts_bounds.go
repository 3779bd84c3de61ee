// SPDX-License-Identifier: Apache-2.0

package api

import (
	"sync"
	"time"
)

// Bounds for a host, so that one that is not what it was cannot fill the database or slow the
// writes of all others. An agent with a thousand guests and devices stays far below.
const (
	// maxHostTree bounds the providers of a tree, and maxHostRoots its trees.
	maxHostTree  = 2000
	maxHostRoots = 100
	// A host creates as many traits and classes at once, and then one in this time.
	maxHostNames = 1000
	namesEvery   = time.Minute
	// A host gives allocations to as many consumers without any at once, and then to one in this
	// time.
	maxHostHeals = 5000
	healsEvery   = time.Second
)

func perHour(every time.Duration) int { return int(time.Hour / every) }

// hostBounds are what the hosts have left.
type hostBounds struct{ names, heals allowances }

func newHostBounds(now func() time.Time) hostBounds {
	return hostBounds{
		names: allowances{now: now, most: maxHostNames, every: namesEvery, used: map[string]*allowance{}},
		heals: allowances{now: now, most: maxHostHeals, every: healsEvery, used: map[string]*allowance{}},
	}
}

// allowances are token buckets, one for each host that has taken of its own. They are safe for
// concurrent use.
type allowances struct {
	now   func() time.Time
	most  int
	every time.Duration

	mu   sync.Mutex
	used map[string]*allowance
}

// allowance is one bucket: what was taken and has not come back.
type allowance struct {
	taken int
	at    time.Time
}

// take takes some of a host's allowance, and reports whether there was enough. Cost: one look-up,
// and a look at all buckets when there are many, to drop the full ones.
func (a *allowances) take(host string, n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	b := a.used[host]
	if b == nil {
		const many = 1000
		if len(a.used) >= many && len(a.used)%many == 0 {
			for name, other := range a.used {
				if a.refill(other, now); other.taken == 0 {
					delete(a.used, name)
				}
			}
		}
		b = &allowance{at: now}
	}
	a.refill(b, now)
	if b.taken+n > a.most {
		return false
	}
	b.taken += n
	a.used[host] = b
	return true
}

// refill gives back what has come back since the last look.
func (a *allowances) refill(b *allowance, now time.Time) {
	back := int64(now.Sub(b.at) / a.every)
	if back <= 0 {
		if now.Before(b.at) { // the clock was set back
			b.at = now
		}
		return
	}
	b.at = b.at.Add(time.Duration(back) * a.every)
	if b.taken -= int(min(back, int64(b.taken))); b.taken == 0 {
		b.at = now
	}
}
