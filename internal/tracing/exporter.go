// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// quietExporter logs the first failure of a series and the end of it, and returns no error.
// Spans that cannot be delivered are lost.
type quietExporter struct {
	sdk.SpanExporter
	endpoint string
	log      zerolog.Logger
	failing  atomic.Bool
	lost     atomic.Int64
}

// ExportSpans implements [sdk.SpanExporter].
func (e *quietExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil:
		e.lost.Add(int64(len(spans)))
		if e.failing.CompareAndSwap(false, true) {
			e.log.Warn().Str("endpoint", e.endpoint).Err(err).
				Msg("Cannot deliver traces to the collector; spans are lost until it recovers. Nothing else is " +
					"affected. Check [tracing] endpoint.")
		}
	case e.failing.CompareAndSwap(true, false):
		e.log.Info().Str("endpoint", e.endpoint).Int64("lost_spans", e.lost.Swap(0)).Msg("Trace delivery recovered.")
	}
	return nil
}
