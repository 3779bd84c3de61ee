// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"time"
)

// DeadlineSkew is how much earlier than our own clock a server may say that the deadline of a call has passed. gRPC's C core, which
// most languages other than Go are served by, counts it in whole milliseconds, from a time that it has read before it has read the request:
// usually that makes less than one millisecond, and more on a machine that is busy.
const DeadlineSkew = 50 * time.Millisecond

// Expired reports whether the deadline of a call has passed, in the eyes of a server that says so: it may be early by [DeadlineSkew], and
// our own context may learn of it a moment later.
func Expired(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, has := ctx.Deadline()
	return has && time.Until(deadline) <= DeadlineSkew
}
