// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"regexp"
	"time"
)

// RequestIDKey is the key of a call's metadata with the id of the request of a client that the call
// serves, such as "req-8b7f…". Calls that no request caused do not have it.
const RequestIDKey = "x-openstack-request-id"

// TraceparentKey is the key of a call's metadata with the W3C trace context that the call is made
// in. Calls outside of traces do not have it.
const TraceparentKey = "traceparent"

// RequestIDField is the key of log lines with that id.
const RequestIDField = "request_id"

// requestIDForm is what an id is: it goes into log lines.
var requestIDForm = regexp.MustCompile(`^req-[0-9a-f-]{1,60}$`)

// IsRequestID reports whether a text is the id of a request.
func IsRequestID(text string) bool { return requestIDForm.MatchString(text) }

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
