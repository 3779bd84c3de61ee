// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"time"
)

// DeadlineSkew is how much earlier than this process a server can report that the deadline of a
// call has passed. gRPC's C core, which most languages other than Go use, counts it in whole
// milliseconds, from a time that it takes before it reads the request: usually less than one
// millisecond earlier, and more on a busy machine.
const DeadlineSkew = 50 * time.Millisecond

// Expired reports whether the deadline of a call has passed, given that the server reports so: it
// can be early by [DeadlineSkew], and ctx can notice it a moment later.
func Expired(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	deadline, has := ctx.Deadline()
	return has && time.Until(deadline) <= DeadlineSkew
}
