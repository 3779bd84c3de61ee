// SPDX-License-Identifier: Apache-2.0

// Package wait waits for a duration or the end of a context, whichever comes first, and says how
// long to wait after failures.
package wait

import (
	"context"
	"time"
)

// For waits for d, and reports whether ctx goes on: false if it ended before, or at the same
// moment.
func For(ctx context.Context, d time.Duration) bool { return Until(ctx, d, nil) }

// Until waits for d, or until there is something in wake; nil is For. It reports whether ctx goes
// on.
func Until(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return ctx.Err() == nil
}

// Backoff is how long to wait after failures in a row: Min after the first one, doubled from
// failure to failure up to Max. Min is above 0.
type Backoff struct {
	Min, Max time.Duration
	// Jitter is the share of the time that is left to chance, so that many do not come back at
	// once: 0 for none, 1 for all of it.
	Jitter float64
}

// Longest is the time to wait after so many failures in a row, from 1 on, without jitter.
func (b Backoff) Longest(failures int) time.Duration {
	d := b.Min
	for ; failures > 1; failures-- {
		if d > b.Max/2 {
			return b.Max
		}
		d *= 2
	}
	return min(d, b.Max)
}

// Delay is Longest less the part that chance takes off. The jitter comes from a random number,
// 0 <= random < 1; 0 is the shortest time.
func (b Backoff) Delay(failures int, random float64) time.Duration {
	d := float64(b.Longest(failures))
	return time.Duration(d * (1 - b.Jitter + b.Jitter*random))
}
