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
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/compute-agent/compute-agent/internal/version"
)

// Config configures [New].
type Config struct {
	// Endpoint is the URL of the collector. The default path is /v1/traces. "" is no tracing.
	Endpoint string
	// SampleRatio is the fraction of traces to record, from 0 to 1, of those that begin here.
	SampleRatio float64
	// TrustClients accepts the trace context of every client that is authenticated.
	TrustClients bool
	// Service is the service.name attribute of all spans, Host the host.name.
	Service, Host string
	Logger        zerolog.Logger
}

// exportTimeout limits one delivery of spans, flushTimeout the last one in Close.
const (
	exportTimeout = 10 * time.Second
	flushTimeout  = 3 * time.Second
)

// scope is the instrumentation scope of all spans.
const scope = "github.com/compute-agent/compute-agent"

// Tracing begins spans. It is safe for concurrent use. A nil Tracing is off: it begins none.
type Tracing struct {
	provider     *sdk.TracerProvider
	tracer       trace.Tracer
	trustClients bool
}

// New returns tracing to a collector, nil without an endpoint. It does not connect: the collector
// may start later.
func New(ctx context.Context, cfg Config) (*Tracing, error) {
	if cfg.Endpoint == "" {
		return nil, nil // a nil Tracing is off
	}
	endpoint, err := url.Parse(cfg.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, fmt.Errorf("trace collector address %q is not a URL such as \"http://127.0.0.1:4318\"",
			cfg.Endpoint)
	}
	if strings.Trim(endpoint.Path, "/") == "" {
		endpoint.Path = "/v1/traces"
	}
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpointURL(endpoint.String()), otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithProxy(func(*http.Request) (*url.URL, error) { return nil, nil }), // ignore HTTP_PROXY
		// the next batch is sent anyway
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}),
	)
	if err != nil {
		return nil, fmt.Errorf("setting up the trace exporter: %w", err)
	}
	cfg.Logger.Info().Str("service", cfg.Service).Str("endpoint", endpoint.Redacted()).
		Float64("sample_ratio", cfg.SampleRatio).Msg("Sending traces to the collector.")
	provider := sdk.NewTracerProvider(
		sdk.WithBatcher(&quietExporter{SpanExporter: exporter, endpoint: endpoint.String(), log: cfg.Logger},
			sdk.WithExportTimeout(exportTimeout)),
		sdk.WithSampler(sdk.ParentBased(ratio(cfg.SampleRatio))),
		sdk.WithIDGenerator(ids{}),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", cfg.Service), attribute.String("service.version", version.Number()),
			attribute.String("host.name", cfg.Host),
		)),
	)
	return &Tracing{provider: provider, tracer: provider.Tracer(scope), trustClients: cfg.TrustClients}, nil
}

// Close delivers queued spans, for at most three seconds, and stops tracing.
func (t *Tracing) Close(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // losses are logged by the exporter
}
