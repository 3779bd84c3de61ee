// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// TracingConfig configures [NewTracing].
type TracingConfig struct {
	// Endpoint is the URL of the collector. The default path is /v1/traces.
	Endpoint string
	// SampleRatio is the fraction of passes to trace, from 0 to 1. A request outside a pass counts
	// as a pass.
	SampleRatio float64
	// Host is the host.name attribute of all spans.
	Host   string
	Logger zerolog.Logger
}

// exportTimeout limits one delivery of spans, flushTimeout the last one in Close.
const (
	exportTimeout = 10 * time.Second
	flushTimeout  = 3 * time.Second
)

// Tracing creates spans. It is safe for concurrent use.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	headers  propagation.TraceContext
}

var _ resourcetracker.Observer = (*Tracing)(nil)

// NewTracing returns tracing to a collector. It does not connect: the collector may start later.
func NewTracing(ctx context.Context, cfg TracingConfig) (*Tracing, error) {
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("trace collector address %q is not a URL such as \"http://127.0.0.1:4318\"", cfg.Endpoint)
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithProxy(func(*http.Request) (*url.URL, error) { return nil, nil }), // ignore HTTP_PROXY
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),                 // the next pass sends again
	)
	if err != nil {
		return nil, fmt.Errorf("setting up the trace exporter: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&quietExporter{SpanExporter: exporter, endpoint: endpoint.String(), log: cfg.Logger}, sdk.WithExportTimeout(exportTimeout)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.SampleRatio))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "compute-agent"), attribute.String("service.version", version.Number()), attribute.String("host.name", cfg.Host),
		)),
	)
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/compute-agent/compute-agent/internal/agent/telemetry")}, nil
}

// Close delivers queued spans, for at most three seconds, and stops tracing.
func (t *Tracing) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // losses are logged by the exporter
}

// Begin implements [resourcetracker.Observer].
func (t *Tracing) Begin(ctx context.Context, step resourcetracker.Step, driver, node string) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, string(step), trace.WithAttributes(attribute.String("compute_agent.driver", driver), attribute.String("compute_agent.node", node)))
	return ctx, func(err error) {
		setError(span, err)
		span.End()
	}
}

// Count implements [resourcetracker.Observer]. Only metrics count events.
func (*Tracing) Count(resourcetracker.Event, string, string, int) {}

// Request starts the span of a request to Placement and adds traceparent to its headers. It fits
// [placementclient.Config].Observe. Attributes follow OpenTelemetry's conventions for HTTP clients.
func (t *Tracing) Request(ctx context.Context, req *http.Request, route string) (done func(status int, err error)) {
	ctx, span := t.tracer.Start(ctx, req.Method+" "+route, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", req.Method), attribute.String("url.template", route), attribute.String("server.address", req.URL.Hostname()),
		attribute.String("openstack.request_id", req.Header.Get("X-Openstack-Request-Id")),
	))
	t.headers.Inject(ctx, propagation.HeaderCarrier(req.Header))
	return func(status int, err error) {
		if status != 0 {
			span.SetAttributes(attribute.Int("http.response.status_code", status))
		}
		setError(span, err)
		span.End()
	}
}

func setError(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}
