// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/ledger"
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
	// time. Changes of consumers that hold something elsewhere, and of what they hold of sharing
	// providers, count as well: generations that others rely on grow with them.
	maxHostHeals = 5000
	healsEvery   = time.Second
	// A host writes as often at once, refused writes included, and then once in this time. A body
	// counts as one more write for each bytesPerWrite. An agent that starts with a tree of
	// maxHostTree providers writes each of them three to five times.
	maxHostWrites = 10_000
	writesEvery   = 200 * time.Millisecond
	bytesPerWrite = 2048
	// What one provider of a host has, and all of a tree.
	maxHostInventories, maxTreeInventories = 200, 10_000
	maxHostTraits, maxTreeTraits           = 1000, 20_000
	maxHostAggregates                      = 100
	// maxHostParts is in how many parts, by provider and class, a consumer holds what it has of a
	// host.
	maxHostParts = 500
	// maxHostKinds is how many classes and kinds of traits a host has reported.
	maxHostKinds = 2000
)

func perHour(every time.Duration) int { return int(time.Hour / every) }

// bounds has the allowances of hosts for new names, for healing and for writes.
type bounds struct {
	names, heals, writes allowances
	logged               *osapi.LogLimiter
}

func newBounds(now func() time.Time) bounds {
	bucket := func(limit int, every time.Duration) allowances {
		return allowances{now: now, limit: limit, every: every, used: map[string]*allowance{}}
	}
	return bounds{
		names: bucket(maxHostNames, namesEvery), heals: bucket(maxHostHeals, healsEvery),
		writes: bucket(maxHostWrites, writesEvery),
		logged: osapi.NewLogLimiter(time.Minute, now),
	}
}

// SpendWrite takes a write of the host from what it has left, before anything is done for it.
// Without any left the answer is 429, with the time to wait.
func (r *Request) SpendWrite() error {
	p := r.policy
	wait := p.bounds.writes.spend(r.id.Name, min(1+r.x.Received()/bytesPerWrite, maxHostWrites))
	if wait <= 0 {
		return nil
	}
	if p.deps.Limited != nil {
		p.deps.Limited()
	}
	if p.bounds.logged.Allow(r.id.Name) {
		p.deps.Logger.Warn().Str("host", r.id.Name).Str("user", r.x.Caller.User).Int("per_hour", perHour(writesEvery)).
			Msg("A host writes too much, so some writes are answered with 429. Find out why: does more than one " +
				"agent use its name, is its credential stolen? Logged at most once a minute per host.")
	}
	seconds := int64((wait + time.Second - 1) / time.Second)
	r.x.W.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	return osapi.Errorf(http.StatusTooManyRequests,
		"The host %s has written too much: %d writes at once, and %d an hour, are taken; %d bytes of a body count "+
			"as one. Wait %d s.",
		shortened(r.id.Name), maxHostWrites, perHour(writesEvery), bytesPerWrite, seconds)
}

// treeSize is the number of inventories and traits of all providers of a tree.
type treeSize struct{ inventories, traits int }

// size is the size of a tree after the transaction. Cost: its providers, once.
func (w *write) size(root string) treeSize {
	size, known := w.sizes[root]
	if !known {
		for _, p := range w.after.Tree(root) {
			size.inventories += len(p.Inventories)
			size.traits += len(p.Traits)
		}
		w.sizes[root] = size
	}
	return size
}

// fits refuses a provider that has more than before and exceeds a bound, or whose tree does.
func (w *write) fits(was, is *ledger.Provider) error {
	if was == nil || was.Root != is.Root {
		was = new(ledger.Provider) // all of it is new to the tree
	}
	inventories, traits := len(is.Inventories) > len(was.Inventories), len(is.Traits) > len(was.Traits)
	switch {
	case inventories && len(is.Inventories) > maxHostInventories:
		return w.refuse(ActionTree, "resource provider %s would have more than %d inventories",
			shortened(is.UUID), maxHostInventories)
	case traits && len(is.Traits) > maxHostTraits:
		return w.refuse(ActionTree, "resource provider %s would have more than %d traits",
			shortened(is.UUID), maxHostTraits)
	case len(is.Aggregates) > max(maxHostAggregates, len(was.Aggregates)):
		return w.refuse(ActionTree, "resource provider %s would be in more than %d aggregates",
			shortened(is.UUID), maxHostAggregates)
	case inventories && w.size(is.Root).inventories > maxTreeInventories:
		return w.refuse(ActionTree, "its tree would have more than %d inventories", maxTreeInventories)
	case traits && w.size(is.Root).traits > maxTreeTraits:
		return w.refuse(ActionTree, "its tree would have more than %d traits", maxTreeTraits)
	}
	return nil
}

// allowances are token buckets, one for each host that has taken of its own. They are safe for
// concurrent use.
type allowances struct {
	now   func() time.Time
	limit int
	every time.Duration

	mu    sync.Mutex
	used  map[string]*allowance
	sweep sweeper // of those of which nothing is taken
}

// allowance is one bucket: what was taken and has not come back.
type allowance struct {
	taken int
	at    time.Time
}

// spend uses some of a host's allowance. If there is not enough it takes nothing, and says how long
// to wait. Cost: one look-up, and a look at all buckets each time that their number has doubled, to
// drop the full ones.
func (a *allowances) spend(host string, n int) (wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	b := a.used[host]
	if b == nil {
		sweep(&a.sweep, a.used, func(other *allowance) bool {
			a.refill(other, now)
			return other.taken == 0
		})
		b = &allowance{at: now}
	}
	a.refill(b, now)
	if over := b.taken + n - a.limit; over > 0 {
		return time.Duration(over)*a.every - now.Sub(b.at)
	}
	b.taken += n
	a.used[host] = b
	return 0
}

// sweeper is at how many entries of a map those that have ended are dropped; 0: at minSweep.
type sweeper int

// minSweep is how many entries are kept without a look for some that have ended.
const minSweep = 1000

// sweep drops the entries that have ended, each time that their number has doubled since the last
// look at all. Cost: constant for each entry that was added.
func sweep[V any](s *sweeper, entries map[string]V, ended func(V) bool) {
	if len(entries) < max(int(*s), minSweep) {
		return
	}
	maps.DeleteFunc(entries, func(_ string, one V) bool { return ended(one) })
	*s = sweeper(2 * len(entries))
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
