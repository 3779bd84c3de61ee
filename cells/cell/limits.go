// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// Bounds of what one host sends.
const (
	// maxHostBody bounds the body of a request of a host, in bytes.
	maxHostBody = 1 << 20
	// hostRate is how many requests a host may send in a second, hostBurst how many at once. An
	// agent sends a report every few seconds, some for each server that it changes, and opens
	// streams.
	hostRate, hostBurst = 20.0, 200.0
	// maxBuckets bounds the hosts that are counted.
	maxBuckets = 20_000
)

// hostLimits is a token bucket for each host.
type hostLimits struct {
	now func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
}

// bucket has what is left to take of a host's tokens at a time.
type bucket struct {
	left float64
	at   time.Time
}

func newHostLimits(now func() time.Time) *hostLimits {
	return &hostLimits{now: now, buckets: map[string]bucket{}}
}

// takeToken takes one of a host. Without one it says how long to wait for the next.
func (l *hostLimits) takeToken(host string) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b, known := l.buckets[host]
	if !known {
		if len(l.buckets) >= maxBuckets {
			l.sweep(now)
		}
		b.left = hostBurst
	} else if passed := now.Sub(b.at).Seconds(); passed > 0 { // a clock that was set back gives nothing
		b.left = min(b.left+passed*hostRate, hostBurst)
	}
	b.at = now
	if b.left < 1 {
		wait = time.Duration((1 - b.left) / hostRate * float64(time.Second))
	} else {
		b.left--
	}
	l.buckets[host] = b
	return wait
}

// sweep forgets hosts whose buckets are full again, and all if that helps nothing.
func (l *hostLimits) sweep(now time.Time) {
	for host, b := range l.buckets {
		if b.left+now.Sub(b.at).Seconds()*hostRate >= hostBurst {
			delete(l.buckets, host)
		}
	}
	if len(l.buckets) >= maxBuckets {
		clear(l.buckets)
	}
}

// limit refuses what is too much of one host.
func (x *exchange) limit() error {
	if x.R.ContentLength > maxHostBody {
		return &http.MaxBytesError{Limit: maxHostBody}
	}
	if x.R.Body != nil && x.R.Body != http.NoBody {
		x.R.Body = http.MaxBytesReader(x.W, x.R.Body, maxHostBody)
	}
	host := x.R.PathValue("host")
	wait := x.cell.limits.takeToken(host)
	if wait <= 0 {
		return nil
	}
	if o := x.cell.config.Observer; o != nil {
		o.Limited()
	}
	if x.cell.logLimiter.Allow("limit " + host) {
		x.cell.config.Logger.Warn().Str("host", host).Float64("per_second", hostRate).
			Msg("A host sends too many requests, so some are answered with 429. Does more than one agent use its " +
				"name? Logged at most once a minute per host.")
	}
	seconds := int64(wait/time.Second) + 1
	x.W.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	return &cellwire.Error{Status: http.StatusTooManyRequests, Code: cellwire.CodeTooMany, Message: fmt.Sprintf(
		"The host has sent too many requests: %d at once, and %d in a second, are taken. Wait %d s.",
		int(hostBurst), int(hostRate), seconds)}
}

// loggedProblems are the problems of nodes that were logged, by host.
type loggedProblems struct {
	mu    sync.Mutex
	hosts map[string]map[cellwire.NodeProblem]bool
}

// maxProblemHosts bounds the hosts whose problems are remembered.
const maxProblemHosts = 10_000

// update records the problems of a host, and returns those that it did not have before.
func (l *loggedProblems) update(host string, problems []cellwire.NodeProblem) (added []cellwire.NodeProblem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.hosts[host]
	if len(problems) == 0 {
		delete(l.hosts, host)
		return nil
	}
	if l.hosts == nil || len(l.hosts) >= maxProblemHosts {
		l.hosts = map[string]map[cellwire.NodeProblem]bool{}
	}
	now := map[cellwire.NodeProblem]bool{}
	for _, p := range problems {
		if now[p] = true; !was[p] {
			added = append(added, p)
		}
	}
	l.hosts[host] = now
	return added
}

// maxLoggedProblems bounds the lines for one report.
const maxLoggedProblems = 20

// recordProblems counts the nodes of a report that were refused, and logs each problem once.
func (c *Cell) recordProblems(host string, problems []cellwire.NodeProblem) {
	if o := c.config.Observer; o != nil {
		for _, p := range problems {
			if p.Code.Refuses() {
				o.NodeRefused(p.Code)
			}
		}
	}
	kept := problems
	if len(kept) > celldb.DefaultMaxNodes*4 { // what is invented differs each time
		kept = kept[:celldb.DefaultMaxNodes*4]
	}
	for i, p := range c.problems.update(host, kept) {
		if i == maxLoggedProblems || !c.logLimiter.Allow("node "+host+" "+p.UUID+" "+string(p.Code)+" "+p.Host) {
			break
		}
		c.config.Logger.Warn().Str("host", host).
			Str("node", p.UUID).Str("problem", string(p.Code)).Str("why", p.Message).
			Msg("A node of a host gets no new servers there. See `compute-agent cells manage list-hosts` and " +
				"docs/identity.md.")
	}
}
