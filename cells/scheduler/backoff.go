// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// The times to wait after a failure, doubled each time.
const (
	firstDelay = time.Second
	maxDelay   = 30 * time.Second
)

// backoff puts off what failed: the builds of servers, or migrations, by uuid, each for itself, and
// Placement for all of them. It has no clock of its own. Its methods may be called from several
// goroutines. The zero value delays nothing.
//
//	due ── failure ─────────────────▶ put off ───────────┐
//	    ── unanswered, unwritten ───▶ unanswered ────────┤ the wait ends
//	    ── Placement fails ─────────▶ Placement is out ──┴──────────────▶ due
//	    ── success ─────────────────▶ forgotten
//
// A server is unanswered if Placement fails its request while it answers others. Then only this
// server is put off, and its failures are counted, because Placement may never answer the request.
// If Placement fails writes for several servers and carries out none, Placement itself is put off.
type backoff struct {
	mu        sync.Mutex
	servers   map[string]*delay
	placement delay
	// unwritten is the last server for which Placement failed a write, and writesBefore how many
	// writes it had carried out at that time.
	unwritten    string
	writesBefore int64
	// writes says that Placement is waited for because of writes.
	writes bool
}

type delay struct {
	wait  time.Duration
	until time.Time
	// For an unanswered server: how often its request failed; whether the last one was a query for
	// candidates; and if it was a write, how many writes Placement had carried out at that time.
	tries     int
	query     bool
	unwritten *int64
}

// double doubles the wait, with up to a quarter less by chance, so that not all come back at once.
func (d *delay) double(now time.Time) time.Duration {
	d.wait = min(max(2*d.wait, firstDelay), maxDelay)
	wait := d.wait - rand.N(d.wait/4)
	d.until = now.Add(wait)
	return wait
}

// due reports whether a server is to be tried now. For an unanswered server, unanswered is when its
// wait ends.
func (b *backoff) due(uuid string, needsPlacement bool, now time.Time) (due bool, unanswered time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.servers[uuid]
	switch {
	case needsPlacement && now.Before(b.placement.until):
		return false, unanswered
	case own == nil:
		return true, unanswered
	case own.tries > 0 || own.unwritten != nil:
		unanswered = own.until
	}
	return !now.Before(own.until), unanswered
}

// recordFailure puts off a server, and returns for how long.
func (b *backoff) recordFailure(uuid string, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.delayOf(uuid).double(now)
}

// wasQuery reports whether the request for a server that Placement failed last, while it answered
// others, was a query for candidates.
func (b *backoff) wasQuery(uuid string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.servers[uuid]
	return own != nil && own.query
}

// recordUnanswered puts off one server, whose request Placement failed. counts says that Placement
// answers others, so that the failure is counted; query, that it was a query for candidates. It
// returns the number of counted failures, and how long the server is put off.
func (b *backoff) recordUnanswered(uuid string, counts, query bool, now time.Time) (tries int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.delayOf(uuid)
	own.query = query
	if counts {
		own.tries++
	}
	return own.tries, own.double(now)
}

// recordUnwritten records that Placement, which answers reads, has failed a write for a server.
// given is how many writes it has carried out. others reports that it has carried out a write since
// it last failed one for this server. all reports that it carries out none: it has failed the
// writes of two servers in succession, and carried out none between them.
func (b *backoff) recordUnwritten(uuid string, given int64) (others, all bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	own := b.delayOf(uuid)
	others = own.unwritten != nil && *own.unwritten != given
	all = !others && b.unwritten != "" && b.writesBefore == given && (b.unwritten != uuid || b.writes)
	b.unwritten, b.writesBefore = uuid, given
	own.unwritten, b.writes = &given, b.writes || all
	return others, all
}

// delayOf is the delay of a server. The caller has the mutex.
func (b *backoff) delayOf(uuid string) *delay {
	if b.servers == nil {
		b.servers = map[string]*delay{}
	}
	if b.servers[uuid] == nil {
		b.servers[uuid] = &delay{}
	}
	return b.servers[uuid]
}

// recordSuccess ends the wait for a server, and the wait for Placement if that was asked. If
// Placement is waited for because of writes, it must have carried out one since. back reports that
// the wait for Placement has ended.
func (b *backoff) recordSuccess(uuid string, asksPlacement bool, given int64) (back bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.servers, uuid)
	if !asksPlacement || b.writes && b.writesBefore == given {
		return false
	}
	back = b.placement.wait > 0
	b.placement, b.writes = delay{}, false
	return back
}

// recordPlacementFailure puts off everything that needs Placement. first reports that it was not
// put off before.
func (b *backoff) recordPlacementFailure(now time.Time) (wait time.Duration, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first = b.placement.wait == 0
	if !now.Before(b.placement.until) { // several workers find out at once
		b.placement.double(now)
	}
	return b.placement.until.Sub(now), first
}

// retain forgets all servers but these.
func (b *backoff) retain(there map[string]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.servers, func(uuid string, _ *delay) bool { return !there[uuid] })
}
