// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Arrival is a request that a service has received, and whose sender it knows.
type Arrival struct {
	Header http.Header
	// Began is when it was received.
	Began time.Time
	// RequestID is the id that the service gave it, GlobalRequestID the one that the client gave
	// it; "" for none.
	RequestID, GlobalRequestID string
	// Trusted says that the sender is a service, a host or an administrator: what they have decided
	// about recording is accepted.
	Trusted bool
}

// Server begins the span of a request that a service answers: a child of the client's span if the
// client is trusted, and otherwise a new trace with a link to it. End it with EndAnswer.
func (t *Tracing) Server(ctx context.Context, a Arrival) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(a.Began)}
	client := received(a.Header)
	of := a.RequestID
	if client.IsValid() && (a.Trusted || t.trustClients) {
		ctx = trace.ContextWithRemoteSpanContext(ctx, client)
		of = cmp.Or(a.GlobalRequestID, of)
	} else {
		// a client in the same process leaves its own span in the context
		options = append(options, trace.WithNewRoot())
		if client.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: client}))
		}
	}
	ctx, span := t.tracer.Start(withRequest(ctx, of), "request", options...)
	s := Span{span}
	s.Set(KeyRequestID, a.RequestID)
	s.Set(KeyGlobalRequestID, a.GlobalRequestID)
	return ctx, s
}

// EndAnswer ends the span of a request that was answered. The route is "" for an unknown path, and
// the code is that of an error.
func (s Span) EndAnswer(method, route string, status int, code string, ended time.Time) {
	if !s.Recorded() {
		if s.span != nil {
			s.span.End()
		}
		return
	}
	name := method
	if route != "" {
		name += " " + route
	}
	s.span.SetName(name)
	s.span.SetAttributes(attribute.String("http.request.method", method),
		attribute.Int("http.response.status_code", status))
	s.Set("http.route", route)
	s.Set(KeyError, code)
	if status >= http.StatusInternalServerError {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End(trace.WithTimestamp(ended))
}

// Outgoing begins the span of a request to another service, below that of the context, and adds
// the header traceparent, and the id of the client's request if the request has none. The route is
// the path with what varies replaced. done ends the span; an error fails it. Without a span in the
// context nothing is done.
func Outgoing(ctx context.Context, req *http.Request, route string) (done func(status int, err error)) {
	parent := trace.SpanFromContext(ctx)
	switch {
	case !parent.SpanContext().IsValid():
		return ignore
	case !parent.IsRecording():
		inject(ctx, req) // the other service does not record it either
		return ignore
	}
	return outgoing(ctx, tracerOf(parent), req, route)
}

// Request is Outgoing that begins a trace for a request in a context without a span.
func (t *Tracing) Request(ctx context.Context, req *http.Request, route string) (done func(status int, err error)) {
	if t == nil {
		return ignore
	}
	return outgoing(withRequest(ctx, req.Header.Get(headerRequestID)), t.tracer, req, route)
}

func ignore(int, error) {}

// headerRequestID has the id of a request, as internal/osapi has it.
const headerRequestID = "X-Openstack-Request-Id"

func inject(ctx context.Context, req *http.Request) {
	if id := requestOf(ctx); id != "" && req.Header.Get(headerRequestID) == "" {
		req.Header.Set(headerRequestID, id)
	}
	propagation.TraceContext{}.Inject(ctx, headerCarrier{req.Header})
}

// headerCarrier sets the one header that is sent.
type headerCarrier struct{ header http.Header }

func (c headerCarrier) Get(key string) string { return c.header.Get(key) }
func (c headerCarrier) Keys() []string        { return nil }
func (c headerCarrier) Set(key, value string) {
	if key == keyTraceparent {
		c.header.Set(key, value)
	}
}

func outgoing(
	ctx context.Context, tracer trace.Tracer, req *http.Request, route string,
) (done func(status int, err error)) {
	ctx, span := tracer.Start(ctx, req.Method+" "+route, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", req.Method), attribute.String("url.template", route),
		attribute.String("server.address", req.URL.Hostname()),
	))
	inject(ctx, req)
	Span{span}.Set(KeyRequestID, req.Header.Get(headerRequestID))
	return func(status int, err error) {
		if status != 0 {
			span.SetAttributes(attribute.Int("http.response.status_code", status))
		}
		if err != nil {
			kind := "no answer"
			if status != 0 {
				kind = strconv.Itoa(status)
			}
			Span{span}.Set(KeyError, kind)
		}
		Span{span}.End(err)
	}
}
