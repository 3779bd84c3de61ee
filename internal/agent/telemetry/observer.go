// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"net/http"

	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// Telemetry is the metrics of one agent, and its traces once Trace was called.
type Telemetry struct {
	*Metrics
	tracing *tracing.Tracing // nil: off
}

// Trace adds traces. It is called before anything is observed.
func (t *Telemetry) Trace(spans *tracing.Tracing) { t.tracing = spans }

// Spans is what makes spans; nil: it is off.
func (t *Telemetry) Spans() *tracing.Tracing { return t.tracing }

// Observer returns the observer of trackers: metrics, then more, then traces.
func (t *Telemetry) Observer(more ...resourcetracker.Observer) resourcetracker.Observer {
	all := append(observers{t.Metrics}, more...)
	if t.tracing != nil {
		all = append(all, Spans{t.tracing})
	}
	return all
}

// Request observes a request to Placement. It fits [placementclient.Config].Observe.
func (t *Telemetry) Request(ctx context.Context, req *http.Request, route string) (done func(status int, err error)) {
	counted := t.Metrics.Request(ctx, req, route)
	if t.tracing == nil {
		return counted
	}
	traced := t.tracing.Request(ctx, req, route)
	return func(status int, err error) {
		counted(status, err)
		traced(status, err)
	}
}

// observers calls several observers in order. Steps of one get the contexts of those before it.
type observers []resourcetracker.Observer

// Begin implements [resourcetracker.Observer].
func (ob observers) Begin(
	ctx context.Context, step resourcetracker.Step, driver, node string,
) (context.Context, func(error)) {
	ends := make([]func(error), 0, len(ob))
	for _, o := range ob {
		var end func(error)
		ctx, end = o.Begin(ctx, step, driver, node)
		ends = append(ends, end)
	}
	return ctx, func(err error) {
		for _, end := range ends {
			end(err)
		}
	}
}

// Count implements [resourcetracker.Observer].
func (ob observers) Count(event resourcetracker.Event, driver, node string, n int) {
	for _, o := range ob {
		o.Count(event, driver, node, n)
	}
}

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
