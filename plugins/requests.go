// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

type requestKey struct{}

// WithRequestID returns a context for calls that serve the request of a client, by its id; "":
// none. It is for the agent, and for tests of drivers.
func WithRequestID(ctx context.Context, id string) context.Context {
	if !protocol.IsRequestID(id) {
		return ctx
	}
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestID returns the id of the request of a client that a call serves, such as
// "req-8b7fa3c2-…", which `openstack` prints and all services log; "" if no request caused the
// call. The lines of [Logger] have it as request_id. A driver that asks another service sends it
// along, in X-OpenStack-Request-ID.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

// Traceparent returns the W3C trace context of a call, with which the spans of a driver, or of
// another service that it asks, are part of the trace; "" outside of traces.
func Traceparent(ctx context.Context) string {
	if contexts := metadata.ValueFromIncomingContext(ctx, protocol.TraceparentKey); len(contexts) == 1 {
		return contexts[0]
	}
	return ""
}

// withReceivedRequest is the context of a call that the agent made, with the id of its request.
func withReceivedRequest(ctx context.Context) context.Context {
	if ids := metadata.ValueFromIncomingContext(ctx, protocol.RequestIDKey); len(ids) == 1 {
		return WithRequestID(ctx, ids[0])
	}
	return ctx
}
