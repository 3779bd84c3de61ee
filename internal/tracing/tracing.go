// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
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

// quietExporter logs the first failure of a series and the end of it, and returns no error.
// Spans that cannot be delivered are lost.
type quietExporter struct {
	sdk.SpanExporter
	endpoint  string
	log       zerolog.Logger
	failing   atomic.Bool
	lostSpans atomic.Int64
}

// ExportSpans implements [sdk.SpanExporter].
func (e *quietExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil:
		e.lostSpans.Add(int64(len(spans)))
		if e.failing.CompareAndSwap(false, true) {
			e.log.Warn().Str("endpoint", e.endpoint).Err(err).
				Msg("Cannot deliver traces to the collector; spans are lost until it recovers. Nothing else is " +
					"affected. Check [tracing] endpoint.")
		}
	case e.failing.CompareAndSwap(true, false):
		e.log.Info().Str("endpoint", e.endpoint).Int64("lost_spans", e.lostSpans.Swap(0)).
			Msg("Trace delivery recovered.")
	}
	return nil
}

// ratio records a fraction of the traces that begin here. The SDK's own sampler decides by the bits
// of the trace id, of which ours have a few that are always the same.
type ratio float64

// ShouldSample implements [sdk.Sampler].
func (r ratio) ShouldSample(sdk.SamplingParameters) sdk.SamplingResult {
	if rand.Float64() < float64(r) {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return sdk.SamplingResult{Decision: sdk.Drop}
}

// Description implements [sdk.Sampler].
func (r ratio) Description() string { return fmt.Sprintf("ratio %v", float64(r)) }

// requestKey is where a context has the id of the request that its spans are for.
type requestKey struct{}

// ids makes the ids of traces and spans.
type ids struct{}

// NewIDs implements [sdk.IDGenerator]: the id of the request is that of the trace.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id := traceIDOf(requestOf(ctx))
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, newSpanID()
}

// NewSpanID implements [sdk.IDGenerator].
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// traceIDOf is the id of the trace of a request; the zero id if it is not "req-" and a UUID.
func traceIDOf(request string) (id trace.TraceID) {
	digits, is := strings.CutPrefix(request, "req-")
	raw, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if !is || err != nil || len(raw) != len(id) {
		return trace.TraceID{}
	}
	return trace.TraceID(raw)
}
