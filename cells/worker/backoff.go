// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"math/rand/v2"
	"time"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
)

// backoff is how long to wait after failures in a row. The zero value has seen none.
type backoff struct{ failures int }

// next counts a failure, and returns a time that doubles from firstRetry to most, less up to a half
// of it by chance: a thousand agents come back one after the other.
func (b *backoff) next(most time.Duration) time.Duration {
	b.failures++
	return jittered(wait.Backoff{Min: firstRetry, Max: most}.Longest(b.failures))
}

func (b *backoff) reset() { b.failures = 0 }

// jittered is d, less up to a half by chance.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/2+1) }
