// SPDX-License-Identifier: Apache-2.0

package tracing

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

// Config says where traces go.
type Config struct {
	// Endpoint is the address of the collector; without a path, OTLP's own (/v1/traces) is meant.
	Endpoint string
	// SampleRatio is which part of the passes is traced, from 0 to 1. A request outside of any pass counts like a pass.
	SampleRatio float64
	// Host is the name of this host, for the resource that spans belong to.
	Host   string
	Logger zerolog.Logger
}

// exportTimeout bounds one try to deliver spans, flushTimeout what is left at the end.
const (
	exportTimeout = 10 * time.Second
	flushTimeout  = 3 * time.Second
)

// Tracing makes spans. It is safe for concurrent use.
type Tracing struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	headers  propagation.TraceContext
}

var _ resourcetracker.Observer = (*Tracing)(nil)

// New returns tracing to a collector. It makes no connection: the collector may come up later, or not at all.
func New(ctx context.Context, cfg Config) (*Tracing, error) {
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("the address of the collector of traces, %q, is no URL such as \"http://127.0.0.1:4318\"", cfg.Endpoint)
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithProxy(func(*http.Request) (*url.URL, error) { return nil, nil }), // a stray variable must not lead it astray
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),                 // the spans of the next pass come soon enough
	)
	if err != nil {
		return nil, fmt.Errorf("the exporter of traces cannot be set up: %w", err)
	}
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&patient{SpanExporter: exporter, endpoint: endpoint.String(), log: cfg.Logger}, sdk.WithExportTimeout(exportTimeout)),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.SampleRatio))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "compute-agent"), attribute.String("service.version", version.Number()), attribute.String("host.name", cfg.Host),
		)),
	)
	return &Tracing{provider: provider, tracer: provider.Tracer("github.com/compute-agent/compute-agent/internal/agent/tracing")}, nil
}

// Close delivers what waits, for three seconds at most, and ends everything.
func (t *Tracing) Close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // what is lost has been logged, and the agent ends either way
}

// Begin implements [resourcetracker.Observer].
func (t *Tracing) Begin(ctx context.Context, step resourcetracker.Step, driver, node string) (context.Context, func(error)) {
	ctx, span := t.tracer.Start(ctx, string(step), trace.WithAttributes(attribute.String("compute_agent.driver", driver), attribute.String("compute_agent.node", node)))
	return ctx, func(err error) {
		fail(span, err)
		span.End()
	}
}

// Count implements [resourcetracker.Observer]. Events are told by metrics.
func (*Tracing) Count(resourcetracker.Event, string, string, int) {}

// Request begins the span of a request to Placement, and says in its headers whose child it is. It fits into
// [placementclient.Config].Observe. Attributes are those of OpenTelemetry's conventions for HTTP clients.
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
		fail(span, err)
		span.End()
	}
}

func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}
