// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"sync/atomic"

	"github.com/rs/zerolog"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// patient is an exporter that keeps its failures to itself, but for one line of log when they begin and one when they end.
// Spans that could not be delivered are lost.
type patient struct {
	sdk.SpanExporter
	endpoint string
	log      zerolog.Logger
	failing  atomic.Bool
	lost     atomic.Int64
}

// ExportSpans implements [sdk.SpanExporter].
func (p *patient) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := p.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil:
		p.lost.Add(int64(len(spans)))
		if p.failing.CompareAndSwap(false, true) {
			p.log.Warn().Str("endpoint", p.endpoint).Err(err).
				Msg("Traces cannot be delivered to their collector, and are lost until they can. Nothing else is affected; [tracing] endpoint says where it is.")
		}
	case p.failing.CompareAndSwap(true, false):
		p.log.Info().Str("endpoint", p.endpoint).Int64("lost_spans", p.lost.Swap(0)).Msg("Traces are delivered again.")
	}
	return nil
}
