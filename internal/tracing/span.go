// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Keys of attributes. Those of HTTP are OpenTelemetry's conventions.
const (
	KeyRequestID       = "openstack.request_id"        // as request_id in log lines
	KeyGlobalRequestID = "openstack.global_request_id" // as global_request_id in log lines
	KeyProjectID       = "openstack.project_id"
	KeyServer          = "openstack.server_id"
	KeyHost            = "compute_agent.host"
	KeyNode            = "compute_agent.node"
	KeyDriver          = "compute_agent.driver"
	KeyError           = "error.type" // a word out of a small set
)

// Span is a span under way. The methods of the zero Span do nothing.
type Span struct{ span trace.Span }

// Recorded reports whether the span will be delivered: only then is it worth to find attributes.
func (s Span) Recorded() bool { return s.span != nil && s.span.IsRecording() }

// Set sets an attribute; an empty value sets none.
func (s Span) Set(key, value string) {
	if s.span != nil && value != "" {
		s.span.SetAttributes(attribute.String(key, value))
	}
}

// End ends the span, as failed with an error. The text of the error is not recorded.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	if err != nil {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// EndWith is End with the text of the error, for work that no request of a user causes.
func (s Span) EndWith(err error) {
	if s.span != nil && err != nil {
		s.span.SetStatus(codes.Error, err.Error())
	}
	s.End(nil)
}

// Child begins a span below that of the context, if that has one which is recorded. Otherwise it
// returns the context as it is.
func Child(ctx context.Context, name string) (context.Context, Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := tracerOf(parent).Start(ctx, name)
	return ctx, named(ctx, span)
}

// Do is what do does, in a Child.
func Do(ctx context.Context, name string, do func(context.Context) error) error {
	ctx, span := Child(ctx, name)
	err := do(ctx)
	span.End(err)
	return err
}

// named is a span with the id of the request that it is for.
func named(ctx context.Context, span trace.Span) Span {
	s := Span{span}
	s.Set(KeyRequestID, requestOf(ctx))
	return s
}

// requestOf is the id of the request that a context is for; "" for none.
func requestOf(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

func withRequest(ctx context.Context, id string) context.Context {
	if id == "" || requestOf(ctx) == id {
		return ctx
	}
	return context.WithValue(ctx, requestKey{}, id)
}

func tracerOf(parent trace.Span) trace.Tracer { return parent.TracerProvider().Tracer(scope) }

// RecordSpan records a span below that of the context for what has ended.
func RecordSpan(ctx context.Context, name string, began, ended time.Time, err error) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return
	}
	_, span := tracerOf(parent).Start(ctx, name, trace.WithTimestamp(began))
	named(ctx, span)
	if err != nil {
		span.SetStatus(codes.Error, "")
	}
	span.End(trace.WithTimestamp(ended))
}

// Within reports whether the context is within a trace, recorded or not.
func Within(ctx context.Context) bool { return trace.SpanContextFromContext(ctx).IsValid() }

// Root begins a span that is the root of a trace, for work that no request of a client causes; it
// is a child if the context has a span. The trace has the id of the request, if there is one.
func (t *Tracing) Root(ctx context.Context, name, requestID string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := t.tracer.Start(withRequest(ctx, requestID), name)
	return ctx, named(ctx, span)
}

// Continue begins a span of work that was stored together with the trace context of the request
// which asked for it. Without a trace context, or if ours is off, it returns ctx as it is.
func (t *Tracing) Continue(ctx context.Context, name, traceparent, requestID string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	parent := parse(traceparent)
	if !parent.IsValid() {
		return ctx, Span{}
	}
	ctx = trace.ContextWithRemoteSpanContext(withRequest(ctx, requestID), parent)
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindConsumer))
	return ctx, named(ctx, span)
}

// Traceparent is the W3C trace context of a context, to be stored with work or sent; "" for none.
func Traceparent(ctx context.Context) string {
	if !Within(ctx) {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[keyTraceparent]
}

// HeaderTraceparent is the header of W3C's trace context. The state that vendors add (tracestate)
// is neither read nor sent.
const HeaderTraceparent = "Traceparent"

// keyTraceparent is the header as propagation names it.
const keyTraceparent = "traceparent"

// maxTraceparent bounds the header that is read, in bytes: version 00 has 55, later ones may have
// more.
const maxTraceparent = 128

// parse reads a trace context; an invalid one is the zero SpanContext.
func parse(traceparent string) trace.SpanContext {
	if len(traceparent) == 0 || len(traceparent) > maxTraceparent {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{keyTraceparent: traceparent}))
}

// received is the trace context of a request. Several are none.
func received(header http.Header) trace.SpanContext {
	if values := header[HeaderTraceparent]; len(values) == 1 {
		return parse(strings.TrimSpace(values[0]))
	}
	return trace.SpanContext{}
}
