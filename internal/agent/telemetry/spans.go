// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Spans makes the spans of passes. Without a Tracing there are none.
type Spans struct{ *tracing.Tracing }

var _ resourcetracker.Observer = Spans{}

// Begin implements [resourcetracker.Observer].
func (s Spans) Begin(
	ctx context.Context, step resourcetracker.Step, driver, node string,
) (context.Context, func(error)) {
	ctx, span := s.Root(ctx, string(step), plugins.RequestID(ctx))
	span.Set(tracing.KeyDriver, driver)
	span.Set(tracing.KeyNode, node)
	return ctx, span.EndWith
}

// DriverCall makes the span of a call of a driver's process. It fits [pluginhost.Options].Observe.
func (*Telemetry) DriverCall(
	ctx context.Context, driver, call string,
) (of context.Context, traceparent string, done func(error)) {
	ctx, span := tracing.Child(ctx, call)
	if span.Recorded() {
		span.Set(tracing.KeyDriver, driver)
	}
	return ctx, tracing.Traceparent(ctx), func(err error) {
		if err != nil {
			span.Set(tracing.KeyError, status.Code(err).String())
		}
		span.End(err)
	}
}

// Count implements [resourcetracker.Observer]. Only metrics count events.
func (Spans) Count(resourcetracker.Event, string, string, int) {}
