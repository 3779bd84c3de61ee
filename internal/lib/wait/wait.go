// SPDX-License-Identifier: Apache-2.0

// Package wait waits for a duration or the end of a context, whichever comes first.
package wait

import (
	"context"
	"time"
)

// For waits for d, and reports whether it waited to the end: false if ctx ended before.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
