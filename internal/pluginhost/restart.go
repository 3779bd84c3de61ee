// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
)

// callRecords counts consecutive calls to a process without a response, of all calls together, and
// for each call its consecutive misses and faults. Without the latter, a driver that lists its
// nodes and then hangs in the tree of one of them would never reach the limit.
type callRecords struct {
	misses int // in a row, of all calls
	byCall map[string]*callRecord
}

// callRecord counts the failures of one call since it was last answered without a fault.
type callRecord struct {
	misses, faults int
	first          string    // fault; later ones can differ in an address or a number
	last           time.Time // of the faults
}

// recordMissed records that a call got no response, and returns the number of consecutive ones.
func (c *callRecords) recordMissed(call string) int {
	r := c.record(call)
	c.misses++
	r.misses++
	return max(c.misses, r.misses)
}

// recordAnswer records a response, which can be an error of the driver.
func (c *callRecords) recordAnswer(call string, err error, now time.Time) {
	c.misses = 0
	if !errors.As(err, new(*driverclient.FaultError)) {
		delete(c.byCall, call)
		return
	}
	r := c.record(call)
	r.misses, r.last = 0, now
	if r.faults++; r.faults == 1 {
		r.first = err.Error()
	}
}

func (c *callRecords) record(call string) *callRecord {
	if c.byCall == nil {
		c.byCall = map[string]*callRecord{}
	}
	if c.byCall[call] == nil {
		c.byCall[call] = &callRecord{}
	}
	return c.byCall[call]
}

// problem returns an error for a call with as many consecutive faults as policy allows misses. It
// drops calls that were not made for long, because their node may be removed.
func (c *callRecords) problem(policy Restart, now time.Time) error {
	for _, call := range slices.Sorted(maps.Keys(c.byCall)) {
		switch r := c.byCall[call]; {
		case r.faults > 0 && now.Sub(r.last) >= policy.ResetAfter:
			delete(c.byCall, call)
		case r.faults >= policy.Misses:
			return fmt.Errorf("%s always ends with a fault of the driver; the first: %s", call, r.first)
		}
	}
	return nil
}

// breaker decides how long to wait after a failure. The caller passes in the time.
type breaker struct {
	policy Restart
	jitter func(time.Duration) time.Duration // uniform in [0, d)

	attempt     int         // consecutive failures, the exponent of the delay
	failures    []time.Time // those within the window, oldest first
	quarantined bool        // there was a quarantine, and no attempt has succeeded since
}

// failed records a failure and returns the delay until the next attempt, and whether it is a
// quarantine.
func (b *breaker) failed(now time.Time) (time.Duration, bool) {
	for len(b.failures) > 0 && now.Sub(b.failures[0]) >= b.policy.FailureWindow {
		b.failures = b.failures[1:]
	}
	b.failures = append(b.failures, now)
	if b.quarantined || len(b.failures) >= b.policy.FailureLimit {
		b.failures, b.quarantined = nil, true
		return b.policy.Quarantine, true
	}
	b.attempt++
	return b.jitter(wait.Backoff{Min: b.policy.BackoffBase, Max: b.policy.BackoffMax}.Longest(b.attempt)), false
}

// noteUptime records how long the plugin has been up without a failure.
func (b *breaker) noteUptime(up time.Duration) {
	if up >= b.policy.ResetAfter {
		b.reset()
	}
}

// reset forgets all failures.
func (b *breaker) reset() { b.attempt, b.failures, b.quarantined = 0, nil, false }
