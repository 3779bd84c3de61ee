// SPDX-License-Identifier: Apache-2.0

package backoff

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"
)

// The times to wait after a failure, doubled each time.
const (
	firstDelay = time.Second
	mostDelay  = 30 * time.Second
)

// Delays says what is not to be tried yet: servers, or migrations, by uuid; and Placement, for all
// of them. Its methods may be called from several goroutines. The zero value delays nothing.
type Delays struct {
	mu        sync.Mutex
	servers   map[string]*delay
	placement delay
	// silent is the last server for which Placement failed a write, and how many it had carried out
	// then.
	silent      string
	silentSince int64
	// writes says that Placement is waited for because of writes.
	writes bool
}

type delay struct {
	wait  time.Duration
	until time.Time
	// Of a server that Placement has failed while it answered others: how often; whether that was a
	// query for candidates; and if it was a write, how many writes it had carried out then.
	tries     int
	query     bool
	unwritten *int64
}

// more doubles the wait, with up to a quarter less by chance, so that not all come back at once.
func (d *delay) more(now time.Time) time.Duration {
	d.wait = min(max(2*d.wait, firstDelay), mostDelay)
	wait := d.wait - rand.N(d.wait/4)
	d.until = now.Add(wait)
	return wait
}

// Due says whether a server is to be tried; and, if Placement has failed its last request while it
// answered others, since when.
func (d *Delays) Due(uuid string, needsPlacement bool, now time.Time) (due bool, unanswered time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.servers[uuid]
	switch {
	case needsPlacement && now.Before(d.placement.until):
		return false, unanswered
	case own == nil:
		return true, unanswered
	case own.tries > 0 || own.unwritten != nil:
		unanswered = own.until
	}
	return !now.Before(own.until), unanswered
}

// Failed puts off a server, and returns for how long.
func (d *Delays) Failed(uuid string, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(uuid).more(now)
}

// WasQuery reports whether the request for a server that Placement failed last, while it answered
// others, was a query for candidates.
func (d *Delays) WasQuery(uuid string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.servers[uuid]
	return own != nil && own.query
}

// Unanswered puts off a server alone, whose request Placement failed; it counts if that answers
// others. query says that it was one for candidates. It returns how often it counted, and for how
// long the server is put off.
func (d *Delays) Unanswered(uuid string, counts, query bool, now time.Time) (tries int, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.of(uuid)
	own.query = query
	if counts {
		own.tries++
	}
	return own.tries, own.more(now)
}

// Unwritten notes that Placement, which answers reads and has carried out so many writes, has
// failed one for a server. others says that it has carried out another one since it failed the last
// one for this server; all, that it carries out none: it has failed the last one of another server,
// and carried out none since.
func (d *Delays) Unwritten(uuid string, given int64) (others, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	own := d.of(uuid)
	others = own.unwritten != nil && *own.unwritten != given
	all = !others && d.silent != "" && d.silentSince == given && (d.silent != uuid || d.writes)
	d.silent, d.silentSince = uuid, given
	own.unwritten, d.writes = &given, d.writes || all
	return others, all
}

// of is the delay of a server. The caller has the mutex.
func (d *Delays) of(uuid string) *delay {
	if d.servers == nil {
		d.servers = map[string]*delay{}
	}
	if d.servers[uuid] == nil {
		d.servers[uuid] = &delay{}
	}
	return d.servers[uuid]
}

// Succeeded ends the wait for a server, and for Placement if that was asked; if it carried out no
// writes, it has to have done one since. back says that it was waited for.
func (d *Delays) Succeeded(uuid string, asksPlacement bool, given int64) (back bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.servers, uuid)
	if !asksPlacement || d.writes && d.silentSince == given {
		return false
	}
	back = d.placement.wait > 0
	d.placement, d.writes = delay{}, false
	return back
}

// PlacementFailed puts off all that needs Placement; first says that it was not put off before.
func (d *Delays) PlacementFailed(now time.Time) (wait time.Duration, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first = d.placement.wait == 0
	if !now.Before(d.placement.until) { // several workers find out at once
		d.placement.more(now)
	}
	return d.placement.until.Sub(now), first
}

// Keep forgets all servers but these.
func (d *Delays) Keep(there map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.servers, func(uuid string, _ *delay) bool { return !there[uuid] })
}
